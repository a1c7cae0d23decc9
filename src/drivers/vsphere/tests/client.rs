//! govmomi, the client of vCenter's API for Go, beside the driver: each works with the VMs of the other.

use std::process::Command;

use mcm_driver::{ListedVm, interface::Driver};
use serde_json::{Value, json};

use super::{CLUSTER, ID_FIELD, OWNER, OWNER_FIELD, ROLE, UID, World, spec_with};

/// A script that runs a program with that client.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../hack/vsphere");

#[tokio::test(flavor = "multi_thread")]
async fn govmomi_and_mcm_find_each_others_vms() {
    let world = World::new().await;
    let request = world.request_for("ours", "uid-ours", spec_with(&json!({"numCpus": 4})));
    let vm = world.driver.create(&request).await.unwrap();
    let arguments = ["client", &world.vcenter.host, "ours", "theirs"].map(str::to_owned);
    let run = move || Command::new(SCRIPT).args(arguments).output().unwrap();
    let output = tokio::task::spawn_blocking(run).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let read = &printed["read"];
    assert_eq!(vm.provider_id, format!("vsphere://eu/{}", read["uuid"].as_str().unwrap()));
    assert_eq!((&read["power"], &read["cpus"]), (&json!("poweredOn"), &json!(4)));
    let fields = json!({
        CLUSTER.0: CLUSTER.1, ROLE.0: ROLE.1, "pool": "workers", UID: "uid-ours", OWNER_FIELD: OWNER, ID_FIELD: vm.provider_id,
    });
    assert_eq!(read["fields"], fields);
    // The other way round: a VM as Gardener's driver makes them.
    let theirs = format!("vsphere://eu/{}", printed["made"]["uuid"].as_str().unwrap());
    let other = world.request("theirs");
    assert_eq!(world.driver.create(&other).await.unwrap().provider_id, theirs);
    let listed = world.driver.list(&request.class, &request.secret).await.unwrap();
    let ours = ListedVm::new("ours", Some(OWNER.to_owned()));
    assert_eq!(listed, [(vm.provider_id, ours), (theirs, ListedVm::new("theirs", None))].into());
    for request in [request, other] {
        world.driver.delete(&request).await.unwrap();
    }
    assert_eq!(world.count(), 0);
}
