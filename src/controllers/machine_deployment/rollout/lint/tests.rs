use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;
use rstest::rstest;
use serde_json::json;

use super::*;
use crate::machine_deployment::{DeploymentPolicy, UnreadableMachine, plan};
use mcm_api::{machine::MachinePhase, node::Node};

/// An old set of 3 that serve and a new one of 1 that serves, with a surge of 1.
fn snapshot(strategy: Value) -> Snapshot {
    let template = |class: &str| json!({"metadata": {"labels": {"name": "pool"}}, "spec": {"class": {"kind": "MachineClass", "name": class}}});
    let deployment = json!({
        "metadata": {"name": "pool", "namespace": "shoot", "uid": "d"},
        "spec": {
            "replicas": 3, "strategy": strategy, "template": template("v2"),
            "selector": {"matchLabels": {"name": "pool"}},
        },
    });
    let owned = |kind: &str, uid: &str| json!([{"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": kind, "name": uid, "uid": uid, "controller": true}]);
    let set = |uid: &str, replicas: i32, class: &str| {
        json!({
            "metadata": {"name": uid, "uid": uid, "labels": {"name": "pool"}, "ownerReferences": owned("MachineDeployment", "d")},
            "spec": {"replicas": replicas, "template": template(class)},
        })
    };
    let machine = |name: &str, set: &str| {
        json!({
            "metadata": {"name": name, "ownerReferences": owned("MachineSet", set)}, "spec": {},
            "status": {"currentStatus": {"phase": "Running"}},
        })
    };
    Snapshot {
        policy: DeploymentPolicy { annotate_nodes: true, has_target: true },
        deployment: serde_json::from_value(deployment).unwrap(),
        sets: [set("old", 3, "v1"), set("new", 1, "v2")].map(|set| serde_json::from_value(set).unwrap()).to_vec(),
        machines: [machine("a", "old"), machine("b", "old"), machine("c", "old"), machine("n", "new")]
            .map(|machine| serde_json::from_value(machine).unwrap())
            .to_vec(),
        in_flight: Default::default(),
        rivals: Vec::new(),
        unreadable_sets: Vec::new(),
        unreadable_machines: Vec::new(),
        nodes: Default::default(),
        nodes_unknown: None,
        node_retries: Default::default(),
        strays: Default::default(),
        sets_paused_until: None,
        is_zero_written: false,
        failure: None,
        hold: None,
        now: "2026-01-01T00:00:00Z".parse().unwrap(),
    }
}

fn resize(snapshot: &Snapshot, set: usize, replicas: i32) -> Step<Action> {
    let patch = json!({"spec": {"replicas": if replicas == 0 { Value::Null } else { json!(replicas) }}});
    Step { action: Action::PatchSet { set: snapshot.sets[set].clone(), patch }, reason: String::new(), event: None }
}

fn rules(snapshot: &Snapshot, steps: &[Step<Action>]) -> Vec<PlanRule> {
    lint(snapshot, steps).into_iter().map(|violation| violation.rule).collect()
}

fn rolling() -> Value {
    json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "20%", "maxUnavailable": 0}})
}

#[rstest]
#[case::nothing(3, 1, vec![])]
#[case::one_may_go(2, 1, vec![])]
#[case::two_may_not(1, 1, vec![PlanRule::TooFewAvailable])]
#[case::none_may_come(3, 2, vec![PlanRule::TooManyMachines])]
#[case::not_even_while_another_goes(2, 2, vec![PlanRule::TooManyMachines])]
#[case::everything_at_once(0, 3, vec![PlanRule::TooManyMachines, PlanRule::TooFewAvailable])]
fn a_rolling_update_keeps_its_bounds(#[case] old: i32, #[case] new: i32, #[case] expected: Vec<PlanRule>) {
    let snapshot = snapshot(rolling());
    assert_eq!(rules(&snapshot, &[resize(&snapshot, 0, old), resize(&snapshot, 1, new)]), expected);
}

#[test]
fn a_preserved_machine_that_outlives_one_that_serves_is_excused() {
    let mut snapshot = snapshot(rolling());
    let mut machine = serde_json::to_value(&*snapshot.machines[0]).unwrap();
    machine["status"]["currentStatus"] = json!({"phase": "Failed", "preserveExpiryTime": "2026-01-02T00:00:00Z"});
    snapshot.machines[0] = serde_json::from_value(machine).unwrap();
    assert_eq!(rules(&snapshot, &[resize(&snapshot, 0, 2)]), []);
    assert_eq!(rules(&snapshot, &[resize(&snapshot, 0, 1)]), [PlanRule::TooFewAvailable]);
}

#[test]
fn fewer_replicas_delete_the_machine_that_is_marked_even_if_only_that_one_serves() {
    let mut snapshot = snapshot(rolling());
    let mut deployment = (*snapshot.deployment).clone();
    deployment.spec.replicas = 1;
    snapshot.deployment = deployment.into();
    let mut new = (*snapshot.sets[1]).clone();
    new.spec.replicas = 2;
    snapshot.sets = vec![new.into()];
    let mut marked = (*snapshot.machines[3]).clone();
    marked.metadata.annotations = Some([(labels::PRIORITY.to_owned(), "1".to_owned())].into());
    let mut pending = serde_json::to_value(&*snapshot.machines[3]).unwrap();
    pending["metadata"]["name"] = json!("p");
    pending["status"]["currentStatus"]["phase"] = json!("Pending");
    snapshot.machines = vec![marked.into(), serde_json::from_value(pending).unwrap()];
    assert_eq!(rules(&snapshot, &[resize(&snapshot, 0, 1)]), []);
    assert_eq!(rules(&snapshot, &[resize(&snapshot, 0, 0)]), [PlanRule::TooFewAvailable], "nobody asked for that");
}

#[test]
fn a_machine_that_the_plan_marks_is_the_one_that_its_set_deletes() {
    let mut snapshot = snapshot(
        json!({"type": "InPlaceUpdate", "inPlaceUpdate": {"maxSurge": 1, "maxUnavailable": 0, "orchestrationType": "Auto"}}),
    );
    let mut deployment = (*snapshot.deployment).clone();
    deployment.spec.replicas = 2;
    let time = "2025-12-31T00:00:00Z";
    for (key, text) in [(labels::TRIGGER_DELETION, format!("c~{time}")), (labels::LAST_SCALER_CHANGE, time.to_owned())]
    {
        deployment.annotations_mut().insert(key.to_owned(), text);
    }
    deployment.spec.template = snapshot.sets[0].spec.template.clone();
    snapshot.deployment = deployment.into();
    snapshot.sets.truncate(1);
    snapshot.machines.truncate(3);
    for machine in &mut snapshot.machines {
        let (name, machine) = (machine.name_any(), Arc::make_mut(machine));
        machine.labels_mut().insert(labels::NODE.to_owned(), name.clone());
        snapshot
            .nodes
            .insert(name.clone(), Arc::new(serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()));
    }
    let patch = json!({"metadata": {"annotations": {labels::PRIORITY: "1"}}});
    let mark = Action::PatchMachine { machine: snapshot.machines[2].clone(), patch };
    let mark = Step { action: mark, reason: String::new(), event: None };
    assert_eq!(rules(&snapshot, &[resize(&snapshot, 0, 2)]), [PlanRule::TooFewAvailable], "the chosen one would stay");
    assert_eq!(rules(&snapshot, &[mark.clone(), resize(&snapshot, 0, 2)]), []);
    assert_eq!(rules(&snapshot, &[mark, resize(&snapshot, 0, 1)]), [PlanRule::TooFewAvailable]);
}

#[test]
fn a_machine_that_was_updated_in_place_is_not_deleted_and_one_that_is_not_available_may_outlive_another() {
    let knobs = json!({"maxSurge": 1, "maxUnavailable": 0, "orchestrationType": "Auto"});
    let paused = || {
        let mut snapshot = snapshot(json!({"type": "InPlaceUpdate", "inPlaceUpdate": knobs}));
        Arc::make_mut(&mut snapshot.deployment).spec.replicas = 2;
        snapshot.sets.truncate(1);
        snapshot.machines.truncate(3);
        for machine in &snapshot.machines {
            let (name, node) = (machine.name_any(), json!({"metadata": {"name": machine.name_any()}}));
            snapshot.nodes.insert(name, Arc::new(serde_json::from_value(node).unwrap()));
        }
        for machine in &mut snapshot.machines {
            let name = machine.name_any();
            Arc::make_mut(machine).labels_mut().insert(labels::NODE.to_owned(), name);
        }
        snapshot
    };
    let first = |snapshot: &mut Snapshot| {
        let annotations = Arc::make_mut(&mut snapshot.machines[0]).annotations_mut();
        annotations.insert(labels::PRIORITY.to_owned(), "1".to_owned());
    };
    let mut updated = paused();
    first(&mut updated);
    let result = (labels::UPDATE_RESULT.to_owned(), labels::SUCCESSFUL.to_owned());
    Arc::make_mut(&mut updated.machines[0]).labels_mut().extend([result]);
    Arc::make_mut(&mut updated.deployment).spec.replicas = 3;
    assert_eq!(rules(&updated, &[resize(&updated, 0, 2)]), [], "two can be deleted, and two stay");
    assert_eq!(rules(&updated, &[resize(&updated, 0, 1)]), [PlanRule::TooFewAvailable]);

    let mut pending = paused();
    first(&mut pending);
    assert_eq!(rules(&pending, &[resize(&pending, 0, 2)]), [], "three serve, and two remain");
    let nodes = std::mem::take(&mut pending.nodes);
    assert_eq!(rules(&pending, &[resize(&pending, 0, 2)]), [], "also on nodes that the cache does not have yet");
    pending.nodes = nodes;
    Arc::make_mut(&mut pending.machines[1]).status.get_or_insert_default().current_status.phase = MachinePhase::Pending;
    assert_eq!(rules(&pending, &[resize(&pending, 0, 2)]), [], "the one with the priority goes, the pending one stays");
    assert_eq!(rules(&pending, &[resize(&pending, 0, 1)]), [PlanRule::TooFewAvailable]);
}

#[test]
fn calls_in_flight_take_room_and_do_not_serve() {
    let mut creating = snapshot(rolling());
    creating.machines.remove(0);
    assert_eq!(rules(&creating, &[resize(&creating, 0, 2), resize(&creating, 1, 2)]), []);
    let creates = ["x".to_owned()].into();
    creating
        .in_flight
        .insert("old".to_owned(), crate::machine_set::SetWritesInFlight { creates, ..Default::default() });
    assert_eq!(rules(&creating, &[resize(&creating, 0, 2), resize(&creating, 1, 2)]), [PlanRule::TooManyMachines]);
    creating.machines.remove(0);
    let unreadable = UnreadableMachine { name: "x".to_owned(), set_uid: "old".to_owned(), is_terminating: false };
    creating.unreadable_machines.push(unreadable);
    assert_eq!(rules(&creating, &[resize(&creating, 0, 2), resize(&creating, 1, 2)]), [], "it is one machine");
    let mut deleting = snapshot(rolling());
    let deletes = ["a".to_owned()].into();
    deleting
        .in_flight
        .insert("old".to_owned(), crate::machine_set::SetWritesInFlight { deletes, ..Default::default() });
    assert_eq!(rules(&deleting, &[resize(&deleting, 0, 1)]), [PlanRule::TooFewAvailable]);
}

#[test]
fn recreate_has_machines_of_one_template() {
    let mut snapshot = snapshot(json!({"type": "Recreate"}));
    snapshot.machines.pop();
    assert_eq!(rules(&snapshot, &[resize(&snapshot, 0, 0)]), []);
    assert!(rules(&snapshot, &[resize(&snapshot, 0, 0), resize(&snapshot, 1, 3)]).contains(&PlanRule::Overlap));
}

#[test]
fn a_set_with_machines_is_not_deleted_while_its_deployment_stays() {
    let mut snapshot = snapshot(rolling());
    let delete = Step { action: Action::DeleteSet(snapshot.sets[0].clone()), reason: String::new(), event: None };
    assert_eq!(rules(&snapshot, std::slice::from_ref(&delete)), [PlanRule::DeletesInUse]);
    let mut deployment = (*snapshot.deployment).clone();
    deployment.metadata.deletion_timestamp = Some(Time(snapshot.now));
    snapshot.deployment = deployment.into();
    assert_eq!(rules(&snapshot, &[delete]), []);
}

/// A Machine in a few words: its phase, its priority, and whether it is preserved, deleted, or about to be.
#[derive(Clone, Debug)]
struct Sketch {
    phase: &'static str,
    priority: Option<&'static str>,
    fate: Fate,
    node: NodeSketch,
}

/// How far the update of the Node is; only an in-place update minds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeSketch {
    Unknown,
    Plain,
    Selected,
    Updated,
    Moved,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Stays,
    Preserved,
    DeleteInFlight,
    Terminating,
}

impl Sketch {
    /// A Machine of this set.
    fn machine(&self, model: &Machine, set: &str, name: &str, now: Timestamp) -> Machine {
        let mut machine = model.clone();
        machine.metadata.name = Some(name.to_owned());
        set.clone_into(&mut machine.metadata.owner_references.as_mut().unwrap()[0].uid);
        machine
            .annotations_mut()
            .extend(self.priority.map(|priority| (labels::PRIORITY.to_owned(), priority.to_owned())));
        machine.labels_mut().insert(labels::NODE.to_owned(), name.to_owned());
        if self.node == NodeSketch::Moved {
            machine.labels_mut().insert(labels::UPDATE_RESULT.to_owned(), labels::SUCCESSFUL.to_owned());
        }
        let status = machine.status.get_or_insert_default();
        status.current_status.phase = serde_json::from_value(json!(self.phase)).unwrap();
        match self.fate {
            Fate::Stays | Fate::DeleteInFlight => {}
            Fate::Preserved => {
                status.current_status.preserve_expiry_time = Some(Time(now + SignedDuration::from_hours(1)))
            }
            Fate::Terminating => machine.metadata.deletion_timestamp = Some(Time(now)),
        }
        machine
    }

    /// The Node of this name, if it is known.
    fn node(&self, name: &str) -> Option<Node> {
        let labels = match self.node {
            NodeSketch::Unknown => return None,
            NodeSketch::Plain | NodeSketch::Moved => json!({}),
            NodeSketch::Selected => json!({labels::SELECTED_FOR_UPDATE: labels::SET}),
            NodeSketch::Updated => json!({labels::UPDATE_RESULT: labels::SUCCESSFUL}),
        };
        Some(serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}})).unwrap())
    }
}

fn any_machine() -> impl Strategy<Value = Sketch> {
    let phase = prop_oneof![4 => Just("Running"), 2 => Just("Pending"), 1 => Just("Failed"), 1 => Just("")];
    let priority = prop_oneof![3 => Just(None), 1 => Just(Some("1")), 1 => Just(Some("5"))];
    let fate = prop_oneof![
        6 => Just(Fate::Stays),
        1 => Just(Fate::Preserved),
        1 => Just(Fate::DeleteInFlight),
        1 => Just(Fate::Terminating),
    ];
    let node = prop_oneof![
        4 => Just(NodeSketch::Plain),
        1 => Just(NodeSketch::Unknown),
        1 => Just(NodeSketch::Selected),
        1 => Just(NodeSketch::Updated),
        1 => Just(NodeSketch::Moved),
    ];
    (phase, priority, fate, node).prop_map(|(phase, priority, fate, node)| Sketch { phase, priority, fate, node })
}

/// The replicas of a set and its Machines.
type SetSketch = (i32, Vec<Sketch>);

/// The sets of the deployment, the new one first.
fn any_sets() -> impl Strategy<Value = Vec<SetSketch>> {
    prop::collection::vec((0..4i32, prop::collection::vec(any_machine(), 0..6)), 1..4)
}

/// `sized_for`: the replicas of the deployment when its sets were sized.
fn sketched(strategy: Value, replicas: i32, sized_for: i32, is_paused: bool, sets: &[SetSketch]) -> Snapshot {
    let mut found = snapshot(strategy);
    let deployment = Arc::make_mut(&mut found.deployment);
    (deployment.spec.replicas, deployment.spec.paused) = (replicas, is_paused);
    let models = (found.sets[1].clone(), found.sets[0].clone(), found.machines[0].clone());
    (found.sets, found.machines) = (Vec::new(), Vec::new());
    for (index, (replicas, sketches)) in sets.iter().enumerate() {
        let mut set = MachineSet::clone(if index == 0 { &models.0 } else { &models.1 });
        let uid = format!("set-{index}");
        (set.metadata.name, set.metadata.uid) = (Some(uid.clone()), Some(uid.clone()));
        set.spec.template.spec.class.name = format!("v{}", 2 + index);
        set.spec.replicas = *replicas;
        set.annotations_mut().insert(labels::DESIRED_REPLICAS.to_owned(), sized_for.to_string());
        found.sets.push(Arc::new(set));
        let in_flight = found.in_flight.entry(uid.clone()).or_default();
        for (number, sketch) in sketches.iter().enumerate() {
            let name = format!("{uid}-{number}");
            if sketch.fate == Fate::DeleteInFlight {
                in_flight.deletes.insert(name.clone());
            }
            found.machines.push(Arc::new(sketch.machine(&models.2, &uid, &name, found.now)));
            found.nodes.extend(sketch.node(&name).map(|node| (name, Arc::new(node))));
        }
    }
    found
}

fn any_bounds() -> impl Strategy<Value = Value> {
    let knobs = (0..3i32, 0..3i32);
    knobs.prop_map(|(surge, unavailable)| json!({"maxSurge": surge, "maxUnavailable": unavailable}))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    /// The planner counts, the check plays the deletions through: neither may claim more than the other allows.
    #[test]
    fn no_plan_is_rejected(
        replicas in 0..5i32, resized in prop::option::weighted(0.2, 0..5i32), knobs in any_bounds(),
        is_in_place in any::<bool>(), is_paused in prop::bool::weighted(0.2), sets in any_sets(),
    ) {
        let strategy = if is_in_place {
            json!({"type": "InPlaceUpdate", "inPlaceUpdate": knobs})
        } else {
            json!({"type": "RollingUpdate", "rollingUpdate": knobs})
        };
        let snapshot = sketched(strategy, replicas, resized.unwrap_or(replicas), is_paused, &sets);
        let plan = plan(&snapshot, &DeploymentPolicy { annotate_nodes: true, has_target: true });
        prop_assert_eq!(lint(&snapshot, &plan.steps), []);
    }
}
