//! A set and its Machines, and an API server that refuses invalid steps.

use std::collections::{BTreeMap, BTreeSet};

use jiff::ToSpan;
use kube::ResourceExt;
use serde_json::json;

use super::super::*;
use mcm_api::{labels, patch};
use mcm_rules::plan::Plan;

pub(super) const T0: i64 = 1_700_000_000;

pub(super) fn now() -> Timestamp {
    Timestamp::from_second(T0).unwrap()
}

pub(super) fn after(seconds: i64) -> String {
    (now() + seconds.seconds()).to_string()
}

/// An API server for one set: executes plans, and refuses invalid steps.
pub(super) struct World {
    pub(super) set: Value,
    pub(super) deployment: Option<Value>,
    pub(super) machines: BTreeMap<String, Value>,
    /// Other sets.
    pub(super) rivals: Vec<Value>,
    pub(super) unreadable: Vec<String>,
    pub(super) unreadable_preserved: usize,
    pub(super) strays: StrayView<Machine>,
    pub(super) failure: Option<ReplicaWriteFailure>,
    pub(super) now: Timestamp,
    pub(super) seed: u64,
    pub(super) created: Vec<String>,
    pub(super) deleted: Vec<String>,
    pub(super) patched: Vec<(String, Value)>,
    pub(super) status_writes: usize,
    pub(super) peak: usize,
}

impl World {
    pub(super) fn new(replicas: i32) -> Self {
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
            deployment: None,
            machines: BTreeMap::new(),
            rivals: Vec::new(),
            unreadable: Vec::new(),
            unreadable_preserved: 0,
            strays: StrayView::default(),
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

    pub(super) fn with(mut self, patch: Value) -> Self {
        merge(&mut self.set, patch);
        self
    }

    /// A Machine of the set, running, changed by a merge patch.
    pub(super) fn machine(mut self, name: &str, patch: Value) -> Self {
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

    pub(super) fn machines(mut self, count: usize) -> Self {
        for index in 0..count {
            self = self.machine(&format!("m{index:04}"), json!({}));
        }
        self
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot {
            young_failures: YoungFailures::default(),
            set: serde_json::from_value(self.set.clone()).unwrap(),
            deployment: self.deployment.clone().map(|deployment| serde_json::from_value(deployment).unwrap()),
            machines: self.machines.values().map(|machine| serde_json::from_value(machine.clone()).unwrap()).collect(),
            rivals: self.rivals.iter().map(|set| serde_json::from_value(set.clone()).unwrap()).collect(),
            is_class_unusable: false,
            unreadable: self.unreadable.clone(),
            unreadable_preserved: self.unreadable_preserved,
            strays: self.strays.clone(),
            failure: self.failure.clone(),
            hold: None,
            now: self.now,
            seed: self.seed,
        }
    }

    pub(super) fn active(&self) -> usize {
        let is_active = |machine: &&Value| {
            machine["metadata"]["deletionTimestamp"].is_null()
                && machine["status"]["currentStatus"]["phase"] != "Terminating"
        };
        self.machines.values().filter(is_active).count()
    }

    /// The next plan of the set, checked by the lint.
    pub(super) fn plan(&self) -> Plan<Action> {
        let snapshot = self.snapshot();
        let plan = plan(&snapshot);
        assert_eq!(lint::lint(&snapshot, &plan.steps), [], "{plan:?}");
        plan
    }

    pub(super) fn settle(&mut self) -> Plan<Action> {
        for _ in 0..20 {
            let plan = self.plan();
            if plan.steps.is_empty() {
                return plan;
            }
            self.apply(plan);
        }
        panic!("no rest after 20 plans: {:?}", self.plan());
    }

    pub(super) fn apply(&mut self, plan: Plan<Action>) {
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
                Action::TryMachine(_) => {}
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
    pub(super) fn finish_deletions(&mut self) {
        self.machines.retain(|_, machine| machine["metadata"]["deletionTimestamp"].is_null());
    }

    pub(super) fn status(&self) -> MachineSetStatus {
        self.snapshot().set.status.clone().unwrap_or_default()
    }
}

pub(super) fn reference(uid: &str) -> Value {
    json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet", "name": "set", "uid": uid,
        "controller": true, "blockOwnerDeletion": true,
    })
}

/// Applies a merge patch; whether anything changed.
pub(super) fn merge(target: &mut Value, patch: Value) -> bool {
    let before = target.clone();
    patch::apply(target, &patch);
    *target != before
}

pub(super) fn phase(phase: &str) -> Value {
    json!({ "status": { "currentStatus": { "phase": phase } } })
}

pub(super) fn annotated(key: &str, value: &str) -> Value {
    json!({ "metadata": { "annotations": { key: value } } })
}

pub(super) fn both(mut first: Value, second: Value) -> Value {
    merge(&mut first, second);
    first
}

pub(super) fn preserved_until(seconds: i64) -> Value {
    json!({ "status": { "currentStatus": { "preserveExpiryTime": after(seconds) } } })
}

pub(super) fn waits(plan: &Plan<Action>) -> String {
    plan.waits.iter().map(|wait| wait.text.clone()).collect::<Vec<_>>().join("\n")
}
