//! Machines that are kept for inspection: requests, effects, and the end.

use jiff::Timestamp;
use rstest::rstest;
use serde_json::{Value, json};

use super::world::{Fault, World, at, node, own, pod, ready, unready};
use crate::machine::VmCall;
use mcm_api::{
    labels::{
        FORCE_DRAIN, JOIN_DURATION, LAST_NODE_PRESERVE, PRESERVE, PRESERVED_TAINT, SCALE_DOWN_DISABLED,
        SCALE_DOWN_DISABLED_BY_MCM,
    },
    machine::{AUTO_PRESERVED, MachinePhase},
    node::NodeCondition,
    sharing::SharedText,
};
use mcm_driver::{Code, DriverError};
use mcm_rules::{drain::EvictionRefusal, safety::trust::TargetTrust};

const DAY: i64 = 24 * 3600;
const TIMEOUT: i64 = 96 * 3600;
const DRAINED: &str = "Preserved node drained successfully.";
const UNDRAINED: &str = "Preserved node could not be drained.";

/// A Machine in a phase since second 10, with its Node, at second 100.
fn linked(phase: &str) -> World {
    let metadata = json!({ "labels": { "node": "n" }, "annotations": { "machinepriority.machine.sapcloud.io": "3", JOIN_DURATION: "8s" } });
    let operation = if phase == "Running" {
        json!({ "type": "Create", "state": "Successful" })
    } else {
        json!({ "type": "HealthCheck", "state": "Failed" })
    };
    let status = json!({ "currentStatus": { "phase": phase, "lastUpdateTime": at(10) }, "lastOperation": operation });
    let patch = json!({ "metadata": metadata, "spec": { "providerID": "cloud:///7" } });
    let mut world = World::with_machine(patch, status);
    world.vms.insert("cloud:///7".to_owned(), ("n".to_owned(), at(0)));
    world.boots = false;
    let conditions = if phase == "Running" { ready() } else { unready() };
    world.nodes.insert("n".to_owned(), own(node("n", conditions)));
    world.now = at(100);
    world.settle();
    world.log.clear();
    world.statuses.clear();
    world
}

fn expiry(world: &World) -> Option<Timestamp> {
    world.machine().preserve_expiry()
}

fn of_machine(world: &World, key: &str) -> Option<String> {
    world.machine().metadata.annotations.as_ref()?.get(key).cloned()
}

fn of_node(world: &World, key: &str) -> Option<String> {
    world.nodes["n"].annotations().get(key).map(ToString::to_string)
}

fn is_tainted(world: &World) -> bool {
    world.nodes["n"].spec.taints.iter().any(|taint| taint.key == PRESERVED_TAINT)
}

/// Status, reason and message of the node condition `Preserved`.
fn told(world: &World) -> Option<(String, String, String)> {
    let is_it = |it: &&NodeCondition| it.type_ == "Preserved";
    let condition = world.nodes["n"].status.conditions.iter().find(is_it)?.clone();
    let text = |text: Option<SharedText>| text.unwrap_or_default().to_string();
    Some((condition.status.to_string(), text(condition.reason), text(condition.message)))
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

/// Requested by the annotation of the Machine.
fn asked(phase: &str, word: &str) -> World {
    let mut world = linked(phase);
    world.annotate(PRESERVE, word);
    world
}

#[rstest]
#[case::now("Running", "now", true, Some("now"))]
#[case::now_if_failed("Failed", "now", true, Some("now"))]
#[case::when_failed("Failed", "when-failed", true, Some("when-failed"))]
#[case::not_failed("Running", "when-failed", false, Some("when-failed"))]
#[case::by_the_set("Failed", "auto-preserved", true, Some("auto-preserved"))]
#[case::by_the_set_and_not_failed("Running", "auto-preserved", false, None)]
#[case::refused("Failed", "false", false, Some("false"))]
#[case::empty("Failed", "", false, Some(""))]
#[case::unknown_word("Failed", "please", false, Some("please"))]
fn the_annotation_of_the_machine_asks(
    #[case] phase: &str,
    #[case] word: &str,
    #[case] is_kept: bool,
    #[case] left: Option<&str>,
) {
    let mut world = asked(phase, word);
    world.settle();
    assert_eq!(expiry(&world), is_kept.then(|| at(100 + TIMEOUT)));
    assert_eq!(of_machine(&world, PRESERVE).as_deref(), left);
    assert_eq!((of_node(&world, SCALE_DOWN_DISABLED).is_some(), told(&world).is_some()), (is_kept, is_kept));
    assert_eq!(world.waits.iter().any(|wait| wait.contains("the preservation to end")), is_kept, "{:?}", world.waits);
    assert_eq!(world.wake_at, is_kept.then(|| at(100 + TIMEOUT)));
}

#[rstest]
#[case::now("Running", Some("now"), None, true, Some("now"))]
#[case::when_failed("Failed", Some("when-failed"), None, true, Some("when-failed"))]
#[case::rather_than_the_machine("Failed", Some("when-failed"), Some("false"), true, Some("when-failed"))]
#[case::and_refuses_too("Running", Some("false"), Some("now"), false, Some("false"))]
fn the_annotation_of_the_node_takes_precedence_and_is_copied(
    #[case] phase: &str,
    #[case] of_the_node: Option<&str>,
    #[case] own: Option<&str>,
    #[case] is_kept: bool,
    #[case] copied: Option<&str>,
) {
    let mut world = linked(phase);
    own.into_iter().for_each(|word| world.annotate(PRESERVE, word));
    of_the_node.into_iter().for_each(|word| world.annotate_node(PRESERVE, word));
    world.settle();
    assert_eq!(expiry(&world).is_some(), is_kept);
    assert_eq!((of_machine(&world, PRESERVE), of_machine(&world, LAST_NODE_PRESERVE).as_deref()), (None, copied));
    assert_eq!(of_node(&world, PRESERVE).as_deref(), of_the_node, "it stays");
    world.log.clear();
    world.settle();
    assert_eq!(world.log, [""; 0], "once");
}

#[test]
fn an_empty_annotation_of_the_node_is_none() {
    let mut world = asked("Running", "now");
    world.annotate_node(PRESERVE, "");
    world.settle();
    assert!(expiry(&world).is_some());
    assert_eq!(of_machine(&world, PRESERVE), some("now"));
}

#[test]
fn when_the_annotation_of_the_node_is_removed_the_preservation_ends() {
    let mut world = linked("Failed");
    world.annotate_node(PRESERVE, "now");
    world.settle();
    world.nodes.get_mut("n").unwrap().annotations_mut().remove(PRESERVE);
    world.settle();
    assert_eq!(
        (expiry(&world), of_machine(&world, LAST_NODE_PRESERVE), of_machine(&world, PRESERVE)),
        (None, None, None)
    );
    assert!(!is_tainted(&world));
}

#[rstest]
#[case::nothing_begins("Running", None, None)]
#[case::nothing_ends("Failed", Some(9999), Some(9999))]
#[case::but_the_time_counts("Failed", Some(50), None)]
fn a_word_on_the_node_that_means_nothing_decides_nothing(
    #[case] phase: &str,
    #[case] until: Option<i64>,
    #[case] left: Option<i64>,
) {
    let mut world = asked(phase, "now");
    world.annotate_node(PRESERVE, "nwo");
    world.edit_status(|status| status.current_status.preserve_expiry_time = until.map(|second| at(second).into()));
    world.settle();
    assert_eq!(expiry(&world), left.map(at));
    assert_eq!(of_machine(&world, LAST_NODE_PRESERVE), None);
    let is_told = world.waits.iter().any(|wait| wait.contains("to be corrected: \"nwo\""));
    assert_eq!(is_told, left == until, "{:?}", world.waits);
}

#[rstest]
#[case::by_its_set(AUTO_PRESERVED)]
#[case::by_a_user("when-failed")]
fn the_preservation_of_a_failed_machine_ends_regardless_of_the_node(#[case] own: &str) {
    let mut world = asked("Failed", own);
    world.annotate_node(PRESERVE, "nwo");
    world.settle();
    let end = expiry(&world).expect("its set keeps it");
    world.now = end;
    world.settle();
    assert_eq!((expiry(&world), of_machine(&world, PRESERVE)), (None, some("false")));
}

#[test]
fn without_a_node_the_machine_s_own_annotation_counts_and_the_copy_goes() {
    let mut world = asked("Failed", "when-failed");
    world.annotate(LAST_NODE_PRESERVE, "false");
    world.nodes.clear();
    world.settle();
    assert!(expiry(&world).is_some(), "as for its set");
    assert_eq!((of_machine(&world, PRESERVE), of_machine(&world, LAST_NODE_PRESERVE)), (some("when-failed"), None));

    let mut world = linked("Failed");
    world.annotate(LAST_NODE_PRESERVE, "when-failed");
    world.nodes.clear();
    world.settle();
    assert_eq!(
        (expiry(&world), of_machine(&world, LAST_NODE_PRESERVE)),
        (None, None),
        "its set does not keep it either"
    );
}

#[rstest]
#[case::not_trusted(|world: &mut World| world.trust = TargetTrust::Untrusted { since: at(0), reason: "silent".to_owned() })]
#[case::not_readable(|world: &mut World| {
    world.cached_nodes = Some(std::collections::BTreeMap::new());
    world.unreadable_nodes = Some("no answer".to_owned());
})]
fn nothing_begins_or_ends_while_the_node_is_unknown(
    #[case] change: fn(&mut World),
    #[values(true, false)] begins: bool,
) {
    let mut world = asked("Failed", if begins { "now" } else { "false" });
    world.annotate(LAST_NODE_PRESERVE, if begins { "" } else { "now" });
    if !begins {
        world.edit_status(|status| status.current_status.preserve_expiry_time = Some(at(9999).into()));
    }
    let before = world.machine().clone();
    change(&mut world);
    world.pass();
    assert_eq!(
        (world.machine(), world.log.iter().all(|action| action == "GetNode")),
        (&before, true),
        "{:?}",
        world.log
    );
    assert!(world.wake_at.is_some(), "{:?}", world.waits);
}

#[test]
fn a_node_that_the_cache_misses_is_read_before_a_preservation_begins() {
    let mut world = asked("Failed", "now");
    world.annotate_node(PRESERVE, "false");
    world.cached_nodes = Some(std::collections::BTreeMap::new());
    world.settle();
    assert_eq!((world.log[0].as_str(), expiry(&world)), ("GetNode", None));

    let mut unasked = linked("Failed");
    unasked.cached_nodes = Some(std::collections::BTreeMap::new());
    unasked.settle();
    assert_eq!(unasked.log, [""; 0], "a Machine that nobody preserves costs no read");
}

#[test]
fn the_wish_of_the_node_is_copied_before_its_machine_fails() {
    let mut world = linked("Unknown");
    world.log.clear();
    world.annotate_node(PRESERVE, "when-failed");
    world.now = at(10 + 600);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Failed);
    assert_eq!(world.log[..2], ["PatchMachine", "LookAtPermit"], "its set replaces what failed and has no wish");
    assert!(expiry(&world).is_some());
}

#[rstest]
#[case::of_the_flag(json!({}), TIMEOUT)]
#[case::of_the_machine(json!("90m"), 90 * 60)]
fn it_is_kept_for_the_timeout_of_the_machine_or_the_flag(#[case] own: Value, #[case] seconds: i64) {
    let mut world = asked("Running", "now");
    world.edit(|machine| {
        machine.spec.configuration.machine_preserve_timeout = own.as_str().and_then(|text| text.parse().ok());
    });
    world.settle();
    assert_eq!(expiry(&world), Some(at(100 + seconds)));
    assert_eq!(world.status().current_status.last_update_time, Some(at(10).into()), "its phase did not change");
}

#[test]
fn a_flag_sets_the_timeout() {
    let mut world = asked("Running", "now");
    world.policy.preserve_timeout = "2h".parse().unwrap();
    world.settle();
    assert_eq!(expiry(&world), Some(at(100 + 7200)));
}

#[test]
fn a_machine_that_runs_is_kept_from_the_autoscaler_and_not_drained() {
    let mut world = asked("Running", "now");
    world.pods = vec![pod("a")];
    world.settle();
    assert_eq!(
        (of_node(&world, SCALE_DOWN_DISABLED), of_node(&world, SCALE_DOWN_DISABLED_BY_MCM)),
        (some("true"), some("true"))
    );
    let (status, reason, message) = told(&world).unwrap();
    assert_eq!((status.as_str(), reason.as_str()), ("True", "Preserved by user."));
    assert!(message.contains(&at(100 + TIMEOUT).to_string()) && !message.contains("drained"), "{message}");
    assert!(!is_tainted(&world) && world.pods[0].terminating_since.is_none());
    assert_eq!(world.log[..3], ["WriteStatus", "PatchNode", "PatchNodeStatus"]);
}

#[rstest]
#[case::by_the_user("when-failed", "Preserved by user.")]
#[case::by_the_set("auto-preserved", "Preserved by MCM.")]
fn the_node_of_a_failed_machine_is_tainted_and_drained(#[case] word: &str, #[case] by: &str) {
    let mut world = asked("Failed", word);
    let mut daemon = pod("daemon");
    daemon.is_daemon = true;
    world.pods = vec![pod("a"), daemon];
    world.run_until(|world| told(world).is_some());
    assert_eq!(world.pods.len(), 1, "pods of DaemonSets stay");
    let (status, reason, message) = told(&world).unwrap();
    assert_eq!((status.as_str(), reason.as_str()), ("True", by));
    assert!(message.contains(DRAINED) && message.contains(&at(100 + TIMEOUT).to_string()), "{message}");
    let taint = world.nodes["n"].spec.taints.iter().find(|taint| taint.key == PRESERVED_TAINT).unwrap();
    assert_eq!((taint.effect.as_str(), &taint.value, &taint.time_added), ("NoSchedule", &None, &Some(at(100).into())));
    assert!(!world.nodes["n"].spec.unschedulable, "the taint is enough");
    assert_eq!(world.log[..4], ["WriteStatus", "PatchNode", "ListPods", "EvictPod"], "no new pods come meanwhile");
    assert_eq!((world.vms.len(), world.phase()), (1, MachinePhase::Failed));
    assert_eq!(world.events, ["Preserved", "Draining", "Drained"]);
    assert_eq!(world.memory.pods.len(), 0, "a later drain begins anew");
    world.settle();
    world.log.clear();
    world.pods.push(pod("tolerant"));
    world.sleep(DAY);
    world.settle();
    assert_eq!(world.log, [""; 0], "it was drained once");
}

#[test]
fn after_a_restart_a_node_that_was_drained_is_not_drained_again() {
    let mut world = asked("Failed", "when-failed");
    world.pods = vec![pod("a")];
    world.run_until(|world| told(world).is_some());
    world.settle();
    world.memory = crate::machine::Memory::default();
    world.pods.push(pod("b"));
    world.log.clear();
    world.settle();
    assert_eq!(world.log, [""; 0]);
}

fn stubborn() -> EvictionRefusal {
    EvictionRefusal {
        message: "not now".to_owned(),
        budget: Some("ns/db".to_owned()),
        version: None,
        is_misconfigured: true,
        is_of_several: false,
    }
}

#[test]
fn a_drain_that_is_blocked_is_told_and_goes_on() {
    let mut world = asked("Failed", "when-failed");
    world.pods = vec![pod("a")];
    world.stubborn = Some(stubborn());
    world.run_until(|world| told(world).is_some());
    let (status, reason, message) = told(&world).unwrap();
    assert_eq!((status.as_str(), reason.as_str()), ("False", "Preserved by user."));
    assert!(message.contains(UNDRAINED) && message.contains("ns/db is misconfigured"), "{message}");
    world.run_until(|world| world.now > at(200));
    assert_eq!(world.log.iter().filter(|action| *action == "PatchNodeStatus").count(), 1, "told once");
    world.stubborn = None;
    world.run_until(|world| told(world).unwrap().2.contains(DRAINED));
    assert_eq!((told(&world).unwrap().0.as_str(), world.pods.len()), ("True", 0));
}

#[rstest]
#[case::at_its_timeout(|_: &mut World| {}, 100 + 7200)]
#[case::by_the_label(|world: &mut World| {
    world.edit(|machine| drop(machine.metadata.labels.get_or_insert_default().insert(FORCE_DRAIN.to_owned(), "True".to_owned())));
}, 101)]
#[case::not_by_another_value(|world: &mut World| {
    world.edit(|machine| drop(machine.metadata.labels.get_or_insert_default().insert(FORCE_DRAIN.to_owned(), "true".to_owned())));
}, 100 + 7200)]
#[case::not_by_the_label_of_deletions(|world: &mut World| {
    world.edit(|machine| drop(machine.metadata.labels.get_or_insert_default().insert("force-deletion".to_owned(), "true".to_owned())));
}, 100 + 7200)]
#[case::because_the_node_is_broken(|world: &mut World| {
    world.set_conditions(json!([{ "type": "Ready", "status": "False", "lastTransitionTime": at(50) }]));
}, 350)]
fn the_drain_is_forced(#[case] change: fn(&mut World), #[case] from: i64) {
    let mut world = asked("Failed", "when-failed");
    world.pods = vec![pod("a")];
    world.stubborn = Some(stubborn());
    change(&mut world);
    world.run_until(|world| world.now >= at(from - 30));
    world.now = at(from - 1);
    world.pass();
    assert_eq!(world.pods.len(), usize::from(from > 101), "not before");
    world.now = at(from);
    world.pass();
    assert!(world.pods.is_empty(), "{:?}", world.waits);
    assert!(told(&world).unwrap().2.contains(DRAINED));
}

#[test]
fn a_forced_delete_that_fails_is_repeated_after_growing_pauses() {
    let mut world = asked("Failed", "when-failed");
    world.edit(|machine| {
        drop(machine.metadata.labels.get_or_insert_default().insert(FORCE_DRAIN.to_owned(), "True".to_owned()))
    });
    world.pods = vec![pod("a")];
    // Status, annotations and taint, list, the first delete; condition, its copy, list, the second one.
    world.faults = [4, 8].map(|nth| (world.actions() + nth, Fault::Refused)).to_vec();
    for (second, left, next) in [(100, 1, 105), (105, 1, 115), (115, 0, 100 + TIMEOUT)] {
        world.now = at(second);
        world.pass();
        assert_eq!((world.pods.len(), world.wake_at), (left, Some(at(next))), "{:?}", world.log);
        assert!(told(&world).unwrap().2.contains(if left == 0 { DRAINED } else { UNDRAINED }));
    }
}

#[test]
fn what_somebody_else_told_the_autoscaler_stays() {
    let mut world = asked("Running", "now");
    world.annotate_node(SCALE_DOWN_DISABLED, "true");
    world.settle();
    assert_eq!(of_node(&world, SCALE_DOWN_DISABLED_BY_MCM), None);
    world.annotate(PRESERVE, "false");
    world.settle();
    assert_eq!((expiry(&world), of_node(&world, SCALE_DOWN_DISABLED)), (None, some("true")));
}

#[rstest]
#[case::by_the_machine("Running", false, None)]
#[case::by_the_node("Running", true, None)]
#[case::failed("Failed", false, Some("false"))]
#[case::failed_by_the_node("Failed", true, Some("false"))]
fn when_its_time_is_over_everything_is_taken_back_and_the_time_goes_last(
    #[case] phase: &str,
    #[case] on_node: bool,
    #[case] left: Option<&str>,
) {
    let mut world = linked(phase);
    let foreign = json!([{ "key": "mine", "effect": "NoSchedule" }]);
    world.nodes.get_mut("n").unwrap().spec.taints = serde_json::from_value(foreign).unwrap();
    if on_node {
        world.annotate_node(PRESERVE, "now")
    } else {
        world.annotate(PRESERVE, "now")
    }
    world.settle();
    let until = expiry(&world).unwrap();
    assert_eq!(is_tainted(&world), phase == "Failed");
    world.now = until;
    world.log.clear();
    world.settle();
    assert_eq!(expiry(&world), None);
    assert_eq!((of_machine(&world, PRESERVE).as_deref(), of_machine(&world, LAST_NODE_PRESERVE)), (left, None));
    let annotations = [PRESERVE, SCALE_DOWN_DISABLED, SCALE_DOWN_DISABLED_BY_MCM].map(|key| of_node(&world, key));
    assert_eq!(annotations, [None, None, None]);
    let taints: Vec<&str> = world.nodes["n"].spec.taints.iter().map(|taint| taint.key.as_str()).collect();
    assert_eq!(taints, ["mine"]);
    let (status, reason, _) = told(&world).unwrap();
    assert_eq!((status.as_str(), reason.as_str()), ("False", "Preservation stopped."));
    let writes: Vec<&str> = world.log.iter().map(String::as_str).filter(|it| *it != "GetNode").collect();
    let conditions_change = ["PatchNodeStatus", "WriteStatus", "PatchNode", "PatchMachine", "WriteStatus"];
    assert_eq!(writes, conditions_change, "the first status is the copy of the Node's conditions");
    assert_eq!(world.events.last().unwrap(), "PreservationStopped");
    assert!(world.story.contains("no longer preserved: its preservation has expired"));
    world.log.clear();
    world.settle();
    assert_eq!(world.log, [""; 0]);
}

#[rstest]
#[case::by_false("false")]
#[case::by_an_empty_one("")]
#[case::not_failed("when-failed")]
fn an_end_on_request_leaves_the_annotation(#[case] word: &str) {
    let mut world = asked("Running", "now");
    world.settle();
    let time = world.status().current_status.last_update_time;
    world.annotate(PRESERVE, word);
    world.settle();
    assert_eq!((expiry(&world), of_machine(&world, PRESERVE).as_deref()), (None, Some(word)));
    assert_eq!((of_node(&world, SCALE_DOWN_DISABLED), told(&world).unwrap().0.as_str()), (None, "False"));
    assert_eq!(world.status().current_status.last_update_time, time, "no timeout begins anew");
}

#[rstest]
#[case::when_failed("when-failed", Some("when-failed"))]
#[case::by_the_set("auto-preserved", None)]
fn a_preservation_ends_when_the_machine_runs_again(#[case] word: &str, #[case] left: Option<&str>) {
    let mut world = asked("Failed", word);
    world.settle();
    assert!(is_tainted(&world));
    world.set_conditions(ready());
    world.settle();
    assert_eq!((world.phase(), expiry(&world), is_tainted(&world)), (MachinePhase::Running, None, false));
    assert_eq!(of_machine(&world, PRESERVE).as_deref(), left);
}

#[test]
fn a_machine_that_is_kept_in_any_phase_loses_the_taint_when_it_runs_again_and_is_drained_when_it_fails_again() {
    let mut world = asked("Failed", "now");
    world.settle();
    assert!(is_tainted(&world) && told(&world).unwrap().2.contains(DRAINED));
    let until = expiry(&world);
    let preserved = world.nodes["n"].status.conditions.last().cloned().unwrap();
    world.set_conditions(ready());
    world.nodes.get_mut("n").unwrap().status.conditions.push(preserved);
    world.settle();
    assert_eq!((world.phase(), expiry(&world), is_tainted(&world)), (MachinePhase::Running, until, false));
    let (status, _, message) = told(&world).unwrap();
    assert!(status == "True" && !message.contains("drained"), "pods run there again: {message}");
    world.pods = vec![pod("b")];
    world.edit_status(|status| status.current_status.phase = MachinePhase::Failed);
    world.nodes.get_mut("n").unwrap().status.conditions[0].status = "False".into();
    world.run_until(|world| told(world).unwrap().2.contains(DRAINED));
    assert!(world.pods.is_empty() && is_tainted(&world));
}

#[test]
fn without_a_target_only_the_time_is_stored() {
    let mut world = asked("Available", "now");
    world.has_target = false;
    world.settle();
    assert_eq!(expiry(&world), Some(at(100 + TIMEOUT)));
    assert_eq!(world.log, ["WriteStatus", "ReadSecret", "GetVmStatus"], "the VM is looked at, and no Node");
    world.now = at(100 + TIMEOUT);
    world.settle();
    assert_eq!((expiry(&world), of_machine(&world, PRESERVE)), (None, None));
}

#[test]
fn a_machine_without_a_vm_is_kept_before_its_creation_and_through_its_errors() {
    let mut world = World::new();
    world.annotate(PRESERVE, "now");
    world.broken.insert(VmCall::Create, DriverError::new(Code::Internal, "no"));
    world.pass();
    assert_eq!(world.log[..2], ["WriteStatus", "ReadSecret"]);
    assert_eq!((world.phase(), expiry(&world)), (MachinePhase::CrashLoopBackOff, Some(at(10 + TIMEOUT))));
    world.broken.clear();
    world.run_until(|world| world.phase() == MachinePhase::Running);
    assert_eq!(expiry(&world), Some(at(10 + TIMEOUT)));
}

#[test]
fn a_deletion_takes_precedence_over_a_preservation() {
    let mut world = asked("Failed", "now");
    world.settle();
    world.delete();
    world.pass();
    assert_eq!(world.statuses.last().unwrap().current_status.preserve_expiry_time, None);
    world.run_until(|world| world.machine.is_none());
    assert!(world.vms.is_empty());

    let mut of_node = asked("Failed", "now");
    of_node.nodes.get_mut("n").unwrap().metadata.deletion_timestamp = Some(at(100).into());
    of_node.settle();
    assert_eq!(of_node.log, [""; 0], "its Machine is deleted next");
}

#[test]
fn another_machine_s_node_is_neither_tainted_nor_asked() {
    let mut world = asked("Failed", "when-failed");
    world.annotate_node(PRESERVE, "false");
    world.nodes.get_mut("n").unwrap().spec.provider_id = "cloud:///8".to_owned();
    let rival = json!({
        "metadata": { "name": "other", "namespace": "ns", "uid": "other", "labels": { "node": "n" } },
        "spec": { "providerID": "cloud:///8" },
    });
    world.rivals.push(serde_json::from_value(rival).unwrap());
    world.pass();
    assert!(expiry(&world).is_some(), "its own annotation counts");
    assert!(!is_tainted(&world) && told(&world).is_none(), "{:?}", world.log);
}

#[test]
fn a_node_that_cannot_be_written_holds_up_the_end_and_says_so() {
    let mut world = asked("Running", "now");
    world.settle();
    world.annotate(PRESERVE, "false");
    world.broken_nodes = Some("denied".to_owned());
    world.settle();
    assert!(expiry(&world).is_some(), "what is left would never be taken back");
    assert!(
        world.waits.iter().any(|wait| wait.contains("a write to the Node to succeed: denied")),
        "{:?}",
        world.waits
    );
    assert_eq!(world.wake_at, Some(at(101)));
    world.broken_nodes = None;
    world.run_until(|world| expiry(world).is_none());
}

/// A fault at any action leads to the same result.
#[rstest]
fn a_preservation_survives_a_fault_at_any_action(
    #[values(Fault::Crash, Fault::LostReply, Fault::Refused)] fault: Fault,
    #[values("Failed", "Running")] phase: &str,
    #[values(true, false)] on_node: bool,
) {
    let play = |faults: Vec<(usize, Fault)>| {
        let mut world = linked(phase);
        let before = world.actions();
        world.faults = faults.into_iter().map(|(nth, fault)| (before + nth, fault)).collect();
        world.pods = vec![pod("a")];
        if on_node {
            world.annotate_node(PRESERVE, "now")
        } else {
            world.annotate(PRESERVE, "now")
        }
        world.run_until(|world| told(world).is_some_and(|(status, ..)| status == "True"));
        assert_eq!((is_tainted(&world), world.pods.is_empty()), (phase == "Failed", phase == "Failed"));
        world.now = expiry(&world).unwrap();
        world.run_until(|world| expiry(world).is_none());
        world.settle();
        assert!(!is_tainted(&world) && world.vms.len() == 1, "{:?}", world.log);
        let left = if phase == "Failed" { some("false") } else { None };
        assert_eq!((of_machine(&world, PRESERVE), of_machine(&world, LAST_NODE_PRESERVE)), (left, None));
        assert_eq!((of_node(&world, PRESERVE), of_node(&world, SCALE_DOWN_DISABLED)), (None, None));
        world.actions() - before
    };
    let actions = play(Vec::new());
    for nth in 1..=actions {
        play(vec![(nth, fault)]);
    }
}
