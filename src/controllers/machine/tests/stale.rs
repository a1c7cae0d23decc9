//! Unknown is not absent: caches that are behind, reads that fail, Nodes of other Machines.

use std::collections::BTreeMap;

use rstest::rstest;
use serde_json::json;

use super::world::{World, at, node, pod, ready, unready};
use crate::machine::may_call_driver;
use mcm_api::{
    labels,
    machine::{Machine, MachinePhase},
};
use mcm_driver::{Code, DriverError};
use mcm_rules::safety::trust::{TargetTrust, TrustInterruption};

/// The cache has lost its Nodes.
fn behind(mut world: World) -> World {
    world.cached_nodes = Some(BTreeMap::new());
    world
}

/// Deleted, with a pod on its Node.
fn deleted() -> World {
    let mut world = World::running();
    world.pods = vec![pod("a")];
    world.delete();
    world
}

/// It has a VM and a Node that is not ready, since second 0.
fn waiting(phase: &str) -> World {
    let mut world = World::running();
    world.edit_status(|status| {
        status.current_status.phase = serde_json::from_value(json!(phase)).unwrap();
        status.current_status.last_update_time = Some(at(0).into());
    });
    world.set_conditions(unready());
    world.sleep(3600);
    world
}

/// See the scenario of the model: without this neither could go on.
#[rstest]
#[case::dead("Unknown", &["rival"])]
#[case::it_serves("Running", &[])]
fn a_dead_machine_with_a_conflicting_node_waits_for_no_permit(#[case] phase: &str, #[case] waived: &[&str]) {
    let mut world = World::new();
    let mut left_behind = node("n", unready());
    left_behind.spec.provider_id = "cloud:///old".to_owned();
    world.nodes.insert("n".to_owned(), left_behind);
    let mut holder = rival("cloud:///old", 0);
    holder.status = serde_json::from_value(json!({ "currentStatus": { "phase": phase } })).unwrap();
    world.rivals = vec![holder];
    world.pass();
    assert_eq!(
        (world.phase(), world.waived.as_slice()),
        (MachinePhase::Failed, &*waived.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>())
    );
}

#[test]
fn a_drain_is_not_skipped_for_a_cache_that_is_behind() {
    let mut world = behind(deleted());
    world.run_until(|world| world.machine.is_none());
    assert!(world.log.contains(&"EvictPod".to_owned()) && world.pods.is_empty(), "{:?}", world.log);
    assert!(world.nodes.is_empty(), "the Node is deleted, too");
}

#[test]
fn a_deletion_waits_for_a_node_that_cannot_be_read_until_it_is_forced() {
    let mut world = behind(deleted());
    world.unreadable_nodes = Some("timeout".to_owned());
    world.pass();
    assert_eq!(
        (world.waits.as_slice(), world.vms.len()),
        (&["the Node to become readable: timeout".to_owned()][..], 1)
    );
    assert!(world.wake_at.is_some());
    world.sleep(2 * 3600);
    world.pass();
    assert!(world.vms.is_empty(), "drainTimeout has passed");
    assert!(world.machine.is_some(), "but the Node may be left");
    world.unreadable_nodes = None;
    world.run_until(|world| world.machine.is_none());
    assert!(world.nodes.is_empty());
}

#[rstest]
#[case::readable(None, MachinePhase::Running, 0)]
#[case::not_readable(Some("timeout"), MachinePhase::Running, 1)]
fn a_running_machine_is_not_unknown_for_a_cache_that_is_behind(
    #[case] error: Option<&str>,
    #[case] expected: MachinePhase,
    #[case] waits: usize,
) {
    let mut world = behind(World::running());
    world.unreadable_nodes = error.map(str::to_owned);
    world.pass();
    assert_eq!((world.phase(), world.machine_writes, world.waits.len()), (expected, 0, waits));
}

#[rstest]
fn no_machine_fails_for_a_cache_that_is_behind(
    #[values("Pending", "Unknown")] phase: &str,
    #[values(true, false)] is_missing: bool,
) {
    let mut world = waiting(phase);
    world.cached_nodes = Some(if is_missing { BTreeMap::new() } else { world.nodes.clone() });
    world.set_conditions(ready());
    world.unreadable_nodes = Some("timeout".to_owned());
    world.pass();
    assert_eq!((world.phase().as_str(), world.machine_writes), (phase, 0), "{:?}", world.log);
    world.sleep(5);
    world.unreadable_nodes = None;
    world.pass();
    assert_eq!(world.phase(), MachinePhase::Running, "{:?}", world.log);
}

#[rstest]
fn a_machine_fails_for_a_node_that_was_read(
    #[values("Pending", "Unknown")] phase: &str,
    #[values(true, false)] is_gone: bool,
) {
    let mut world = waiting(phase);
    if is_gone {
        world.nodes.clear();
    }
    world.boots = false;
    world.pass();
    assert_eq!(world.phase(), MachinePhase::Failed, "{:?}", world.log);
    assert!(world.log.contains(&"GetNode".to_owned()));
}

#[test]
fn nodes_have_time_to_report_after_their_api_server_is_back() {
    let mut world = waiting("Pending");
    world.trust = TargetTrust::Trusted { after: Some(TrustInterruption { began: at(0), ended: world.now }) };
    world.pass();
    assert_eq!((world.phase(), world.wake_at), (MachinePhase::Pending, Some(at(3600 + 13 + 60))), "{:?}", world.log);
    world.now = world.wake_at.unwrap();
    world.pass();
    assert_eq!(world.phase(), MachinePhase::Failed);
}

#[test]
fn no_vm_is_made_for_a_target_cluster_that_cannot_be_trusted() {
    let mut world = World::new();
    world.trust = TargetTrust::Untrusted { since: at(0), reason: "silent".to_owned() };
    world.pass();
    assert_eq!(world.log.len(), 0);
    assert!(world.wake_at.is_some());
}

#[test]
fn the_node_of_another_vm_is_neither_drained_nor_linked() {
    let mut world = World::new();
    world.vms.insert("cloud:///7".to_owned(), ("n".to_owned(), at(9)));
    let mut other = node("n", ready());
    other.spec.provider_id = "cloud:///another".to_owned();
    world.nodes.insert("n".to_owned(), other);
    world.pods = vec![pod("a")];
    world.delete();
    world.run_until(|world| world.machine.is_none());
    assert!(!world.nodes["n"].spec.unschedulable && world.pods.len() == 1, "{:?}", world.log);
}

#[test]
fn a_running_machine_that_lost_its_label_keeps_its_vm() {
    let mut world = World::running();
    world.edit(|machine| {
        machine.metadata.labels.as_mut().unwrap().remove(labels::NODE);
    });
    let own = world.nodes.get_mut("n").unwrap();
    own.spec.provider_id = "in-the-node-s-own/form-of-it".to_owned();
    own.metadata.labels = None;
    world.run_until(|world| world.machine().node_name() == Some("n"));
    assert_eq!((world.phase(), world.vms.len()), (MachinePhase::Running, 1));
}

fn rival(provider_id: &str, created: i64) -> Machine {
    serde_json::from_value(json!({
        "metadata": { "name": "rival", "namespace": "ns", "uid": "r", "creationTimestamp": at(created), "labels": { "node": "n" } },
        "spec": { "providerID": provider_id }, "status": { "currentStatus": { "phase": "Unknown" } },
    }))
    .unwrap()
}

#[rstest]
#[case::it_is_the_rival_s_vm("cloud:///1", "cloud:///9", "cloud:///9", 0, MachinePhase::Unknown)]
#[case::it_is_its_own_vm("cloud:///1", "cloud:///1", "cloud:///9", 0, MachinePhase::Running)]
#[case::the_younger_one("cloud:///1", "", "cloud:///9", 5, MachinePhase::Unknown)]
#[case::the_older_one("cloud:///1", "", "cloud:///9", -5, MachinePhase::Running)]
fn of_two_machines_that_name_one_node_one_has_it(
    #[case] own: &str,
    #[case] of_node: &str,
    #[case] of_rival: &str,
    #[case] created: i64,
    #[case] expected: MachinePhase,
) {
    let mut world = World::running();
    assert_eq!(world.machine().spec.provider_id, own);
    let shared = world.nodes.get_mut("n").unwrap();
    shared.spec.provider_id = of_node.to_owned();
    shared.metadata.labels = None;
    world.rivals = vec![rival(of_rival, created)];
    world.settle();
    assert_eq!(world.phase(), expected, "{:?}", world.log);
    let is_labelled = world.nodes["n"].labels().contains_key(labels::MACHINE_NAME);
    assert_eq!(is_labelled, expected == MachinePhase::Running, "who has it not writes nothing");
}

/// The VM of the Machine is dead, and a new one, of whatever Machine, has the name of its Node.
#[rstest]
#[case::another_vm("cloud:///9", "n", MachinePhase::Unknown)]
#[case::its_vm("cloud:///1", "n", MachinePhase::Running)]
#[case::its_vm_elsewhere("cloud://zone/1", "n", MachinePhase::Running)]
#[case::no_id("", "n", MachinePhase::Running)]
#[case::an_id_of_another_scheme("elsewhere:///9", "n", MachinePhase::Running)]
#[case::an_id_of_another_form("cloud:///zone/9", "n", MachinePhase::Running)]
#[case::a_name_that_is_not_reused("cloud:///9", "m", MachinePhase::Running)]
fn a_node_with_the_id_of_another_vm_is_foreign_regardless_of_its_label(
    #[case] of_node: &str,
    #[case] name: &str,
    #[case] expected: MachinePhase,
) {
    let mut world = World::running();
    let mut node = world.nodes.remove("n").unwrap();
    node.metadata.name = Some(name.to_owned());
    node.spec.provider_id = of_node.to_owned();
    assert_eq!(node.labels().get(labels::MACHINE_NAME).unwrap(), "m");
    world.nodes.insert(name.to_owned(), node);
    world.edit(|machine| machine.metadata.labels = Some([(labels::NODE.to_owned(), name.to_owned())].into()));
    world.settle();
    assert_eq!(world.phase(), expected, "{:?}", world.log);
}

/// Its metadata contains the name of its Node, but not its VM.
#[rstest]
#[case::it_may_be_its_vm("elsewhere:///9", "", 0, MachinePhase::Unknown)]
#[case::it_may_be_its_vm_although_it_is_older("elsewhere:///9", "", -5, MachinePhase::Unknown)]
#[case::this_one_has_the_vm("cloud:///1", "", 5, MachinePhase::Running)]
#[case::this_one_has_the_label("elsewhere:///9", "m", 5, MachinePhase::Running)]
#[case::it_has_the_label("", "rival", -5, MachinePhase::Unknown)]
#[case::the_younger_one("", "", 5, MachinePhase::Unknown)]
#[case::the_older_one("", "", -5, MachinePhase::Running)]
fn a_machine_that_cannot_be_decoded_may_have_the_node(
    #[case] of_node: &str,
    #[case] label: &str,
    #[case] created: i64,
    #[case] expected: MachinePhase,
) {
    let mut world = World::running();
    let (name, shared) = (world.machine().metadata.name.clone().unwrap(), world.nodes.get_mut("n").unwrap());
    let label = if label == "m" { name } else { label.to_owned() };
    shared.spec.provider_id = of_node.to_owned();
    shared.labels_mut().insert(labels::MACHINE_NAME, label);
    world.unreadable_rivals = vec![rival("cloud:///9", created).metadata];
    world.settle();
    assert_eq!(world.phase(), expected, "{:?}", world.log);
}

#[test]
fn while_no_token_can_be_made_the_cloud_is_asked_once() {
    let mut world = World::new();
    world.secret.wants_token = true;
    world.no_tokens = true;
    for _ in 0..20 {
        world.pass();
        world.now = world.wake_at.unwrap();
    }
    assert_eq!(world.log.iter().filter(|name| *name == "GetVmStatus").count(), 1, "{:?}", world.log);
    world.no_tokens = false;
    world.run_until(|world| world.phase() == MachinePhase::Running);
}

#[test]
fn a_drain_ends_although_pods_come_back_to_the_cordoned_node() {
    let mut world = deleted();
    world.comes_back = true;
    world.run_until(|world| world.machine.is_none());
    assert!((2..=3).contains(&world.returned), "{} came back", world.returned);
}

#[test]
fn pods_that_came_while_a_node_was_uncordoned_are_drained() {
    let mut world = deleted();
    world.pass();
    world.nodes.get_mut("n").unwrap().spec.unschedulable = false;
    world.pods = vec![pod("b"), pod("c")];
    world.sleep(5);
    world.pass();
    world.pods = vec![pod("d")];
    world.nodes.get_mut("n").unwrap().spec.unschedulable = false;
    world.run_until(|world| world.machine.is_none());
    assert!(world.pods.is_empty(), "{:?}", world.log);
}

#[test]
fn a_drain_that_began_late_has_its_evictions() {
    let mut world = deleted();
    world.edit(|machine| machine.spec.configuration.max_evict_retries = Some(3));
    world.sleep(1800);
    world.pass();
    assert!(
        world.log.contains(&"EvictPod".to_owned()) && !world.log.contains(&"DeletePod".to_owned()),
        "{:?}",
        world.log
    );
}

#[test]
fn a_node_that_is_not_known_is_not_left_behind() {
    let mut world = World::running();
    world.vms.clear();
    world.delete();
    world.edit_status(|status| {
        status.current_status.phase = MachinePhase::Terminating;
        status.last_operation.description = "Initiate node object deletion".to_owned();
    });
    let mut world = behind(world);
    world.unreadable_nodes = Some("timeout".to_owned());
    world.pass();
    assert!(world.machine.is_some() && !world.waits.is_empty(), "{:?}", world.log);
    world.sleep(5);
    world.unreadable_nodes = None;
    world.run_until(|world| world.machine.is_none());
    assert!(world.nodes.is_empty());
}

#[test]
fn a_refused_delete_does_not_prove_that_a_vm_is_deleted() {
    let mut world = World::running();
    world.broken.insert(crate::machine::VmCall::Delete, DriverError::new(Code::InvalidArgument, "what VM?"));
    world.delete();
    world.pass();
    assert!(world.machine.is_some() && world.vms.len() == 1);
}

#[test]
fn the_health_timeout_runs_from_the_phase_and_not_from_the_last_operation() {
    let mut world = waiting("Unknown");
    let late = world.now;
    world.edit_status(|status| {
        status.current_status.last_update_time = Some(late.into());
        status.last_operation.last_update_time = Some(at(0).into());
    });
    world.pass();
    assert_eq!(
        (world.phase(), world.wake_at),
        (MachinePhase::Unknown, late.checked_add(jiff::SignedDuration::from_mins(10)).ok())
    );
}

#[test]
fn a_node_that_is_being_deleted_is_not_written() {
    let mut world = World::running();
    let going = world.nodes.get_mut("n").unwrap();
    going.metadata.deletion_timestamp = Some(at(1).into());
    going.metadata.labels = None;
    world.settle();
    assert_eq!(world.log.len(), 0);
}

#[test]
fn a_machine_whose_node_was_never_seen_is_not_unknown() {
    let mut world = World::running();
    world.edit_status(|status| status.conditions.clear());
    world.nodes.clear();
    world.boots = false;
    world.pass();
    assert_eq!((world.phase(), world.machine_writes), (MachinePhase::Running, 0));
}

#[rstest]
#[case::without_vm("", "", false, true)]
#[case::initialising("cloud:///1", "CrashLoopBackOff", false, true)]
#[case::joining("cloud:///1", "Pending", false, true)]
#[case::deleted("cloud:///1", "Running", true, true)]
#[case::running("cloud:///1", "Running", false, false)]
fn a_changed_secret_enqueues_machines_that_call_the_driver(
    #[case] id: &str,
    #[case] phase: &str,
    #[case] is_deleted: bool,
    #[case] expected: bool,
) {
    let mut machine = rival(id, 0);
    machine.status.get_or_insert_default().current_status.phase = serde_json::from_value(json!(phase)).unwrap();
    machine.metadata.deletion_timestamp = is_deleted.then(|| at(1).into());
    assert_eq!(may_call_driver(&machine), expected);
}
