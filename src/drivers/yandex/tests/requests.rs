//! Recorded requests.

use mcm_driver::interface::Driver;
use rstest::rstest;
use serde_json::{Value, json};

use super::{CLUSTER, ROLE, USER_DATA, World, fake::SUBNET, spec_with, with_id};

/// Method, path with query, and body of all requests so far but those of endpoints and tokens.
fn recorded(world: &World) -> Vec<Value> {
    let mut yandex = world.yandex.lock();
    let log = std::mem::take(&mut yandex.log);
    let is_shown = |(call, _): &(&str, _)| !["endpoint.list", "token.create"].contains(call);
    let shown = |(_, request): (_, super::server::Request)| {
        let body = serde_json::from_str(&request.body).unwrap_or(Value::Null);
        let query = if request.query.is_empty() { String::new() } else { format!("?{}", request.query) };
        json!([request.method, request.path + &query, body])
    };
    log.into_iter().filter(is_shown).map(shown).collect()
}

/// The body of the last request of an instance.
fn order(world: &World) -> Value {
    let sent = recorded(world);
    let order = sent.iter().rfind(|one| one[0] == "POST").unwrap();
    order[2].clone()
}

#[tokio::test]
async fn a_plain_class_sends_this_and_nothing_else() {
    let world = World::new().await;
    let request = world.request("a");
    let vm = world.driver.create(&request).await.unwrap();
    let order = json!({
        "folderId": "b1gfolder", "name": "a", "hostname": "a", "zoneId": "ru-central1-a", "platformId": "standard-v3",
        "labels": {
            CLUSTER: "1", ROLE: "1", "pool": "workers", "machine-sapcloud-io-machine-uid": "uid-a",
            "machine-sapcloud-io-owner": "team-a",
        },
        "metadata": {"user-data": USER_DATA},
        "resourcesSpec": {"cores": "2", "memory": "4294967296"},
        "bootDiskSpec": {
            "mode": "READ_WRITE", "autoDelete": true,
            "diskSpec": {"typeId": "network-ssd", "size": "53687091200", "imageId": "fd8image"},
        },
        "networkInterfaceSpecs": [
            {"subnetId": SUBNET, "primaryV4AddressSpec": {"oneToOneNatSpec": {"ipVersion": "IPV4"}}}
        ],
        "schedulingPolicy": {"preemptible": false},
    });
    let list = "/compute/v1/instances?folderId=b1gfolder&pageSize=1000";
    let by_name = format!("{list}&filter=name%3D%22a%22");
    let instance = "/compute/v1/instances/fhm00000";
    let expected = [
        json!(["GET", by_name, null]),
        json!(["POST", "/compute/v1/instances", order]),
        json!(["GET", "/operations/fhmop0", null]),
        json!(["GET", "/operations/fhmop0", null]),
        json!(["GET", instance, null]),
    ];
    assert_eq!(recorded(&world), expected);
    let known = with_id(request, &vm.provider_id);
    world.driver.status(&known).await.unwrap();
    world.driver.delete(&known).await.unwrap();
    let expected = [
        json!(["GET", instance, null]),
        json!(["GET", instance, null]),
        json!(["DELETE", instance, null]),
        json!(["GET", "/operations/fhmop1", null]),
        json!(["GET", "/operations/fhmop1", null]),
    ];
    assert_eq!(recorded(&world), expected);
    world.driver.list(&known.class, &known.secret).await.unwrap();
    assert_eq!(recorded(&world), [json!(["GET", list, null])]);
}

#[tokio::test]
async fn each_field_of_a_class_is_sent() {
    let world = World::new().await;
    world.yandex.lock().cloud.addresses = ["198.51.100.1", "198.51.100.2"].map(|one| (one.to_owned(), false)).into();
    let spec = spec_with(&json!({
        "labels": {CLUSTER: "a", ROLE: "b", "machine-sapcloud-io-machine-uid": "forged", "team": "x"},
        "metadata": {"ssh-keys": "core:ssh-ed25519 AAAA", "user-data": "of the class"},
        "resourcesSpec": {"cores": 4, "memory": 8_589_934_592_i64, "coreFraction": 50, "gpus": 1},
        "bootDiskSpec": {"size": 21_474_836_480_i64, "imageID": "fd8image"},
        "networkInterfaceSpecs": [
            {"subnetID": SUBNET, "assignPublicIPAddress": true, "publicIPAddresses": ["198.51.100.2", "198.51.100.1"]},
            {"subnetID": SUBNET},
            {"subnetID": SUBNET, "assignPublicIPAddress": true, "publicIPAddresses": ["198.51.100.1", "198.51.100.2"]},
        ],
        "schedulingPolicy": {"preemptible": true}, "networkType": "SOFTWARE_ACCELERATED",
    }));
    world.driver.create(&world.request_for("a", "uid-a", spec)).await.unwrap();
    let sent = order(&world);
    let labels = json!({
        CLUSTER: "a", ROLE: "b", "team": "x", "machine-sapcloud-io-machine-uid": "uid-a",
        "machine-sapcloud-io-owner": "team-a",
    });
    assert_eq!(sent["labels"], labels);
    assert_eq!(sent["metadata"], json!({"ssh-keys": "core:ssh-ed25519 AAAA", "user-data": USER_DATA}));
    let resources = json!({"cores": "4", "memory": "8589934592", "coreFraction": "50", "gpus": "1"});
    assert_eq!(sent["resourcesSpec"], resources);
    let disk = json!({
        "mode": "READ_WRITE", "autoDelete": false, "diskSpec": {"size": "21474836480", "imageId": "fd8image"},
    });
    assert_eq!(sent["bootDiskSpec"], disk);
    let nat = |address: &str| json!({"oneToOneNatSpec": {"ipVersion": "IPV4", "address": address}});
    let interfaces = json!([
        {"subnetId": SUBNET, "primaryV4AddressSpec": nat("198.51.100.1")},
        {"subnetId": SUBNET, "primaryV4AddressSpec": {}},
        {"subnetId": SUBNET, "primaryV4AddressSpec": nat("198.51.100.2")},
    ]);
    assert_eq!(sent["networkInterfaceSpecs"], interfaces, "in the order of the folder, and none twice");
    assert_eq!(
        (&sent["schedulingPolicy"], &sent["networkSettings"]),
        (&json!({"preemptible": true}), &json!({"type": "SOFTWARE_ACCELERATED"}))
    );
    world.assert_valid_requests();
}

#[tokio::test]
async fn an_address_on_a_later_page_is_found() {
    let world = World::new().await;
    {
        let mut yandex = world.yandex.lock();
        yandex.cloud.page = 2;
        yandex.cloud.addresses = (0..5).map(|number| (format!("198.51.100.{number}"), number < 4)).collect();
    }
    let interface = json!({"subnetID": SUBNET, "assignPublicIPAddress": true, "publicIPAddresses": ["198.51.100.4"]});
    let spec = spec_with(&json!({"networkInterfaceSpecs": [interface]}));
    world.driver.create(&world.request_for("a", "uid-a", spec)).await.unwrap();
    assert_eq!(world.calls("address.list"), 3);
    world.assert_valid_requests();
}

#[tokio::test]
async fn addresses_are_listed_for_a_request_only() {
    let world = World::new().await;
    let request = world.request("a");
    world.driver.create(&request).await.unwrap();
    world.driver.create(&request).await.unwrap();
    assert_eq!(world.calls("address.list"), 0, "the class lists none");
}

#[rstest]
#[case::as_they_are(" #cloud-config\n")]
#[case::empty("")]
#[tokio::test]
async fn user_data_are_sent_as_they_are(#[case] user_data: &str) {
    let world = World::new().await;
    let mut request = world.request("a");
    request.secret.0.insert("userData".to_owned(), user_data.as_bytes().to_vec());
    world.driver.create(&request).await.unwrap();
    assert_eq!(order(&world)["metadata"]["user-data"], user_data);
}

#[tokio::test]
async fn an_idempotency_key_is_a_uuid_of_the_machine() {
    let world = World::new().await;
    for name in ["a", "b"] {
        world.driver.create(&world.request(name)).await.unwrap();
    }
    let yandex = world.yandex.lock();
    let keys: Vec<String> =
        yandex.sent("instance.create").iter().map(|request| request.headers["idempotency-key"].clone()).collect();
    assert!(keys.iter().all(|key| uuid::Uuid::parse_str(key).is_ok()) && keys[0] != keys[1], "{keys:?}");
}
