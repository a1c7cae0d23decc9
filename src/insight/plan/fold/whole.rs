//! A deployment with many machines, and the part of it that is played. Pure.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::rehearsal::{
    play::DeploymentWrite,
    record::{MachineTransition, RehearsalEntry},
};
use mcm_api::{
    labels,
    machine::{LastOperation, Machine, MachineDeployment, MachinePhase, MachineSet},
    reasons::NodeConditionType,
};
use mcm_controllers::{
    machine_deployment::chosen,
    object::{
        deletion_order::{DeletionOrder, is_chosen, scaled_at},
        owner,
    },
};

/// So many machines are played rather than answered with an estimate.
pub const MOST_PLAYED: usize = 300;

/// A deployment that is about to change.
pub struct WholeDeployment<'a> {
    /// As it is; `None` if it is created.
    pub live: Option<&'a MachineDeployment>,
    /// As it will be; `None` if it is deleted.
    pub wanted: Option<&'a MachineDeployment>,
    pub sets: &'a [&'a MachineSet],
    pub machines: &'a [&'a Machine],
    /// `None` if they are not known.
    pub nodes: Option<&'a [Value]>,
    pub now: Timestamp,
}

/// The part of a deployment that is played.
pub struct DeploymentSample {
    /// Names of the machines.
    pub machines: BTreeSet<String>,
    /// The most machines that are wanted at a time.
    pub size: usize,
    /// The deployment as it is, with fewer replicas.
    pub deployment: Option<Value>,
    /// The deployment as it will be, with fewer replicas.
    pub wanted: Option<Value>,
    /// The sets, with fewer replicas.
    pub sets: Vec<MachineSet>,
}

/// How far a course with few machines is that of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FoldAccuracy {
    /// The fates are, but not of how many machines.
    Kinds,
    /// The fate of each machine is.
    Fates,
    /// The rounds are as well, about.
    Estimate,
    /// Everything is.
    Exact,
}

impl DeploymentSample {
    /// The same change of this part.
    pub fn cue(&self, cue: DeploymentWrite) -> DeploymentWrite {
        match (cue, &self.wanted) {
            (DeploymentWrite::Create(_), Some(wanted)) => DeploymentWrite::Create(wanted.clone()),
            (DeploymentWrite::Write(_), Some(wanted)) => DeploymentWrite::Write(wanted.clone()),
            (cue, _) => cue,
        }
    }
}

impl<'a> WholeDeployment<'a> {
    /// The machines, now or in the end.
    pub fn size(&self) -> usize {
        self.machines.len().max(self.replicas_after())
    }

    /// The replicas in the end.
    pub fn replicas_after(&self) -> usize {
        replicas_of(self.wanted)
    }

    /// Machines of an old template are replaced or updated.
    pub fn is_rollout(&self) -> bool {
        let is_old = |set: &&&MachineSet, wanted: &MachineDeployment| !set.spec.makes(&wanted.spec.template);
        let mut filled = self.sets.iter().filter(|set| set.spec.replicas > 0);
        self.wanted.is_some_and(|wanted| filled.any(|set| is_old(&set, wanted)))
    }

    /// Names in the order in which their set deletes them.
    pub fn in_order(&self) -> Vec<String> {
        self.ordered(self.machines.to_vec()).into_iter().map(ResourceExt::name_any).collect()
    }

    /// In the order in which their set deletes them. Machines that go even if their number is right are part of a surplus.
    pub fn ordered(&self, mut machines: Vec<&'a Machine>) -> Vec<&'a Machine> {
        let (choice, recovered) = (self.choice(), self.recovered());
        let goes_anyway = |machine: &Machine| {
            let is_failed = machine.phase() == MachinePhase::Failed && machine.preserved_until(self.now).is_none();
            is_failed || choice.has(machine)
        };
        machines.sort_by_cached_key(|machine| {
            let machine = recovered.get(&machine.name_any()).unwrap_or(machine);
            (!goes_anyway(machine), DeletionOrder::for_machine(machine, self.now))
        });
        machines
    }

    /// Machines whose Node is healthy again: they run before any is deleted.
    fn recovered(&self) -> BTreeMap<String, Machine> {
        let nodes = self.nodes_by_name();
        let is_ready = |node: &&Value| {
            let mut conditions = node["status"]["conditions"].as_array().into_iter().flatten();
            conditions.any(|one| one["type"] == "Ready" && one["status"] == "True")
        };
        let unknown = self.machines.iter().filter(|machine| machine.phase() == MachinePhase::Unknown);
        let recovered =
            unknown.filter(|machine| machine.node_name().and_then(|name| nodes.get(name)).is_some_and(is_ready));
        let running = |machine: &&Machine| {
            let mut machine = (*machine).clone();
            if let Some(status) = &mut machine.status {
                status.current_status.phase = MachinePhase::Running;
            }
            (machine.name_any(), machine)
        };
        recovered.map(running).collect()
    }

    /// The machines that are deleted because the deployment gets fewer replicas. If several sets have machines, that depends on
    /// the course, and there are none.
    pub fn surplus(&self) -> Vec<&'a Machine> {
        let present = self.present();
        let count = present.len().saturating_sub(self.replicas_after());
        if self.wanted.is_none() || !self.is_of_one_set() {
            return Vec::new();
        }
        self.ordered(present).into_iter().take(count).collect()
    }

    fn present(&self) -> Vec<&'a Machine> {
        self.machines.iter().copied().filter(|machine| !machine.is_terminating()).collect()
    }

    fn is_of_one_set(&self) -> bool {
        self.present().windows(2).all(|pair| set_of(pair[0]) == set_of(pair[1]))
    }

    /// The replicas of several sets change. Their shares are rounded, so that those of few machines are others than those of all.
    pub fn is_shared_out(&self) -> bool {
        self.wanted.is_some() && replicas_of(self.live) != self.replicas_after() && !self.is_of_one_set()
    }

    /// The choice of the autoscaler.
    pub fn choice(&self) -> AutoscalerChoice<'a> {
        let of_sets = self.sets.iter().filter_map(|set| scaled_at(&set.metadata)).max();
        let of_deployment = self.wanted.and_then(|wanted| scaled_at(&wanted.metadata));
        AutoscalerChoice { listed: self.wanted.map(chosen).unwrap_or_default(), scaled_at: of_deployment.max(of_sets) }
    }

    /// The machines differ only in their identity and their times, and the deployment is settled.
    pub fn is_alike(&self) -> bool {
        let listed = self.choice().listed;
        let is_listed = |machine: &&Machine| listed.contains(machine.name_any().as_str());
        self.machines.is_empty() && self.live.is_none()
            || settled_set(self).is_some()
                && are_alike(self.machines.iter().map(|machine| machine_key(machine)))
                && self.has_alike_nodes()
                && !self.machines.iter().any(is_listed)
    }

    fn has_alike_nodes(&self) -> bool {
        let by_name = self.nodes_by_name();
        self.nodes.is_none()
            || are_alike(
                self.machines.iter().map(|machine| by_name.get(machine.node_name()?).map(|node| node_key(node))),
            )
    }

    /// None if they are not known.
    pub fn nodes_by_name(&self) -> BTreeMap<&'a str, &'a Value> {
        let nodes = self.nodes.into_iter().flatten();
        nodes.filter_map(|node| Some((node["metadata"]["name"].as_str()?, node))).collect()
    }
}

/// The machines that the autoscaler chose: their set deletes them first, and even if their number is right.
pub struct AutoscalerChoice<'a> {
    listed: BTreeSet<&'a str>,
    scaled_at: Option<Timestamp>,
}

impl AutoscalerChoice<'_> {
    pub fn has(&self, machine: &Machine) -> bool {
        self.listed.contains(machine.name_any().as_str()) || is_chosen(machine, self.scaled_at)
    }
}

/// UID of the set of a machine.
pub fn set_of(machine: &Machine) -> String {
    owner::controller_of(&machine.metadata).map(|owner| owner.uid.clone()).unwrap_or_default()
}

pub fn replicas_of(deployment: Option<&MachineDeployment>) -> usize {
    deployment.and_then(|one| usize::try_from(one.spec.replicas).ok()).unwrap_or_default()
}

/// The set with all machines of a deployment that is settled.
pub fn settled_set<'a>(whole: &WholeDeployment<'a>) -> Option<&'a MachineSet> {
    let live = whole.live?;
    let is_plain = |one: &MachineDeployment| !one.spec.paused && one.spec.rollback_to.is_none();
    let replicas = live.spec.replicas;
    let count = i32::try_from(whole.machines.len()).ok()?;
    if !is_plain(live) || !whole.wanted.is_none_or(is_plain) || count != replicas {
        return None;
    }
    let mut filled = whole.sets.iter().copied().filter(|set| set.spec.replicas > 0);
    let set = filled.next()?;
    let status = set.status.clone().unwrap_or_default();
    let counts = [set.spec.replicas, status.replicas, status.ready_replicas, status.available_replicas];
    (filled.next().is_none() && counts == [replicas; 4]).then_some(set)
}

/// The set with other numbers: its replicas, the counts in its status, and the bounds in its annotations.
pub fn resized(
    set: &MachineSet,
    replicas: i32,
    count: impl Fn(i32) -> i32,
    bound: impl Fn(i32) -> Option<i32>,
) -> MachineSet {
    let mut resized = set.clone();
    resized.spec.replicas = replicas;
    if let Some(status) = &mut resized.status {
        let counts = [
            &mut status.replicas,
            &mut status.fully_labeled_replicas,
            &mut status.ready_replicas,
            &mut status.available_replicas,
        ];
        counts.into_iter().for_each(|number| *number = count(*number));
    }
    for annotation in [labels::DESIRED_REPLICAS, labels::MAX_REPLICAS] {
        if let Some(text) = resized.annotations_mut().get_mut(annotation)
            && let Some(number) = text.parse().ok().and_then(&bound)
        {
            *text = number.to_string();
        }
    }
    resized
}

fn are_alike<T: PartialEq>(mut keys: impl Iterator<Item = Option<T>>) -> bool {
    let Some(Some(first)) = keys.next() else { return false };
    keys.all(|key| key.as_ref() == Some(&first))
}

/// A machine that runs, without its identity and its times.
fn machine_key(machine: &Machine) -> Option<Machine> {
    let mut key = machine.clone();
    if key.is_terminating() || key.phase() != MachinePhase::Running || key.node_name().is_none() {
        return None;
    }
    let meta = &mut key.metadata;
    (meta.name, meta.uid, meta.resource_version, meta.creation_timestamp) = (None, None, None, None);
    (meta.generation, meta.generate_name, meta.managed_fields) = (None, None, None);
    if let Some(labels) = &mut meta.labels {
        labels.remove(labels::NODE);
    }
    key.spec.provider_id.clear();
    if let Some(status) = &mut key.status {
        status.addresses.clear();
        status.last_operation = LastOperation::default();
        status.current_status.last_update_time = None;
        status.last_known_state.clear();
        for condition in &mut status.conditions {
            (condition.last_heartbeat_time, condition.last_transition_time) = (None, None);
            (condition.message, condition.reason) = (None, None);
        }
    }
    Some(key)
}

/// The labels of a Node by which it is updated in place.
const OF_UPDATES: [&str; 3] = [labels::CANDIDATE_FOR_UPDATE, labels::SELECTED_FOR_UPDATE, labels::UPDATE_RESULT];

/// The part of a Node on which the course of its machine depends.
fn node_key(node: &Value) -> Value {
    let (meta, spec) = (&node["metadata"], &node["spec"]);
    json!({
        "taints": spec["taints"],
        "unschedulable": spec["unschedulable"],
        "conditions": conditions_of(node),
        "update": OF_UPDATES.map(|label| &meta["labels"][label]),
        "preserve": meta["annotations"][labels::PRESERVE],
    })
}

/// Its conditions, with the progress of an update in place.
pub fn conditions_of(node: &Value) -> Vec<Value> {
    let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    let is_update = |one: &Value| one["type"] == NodeConditionType::InPlaceUpdate.as_str();
    let reason = |one: &Value| if is_update(one) { one["reason"].clone() } else { Value::Null };
    conditions.map(|one| json!({ "type": one["type"], "status": one["status"], "reason": reason(one) })).collect()
}

/// Each round drains or updates the next machines of this order. The number of machines that are left in the end.
pub fn in_order<'a>(
    order: impl Iterator<Item = &'a str>,
    entries: &[RehearsalEntry],
    starts: &[usize],
) -> Option<usize> {
    let mut names = order;
    let ends = starts.iter().skip(1).copied().chain([entries.len()]);
    for (start, end) in starts.iter().zip(ends) {
        let touched = entries[*start..end]
            .iter()
            .filter(|one| is_of_known(MachineTransition::Drain)(one) || is_of_known(MachineTransition::Update)(one));
        let mut touched: Vec<&str> = touched.map(|entry| entry.machine.as_str()).collect();
        let mut expected: Vec<&str> = names.by_ref().take(touched.len()).collect();
        touched.sort_unstable();
        expected.sort_unstable();
        if touched != expected {
            return None;
        }
    }
    Some(names.count())
}

pub fn is_of_known(act: MachineTransition) -> impl Fn(&&RehearsalEntry) -> bool {
    move |entry| entry.act == act && entry.is_known
}
