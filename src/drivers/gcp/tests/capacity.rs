//! The capacity of VMs, from a fake Compute API.

use rstest::rstest;
use serde_json::{Value, json};

use super::{World, class, fake::Fault, spec, spec_with};
use mcm_driver::{
    Code,
    capacity::{GpuCapacity, VmCapacity},
    interface::Driver,
};

const TYPE: &str = "my-project/zones/europe-west1-b/machineTypes/n2-standard-2";

#[rstest]
#[case::plain(json!({}), json!({"architecture": "X86_64"}), Some("amd64"), GpuCapacity::NONE)]
#[case::arm(json!({}), json!({"architecture": "ARM64"}), Some("arm64"), GpuCapacity::NONE)]
#[case::without_a_word(json!({}), json!({}), None, GpuCapacity::NONE)]
#[case::gpus_of_the_class(
    json!({"gpu": {"acceleratorType": "nvidia-l4", "count": 2}}), json!({}), None,
    GpuCapacity { resource: Some("nvidia.com/gpu"), count: 2 }
)]
#[case::gpus_of_the_type(
    json!({}), json!({"accelerators": [{"guestAcceleratorType": "nvidia-h100-80gb", "guestAcceleratorCount": 8}]}), None,
    GpuCapacity { resource: Some("nvidia.com/gpu"), count: 8 }
)]
#[tokio::test]
async fn a_vm_has_the_capacity_of_its_type_and_the_disk_of_its_class(
    #[case] changes: Value,
    #[case] of_type: Value,
    #[case] architecture: Option<&'static str>,
    #[case] gpus: GpuCapacity,
) {
    let world = World::new().await;
    let mut shown = json!({"kind": "compute#machineType", "guestCpus": 2, "memoryMb": 8192});
    shown.as_object_mut().unwrap().extend(of_type.as_object().unwrap().clone());
    world.gce.lock().things.insert(TYPE.to_owned(), shown);
    let class = class(spec_with(&changes));
    let disk = spec()["disks"][0]["sizeGb"].as_u64();
    assert!(disk.is_some());
    let expected = VmCapacity {
        instance_type: "n2-standard-2".to_owned(),
        region: "europe-west1".to_owned(),
        zone: Some("europe-west1-b".to_owned()),
        cpus: 2,
        memory_mib: 8192,
        gpus: Some(gpus),
        architecture,
        disk_gib: disk,
    };
    assert_eq!(world.driver.capacity(&class, &world.secret()).await.unwrap(), expected);
}

#[rstest]
#[case::absent(None, Code::InvalidArgument)]
#[case::away(Some(Fault::Status(503)), Code::Unavailable)]
#[tokio::test]
async fn a_type_that_cannot_be_read_has_no_capacity(#[case] fault: Option<Fault>, #[case] code: Code) {
    let world = World::new().await;
    if let Some(fault) = fault {
        world.gce.lock().faults = vec![("machineTypes.get", fault, 99)];
    }
    let error = world.driver.capacity(&class(spec()), &world.secret()).await.unwrap_err();
    assert_eq!(error.code, code, "{error}");
}
