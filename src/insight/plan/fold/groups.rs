//! Machines are played in groups: one represents its group, and the bounds shrink with their number. If the groups have the same
//! size, the controllers compute with the same proportions, so that each decision is the same. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use kube::ResourceExt;
use serde_json::{Value, json};

use super::whole::{
    DeploymentSample, FoldAccuracy, MOST_PLAYED, WholeDeployment, conditions_of, in_order, is_of_known, replicas_of,
    resized, set_of, settled_set,
};
use crate::{
    plan::{fields::to_value, outcome::starts_of_rounds},
    rehearsal::record::{
        MachineTransition, OwnTimeouts, RehearsalCourse, RehearsalEnding, RehearsalEntry, SetTally, TalliesBySet,
    },
};
use mcm_api::{
    GoDuration,
    machine::{Machine, MachineDeployment, MachinePhase, MachineSet, StrategyType},
};
use mcm_controllers::{machine_deployment::bounds_of, object::deletion_order::priority};

/// Groups of a deployment, at least.
const FEWEST: usize = 12;
/// Groups of an estimate, about.
const GOAL: usize = 40;

/// Machines of which one is played. They are alike, or about.
struct MachineGroup {
    /// In the order of deletion. The first is played.
    names: Vec<String>,
    /// UID of their set.
    set: String,
    is_going: bool,
    is_running: bool,
    /// They are deleted because the deployment gets fewer replicas.
    is_surplus: bool,
}

/// Machines of a deployment in groups.
pub struct GroupFold {
    /// In the order of deletion.
    groups: Vec<MachineGroup>,
    /// How many machines a new one represents, about.
    scale: usize,
    /// All groups have the same size, and the bounds shrink by it.
    is_even: bool,
    /// The bounds are about in proportion.
    is_in_proportion: bool,
    /// The machines are alike, and so are the times at which groups of them are counted: not in a rollout that shrinks, whose new
    /// machines join while old ones leave.
    is_alike: bool,
    /// The replicas of several sets change.
    is_shared_out: bool,
    /// The replicas in the end.
    wanted: usize,
    /// The groups that are deleted if the template does not change.
    surplus: usize,
    /// The machines that are played as created if the template does not change.
    added: usize,
}

/// Numbers of a deployment, and of its part that is played.
struct FoldScale<'a> {
    whole: &'a WholeDeployment<'a>,
    by: usize,
    is_in_proportion: bool,
}

impl GroupFold {
    /// Groups of the same size; `None` if there is no common divisor. The machines are alike.
    pub fn even(whole: &WholeDeployment<'_>) -> Option<(DeploymentSample, Self)> {
        let (before, after) = (replicas_of(whole.live), whole.replicas_after());
        settled_set(whole)?;
        // The change is made before the controllers begin, so that the bounds before it do not matter.
        let amounts = whole.wanted.into_iter().filter(|_| whole.is_rollout()).flat_map(amounts_of);
        let amounts = amounts.filter_map(|amount| usize::try_from(amount).ok());
        let divisor = amounts.fold(greatest_common_divisor(before, after), greatest_common_divisor);
        let most = (2..=whole.size() / FEWEST).rev().find(|one| divisor.is_multiple_of(*one))?;
        Some(Self::for_scale(&FoldScale { whole, by: most, is_in_proportion: true }, true, true))
    }

    /// Groups of about the same size; `None` if all machines have to be played.
    pub fn uneven(whole: &WholeDeployment<'_>, is_alike: bool) -> Option<(DeploymentSample, Self)> {
        let size = whole.size();
        let at_once: i32 = whole.wanted.into_iter().flat_map(amounts_of).sum();
        let by_bounds = usize::try_from(at_once).unwrap_or_default() / 2;
        let is_bounded = whole.is_rollout() && whole.wanted.is_some_and(is_bounded);
        let (by, is_in_proportion) = match is_bounded {
            true if by_bounds > 0 && size / by_bounds <= MOST_PLAYED => (size.div_ceil(GOAL).min(by_bounds), true),
            true => (size.div_ceil(GOAL), false),
            false => (size.div_ceil(FEWEST), true),
        };
        (by >= 2).then(|| Self::for_scale(&FoldScale { whole, by, is_in_proportion }, false, is_alike))
    }

    fn for_scale(scale: &FoldScale<'_>, is_even: bool, is_alike: bool) -> (DeploymentSample, Self) {
        let whole = scale.whole;
        let (before, after) = (replicas_of(whole.live), whole.replicas_after());
        let present = whole.machines.iter().filter(|machine| !machine.is_terminating()).count();
        let groups: Vec<MachineGroup> =
            kinds(whole).iter().flat_map(|(kind, machines)| scale.parts(kind, machines)).collect();
        let live = groups.iter().filter(|group| !group.is_going).count();
        let few_before = scale.moved(live, present, before);
        let deleted = groups.iter().filter(|group| group.is_surplus).count();
        let added = after.saturating_sub(before).div_ceil(scale.by);
        let few_after = if deleted > 0 { live - deleted } else { scale.moved(few_before, before, after) };
        let replicas = FoldReplicas { before, few_before, few_after };
        let few = DeploymentSample {
            machines: groups.iter().filter_map(|group| group.names.first().cloned()).collect(),
            size: groups.len().max(few_after),
            deployment: whole.live.map(|live| scale.deployment(live, few_before, (present, groups.len()))),
            wanted: whole.wanted.map(|wanted| scale.deployment(wanted, few_after, (present, groups.len()))),
            sets: whole.sets.iter().map(|set| scale.set(set, &groups, &replicas)).collect(),
        };
        let surplus = if whole.wanted.is_none() { groups.len() } else { deleted };
        let &FoldScale { by, is_in_proportion, .. } = scale;
        let is_shared_out = whole.is_shared_out();
        (
            few,
            Self {
                groups,
                scale: by,
                is_even,
                is_in_proportion,
                is_alike: is_alike && !(whole.is_rollout() && after < before),
                is_shared_out,
                wanted: after,
                surplus,
                added,
            },
        )
    }

    /// The size of the groups, in words.
    pub fn each(&self) -> String {
        if self.is_even { self.scale.to_string() } else { format!("about {}", self.scale) }
    }

    /// The course with all machines.
    pub fn unfold(&self, course: RehearsalCourse, pause: Duration) -> (RehearsalCourse, FoldAccuracy) {
        let trust = self.trust(&course, pause);
        let groups: BTreeMap<&str, &MachineGroup> =
            self.groups.iter().filter_map(|group| Some((group.names.first()?.as_str(), group))).collect();
        let mut new = self.sizes_of_new(&course, &groups);
        let (mut tallies, mut last) = (TallySums::default(), TalliesBySet::new());
        for group in &self.groups {
            tallies.add(group, group.names.len());
            tally(&mut last, group);
        }
        let mut sizes: BTreeMap<String, usize> = BTreeMap::new();
        let mut entries = Vec::new();
        for entry in &course.entries {
            let group = groups.get(entry.machine.as_str()).filter(|_| entry.is_known);
            let size = match group {
                Some(group) => group.names.len(),
                None => *sizes.entry(entry.machine.clone()).or_insert_with(|| new.next().unwrap_or(self.scale)),
            };
            tallies.follow(&last, &entry.tallies, size);
            last.clone_from(&entry.tallies);
            let after = tallies.written();
            for position in 0..size {
                let machine = group.and_then(|group| group.names.get(position)).unwrap_or(&entry.machine).clone();
                entries.push(RehearsalEntry { machine, tallies: after.clone(), ..entry.clone() });
            }
        }
        tallies.follow(&last, &course.tallies, self.scale);
        let kept = course.kept.iter().filter_map(|(name, moved)| Some((groups.get(name.as_str())?, *moved)));
        let kept: BTreeMap<String, bool> =
            kept.flat_map(|(group, moved)| group.names.iter().map(move |name| (name.clone(), moved))).collect();
        let is_new = |entry: &&RehearsalEntry| entry.act == MachineTransition::Create && !entry.is_known;
        let left = kept.len() + entries.iter().filter(is_new).count();
        // The order of deletion changed meanwhile, so that groups were deleted or kept of which a part should be.
        let is_counted = course.ending != RehearsalEnding::Settled || left >= self.wanted && kept.len() <= self.wanted;
        let trust = if is_counted && !self.is_shared_out { trust } else { FoldAccuracy::Kinds };
        (RehearsalCourse { entries, tallies: tallies.written(), kept, ..course }, trust)
    }

    fn trust(&self, course: &RehearsalCourse, pause: Duration) -> FoldAccuracy {
        // So few unhealthy machines are replaced at a time, however many there are.
        let has_failed = course.entries.iter().any(|entry| entry.act == MachineTransition::Fail && entry.is_known);
        if !self.is_in_proportion || has_failed {
            return FoldAccuracy::Fates;
        }
        let starts = starts_of_rounds(course, pause);
        let order = self.groups.iter().filter_map(|group| group.names.first()).map(String::as_str);
        let is_in_order = in_order(order, &course.entries, &starts).is_some();
        let is_exact = self.is_alike && is_in_order && (self.is_even || self.is_one_round(course, &starts));
        if is_exact { FoldAccuracy::Exact } else { FoldAccuracy::Estimate }
    }

    /// All machines are created or deleted at once, so that the sizes of the groups do not matter.
    fn is_one_round(&self, course: &RehearsalCourse, starts: &[usize]) -> bool {
        let count = |act: MachineTransition| course.entries.iter().filter(|entry| entry.act == act).count();
        let drained = course.entries.iter().filter(is_of_known(MachineTransition::Drain)).count();
        course.ending == RehearsalEnding::Settled
            && starts.len() <= 1
            && [MachineTransition::Update, MachineTransition::Fail].into_iter().all(|act| count(act) == 0)
            && (count(MachineTransition::Create), count(MachineTransition::Drain), drained)
                == (self.added, self.surplus, self.surplus)
            && (self.added == 0 || self.surplus == 0)
    }

    /// How many machines each new one represents, in the order of their creation.
    fn sizes_of_new(
        &self,
        course: &RehearsalCourse,
        groups: &BTreeMap<&str, &MachineGroup>,
    ) -> impl Iterator<Item = usize> + use<> {
        let created = course.entries.iter().filter(|entry| entry.act == MachineTransition::Create).count();
        let kept = course.kept.keys().filter_map(|name| groups.get(name.as_str())).map(|group| group.names.len());
        let total = match course.ending {
            RehearsalEnding::Settled if !self.is_even => self.wanted.saturating_sub(kept.sum()),
            _ => created * self.scale,
        };
        (0..created).map(move |at| part(total, created, at).len())
    }
}

/// Replicas of a deployment before a change, and those of its part before and after it.
struct FoldReplicas {
    before: usize,
    few_before: usize,
    few_after: usize,
}

impl FoldScale<'_> {
    /// Groups of machines of one kind.
    fn parts(&self, kind: &Kind, machines: &[&Machine]) -> Vec<MachineGroup> {
        let count = machines.len().div_ceil(self.by);
        let groups = (0..count).filter_map(|at| machines.get(part(machines.len(), count, at)));
        let group = |machines: &[&Machine]| MachineGroup {
            names: machines.iter().map(|machine| machine.name_any()).collect(),
            set: kind.set.clone(),
            is_going: kind.is_going,
            is_running: kind.phase == MachinePhase::Running.as_str(),
            is_surplus: !kind.is_kept,
        };
        groups.map(group).collect()
    }

    /// The number of groups after a change of the number of machines.
    fn moved(&self, groups: usize, from: usize, to: usize) -> usize {
        let fewer = groups.saturating_sub(from.saturating_sub(to).div_ceil(self.by));
        let fewer = if to > 0 { fewer.max(1) } else { fewer };
        if to < from { fewer } else { groups + (to - from).div_ceil(self.by) }
    }

    fn nearest(&self, number: usize) -> usize {
        (number + self.by / 2) / self.by
    }

    /// The deployment with fewer replicas, and bounds in proportion. Its machines become so many groups.
    fn deployment(&self, deployment: &MachineDeployment, replicas: usize, (present, groups): (usize, usize)) -> Value {
        let mut value = to_value(deployment);
        value["spec"]["replicas"] = json!(replicas);
        let field = match deployment.spec.strategy.kind() {
            Some(StrategyType::RollingUpdate) => Some("rollingUpdate"),
            Some(StrategyType::InPlaceUpdate) => Some("inPlaceUpdate"),
            _ => None,
        };
        if let (Some(field), [surge, unavailable]) = (field, amounts_of(deployment)) {
            let amount = |amount: i32| match usize::try_from(amount) {
                Ok(amount) if self.is_in_proportion => json!(self.nearest(amount)),
                _ => json!(amount),
            };
            value["spec"]["strategy"][field]["maxSurge"] = amount(surge);
            value["spec"]["strategy"][field]["maxUnavailable"] = amount(unavailable);
        }
        for count in ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas"] {
            if let Some(number) = value["status"][count].as_u64().and_then(|number| usize::try_from(number).ok()) {
                let number = if number == present { groups } else { self.nearest(number) };
                value["status"][count] = json!(number);
            }
        }
        value
    }

    fn set(&self, set: &MachineSet, groups: &[MachineGroup], replicas: &FoldReplicas) -> MachineSet {
        let uid = set.uid().unwrap_or_default();
        let of_set = groups.iter().filter(|group| group.set == uid && !group.is_going);
        let (machines, groups) =
            of_set.fold((0, 0), |(machines, groups), group| (machines + group.names.len(), groups + 1));
        let written = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
        let less = |number: i32| {
            let number = usize::try_from(number).unwrap_or_default();
            written(if number == machines { groups } else { self.nearest(number) })
        };
        let bound = |number: i32| {
            let number = usize::try_from(number).ok()?;
            Some(written(match number.checked_sub(replicas.before) {
                Some(above) => replicas.few_before + self.nearest(above),
                None if number == self.whole.replicas_after() => replicas.few_after,
                None => self.nearest(number),
            }))
        };
        let wanted = usize::try_from(set.spec.replicas).unwrap_or_default();
        resized(set, written(self.moved(groups, machines, wanted)), less, bound)
    }
}

/// The part of so many things at a position, if they are parted as evenly as possible.
const fn part(things: usize, parts: usize, at: usize) -> std::ops::Range<usize> {
    at * things / parts..(at + 1) * things / parts
}

const fn greatest_common_divisor(one: usize, other: usize) -> usize {
    if other == 0 { one } else { greatest_common_divisor(other, one % other) }
}

/// The state of machines on which their fate depends.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    /// They are not deleted because the deployment gets fewer replicas.
    is_kept: bool,
    /// UID of their set.
    set: String,
    is_going: bool,
    phase: String,
    /// The autoscaler chose them.
    is_chosen: bool,
    priority: i64,
    is_preserved: bool,
    drain_timeout: Option<GoDuration>,
    /// The conditions of their Node, or that it does not exist.
    node: String,
}

/// Machines by their kind, in the order of deletion. Surplus machines are first.
fn kinds<'a>(whole: &WholeDeployment<'a>) -> BTreeMap<Kind, Vec<&'a Machine>> {
    let surplus: BTreeSet<String> = whole.surplus().into_iter().map(ResourceExt::name_any).collect();
    let (choice, nodes) = (whole.choice(), whole.nodes_by_name());
    let node_of = |machine: &Machine| match machine.node_name() {
        None => "none".to_owned(),
        Some(_) if whole.nodes.is_none() => String::new(),
        Some(name) => {
            nodes.get(name).map_or_else(|| "missing".to_owned(), |node| json!(conditions_of(node)).to_string())
        }
    };
    let mut kinds: BTreeMap<Kind, Vec<&Machine>> = BTreeMap::new();
    for machine in whole.ordered(whole.machines.to_vec()) {
        let kind = Kind {
            is_kept: !surplus.contains(&machine.name_any()),
            set: set_of(machine),
            is_going: machine.is_terminating(),
            phase: machine.phase().as_str().to_owned(),
            is_chosen: choice.has(machine),
            priority: priority(machine),
            is_preserved: machine.preserved_until(whole.now).is_some(),
            drain_timeout: OwnTimeouts::from(machine).drain,
            node: node_of(machine),
        };
        kinds.entry(kind).or_default().push(machine);
    }
    kinds
}

fn is_bounded(deployment: &MachineDeployment) -> bool {
    deployment.spec.strategy.kind() != Some(StrategyType::Recreate)
}

/// maxSurge and maxUnavailable of the replicas; 0 for a strategy without them.
fn amounts_of(deployment: &MachineDeployment) -> [i32; 2] {
    bounds_of(deployment).map_or([0, 0], |bounds| [bounds.max_surge, bounds.max_unavailable])
}

/// Tallies of all machines.
#[derive(Default)]
struct TallySums(BTreeMap<String, [i64; 3]>);

impl TallySums {
    fn add(&mut self, group: &MachineGroup, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let sum = self.0.entry(group.set.clone()).or_default();
        let is = [!group.is_going, !group.is_going && group.is_running, group.is_going];
        for (number, is) in sum.iter_mut().zip(is) {
            *number += if is { count } else { 0 };
        }
    }

    /// A machine that represents so many changed these tallies of the part.
    fn follow(&mut self, before: &TalliesBySet, after: &TalliesBySet, size: usize) {
        let size = i64::try_from(size).unwrap_or(i64::MAX);
        for set in before.keys().chain(after.keys().filter(|set| !before.contains_key(*set))) {
            let numbers = |tallies: &TalliesBySet| tallies.get(set).copied().map_or([0; 3], numbers_of);
            let sum = self.0.entry(set.clone()).or_default();
            for ((number, before), after) in sum.iter_mut().zip(numbers(before)).zip(numbers(after)) {
                *number += (after - before) * size;
            }
        }
    }

    fn written(&self) -> TalliesBySet {
        let count = |number: i64| usize::try_from(number).unwrap_or_default();
        let tally = |[live, running, going]: [i64; 3]| SetTally {
            live: count(live),
            running: count(running),
            going: count(going),
        };
        let tallies = self.0.iter().map(|(set, numbers)| (set.clone(), tally(*numbers)));
        tallies.filter(|(_, tally)| *tally != SetTally::default()).collect()
    }
}

fn numbers_of(tally: SetTally) -> [i64; 3] {
    [tally.live, tally.running, tally.going].map(|number| i64::try_from(number).unwrap_or(i64::MAX))
}

/// Counts the machine that is played.
fn tally(tallies: &mut TalliesBySet, group: &MachineGroup) {
    let tally = tallies.entry(group.set.clone()).or_default();
    tally.live += usize::from(!group.is_going);
    tally.running += usize::from(!group.is_going && group.is_running);
    tally.going += usize::from(group.is_going);
}
