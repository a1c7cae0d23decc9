use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, ToSpan};
use kube::ResourceExt;
use proptest::prelude::*;
use rstest::rstest;
use serde_json::json;

use super::*;
use crate::{
    api::{labels, machine::MachinePhase, reasons::EventReason},
    controllers::plan::Plan,
};

const T0: i64 = 1_700_000_000;

fn now() -> Timestamp {
    Timestamp::from_second(T0).unwrap()
}

fn after(seconds: i64) -> String {
    (now() + seconds.seconds()).to_string()
}

/// An API server for one set: carries plans out, and refuses what a good plan does not contain.
struct World {
    set: Value,
    machines: BTreeMap<String, Value>,
    unreadable: Vec<String>,
    failure: Option<Failure>,
    now: Timestamp,
    seed: u64,
    created: Vec<String>,
    deleted: Vec<String>,
    patched: Vec<(String, Value)>,
    status_writes: usize,
    peak: usize,
}

impl World {
    fn new(replicas: i32) -> Self {
        Self {
            set: json!({
                "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet",
                "metadata": {
                    "name": "set", "namespace": "ns", "uid": "set-uid", "generation": 1,
                    "finalizers": [labels::FINALIZER],
                },
                "spec": {
                    "replicas": replicas,
                    "selector": { "matchLabels": { "pool": "a" } },
                    "template": {
                        "metadata": { "labels": { "pool": "a", "name": "deployment" } },
                        "spec": { "class": { "kind": "MachineClass", "name": "class" } },
                    },
                },
            }),
            machines: BTreeMap::new(),
            unreadable: Vec::new(),
            failure: None,
            now: now(),
            seed: 7,
            created: Vec::new(),
            deleted: Vec::new(),
            patched: Vec::new(),
            status_writes: 0,
            peak: 0,
        }
    }

    fn with(mut self, patch: Value) -> Self {
        merge(&mut self.set, patch);
        self
    }

    /// A Machine of the set, running, changed by a merge patch.
    fn machine(mut self, name: &str, patch: Value) -> Self {
        let mut machine = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": {
                "name": name, "namespace": "ns", "uid": format!("uid-{name}"),
                "creationTimestamp": after(-3600),
                "labels": { "pool": "a", "name": "deployment" },
                "finalizers": [labels::FINALIZER],
                "ownerReferences": [reference("set-uid")],
            },
            "spec": { "class": { "kind": "MachineClass", "name": "class" } },
            "status": { "currentStatus": { "phase": "Running" } },
        });
        merge(&mut machine, patch);
        self.machines.insert(name.to_owned(), machine);
        self
    }

    fn machines(mut self, count: usize) -> Self {
        for index in 0..count {
            self = self.machine(&format!("m{index:04}"), json!({}));
        }
        self
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            set: serde_json::from_value(self.set.clone()).unwrap(),
            machines: self.machines.values().map(|machine| serde_json::from_value(machine.clone()).unwrap()).collect(),
            unreadable: self.unreadable.clone(),
            failure: self.failure.clone(),
            now: self.now,
            seed: self.seed,
        }
    }

    fn active(&self) -> usize {
        let is_active = |machine: &&Value| {
            machine["metadata"]["deletionTimestamp"].is_null()
                && machine["status"]["currentStatus"]["phase"] != "Terminating"
        };
        self.machines.values().filter(is_active).count()
    }

    fn settle(&mut self) -> Plan<Action> {
        for _ in 0..20 {
            let plan = plan(&self.snapshot());
            if plan.steps.is_empty() {
                return plan;
            }
            self.apply(plan);
        }
        panic!("no rest after 20 plans: {:?}", plan(&self.snapshot()));
    }

    fn apply(&mut self, plan: Plan<Action>) {
        let mut touched = BTreeSet::new();
        for step in plan.steps {
            assert!(!step.reason.is_empty());
            let is_create = matches!(step.action, Action::CreateMachine(_));
            match step.action {
                Action::PatchSet(patch) => {
                    assert!(touched.insert("set itself".to_owned()), "the set is written twice in one plan");
                    assert!(merge(&mut self.set, patch), "a patch that changes nothing");
                }
                Action::PatchMachine { machine, patch } => {
                    let name = machine.name_any();
                    assert!(touched.insert(name.clone()), "{name} is patched twice in one plan");
                    let stored = self.machines.get_mut(&name).unwrap();
                    assert!(merge(stored, patch.clone()), "a patch of {name} that changes nothing: {patch}");
                    self.patched.push((name, patch));
                }
                Action::CreateMachine(machine) => {
                    let name = machine.name_any();
                    let mut machine = serde_json::to_value(machine).unwrap();
                    let uid = format!("uid-{name}");
                    merge(
                        &mut machine,
                        json!({ "metadata": { "uid": uid, "creationTimestamp": self.now.to_string() } }),
                    );
                    assert!(!self.unreadable.contains(&name));
                    assert!(self.machines.insert(name.clone(), machine).is_none(), "{name} exists");
                    self.created.push(name);
                }
                Action::DeleteMachine(machine) => {
                    let name = machine.name_any();
                    let stored = self.machines.get_mut(&name).unwrap();
                    assert!(machine.metadata.deletion_timestamp.is_none(), "{name} is deleted twice");
                    merge(stored, json!({ "metadata": { "deletionTimestamp": self.now.to_string() } }));
                    self.deleted.push(name);
                }
                Action::WriteStatus(status) => {
                    assert!(touched.insert("set itself".to_owned()), "the set is written twice in one plan");
                    let mut set = self.snapshot().set.as_ref().clone();
                    assert_ne!(set.status.as_ref(), Some(&*status), "a status that changes nothing");
                    set.status = Some(*status);
                    self.set = serde_json::to_value(set).unwrap();
                    self.status_writes += 1;
                }
            }
            if is_create {
                self.peak = self.peak.max(self.active());
            }
        }
    }

    /// The Machine controller did its work.
    fn finish_deletions(&mut self) {
        self.machines.retain(|_, machine| machine["metadata"]["deletionTimestamp"].is_null());
    }

    fn status(&self) -> MachineSetStatus {
        self.snapshot().set.status.clone().unwrap_or_default()
    }
}

fn reference(uid: &str) -> Value {
    json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet", "name": "set", "uid": uid,
        "controller": true, "blockOwnerDeletion": true,
    })
}

/// JSON merge patch; whether anything changed.
fn merge(target: &mut Value, patch: Value) -> bool {
    fn go(target: &mut Value, patch: Value) {
        let Value::Object(patch) = patch else {
            *target = patch;
            return;
        };
        if !target.is_object() {
            *target = json!({});
        }
        for (key, value) in patch {
            if value.is_null() {
                target.as_object_mut().unwrap().remove(&key);
            } else {
                go(&mut target[key], value);
            }
        }
    }
    let before = target.clone();
    go(target, patch);
    *target != before
}

fn phase(phase: &str) -> Value {
    json!({ "status": { "currentStatus": { "phase": phase } } })
}

fn annotated(key: &str, value: &str) -> Value {
    json!({ "metadata": { "annotations": { key: value } } })
}

fn both(mut first: Value, second: Value) -> Value {
    merge(&mut first, second);
    first
}

fn preserved_until(seconds: i64) -> Value {
    json!({ "status": { "currentStatus": { "preserveExpiryTime": after(seconds) } } })
}

fn waits(plan: &Plan<Action>) -> String {
    plan.waits.iter().map(|wait| wait.on.clone()).collect::<Vec<_>>().join("\n")
}

// Size

#[test]
fn a_new_set_is_guarded_first_then_grows_then_reports() {
    let mut world = World::new(3).with(json!({ "metadata": { "finalizers": ["foreign"] } }));
    let first = plan(&world.snapshot());
    assert!(matches!(first.steps[0].action, Action::PatchSet(_)));
    assert_eq!(first.steps.len(), 4);
    let event = first.steps[1].event.clone().unwrap();
    assert_eq!(event.reason, EventReason::SuccessfulCreate);
    assert!(event.message.starts_with("Created machine: set-"), "{}", event.message);
    assert_eq!(first.steps[1].reason, "the set has 0 of 3 machines");

    let rest = world.settle();
    assert_eq!(world.set["metadata"]["finalizers"], json!(["foreign", labels::FINALIZER]));
    assert_eq!((world.created.len(), world.status_writes), (3, 1));
    assert_eq!(waits(&rest), "3 of 3 machines to become available");
}

#[test]
fn a_new_set_without_machines_is_guarded_then_reports() {
    let mut world = World::new(0).with(json!({ "metadata": { "finalizers": null } }));
    assert_eq!(plan(&world.snapshot()).steps.len(), 1, "one write of the set at a time");
    world.settle();
    assert_eq!((world.status_writes, world.status().observed_generation), (1, 1));
}

#[rstest]
#[case(10, 3)]
#[case(150, 3)]
#[case(1000, 60)]
#[case(1, 0)]
fn a_scale_down_deletes_exactly_the_surplus_and_touches_no_survivor(#[case] from: usize, #[case] to: usize) {
    let mut world = World::new(i32::try_from(to).unwrap()).machines(from);
    world.settle();
    assert_eq!(world.deleted.len(), from - to);
    assert_eq!(world.deleted.last().unwrap(), &format!("m{:04}", from - to - 1), "the name breaks ties");
    world.finish_deletions();
    world.settle();
    assert_eq!((world.active(), world.created.len(), world.patched.len()), (to, 0, 0));
}

#[test]
fn large_steps_are_taken_in_bounded_plans() {
    let mut world = World::new(1200);
    assert_eq!(plan(&world.snapshot()).steps.len(), replicas::BATCH);
    world.settle();
    assert_eq!((world.active(), world.peak), (1200, 1200));
    let mut world = World::new(0).machines(1200);
    assert_eq!(plan(&world.snapshot()).steps.len(), replicas::BATCH);
    world.settle();
    assert_eq!(world.active(), 0);
}

#[rstest]
#[case::by_timestamp(json!({ "metadata": { "deletionTimestamp": "2023-11-14T00:00:00Z" } }))]
#[case::by_phase_and_timestamp(both(phase("Terminating"), json!({ "metadata": { "deletionTimestamp": "2023-11-14T00:00:00Z" } })))]
fn a_machine_that_is_being_deleted_is_replaced_at_once(#[case] dying: Value) {
    let mut world = World::new(2).machine("a", dying).machine("b", json!({}));
    world.settle();
    assert_eq!((world.created.len(), world.deleted.len()), (1, 0));
    assert_eq!(world.status().replicas, 3, "it still exists");
}

#[test]
fn a_machine_left_in_phase_terminating_is_replaced_and_its_deletion_finished() {
    let mut world = World::new(1).machine("a", phase("Terminating"));
    world.settle();
    assert_eq!((world.created.len(), world.deleted.as_slice()), (1, &["a".to_owned()][..]));
}

#[rstest]
#[case::frozen(json!({ "freeze": "True" }), false)]
#[case::frozen_by_another_value(json!({ "freeze": "true" }), true)]
#[case::growth_disabled(json!({ "node.machine.sapcloud.io/scale-up-disabled": "true" }), false)]
#[case::growth_disabled_by_any_value(json!({ "node.machine.sapcloud.io/scale-up-disabled": "" }), false)]
fn a_frozen_set_does_not_grow_and_says_so(#[case] labels: Value, #[case] grows: bool) {
    let mut world = World::new(3).with(json!({ "metadata": { "labels": labels } })).machines(1);
    let rest = world.settle();
    assert_eq!(world.created.is_empty(), !grows);
    assert_eq!(waits(&rest).contains("the set has 1 of 3 machines"), !grows, "{}", waits(&rest));
}

#[test]
fn a_frozen_set_still_shrinks() {
    let mut world = World::new(1).with(json!({ "metadata": { "labels": { "freeze": "True" } } })).machines(3);
    world.settle();
    assert_eq!(world.active(), 1);
}

#[rstest]
#[case::they_count_when_machines_are_missing(3, 1, 2, 0, 0)]
#[case::only_the_rest_is_created(4, 1, 2, 1, 0)]
#[case::they_do_not_push_out_a_machine_that_works(2, 2, 1, 0, 0)]
#[case::what_is_surely_too_much_goes(2, 4, 1, 0, 2)]
fn unreadable_machines_exist_and_are_left_alone(
    #[case] replicas: i32,
    #[case] readable: usize,
    #[case] unreadable: usize,
    #[case] created: usize,
    #[case] deleted: usize,
) {
    let mut world = World::new(replicas).machines(readable);
    world.unreadable = (0..unreadable).map(|index| format!("u{index}")).collect();
    let rest = world.settle();
    assert_eq!((world.created.len(), world.deleted.len()), (created, deleted));
    assert!(waits(&rest).contains("to be readable: u0"), "{}", waits(&rest));
}

#[test]
fn new_names_avoid_all_that_exist() {
    let snapshot = World::new(3).snapshot();
    let names: Vec<String> = construct::machines(&snapshot).take(3).map(|machine| machine.name_any()).collect();
    let mut world = World::new(3).machine(&names[0], json!({}));
    world.unreadable = vec![names[1].clone()];
    world.settle();
    assert_eq!(world.created, [names[2].clone()]);
}

#[test]
fn long_names_of_sets_still_give_valid_host_names() {
    let world = World::new(1).with(json!({ "metadata": { "name": "x".repeat(80) } }));
    let machine = construct::machines(&world.snapshot()).next().unwrap();
    assert_eq!(machine.name_any().len(), 63);
}

// Deletion order

#[rstest]
#[case::preserved_stays(phase("Running"), both(phase("Failed"), preserved_until(60)))]
#[case::preservation_in_the_past_does_not_count(both(phase("Failed"), preserved_until(-60)), phase("Running"))]
#[case::preserved_automatically_before_on_request(
    both(annotated(labels::PRESERVE, "auto-preserved"), preserved_until(900)),
    both(annotated(labels::PRESERVE, "now"), preserved_until(60))
)]
#[case::preserved_for_less_time(preserved_until(60), preserved_until(900))]
#[case::lower_priority(annotated(labels::PRIORITY, "1"), phase("Failed"))]
#[case::default_priority_is_3(json!({}), annotated(labels::PRIORITY, "4"))]
#[case::unreadable_priority_is_3(annotated(labels::PRIORITY, "high"), annotated(labels::PRIORITY, "4"))]
#[case::negative_priority(annotated(labels::PRIORITY, "-5"), annotated(labels::PRIORITY, "1"))]
#[case::marked(annotated(labels::MARKED_FOR_DELETION_TIME, "2023-11-14T22:00:00Z"), phase("Failed"))]
#[case::marked_earlier(
    annotated(labels::MARKED_FOR_DELETION_TIME, "2023-11-14T22:00:00+01:00"),
    annotated(labels::MARKED_FOR_DELETION_TIME, "2023-11-14T22:00:00Z")
)]
#[case::an_unreadable_mark_is_none(phase("Pending"), annotated(labels::MARKED_FOR_DELETION_TIME, "soon"))]
#[case::failed_before_crash_loop(phase("Failed"), phase("CrashLoopBackOff"))]
#[case::crash_loop_before_unknown(phase("CrashLoopBackOff"), phase("Unknown"))]
#[case::unknown_before_pending(phase("Unknown"), phase("Pending"))]
#[case::pending_before_available(phase("Pending"), phase("Available"))]
#[case::available_before_running(phase("Available"), phase("Running"))]
#[case::not_created_before_failed(phase(""), phase("Failed"))]
#[case::in_place_stays_like_running(phase("Available"), phase("InPlaceUpdating"))]
#[case::in_place_ranks_with_running(both(phase("Running"), json!({ "metadata": { "creationTimestamp": after(-7200) } })), phase("InPlaceUpdateFailed"))]
#[case::older_first(json!({ "metadata": { "creationTimestamp": after(-7200) } }), json!({}))]
fn who_goes_first(#[case] first: Value, #[case] second: Value) {
    // The names say the opposite, and failed Machines would go in any case: keep both out of it.
    let keep = annotated(labels::LAST_NODE_PRESERVE, "when-failed");
    for (victim, survivor) in [("z", "a"), ("a", "z")] {
        let world = World::new(1)
            .machine(victim, both(keep.clone(), first.clone()))
            .machine(survivor, both(keep.clone(), second.clone()));
        let deletions: Vec<String> = plan(&world.snapshot())
            .steps
            .iter()
            .filter_map(|step| match &step.action {
                Action::DeleteMachine(machine) => Some(machine.name_any()),
                _ => None,
            })
            .collect();
        assert_eq!(deletions.first().map(String::as_str), Some(victim));
    }
}

#[test]
fn a_machine_just_updated_in_place_is_not_chosen() {
    let updated = json!({ "metadata": { "labels": { labels::UPDATE_RESULT: "successful" } } });
    let mut world = World::new(1).machine("a", updated.clone()).machine("b", json!({})).machine("c", json!({}));
    world.settle();
    assert_eq!(world.deleted, ["b"]);
    let mut world = World::new(0).machine("a", updated);
    world.settle();
    assert!(world.deleted.is_empty());
}

#[rstest]
#[case::asked_before_the_last_scaling("1", "2023-11-14T10:00:00Z", "2023-11-14T10:00:00Z", true)]
#[case::asked_after_it("1", "2023-11-14T10:00:01Z", "2023-11-14T10:00:00Z", false)]
#[case::another_priority("2", "2023-11-14T10:00:00Z", "2023-11-14T10:00:00Z", false)]
#[case::unreadable_mark("1", "soon", "2023-11-14T10:00:00Z", false)]
#[case::unreadable_scaling("1", "2023-11-14T10:00:00Z", "", false)]
fn a_machine_the_autoscaler_chose_is_replaced_even_if_the_number_is_right(
    #[case] priority: &str,
    #[case] marked: &str,
    #[case] scaled: &str,
    #[case] goes: bool,
) {
    let chosen = both(annotated(labels::PRIORITY, priority), annotated(labels::MARKED_FOR_DELETION_TIME, marked));
    let mut world =
        World::new(2).with(annotated(labels::LAST_SCALER_CHANGE, scaled)).machine("a", json!({})).machine("b", chosen);
    world.settle();
    assert_eq!(world.deleted, if goes { vec!["b"] } else { vec![] });
    assert_eq!(world.active(), 2);
}

// Failed Machines

#[test]
fn a_failed_machine_is_replaced_after_it_was_deleted() {
    let mut world = World::new(2).machine("a", phase("Failed")).machine("b", json!({}));
    world.settle();
    assert_eq!((world.deleted.as_slice(), world.created.len(), world.peak), (&["a".to_owned()][..], 1, 2));
}

#[test]
fn failed_machines_stay_while_the_set_is_short() {
    let world = World::new(3).machine("a", phase("Failed")).machine("b", json!({}));
    let steps = plan(&world.snapshot()).steps;
    assert!(matches!(steps.as_slice(), [step] if matches!(step.action, Action::CreateMachine(_))), "{steps:?}");
}

#[rstest]
#[case::nobody_asked(json!({}), true)]
#[case::time_in_the_future(preserved_until(60), false)]
#[case::time_is_over(both(preserved_until(0), annotated(labels::PRESERVE, "now")), true)]
#[case::asked_now(annotated(labels::PRESERVE, "now"), false)]
#[case::asked_for_failures(annotated(labels::PRESERVE, "when-failed"), false)]
#[case::refused(annotated(labels::PRESERVE, "false"), true)]
#[case::empty(annotated(labels::PRESERVE, ""), true)]
#[case::unknown_word(annotated(labels::PRESERVE, "please"), true)]
#[case::asked_on_the_node(annotated(labels::LAST_NODE_PRESERVE, "when-failed"), false)]
#[case::the_node_speaks_first(
    both(annotated(labels::LAST_NODE_PRESERVE, "false"), annotated(labels::PRESERVE, "now")),
    true
)]
#[case::the_node_says_nothing(
    both(annotated(labels::LAST_NODE_PRESERVE, ""), annotated(labels::PRESERVE, "now")),
    false
)]
fn a_preserved_machine_is_not_replaced(#[case] wish: Value, #[case] replaced: bool) {
    let mut world = World::new(1).machine("a", both(phase("Failed"), wish));
    let rest = world.settle();
    assert_eq!(world.deleted.len(), usize::from(replaced));
    assert_eq!(waits(&rest).contains("preservation of failed machines to end: a"), !replaced);
}

#[test]
fn the_end_of_a_preservation_wakes_the_set() {
    let mut world = World::new(1).machine("a", both(phase("Failed"), preserved_until(60)));
    let rest = world.settle();
    assert_eq!(rest.wake_at(), Some(now() + SignedDuration::from_secs(60)));
    world.now = now() + SignedDuration::from_secs(60);
    world.settle();
    assert_eq!(world.deleted, ["a"]);
}

#[test]
fn the_youngest_failed_machines_are_preserved_automatically_up_to_the_limit() {
    let failed = |age: i64| both(phase("Failed"), json!({ "metadata": { "creationTimestamp": after(-age) } }));
    let mut world = World::new(4)
        .with(json!({ "spec": { "autoPreserveFailedMachineMax": 2 } }))
        .machine("a", failed(30))
        .machine("b", failed(20))
        .machine("c", failed(10))
        .machine("d", both(failed(5), annotated(labels::PRESERVE, "false")));
    world.settle();
    assert_eq!(world.patched.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["b", "c"]);
    assert_eq!(world.deleted, ["a", "d"]);
    assert_eq!(world.status().auto_preserve_failed_machine_count, 2);

    merge(&mut world.set, json!({ "spec": { "autoPreserveFailedMachineMax": 1 } }));
    world.settle();
    assert_eq!(world.machines["b"]["metadata"]["annotations"], json!({}));
    assert_eq!(world.deleted, ["a", "d", "b"]);
}

// Belonging

#[test]
fn an_orphan_is_adopted_and_brought_up_to_date_in_one_patch() {
    let orphan = json!({ "metadata": { "ownerReferences": [{ "apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x" }] } });
    let mut world = World::new(1)
        .with(json!({ "spec": { "template": { "spec": { "drainTimeout": "1h" } } } }))
        .machine("a", orphan);
    world.settle();
    let expected = json!({
        "metadata": { "ownerReferences": [
            reference("set-uid"), { "apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x" },
        ] },
        "spec": { "drainTimeout": "1h0m0s" },
    });
    assert_eq!(world.patched, [("a".to_owned(), expected)]);
    assert_eq!((world.active(), world.created.len()), (1, 0));
}

#[rstest]
#[case::other_labels(json!({ "metadata": { "ownerReferences": null, "labels": { "pool": "b" } } }), json!({}))]
#[case::being_deleted(json!({ "metadata": { "ownerReferences": null, "deletionTimestamp": "2023-11-14T10:00:00Z" } }), json!({}))]
#[case::controlled_by_another(json!({ "metadata": { "ownerReferences": [reference("other")] } }), json!({}))]
#[case::the_set_is_being_deleted(
    json!({ "metadata": { "ownerReferences": null } }),
    json!({ "metadata": { "deletionTimestamp": "2023-11-14T10:00:00Z" } })
)]
fn what_is_not_adopted(#[case] machine: Value, #[case] set: Value) {
    let mut world = World::new(0).with(set).machine("a", machine);
    world.settle();
    assert!(world.patched.is_empty() && world.deleted.is_empty());
    assert_eq!(world.status().replicas, 0);
}

#[test]
fn a_machine_that_no_longer_matches_is_released_and_replaced() {
    let foreign = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x" });
    let strayed =
        json!({ "metadata": { "labels": { "pool": "b" }, "ownerReferences": [reference("set-uid"), foreign] } });
    let mut world = World::new(1).machine("a", strayed);
    world.settle();
    assert_eq!(world.machines["a"]["metadata"]["ownerReferences"], json!([foreign]));
    assert_eq!((world.created.len(), world.deleted.len()), (1, 0));
}

// Template

#[test]
fn template_changes_reach_machines_in_one_patch_that_names_only_what_differs() {
    let mut world = World::new(1)
        .with(json!({ "spec": { "template": { "spec": {
            "class": { "kind": "MachineClass", "name": "class" },
            "healthTimeout": "10m", "drainTimeout": "2h",
            "nodeTemplate": { "metadata": { "labels": { "a": "2", "b": "1" } } },
        } } } }))
        .machine(
            "a",
            json!({ "spec": {
            "class": { "kind": "OldClass", "name": "class" },
            "healthTimeout": "10m0s", "drainTimeout": "1h", "maxEvictRetries": 3,
            "nodeTemplate": { "metadata": { "labels": { "a": "1", "b": "1" }, "annotations": { "gone": "x" } } },
        } }),
        );
    world.set["spec"]["template"]["spec"]["nodeTemplate"]["metadata"]["creationTimestamp"] = Value::Null;
    world.settle();
    let expected = json!({ "spec": {
        "class": { "kind": "MachineClass" },
        "drainTimeout": "2h0m0s", "maxEvictRetries": null,
        "nodeTemplate": { "metadata": { "labels": { "a": "2" }, "annotations": null } },
    } });
    assert_eq!(world.patched, [("a".to_owned(), expected)]);
    assert!(world.deleted.is_empty());
}

#[rstest]
#[case::failed(both(phase("Failed"), annotated(labels::PRESERVE, "now")))]
#[case::terminating(json!({ "metadata": { "deletionTimestamp": "2023-11-14T10:00:00Z" } }))]
fn machines_past_use_take_over_only_the_kind_of_the_class(#[case] state: Value) {
    let mut world = World::new(0)
        .with(json!({ "spec": { "replicas": 1, "template": { "spec": { "drainTimeout": "2h" } } } }))
        .machine("a", both(state, json!({ "spec": { "class": { "kind": "OldClass" } } })));
    world.settle();
    assert_eq!(world.patched, [("a".to_owned(), json!({ "spec": { "class": { "kind": "MachineClass" } } }))]);
}

#[rstest]
#[case::null_timestamp(json!({ "nodeTemplate": { "metadata": { "creationTimestamp": null } } }), json!({}))]
#[case::empty_parts(json!({ "nodeTemplate": { "metadata": {}, "spec": {} } }), json!({ "nodeTemplate": {} }))]
#[case::spelling_of_durations(json!({ "drainTimeout": "120m" }), json!({ "drainTimeout": "2h0m0s" }))]
#[case::another_class_name(json!({ "class": { "kind": "MachineClass", "name": "next" } }), json!({}))]
fn what_means_the_same_is_not_written(#[case] template: Value, #[case] spec: Value) {
    let mut world = World::new(1).machine("a", json!({ "spec": spec }));
    for (key, value) in template.as_object().unwrap() {
        world.set["spec"]["template"]["spec"][key] = value.clone();
    }
    world.settle();
    assert_eq!(world.patched, []);
}

#[test]
fn a_machine_is_born_as_its_template_says_and_guarded() {
    let mut world =
        World::new(1).with(annotated(labels::EFFECTIVE_CREATION_TIMEOUT, "5m")).with(json!({ "spec": { "template": {
            "metadata": { "annotations": { "x": "y" }, "finalizers": ["foreign"] },
            "spec": { "providerID": "shared", "creationTimeout": "20m", "drainTimeout": "2h" },
        } } }));
    world.settle();
    let expected = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
        "metadata": {
            "name": world.created[0], "namespace": "ns", "uid": format!("uid-{}", world.created[0]),
            "creationTimestamp": now().to_string(),
            "labels": { "pool": "a", "name": "deployment" },
            "annotations": { "x": "y", labels::EFFECTIVE_CREATION_TIMEOUT: "5m" },
            "finalizers": ["foreign", labels::FINALIZER],
            "ownerReferences": [reference("set-uid")],
        },
        "spec": {
            "class": { "kind": "MachineClass", "name": "class" },
            "creationTimeout": "5m0s", "drainTimeout": "2h0m0s",
        },
    });
    assert_eq!(world.machines[&world.created[0]], expected);
    assert_eq!(world.patched, [], "the overridden timeout is not taken back");
}

// Invalid sets

#[rstest]
#[case(json!({ "replicas": -1 }), "spec.replicas is -1")]
#[case(json!({ "selector": null }), "spec.selector is missing")]
#[case(json!({ "selector": { "matchLabels": { "pool": "b" } } }), "spec.selector does not match")]
#[case(json!({ "selector": { "matchExpressions": [{ "key": "q", "operator": "Exists" }] } }), "spec.selector does not match")]
#[case(json!({ "selector": { "matchExpressions": [{ "key": "q", "operator": "Near" }] } }), "spec.selector.matchExpressions")]
#[case(json!({ "template": { "spec": { "class": { "kind": "" } } } }), "spec.template.spec.class.kind is empty")]
#[case(json!({ "template": { "spec": { "class": { "name": null } } } }), "spec.template.spec.class.name is empty")]
#[case(json!({ "selector": { "matchLabels": null }, "template": { "metadata": null } }), "spec.template.metadata.labels is empty")]
fn an_invalid_set_says_so_once_and_touches_nothing(#[case] spec: Value, #[case] text: &str) {
    let mut world = World::new(3).with(json!({ "spec": spec })).machines(1);
    let valid = World::new(1).set["spec"].clone();
    let plan = plan(&world.snapshot());
    let event = plan.steps[0].event.clone().unwrap();
    assert_eq!((event.warning, event.reason), (true, EventReason::InvalidSpec));
    assert!(event.message.starts_with(text), "{}", event.message);
    let rest = world.settle();
    assert_eq!((world.status_writes, world.status().replicas, world.active()), (1, 1, 1));
    assert_eq!(world.status().conditions[0].type_, "Invalid");
    assert!(waits(&rest).contains(text));

    world.set["spec"] = valid;
    world.settle();
    assert_eq!(world.status().conditions, []);
}

#[test]
fn an_invalid_set_can_be_deleted() {
    let mut world = World::new(1)
        .with(json!({ "metadata": { "deletionTimestamp": after(0) }, "spec": { "selector": null } }))
        .machines(2);
    world.settle();
    assert_eq!(world.deleted.len(), 2);
    world.finish_deletions();
    world.settle();
    assert_eq!(world.set["metadata"]["finalizers"], json!([]));
}

// Deletion of the set

#[test]
fn a_set_goes_after_its_last_machine() {
    let mut world = World::new(3)
        .with(json!({ "metadata": { "deletionTimestamp": after(0), "finalizers": ["foreign", labels::FINALIZER] } }))
        .machine("a", json!({}))
        .machine("b", both(phase("Failed"), preserved_until(60)))
        .machine("c", json!({ "metadata": { "deletionTimestamp": after(-5) } }));
    let rest = world.settle();
    assert_eq!(world.deleted, ["a", "b"]);
    assert_eq!(waits(&rest), "3 machines to be gone before the set goes");
    assert_eq!(world.set["metadata"]["finalizers"].as_array().unwrap().len(), 2);
    world.finish_deletions();
    world.settle();
    assert_eq!(world.set["metadata"]["finalizers"], json!(["foreign"]));
    assert!(world.created.is_empty());
}

#[test]
fn a_set_waits_for_machines_it_cannot_read() {
    let mut world = World::new(0).with(json!({ "metadata": { "deletionTimestamp": after(0) } }));
    world.unreadable = vec!["u".to_owned()];
    let rest = world.settle();
    assert_eq!(world.set["metadata"]["finalizers"], json!([labels::FINALIZER]));
    assert_eq!(waits(&rest), "1 machine to be readable: u");
}

#[test]
fn a_set_that_somebody_else_holds_leaves_its_machines_to_them() {
    let mut world = World::new(0)
        .with(json!({ "metadata": { "deletionTimestamp": after(0), "finalizers": ["foregroundDeletion"] } }))
        .machines(1);
    world.settle();
    assert!(world.deleted.is_empty());
}

// Status

#[test]
fn the_status_counts_what_is_there() {
    let failed =
        json!({ "state": "Failed", "type": "Create", "errorCode": "ResourceExhausted", "description": "full" });
    let operation = |operation: &Value| json!({ "status": { "lastOperation": operation } });
    let mut world = World::new(6)
        .with(json!({ "metadata": { "generation": 4 } }))
        .machine("a", json!({}))
        .machine("b", phase("Available"))
        .machine("c", json!({ "metadata": { "labels": { "name": "another" } } }))
        .machine(
            "d",
            both(phase("CrashLoopBackOff"), both(operation(&failed), json!({ "spec": { "providerID": "p" } }))),
        )
        .machine("e", both(phase("Failed"), both(operation(&failed), preserved_until(60))))
        .machine("f", json!({ "metadata": { "deletionTimestamp": after(-5) } }))
        .machine("g", json!({}));
    world.settle();
    let expected = json!({
        "replicas": 7, "fullyLabeledReplicas": 6, "readyReplicas": 3, "availableReplicas": 4, "preservedFailedReplicas": 1,
        "observedGeneration": 4, "lastOperation": { "lastUpdateTime": after(0) },
        "failedMachines": [{ "name": "d", "providerID": "p", "lastOperation": failed, "ownerRef": "set" }],
    });
    assert_eq!(serde_json::to_value(world.status()).unwrap(), expected);
    assert_eq!((world.status_writes, world.created.len(), world.deleted.len()), (1, 0, 0));
}

#[test]
fn conditions_of_others_stay_as_they_are() {
    let frozen = json!({ "type": "Frozen", "status": "True", "reason": "OverShootingReplicaCount", "message": "m" });
    let other = json!({ "type": "Custom", "status": "False" });
    let mut world = World::new(1).with(json!({ "status": { "machineSetCondition": [frozen, other] } })).machines(1);
    world.settle();
    assert_eq!(serde_json::to_value(world.status().conditions).unwrap(), json!([frozen, other]));
}

#[rstest]
#[case::too_few(3, "FailedCreate")]
#[case::too_many(0, "FailedDelete")]
#[case::equal(1, "")]
fn a_failure_is_reported_before_the_work_is_tried_again_and_withdrawn_after_success(
    #[case] replicas: i32,
    #[case] reason: &str,
) {
    let mut world = World::new(replicas).machines(1);
    world.failure = Some(Failure { message: "quota".into() });
    let plan_after_failure = plan(&world.snapshot());
    assert!(matches!(plan_after_failure.steps[0].action, Action::WriteStatus(_)));
    world.apply(Plan { steps: plan_after_failure.steps.into_iter().take(1).collect(), waits: Vec::new() });
    let condition = world.status().conditions.remove(0);
    assert_eq!((condition.type_.as_str(), condition.status.as_str()), ("ReplicaFailure", "True"));
    assert_eq!((condition.reason.as_str(), condition.message.as_str()), (reason, "quota"));

    world.failure = Some(Failure { message: "quota, attempt 2".into() });
    let again = plan(&world.snapshot());
    assert!(!again.steps.iter().any(|step| matches!(step.action, Action::WriteStatus(_))), "one report is enough");

    world.failure = None;
    world.settle();
    assert_eq!(world.status().conditions, []);
}

// Properties

#[derive(Clone, Debug)]
struct Any {
    phase: MachinePhase,
    dying: bool,
    orphan: bool,
    priority: Option<i32>,
    marked: bool,
    preserved: Option<i64>,
}

fn any_machine() -> impl Strategy<Value = Any> {
    use MachinePhase::*;
    let phases = prop::sample::select(vec![
        New,
        Pending,
        Available,
        Running,
        Running,
        Unknown,
        Failed,
        CrashLoopBackOff,
        Terminating,
        InPlaceUpdating,
    ]);
    let preserved = prop::option::weighted(0.2, -100i64..100);
    (phases, prop::bool::weighted(0.2), prop::bool::weighted(0.2), prop::option::of(0..5), any::<bool>(), preserved)
        .prop_map(|(phase, dying, orphan, priority, marked, preserved)| Any {
            phase,
            dying,
            orphan,
            priority,
            marked,
            preserved,
        })
}

fn world_of(replicas: i32, population: &[Any]) -> World {
    let mut world = World::new(replicas).with(annotated(labels::LAST_SCALER_CHANGE, &after(0)));
    for (index, any) in population.iter().enumerate() {
        let mut patch = phase(any.phase.as_str());
        if any.dying {
            merge(&mut patch, json!({ "metadata": { "deletionTimestamp": after(-9) } }));
        }
        if any.orphan {
            patch["metadata"]["ownerReferences"] = Value::Null;
        }
        if let Some(priority) = any.priority {
            merge(&mut patch, annotated(labels::PRIORITY, &priority.to_string()));
        }
        if any.marked {
            merge(&mut patch, annotated(labels::MARKED_FOR_DELETION_TIME, &after(-1)));
        }
        if let Some(seconds) = any.preserved {
            merge(&mut patch, preserved_until(seconds));
        }
        world = world.machine(&format!("m{index:03}"), patch);
    }
    world
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_population_comes_to_rest_at_the_wanted_number_without_going_above(
        population in prop::collection::vec(any_machine(), 0..25),
        replicas in 0i32..25,
        auto_preserve in 0i32..3,
        seed in any::<u64>(),
    ) {
        let mut world = world_of(replicas, &population)
            .with(json!({ "spec": { "autoPreserveFailedMachineMax": auto_preserve } }));
        world.seed = seed;
        let wanted = usize::try_from(replicas).unwrap();
        let before = world.active();
        world.settle();
        prop_assert_eq!(world.active(), wanted);
        prop_assert!(world.peak <= before.max(wanted), "{} of {wanted}", world.peak);
        let status = world.status();
        prop_assert_eq!(usize::try_from(status.replicas).unwrap(), world.machines.values().filter(|machine| {
            machine["metadata"]["ownerReferences"][0]["uid"] == "set-uid"
        }).count());

        world.finish_deletions();
        let (created, deleted) = (world.created.len(), world.deleted.len());
        world.settle();
        prop_assert_eq!((created, deleted), (world.created.len(), world.deleted.len()), "what is gone was not missed");
    }

    #[test]
    fn what_cannot_be_read_leads_to_no_machine_too_many_and_none_too_few(
        population in prop::collection::vec(any_machine(), 0..15),
        replicas in 0i32..15,
        unreadable in 1usize..5,
    ) {
        let mut world = world_of(replicas, &population);
        world.unreadable = (0..unreadable).map(|index| format!("u{index}")).collect();
        let wanted = usize::try_from(replicas).unwrap();
        let before = world.active() + unreadable;
        world.settle();
        prop_assert!(world.active() <= wanted && world.active() + unreadable >= wanted);
        prop_assert!(world.peak + unreadable <= before.max(wanted + unreadable));
        if !world.created.is_empty() {
            prop_assert_eq!(world.active() + unreadable, wanted, "nothing is created beyond what is surely missing");
        }
    }

    #[test]
    fn a_frozen_set_never_creates(population in prop::collection::vec(any_machine(), 0..15), replicas in 0i32..15) {
        let mut world = world_of(replicas, &population).with(json!({ "metadata": { "labels": { "freeze": "True" } } }));
        world.settle();
        prop_assert!(world.created.is_empty());
    }

    #[test]
    fn a_plan_does_not_depend_on_the_order_of_the_snapshot(
        population in prop::collection::vec(any_machine(), 0..15),
        replicas in 0i32..15,
    ) {
        let snapshot = world_of(replicas, &population).snapshot();
        let mut reversed = snapshot.clone();
        reversed.machines.reverse();
        prop_assert_eq!(plan(&snapshot), plan(&reversed));
    }

    #[test]
    fn a_difference_turns_the_one_into_the_other(
        old in prop::collection::btree_map("[a-c]", prop::collection::btree_map("[a-c]", 0..3, 0..3), 0..3),
        new in prop::collection::btree_map("[a-c]", prop::collection::btree_map("[a-c]", 0..3, 0..3), 0..3),
    ) {
        let (mut old, new) = (json!(old), json!(new));
        if let Some(patch) = edit::difference(&old, &new) {
            prop_assert!(merge(&mut old, patch), "a patch that changes nothing");
        }
        prop_assert_eq!(old, new);
    }
}
