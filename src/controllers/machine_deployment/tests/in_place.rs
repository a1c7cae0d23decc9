//! In-place updates: selection of Nodes, moves of Machines, and the removal of marks.

use std::sync::Arc;

use kube::ResourceExt;
use rstest::rstest;
use serde_json::json;

use super::{
    drive::{Drive, deployment, in_place, rolling},
    support::{annotate_deployment, condition, planned, reads},
};
use crate::{
    machine_deployment::{Action, NodePatchOrder, Snapshot, rollout::lint::lint},
    object::{deletion_order::DeletionOrder, in_place as progress, owner},
    testing::Happening,
};
use mcm_api::{
    labels,
    machine::{Machine, MachinePhase, MachineSet},
    node::Node,
    patch::Packed,
    selector::Selector,
};
use mcm_rules::plan::{WaitKind, lint::PlanRule};

fn auto(replicas: i32, surge: i32, unavailable: i32) -> Drive {
    Drive::settled(deployment(replicas, in_place(surge, unavailable, "Auto")))
}

/// A rollout whose first step is planned.
fn begun(replicas: i32, surge: i32, unavailable: i32) -> Drive {
    let mut drive = auto(replicas, surge, unavailable);
    drive.edit_version("v2");
    drive.settle();
    drive
}

fn nodes(drive: &Drive) -> impl Iterator<Item = &Arc<Node>> {
    drive.world.nodes.all()
}

fn selected(drive: &Drive) -> usize {
    nodes(drive).filter(|node| progress::is_selected(node)).count()
}

fn node_of<'a>(drive: &'a Drive, machine: &str) -> &'a Arc<Node> {
    drive.world.nodes.get(drive.world.machines.get(machine).unwrap().node_name().unwrap()).unwrap()
}

/// Name of the Machine whose Node is selected.
fn chosen(drive: &Drive) -> String {
    let is_chosen = |machine: &&Arc<Machine>| {
        drive.world.nodes.get(machine.node_name().unwrap_or_default()).is_some_and(|node| progress::is_selected(node))
    };
    drive.world.machines.all().find(is_chosen).unwrap().name_any()
}

fn update(drive: &mut Drive, machine: &str) {
    drive.let_happen(&Happening::Updating { machine: machine.to_owned() });
    drive.let_happen(&Happening::Updated { machine: machine.to_owned() });
}

fn sets(drive: &Drive) -> (Arc<MachineSet>, Arc<MachineSet>) {
    let is_new = |set: &&Arc<MachineSet>| {
        set.spec.template.metadata.labels.get("version").is_some_and(|version| version == "v2")
    };
    let (new, old): (Vec<_>, Vec<_>) = drive.world.sets.all().partition(is_new);
    (Arc::clone(old[0]), Arc::clone(new[0]))
}

#[test]
fn old_sets_are_held_and_their_nodes_are_candidates() {
    let drive = begun(3, 0, 1);
    let (old, new) = sets(&drive);
    assert_eq!(old.labels().get(labels::SCALE_UP_DISABLED).map(String::as_str), Some("true"));
    assert!(!new.labels().contains_key(labels::SCALE_UP_DISABLED));
    let labelled = old.status.as_ref().map_or(0, |status| status.fully_labeled_replicas);
    assert_eq!(labelled, 0, "it is held also if the Go program moved its machines to it");
    for node in nodes(&drive) {
        assert_eq!(node.labels().get(labels::CANDIDATE_FOR_UPDATE).unwrap(), "true");
        assert_eq!(node.spec.taints.len(), 1, "new pods avoid it");
        assert!(node.annotations().contains_key(labels::SCALE_DOWN_DISABLED));
    }
}

#[rstest]
#[case::one_less(3, 0, 1, 0, 1)]
#[case::two_less(5, 0, 2, 0, 2)]
#[case::one_more_comes_first(3, 1, 0, 1, 0)]
#[case::both(3, 1, 1, 1, 1)]
#[case::neither_is_one_less(3, 0, 0, 0, 1)]
fn nodes_are_selected_within_the_bounds(
    #[case] replicas: i32,
    #[case] surge: i32,
    #[case] unavailable: i32,
    #[case] created: i32,
    #[case] expected: usize,
) {
    let drive = begun(replicas, surge, unavailable);
    assert_eq!((sets(&drive).1.spec.replicas, selected(&drive)), (created, expected), "{}", drive.log);
}

#[test]
fn a_machine_moves_with_its_name_node_and_vm() {
    let mut drive = begun(3, 0, 1);
    let name = chosen(&drive);
    drive.world.machines.edit(&mut drive.world.clock, &name, |machine| {
        machine.labels_mut().insert("mine".to_owned(), "stays".to_owned());
        let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x"});
        machine.metadata.owner_references.as_mut().unwrap().push(serde_json::from_value(other).unwrap());
    });
    let before = drive.world.machines.get(&name).unwrap().clone();
    update(&mut drive, &name);
    drive.settle();
    let (after, (old, new)) = (drive.world.machines.get(&name).unwrap().clone(), sets(&drive));
    assert_eq!((after.uid(), after.node_name()), (before.uid(), before.node_name()));
    let owners = after.metadata.owner_references.as_deref().unwrap();
    assert_eq!(owners.iter().map(|owner| owner.name.as_str()).collect::<Vec<_>>(), [new.name_any().as_str(), "x"]);
    assert!(owner::is_controlled_by(&after.metadata, &new.uid().unwrap()), "entry 0 is the controller");
    let selects =
        |set: &MachineSet| Selector::parse(set.spec.selector.as_ref()).unwrap().matches(after.metadata.labels.as_ref());
    assert!(selects(&new) && !selects(&old));
    assert_eq!(after.labels()["version"], "v2", "it is fully labelled");
    assert_eq!(after.labels()["mine"], "stays");
    assert_eq!((old.spec.replicas, new.spec.replicas), (2, 1), "{}", drive.log);
    assert!(!after.labels().contains_key(labels::UPDATE_RESULT), "the mark goes when the set counts it");
}

/// The next plan of each set between any two writes: the old one replaces nothing, the new one deletes nothing.
#[test]
fn no_set_creates_or_deletes_a_machine_while_another_one_moves() {
    let mut drive = begun(3, 0, 1);
    let name = chosen(&drive);
    update(&mut drive, &name);
    for _ in 0..10 {
        let snapshot = drive.snapshot();
        for step in planned(&snapshot).steps {
            drive.world.apply_deployment_action(&snapshot, &step.action).unwrap();
            let due = drive.world.due();
            let acts = |it: &Happening| matches!(it, Happening::Created { .. } | Happening::Chosen { .. });
            assert!(!due.iter().any(acts), "{:?} after {:?}", due, step.reason);
        }
    }
    assert_eq!(sets(&drive).1.spec.replicas, 1);
}

#[test]
fn what_the_update_of_a_node_needed_is_taken_back() {
    let mut drive = begun(3, 0, 1);
    let name = chosen(&drive);
    let node = node_of(&drive, &name).name_any();
    drive.world.nodes.edit(&mut drive.world.clock, &node, |node| {
        node.annotations_mut().insert(labels::UPDATE_FAILED_REASON, "once");
        let own = json!({"key": "own", "effect": "NoSchedule"});
        node.spec.taints.push(serde_json::from_value(own).unwrap());
    });
    update(&mut drive, &name);
    assert!(node_of(&drive, &name).spec.unschedulable);
    drive.settle();
    let node = node_of(&drive, &name);
    assert!(node.labels().is_empty(), "{:?}", node.labels());
    assert!(!node.annotations().contains_key(labels::UPDATE_FAILED_REASON));
    assert!(!node.spec.unschedulable);
    let taints: Vec<&str> = node.spec.taints.iter().map(|taint| taint.key.as_str()).collect();
    assert_eq!(taints, ["own", labels::CRITICAL_COMPONENTS_TAINT]);
}

#[test]
fn the_taint_of_critical_components_is_not_added_twice() {
    let mut drive = begun(3, 0, 1);
    let name = chosen(&drive);
    let node = node_of(&drive, &name).name_any();
    drive.world.nodes.edit(&mut drive.world.clock, &node, |node| {
        let own = json!({"key": labels::CRITICAL_COMPONENTS_TAINT, "value": "x", "effect": "NoSchedule"});
        node.spec.taints.push(serde_json::from_value(own).unwrap());
    });
    update(&mut drive, &name);
    drive.settle();
    assert_eq!(node_of(&drive, &name).spec.taints.len(), 1);
}

#[rstest]
#[case::the_node_is_not_in_the_cache(|snapshot: &mut Snapshot, node: &str| drop(snapshot.nodes.remove(node)))]
#[case::the_nodes_are_not_known(|snapshot: &mut Snapshot, _: &str| snapshot.nodes_unknown = Some("silent".to_owned()))]
#[case::the_node_does_not_say_so(|snapshot: &mut Snapshot, node: &str| {
    let node = snapshot.nodes.get_mut(node).unwrap();
    Arc::make_mut(node).labels_mut().remove(labels::UPDATE_RESULT);
})]
#[case::the_machine_does_not_say_so(|snapshot: &mut Snapshot, node: &str| {
    let machine = snapshot.machines.iter_mut().find(|machine| machine.node_name() == Some(node)).unwrap();
    Arc::make_mut(machine).status.as_mut().unwrap().conditions.clear();
})]
#[case::the_machine_is_still_updating(|snapshot: &mut Snapshot, node: &str| {
    let machine = snapshot.machines.iter_mut().find(|machine| machine.node_name() == Some(node)).unwrap();
    Arc::make_mut(machine).status.as_mut().unwrap().current_status.phase = MachinePhase::InPlaceUpdating;
})]
#[case::its_set_may_grow(|snapshot: &mut Snapshot, _: &str| {
    for set in &mut snapshot.sets {
        Arc::make_mut(set).labels_mut().remove(labels::SCALE_UP_DISABLED);
    }
})]
fn a_machine_that_may_not_be_updated_does_not_move(#[case] change: fn(&mut Snapshot, &str)) {
    let mut drive = begun(3, 0, 1);
    let name = chosen(&drive);
    update(&mut drive, &name);
    let moves = |snapshot: &Snapshot| {
        planned(snapshot).steps.iter().any(|step| matches!(step.action, Action::PatchMachine { .. }))
    };
    let mut snapshot = drive.snapshot();
    assert!(moves(&snapshot));
    let node = node_of(&drive, &name).name_any();
    change(&mut snapshot, &node);
    assert!(!moves(&snapshot));
}

#[test]
fn a_node_that_is_not_known_counts_as_selected() {
    let mut snapshot = begun(3, 0, 1).snapshot();
    // None is selected any more, and one is not known.
    for node in snapshot.nodes.values_mut() {
        Arc::make_mut(node).labels_mut().remove(labels::SELECTED_FOR_UPDATE);
    }
    let selects = |snapshot: &Snapshot| {
        let selects = |action: &Action| match action {
            Action::PatchNode { patch, .. } => patch.unpack().to_string().contains(labels::SELECTED_FOR_UPDATE),
            _ => false,
        };
        planned(snapshot).steps.iter().filter(|step| selects(&step.action)).count()
    };
    assert_eq!(selects(&snapshot), 1);
    let known = snapshot.nodes.clone();
    let first = known.keys().next().unwrap();
    snapshot.nodes.remove(first);
    assert_eq!(selects(&snapshot), 0, "maxUnavailable is taken up");
    snapshot.nodes = known;
    snapshot.nodes_unknown = Some("silent since noon".to_owned());
    assert_eq!(selects(&snapshot), 0);
    let waits = planned(&snapshot).waits;
    assert!(waits.iter().any(|wait| wait.kind == WaitKind::NodesUnknown && wait.text.contains("silent since noon")));
}

#[test]
fn a_machine_that_waits_says_for_whom() {
    let drive = begun(3, 0, 1);
    let waits = planned(&drive.snapshot()).waits;
    let texts: Vec<&str> = waits.iter().map(|wait| wait.text.as_str()).collect();
    let name = chosen(&drive);
    assert!(texts.contains(&format!("the nodes of machines {name} to be updated in place").as_str()), "{texts:?}");
    assert!(texts.iter().any(|text| text.contains("2 available <= 3 replicas - 1 maxUnavailable")), "{texts:?}");
    let mut manual = Drive::settled(deployment(2, in_place(1, 0, "Manual")));
    manual.edit_version("v2");
    manual.settle();
    assert_eq!((selected(&manual), sets(&manual).1.spec.replicas), (0, 0), "{}", manual.log);
    let text = "node.machine.sapcloud.io/selected-for-update=true";
    assert!(planned(&manual.snapshot()).waits.iter().any(|wait| wait.text.contains(text)));
}

#[rstest]
#[case::more(5)]
#[case::fewer(2)]
#[case::none(0)]
fn replicas_that_change_during_an_update_do_not_stall_it(
    #[case] replicas: i32,
    #[values((0, 1), (1, 0), (1, 1))] (surge, unavailable): (i32, i32),
) {
    let mut drive = begun(4, surge, unavailable);
    drive.run_for(4);
    drive.edit(json!({"replicas": replicas}));
    drive.run();
    let expected = format!("{replicas} machines, {replicas} of the current template, {replicas} available");
    assert!(drive.end_state().starts_with(&expected), "{}", drive.log);
    let sizes: Vec<_> = drive.world.sets.all().filter(|set| set.spec.replicas > 0).collect();
    for set in sizes {
        assert_eq!(set.annotations()[labels::DESIRED_REPLICAS], replicas.to_string());
        assert_eq!(set.annotations()[labels::MAX_REPLICAS], replicas.to_string(), "maxSurge does not count");
    }
}

#[test]
fn a_paused_update_is_scaled_all_the_same() {
    let mut drive = Drive::settled(deployment(3, in_place(0, 1, "Manual")));
    drive.edit_version("v2");
    drive.settle();
    drive.edit(json!({"paused": true, "replicas": 5}));
    drive.run();
    assert_eq!(drive.world.machines.all().count(), 5, "{}", drive.log);
    assert!(drive.world.sets.all().all(|set| !set.labels().contains_key(labels::SCALE_UP_DISABLED)));
    drive.edit(json!({"paused": false}));
    drive.settle();
    assert!(sets(&drive).0.labels().contains_key(labels::SCALE_UP_DISABLED));
}

/// The set does not see that Nodes are drained, and would delete the only Machine that serves.
#[rstest]
#[case::known(None)]
#[case::seen_before_the_target_went_away(Some("silent since noon"))]
fn a_paused_update_is_not_scaled_down_while_too_few_machines_serve(#[case] unknown: Option<&str>) {
    let mut drive = Drive::settled(deployment(3, in_place(0, 1, "Manual")));
    drive.edit_version("v2");
    drive.settle();
    drive.edit(json!({"paused": true, "replicas": 2}));
    let mut snapshot = drive.snapshot();
    snapshot.nodes_unknown = unknown.map(Into::into);
    let replicas = |snapshot: &Snapshot| {
        planned(snapshot).steps.iter().find_map(|step| match &step.action {
            Action::PatchSet { patch, .. } => patch.pointer("/spec/replicas").cloned(),
            _ => None,
        })
    };
    let mut machines = snapshot.machines.clone();
    machines
        .sort_by(|a, b| DeletionOrder::for_machine(a, snapshot.now).cmp(&DeletionOrder::for_machine(b, snapshot.now)));
    let names: Vec<_> = machines[1..].iter().map(|machine| machine.node_name().unwrap().to_owned()).collect();
    for (name, expected) in names.into_iter().zip([Some(json!(2)), None]) {
        let mut node = Node::clone(&snapshot.nodes[&name]);
        node.labels_mut().insert(labels::SELECTED_FOR_UPDATE, labels::SET);
        snapshot.nodes.insert(name, Arc::new(node));
        assert_eq!(replicas(&snapshot), expected);
    }
    let waits = planned(&snapshot).waits;
    let text = "machines to become available before others are deleted: 2 replicas - 1 maxUnavailable";
    assert!(waits.iter().any(|wait| wait.text == text), "{waits:?}");
}

#[rstest]
#[case::taken_back(json!({"template": {"metadata": {"labels": {"version": null}}}}))]
#[case::another_strategy(json!({"strategy": {"type": "RollingUpdate", "inPlaceUpdate": null, "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}}))]
fn a_set_may_grow_again_when_it_is_no_old_set_of_an_in_place_update(#[case] change: serde_json::Value) {
    let mut drive = begun(3, 0, 1);
    drive.edit(change);
    drive.settle();
    assert!(drive.world.sets.all().all(|set| !set.labels().contains_key(labels::SCALE_UP_DISABLED)), "{}", drive.log);
    drive.run();
    drive.edit(json!({"replicas": 5}));
    drive.run();
    assert!(drive.end_state().starts_with("5 machines, 5 of the current template, 5 available"), "{}", drive.log);
}

#[test]
fn a_label_that_the_reference_left_does_not_hold_a_set() {
    let mut drive = Drive::settled(deployment(2, rolling(1, 0)));
    let set = drive.world.sets.all().next().unwrap().name_any();
    drive.world.sets.edit(&mut drive.world.clock, &set, |set| {
        set.labels_mut().insert(labels::SCALE_UP_DISABLED.to_owned(), "true".to_owned());
    });
    drive.edit(json!({"replicas": 4}));
    drive.run();
    assert_eq!(drive.world.machines.all().count(), 4, "{}", drive.log);
}

/// Executes only the moves of the next plan.
fn only_move(drive: &mut Drive) {
    let snapshot = drive.snapshot();
    for step in planned(&snapshot).steps.iter().filter(|step| matches!(step.action, Action::PatchMachine { .. })) {
        drive.world.apply_deployment_action(&snapshot, &step.action).unwrap();
    }
}

/// The Machine has moved, and the process ended before anything else.
#[rstest]
#[case::marked(true)]
#[case::not_marked_any_more(false)]
fn a_move_that_another_implementation_began_is_finished(#[case] is_marked: bool) {
    let mut drive = begun(3, 0, 1);
    let name = chosen(&drive);
    update(&mut drive, &name);
    only_move(&mut drive);
    if !is_marked {
        let (old, new) = sets(&drive);
        drive.world.sets.edit(&mut drive.world.clock, &new.name_any(), |set| set.spec.replicas = 1);
        drive.world.sets.edit(&mut drive.world.clock, &old.name_any(), |set| set.spec.replicas = 2);
        drive.world.machines.edit(&mut drive.world.clock, &name, |machine| {
            machine.labels_mut().remove(labels::UPDATE_RESULT);
        });
    }
    drive.settle();
    let (old, new) = sets(&drive);
    assert_eq!((old.spec.replicas, new.spec.replicas), (2, 1));
    assert!(!node_of(&drive, &name).labels().contains_key(labels::UPDATE_RESULT), "{}", drive.log);
    drive.run();
    assert_eq!(drive.machine_names().len(), 3);
    assert!(drive.end_state().starts_with("3 machines, 3 of the current template, 3 available"), "{}", drive.log);
}

/// The next template arrives before the Node of a moved Machine is cleaned up: the Machine does not have this template
/// yet.
#[test]
fn a_machine_that_moved_is_not_taken_for_updated_to_the_next_template() {
    let mut drive = begun(3, 0, 1);
    let name = chosen(&drive);
    update(&mut drive, &name);
    only_move(&mut drive);
    let second = sets(&drive).1.uid();
    drive.edit_version("v3");
    drive.settle();
    let owner = owner::controller_of(&drive.world.machines.get(&name).unwrap().metadata).unwrap().uid.clone();
    assert_eq!(Some(owner), second, "{}", drive.log);
    drive.run();
    assert!(drive.end_state().starts_with("3 machines, 3 of the current template, 3 available"), "{}", drive.log);
}

/// The mark protects a Machine from its set only until the set counts it, or has too many.
#[test]
fn a_machine_that_moved_is_deleted_if_fewer_are_desired() {
    let mut drive = begun(3, 0, 1);
    let name = chosen(&drive);
    update(&mut drive, &name);
    only_move(&mut drive);
    drive.edit(json!({"replicas": 0}));
    drive.run();
    assert_eq!(drive.world.machines.all().count(), 0, "{}", drive.log);
}

#[test]
fn a_machine_that_is_to_be_deleted_does_not_move() {
    let mut drive = begun(3, 0, 1);
    let name = chosen(&drive);
    drive.edit(json!({"replicas": 0}));
    drive.settle();
    update(&mut drive, &name);
    drive.settle();
    assert_eq!(drive.world.machines_of(&sets(&drive).0).count(), 3, "{}", drive.log);
    drive.run();
    assert_eq!(drive.world.machines.all().count(), 0, "{}", drive.log);
}

#[test]
fn no_machine_is_replaced_without_a_surge() {
    let mut drive = auto(4, 0, 2);
    let before = drive.machine_names();
    drive.edit_version("v2");
    drive.run();
    assert_eq!(drive.machine_names(), before);
    assert_eq!(condition(&drive, "Progressing"), reads("True", "NewMachineSetAvailable"));
}

#[test]
fn machines_of_the_autoscaler_are_marked_and_its_annotation_is_pruned() {
    let mut drive = begun(3, 0, 1);
    let (first, gone) = (drive.machine_names()[0].clone(), "gone");
    let text = format!("{first}~2023-11-14T22:13:20Z,{gone}~2023-11-14T22:13:20Z");
    annotate_deployment(&mut drive, labels::TRIGGER_DELETION, &text);
    drive.settle();
    let machine = drive.world.machines.get(&first).unwrap();
    assert_eq!(machine.annotations()[labels::PRIORITY], "1");
    assert!(machine.annotations().contains_key(labels::MARKED_FOR_DELETION_TIME));
    assert!(!drive.deployment().annotations()[labels::TRIGGER_DELETION].contains(gone));
}

fn rules(snapshot: &Snapshot, actions: Vec<Action>) -> Vec<PlanRule> {
    let step = |action| mcm_rules::plan::Step { action, reason: String::new(), event: None };
    let steps: Vec<_> = actions.into_iter().map(step).collect();
    lint(snapshot, &steps).into_iter().map(|violation| violation.rule).collect()
}

#[test]
fn a_selection_beyond_maxunavailable_is_refused() {
    let drive = begun(3, 0, 1);
    let snapshot = drive.snapshot();
    let idle = snapshot.nodes.values().find(|node| !progress::is_selected(node)).unwrap();
    let patch = json!({"metadata": {"labels": {labels::SELECTED_FOR_UPDATE: "true"}}});
    let select = Action::PatchNode {
        node: Arc::clone(idle),
        patch: Packed::from(&patch),
        order: NodePatchOrder::BeforeMachines,
    };
    assert_eq!(rules(&snapshot, vec![select.clone()]), [PlanRule::TooFewAvailable]);
    let mut patient = snapshot.clone();
    Arc::make_mut(&mut patient.deployment).spec.strategy = serde_json::from_value(in_place(0, 2, "Auto")).unwrap();
    assert_eq!(rules(&patient, vec![select]), []);
}

#[rstest]
#[case::updated(|_: &mut Snapshot| {}, None)]
#[case::not_updated(
    |it: &mut Snapshot| for node in it.nodes.values_mut() { Arc::make_mut(node).labels_mut().remove(labels::UPDATE_RESULT); },
    Some(PlanRule::ActsOnUnknown)
)]
#[case::not_known(|it: &mut Snapshot| it.nodes_unknown = Some("silent".to_owned()), Some(PlanRule::ActsOnUnknown))]
#[case::it_would_be_replaced(
    |it: &mut Snapshot| for set in &mut it.sets { Arc::make_mut(set).labels_mut().remove(labels::SCALE_UP_DISABLED); },
    Some(PlanRule::TooManyMachines)
)]
#[case::under_another_strategy(
    |it: &mut Snapshot| Arc::make_mut(&mut it.deployment).spec.strategy = serde_json::from_value(rolling(1, 0)).unwrap(),
    Some(PlanRule::TouchesForeign)
)]
fn a_move_is_refused_unless_its_node_was_updated(#[case] change: fn(&mut Snapshot), #[case] refused: Option<PlanRule>) {
    let mut drive = begun(3, 0, 1);
    let name = chosen(&drive);
    update(&mut drive, &name);
    let mut snapshot = drive.snapshot();
    let moves = planned(&snapshot).steps.into_iter().find(|step| matches!(step.action, Action::PatchMachine { .. }));
    change(&mut snapshot);
    let found = rules(&snapshot, vec![moves.unwrap().action]);
    match refused {
        None => assert_eq!(found, []),
        Some(rule) => assert!(found.contains(&rule), "{found:?}"),
    }
}
