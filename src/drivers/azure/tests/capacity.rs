//! The capacity of VMs, from a fake of Resource Manager.

use mcm_driver::{
    Code, Driver,
    capacity::{GpuCapacity, VmCapacity},
};
use serde_json::json;

use super::{World, class, spec_with};

#[tokio::test]
async fn a_vm_has_the_capacity_of_its_size_and_the_disk_of_its_class() {
    let world = World::new().await;
    let class =
        class(spec_with(&[("properties.zone", json!(2)), ("properties.storageProfile.osDisk.diskSizeGB", json!(64))]));
    let expected = VmCapacity {
        instance_type: "Standard_D2s_v5".to_owned(),
        region: "westeurope".to_owned(),
        zone: Some("westeurope-2".to_owned()),
        cpus: 2,
        memory_mib: 3584,
        gpus: Some(GpuCapacity::NONE),
        architecture: Some("amd64"),
        disk_gib: Some(64),
    };
    assert_eq!(world.driver.capacity(&class, &world.secret()).await.unwrap(), expected);
}

#[tokio::test]
async fn a_size_that_the_location_does_not_offer_has_no_capacity() {
    let world = World::new().await;
    world.arm.lock().cloud.absent.push("size");
    let error = world.driver.capacity(&class(spec_with(&[])), &world.secret()).await.unwrap_err();
    assert_eq!(error.code, Code::InvalidArgument, "{error}");
}
