use std::time::Duration;

use kube::core::ObjectMeta;
use rstest::rstest;
use serde_json::{Value, json};

use super::world::{Fault, World, at, node, pod, ready};
use crate::machine::{ClassView, Memory, VmCall};
use mcm_api::{
    labels,
    machine::{MachinePhase, OperationState, OperationType},
};
use mcm_driver::{Code, DriverError};
use mcm_rules::drain::EvictionRefusal;

const STEPS: [&str; 6] = [
    "Set machine status to termination. Now, getting VM Status",
    "Initiate node drain",
    "Delete Volume Attachments",
    "Initiate VM deletion",
    "Initiate node object deletion",
    "Initiate machine object finalizer removal",
];

fn deleted() -> World {
    let mut world = World::running();
    world.delete();
    world
}

/// A deletion that another implementation left in the middle.
fn left_behind(text: &str, has_label: bool) -> World {
    let mut world = deleted();
    world.edit(|machine| {
        if !has_label {
            machine.metadata.labels.as_mut().unwrap().remove(labels::NODE);
        }
        let status = machine.status.get_or_insert_default();
        status.current_status.phase = MachinePhase::Terminating;
        status.last_operation.type_ = Some(OperationType::Delete);
        status.last_operation.description = text.to_owned();
    });
    world
}

#[rstest]
fn a_deletion_is_continued_from_every_step_that_another_implementation_left(
    #[values(
        "Deleting machine from cloud provider",
        "Set machine status to termination. Now, getting VM Status",
        "Error occurred with decoding machine error status while getting VM status, aborting with retry. Set machine status to termination. Now, getting VM Status",
        "VM was not found at provider. Moving forward to node drain. Initiate node drain",
        "Drain failed due to - x. Will retry in next sync. Initiate node drain",
        "Force Drain successful. Delete Volume Attachments",
        "Drain successful. Initiate VM deletion",
        "VM deletion failed due to - x. Aborting operation. Initiate VM deletion"
    )]
    text: &str,
    #[values(true, false)] has_label: bool,
) {
    let mut world = left_behind(text, has_label);
    world.run_until(|world| world.machine.is_none());
    assert!(world.vms.is_empty() && world.nodes.is_empty(), "{:?}", world.log);
    assert!(world.machine_writes <= 3, "{:?}", world.log);
}

#[rstest]
#[case(STEPS[4], &["StrategicPatchNode", "DeleteNode", "PatchMachine"])]
#[case(STEPS[5], &["PatchMachine"])]
fn the_last_steps_do_not_need_class_or_driver(#[case] token: &str, #[case] expected: &[&str]) {
    let mut world = left_behind(&format!("something. {token}"), true);
    world.vms.clear();
    world.class = ClassView::Missing;
    world.run_until(|world| world.machine.is_none());
    assert_eq!(world.log, expected);
}

#[rstest]
#[case::phase_is_ours_to_write("Running")]
#[case::its_set_wrote_it_already("Terminating")]
fn a_machine_is_terminating_and_no_longer_preserved_from_the_first_write_on(#[case] phase: &str) {
    let mut world = deleted();
    world.edit_status(|status| status.current_status.phase = serde_json::from_value(json!(phase)).unwrap());
    world.edit_status(|status| status.current_status.preserve_expiry_time = Some(at(9999).into()));
    world.pods = vec![pod("a")];
    world.pass();
    let first = &world.statuses[0];
    assert_eq!(first.current_status.phase, MachinePhase::Terminating);
    assert_eq!(first.current_status.preserve_expiry_time, None);
    assert_eq!(first.last_operation.type_, Some(OperationType::Delete));
    assert_eq!(first.last_operation.state, Some(OperationState::Processing));
    let since = first.current_status.last_update_time.clone();
    world.run_until(|world| world.machine.is_none());
    assert!(
        world.statuses.iter().all(|status| status.current_status.last_update_time == since),
        "start of termination"
    );
}

#[rstest]
#[case::phase(json!({ "currentStatus": { "phase": "Terminating" } }))]
#[case::text(json!({ "currentStatus": { "phase": "Terminating" }, "lastOperation": { "type": "Delete", "description": "Drain successful. Initiate VM deletion" } }))]
fn without_a_deletion_timestamp_nothing_is_deleted(#[case] status: Value) {
    let mut world = World::running();
    world.edit(|machine| machine.status = Some(serde_json::from_value(status).unwrap()));
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
    assert!(world.log.iter().all(|name| !name.starts_with("Delete") && name != "EvictPod"), "{:?}", world.log);
}

#[test]
fn the_node_is_closed_before_its_pods_are_looked_at() {
    let mut world = deleted();
    world.pass();
    let expected = [
        "PatchNodeStatus",
        "StrategicPatchNode",
        "ListPods",
        "ReadSecret",
        "DeleteVm",
        "StrategicPatchNode",
        "DeleteNode",
        "PatchMachine",
    ];
    assert_eq!(world.log, expected, "one pass without pods");
    assert_eq!(world.events, ["Drained", "Deleted"]);
}

const DRAINED: &str = "Drain successful. Initiate VM deletion";

/// Whatever takes long is shown, and the next process continues from there.
#[rstest]
#[case::the_cloud_needs_time(|world: &mut World| drop(world.broken.insert(VmCall::Delete, DriverError::not_done("not yet", Duration::from_secs(3)))), DRAINED)]
#[case::a_pod_was_evicted(|world: &mut World| world.pods = vec![pod("a")], DRAINED)]
#[case::the_driver_fails(
    |world: &mut World| drop(world.broken.insert(VmCall::Delete, DriverError::new(Code::Internal, "because"))),
    "VM deletion failed due to - machine codes error: code = [Internal] message = [because]. Aborting operation. Initiate VM deletion"
)]
#[case::another_implementation_began(
    |world: &mut World| world.edit_status(|status| {
        status.current_status.phase = MachinePhase::Terminating;
        status.last_operation.description = STEPS[0].to_owned();
    }),
    DRAINED
)]
fn the_end_of_a_drain_is_stored_unless_nothing_was_done_and_the_vm_goes_at_once(
    #[case] change: Change,
    #[case] expected: &str,
) {
    let mut world = deleted();
    change(&mut world);
    world.run_until(|world| {
        !world.statuses.is_empty() && world.descriptions().last() == Some(&expected) || world.machine.is_none()
    });
    assert_eq!(world.descriptions().last(), Some(&expected));
    world.broken.clear();
    world.run_until(|world| world.machine.is_none());
}

/// The status does not show that the Node is drained.
#[test]
fn after_a_crash_the_drain_of_an_empty_node_is_repeated() {
    let mut world = deleted();
    world.faults = vec![(world.actions() + 5, Fault::Crash)];
    world.pass();
    assert_eq!((world.log.last().map(String::as_str), world.vms.len()), (Some("DeleteVm"), 0));
    world.pods = vec![pod("late")];
    world.run_until(|world| world.machine.is_none());
    assert!(world.log.contains(&"EvictPod".to_owned()), "{:?}", world.log);
}

#[rstest]
#[case::never_had_a_vm(false, &[STEPS[0], "Skipping drain as nodeName is not a valid one for machine. Initiate VM deletion"])]
#[case::creation_was_cut_short(true, &[STEPS[0], "Drain successful. Initiate VM deletion"])]
fn a_machine_without_label_is_asked_for(#[case] has_vm: bool, #[case] expected: &[&str]) {
    let mut world = World::new();
    if has_vm {
        world.vms.insert("cloud:///7".to_owned(), ("n".to_owned(), at(9)));
    }
    world.delete();
    world.pass();
    assert!(world.machine.is_none() && world.vms.is_empty());
    assert_eq!(world.descriptions(), expected);
    assert!(world.log.contains(&"DeleteVm".to_owned()), "even if nothing was found");
}

#[test]
fn the_node_of_a_machine_without_label_is_found_by_its_own_label() {
    let mut world = left_behind("Deleting machine from cloud provider", false);
    world.pass();
    assert_eq!(world.log.first().map(String::as_str), Some("PatchMachine"));
    assert!(!world.log.contains(&"GetVmStatus".to_owned()));
}

#[rstest]
#[case::transient(Code::Unavailable, "aborting with retry. ", 1)]
#[case::other(
    Code::Internal,
    "aborting without retry. machine code: machine codes error: code = [Internal] message = [because] ",
    5
)]
fn a_question_that_fails_is_asked_again(#[case] code: Code, #[case] text: &str, #[case] retry: i64) {
    let mut world = World::new();
    world.broken.insert(VmCall::Status, DriverError::new(code, "because"));
    world.delete();
    world.pass();
    let prefix = "Error occurred with decoding machine error status while getting VM status, ";
    assert_eq!(world.description(), format!("{prefix}{text}{}", STEPS[0]));
    assert_eq!(world.status().last_operation.state, Some(OperationState::Failed));
    assert_eq!(world.wake_at, Some(at(10 + retry)));
    world.broken.clear();
    world.run_until(|world| world.machine.is_none());
}

#[rstest]
#[case(Code::Unknown, "However, will re-try in the next resync. ", 1)]
#[case(Code::DeadlineExceeded, "However, will re-try in the next resync. ", 1)]
#[case(Code::Aborted, "However, will re-try in the next resync. ", 1)]
#[case(Code::Unavailable, "However, will re-try in the next resync. ", 1)]
#[case(Code::Internal, "Aborting operation. ", 5)]
#[case(Code::PermissionDenied, "Aborting operation. ", 5)]
#[case(Code::ResourceExhausted, "Aborting operation. ", 5)]
fn a_vm_that_cannot_be_deleted_keeps_its_machine(#[case] code: Code, #[case] outlook: &str, #[case] retry: i64) {
    let mut world = deleted();
    world.broken.insert(VmCall::Delete, DriverError::new(code, "because"));
    world.pass();
    let error = format!("machine codes error: code = [{code}] message = [because]");
    assert_eq!(world.description(), format!("VM deletion failed due to - {error}. {outlook}Initiate VM deletion"));
    assert_eq!(world.status().last_operation.state, Some(OperationState::Failed));
    assert_eq!(world.wake_at, world.now.checked_add(jiff::SignedDuration::from_secs(retry)).ok());
    assert!(world.nodes.contains_key("n"), "the Node stays for as long as its VM");
    let writes = world.machine_writes;
    for _ in 0..5 {
        world.now = world.wake_at.unwrap();
        world.pass();
    }
    assert_eq!(world.machine_writes, writes, "the same failure is not written per retry");
    world.broken.clear();
    world.run_until(|world| world.machine.is_none());
}

#[test]
fn a_deletion_that_the_cloud_works_on_is_no_failure() {
    let mut world = deleted();
    world
        .broken
        .insert(VmCall::Delete, DriverError::not_done("deletion of VM m is not done yet", Duration::from_secs(3)));
    world.pass();
    assert_eq!(world.waits, ["the cloud: deletion of VM m is not done yet"]);
    assert_eq!(world.wake_at, world.now.checked_add(jiff::SignedDuration::from_secs(3)).ok());
    assert!(world.events.iter().all(|event| event != "DeleteFailed"), "{:?}", world.events);
    assert_ne!(world.status().last_operation.state, Some(OperationState::Failed));
    world.broken.clear();
    world.run_until(|world| world.machine.is_none());
}

#[test]
fn a_deletion_waits_for_a_creation_that_the_cloud_works_on() {
    let mut world = World::new();
    world
        .broken
        .insert(VmCall::Status, DriverError::not_done("creation of VM m is not done yet", Duration::from_secs(3)));
    world.delete();
    world.pass();
    assert_eq!(world.waits, ["the cloud: creation of VM m is not done yet"]);
    assert_ne!(world.status().last_operation.state, Some(OperationState::Failed));
    assert!(!world.log.contains(&"DeleteVm".to_owned()), "{:?}", world.log);
    world.broken.clear();
    world.run_until(|world| world.machine.is_none());
}

#[test]
fn driver_state_survives_a_failed_delete() {
    let mut world = deleted();
    world.edit_status(|status| status.last_known_state = "old".to_owned());
    world.broken.insert(VmCall::Delete, DriverError::new(Code::Internal, "because"));
    world.pass();
    assert_eq!(world.status().last_known_state, "old");
    let failure =
        DriverError { last_known_state: Some("new".to_owned()), ..DriverError::new(Code::Internal, "because") };
    world.broken.insert(VmCall::Delete, failure);
    world.now = world.wake_at.unwrap();
    world.pass();
    assert_eq!(world.status().last_known_state, "new");
}

#[test]
fn a_missing_class_blocks_a_deletion_and_says_so() {
    let mut world = deleted();
    let class = std::mem::replace(&mut world.class, ClassView::Missing);
    world.pass();
    world.pass();
    assert_eq!(world.log, ["WriteStatus"]);
    let text = "the MachineClass c, which does not exist: it is needed to delete the VM; create it again, or, if there is \
                no VM, remove the finalizer machine.sapcloud.io/machine-controller-manager from the Machine";
    assert_eq!(world.waits, [text]);
    assert_eq!(
        world.description(),
        format!("Waiting for {text}. Set machine status to termination. Now, getting VM Status")
    );
    world.class = class;
    world.run_until(|world| world.machine.is_none());
}

#[rstest]
#[case::both(false)]
#[case::one_of_two(true)]
fn a_missing_secret_blocks_a_deletion_and_says_so(#[case] has_user_data: bool) {
    let mut world = deleted();
    world.secret.has_user_data = has_user_data;
    world.secret.missing = vec!["the Secret ns/s, which does not exist".to_owned()];
    world.pass();
    world.pass();
    let told = "the Secret ns/s, which does not exist: it is needed to delete the VM; create it, correct the class, or, if there \
                is no VM, remove the finalizer machine.sapcloud.io/machine-controller-manager from the Machine";
    assert_eq!(world.description(), format!("Waiting for {told}. {}", STEPS[3]));
    assert_eq!((world.waits.as_slice(), world.vms.len()), ([told.to_owned()].as_slice(), 1));
    assert!(world.events.contains(&"Waiting".to_owned()) && !world.log.contains(&"DeleteVm".to_owned()));
    world.secret.missing.clear();
    world.run_until(|world| world.machine.is_none());
    assert!(world.vms.is_empty());
}

/// The Node of its VM is unknown. NotFound from another account does not mean that the VM does not exist.
#[test]
fn a_machine_without_label_is_not_asked_for_without_its_secret() {
    let mut world = World::new();
    world.vms.insert("cloud:///7".to_owned(), ("n".to_owned(), at(9)));
    world.secret.missing = vec!["the Secret ns/s, which does not exist".to_owned()];
    world.delete();
    world.pass();
    assert!(world.description().ends_with(STEPS[0]) && !world.log.contains(&"GetVmStatus".to_owned()));
    world.secret.missing.clear();
    world.run_until(|world| world.machine.is_none());
    assert!(world.vms.is_empty());
}

#[test]
fn missing_user_data_of_its_own_does_not_block_a_deletion() {
    let mut world = deleted();
    world.secret.has_user_data = false;
    world.secret.missing_user_data = Some("the Secret ns/boot, which does not exist".to_owned());
    world.run_until(|world| world.machine.is_none());
}

#[rstest]
#[case::its_vm_never_joins(|world: &mut World| world.boots = false)]
#[case::its_vm_is_out_of_stock(|world: &mut World| drop(world.broken.insert(VmCall::Create, DriverError::new(Code::ResourceExhausted, "because"))))]
#[case::the_process_restarts(|world: &mut World| world.faults = vec![(6, Fault::Crash)])]
fn a_token_is_deleted_with_its_machine(#[case] change: Change) {
    let mut world = World::new();
    world.secret.wants_token = true;
    change(&mut world);
    world.pass();
    assert_eq!(world.tokens.len(), 1);
    world.delete();
    world.run_until(|world| world.machine.is_none());
    assert!(world.tokens.is_empty(), "{:?}", world.log);
}

#[rstest]
#[case::late(|world: &mut World| world.boots = false)]
#[case::out_of_stock(|world: &mut World| drop(world.broken.insert(VmCall::Create, DriverError::new(Code::ResourceExhausted, "because"))))]
fn a_token_is_deleted_when_its_machine_fails(#[case] change: Change) {
    let mut world = World::new();
    world.secret.wants_token = true;
    change(&mut world);
    world.run_until(|world| world.phase() == MachinePhase::Failed);
    assert!(world.tokens.is_empty(), "{:?}", world.log);
}

#[rstest]
#[case::its_token_was_deleted_when_it_joined(true, false)]
#[case::the_process_was_restarted_since(true, true)]
#[case::it_never_had_one(false, false)]
fn a_machine_without_a_token_pays_nothing_for_it(#[case] wants_token: bool, #[case] is_restarted: bool) {
    let mut world = World::new();
    world.secret.wants_token = wants_token;
    world.run_until(|world| world.phase() == MachinePhase::Running);
    world.settle();
    world.log.clear();
    if is_restarted {
        world.memory = Memory::default();
    }
    world.delete();
    world.run_until(|world| world.machine.is_none());
    assert!(!world.log.contains(&"DeleteBootstrapToken".to_owned()), "{:?}", world.log);
}

#[test]
fn a_refused_write_of_a_deletion_is_shown_and_repeated_ever_more_rarely() {
    let mut world = deleted();
    world.refused = vec!["metadata.finalizers"];
    let began = world.now;
    world.pass();
    let told = "Waiting for the API server to accept a write of the Machine: metadata.finalizers: Invalid value. ";
    assert!(world.description().starts_with(told), "{}", world.description());
    assert_eq!(world.events.iter().filter(|event| *event == "Waiting").count(), 1);
    assert!(!world.events.contains(&"Deleted".to_owned()));
    let mut tries = 0;
    while world.now.duration_since(began).as_secs() < 3600 {
        world.log.clear();
        world.pass();
        tries += world.log.iter().filter(|name| *name == "PatchMachine").count();
        world.now = world.wake_at.unwrap();
    }
    assert!((8..20).contains(&tries), "{tries} in an hour");
    world.refused.clear();
    world.run_until(|world| world.machine.is_none());
}

/// The label of the Machine cannot hold its name.
#[rstest]
#[case::known(false)]
#[case::after_a_restart(true)]
fn a_machine_whose_node_has_a_long_name_is_drained_and_deleted(#[case] is_restarted: bool) {
    let mut world = World::new();
    world.node_name = "x".repeat(64);
    world.run_until(|world| !world.nodes.is_empty());
    assert_eq!(world.machine().spec.provider_id, "cloud:///1");
    world.pods = vec![pod("a")];
    world.delete();
    for _ in 0..200 {
        if is_restarted {
            world.memory = Memory::default();
        }
        if world.machine.is_none() {
            break;
        }
        world.pass();
        world.sleep(1);
        world.pods.retain(|pod| pod.terminating_since.is_none());
    }
    assert!(world.machine.is_none() && world.vms.is_empty() && world.pods.is_empty(), "{:?}", world.waits);
    assert!(world.log.contains(&"EvictPod".to_owned()), "{:?}", world.log);
    assert!(world.nodes.is_empty());
}

#[test]
fn without_target_only_the_vm_goes() {
    let mut world = World::new();
    world.has_target = false;
    world.pass();
    world.statuses.clear();
    world.delete();
    world.pass();
    assert!(world.machine.is_none() && world.vms.is_empty());
    let text =
        "Running without target cluster, skipping node drain and volume attachment deletion. Initiate VM deletion";
    assert_eq!(world.descriptions(), [text]);
}

fn refusal(is_misconfigured: bool) -> EvictionRefusal {
    EvictionRefusal {
        message: "too many".to_owned(),
        budget: Some("ns/b".to_owned()),
        version: None,
        is_misconfigured,
        is_of_several: false,
    }
}

#[test]
fn a_budget_holds_pods_back_until_evictions_are_over() {
    let mut world = deleted();
    let deadline = world.now.checked_add(jiff::SignedDuration::from_hours(2)).unwrap();
    world.pods = vec![pod("a")];
    world.stubborn = Some(refusal(false));
    world.pass();
    assert_eq!(world.waits, ["pod ns/a: eviction refused by the disruption budget ns/b"]);
    let text = "Evictions are refused by the disruption budget ns/b. Initiate node drain";
    assert_eq!(world.description(), text);
    world.run_until(|world| world.machine.is_none());
    assert!(world.now >= deadline && world.now.duration_since(deadline).as_secs() < 10, "{}", world.now);
    let failed = world.statuses.iter().filter(|status| status.last_operation.state == Some(OperationState::Failed));
    assert_eq!(failed.count(), 0, "waiting for a budget is no failure");
    let told = world.descriptions().into_iter().filter(|description| *description == text);
    assert_eq!(told.count(), 1, "and told once");
    assert!(world.events.contains(&"DrainBlocked".to_owned()));
}

#[test]
fn a_budget_that_never_lets_go_is_reported_in_the_words_that_others_search_for() {
    let mut world = deleted();
    world.pods = vec![pod("a")];
    world.stubborn = Some(refusal(true));
    world.pass();
    assert_eq!(
        world.description(),
        "Drain failed due to - error while evicting pod \"a\": pod disruption budget ns/b is misconfigured and requires \
         zero voluntary evictions. Will retry in next sync. Initiate node drain"
    );
    let named = |world: &World| {
        let conditions = world.status().conditions;
        let blocked = conditions.into_iter().find(|condition| condition.type_ == "DrainBlocked")?;
        assert_eq!((blocked.status.as_str(), blocked.reason.as_deref()), ("True", Some("DisruptionBudgetNeverMet")));
        blocked.message
    };
    assert!(named(&world).is_some_and(|message| message.contains("budget ns/b allows no eviction")));
    assert!(world.status().conditions.iter().any(|condition| condition.type_ == "Ready"), "those of the Node stay");
    world.memory = Memory::default();
    world.pass();
    assert!(named(&world).is_some(), "a restart does not change it");
    world.stubborn = Some(refusal(false));
    world.run_until(|world| named(world).is_none());
    assert_eq!(world.pods.len(), 1, "the drain still waits");
    world.stubborn = None;
    world.run_until(|world| world.machine.is_none());
}

type Change = fn(&mut World);

#[rstest]
#[case::by_label(|world: &mut World| world.edit(|machine| { machine.metadata.labels.as_mut().unwrap().insert("force-deletion".to_owned(), "true".to_owned()); }))]
#[case::by_deadline(|world: &mut World| world.sleep(2 * 3600))]
#[case::because_the_node_is_dead(|world: &mut World| world.set_conditions(json!([{ "type": "Ready", "status": "Unknown", "lastTransitionTime": at(-1000) }])))]
#[case::because_the_disk_is_read_only(|world: &mut World| world.set_conditions(json!([{ "type": "Ready", "status": "True" }, { "type": "ReadonlyFilesystem", "status": "True", "lastTransitionTime": at(-1000) }])))]
fn a_forced_drain_waits_for_nothing(#[case] force: Change) {
    let mut world = deleted();
    world.pods = vec![pod("a"), pod("b")];
    world.stubborn = Some(refusal(false));
    force(&mut world);
    world.pass();
    assert!(world.machine.is_none(), "one pass: {:?} {:?}", world.log, world.waits);
    assert!(world.descriptions().contains(&"Force Drain successful. Delete Volume Attachments"));
    assert!(!world.log.contains(&"EvictPod".to_owned()) && world.log.contains(&"DeletePod".to_owned()));
}

#[test]
fn a_value_that_is_no_go_bool_forces_nothing() {
    let mut world = deleted();
    world.edit(|machine| {
        machine.metadata.labels.as_mut().unwrap().insert("force-deletion".to_owned(), "yes".to_owned());
    });
    world.pods = vec![pod("a")];
    world.pass();
    assert!(world.log.contains(&"EvictPod".to_owned()));
}

#[rstest]
#[case::normal(
    false,
    "Drain failed due to failure in update of node conditions - denied. Will retry in next sync. Initiate node drain"
)]
#[case::forced(
    true,
    "Drain failed due to - denied. However, since it's a force deletion shall continue deletion of VM. Delete Volume Attachments"
)]
fn a_node_that_cannot_be_written_stops_a_drain_unless_it_is_forced(#[case] forced: bool, #[case] text: &str) {
    let mut world = deleted();
    world.broken_nodes = Some("denied".to_owned());
    if forced {
        world.sleep(2 * 3600);
    }
    world.pass();
    assert!(world.descriptions().contains(&text), "{:?}", world.descriptions());
    assert_eq!(world.phase(), MachinePhase::Terminating, "others see that it goes");
    assert_eq!(world.vms.is_empty(), forced);
    if forced {
        let text = "Removal of finalizers from Node Object \"n\" failed due to error: denied, Retrying. Initiate node object deletion";
        assert_eq!(world.description(), text);
    }
    world.broken_nodes = None;
    world.run_until(|world| world.machine.is_none());
}

#[test]
fn a_node_of_another_machine_is_not_touched() {
    let mut world = deleted();
    let foreign = world.nodes.get_mut("n").unwrap();
    foreign.labels_mut().insert(labels::MACHINE_NAME, "other");
    foreign.spec.provider_id = "cloud:///9".to_owned();
    world.pass();
    assert!(world.machine.is_none() && world.vms.is_empty());
    assert!(!world.nodes["n"].spec.unschedulable);
}

/// The dead VM of another machine had the name of the Node before, and that machine labelled it.
#[rstest]
#[case::whose_vm_is_another("cloud:///9", true)]
#[case::whose_vm_is_the_same("same", false)]
#[case::whose_vm_is_unknown("", false)]
fn a_node_with_the_label_of_another_machine_is_its_own_if_it_has_its_vm(#[case] id: &str, #[case] is_own: bool) {
    let mut world = deleted();
    let node = world.nodes.get_mut("n").unwrap();
    node.labels_mut().insert(labels::MACHINE_NAME, "other");
    node.spec.provider_id = world.machine.as_ref().unwrap().spec.provider_id.clone();
    let id = if id == "same" { node.spec.provider_id.clone() } else { id.to_owned() };
    let other = json!({ "metadata": { "name": "other", "namespace": "ns", "labels": { "node": "n" } }, "spec": { "providerID": id } });
    world.rivals = vec![serde_json::from_value(other).unwrap()];
    world.pods = vec![pod("db-0")];
    world.stubborn = Some(refusal(false));
    world.pass();
    world.rivals.clear();
    world.stubborn = None;
    world.run_until(|world| world.machine.is_none());
    assert_eq!(
        (world.nodes.contains_key("n"), world.pods.is_empty()),
        (!is_own, is_own),
        "also when the other one is gone"
    );
}

/// The same when that machine was deleted first. An undecodable Machine does not count as deleted.
#[rstest]
#[case::gone(&[], true)]
#[case::unreadable(&["other"], false)]
fn a_node_with_the_label_of_a_deleted_machine_belongs_to_the_machine_with_its_vm(
    #[case] unreadable: &[&str],
    #[case] is_own: bool,
) {
    let mut world = deleted();
    let node = world.nodes.get_mut("n").unwrap();
    node.labels_mut().insert(labels::MACHINE_NAME, "other");
    node.spec.provider_id = world.machine.as_ref().unwrap().spec.provider_id.clone();
    let meta = |name: &&str| ObjectMeta { name: Some((*name).to_owned()), ..ObjectMeta::default() };
    world.unreadable_rivals = unreadable.iter().map(meta).collect();
    world.pods = vec![pod("db-0")];
    world.run_until(|world| world.machine.is_none());
    assert_eq!((world.nodes.contains_key("n"), world.pods.is_empty()), (!is_own, is_own));
}

/// The Machine labelled it before it had a provider ID.
#[test]
fn a_node_of_another_vm_with_the_label_of_this_machine_is_not_touched() {
    let mut world = deleted();
    world.nodes.get_mut("n").unwrap().spec.provider_id = "cloud:///9".to_owned();
    world.pods = vec![pod("a")];
    world.run_until(|world| world.machine.is_none());
    assert!(world.vms.is_empty());
    assert!(!world.nodes["n"].spec.unschedulable && world.pods.len() == 1);
}

#[test]
fn a_node_of_the_same_name_that_belongs_to_another_vm_is_not_touched() {
    let mut world = World::new();
    world.vms.insert("cloud:///7".to_owned(), ("n".to_owned(), at(9)));
    let mut other = node("n", ready());
    other.spec.provider_id = "cloud:///8".to_owned();
    world.nodes.insert("n".to_owned(), other);
    world.delete();
    world.pass();
    let skipped = "Skipping drain as nodeName is not a valid one for machine. Initiate VM deletion";
    assert_eq!(world.descriptions(), [STEPS[0], skipped]);
    assert!(world.machine.is_none() && world.vms.is_empty());
    assert!(!world.nodes["n"].spec.unschedulable);
}

#[test]
fn a_node_that_never_came_needs_no_drain() {
    let mut world = World::new();
    world.boots = false;
    world.pass();
    world.delete();
    world.pass();
    assert!(world.machine.is_none());
    assert_eq!(world.description_of_last(), "Drain successful. Initiate VM deletion");
}

#[test]
fn an_unhealthy_node_is_announced_as_such() {
    let mut world = deleted();
    world.pods = vec![pod("a")];
    world.set_conditions(json!([{ "type": "Ready", "status": "False" }]));
    world.pass();
    let announced = world.nodes["n"].status.conditions.iter().find(|it| it.type_ == "Terminating").unwrap().clone();
    assert_eq!((announced.status.as_str(), announced.reason.as_deref()), ("True", Some("Unhealthy")));
    let mut world = deleted();
    world.pods = vec![pod("a")];
    world.pass();
    let reason = world.nodes["n"].status.conditions.iter().find(|it| it.type_ == "Terminating").unwrap().reason.clone();
    assert_eq!(reason.as_deref(), Some("ScaleDown"));
}

#[test]
fn finalizers_of_others_are_waited_for() {
    let mut world = deleted();
    world.edit(|machine| machine.metadata.finalizers.as_mut().unwrap().push("other/one".to_owned()));
    world.pass();
    assert_eq!(world.machine().metadata.finalizers.as_deref(), Some(&["other/one".to_owned()][..]));
    world.settle();
    let others = "other controllers to remove their finalizers: other/one";
    assert_eq!(
        (world.waits.as_slice(), world.description()),
        ([others.to_owned()].as_slice(), format!("Waiting for {others}"))
    );
    let writes = world.machine_writes;
    world.pass();
    assert_eq!(world.machine_writes, writes);
    assert_eq!(node("n", ready()).metadata.name.as_deref(), Some("n"));
}

impl World {
    fn description_of_last(&self) -> &str {
        self.statuses.last().map(|status| status.last_operation.description.as_str()).unwrap_or_default()
    }
}

/// Strictly one after the other, they would take 40 times (3 s to terminate, 1 s to detach and 2 s to attach).
#[test]
fn forty_volumes_move_five_times_as_fast_as_one_after_the_other() {
    let mut world = deleted();
    world.attach_detach = (1, 2);
    for number in 0..40 {
        world.add_pod_with_volumes(&format!("db-{number}"), 0, &[&format!("data-{number}")]);
    }
    let began = world.now;
    world.run_until(|world| world.machine.is_none());
    let took = world.now.duration_since(began).as_secs();
    let serial = 40 * (3 + 1 + 2);
    assert!(took <= serial / 5 + 3, "{took} s, {serial} s one after the other");
}

/// The pods are terminated before the deletion, and the volumes are still attached.
fn drained_by_another(detach: i64) -> World {
    let mut world = deleted();
    world.attach_detach = (detach, 2);
    world.add_pod_with_volumes("db", 0, &["data"]);
    world.pods.clear();
    world
}

#[test]
fn a_vm_stays_while_volumes_of_pods_that_others_evicted_are_attached() {
    let mut world = drained_by_another(30);
    let began = world.now;
    world.run_until(|world| world.vms.is_empty());
    assert_eq!(world.nodes.get("n").map(|node| node.status.volumes_attached.len()).unwrap_or_default(), 0);
    assert!(world.now.duration_since(began).as_secs() >= 30);
    assert!(world.story.contains("which no pod uses, to be detached from node n"), "{}", world.story);
    assert!(world.story.contains("no pod is left to drain, and no volume to wait for"), "{}", world.story);
}

#[test]
fn a_volume_that_is_never_detached_delays_the_deletion_of_the_vm_by_the_detach_timeout() {
    let mut world = drained_by_another(9999);
    let began = world.now;
    world.run_until(|world| world.vms.is_empty());
    let took = world.now.duration_since(began).as_secs();
    assert!((120..=130).contains(&took), "{took} s");
    assert!(world.story.contains("^id-data were not detached in time"), "{}", world.story);
}

#[test]
fn a_restart_during_a_drain_does_not_leave_volumes_attached() {
    let mut world = deleted();
    world.attach_detach = (40, 2);
    world.add_pod_with_volumes("db", 0, &["data"]);
    world.run_until(|world| world.pods.is_empty());
    world.memory = Memory::default();
    world.run_until(|world| world.vms.is_empty());
    assert_eq!(world.nodes.get("n").map(|node| node.status.volumes_attached.len()).unwrap_or_default(), 0);
}

#[test]
fn a_node_that_goes_during_its_drain_ends_every_wait() {
    let mut world = deleted();
    world.attach_detach = (9999, 9999);
    world.add_pod_with_volumes("db", 0, &["data"]);
    world.run_until(|world| world.waits.iter().any(|wait| wait.contains("to be detached from node")));
    world.nodes.clear();
    let since = world.now;
    world.run_until(|world| world.machine.is_none());
    assert!(world.now.duration_since(since).as_secs() <= 1, "{}", world.now);
}

#[test]
fn a_node_that_is_announced_already_keeps_its_reason() {
    let mut world = deleted();
    let announced = json!([{ "type": "Ready", "status": "True" }, { "type": "Terminating", "status": "True", "reason": "Because" }]);
    world.set_conditions(announced);
    world.pods = vec![pod("a")];
    world.pass();
    assert!(world.log.contains(&"EvictPod".to_owned()) && !world.log.contains(&"PatchNodeStatus".to_owned()));
    assert_eq!(world.nodes["n"].status.conditions[1].reason.as_deref(), Some("Because"));
}

#[rstest]
#[case::without_finalizer(json!({ "metadata": { "finalizers": null } }))]
#[case::incomplete(json!({ "nodeTemplate": { "capacity": {}, "instanceType": "", "region": "", "zone": "" } }))]
fn a_class_that_nothing_can_be_made_from_does_not_block_a_deletion(#[case] change: Value) {
    let mut world = deleted();
    if let ClassView::Present { class, .. } = &mut world.class {
        let mut value = json!(**class);
        crate::testing::merge(&mut value, &change);
        *class = std::sync::Arc::new(serde_json::from_value(value).unwrap());
    }
    world.pass();
    assert!(world.machine.is_none() && world.vms.is_empty(), "{:?} {:?}", world.log, world.waits);
}

#[test]
fn force_does_not_leave_a_vm_behind_that_cannot_be_deleted() {
    let mut world = deleted();
    world.edit(|machine| {
        machine.metadata.labels.as_mut().unwrap().insert(labels::FORCE_DELETION.to_owned(), "true".to_owned());
    });
    world.broken.insert(VmCall::Delete, DriverError::new(Code::Internal, "because"));
    world.sleep(3 * 3600);
    world.pass();
    assert!(world.machine.is_some() && world.vms.len() == 1, "{:?}", world.log);
    assert!(world.wake_at.is_some());
}
