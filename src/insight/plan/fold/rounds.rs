//! A long rollout of machines that are alike is played with few of them: its rounds repeat. Pure.

use std::{ops::Range, time::Duration};

use kube::ResourceExt;
use serde_json::{Value, json};

use super::whole::{DeploymentSample, WholeDeployment, in_order, is_of_known, resized, settled_set};
use crate::{
    plan::{fields::to_value, outcome::starts_of_rounds},
    rehearsal::record::{MachineTransition, RehearsalCourse, RehearsalEnding, RehearsalEntry, TalliesBySet},
};
use mcm_api::machine::{MachineDeployment, MachineSet, StrategyType};
use mcm_controllers::machine_deployment::bounds_of;

/// Rounds that are played at least.
const ROUNDS: usize = 6;
/// A rollout with fewer machines beyond these rounds is played with all.
const FEW: usize = 8;
/// Equal rounds after which the next one is known.
const EQUAL: usize = 3;
/// Different rounds that take turns.
const MOST_IN_TURN: usize = 2;

/// The machines at the beginning and at the end of the order in which they are deleted. The rounds of the others repeat.
pub struct RoundFold {
    /// Names in the order in which their set deletes them.
    order: Vec<String>,
    /// Machines at the beginning and at the end of the order, so many each, are played.
    ends: (usize, usize),
    /// UID of their set.
    set: String,
}

impl RoundFold {
    /// Leaves machines out whose rounds equal those of others; `None` if all have to be played. The machines are alike.
    pub fn for_deployment(whole: &WholeDeployment<'_>) -> Option<(DeploymentSample, Self)> {
        let (live, wanted) = whole.live.zip(whole.wanted)?;
        let is_rolled = |one: &MachineDeployment| one.spec.strategy.kind() == Some(StrategyType::RollingUpdate);
        if !is_rolled(live) || !is_rolled(wanted) || wanted.spec.replicas != live.spec.replicas {
            return None;
        }
        let set = settled_set(whole)?;
        let bounds = bounds_of(wanted).ok()?;
        let at_once = usize::try_from(bounds.max_surge + bounds.max_unavailable).ok().filter(|count| *count > 0)?;
        let all = whole.machines.len();
        let beyond = all.checked_sub(ROUNDS * at_once)?;
        let left_out = beyond - beyond % at_once;
        let is_worth_it = left_out >= 2 * at_once + FEW;
        if !is_worth_it {
            return None;
        }
        let played = all - left_out;
        let less = i32::try_from(left_out).ok()?;
        let rounds = Self { order: whole.in_order(), ends: (played / 2, played - played / 2), set: set.uid()? };
        let smaller = |one: &&MachineSet| smaller_set(one, if one.uid() == set.uid() { less } else { 0 });
        let few = DeploymentSample {
            machines: rounds.played().map(str::to_owned).collect(),
            size: played,
            deployment: Some(smaller_deployment(live, less)?),
            wanted: Some(smaller_deployment(wanted, less)?),
            sets: whole.sets.iter().map(smaller).collect(),
        };
        Some((few, rounds))
    }

    /// Names of the machines that are played, in the order in which their set deletes them.
    fn played(&self) -> impl Iterator<Item = &str> {
        let (first, last) = self.ends;
        let names = self.order[..first].iter().chain(&self.order[self.order.len() - last..]);
        names.map(String::as_str)
    }

    /// Names of the others.
    fn others(&self) -> &[String] {
        &self.order[self.ends.0..self.order.len() - self.ends.1]
    }

    fn left_out(&self) -> usize {
        self.others().len()
    }

    /// The course with all machines; `None` if it does not follow from that with few. A longer pause than this ends a round.
    pub fn unfold(&self, mut course: RehearsalCourse, pause: Duration) -> Option<RehearsalCourse> {
        let is_known_act = |entry: &RehearsalEntry| {
            matches!(
                entry.act,
                MachineTransition::Create
                    | MachineTransition::Join
                    | MachineTransition::Drain
                    | MachineTransition::Gone
            )
        };
        let left_out = i64::try_from(self.left_out()).ok()?;
        let starts = starts_of_rounds(&course, pause);
        let rest = in_order(self.played(), &course.entries, &starts)?;
        // It stops before the others, or does not begin.
        if matches!(course.ending, RehearsalEnding::Rests | RehearsalEnding::Stuck) && rest >= self.ends.1
            || course.entries.is_empty()
        {
            course.kept.extend(self.others().iter().map(|name| (name.clone(), false)));
            for entry in &mut course.entries {
                add(&mut entry.tallies, &self.set, left_out);
            }
            add(&mut course.tallies, &self.set, left_out);
            return Some(course);
        }
        if course.ending != RehearsalEnding::Settled || !course.entries.iter().all(is_known_act) || rest > 0 {
            return None;
        }
        let new = course.tallies.keys().next().filter(|_| course.tallies.len() == 1)?.clone();
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
        for entry in entries.iter_mut().filter(|entry| entry.act == MachineTransition::Drain && entry.is_known) {
            entry.machine.clone_from(names.next()?);
        }
        add(&mut course.tallies, &new, left_out);
        course.took += period * times;
        course.entries = entries;
        Some(course)
    }
}

fn drained(entries: &[RehearsalEntry]) -> impl Iterator<Item = &str> {
    entries.iter().filter(is_of_known(MachineTransition::Drain)).map(|entry| entry.machine.as_str())
}

/// The entries of a round that equals those around it, and the number of machines that it replaces. Machines that join within seconds
/// are created and drained in rounds of each; several rounds are then taken as one.
fn repeated(entries: &[RehearsalEntry], starts: &[usize]) -> Option<(Range<usize>, usize)> {
    (1..=MOST_IN_TURN).find_map(|in_turn| repeated_in_turn(entries, starts, in_turn))
}

fn repeated_in_turn(entries: &[RehearsalEntry], starts: &[usize], in_turn: usize) -> Option<(Range<usize>, usize)> {
    let acts = |round: &Range<usize>| -> Vec<(MachineTransition, bool)> {
        entries[round.clone()].iter().map(|entry| (entry.act, entry.is_known)).collect()
    };
    let (first, middle) = starts.windows(EQUAL * in_turn + 1).find_map(|starts| {
        let edges: Vec<usize> = starts.iter().step_by(in_turn).copied().collect();
        let rounds: Vec<Range<usize>> = edges.windows(2).map(|pair| pair[0]..pair[1]).collect();
        let of_first = acts(&rounds[0]);
        rounds.iter().all(|round| acts(round) == of_first).then(|| (rounds[0].clone(), rounds[1].clone()))
    })?;
    let count = |act: MachineTransition| entries[middle.clone()].iter().filter(|entry| entry.act == act).count();
    let at_once = drained(&entries[middle.clone()]).count();
    let is_steady = at_once > 0
        && [MachineTransition::Create, MachineTransition::Join, MachineTransition::Drain, MachineTransition::Gone]
            .into_iter()
            .all(|act| count(act) == at_once);
    let last = |round: &Range<usize>| entries.get(round.end.checked_sub(1)?).map(|entry| live(&entry.tallies));
    let is_even = last(&first) == last(&middle);
    (is_steady && is_even).then_some((middle, at_once))
}

/// Machines of all sets that are not being deleted.
fn live(tallies: &TalliesBySet) -> (usize, usize, usize) {
    tallies.values().fold((0, 0, 0), |sum, tally| (sum.0 + tally.live, sum.1 + tally.running, sum.2 + tally.going))
}

/// Adds running machines to a set.
fn add(tallies: &mut TalliesBySet, set: &str, count: i64) {
    if count == 0 {
        return;
    }
    let tally = tallies.entry(set.to_owned()).or_default();
    let sum = |number: usize| {
        usize::try_from(i64::try_from(number).unwrap_or(i64::MAX).saturating_add(count)).unwrap_or_default()
    };
    (tally.live, tally.running) = (sum(tally.live), sum(tally.running));
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
    resized(set, set.spec.replicas - less, |count| (count - less).max(0), |bound| Some(bound - less))
}
