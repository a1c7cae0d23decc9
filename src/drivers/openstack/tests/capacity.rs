//! The capacity of servers, from a fake Nova.

use mcm_driver::{
    Code,
    capacity::{GpuCapacity, VmCapacity},
    interface::Driver,
};
use rstest::rstest;
use serde_json::{Value, json};

use super::{FLAVOR, REGION, World, ZONE, class, fake, server::Fault, spec_with};

async fn capacity(world: &World, changes: &Value) -> Result<VmCapacity, mcm_driver::DriverError> {
    world.driver.capacity(&class(spec_with(changes)), &world.secret()).await
}

#[rstest]
#[case::plain(&[], Some(GpuCapacity::NONE))]
#[case::virtual_gpus(&[("resources:VGPU", "2")], Some(GpuCapacity { resource: None, count: 2 }))]
#[case::no_number(&[("resources:VGPU", "many")], None)]
#[case::pci_devices(&[("pci_passthrough:alias", "a1:2")], None)]
#[tokio::test]
async fn a_server_has_the_capacity_of_its_flavor(
    #[case] specs: &[(&'static str, &str)],
    #[case] gpus: Option<GpuCapacity>,
) {
    let world = World::new().await;
    world.openstack.lock().cloud.flavor_specs = specs.iter().map(|(key, value)| (*key, (*value).to_owned())).collect();
    let expected = VmCapacity {
        instance_type: FLAVOR.to_owned(),
        region: REGION.to_owned(),
        zone: Some(ZONE.to_owned()),
        cpus: 4,
        memory_mib: 8192,
        gpus,
        architecture: None,
        disk_gib: Some(20),
    };
    assert_eq!(capacity(&world, &json!({"rootDiskSize": null})).await.unwrap(), expected);
    let larger = capacity(&world, &json!({"rootDiskSize": 70})).await.unwrap();
    assert_eq!(larger.disk_gib, Some(70), "a volume replaces the disk of the flavor");
}

/// Some clouds show extra specs to administrators only.
#[tokio::test]
async fn extra_specs_that_may_not_be_read_hide_the_gpus_only() {
    let world = World::new().await;
    let forbidden = || Fault::Error(fake::nova(403, "forbidden", "Policy doesn't allow it"));
    world.fail("flavor.specs", forbidden(), 9);
    assert_eq!(capacity(&world, &json!({})).await.unwrap().gpus, None);
    world.fail("flavor.get", forbidden(), 9);
    assert_eq!(capacity(&world, &json!({})).await.unwrap_err().code, Code::PermissionDenied);
}

#[tokio::test]
async fn a_flavor_that_does_not_exist_has_no_capacity() {
    let world = World::new().await;
    let error = capacity(&world, &json!({"flavorName": "nonesuch"})).await.unwrap_err();
    assert_eq!(error.code, Code::ResourceExhausted, "{error}");
}
