pub use rstest::rstest;
use serde_json::{Value, json};

use super::world::{World, at, node, own, ready, unready};
use crate::machine::{Action, MachineCallResults, NodeWrite, RivalMachines, plan, token};
use mcm_api::{
    labels,
    machine::{Machine, MachinePhase, OperationState, OperationType},
    node::Node,
    sharing::SharedText,
};
use mcm_rules::safety::{
    meltdown::ReplacementPermit,
    trust::{TargetTrust, TrustInterruption},
};

/// A linked Machine in a phase since second 10, with this lastOperation type and state, and a Node with these conditions.
fn linked(phase: &str, operation: (&str, &str), conditions: Option<Value>) -> World {
    let patch = json!({ "metadata": { "labels": { "node": "n" }, "annotations": { "machinepriority.machine.sapcloud.io": "3" } }, "spec": { "providerID": "cloud:///7" } });
    let status = json!({
        "currentStatus": { "phase": phase, "lastUpdateTime": at(10) },
        "lastOperation": { "type": operation.0, "state": operation.1, "lastUpdateTime": at(10) },
        "conditions": ready(),
    });
    let mut world = World::with_machine(patch, status);
    world.vms.insert("cloud:///7".to_owned(), ("n".to_owned(), at(0)));
    world.boots = false;
    if let Some(conditions) = conditions {
        world.nodes.insert("n".to_owned(), own(node("n", conditions)));
    }
    world
}

/// It is preserved, and its Node shows that.
fn preserve(world: &mut World) {
    world.annotate(labels::PRESERVE, "now");
    world.edit_status(|status| status.current_status.preserve_expiry_time = Some(at(9999).into()));
    for node in world.nodes.values_mut() {
        let told = json!({ "type": "Preserved", "status": "True", "reason": "Preserved by user." });
        node.status.conditions.push(serde_json::from_value(told).unwrap());
    }
}

#[test]
fn a_node_is_not_read_while_the_replacement_permit_is_refused() {
    let mut world = linked("Unknown", SICK, Some(unready()));
    world.settle();
    world.sleep(10_000);
    let mut snapshot = world.snapshot();
    for _ in 0..12 {
        snapshot.learned = MachineCallResults::default();
        let planned = plan(&snapshot, &world.policy);
        assert!(matches!(planned.steps[0].action, Action::LookAtPermit(_)), "{planned}");
        snapshot.learned.permit = ReplacementPermit::Refused { by: "other".to_owned() };
        let planned = plan(&snapshot, &world.policy);
        assert!(planned.steps.is_empty(), "{planned}");
        snapshot.now = planned.requeue_at().unwrap();
    }
    snapshot.learned.permit = ReplacementPermit::Free;
    let planned = plan(&snapshot, &world.policy);
    assert!(matches!(planned.steps[0].action, Action::GetNode(_)), "{planned}");
    snapshot.node_was_read(snapshot.node_key(), Ok(true));
    let planned = plan(&snapshot, &world.policy);
    assert!(matches!(planned.steps[0].action, Action::TakePermit(_)), "{planned}");
}

/// A Machine that runs and whose node template changes.
fn with_template(template: Value) -> World {
    let mut world = World::running();
    world.edit(|machine| machine.spec.node_template = serde_json::from_value(template).unwrap());
    world
}

fn not_in_sync(world: &World) -> Option<String> {
    let told = world.status().conditions.into_iter().find(|condition| condition.type_ == "NodeInSync")?;
    assert_eq!(told.status, "False");
    told.message.map(|text| text.to_string())
}

fn told(world: &World) -> usize {
    world.events.iter().filter(|event| *event == "NodeWriteRefused").count()
}

#[test]
fn a_taint_with_an_empty_value_is_applied_once() {
    let mut world =
        with_template(json!({ "spec": { "taints": [{ "key": "dedicated", "value": "", "effect": "NoSchedule" }] } }));
    // As the API server stores it.
    world.webhook = Some(|node| node.spec.taints.iter_mut().for_each(|taint| taint.value = None));
    world.settle();
    assert_eq!(world.log.iter().filter(|name| *name == "PatchNode").count(), 1, "{:?}", world.log);
    assert_eq!((world.phase(), not_in_sync(&world)), (MachinePhase::Running, None));
}

/// The deployment controller would annotate them in a patch after the first one.
#[rstest]
#[case::without_a_rollout(false, Value::Null, None)]
#[case::in_a_rollout(true, Value::Null, Some("true"))]
#[case::as_its_template_says(true, json!({ "annotations": { labels::SCALE_DOWN_DISABLED: "false" } }), Some("false"))]
fn the_first_patch_of_a_node_keeps_it_from_the_autoscaler_during_a_rollout(
    #[case] is_rolled_out: bool,
    #[case] template: Value,
    #[case] expected: Option<&str>,
) {
    let mut world = World::with_machine(json!({ "spec": { "nodeTemplate": { "metadata": template } } }), Value::Null);
    world.is_rolled_out = is_rolled_out;
    world.run_until(|world| world.phase() == MachinePhase::Running);
    world.settle();
    let annotations = world.nodes["n"].annotations();
    assert_eq!(annotations.get(labels::SCALE_DOWN_DISABLED).map(SharedText::as_str), expected);
    let is_ours = annotations.contains_key(labels::SCALE_DOWN_DISABLED_BY_MCM);
    assert_eq!(is_ours, expected == Some("true"), "only its own annotation is removed later");
    assert_eq!(world.log.iter().filter(|name| *name == "PatchNode").count(), 1, "{:?}", world.log);
}

/// The rollout may have ended since, and then the deployment controller has removed them.
#[test]
fn later_patches_of_a_node_do_not_keep_it_from_the_autoscaler() {
    let mut world = with_template(json!({ "metadata": { "labels": { "pool": "a" } } }));
    world.is_rolled_out = true;
    world.settle();
    let node = &world.nodes["n"];
    assert_eq!(node.labels().get("pool").unwrap(), "a");
    assert!(!node.annotations().contains_key(labels::SCALE_DOWN_DISABLED));
}

#[test]
fn a_node_that_is_changed_back_each_time_starves_no_other_stage() {
    let mut world = with_template(json!({ "metadata": { "labels": { "pool": "a" } } }));
    world.webhook = Some(|node| drop(node.labels_mut().remove("pool")));
    world.annotate(labels::PRESERVE, "now");
    world.settle();
    assert!(world.machine().preserve_expiry().is_some(), "{:?}", world.log);
    assert!(not_in_sync(&world).unwrap().contains("changes it back"));
    let (began, before) = (world.now, world.log.len());
    for _ in 0..20 {
        world.now = world.wake_at.unwrap();
        world.pass();
    }
    let writes = world.log[before..].iter().filter(|name| *name == "PatchNode").count();
    let minutes = world.now.duration_since(began).as_mins();
    assert!(minutes > 100 && writes <= 60, "{writes} writes in {minutes} min");
    assert_eq!(told(&world), 1, "{:?}", world.events);
    world.set_conditions(unready());
    world.sleep(1);
    world.pass();
    assert_eq!(world.phase(), MachinePhase::Unknown);
}

/// Such as a cloud controller that sets another label, a moment after each write.
#[rstest]
#[case::a_label(json!({ "metadata": { "labels": { "pool": "a" } } }), |node: &mut Node| drop(node.labels_mut().remove("pool")))]
#[case::a_taint(json!({ "spec": { "taints": [{ "key": "dedicated", "effect": "NoSchedule" }] } }), |node: &mut Node| node.spec.taints.clear())]
fn what_another_client_changes_back_is_written_ever_more_rarely(
    #[case] template: Value,
    #[case] reverts: fn(&mut Node),
) {
    let mut world = with_template(template);
    let writes = |world: &World| world.log.iter().filter(|name| *name == "PatchNode").count();
    let mut after_a_minute = 0;
    for second in 0..600 {
        world.pass();
        reverts(world.nodes.get_mut("n").unwrap());
        world.sleep(1);
        if second == 59 {
            after_a_minute = writes(&world);
        }
    }
    assert!((4..=10).contains(&after_a_minute), "{after_a_minute}");
    assert!(writes(&world) <= 14, "{}", writes(&world));
    assert!(not_in_sync(&world).unwrap().contains("changes it back"));
    assert!((1..=6).contains(&told(&world)), "{:?}", world.events);
    world.sleep(600);
    world.pass();
    world.sleep(11);
    world.settle();
    assert_eq!((world.phase(), not_in_sync(&world)), (MachinePhase::Running, None));
}

#[test]
fn an_invalid_entry_of_the_node_template_is_shown_and_the_others_are_applied() {
    let mut world = with_template(json!({
        "metadata": { "labels": { "team": "data platform", "pool": "a" } },
        "spec": { "taints": [{ "key": "dedicated", "value": "x", "effect": "NoSchedule" }] },
    }));
    world.settle();
    let node = &world.nodes["n"];
    assert_eq!(node.labels().get("pool").unwrap(), "a");
    assert_eq!(node.spec.taints.len(), 1);
    assert!(not_in_sync(&world).unwrap().contains(r#"label "team": the value has characters other than letters"#));
    assert_eq!((world.phase(), told(&world)), (MachinePhase::Running, 1));
    world.set_conditions(unready());
    world.pass();
    assert!(not_in_sync(&world).is_some(), "it stays when the conditions of the Node change");
    assert_eq!(told(&world), 1);
    world.edit(|machine| drop(machine.spec.node_template.metadata.labels.remove("team")));
    world.settle();
    assert_eq!(not_in_sync(&world), None);
}

/// An admission policy refuses one entry.
#[rstest]
#[case::label("labels")]
#[case::annotation("annotations")]
fn a_refused_entry_of_the_node_template_holds_back_no_other(#[case] field: &str) {
    let mut world = with_template(json!({ "metadata": { field: { "a": "1", "protected": "x", "z": "1" } } }));
    world.refuses = Some(|patch| {
        let entries = [patch.pointer("/metadata/labels/protected"), patch.pointer("/metadata/annotations/protected")];
        entries.into_iter().flatten().any(|value| value == "x")
    });
    world.settle();
    let metadata = json!(world.nodes["n"].metadata);
    assert_eq!((&metadata[field]["a"], &metadata[field]["z"]), (&json!("1"), &json!("1")), "{:?}", world.log);
    assert!(metadata[field]["protected"].is_null());
    assert!(not_in_sync(&world).unwrap().contains("it is invalid"));
}

#[test]
fn refused_writes_delay_no_others_and_are_retried_with_a_backoff() {
    let mut world = with_template(json!({
        "metadata": { "labels": { "protected": "x" }, "annotations": { "owner": "x" } },
        "spec": { "taints": [{ "key": "dedicated", "value": "x", "effect": "NoSchedule" }] },
    }));
    world.edit(|machine| machine.metadata.generation = Some(1));
    world.nodes.get_mut("n").unwrap().metadata.finalizers = None;
    world.refuses = Some(|patch| patch.pointer("/metadata/labels/protected").is_some_and(|value| value == "x"));
    world.settle();
    let node = &world.nodes["n"];
    assert_eq!(node.metadata.finalizers.as_ref().unwrap().len(), 1);
    assert_eq!(node.spec.taints.len(), 1);
    assert!(node.annotations().contains_key("owner"));
    assert_eq!(not_in_sync(&world).unwrap(), "labels of the node template: it is invalid");
    let (began, before) = (world.now, world.log.len());
    for _ in 0..20 {
        world.now = world.wake_at.unwrap();
        world.pass();
    }
    let writes = world.log[before..].iter().filter(|name| *name == "PatchNode").count();
    let minutes = world.now.duration_since(began).as_mins();
    assert!(minutes > 100 && writes <= 20, "{writes} writes in {minutes} min");
    assert_eq!(told(&world), 1, "{:?}", world.events);
    world.edit(|machine| {
        machine.metadata.generation = Some(2);
        machine.spec.node_template.metadata.labels = [("protected".to_owned(), "y".to_owned())].into();
    });
    world.settle();
    assert_eq!(world.nodes["n"].labels().get("protected").unwrap(), "y", "it is written at once");
    assert_eq!(not_in_sync(&world), None);
}

const CREATED: (&str, &str) = ("Create", "Processing");
const JOINED: (&str, &str) = ("Create", "Successful");
const SICK: (&str, &str) = ("HealthCheck", "Processing");

#[rstest]
#[case::joins("Pending", CREATED, Some(ready()), "Running", "Machine m successfully joined the cluster in 10s")]
#[case::joins_after_errors("CrashLoopBackOff", ("Create", "Failed"), Some(ready()), "Running", "Machine m successfully joined the cluster in 10s")]
#[case::recovers("Unknown", SICK, Some(ready()), "Running", "Machine m successfully re-joined the cluster")]
#[case::recovers_although_failed("Failed", ("HealthCheck", "Failed"), Some(ready()), "Running", "Machine m successfully re-joined the cluster")]
#[case::updated_in_place("InPlaceUpdateSuccessful", ("InPlaceUpdate", "Successful"), Some(ready()), "Running", "Machine m successfully re-joined the cluster")]
#[case::sick(
    "Running",
    JOINED,
    Some(unready()),
    "Unknown",
    "Machine m is unhealthy - changing MachinePhase to Unknown. Node conditions: [Ready=Unknown (NodeStatusUnknown), DiskPressure=False, Preserved=True]"
)]
#[case::gone(
    "Running",
    JOINED,
    None,
    "Unknown",
    "Node object went missing. Machine m is unhealthy - changing MachinePhase to Unknown"
)]
#[case::not_joined_yet("Pending", CREATED, Some(unready()), "Pending", "")]
#[case::still_sick("Unknown", SICK, Some(unready()), "Unknown", "")]
#[case::being_updated("InPlaceUpdating", ("InPlaceUpdate", "Processing"), Some(ready()), "InPlaceUpdating", "")]
#[case::update_failed("InPlaceUpdateFailed", ("InPlaceUpdate", "Failed"), Some(ready()), "InPlaceUpdateFailed", "")]
fn transitions(
    #[case] phase: &str,
    #[case] operation: (&str, &str),
    #[case] conditions: Option<Value>,
    #[case] expected: &str,
    #[case] text: &str,
) {
    let mut world = linked(phase, operation, conditions);
    preserve(&mut world);
    world.pass();
    assert_eq!(world.phase().as_str(), expected);
    assert_eq!(world.description(), text);
    let current = world.status().current_status;
    assert_eq!(current.preserve_expiry_time, Some(at(9999).into()), "preservation goes on");
    if expected != phase {
        let operation = world.status().last_operation;
        let state = if expected == "Running" { OperationState::Successful } else { OperationState::Processing };
        assert_eq!(operation.state, Some(state));
        assert_eq!(current.timeout_active, expected == "Unknown");
        assert_eq!(world.machine_writes, 1, "transition and conditions are one write");
    }
}

/// 12.7: after a take-over in the middle of a join.
#[test]
fn a_token_of_the_go_program_is_deleted_as_well_if_the_vm_was_not_created_here() {
    let mut world = linked("Pending", CREATED, Some(ready()));
    world.edit(|machine| machine.metadata.name = Some("pool-fghij".to_owned()));
    let deleted = |world: &World| {
        let steps = plan(&world.snapshot(), &world.policy).steps.into_iter();
        let ids = steps.filter_map(|step| match step.action {
            Action::DeleteBootstrapToken { id } => Some(id),
            _ => None,
        });
        ids.collect::<Vec<_>>()
    };
    let own = token::id_of(world.machine());
    assert_eq!(deleted(&world), [own.clone(), "666768".to_owned()]);
    world.memory.wants_token = Some(true);
    assert_eq!(deleted(&world), [own]);
}

#[rstest]
#[case::joining("Pending", CREATED, "Pending")]
#[case::known_to_serve("Unknown", SICK, "Running")]
fn critical_components_hold_back_only_the_first_join(
    #[case] phase: &str,
    #[case] operation: (&str, &str),
    #[case] expected: &str,
) {
    let mut world = linked(phase, operation, Some(ready()));
    let taint = json!([{ "key": labels::CRITICAL_COMPONENTS_TAINT, "effect": "NoSchedule" }]);
    world.nodes.get_mut("n").unwrap().spec.taints = serde_json::from_value(taint).unwrap();
    world.pass();
    assert_eq!(world.phase().as_str(), expected);
}

#[test]
fn a_machine_that_does_not_join_fails_exactly_at_its_creation_timeout() {
    let mut world = linked("Pending", CREATED, Some(unready()));
    world.pass();
    assert_eq!(world.wake_at, Some(at(20 * 60)));
    world.now = at(20 * 60);
    world.pass();
    assert_eq!(world.phase(), MachinePhase::Failed);
    assert_eq!(world.description(), "Machine m failed to join the cluster in 20m0s.");
    let status = world.status();
    assert_eq!(
        (status.last_operation.type_, status.last_operation.state),
        (Some(OperationType::Create), Some(OperationState::Failed))
    );
    assert_eq!(status.conditions.len(), 2);
    assert_eq!(status.conditions[0].status, "Unknown", "the conditions tell why");
}

#[rstest]
#[case::with_its_node(Some(unready()))]
#[case::without(None)]
fn a_failed_machine_says_what_it_waits_for(#[case] conditions: Option<Value>) {
    let mut world = linked("Failed", SICK, conditions);
    world.settle();
    assert!(world.waits.iter().any(|wait| wait.contains("its set to replace it")), "{:?}", world.waits);
}

fn sibling(name: &str, phase: &str) -> Machine {
    serde_json::from_value(json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
        "metadata": { "name": name, "namespace": "ns", "labels": { "name": "pool" } },
        "spec": {}, "status": { "currentStatus": { "phase": phase } },
    }))
    .unwrap()
}

#[rstest]
#[case::others_serve(&["Running", "Unknown"], "Failed")]
#[case::one_is_replaced_already(&["Running", "Pending"], "Unknown")]
#[case::one_is_going(&["Terminating"], "Unknown")]
fn only_one_machine_of_a_deployment_is_given_up_at_a_time(#[case] siblings: &[&str], #[case] expected: &str) {
    let mut world = linked("Unknown", SICK, Some(unready()));
    world.census = siblings.iter().map(|phase| sibling("s", phase)).collect();
    world.pass();
    assert_eq!(world.wake_at, Some(at(10 + 10 * 60)));
    world.now = at(10 + 10 * 60);
    world.pass();
    assert_eq!(world.phase().as_str(), expected);
    if expected == "Failed" {
        assert_eq!(
            world.description(),
            "Machine m health checks failing since last 10m0s. Updating machine phase to Failed. Node \
             Conditions: [Ready=Unknown (NodeStatusUnknown), DiskPressure=False]"
        );
        assert_eq!(world.events, ["Failed"]);
    } else {
        assert!(world.waits[0].contains("machines of pool are out of service: s ("), "{:?}", world.waits);
    }
}

#[test]
fn without_the_deployment_label_nothing_guards() {
    let mut world = linked("Unknown", SICK, None);
    world.edit(|machine| {
        machine.metadata.labels.as_mut().unwrap().remove(labels::DEPLOYMENT_NAME);
    });
    world.now = at(10 + 10 * 60);
    world.pass();
    assert_eq!(world.phase(), MachinePhase::Failed);
    assert!(!world.log.contains(&"TakePermit".to_owned()));
}

#[test]
fn a_patient_machine_stays_unknown_for_ever() {
    let mut world = linked("Unknown", SICK, Some(unready()));
    world.edit(|machine| machine.spec.configuration.disable_health_timeout = Some(true));
    world.now = at(99_999);
    world.pass();
    assert_eq!((world.phase(), world.wake_at), (MachinePhase::Unknown, None));
}

#[test]
fn changed_conditions_are_mirrored_and_heartbeats_are_not() {
    let mut world = World::running();
    let mut conditions = ready();
    conditions[0]["lastHeartbeatTime"] = json!(at(100));
    world.set_conditions(conditions);
    world.pass();
    assert_eq!(world.machine_writes, 0);
    world
        .set_conditions(json!([{ "type": "Ready", "status": "True" }, { "type": "MemoryPressure", "status": "True" }]));
    world.pass();
    assert_eq!(world.machine_writes, 1);
    assert_eq!(world.status().conditions[1].type_, "MemoryPressure");
    assert_eq!(world.phase(), MachinePhase::Running);
}

#[test]
fn a_node_that_cannot_be_written_does_not_keep_a_machine_from_running() {
    let mut world = linked("Pending", CREATED, Some(ready()));
    world.broken_nodes = Some("denied".to_owned());
    world.pass();
    assert_eq!(world.phase(), MachinePhase::Running);
    assert!(world.waits.iter().any(|wait| wait.contains("denied")));
    assert_eq!(world.wake_at, Some(at(11)));
    assert_eq!(world.log.iter().filter(|name| *name == "PatchNode").count(), 1, "{:?}", NodeWrite::Sync);
}

#[test]
fn nothing_is_believed_of_nodes_while_they_are_unknown_or_the_target_cannot_be_trusted() {
    use crate::machine::{ClassView, MachinePolicy, Memory, Snapshot, TargetNodeView};
    let world = linked("Running", JOINED, None);
    let judged = |node: TargetNodeView, target: TargetTrust, is_read: bool| {
        let (machine, memory) = (std::sync::Arc::new(world.machine().clone()), Memory::default());
        let mut snapshot =
            Snapshot::new(machine, ClassView::Unknown, target, MachineCallResults::default(), memory, world.now);
        if is_read {
            snapshot.node_was_read(snapshot.node_key(), Ok(false));
        }
        plan(&snapshot.with_node(node, RivalMachines::default()), &MachinePolicy::default())
    };
    let unknown = judged(TargetNodeView::Unknown, TargetTrust::default(), false);
    assert!(unknown.steps.is_empty() && unknown.waits.len() == 1);
    assert_eq!(
        judged(TargetNodeView::Missing, TargetTrust::default(), true).steps.len(),
        1,
        "an absent Node is noticed"
    );
    let untrusted = TargetTrust::Untrusted { since: at(3), reason: "no answer to its last call".to_owned() };
    let frozen = judged(TargetNodeView::Missing, untrusted, true);
    assert!(frozen.steps.is_empty() && frozen.waits.len() == 1);
    assert!(frozen.waits[0].text.contains("no answer to its last call"), "{:?}", frozen.waits);
}

/// The API server of the target cluster was away since then, and is back since this moment.
fn back_after(world: &mut World, began: i64) {
    world.trust = TargetTrust::Trusted { after: Some(TrustInterruption { began: at(began), ended: world.now }) };
}

#[rstest]
#[case::sick(Some(unready()))]
#[case::gone(None)]
fn a_machine_that_became_unknown_during_an_outage_gets_its_whole_health_timeout(#[case] conditions: Option<Value>) {
    let mut world = linked("Unknown", SICK, conditions);
    preserve(&mut world);
    let writes = world.machine_writes;
    world.now = at(4000);
    back_after(&mut world, 10);
    world.settle();
    let status = world.status();
    assert_eq!(
        status.last_operation.description,
        "Machine Health Timeout was reset due to APIServer being unreachable"
    );
    assert_eq!(status.current_status.phase, MachinePhase::Unknown, "its Node is not healthy");
    assert_eq!(status.current_status.last_update_time, Some(at(4000).into()));
    assert_eq!(status.current_status.preserve_expiry_time, Some(at(9999).into()), "preservation goes on");
    assert_eq!(
        (world.machine_writes - writes, world.wake_at),
        (1, Some(at(4000 + 600))),
        "once, and then its time passes"
    );
    world.now = at(4000 + 600);
    world.run_until(|world| world.phase() == MachinePhase::Failed);
}

#[rstest]
#[case::it_became_unknown_before(11, 4000, 4060)]
#[case::its_time_is_not_over_yet(11, 20, 10 + 600)]
#[case::it_became_unknown_afterwards(2, 9, 10 + 600)]
fn a_machine_that_was_unknown_before_an_outage_keeps_its_time(
    #[case] began: i64,
    #[case] ended: i64,
    #[case] fails_at: i64,
) {
    let mut world = linked("Unknown", SICK, Some(unready()));
    world.now = at(ended);
    back_after(&mut world, began);
    world.now = at(ended.max(10));
    world.settle();
    assert_eq!(world.wake_at, Some(at(fails_at)), "not before its Node could report");
    assert_eq!(world.status().current_status.last_update_time, Some(at(10).into()));
    assert_eq!(world.machine_writes, 1, "its conditions");
    world.now = at(fails_at);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Failed);
}

#[rstest]
#[case::failed("Failed", ("HealthCheck", "Failed"))]
#[case::joining("Pending", CREATED)]
#[case::updated_in_place("InPlaceUpdating", ("InPlaceUpdate", "Processing"))]
fn the_end_of_an_outage_resets_no_other_phase(#[case] phase: &str, #[case] operation: (&str, &str)) {
    let mut world = linked(phase, operation, Some(unready()));
    world.now = at(40);
    back_after(&mut world, 5);
    world.settle();
    assert_eq!((world.phase().as_str(), world.description().as_str()), (phase, ""));
    world.delete();
    world.settle();
    assert!(!world.descriptions().iter().any(|text| text.contains("was reset")), "{:?}", world.descriptions());
}

#[test]
fn a_machine_that_is_healthy_again_after_an_outage_runs_at_once() {
    let mut world = linked("Unknown", SICK, Some(ready()));
    world.now = at(4000);
    back_after(&mut world, 0);
    world.settle();
    assert_eq!(
        (world.phase(), world.description().as_str()),
        (MachinePhase::Running, "Machine m successfully re-joined the cluster")
    );
    assert_eq!(world.machine_writes, 1);
}

#[rstest]
#[case::sick(Some(unready()))]
#[case::gone(None)]
fn a_machine_does_not_become_unknown_before_its_node_could_report_after_an_outage(#[case] conditions: Option<Value>) {
    let mut world = linked("Running", JOINED, conditions);
    world.now = at(4000);
    back_after(&mut world, 0);
    world.settle();
    assert_eq!((world.phase(), world.wake_at), (MachinePhase::Running, Some(at(4060))));
    world.now = at(4060);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Unknown);
    assert_eq!(world.status().current_status.last_update_time, Some(at(4060).into()));
}

#[test]
fn a_machine_needs_no_class_to_be_found_unhealthy() {
    let mut world = linked("Running", JOINED, Some(unready()));
    world.class = crate::machine::ClassView::Missing;
    world.pass();
    assert_eq!(world.phase(), MachinePhase::Unknown, "{:?}", world.waits);
    assert_eq!(world.nodes["n"].labels().get(labels::MACHINE_NAME).unwrap(), "m", "its Node is kept up to date");
}

#[test]
fn a_class_without_node_template_leaves_virtual_capacity_as_it_is() {
    let mut world = World::running();
    let with_capacity = world.nodes.get_mut("n").unwrap();
    with_capacity.annotations_mut().insert(labels::LAST_APPLIED_VIRTUAL_CAPACITY, r#"{"gpu":"1"}"#);
    with_capacity.status.capacity = serde_json::from_value(json!({ "gpu": "1" })).unwrap();
    world.settle();
    assert_eq!(world.log, [""; 0]);
}

#[rstest]
#[case::running("Running")]
#[case::unknown("Unknown")]
fn without_a_target_a_label_with_a_node_name_means_nothing(#[case] phase: &str) {
    let mut world = linked(phase, JOINED, None);
    world.has_target = false;
    world.now = at(99_999);
    world.pass();
    assert_eq!((world.phase().as_str(), world.machine_writes), (phase, 0), "{:?}", world.log);
    world.delete();
    world.pass();
    assert!(world.machine.is_none() && world.vms.is_empty(), "{:?}", world.waits);
}
