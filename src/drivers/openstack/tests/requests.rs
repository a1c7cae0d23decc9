//! Recorded requests.

use base64::{Engine, prelude::BASE64_STANDARD};
use mcm_driver::{Code, interface::Driver};
use serde_json::{Value, json};

use super::{
    CLUSTER, OWNER, OWNER_KEY, ROLE, UID, World, code,
    fake::{
        GROUP, GROUP_ID, IMAGE_ID, KEY_PAIR, NETWORK, NETWORK_ID, SECOND_NETWORK_ID, SERVER_GROUP_ID, SUBNET_ID, ZONE,
    },
    spec_with, with_id,
};

/// Method, path with query, and body of all requests so far.
pub(super) fn recorded(world: &World) -> Vec<Value> {
    let mut openstack = world.openstack.lock();
    let log = std::mem::take(&mut openstack.log);
    let shown = |(_, request): (_, super::server::Request)| {
        let query = if request.query.is_empty() { String::new() } else { format!("?{}", request.query) };
        let body = serde_json::from_str(&request.body).unwrap_or(Value::Null);
        json!([request.method, request.path + &query, body])
    };
    log.into_iter().map(shown).collect()
}

fn metadata() -> Value {
    json!({CLUSTER.0: "1", ROLE.0: "1", "pool": "workers", UID: "uid-a", OWNER_KEY: OWNER})
}

fn ordered() -> Value {
    json!({
        "name": "a", "imageRef": IMAGE_ID, "flavorRef": "1", "networks": [{"uuid": NETWORK_ID}], "availability_zone": ZONE,
        "key_name": KEY_PAIR, "metadata": metadata(), "security_groups": [{"name": GROUP}],
        "user_data": BASE64_STANDARD.encode("#!/bin/sh\nhunter2-hunter2\n"),
    })
}

/// The body of the only request of a call.
fn sent(world: &World, call: &str) -> Value {
    let sent = world.openstack.lock().sent(call);
    assert_eq!(sent.len(), 1, "{call}");
    serde_json::from_str(&sent[0].body).unwrap()
}

#[tokio::test]
async fn a_plain_class_sends_this_and_nothing_else() {
    let world = World::new().await;
    let request = world.request("a");
    assert_eq!(code(world.driver.status(&request).await), Code::NotFound);
    let vm = world.driver.create(&request).await.unwrap();
    let mut found = recorded(&world);
    let token = found.remove(0);
    assert_eq!((&token[0], &token[1]), (&json!("POST"), &json!("/identity/v3/auth/tokens")));
    let id = vm.provider_id.strip_prefix("openstack:///RegionOne/").unwrap();
    // Image and flavor are looked for at the same time.
    found[1..3].sort_by_key(|request| request[1].to_string());
    let port = world.openstack.lock().cloud.ports.values().next().unwrap().id.clone();
    let pairs = json!({"port": {"allowed_address_pairs": [{"ip_address": "10.96.0.0/11"}]}});
    let expected = [
        json!(["GET", "/compute/v2.1/servers/detail?name=%5E%28a%29%24&limit=500", null]),
        json!(["GET", "/compute/v2.1/flavors", null]),
        json!(["GET", "/compute/v2.1/images?name=gardenlinux", null]),
        json!(["POST", "/compute/v2.1/servers", {"server": ordered()}]),
        json!(["GET", format!("/compute/v2.1/servers/{id}"), null]),
        json!(["GET", format!("/network/v2.0/ports?device_id={id}"), null]),
        json!(["PUT", format!("/network/v2.0/ports/{port}"), pairs]),
    ];
    assert_eq!(found, expected);
    let known = with_id(request, &vm.provider_id);
    world.driver.status(&known).await.unwrap();
    world.driver.delete(&known).await.unwrap();
    let look = json!(["GET", format!("/compute/v2.1/servers/{id}"), null]);
    let deletion = json!(["DELETE", format!("/compute/v2.1/servers/{id}"), null]);
    assert_eq!(recorded(&world), [look.clone(), look.clone(), deletion, look]);
    world.driver.list(&known.class, &known.secret).await.unwrap();
    assert_eq!(recorded(&world), [json!(["GET", "/compute/v2.1/servers/detail?limit=500", null])]);
}

#[tokio::test]
async fn each_field_of_a_class_is_sent() {
    let world = World::new().await;
    let spec = spec_with(&json!({
        "imageID": IMAGE_ID, "useConfigDrive": true, "serverGroupID": SERVER_GROUP_ID, "networkID": null,
        "networks": [{"id": SECOND_NETWORK_ID}, {"name": NETWORK, "podNetwork": true}], "rootDiskSize": 20,
        "tags": {CLUSTER.0: "1", ROLE.0: "1", UID: "forged", OWNER_KEY: "forged", "pool": "workers"},
    }));
    world.driver.create(&world.request_for("a", "uid-a", spec)).await.unwrap();
    let mut expected = ordered();
    expected["networks"] = json!([{"uuid": SECOND_NETWORK_ID}, {"uuid": NETWORK_ID}]);
    expected["config_drive"] = true.into();
    expected["block_device_mapping_v2"] = json!([{
        "boot_index": 0, "uuid": IMAGE_ID, "volume_size": 20, "source_type": "image", "destination_type": "volume",
        "delete_on_termination": true,
    }]);
    let hints = json!({"group": SERVER_GROUP_ID});
    assert_eq!(sent(&world, "server.create"), json!({"server": expected, "os:scheduler_hints": hints}));
    assert_eq!(world.calls("image.list"), 0, "an ID is not looked up");
    assert_eq!(world.calls("port.update"), 1, "only the network of pods gets their addresses");
    world.assert_valid_requests();
}

#[tokio::test]
async fn a_port_and_a_volume_are_created_before_their_server() {
    let world = World::new().await;
    world.driver.create(&world.request_with_parts("a")).await.unwrap();
    let description = format!("{UID}=uid-a");
    let port = json!({
        "name": "a", "network_id": NETWORK_ID, "description": description, "fixed_ips": [{"subnet_id": SUBNET_ID}],
        "security_groups": [GROUP_ID], "allowed_address_pairs": [{"ip_address": "10.96.0.0/11"}],
    });
    assert_eq!(sent(&world, "port.create"), json!({"port": port}));
    assert_eq!(sent(&world, "port.tag"), json!({"tags": [CLUSTER.0, ROLE.0]}));
    let volume = json!({
        "name": "a", "size": 50, "imageRef": IMAGE_ID, "availability_zone": ZONE, "volume_type": "ssd",
        "metadata": metadata(),
    });
    assert_eq!(sent(&world, "volume.create"), json!({"volume": volume}));
    let (port, volume) = {
        let cloud = &world.openstack.lock().cloud;
        (cloud.ports.keys().next().unwrap().clone(), cloud.volumes.keys().next().unwrap().clone())
    };
    let order = sent(&world, "server.create");
    assert_eq!(order["server"]["networks"], json!([{"uuid": NETWORK_ID, "port": port}]));
    let disk = json!([{
        "boot_index": 0, "uuid": volume, "volume_size": 50, "source_type": "volume", "destination_type": "volume",
        "delete_on_termination": false,
    }]);
    assert_eq!(order["server"]["block_device_mapping_v2"], disk);
    assert_eq!(world.calls("port.update"), 0, "the port accepts the addresses of pods from the beginning");
    world.assert_valid_requests();
}

#[tokio::test]
async fn subnets_and_addresses_are_sent_once_and_in_order() {
    let world = World::new().await;
    let spec = spec_with(&json!({
        "subnetID": SUBNET_ID, "subnetIDs": [SUBNET_ID], "podNetworkCidr": "fd00::/48", "podNetworkCIDRs": ["10.96.0.0/11", "fd00::/48"],
        "securityGroups": [],
    }));
    world.driver.create(&world.request_for("a", "uid-a", spec)).await.unwrap();
    let port = sent(&world, "port.create")["port"].clone();
    assert_eq!(port["fixed_ips"], json!([{"subnet_id": SUBNET_ID}]));
    assert_eq!(port["allowed_address_pairs"], json!([{"ip_address": "10.96.0.0/11"}, {"ip_address": "fd00::/48"}]));
    assert_eq!(port.get("security_groups"), None, "Neutron gives it the default group");
    assert_eq!(sent(&world, "server.create")["server"].get("security_groups"), None);
}

/// Data that are Base64 by accident are not decoded by Nova.
#[tokio::test]
async fn user_data_are_always_encoded() {
    let world = World::new().await;
    let mut request = world.request("a");
    request.secret.0.insert("userData".to_owned(), b"abcd".to_vec());
    world.driver.create(&request).await.unwrap();
    assert_eq!(world.openstack.lock().cloud.existing()[0].user_data, b"abcd");
}
