//! VMs without a Machine whose Nodes exist: they are drained, one of a pool at a time, or kept.

use rstest::rstest;
use serde_json::{Value, json};

use super::world::World;
use crate::orphans::{ForeignClasses, NamespacePools};
use mcm_api::{labels, reasons::EventReason};

/// Longer than the probe of a Node.
const LONG: i64 = 60;

/// A pool with its two replicas, and VMs 5 and 6 of machines that a restored backup does not have.
fn restored() -> World {
    let mut world = World::new();
    world.vms.clear();
    world.machines.clear();
    world.pool(2);
    world.member(1, "Running");
    world.member(2, "Running");
    for number in [5, 6] {
        world.vm(number, &format!("pool-0-{number}"));
        world.node(&format!("node-{number}"), &format!("cloud:///{number}"));
    }
    world
}

#[test]
fn the_nodes_of_orphans_are_drained_one_after_the_other_and_their_vms_not_deleted_before() {
    let mut world = restored();
    world.run(15);
    assert_eq!(world.drained, [""; 0], "other managers may claim the nodes for the creation timeout");
    world.run(LONG);
    assert_eq!(world.drained, ["pool-0-5"], "one at a time");
    world.run(24 * 60);
    assert_eq!(
        (world.drained.as_slice(), world.deleted.len()),
        (["pool-0-5".to_owned()].as_slice(), 0),
        "however long"
    );
    let machine = &world.machines["pool-0-5"];
    let made = serde_json::to_value(machine).unwrap();
    assert_eq!(made["metadata"]["finalizers"], json!(["machine.sapcloud.io/machine-controller-manager"]));
    assert_eq!(made["metadata"]["labels"], json!({"node": "node-5"}));
    assert_eq!(made["metadata"]["annotations"], json!({labels::ORPHAN: "pool"}));
    assert_eq!(made["spec"]["providerID"], "cloud:///5");
    assert_eq!(made["spec"]["drainTimeout"], "7m0s", "the timeouts of its pool");

    world.finish("pool-0-5");
    world.run(15);
    assert_eq!(world.drained, ["pool-0-5", "pool-0-6"]);
    world.finish("pool-0-6");
    world.run(LONG);
    assert_eq!((world.vms.len(), world.machines.len(), world.attempts.len()), (2, 2, 0), "as many as replicas");
    let told: Vec<_> = world.events.iter().map(|(reason, _)| *reason).collect();
    assert_eq!(told, [EventReason::OrphanFound, EventReason::OrphanDraining, EventReason::OrphanDraining]);
    let found = &world.events[0].1;
    assert!(found.starts_with("VMs without a machine, with nodes: cloud:///5 (machine pool-0-5), "), "{found}");
}

#[rstest]
#[case::a_machine_failed(|world: &mut World| world.member(2, "Failed"), "the machines of pool: 1 run < 2 replicas")]
#[case::a_machine_is_missing(|world: &mut World| { world.machines.remove("pool-1-2"); }, "the machines of pool: 1 run < 2 replicas")]
#[case::a_machine_has_no_vm(|world: &mut World| { world.vms.remove("cloud:///2"); }, "the machines of pool: 1 run < 2 replicas")]
#[case::it_was_scaled_up(|world: &mut World| world.pool(3), "the machines of pool: 2 run < 3 replicas")]
#[case::a_pool_of_another_name_is_short(|world: &mut World| {
    world.vms.get_mut("cloud:///5").unwrap().machine = "other-5".to_owned();
    world.vms.get_mut("cloud:///6").unwrap().machine = "other-6".to_owned();
    world.pool(3);
}, "the machines of pool: 2 run < 3 replicas")]
#[case::pools_cannot_be_read(|world: &mut World| world.pools = Err("timeout".to_owned()), "the sets and deployments: timeout")]
#[case::another_machine_is_replaced(|world: &mut World| world.permit_of = Some("pool-1-2".to_owned()), "a replacement permit")]
#[case::another_manager_has_the_nodes(|world: &mut World| unmark(world), "it has no annotation")]
#[case::a_manager_claims_it_in_this_moment(|world: &mut World| {
    world.claimed_lately = vec!["node-5".to_owned(), "node-6".to_owned()];
}, "to stay as it is")]
#[case::the_cache_lacks_its_machine(|world: &mut World| {
    world.not_cached = vec!["pool-0-5".to_owned(), "pool-0-6".to_owned()];
}, "has another VM")]
#[case::a_set_would_adopt_its_machine(|world: &mut World| {
    let set = json!({
        "metadata": {"name": "all", "uid": "a"},
        "spec": {"selector": {"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}},
    });
    world.pools = Ok(NamespacePools::new(&[], &[serde_json::from_value(set).unwrap()]));
}, "all would adopt its machine")]
#[case::its_cluster_cannot_be_named(|world: &mut World| world.nodes.values_mut().for_each(|one| one.is_default = false), "is in cluster target")]
#[case::dry_run(|world: &mut World| world.policy.is_dry_run = true, "")]
fn a_vm_whose_node_serves_is_kept(#[case] change: fn(&mut World), #[case] reason: &str) {
    let mut world = restored();
    change(&mut world);
    world.run(24 * 60);
    assert_eq!((world.drained.len(), world.attempts.len()), (0, 0));
    assert!(["cloud:///5", "cloud:///6"].iter().all(|id| world.vms.contains_key(*id)));
    let waits: Vec<&str> = world.last.waits.iter().map(|wait| wait.text.as_str()).collect();
    assert!(waits.iter().any(|text| text.contains(reason)), "{waits:?}");
}

fn unmark(world: &mut World) {
    let bare = json!({"metadata": {"annotations": {labels::NOT_MANAGED: null}}});
    ["node-5", "node-6"].iter().for_each(|name| world.change_node(name, &bare));
}

/// A Node that is not ready serves nothing, so its pool need not be complete.
#[test]
fn the_node_of_a_dead_vm_is_drained_although_its_pool_is_short() {
    let mut world = restored();
    world.member(2, "Pending");
    let dead = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
    world.change_node("node-6", &dead);
    world.run(24 * 60);
    assert_eq!(world.drained, ["pool-0-6"], "and not the Node that is ready");
}

/// An old control cluster and a new one have namespaces of one name, and both see all VMs.
#[test]
fn vms_that_another_manager_has_are_left_alone_and_the_class_shows_it_once() {
    let mut world = restored();
    unmark(&mut world);
    // Of the other manager, and its Node has not joined yet.
    world.vm(7, "pool-0-7");
    world.run(24 * 60);
    assert_eq!((world.drained.len(), world.attempts.len()), (0, 0));
    let kept: Vec<&str> = world
        .events
        .iter()
        .filter(|(reason, _)| *reason == EventReason::OrphanKept)
        .map(|(_, text)| text.as_str())
        .collect();
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert!(kept[0].contains("another manager has their nodes"), "{kept:?}");
    assert!(kept[0].contains("cloud:///5 (machine pool-0-5), cloud:///6 (machine pool-0-6)"), "{kept:?}");
}

#[test]
fn a_node_that_is_claimed_and_released_again_is_probed_anew() {
    let mut world = restored();
    world.run(15);
    unmark(&mut world);
    world.run(15);
    let marked = json!({"metadata": {"annotations": {labels::NOT_MANAGED: "1"}}});
    ["node-5", "node-6"].iter().for_each(|name| world.change_node(name, &marked));
    world.run(15);
    assert_eq!(world.drained, [""; 0]);
    world.run(LONG);
    assert_eq!(world.drained, ["pool-0-5"]);
}

/// The process died between creation and deletion.
#[test]
fn a_machine_that_was_created_for_an_orphan_and_not_deleted_is_deleted_by_the_next_process() {
    let mut world = restored();
    world.run(LONG);
    world.machines.get_mut("pool-0-5").unwrap().metadata.deletion_timestamp = None;
    (world.memory, world.drained) = Default::default();
    world.member(2, "Failed");
    world.run(15);
    assert_eq!(world.drained, [""; 0], "not while its pool is short");
    world.member(2, "Running");
    world.run(15);
    assert_eq!(world.drained, ["pool-0-5"]);
    world.machines.get_mut("pool-0-5").unwrap().metadata.deletion_timestamp = None;
    world.machines.get_mut("pool-0-5").unwrap().metadata.annotations = None;
    world.drained.clear();
    world.run(LONG);
    assert_eq!(world.drained, ["pool-0-6"], "without the annotation it is a machine like others");
}

#[rstest]
#[case::the_id_has_another_form("zone-1/5", json!({}), true)]
#[case::it_has_no_id_and_the_name_of_the_machine("", json!({}), true)]
#[case::another_vm("cloud:///9", json!({}), false)]
#[case::it_has_no_id_and_another_name("", json!({"metadata": {"name": "other"}}), false)]
fn a_vm_has_the_node_with_its_id_or_its_name(#[case] id: &str, #[case] change: Value, #[case] is_its: bool) {
    let mut world = World::new();
    world.vms.clear();
    world.vm(5, "five");
    world.node("five", id);
    world.change_node("five", &change);
    world.run(LONG);
    let (drained, deleted) = (world.drained.len(), world.attempts.len());
    assert_eq!((drained, deleted), if is_its { (1, 0) } else { (0, 1) });
}

/// Its user deleted the Node: nothing is left to drain.
#[test]
fn a_vm_that_loses_its_node_is_deleted_after_it_was_seen_without_one_for_a_period() {
    let mut world = restored();
    world.run(15);
    world.nodes.remove("node-5");
    world.pass();
    assert_eq!(world.attempts.len(), 0);
    world.run(15);
    assert_eq!(world.deleted, ["cloud:///5"]);
}

/// A VM without a marker, where that may be an orphan.
#[rstest]
#[case::alone(ForeignClasses::Known(Vec::new()), 1)]
#[case::unchecked(ForeignClasses::Forbidden { has_own_tag: false }, 0)]
fn an_unmarked_vm_with_a_node_is_drained_where_one_namespace_uses_the_tag(
    #[case] others: ForeignClasses,
    #[case] drained: usize,
) {
    let mut world = restored();
    world.others = others;
    for number in [5, 6] {
        world.vm_of(number, &format!("pool-0-{number}"), None);
    }
    world.run(LONG);
    assert_eq!((world.drained.len(), world.attempts.len()), (drained, 0));
}

/// Two classes with one cluster tag list the same VMs.
#[test]
fn a_vm_that_another_class_handles_is_neither_reported_nor_deleted() {
    let mut world = World::new();
    world.vm(3, "lost");
    world.elsewhere = ["cloud:///1 (machine gone)".to_owned()].into();
    world.run(LONG);
    assert_eq!(world.deleted, ["cloud:///3"]);
    let text = world.events.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join("\n");
    assert!(!text.contains("cloud:///1"), "{text}");
}
