//! A long rollout of machines that are alike is played with few of them: its rounds repeat. Pure.

use std::{collections::BTreeMap, ops::Range, time::Duration};

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{fields::to_value, outcome::starts_of_rounds};
use crate::{
    api::{
        labels,
        machine::{LastOperation, Machine, MachineDeployment, MachinePhase, MachineSet, StrategyType},
    },
    controllers::{machine_deployment::bounds_of, object::deletion_order::DeletionOrder},
    rehearsal::record::{Act, Course, Ending, Entry, Tallies},
};

/// Rounds that are played at least.
const ROUNDS: usize = 6;
/// A rollout with fewer machines beyond these rounds is played with all.
const FEW: usize = 8;
/// Equal rounds after which the next one is known.
const EQUAL: usize = 3;
/// Different rounds that take turns.
const MOST_IN_TURN: usize = 2;

/// The part of a deployment that is played.
pub(super) struct Fold {
    /// Names in the order in which their set deletes them.
    order: Vec<String>,
    /// Machines at the beginning and at the end of the order, so many each, are played.
    ends: (usize, usize),
    /// UID of their set.
    set: String,
    /// The deployment as it is, with fewer replicas.
    pub deployment: Value,
    /// The deployment as it will be, with fewer replicas.
    pub wanted: Value,
    /// The sets, with fewer replicas.
    pub sets: Vec<MachineSet>,
}

/// A deployment that is about to change.
pub(super) struct Whole<'a> {
    pub live: &'a MachineDeployment,
    pub wanted: &'a MachineDeployment,
    pub sets: &'a [&'a MachineSet],
    pub machines: &'a [&'a Machine],
    /// `None` if they are not known.
    pub nodes: Option<&'a [Value]>,
    pub now: Timestamp,
}

impl Fold {
    /// Leaves machines out whose rounds equal those of others; `None` if all have to be played.
    pub(super) fn of(whole: &Whole<'_>) -> Option<Self> {
        let set = only_set(whole)?;
        let bounds = bounds_of(whole.wanted).ok()?;
        let at_once = usize::try_from(bounds.max_surge + bounds.max_unavailable).ok().filter(|count| *count > 0)?;
        let all = whole.machines.len();
        let beyond = all.checked_sub(ROUNDS * at_once)?;
        let left_out = beyond - beyond % at_once;
        let is_worth_it = left_out >= 2 * at_once + FEW;
        if !is_worth_it
            || !are_alike(whole.machines.iter().map(|machine| machine_key(machine)))
            || !has_alike_nodes(whole)
        {
            return None;
        }
        let mut order = whole.machines.to_vec();
        order.sort_by(|one, other| DeletionOrder::of(one, whole.now).cmp(&DeletionOrder::of(other, whole.now)));
        let played = all - left_out;
        let less = i32::try_from(left_out).ok()?;
        Some(Self {
            order: order.into_iter().map(ResourceExt::name_any).collect(),
            ends: (played / 2, played - played / 2),
            set: set.uid()?,
            deployment: smaller_deployment(whole.live, less)?,
            wanted: smaller_deployment(whole.wanted, less)?,
            sets: whole
                .sets
                .iter()
                .map(|one| smaller_set(one, if one.uid() == set.uid() { less } else { 0 }))
                .collect(),
        })
    }

    /// Names of the machines that are played, in the order in which their set deletes them.
    pub(super) fn played(&self) -> impl Iterator<Item = &str> {
        let (first, last) = self.ends;
        let names = self.order[..first].iter().chain(&self.order[self.order.len() - last..]);
        names.map(String::as_str)
    }

    fn left_out(&self) -> usize {
        self.order.len() - self.ends.0 - self.ends.1
    }

    /// The course with all machines; `None` if it does not follow from that with few. A longer pause than this ends a round.
    pub(super) fn unfold(&self, mut course: Course, pause: Duration) -> Option<Course> {
        let is_known_act = |entry: &Entry| matches!(entry.act, Act::Create | Act::Join | Act::Drain | Act::Gone);
        if course.ending != Ending::Settled || !course.entries.iter().all(is_known_act) {
            return None;
        }
        let left_out = i64::try_from(self.left_out()).ok()?;
        if course.entries.is_empty() {
            let (first, last) = self.ends;
            let rest = &self.order[first..self.order.len() - last];
            course.kept.extend(rest.iter().map(|name| (name.clone(), false)));
            add(&mut course.tallies, &self.set, left_out);
            return Some(course);
        }
        let new = course.tallies.keys().next().filter(|_| course.tallies.len() == 1)?.clone();
        let starts = starts_of_rounds(&course, pause);
        self.are_drained_in_order(&course.entries, &starts)?;
        let (block, at_once) = repeated(&course.entries, &starts)?;
        if !self.left_out().is_multiple_of(at_once) || new == self.set {
            return None;
        }
        let copies = self.left_out() / at_once;
        let period = course.entries[block.end].at.checked_sub(course.entries[block.start].at)?;
        let (times, at_once) = (u32::try_from(copies).ok()?, i64::try_from(at_once).ok()?);
        let mut entries = Vec::with_capacity(course.entries.len() + copies * block.len());
        let mut push = |range: Range<usize>, time: u32, moved: i64| {
            for entry in &course.entries[range] {
                let mut entry = entry.clone();
                entry.at += period * time;
                add(&mut entry.tallies, &self.set, left_out - moved);
                add(&mut entry.tallies, &new, moved);
                entries.push(entry);
            }
        };
        push(0..block.start, 0, 0);
        for time in 0..=times {
            push(block.clone(), time, i64::from(time) * at_once);
        }
        push(block.end..course.entries.len(), times, left_out);
        let mut names = self.order.iter();
        for entry in entries.iter_mut().filter(|entry| entry.act == Act::Drain && entry.is_known) {
            entry.machine.clone_from(names.next()?);
        }
        add(&mut course.tallies, &new, left_out);
        course.took += period * times;
        course.entries = entries;
        Some(course)
    }

    /// Each round drains the next machines of the order, and all are drained in the end.
    fn are_drained_in_order(&self, entries: &[Entry], starts: &[usize]) -> Option<()> {
        let mut names = self.played();
        let ends = starts.iter().skip(1).copied().chain([entries.len()]);
        for (start, end) in starts.iter().zip(ends) {
            let mut drained: Vec<&str> = drained(&entries[*start..end]).collect();
            let mut expected: Vec<&str> = names.by_ref().take(drained.len()).collect();
            drained.sort_unstable();
            expected.sort_unstable();
            if drained != expected {
                return None;
            }
        }
        names.next().is_none().then_some(())
    }
}

fn drained(entries: &[Entry]) -> impl Iterator<Item = &str> {
    entries.iter().filter(|entry| entry.act == Act::Drain && entry.is_known).map(|entry| entry.machine.as_str())
}

/// The entries of a round that equals those around it, and the number of machines that it replaces. Machines that join within seconds
/// are created and drained in rounds of each; several rounds are then taken as one.
fn repeated(entries: &[Entry], starts: &[usize]) -> Option<(Range<usize>, usize)> {
    (1..=MOST_IN_TURN).find_map(|in_turn| repeated_in_turn(entries, starts, in_turn))
}

fn repeated_in_turn(entries: &[Entry], starts: &[usize], in_turn: usize) -> Option<(Range<usize>, usize)> {
    let acts = |round: &Range<usize>| -> Vec<(Act, bool)> {
        entries[round.clone()].iter().map(|entry| (entry.act, entry.is_known)).collect()
    };
    let (first, middle) = starts.windows(EQUAL * in_turn + 1).find_map(|starts| {
        let edges: Vec<usize> = starts.iter().step_by(in_turn).copied().collect();
        let rounds: Vec<Range<usize>> = edges.windows(2).map(|pair| pair[0]..pair[1]).collect();
        let of_first = acts(&rounds[0]);
        rounds.iter().all(|round| acts(round) == of_first).then(|| (rounds[0].clone(), rounds[1].clone()))
    })?;
    let count = |act: Act| entries[middle.clone()].iter().filter(|entry| entry.act == act).count();
    let at_once = drained(&entries[middle.clone()]).count();
    let is_steady =
        at_once > 0 && [Act::Create, Act::Join, Act::Drain, Act::Gone].into_iter().all(|act| count(act) == at_once);
    let last = |round: &Range<usize>| entries.get(round.end.checked_sub(1)?).map(|entry| live(&entry.tallies));
    let is_even = last(&first) == last(&middle);
    (is_steady && is_even).then_some((middle, at_once))
}

/// Machines of all sets that are not being deleted.
fn live(tallies: &Tallies) -> (usize, usize, usize) {
    tallies.values().fold((0, 0, 0), |sum, tally| (sum.0 + tally.live, sum.1 + tally.running, sum.2 + tally.going))
}

/// Adds running machines to a set.
fn add(tallies: &mut Tallies, set: &str, count: i64) {
    if count == 0 {
        return;
    }
    let tally = tallies.entry(set.to_owned()).or_default();
    let sum = |number: usize| {
        usize::try_from(i64::try_from(number).unwrap_or(i64::MAX).saturating_add(count)).unwrap_or_default()
    };
    (tally.live, tally.running) = (sum(tally.live), sum(tally.running));
}

/// The set with all machines of a deployment that is settled and is about to be rolled.
fn only_set<'a>(whole: &Whole<'a>) -> Option<&'a MachineSet> {
    let &Whole { live, wanted, sets, machines, .. } = whole;
    let is_plain = |one: &MachineDeployment| {
        let spec = &one.spec;
        !spec.paused && spec.rollback_to.is_none() && spec.strategy.kind() == Some(StrategyType::RollingUpdate)
    };
    let replicas = live.spec.replicas;
    let count = i32::try_from(machines.len()).ok()?;
    if !is_plain(live) || !is_plain(wanted) || wanted.spec.replicas != replicas || count != replicas {
        return None;
    }
    let mut filled = sets.iter().copied().filter(|set| set.spec.replicas > 0);
    let set = filled.next()?;
    let status = set.status.clone().unwrap_or_default();
    let counts = [set.spec.replicas, status.replicas, status.ready_replicas, status.available_replicas];
    (filled.next().is_none() && counts == [replicas; 4]).then_some(set)
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

fn has_alike_nodes(whole: &Whole<'_>) -> bool {
    let Some(nodes) = whole.nodes else { return true };
    let by_name: BTreeMap<&str, &Value> =
        nodes.iter().filter_map(|node| Some((node["metadata"]["name"].as_str()?, node))).collect();
    are_alike(whole.machines.iter().map(|machine| by_name.get(machine.node_name()?).map(|node| node_key(node))))
}

/// The part of a Node on which the course of its machine depends.
fn node_key(node: &Value) -> Value {
    let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    let conditions: Vec<Value> =
        conditions.map(|one| json!({ "type": one["type"], "status": one["status"] })).collect();
    json!({ "taints": node["spec"]["taints"], "unschedulable": node["spec"]["unschedulable"], "conditions": conditions })
}

/// The deployment with fewer replicas and the same bounds.
fn smaller_deployment(deployment: &MachineDeployment, less: i32) -> Option<Value> {
    let bounds = bounds_of(deployment).ok()?;
    let mut value = to_value(deployment);
    value["spec"]["replicas"] = json!(deployment.spec.replicas - less);
    value["spec"]["strategy"]["rollingUpdate"] =
        json!({ "maxSurge": bounds.max_surge, "maxUnavailable": bounds.max_unavailable });
    for count in ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"] {
        if let Some(number) = value["status"][count].as_i64() {
            value["status"][count] = json!((number - i64::from(less)).max(0));
        }
    }
    Some(value)
}

fn smaller_set(set: &MachineSet, less: i32) -> MachineSet {
    let mut smaller = set.clone();
    smaller.spec.replicas -= less;
    if let Some(status) = &mut smaller.status {
        let counts = [
            &mut status.replicas,
            &mut status.fully_labeled_replicas,
            &mut status.ready_replicas,
            &mut status.available_replicas,
        ];
        counts.into_iter().for_each(|count| *count = (*count - less).max(0));
    }
    for annotation in [labels::DESIRED_REPLICAS, labels::MAX_REPLICAS] {
        if let Some(text) = smaller.annotations_mut().get_mut(annotation)
            && let Ok(number) = text.parse::<i32>()
        {
            *text = (number - less).to_string();
        }
    }
    smaller
}
