//! Recorded requests.

use mcm_driver::{Code, Driver, MachineRequest, SecretData};
use serde_json::{Value, json};

use super::{
    CLUSTER, OWNER, ROLE, World, code,
    fake::{PROJECT, TOKEN},
    secret, spec_with, with_id,
};

/// Method, path, query and body of all requests so far.
fn recorded(world: &World) -> Vec<Value> {
    let mut metal = world.metal.lock();
    let log = std::mem::take(&mut metal.log);
    let shown = |(_, request): (_, super::server::Request)| {
        let body = serde_json::from_str(&request.body).unwrap_or(Value::Null);
        json!([request.method, request.path, request.query, body])
    };
    log.into_iter().map(shown).collect()
}

fn list(filter: &str) -> Value {
    json!(["GET", format!("/metal/v1/projects/{PROJECT}/devices"), format!("per_page=1000&page=1{filter}"), null])
}

#[tokio::test]
async fn a_plain_class_sends_this_and_nothing_else() {
    let world = World::new().await;
    let request = world.request("a");
    assert_eq!(code(world.driver.status(&request).await), Code::NotFound);
    let vm = world.driver.create(&request).await.unwrap();
    let order = json!({
        "metro": "ny", "hostname": "a", "userdata": "#!/bin/sh\nhunter2-hunter2\n", "plan": "c3.small.x86",
        "billing_cycle": "hourly", "operating_system": "ubuntu_22_04",
        "tags": [CLUSTER, ROLE, "pool: workers", "machine.sapcloud.io/machine-uid=uid-a", "machine.sapcloud.io/owner=team-a"],
    });
    let created = json!(["POST", format!("/metal/v1/projects/{PROJECT}/devices"), "", order]);
    assert_eq!(recorded(&world), [list("&hostname=a"), created]);
    let known = with_id(request, &vm.provider_id);
    world.driver.status(&known).await.unwrap();
    world.driver.delete(&known).await.unwrap();
    let path = format!("/metal/v1/devices/{}", vm.provider_id.strip_prefix("equinixmetal://ny/").unwrap());
    let get = json!(["GET", path, "", null]);
    assert_eq!(recorded(&world), [get.clone(), get, json!(["DELETE", path, "", null])]);
    world.driver.list(&known.class, &known.secret).await.unwrap();
    assert_eq!(recorded(&world), [list("")]);
}

#[tokio::test]
async fn each_field_of_a_class_is_sent() {
    let world = World::new().await;
    let spec = spec_with(&json!({
        "ipxeScriptUrl": "https://example.com/boot", "OS": null, "sshKeys": ["0a6b9d9c-5c2a-4c7e-9d0a-3b1f5e8c7d21"],
        "billingCycle": "monthly", "tags": ["z", CLUSTER, "machine.sapcloud.io/machine-uid=forged", ROLE, "a: b"],
    }));
    world.driver.create(&world.request_for("a", "uid-a", spec)).await.unwrap();
    let sent = recorded(&world).pop().unwrap()[3].clone();
    assert_eq!(sent["operating_system"], "custom_ipxe");
    assert_eq!(sent["ipxe_script_url"], "https://example.com/boot");
    assert_eq!(sent["project_ssh_keys"], json!(["0a6b9d9c-5c2a-4c7e-9d0a-3b1f5e8c7d21"]));
    assert_eq!(sent["billing_cycle"], "monthly");
    let uid = "machine.sapcloud.io/machine-uid=uid-a";
    assert_eq!(sent["tags"], json!(["z", CLUSTER, ROLE, "a: b", uid, format!("machine.sapcloud.io/owner={OWNER}")]));
    world.assert_valid_requests();
}

#[tokio::test]
async fn user_data_are_sent_as_they_are() {
    let world = World::new().await;
    let mut request = world.request("a");
    request.secret.0.insert("userData".to_owned(), b" #cloud-config\n\n".to_vec());
    world.driver.create(&request).await.unwrap();
    assert_eq!(recorded(&world).pop().unwrap()[3]["userdata"], " #cloud-config\n\n");
}

#[tokio::test]
async fn requests_carry_the_token_of_their_secret() {
    let world = World::new().await;
    for (key, token, is_accepted) in [
        ("apiToken", format!(" {TOKEN}\n"), true),
        ("alternateApiToken", TOKEN.to_owned(), true),
        ("apiToken", "x".to_owned(), false),
    ] {
        let secret: SecretData = secret(&[("endpointURL", &world.url), (key, &token)]);
        let request = MachineRequest { secret, ..world.request("a") };
        assert_eq!(world.driver.list(&request.class, &request.secret).await.is_ok(), is_accepted);
        let log = std::mem::take(&mut world.metal.lock().log);
        assert_eq!(log[0].1.headers["x-auth-token"], token.trim());
    }
}
