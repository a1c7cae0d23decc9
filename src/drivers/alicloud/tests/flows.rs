//! The decisions of the driver by the VMs that it finds.

use std::{collections::BTreeMap, sync::Arc};

use futures::future::join_all;
use mcm_driver::{Code, Driver, ListedVm, MachineRequest};
use rstest::rstest;
use serde_json::json;

use super::{CLUSTER, OWNER_TAG, ROLE, World, code, fake::Ecs, server::Fault, with_id};

const OTHER: (&str, &str) = ("kubernetes.io/cluster/other", "1");

/// ECS would find these by the name.
#[rstest]
#[case::without_markers(&[])]
#[case::of_another_cluster(&[OTHER, ROLE])]
#[case::of_another_role(&[CLUSTER])]
#[case::with_another_value(&[CLUSTER, (ROLE.0, "2")])]
#[tokio::test]
async fn a_vm_with_the_name_of_a_machine_and_without_its_markers_is_left_alone(#[case] tags: &[(&str, &str)]) {
    let world = World::new().await;
    world.put("a1", tags);
    let request = world.request("a1");
    assert_eq!(code(world.driver.status(&request).await), Code::NotFound);
    world.driver.delete(&request).await.unwrap();
    assert_eq!(world.driver.list(&request.class, &request.secret).await.unwrap(), BTreeMap::new());
    assert_eq!(world.count(), 1);
    world.driver.create(&request).await.unwrap();
    assert_eq!(world.count(), 2);
}

#[tokio::test]
async fn a_name_with_a_wildcard_is_only_that_name() {
    let world = World::new().await;
    world.put("a1", &[CLUSTER, ROLE]);
    for name in ["a*", "*"] {
        let request = world.request(name);
        assert_eq!(code(world.driver.status(&request).await), Code::NotFound);
        world.driver.delete(&request).await.unwrap();
    }
    assert_eq!(world.count(), 1);
}

#[rstest]
#[case::without_markers(&[], true)]
#[case::with_another_role(&[CLUSTER, ("kubernetes.io/role/master", "1")], true)]
#[case::of_another_cluster(&[OTHER, ROLE], false)]
#[tokio::test]
async fn a_known_vm_is_that_of_its_machine_unless_it_is_of_another_cluster(
    #[case] tags: &[(&str, &str)],
    #[case] is_found: bool,
) {
    let world = World::new().await;
    let known = with_id(world.request("a1"), &world.put("a1", tags));
    assert_eq!(world.driver.status(&known).await.is_ok(), is_found);
    world.driver.delete(&known).await.unwrap();
    assert_eq!(world.count(), usize::from(!is_found));
}

#[tokio::test]
async fn a_list_has_the_vms_with_both_markers_and_no_others() {
    let world = World::new().await;
    let ours = world.put("a1", &[CLUSTER, ROLE, (OWNER_TAG, "team-b"), ("more", "")]);
    world.put("b1", &[OTHER, ROLE]);
    world.put("c1", &[CLUSTER]);
    world.put("d1", &[ROLE]);
    world.put("e1", &[(CLUSTER.0, "2"), ROLE]);
    world.put("f1", &[]);
    let request = world.request("a1");
    let listed = world.driver.list(&request.class, &request.secret).await.unwrap();
    assert_eq!(listed, [(ours, ListedVm::new("a1", Some("team-b".to_owned())))].into());
}

#[tokio::test]
async fn a_list_has_all_pages() {
    let world = World::new().await;
    for number in 0..250 {
        world.put(&format!("m-{number}"), &[CLUSTER, ROLE]);
    }
    let request = world.request("a1");
    assert_eq!(world.driver.list(&request.class, &request.secret).await.unwrap().len(), 250);
    assert_eq!(world.calls("DescribeInstances"), 3, "a page has 100 VMs");
    world.assert_valid_requests();
}

/// A filter by tags shows 1000 VMs.
#[tokio::test]
async fn a_list_of_more_than_a_thousand_vms_is_complete() {
    let world = World::new().await;
    for number in 0..1010 {
        world.put(&format!("m-{number}"), &[CLUSTER, ROLE]);
    }
    world.put("other", &[OTHER, ROLE]);
    let request = world.request("a1");
    assert_eq!(world.driver.list(&request.class, &request.secret).await.unwrap().len(), 1010);
    // Look-ups of many names are such a list.
    let requests: Vec<_> = (1000..1010).map(|number| world.request(&format!("m-{number}"))).collect();
    for status in join_all(requests.iter().map(|request| world.driver.status(request))).await {
        status.unwrap();
    }
}

#[tokio::test]
async fn a_part_of_a_list_is_an_error() {
    let world = World::new().await;
    for number in 0..25 {
        world.put(&format!("m-{number}"), &[CLUSTER, ROLE]);
    }
    world.ecs.lock().cloud.page = 10;
    let request = world.request("a1");
    world.ecs.lock().cloud.fails_at_page = Some(3);
    assert_eq!(code(world.driver.list(&request.class, &request.secret).await), Code::Internal);
}

#[tokio::test]
async fn an_id_that_ecs_refuses_does_not_fail_the_look_ups_of_others() {
    let world = World::new().await;
    let good = with_id(world.request("a1"), &world.put("a1", &[CLUSTER, ROLE]));
    let bad = with_id(world.request("b1"), "cn-beijing.refused");
    world.ecs.lock().cloud.refused_id = Some("refused");
    let (good, bad) = futures::join!(world.driver.status(&good), world.driver.status(&bad));
    good.unwrap();
    assert_eq!(code(bad), Code::InvalidArgument);
}

#[rstest]
#[case::pauses(true)]
#[case::waits(false)]
#[tokio::test]
async fn a_vm_that_starts_is_deleted_as_soon_as_it_runs(#[case] may_pause: bool) {
    let world = World::new().await;
    world.ecs.lock().cloud.boots = 6;
    let request = MachineRequest { may_pause, ..world.request("a1") };
    let vm = world.driver.create(&request).await.unwrap();
    let request = with_id(request, &vm.provider_id);
    let mut pauses = 0;
    while let Err(error) = world.driver.delete(&request).await {
        assert!(error.call_again_in.is_some() && error.message.contains("with status"), "{error}");
        pauses += 1;
    }
    assert_eq!((pauses > 0, world.count(), world.calls("DeleteInstance")), (may_pause, 0, 1));
}

#[rstest]
#[case("Stopped", 1, Some("stopped"))]
#[case("Running", 1, None)]
#[case("Stopping", 0, Some("stopping"))]
#[tokio::test]
async fn a_stopped_vm_exists_and_is_deleted(
    #[case] status: &'static str,
    #[case] deletions: usize,
    #[case] halted: Option<&str>,
) {
    let world = World::new().await;
    let id = world.put("a1", &[CLUSTER, ROLE]);
    world.ecs.lock().cloud.instances.values_mut().next().unwrap().status = status;
    let request = with_id(MachineRequest { may_pause: true, ..world.request("a1") }, &id);
    assert_eq!(world.driver.status(&request).await.unwrap().halted.as_deref(), halted);
    assert_eq!(world.driver.delete(&request).await.is_ok(), deletions == 1);
    assert_eq!((world.calls("DeleteInstance"), world.count()), (deletions, 1 - deletions));
}

/// Its status may have changed since it was looked up.
#[tokio::test]
async fn a_deletion_that_ecs_refuses_for_the_status_is_tried_again() {
    let world = World::new().await;
    let request = world.request("a1");
    world.driver.create(&request).await.unwrap();
    let busy = Ecs::error(403, "IncorrectInstanceStatus", "the current status does not support this operation");
    world.fail("DeleteInstance", Fault::Error(busy), 4);
    world.driver.delete(&request).await.unwrap();
    assert_eq!(world.count(), 0);
}

#[tokio::test]
async fn a_protected_vm_is_not_deleted() {
    let world = World::new().await;
    let request = world.request("a1");
    world.driver.create(&request).await.unwrap();
    world.ecs.lock().cloud.instances.values_mut().next().unwrap().is_protected = true;
    let error = world.driver.delete(&request).await.unwrap_err();
    assert_eq!(error.code, Code::FailedPrecondition);
    assert!(error.message.contains("InvalidOperation.DeletionProtection"), "{error}");
    assert_eq!(world.count(), 1);
}

/// The machine controller deletes the Node itself; Cluster API core waits for the VM.
#[rstest]
#[case::of_a_machine(false, false)]
#[case::of_an_infrastructure_machine(true, false)]
#[case::of_an_infrastructure_machine_that_pauses(true, true)]
#[tokio::test]
async fn a_deletion_lasts_until_the_vm_is_gone_where_the_node_depends_on_it(
    #[case] waits: bool,
    #[case] may_pause: bool,
) {
    let world = World::new().await;
    let mut request = MachineRequest { may_pause, ..world.request("a1") };
    let vm = world.driver.create(&request).await.unwrap();
    if waits {
        let owner = json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "MCMMachine", "name": "a1", "uid": "u", "controller": true,
        });
        let machine = Arc::make_mut(&mut request.machine);
        machine.metadata.owner_references = Some(vec![serde_json::from_value(owner).unwrap()]);
        assert!(machine.is_infrastructure());
    }
    world.ecs.lock().cloud.lingers = 4;
    let request = with_id(request, &vm.provider_id);
    let mut pauses = 0;
    while let Err(error) = world.driver.delete(&request).await {
        assert!(may_pause && error.call_again_in.is_some(), "{error}");
        pauses += 1;
    }
    assert_eq!((pauses > 0, world.calls("DeleteInstance")), (may_pause, 1));
    assert_eq!(world.ecs.lock().cloud.instances.is_empty(), waits);
    // The list still has the VM for a collector of orphans. No second request is sent to ECS.
    world.driver.delete(&MachineRequest { machine: world.request("a1").machine, ..request.clone() }).await.unwrap();
    assert_eq!(world.calls("DeleteInstance"), 1);
}

#[tokio::test]
async fn machines_that_wait_together_share_their_look_ups() {
    let world = World::new().await;
    let requests: Vec<_> = (0..150).map(|number| world.request(&format!("m-{number}"))).collect();
    let vms = join_all(requests.iter().map(|request| world.driver.create(request))).await;
    let looks = world.calls("DescribeInstances");
    assert!(looks <= 50, "{looks} look-ups");
    let known: Vec<_> =
        requests.into_iter().zip(vms).map(|(request, vm)| with_id(request, &vm.unwrap().provider_id)).collect();
    for status in join_all(known.iter().map(|request| world.driver.status(request))).await {
        status.unwrap();
    }
    let looks = world.calls("DescribeInstances") - looks;
    assert!(looks <= 10, "{looks} look-ups: each has up to 100 IDs");
    world.assert_valid_requests();
}

#[tokio::test]
async fn few_names_are_looked_up_one_by_one() {
    let world = World::new().await;
    let requests: Vec<_> = (0..5).map(|number| world.request(&format!("m-{number}"))).collect();
    for status in join_all(requests.iter().map(|request| world.driver.status(request))).await {
        assert_eq!(code(status), Code::NotFound);
    }
    let sent = world.ecs.lock().sent("DescribeInstances");
    assert!(sent.iter().all(|request| request.query.contains("InstanceName=m-")), "{sent:?}");
}
