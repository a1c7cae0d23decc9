//! Members of instance groups.

use std::collections::BTreeSet;

use rstest::rstest;

use super::{
    World, ZONE, code,
    fake::{Fault, PROJECT},
    with_id,
};
use mcm_api::load_balancer::{InstanceGroup, LoadBalancer, TargetGroup};
use mcm_driver::{Code, Driver, MachineRequest};

fn groups(all: &[(&str, &str)]) -> LoadBalancer {
    let group = |(zone, name): &(&str, &str)| InstanceGroup { zone: (*zone).to_owned(), name: (*name).to_owned() };
    LoadBalancer::GcpInstanceGroups(all.iter().map(group).collect())
}

fn own() -> LoadBalancer {
    groups(&[("europe-west1-c", "other"), (ZONE, "cp")])
}

/// A group without members, and a machine with a VM.
async fn world() -> (World, MachineRequest) {
    let world = World::new().await;
    world.put_for("a", "uid-a");
    world.gce.lock().groups.insert((ZONE.to_owned(), "cp".to_owned()), BTreeSet::new());
    let request = with_id(world.request("a"), &format!("gce:///{PROJECT}/{ZONE}/a"));
    (world, request)
}

fn members(world: &World) -> Vec<String> {
    let gce = world.gce.lock();
    gce.groups.values().flatten().cloned().collect()
}

#[tokio::test]
async fn a_vm_is_in_the_group_of_its_zone_until_it_is_deregistered() {
    let (world, request) = world().await;
    for _ in 0..2 {
        world.driver.register(&request, &own()).await.unwrap();
        assert_eq!(members(&world), ["a"]);
    }
    for _ in 0..2 {
        world.driver.deregister(&request, &own()).await.unwrap();
        assert_eq!(members(&world), [""; 0]);
    }
    let gce = world.gce.lock();
    assert_eq!(
        (gce.of_call("instanceGroups.addInstances").count(), gce.of_call("instanceGroups.removeInstances").count()),
        (1, 1)
    );
}

/// Google removes a deleted VM from its groups.
#[tokio::test]
async fn a_vm_that_does_not_exist_is_deregistered_and_not_registered() {
    let (world, request) = world().await;
    world.gce.lock().vms.clear();
    world.driver.deregister(&request, &own()).await.unwrap();
    assert_eq!(code(world.driver.register(&request, &own()).await), Code::InvalidArgument);
}

#[rstest]
#[case::no_group(groups(&[(ZONE, "gone")]), Code::NotFound)]
#[case::of_another_zone(groups(&[("europe-west1-c", "cp")]), Code::InvalidArgument)]
#[case::no_name(groups(&[(ZONE, "../cp")]), Code::InvalidArgument)]
#[case::of_another_cloud(LoadBalancer::AwsTargetGroup(TargetGroup::default()), Code::Unimplemented)]
#[tokio::test]
async fn a_group_that_cannot_have_the_vm_is_refused(#[case] balancer: LoadBalancer, #[case] expected: Code) {
    let (world, request) = world().await;
    assert_eq!(code(world.driver.register(&request, &balancer).await), expected);
    assert_eq!(code(world.driver.deregister(&request, &balancer).await), expected);
}

/// An answer that is not about the group does not say that the group does not exist.
#[rstest]
#[case::proxy(Fault::Status(404), Code::Unknown)]
#[case::other_resource(Fault::Error("notFound", 404), Code::InvalidArgument)]
#[case::refused(Fault::Error("forbidden", 403), Code::PermissionDenied)]
#[tokio::test]
async fn any_other_failure_leaves_the_membership_unknown(#[case] fault: Fault, #[case] expected: Code) {
    let (world, request) = world().await;
    world.gce.lock().faults.push(("instanceGroups.listInstances", fault, 99));
    assert_eq!(code(world.driver.deregister(&request, &own()).await), expected);
}
