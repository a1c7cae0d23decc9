//! Recorded requests.

use serde_json::{Value, json};

use super::{
    CLUSTER, OWNER, World, code,
    fake::{HMAC, PARTITION, TOKEN},
    secret, spec_with, with_id,
};
use mcm_driver::{Code, MachineRequest, SecretData, interface::Driver};

/// Method, path and body of all requests so far.
fn recorded(world: &World) -> Vec<Value> {
    let mut metal = world.metal.lock();
    let log = std::mem::take(&mut metal.log);
    let shown = |(_, request): (_, super::server::Request)| {
        let body = serde_json::from_str(&request.body).unwrap_or(Value::Null);
        json!([request.method, request.path, body])
    };
    log.into_iter().map(shown).collect()
}

#[tokio::test]
async fn a_plain_class_sends_this_and_nothing_else() {
    let world = World::new().await;
    let request = world.request("a");
    assert_eq!(code(world.driver.status(&request).await), Code::NotFound);
    let vm = world.driver.create(&request).await.unwrap();
    let order = json!({
        "name": "a", "hostname": "a", "description": "a created by Gardener.", "partitionid": "fra-equ01",
        "sizeid": "c1-xlarge-x86", "imageid": "ubuntu-24.04", "projectid": "00000000-0000-4000-8000-0000000000aa",
        "networks": [{"networkid": "private-network", "autoacquire": true}], "ssh_pub_keys": [],
        "tags": [CLUSTER, "pool=workers", "machine.sapcloud.io/machine-uid=uid-a", "machine.sapcloud.io/owner=team-a"],
        "placement_tags": [CLUSTER], "user_data": "#!/bin/sh\nhunter2-hunter2",
    });
    let project = "00000000-0000-4000-8000-0000000000aa";
    let by_name = json!({"allocation_name": "a", "allocation_project": project, "tags": [CLUSTER]});
    let expected =
        [json!(["POST", "/metal/v1/machine/find", by_name]), json!(["POST", "/metal/v1/machine/allocate", order])];
    assert_eq!(recorded(&world), expected);
    let known = with_id(request, &vm.provider_id);
    world.driver.status(&known).await.unwrap();
    world.driver.delete(&known).await.unwrap();
    let id = vm.provider_id.strip_prefix(&format!("metal:///{PARTITION}/")).unwrap();
    let by_id = json!(["POST", "/metal/v1/machine/find", {"id": id, "allocation_project": project}]);
    assert_eq!(
        recorded(&world),
        [by_id.clone(), by_id, json!(["DELETE", format!("/metal/v1/machine/{id}/free"), null])]
    );
    world.driver.list(&known.class, &known.secret).await.unwrap();
    let of_cluster = json!({"allocation_project": project, "tags": [CLUSTER]});
    assert_eq!(recorded(&world), [json!(["POST", "/metal/v1/machine/find", of_cluster])]);
}

#[tokio::test]
async fn each_field_of_a_class_is_sent() {
    let world = World::new().await;
    let spec = spec_with(&json!({
        "sshKeys": ["ssh-ed25519 AAAA a"], "dnsServers": [{"ip": "1.1.1.1"}, {"ip": "2606:4700::1"}],
        "ntpServers": [{"address": "time.example.com"}, {"address": "10.0.0.1"}],
        "tags": ["z", CLUSTER, "machine.sapcloud.io/machine-uid=forged", "a=b=c"],
    }));
    world.driver.create(&world.request_for("a", "uid-a", spec)).await.unwrap();
    let sent = recorded(&world).pop().unwrap()[2].clone();
    assert_eq!(sent["ssh_pub_keys"], json!(["ssh-ed25519 AAAA a"]));
    assert_eq!(sent["dns_servers"], json!([{"ip": "1.1.1.1"}, {"ip": "2606:4700::1"}]));
    assert_eq!(sent["ntp_servers"], json!([{"address": "time.example.com"}, {"address": "10.0.0.1"}]));
    let tags = json!([
        "z",
        CLUSTER,
        "a=b=c",
        "machine.sapcloud.io/machine-uid=uid-a",
        format!("machine.sapcloud.io/owner={OWNER}")
    ]);
    assert_eq!(sent["tags"], tags);
    world.assert_valid_requests();
}

#[tokio::test]
async fn user_data_are_trimmed_and_left_out_if_there_are_none() {
    let world = World::new().await;
    for (user_data, expected) in [(" #cloud-config\n\n", json!("#cloud-config")), ("", Value::Null)] {
        let mut request = world.request(&format!("m-{}", user_data.len()));
        request.secret.0.insert("userData".to_owned(), user_data.as_bytes().to_vec());
        world.driver.create(&request).await.unwrap();
        assert_eq!(recorded(&world).pop().unwrap()[2]["user_data"], expected);
    }
}

async fn authorization(world: &World, secret: SecretData) -> (Vec<String>, bool) {
    let request = MachineRequest { secret, ..world.request("a") };
    let result = world.driver.list(&request.class, &request.secret).await;
    let mut metal = world.metal.lock();
    let log = std::mem::take(&mut metal.log);
    let headers = log.into_iter().map(|(_, request)| request.headers["authorization"].clone()).collect();
    (headers, result.is_ok())
}

#[tokio::test]
async fn requests_are_signed_or_carry_the_token() {
    let world = World::new().await;
    let (token, is_accepted) =
        authorization(&world, secret(&[("metalAPIURL", &world.url), ("metalAPIKey", TOKEN)])).await;
    assert_eq!((token, is_accepted), (vec![format!("Bearer {TOKEN}")], true));
    let (signed, is_accepted) = authorization(&world, world.secret()).await;
    assert!(is_accepted && signed[0].starts_with("Metal-Admin ") && !signed[0].contains(HMAC));
    let (_, is_accepted) =
        authorization(&world, secret(&[("metalAPIURL", &world.url), ("metalAPIHMac", "other")])).await;
    assert!(!is_accepted);
}
