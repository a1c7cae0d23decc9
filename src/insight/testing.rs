//! A deployment in the middle of a rollout, for tests of reports and decisions.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{
    memory::Memory,
    place::CallTarget,
    place_counts::PlaceCounts,
    story::{ByName, CLASS, DEPLOYMENT, MACHINE, ManagerLease, NamespaceFacts, OwnedMachines, SET},
};
use crate::terminal::TerminalLook;
use mcm_api::{labels, machine::Machine};
use mcm_rules::plan::{PlanPreview, PreviewStep, SubjectRef, Wait, WaitKind};

/// Ten minutes after the epoch.
pub const NOW: i64 = 600;
/// A terminal of the usual size, without colours.
pub const TERMINAL: TerminalLook = TerminalLook { width: 80, colours: false, unicode: true, is_terminal: true };

pub fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// A Lease of a manager that renews it every few seconds, last at a time.
pub fn held_lease(lease: &str, role: &str, holder: &str, renewed: Timestamp) -> ManagerLease {
    ManagerLease {
        lease: lease.to_owned(),
        role: role.to_owned(),
        holder: holder.to_owned(),
        renewed: Some(renewed),
        lasts: SignedDuration::from_secs(15),
        exists: true,
        frozen: None,
        parked: None,
    }
}

pub fn object<T: serde::de::DeserializeOwned + ResourceExt>(
    kind: &str,
    name: &str,
    owner: Option<(&str, &str)>,
    more: &Value,
) -> (String, T) {
    let owner = owner.map(|(kind, name)| {
        json!({"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": kind, "name": name, "uid": "u", "controller": true})
    });
    let mut value = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": kind,
        "metadata": {
            "name": name, "namespace": "demo", "ownerReferences": owner.into_iter().collect::<Vec<_>>(),
            "resourceVersion": "7", "creationTimestamp": at(60),
        },
        "spec": {},
    });
    merge(&mut value, more);
    (name.to_owned(), serde_json::from_value(value).unwrap())
}

fn merge(target: &mut Value, more: &Value) {
    match (target.as_object_mut(), more.as_object()) {
        (Some(fields), Some(more)) => {
            more.iter().for_each(|(key, part)| merge(fields.entry(key.clone()).or_insert(Value::Null), part));
        }
        _ => *target = more.clone(),
    }
}

fn template(class: &str) -> Value {
    json!({"metadata": {"labels": {"name": "pool"}}, "spec": {"class": {"kind": "MachineClass", "name": class}}})
}

fn set(name: &str, revision: &str, class: &str, replicas: i32) -> (String, mcm_api::machine::MachineSet) {
    let mut template = template(class);
    template["metadata"]["labels"]["machine-template-hash"] = name.into();
    let more = json!({
        "metadata": {"annotations": {"deployment.kubernetes.io/revision": revision}},
        "spec": {"replicas": replicas, "template": template},
    });
    object(SET, name, Some((DEPLOYMENT, "pool")), &more)
}

/// A machine in a phase; `Terminating` has a deletion timestamp.
pub fn machine(set: &str, suffix: &str, class: &str, phase: &str, more: &Value) -> (String, Machine) {
    let name = format!("{set}-{suffix}");
    let mut value = json!({
        "metadata": {"labels": {"node": name}, "finalizers": ["machine.sapcloud.io/machine-controller-manager"]},
        "spec": {"class": {"name": class}, "providerID": format!("simulated:///{name}"), "drainTimeout": "10m"},
        "status": {"currentStatus": {"phase": phase, "lastUpdateTime": at(360)}},
    });
    if phase == "Terminating" {
        value["metadata"]["deletionTimestamp"] = json!(at(357));
    }
    merge(&mut value, more);
    object(MACHINE, &name, Some((SET, set)), &value)
}

/// A machine whose drain a budget blocks.
pub fn blocked(set: &str, suffix: &str) -> (String, Machine) {
    let condition = json!({
        "type": "DrainBlocked", "status": "True",
        "message": "budget demo/strict allows no eviction although all its pods are healthy",
    });
    machine(set, suffix, "large", "Terminating", &json!({"status": {"conditions": [condition]}}))
}

/// The plan for an object.
pub fn preview(kind: &'static str, name: &str, steps: &[&str], waits: &[(WaitKind, &str)]) -> PlanPreview {
    let step = |action: &&str| PreviewStep {
        action: (*action).to_owned(),
        reason: "a reason".to_owned(),
        object: None,
        is_status: false,
        is_look: false,
    };
    let wait = |(kind, text): &(WaitKind, &str)| Wait::new(*kind, (*text).to_owned(), None);
    let object = SubjectRef { kind: kind.to_owned(), namespace: "demo".to_owned(), name: name.to_owned() };
    let (steps, waits) = (steps.iter().map(step).collect(), waits.iter().map(wait).collect());
    PlanPreview { object, controller: "c", steps, waits }
}

/// Deployment `pool`, which rolls from class `large` (set `pool-6d689`) to `small` (set `pool-84dff`), with these machines; the plans
/// of all are empty.
pub fn pool(replicas: i32, machines: Vec<(String, Machine)>) -> NamespaceFacts {
    let up = i32::try_from(machines.iter().filter(|(_, machine)| machine.is_available()).count()).unwrap();
    let updated = machines.iter().filter(|(name, _)| name.starts_with("pool-84dff")).count();
    let deployment = json!({
        "metadata": {"generation": 2},
        "spec": {
            "replicas": replicas, "template": template("small"), "selector": {"matchLabels": {"name": "pool"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}},
        },
        "status": {
            "observedGeneration": 2, "replicas": machines.len(), "updatedReplicas": updated, "availableReplicas": up,
            "conditions": [{"type": "Progressing", "status": "True", "lastUpdateTime": at(359)}],
        },
    });
    let of_set = |set: &str| {
        let is_of = |(name, machine): &&(String, Machine)| name.starts_with(set) && !machine.is_terminating();
        i32::try_from(machines.iter().filter(is_of).count()).unwrap()
    };
    let sets = [("pool-84dff", "4", "small"), ("pool-6d689", "3", "large")];
    let sets: ByName<_> = sets.map(|(name, revision, class)| set(name, revision, class, of_set(name))).into();
    let machines: ByName<Machine> = machines.into_iter().collect();
    let plans = |kind: &'static str, names: Vec<&String>| {
        let plans = names.into_iter().map(|name| (name.clone(), preview(kind, name, &[], &[])));
        (kind, plans.collect::<ByName<PlanPreview>>())
    };
    let manager = |role: &str| held_lease(&format!("lease-of-{role}"), role, "mcm-0", at(NOW - 2));
    NamespaceFacts {
        now: at(NOW),
        namespace: "demo".to_owned(),
        place: CallTarget::default(),
        deployments: [object(DEPLOYMENT, "pool", None, &deployment)].into(),
        previews: BTreeMap::from([
            plans(DEPLOYMENT, vec![&"pool".to_owned()]),
            plans(SET, sets.keys().collect()),
            plans(MACHINE, machines.keys().collect()),
        ]),
        sets,
        machines,
        classes: ["small", "large"]
            .map(|name| object(CLASS, name, None, &json!({"provider": "simulated", "providerSpec": {}})))
            .into(),
        unreadable: Vec::new(),
        unread: Vec::new(),
        unserved: BTreeSet::new(),
        memory: Memory::default(),
        budgets: BTreeMap::new(),
        zones: BTreeMap::new(),
        owned: OwnedMachines::default(),
        places: PlaceCounts::default(),
        managers: vec![manager("sets"), manager("machines")],
    }
}

/// The same objects as those of MCMMachinePool `p`: its provider plans them.
pub fn of_machine_pool(mut facts: NamespaceFacts) -> NamespaceFacts {
    let label = || (labels::POOL.to_owned(), "p".to_owned());
    facts.deployments.values_mut().for_each(|one| one.labels_mut().extend([label()]));
    facts.sets.values_mut().for_each(|one| one.labels_mut().extend([label()]));
    facts.machines.values_mut().for_each(|one| one.labels_mut().extend([label()]));
    for (name, set) in &mut facts.sets {
        let machines: Vec<&Machine> = facts
            .machines
            .iter()
            .filter(|(machine, _)| machine.starts_with(name.as_str()))
            .map(|(_, machine)| machine)
            .collect();
        let up = machines.iter().filter(|machine| machine.is_available()).count();
        set.status = serde_json::from_value(json!({"replicas": machines.len(), "availableReplicas": up})).unwrap();
    }
    let hold = [(WaitKind::Hold, "the manager of MCMMachinePool p, which owns this object")];
    for (kind, plans) in &mut facts.previews {
        plans.iter_mut().for_each(|(name, plan)| *plan = preview(kind, name, &[], &hold));
    }
    facts
}

/// A rollout that a budget blocks: a new machine, an old one, and two whose drain makes no progress.
pub fn blocked_pool() -> NamespaceFacts {
    let none = json!({});
    let mut facts = pool(
        3,
        vec![
            machine("pool-84dff", "jpgkd", "small", "Running", &none),
            machine("pool-6d689", "d98b2", "large", "Running", &none),
            blocked("pool-6d689", "gmjqk"),
            blocked("pool-6d689", "wggnm"),
        ],
    );
    let waits = [(WaitKind::Rollout, "2 machines of old set pool-6d689 to be deleted")];
    facts.previews.get_mut(DEPLOYMENT).unwrap().insert("pool".to_owned(), preview(DEPLOYMENT, "pool", &[], &waits));
    facts
}
