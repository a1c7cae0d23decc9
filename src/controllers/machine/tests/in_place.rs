//! In-place updates: the stages of a Machine and its Node while the VM stays.

use insta::assert_snapshot;
use rstest::rstest;
use serde_json::json;

use super::{
    super::memory::Memory,
    world::{Fault, World, at, pod, ready},
};
use crate::{machine::TargetNodeView, object::in_place};
use mcm_api::{
    labels,
    machine::{MachinePhase, OperationState, OperationType},
    reasons::InPlaceUpdateReason as Reason,
};
use mcm_rules::{drain::EvictionRefusal, safety::trust::TargetTrust};

/// Sets labels of the Node.
fn label(world: &mut World, add: &[(&str, &str)]) {
    let node = world.nodes.get_mut("n").unwrap();
    for (key, value) in add {
        node.labels_mut().insert(*key, *value);
    }
}

/// The agent on the Node reports its result.
fn report(world: &mut World, result: &str, reason: Option<&str>) {
    label(world, &[(labels::UPDATE_RESULT, result)]);
    if let Some(reason) = reason {
        world.nodes.get_mut("n").unwrap().annotations_mut().insert(labels::UPDATE_FAILED_REASON, reason);
    }
}

fn progress(world: &World) -> Option<Reason> {
    in_place::progress_of(&world.nodes["n"].status.conditions)
}

const SELECTED: [(&str, &str); 2] =
    [(labels::CANDIDATE_FOR_UPDATE, labels::SET), (labels::SELECTED_FOR_UPDATE, labels::SET)];

/// A Machine that runs and whose Node is selected.
fn selected() -> World {
    let mut world = World::running();
    world.story.clear();
    label(&mut world, &SELECTED);
    world
}

/// A Machine whose Node waits for its agent.
fn ready_for_update() -> World {
    let mut world = selected();
    world.settle();
    assert_eq!((progress(&world), world.phase()), (Some(Reason::ReadyForUpdate), MachinePhase::InPlaceUpdating));
    world
}

fn stubborn(is_misconfigured: bool) -> Option<EvictionRefusal> {
    Some(EvictionRefusal {
        message: "not now".to_owned(),
        budget: Some("ns/db".to_owned()),
        version: None,
        is_misconfigured,
        is_of_several: false,
    })
}

#[test]
fn an_in_place_update_as_a_story() {
    let mut world = World::running();
    world.story.clear();
    world.pods = vec![pod("db-0"), pod("web-1")];
    label(&mut world, &SELECTED[..1]);
    world.settle();
    world.story.push_str("--- its Node is selected\n");
    world.sleep(60);
    label(&mut world, &SELECTED);
    world.run_until(|world| world.pods.is_empty());
    world.settle();
    world.story.push_str("--- the agent on the Node fails\n");
    world.sleep(60);
    report(&mut world, labels::FAILED, Some("no space left"));
    world.settle();
    world.story.push_str("--- and succeeds after all\n");
    world.sleep(60);
    report(&mut world, labels::SUCCESSFUL, None);
    world.settle();
    assert_snapshot!(world.story);
}

#[test]
fn a_selected_node_is_drained_before_its_agent_begins() {
    let mut world = selected();
    world.pods = vec![pod("a"), pod("b")];
    world.run_until(|world| progress(world) == Some(Reason::ReadyForUpdate));
    assert!(world.pods.is_empty() && world.nodes["n"].spec.unschedulable);
    assert_eq!(world.log.iter().filter(|action| *action == "EvictPod").count(), 2, "{:?}", world.log);
    assert_eq!(world.phase(), MachinePhase::InPlaceUpdating);
    let operation = world.status().last_operation;
    assert_eq!(operation.type_, Some(OperationType::InPlaceUpdate));
    assert_eq!(operation.state, Some(OperationState::Processing));
    assert_eq!(operation.description, "Machine m is undergoing an in-place update");
    assert_eq!(world.events, ["Draining", "InPlaceUpdating"]);
    let announced = world.nodes["n"].status.conditions.iter().any(|condition| condition.type_ == "Terminating");
    assert!(!announced, "the machine stays");
}

#[test]
fn the_machine_is_updating_before_the_node_is_ready_for_it() {
    for nth in 1..20 {
        let mut world = selected();
        world.faults = vec![(world.actions() + nth, Fault::Crash)];
        world.pass();
        let is_begun = matches!(progress(&world), Some(Reason::DrainSuccessful | Reason::ReadyForUpdate));
        assert!(!is_begun || world.phase() == MachinePhase::InPlaceUpdating, "after action {nth}");
    }
}

#[rstest]
fn an_update_is_continued_after_anything_goes_wrong(
    #[values(Fault::Crash, Fault::LostReply, Fault::Refused)] fault: Fault,
    #[values(labels::SUCCESSFUL, labels::FAILED)] result: &str,
) {
    for nth in 1..25 {
        let mut world = selected();
        world.pods = vec![pod("a")];
        world.faults = vec![(world.actions() + nth, fault)];
        world.run_until(|world| progress(world) == Some(Reason::ReadyForUpdate));
        assert!(world.pods.is_empty());
        report(&mut world, result, Some("because"));
        let expected = if result == labels::FAILED { "InPlaceUpdateFailed" } else { "Running" };
        world.run_until(|world| world.phase().as_str() == expected);
        world.settle();
        let reason = if result == labels::FAILED { Reason::UpdateFailed } else { Reason::UpdateSuccessful };
        assert_eq!(progress(&world), Some(reason), "action {nth}");
        assert_eq!((world.births, world.vms.len()), (1, 1), "the VM stays: {:?}", world.log);
    }
}

#[test]
fn what_another_implementation_left_drained_is_made_ready() {
    let mut world = selected();
    world.edit_status(|status| status.current_status.phase = MachinePhase::InPlaceUpdating);
    let mut conditions = ready();
    let drained = json!({ "type": "InPlaceUpdate", "status": "True", "reason": "DrainSuccessful" });
    conditions.as_array_mut().unwrap().push(drained);
    world.set_conditions(conditions);
    world.pods = vec![pod("late")];
    world.settle();
    assert_eq!(progress(&world), Some(Reason::ReadyForUpdate));
    assert_eq!(world.pods.len(), 1, "the drain was over");
}

#[test]
fn success_is_read_from_the_node_and_the_machine_runs_again() {
    let mut world = ready_for_update();
    world.statuses.clear();
    report(&mut world, labels::SUCCESSFUL, None);
    let taint = json!([{ "key": labels::CRITICAL_COMPONENTS_TAINT, "effect": "NoSchedule" }]);
    world.nodes.get_mut("n").unwrap().spec.taints = serde_json::from_value(taint).unwrap();
    world.settle();
    let told = &world.statuses[0];
    assert_eq!(told.current_status.phase, MachinePhase::InPlaceUpdateSuccessful);
    assert_eq!(told.last_operation.type_, Some(OperationType::InPlaceUpdate));
    assert_eq!(told.last_operation.state, Some(OperationState::Successful));
    assert_eq!(told.last_operation.description, "Machine m successfully updated dependencies");
    assert_eq!(world.phase(), MachinePhase::Running, "the taint of critical components holds back only a join");
    assert_eq!(progress(&world), Some(Reason::UpdateSuccessful));
    let copied = in_place::progress_of(&world.status().conditions);
    assert_eq!(copied, Some(Reason::UpdateSuccessful), "the deployment reads it from the Machine");
}

#[test]
fn a_machine_that_is_not_healthy_after_its_update_waits() {
    let mut world = ready_for_update();
    report(&mut world, labels::SUCCESSFUL, None);
    let conditions = &mut world.nodes.get_mut("n").unwrap().status.conditions;
    conditions
        .iter_mut()
        .filter(|condition| condition.type_ == "Ready")
        .for_each(|ready| ready.status = "False".into());
    world.settle();
    assert_eq!(world.phase(), MachinePhase::InPlaceUpdateSuccessful);
    assert!(world.waits.iter().any(|wait| wait.contains("healthy after its in-place update")), "{:?}", world.waits);
}

#[test]
fn a_failure_is_read_from_the_node_and_a_later_success_too() {
    let mut world = ready_for_update();
    report(&mut world, labels::FAILED, Some("no space left"));
    world.settle();
    assert_eq!(world.phase(), MachinePhase::InPlaceUpdateFailed);
    let operation = world.status().last_operation;
    assert_eq!(operation.state, Some(OperationState::Failed));
    assert_eq!(operation.description, "Machine m failed to update dependencies: no space left");
    let condition = in_place::condition_of(&world.nodes["n"].status.conditions).unwrap().clone();
    assert_eq!(condition.reason.as_deref(), Some("UpdateFailed"));
    assert!(condition.message.unwrap().contains("no space left"));
    assert_eq!(world.events.last().map(String::as_str), Some("InPlaceUpdateFailed"));
    report(&mut world, labels::SUCCESSFUL, None);
    world.statuses.clear();
    world.settle();
    assert_eq!(world.statuses[0].current_status.phase, MachinePhase::InPlaceUpdateSuccessful);
    assert_eq!(world.phase(), MachinePhase::Running);
}

#[test]
fn an_update_fails_exactly_at_its_timeout() {
    let mut world = ready_for_update();
    let since = world.status().current_status.last_update_time.unwrap().0;
    let deadline = since + jiff::SignedDuration::from_mins(20);
    assert_eq!(world.wake_at, Some(deadline));
    world.now = deadline - jiff::SignedDuration::from_secs(1);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::InPlaceUpdating);
    world.now = deadline;
    world.log.clear();
    world.settle();
    assert_eq!(world.log[0], "GetNode", "a cache that is behind fails nothing");
    assert_eq!(world.phase(), MachinePhase::InPlaceUpdateFailed);
    let operation = world.status().last_operation;
    assert_eq!(operation.type_, Some(OperationType::InPlaceUpdate));
    assert_eq!(operation.state, Some(OperationState::Failed));
    assert_eq!(operation.description, "Machine m failed to in-place update in 20m0s.");
    assert_eq!(progress(&world), Some(Reason::ReadyForUpdate), "the agent may still succeed");
}

#[test]
fn a_result_that_only_a_live_read_shows_counts_at_the_timeout() {
    let mut world = ready_for_update();
    world.cached_nodes = Some(world.nodes.clone());
    report(&mut world, labels::SUCCESSFUL, None);
    world.sleep(20 * 60);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
}

#[test]
fn the_timeout_of_the_machine_comes_before_that_of_the_flag() {
    let mut world = selected();
    world.edit(|machine| machine.spec.configuration.in_place_update_timeout = "3m".parse().ok());
    world.settle();
    assert_eq!(world.wake_at.map(|at| at.duration_since(world.now).as_secs()), Some(180));
}

#[test]
fn a_failed_update_that_stays_failed_is_replaced_under_the_guard() {
    let mut world = ready_for_update();
    report(&mut world, labels::FAILED, None);
    world.settle();
    world.sleep(10 * 60 - 1);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::InPlaceUpdateFailed);
    world.sleep(1);
    let mut other = world.machine().clone();
    other.metadata.name = Some("b".to_owned());
    world.census = vec![other.clone()];
    world.census[0].status.as_mut().unwrap().current_status.phase = MachinePhase::Failed;
    world.pass();
    assert_eq!(world.phase(), MachinePhase::InPlaceUpdateFailed, "another one is being replaced");
    world.census = vec![other];
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Failed, "although its Node is healthy, and another one waits for the same");
    assert!(world.description().starts_with("Machine m health checks failing since last 10m0s."));
}

#[test]
fn a_machine_that_failed_for_its_update_recovers_by_a_late_success() {
    let mut world = ready_for_update();
    world.edit_status(|status| {
        status.current_status.phase = MachinePhase::Failed;
        status.last_operation.type_ = Some(OperationType::InPlaceUpdate);
    });
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Failed);
    report(&mut world, labels::SUCCESSFUL, None);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
}

#[test]
fn a_patient_machine_stays_failed_to_update_for_ever() {
    let mut world = ready_for_update();
    world.edit(|machine| machine.spec.configuration.disable_health_timeout = Some(true));
    report(&mut world, labels::FAILED, None);
    world.sleep(9999);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::InPlaceUpdateFailed);
}

#[test]
fn a_drain_that_fails_is_told_and_repeated() {
    let mut world = selected();
    world.pods = vec![pod("db-0")];
    world.stubborn = stubborn(true);
    world.pass();
    let operation = world.status().last_operation;
    assert_eq!(operation.type_, Some(OperationType::DrainNode));
    assert_eq!(operation.state, Some(OperationState::Processing));
    let text = "Drain failed due to - error while evicting pod \"db-0\": pod disruption budget ns/db is misconfigured and \
                requires zero voluntary evictions. Will retry in next sync. Initiate node drain";
    assert_eq!(operation.description, text);
    assert_eq!(world.phase(), MachinePhase::Running, "it serves until its pods are gone");
    world.stubborn = None;
    world.run_until(|world| progress(world) == Some(Reason::ReadyForUpdate));
    assert!(world.pods.is_empty());
}

#[test]
fn a_budget_that_can_never_be_met_is_named_in_a_condition_while_it_is_in_the_way() {
    let named = |world: &World| {
        let conditions = world.status().conditions;
        conditions.into_iter().find(|condition| condition.type_ == "DrainBlocked")?.message
    };
    let is_named = |world: &World| named(world).is_some_and(|text| text.contains("budget ns/db allows no eviction"));
    let mut world = selected();
    world.pods = vec![pod("db-0")];
    world.stubborn = stubborn(true);
    world.pass();
    assert!(is_named(&world), "{:?}", world.status());
    assert!(world.status().conditions.iter().any(|condition| condition.type_ == "Ready"), "those of the Node stay");
    world.memory = Memory::default();
    let writes = world.statuses.len();
    world.pass();
    assert!(is_named(&world), "a restart does not change it");
    assert_eq!(world.statuses.len(), writes, "and nothing is written again");
    world.stubborn = stubborn(false);
    world.run_until(|world| named(world).is_none());
    assert_eq!(world.pods.len(), 1, "the drain still waits");
    world.stubborn = stubborn(true);
    world.run_until(is_named);
    world.stubborn = None;
    world.run_until(|world| progress(world) == Some(Reason::ReadyForUpdate));
    assert_eq!(named(&world), None, "the drain is over");
}

#[test]
fn a_budget_that_refuses_for_now_is_named() {
    let mut world = selected();
    world.pods = vec![pod("db-0")];
    world.stubborn = stubborn(false);
    world.pass();
    assert_eq!(world.description(), "Evictions are refused by the disruption budget ns/db. Initiate node drain");
}

#[rstest]
#[case::the_label(labels::FORCE_DRAIN, "True", true)]
#[case::exactly_so(labels::FORCE_DRAIN, "true", false)]
#[case::the_label_of_deletions(labels::FORCE_DELETION, "True", false)]
fn a_label_forces_the_drain(#[case] key: &str, #[case] value: &str, #[case] forced: bool) {
    let mut world = selected();
    world.pods = vec![pod("db-0")];
    world.stubborn = stubborn(false);
    world.edit(|machine| {
        machine.metadata.labels.as_mut().unwrap().insert(key.to_owned(), value.to_owned());
    });
    world.pass();
    assert_eq!(progress(&world) == Some(Reason::ReadyForUpdate), forced, "{:?}", world.log);
    assert_eq!(world.pods.is_empty(), forced);
}

#[test]
fn the_drain_is_forced_at_its_timeout_after_the_selection() {
    let mut world = selected();
    world.edit(|machine| machine.spec.configuration.drain_timeout = "3m".parse().ok());
    world.pods = vec![pod("db-0")];
    world.stubborn = stubborn(false);
    let selected_at = world.now;
    world.run_until(|world| world.pods.is_empty());
    let deleted_at = world.statuses.iter().find(|status| status.current_status.phase == MachinePhase::InPlaceUpdating);
    let deleted_at = deleted_at.unwrap().current_status.last_update_time.clone().unwrap().0;
    assert_eq!(deleted_at.duration_since(selected_at).as_secs(), 180);
}

#[test]
fn a_forced_drain_deletes_again_what_could_not_be_deleted() {
    let mut world = selected();
    world.edit(|machine| {
        machine.metadata.labels.as_mut().unwrap().insert(labels::FORCE_DRAIN.to_owned(), "True".to_owned());
    });
    world.pods = vec![pod("db-0")];
    world.pass();
    assert!(world.pods.is_empty());
    let deletes = world.actions() - world.log.iter().rev().position(|action| action == "DeletePod").unwrap();
    let mut world = selected();
    world.edit(|machine| {
        machine.metadata.labels.as_mut().unwrap().insert(labels::FORCE_DRAIN.to_owned(), "True".to_owned());
    });
    world.pods = vec![pod("db-0")];
    world.faults = vec![(deletes, Fault::Refused)];
    world.pass();
    assert_eq!(world.log.last().map(String::as_str), Some("WriteStatus"), "{:?}", world.log);
    assert!(world.description().starts_with("Drain failed due to - error when deleting pod \"db-0\": no answer."));
    assert_eq!((world.pods.len(), world.phase()), (1, MachinePhase::Running));
    world.run_until(|world| progress(world) == Some(Reason::ReadyForUpdate));
    assert!(world.pods.is_empty());
}

#[test]
fn a_node_that_cannot_be_closed_is_not_drained() {
    let mut world = selected();
    let mut conditions = ready();
    let chosen = json!({ "type": "InPlaceUpdate", "status": "True", "reason": "SelectedForUpdate" });
    conditions.as_array_mut().unwrap().push(chosen);
    world.set_conditions(conditions);
    world.pods = vec![pod("db-0")];
    world.broken_nodes = Some("denied".to_owned());
    world.pass();
    assert_eq!(world.pods.len(), 1);
    assert!(!world.log.contains(&"ListPods".to_owned()), "{:?}", world.log);
    assert!(world.description().starts_with("Drain failed due to - denied."), "{}", world.description());
}

#[rstest]
#[case::not_trusted(|world: &mut World| world.trust = TargetTrust::Untrusted { since: at(0), reason: "silent".to_owned() })]
#[case::missing(|world: &mut World| world.cached_nodes = Some(std::collections::BTreeMap::new()))]
#[case::no_target(|world: &mut World| world.has_target = false)]
#[case::of_another_machine(|world: &mut World| {
    let node = world.nodes.get_mut("n").unwrap();
    node.labels_mut().insert(labels::MACHINE_NAME, "another");
    world.broken_nodes = Some("denied".to_owned());
})]
fn only_a_node_that_is_known_to_be_its_own_is_drained(#[case] change: fn(&mut World)) {
    let mut world = selected();
    world.pods = vec![pod("a")];
    world.unreadable_nodes = Some("timeout".to_owned());
    change(&mut world);
    world.pass();
    assert_eq!(world.pods, [pod("a")]);
    assert!(!world.nodes["n"].spec.unschedulable && progress(&world).is_none(), "{:?}", world.log);
}

#[test]
fn the_template_of_the_node_comes_before_its_update() {
    let mut world = selected();
    world.edit(|machine| {
        machine.spec.node_template.metadata.labels.insert("zone".to_owned(), "a".to_owned());
    });
    world.pass();
    assert_eq!(world.log[..2], ["PatchNode", "PatchNodeStatus"]);
    assert_eq!(world.nodes["n"].labels().get("zone").unwrap(), "a");
}

#[test]
fn a_deletion_ends_an_update() {
    let mut world = ready_for_update();
    world.pods = vec![pod("a")];
    world.delete();
    world.run_until(|world| world.machine.is_none());
    assert!(world.vms.is_empty() && world.pods.is_empty());
}

/// A user uncordons the Node and cordons it again: pods started in between count.
#[test]
fn the_drain_of_a_deletion_after_an_update_starts_again() {
    let mut world = selected();
    world.pods = vec![pod("first")];
    world.run_until(|world| progress(world) == Some(Reason::ReadyForUpdate));
    world.pods = vec![pod("between")];
    world.delete();
    world.run_until(|world| world.machine.is_none());
    assert!(world.pods.is_empty(), "{:?}", world.pods);
}

#[test]
fn a_preserved_machine_stays_preserved_through_its_update() {
    let mut world = selected();
    world.annotate(labels::PRESERVE, "now");
    world.edit_status(|status| status.current_status.preserve_expiry_time = Some(at(99_999).into()));
    world.settle();
    report(&mut world, labels::FAILED, None);
    world.settle();
    assert!(world.statuses.iter().all(|status| status.current_status.preserve_expiry_time == Some(at(99_999).into())));
}

#[test]
fn an_update_needs_few_writes() {
    let mut world = selected();
    world.log.clear();
    world.settle();
    let expected = [
        "PatchNodeStatus",    // candidate
        "PatchNodeStatus",    // selected
        "StrategicPatchNode", // cordon
        "ListPods",
        "WriteStatus",
        "PatchNodeStatus", // drained
        "PatchNodeStatus", // ready
    ];
    let own: Vec<&String> = world.log.iter().filter(|action| *action != "WriteStatus").collect();
    let reads: Vec<&&str> = expected.iter().filter(|action| **action != "WriteStatus").collect();
    assert_eq!(format!("{own:?}"), format!("{reads:?}"), "{:?}", world.log);
    assert!(matches!(world.snapshot().node, TargetNodeView::Present(_)));
}
