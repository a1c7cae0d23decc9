//! A deployment with its sets, and how plans change them.

use std::sync::Arc;

use kube::ResourceExt;
use serde_json::{Value, json};

use super::super::{Action, CountedSet, Memory, OvershootPolicy, Snapshot, plan};
use mcm_api::{
    labels,
    machine::{MachineDeployment, MachineSet},
    patch,
    reasons::EventReason,
};
use mcm_rules::plan::Plan;

pub(super) const NOW: i64 = 1_700_000_000;

#[derive(Clone, Debug)]
pub(super) struct World {
    pub snapshot: Snapshot,
    pub policy: OvershootPolicy,
    /// Every event: its reason, and the set.
    pub events: Vec<(EventReason, String)>,
}

fn changed<K: serde::Serialize + serde::de::DeserializeOwned>(object: &K, change: &Value) -> K {
    let mut value = serde_json::to_value(object).unwrap();
    patch::apply(&mut value, change);
    serde_json::from_value(value).unwrap()
}

pub(super) fn set(name: &str, replicas: i32) -> MachineSet {
    serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "shoot", "uid": format!("uid-{name}")},
        "spec": {"replicas": replicas},
    }))
    .unwrap()
}

impl World {
    /// A deployment of 3 replicas with a surge of 1, so the limits are 6 and 5. One set `a` with so many Machines.
    pub(super) fn new(machines: usize) -> Self {
        let deployment = json!({
            "metadata": {"name": "pool", "namespace": "shoot", "uid": "pool"},
            "spec": {
                "replicas": 3, "template": {},
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            },
        });
        let snapshot = Snapshot {
            policy: OvershootPolicy::default(),
            deployment: Some(Arc::new(serde_json::from_value(deployment).unwrap())),
            sets: Vec::new(),
            unreadable_sets: Vec::new(),
            uncertain: None,
            memory: Memory::default(),
            now: jiff::Timestamp::from_second(NOW).unwrap(),
        };
        Self { snapshot, policy: OvershootPolicy::default(), events: Vec::new() }.with_set("a", machines)
    }

    /// A set without a deployment.
    pub(super) fn stand_alone(replicas: i32, machines: usize) -> Self {
        let mut world = Self::new(0);
        world.snapshot.deployment = None;
        world.snapshot.sets = vec![CountedSet { set: Arc::new(set("a", replicas)), machines }];
        world
    }

    pub(super) fn with_set(mut self, name: &str, machines: usize) -> Self {
        self.snapshot.sets.push(CountedSet { set: Arc::new(set(name, 3)), machines });
        self
    }

    pub(super) fn deployed(mut self, change: Value) -> Self {
        let deployment = self.snapshot.deployment.take().unwrap();
        self.snapshot.deployment = Some(Arc::new(changed(deployment.as_ref(), &change)));
        self
    }

    /// Changes set `a`.
    pub(super) fn with(mut self, change: Value) -> Self {
        self.change_set("a", &change);
        self
    }

    fn change_set(&mut self, name: &str, change: &Value) {
        let one = self.snapshot.sets.iter_mut().find(|one| one.set.name_any() == name).unwrap();
        one.set = Arc::new(changed(one.set.as_ref(), change));
    }

    pub(super) fn pass(&mut self, seconds: i64) {
        self.snapshot.now += jiff::SignedDuration::from_secs(seconds);
    }

    pub(super) fn plan(&self) -> Plan<Action> {
        plan(&self.snapshot, &self.policy)
    }

    /// Plans and carries out until nothing is left; the reasons of all steps.
    pub(super) fn settle(&mut self) -> Vec<String> {
        let mut reasons = Vec::new();
        for _ in 0..6 {
            let plan = self.plan();
            if plan.steps.is_empty() {
                return reasons;
            }
            for step in plan.steps {
                reasons.push(step.reason);
                let of = self.execute(step.action);
                self.events.extend(step.event.map(|event| (event.reason, of)));
            }
        }
        panic!("planning never comes to rest: {reasons:?}");
    }

    fn execute(&mut self, action: Action) -> String {
        let status = |status: Option<Value>| json!({ "status": status.unwrap_or_else(|| json!({})) });
        let metadata = |patch: Option<Value>| patch.unwrap_or_else(|| json!({}));
        match action {
            Action::RememberUnfreeze(uid) => drop(self.snapshot.memory.unfrozen.insert(uid, self.snapshot.now)),
            Action::WriteSet { set, status: new, patch } => {
                let name = set.name_any();
                let before = set.status.clone();
                let new = new.map(|new| patch::status(&before, &Some(*new))["status"].clone());
                self.change_set(&name, &status(new));
                self.change_set(&name, &metadata(patch));
                return name;
            }
            Action::WriteDeployment { status: new, patch } => {
                let deployment = self.snapshot.deployment.take().unwrap();
                let new = new.map(|new| patch::status(&deployment.status, &Some(*new))["status"].clone());
                let deployment = changed(deployment.as_ref(), &status(new));
                self.snapshot.deployment = Some(Arc::new(changed(&deployment, &metadata(patch))));
            }
        }
        String::new()
    }

    /// Label, and reason and text of the condition, of a set.
    pub(super) fn marks_of_set(&self, name: &str) -> (bool, Option<(String, String)>) {
        let set = &self.snapshot.sets.iter().find(|one| one.set.name_any() == name).unwrap().set;
        let conditions = set.status.iter().flat_map(|status| &status.conditions);
        let said = conditions.into_iter().find(|condition| condition.type_ == "Frozen");
        (labelled(set.labels()), said.map(|said| (said.reason.clone(), said.message.clone())))
    }

    /// The same of the deployment.
    pub(super) fn marks(&self) -> (bool, Option<(String, String)>) {
        let deployment: &MachineDeployment = self.snapshot.deployment.as_ref().unwrap();
        let conditions = deployment.status.iter().flat_map(|status| &status.conditions);
        let said = conditions.into_iter().find(|condition| condition.type_ == "Frozen");
        (labelled(deployment.labels()), said.map(|said| (said.reason.clone(), said.message.clone())))
    }
}

fn labelled(all: &std::collections::BTreeMap<String, String>) -> bool {
    all.get(labels::FREEZE).is_some_and(|value| value == labels::TRUE)
}

/// A set that the Go program froze.
pub(super) fn frozen() -> Value {
    json!({
        "metadata": {"labels": {"freeze": "True"}},
        "status": {"machineSetCondition": [{"type": "Frozen", "status": "True", "reason": "OverShootingReplicaCount"}]},
    })
}

/// The deployment of that set.
pub(super) fn frozen_deployment() -> Value {
    json!({
        "metadata": {"labels": {"freeze": "True"}},
        "status": {"conditions": [{"type": "Frozen", "status": "True", "reason": "OverShootingReplicaCount"}]},
    })
}
