//! Microsoft's own clients for Python, as users of the fake: it must not be written around our driver.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::{
    World,
    fake::{CLIENT, CLIENT_SECRET, GROUP, IMAGE, LOCATION, SCOPE, SIZE, SUBNET, SUBSCRIPTION, TENANT, VNET},
};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/hack/clouds/azure");

#[tokio::test(flavor = "multi_thread")]
async fn microsofts_own_clients_find_in_the_fake_what_they_expect() {
    let world = World::new().await;
    {
        let mut arm = world.arm.lock();
        // Newer clients have newer versions of the API.
        (arm.cloud.takes_any_version, arm.cloud.steps, arm.cloud.steps_of_parts) = (true, 2, 1);
    }
    let account = json!({
        "url": world.url, "tenant": TENANT, "client": CLIENT, "secret": CLIENT_SECRET, "scope": SCOPE,
        "subscription": SUBSCRIPTION, "group": GROUP, "location": LOCATION, "vnet": VNET, "subnet": SUBNET, "size": SIZE, "image": IMAGE,
    });
    let drive = move || {
        let mut command = Command::new(SCRIPT);
        command.arg("drive").arg(account.to_string()).stdout(Stdio::piped());
        command.spawn().unwrap().wait_with_output().unwrap()
    };
    let output = tokio::task::spawn_blocking(drive).await.unwrap();
    assert!(output.status.success());
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
    let expected = json!({
        "subnet": "nodes",
        "nic": ["a-nic", "Succeeded"],
        "vm": ["a", "Succeeded", "1", {"kubernetes.io-cluster-a": "1"}],
        "power": ["ProvisioningState/succeeded", "PowerState/running"],
        "holder": "a",
        "disk": ["a-os-disk", "a"],
        "in use": "NicInUse",
        "failed": ["ZonalAllocationFailed", "Failed"],
        "absent": [404, "ResourceNotFound"],
        "unknown field": [400, "InvalidRequestContent"],
        "deleted": true,
        "left": [404, 404],
        "nothing to delete": true,
    });
    assert_eq!(seen, expected);
    let arm = world.arm.lock();
    assert_eq!(arm.cloud.violations.len(), 1, "only the unknown field: {:?}", arm.cloud.violations);
    assert_eq!((arm.cloud.vms().len(), arm.cloud.nics().len()), (0, 1));
}
