//! From the course of a rehearsal to the answer. Pure.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::Value;

use super::answer::{
    Action, ChangedField, FieldEffect, MachinePlan, ObjectPlan, PlanSummary, PlanVerdict, RolloutBounds,
    RolloutDuration, RolloutRound,
};
use crate::{
    grouping::occurrences,
    rehearsal::record::{MachineTransition, RehearsalCourse, RehearsalEnding, RehearsalEntry, TalliesBySet},
};
use mcm_api::{
    GoDuration, labels,
    machine::{Machine, MachineDeployment, MachinePhase, MachineSet, OperationState, OperationType, StrategyType},
};
use mcm_controllers::{machine, machine_deployment::bounds_of};
use mcm_rules::plan::counted;

/// The longest pause between acts of one round.
const LONGEST_PAUSE: Duration = Duration::from_secs(9);
/// Joins from which the expected time is computed.
const JOINS: usize = 5;
/// A longer join was an accident.
const LONGEST_JOIN: i64 = 2 * 60 * 60;

/// The facts about a deployment.
pub struct PlannedDeployment<'a> {
    /// As it is; `None` if it is created.
    pub live: Option<&'a MachineDeployment>,
    /// As it will be; `None` if it is deleted.
    pub wanted: Option<&'a MachineDeployment>,
    /// Its machines.
    pub machines: &'a [&'a Machine],
    /// The flags of the controllers.
    pub policy: &'a machine::MachinePolicy,
    /// The effects of the changed fields.
    pub fields: Vec<ChangedField>,
    pub now: Timestamp,
}

impl PlannedDeployment<'_> {
    /// Fills a plan from the course.
    pub fn fill(mut self, plan: &mut ObjectPlan, course: &RehearsalCourse) {
        let pause = pause_between_rounds(join_of(self.machines));
        let raw = raw_rounds(course, new_set(course, self.wanted).as_deref(), pause, self.policy);
        plan.machines = machines(self.machines, course, &raw);
        plan.settles = course.ending == RehearsalEnding::Settled;
        plan.summary = summary(course, &plan.machines);
        plan.summary.adopt = course.adopted.len();
        if plan.summary.adopt > 0 {
            let adopted = counted(plan.summary.adopt, "machine");
            plan.remarks
                .push(format!("adopts {adopted}: its selector matches them, and they or their set have no controller"));
        }
        let reaches = |field: &ChangedField| matches!(field.effect, FieldEffect::Machines | FieldEffect::Nodes);
        if self.fields.iter().any(reaches) {
            plan.summary.propagate = course.kept.len();
        }
        (plan.verdict, plan.headline) = self.verdict(plan);
        plan.fields = std::mem::take(&mut self.fields);
        plan.duration = self.duration(course, &raw);
        plan.rounds = folded(&raw, course, new_set(course, self.wanted).as_deref());
        if matches!(plan.verdict, PlanVerdict::Replaces | PlanVerdict::UpdatesInPlace) {
            plan.bounds = self.wanted.and_then(bounds).filter(|bounds| self.is_within(bounds));
        }
        if course.ending == RehearsalEnding::Cut {
            cut(plan, raw.len());
        }
    }

    fn verdict(&self, plan: &ObjectPlan) -> (PlanVerdict, String) {
        let all = self.machines.iter().filter(|machine| !machine.is_terminating()).count();
        let PlanSummary { create, in_place, adopt, .. } = plan.summary;
        let count = |action| plan.machines.iter().filter(|machine| machine.action == action).count();
        let replaced = count(Action::Replace);
        let (verdict, text) = match (self.live, self.wanted) {
            (_, None) => (PlanVerdict::Deletes, format!("DELETES {}", counted(all, "machine"))),
            (None, Some(_)) if adopt > 0 && replaced == 0 && in_place == 0 => {
                let deleted = match count(Action::Delete) {
                    0 => String::new(),
                    deleted => format!(", DELETES {deleted}"),
                };
                (PlanVerdict::Creates, format!("ADOPTS {}, CREATES {create}{deleted}", counted(adopt, "machine")))
            }
            (None, Some(wanted)) if adopt == 0 => (
                PlanVerdict::Creates,
                format!("CREATES {}", counted(usize::try_from(wanted.spec.replicas).unwrap_or_default(), "machine")),
            ),
            _ if replaced > 0 => (PlanVerdict::Replaces, format!("REPLACES {replaced} of {}", counted(all, "machine"))),
            _ if in_place > 0 => {
                (PlanVerdict::UpdatesInPlace, format!("UPDATES IN PLACE {}", counted(in_place, "machine")))
            }
            (Some(live), Some(wanted)) if live.spec.replicas != wanted.spec.replicas => {
                (PlanVerdict::Scales, format!("SCALES {} → {}", live.spec.replicas, wanted.spec.replicas))
            }
            _ if create > 0 || count(Action::Delete) > 0 => {
                let now = all.saturating_sub(count(Action::Delete)) + create;
                (PlanVerdict::Scales, format!("SCALES {all} → {now}"))
            }
            _ if self.fields.iter().all(|field| field.effect == FieldEffect::Same) => {
                (PlanVerdict::NoChange, PlanVerdict::NoChange.words().to_owned())
            }
            _ => (PlanVerdict::ChangesWithoutARollout, PlanVerdict::ChangesWithoutARollout.words().to_owned()),
        };
        let stops = !plan.settles && !matches!(verdict, PlanVerdict::NoChange | PlanVerdict::ChangesWithoutARollout);
        (verdict, if stops { format!("{text}, then stops") } else { text })
    }

    /// The bounds hold at the beginning, and no machine is unhealthy: the controllers keep them, but a strategy bounds neither
    /// machines that fail nor a surplus that is there already.
    fn is_within(&self, bounds: &RolloutBounds) -> bool {
        use MachinePhase::{CrashLoopBackOff, InPlaceUpdateSuccessful, InPlaceUpdating, New, Pending};
        let is_on_its_way = |machine: &Machine| {
            matches!(machine.phase(), New | Pending | CrashLoopBackOff | InPlaceUpdating | InPlaceUpdateSuccessful)
        };
        let available = self.machines.iter().filter(|machine| machine.is_available()).count();
        self.machines.iter().all(|one| one.is_terminating() || one.is_available() || is_on_its_way(one))
            && i32::try_from(self.machines.len()).is_ok_and(|total| total <= bounds.max_total)
            && i32::try_from(available).is_ok_and(|available| available >= bounds.min_available)
    }

    fn duration(&self, course: &RehearsalCourse, raw: &[UnfoldedRound]) -> Option<RolloutDuration> {
        let under_way = self.under_way();
        if raw.is_empty() && under_way.is_empty() {
            return None;
        }
        let configuration = &self.wanted.or(self.live)?.spec.template.spec.configuration;
        let creation = configuration.creation_timeout.unwrap_or(self.policy.creation_timeout);
        let creates = raw.iter().filter(|one| one.create > 0).count();
        let parts = [
            ("creationTimeout", BTreeMap::from([(creation, creates)])),
            ("drainTimeout", occurrences(raw.iter().filter_map(|one| one.drain_timeout))),
            ("inPlaceUpdateTimeout", occurrences(raw.iter().filter_map(|one| one.update_timeout))),
        ];
        let parts = parts.into_iter().flat_map(|(name, counts)| counts.into_iter().map(move |of| (name, of)));
        let parts: Vec<(&str, (GoDuration, usize))> = parts.filter(|(_, (_, count))| *count > 0).collect();
        let of_steps = parts.iter().map(|(name, (timeout, count))| format!("{count} × {name} {}", brief(*timeout)));
        let of_rest = under_way
            .iter()
            .map(|one| format!("{} left of {} under way", brief(one.left), counted(one.count, one.what)));
        let timeouts: Vec<String> = of_steps.chain(of_rest).collect();
        let length = |timeout: GoDuration| u64::try_from(timeout.as_signed().as_secs()).unwrap_or_default();
        let of_steps = parts
            .iter()
            .map(|(_, (timeout, count))| length(*timeout).saturating_mul(u64::try_from(*count).unwrap_or(u64::MAX)));
        let at_most_seconds = of_steps.chain(under_way.iter().map(|one| length(one.left))).fold(0, u64::saturating_add);
        let joins = joins(self.machines);
        let expected = join_of(self.machines).filter(|_| course.ending == RehearsalEnding::Settled && creates > 0);
        let basis = match expected {
            Some(join) => {
                format!("median of {}: {}; drains not included", counted(joins, "join"), seconds(join.as_secs()))
            }
            None => "no join of this deployment tells how long one takes".to_owned(),
        };
        let expected_seconds = expected.map(|_| course.took.as_secs());
        Some(RolloutDuration { expected_seconds, at_most_seconds, basis, timeouts: listed(&timeouts) })
    }

    /// The creations, drains and updates that have begun, with the longest time that is left of each.
    fn under_way(&self) -> Vec<TimeLeft> {
        let left = |since: Option<Timestamp>, timeout: GoDuration| {
            let gone = since.map(|since| self.now.duration_since(since)).unwrap_or_default();
            GoDuration::from_secs(timeout.as_signed().saturating_sub(gone).as_secs())
        };
        let of_machine = |machine: &&Machine| {
            let phase_since =
                machine.status.as_ref().and_then(|status| status.current_status.last_update_time.as_ref());
            match (machine.metadata.deletion_timestamp.as_ref(), machine.phase()) {
                (Some(deleted), _) => Some(("drain", left(Some(deleted.0), self.policy.drain_timeout_of(machine)))),
                (None, MachinePhase::New | MachinePhase::Pending | MachinePhase::CrashLoopBackOff) => {
                    let created = machine.creation_timestamp().map(|time| time.0);
                    Some(("creation", left(created, self.policy.creation_timeout_of(machine))))
                }
                (None, MachinePhase::InPlaceUpdating) => {
                    let timeout = self.policy.in_place_update_timeout_of(machine);
                    Some(("update", left(phase_since.map(|time| time.0), timeout)))
                }
                _ => None,
            }
        };
        let mut kinds: BTreeMap<&'static str, TimeLeft> = BTreeMap::new();
        let begun = self.machines.iter().filter_map(of_machine);
        for (what, left) in begun.filter_map(|(what, left)| Some((what, left.positive()?))) {
            let kind = kinds.entry(what).or_insert(TimeLeft { what, count: 0, left });
            (kind.count, kind.left) = (kind.count.saturating_add(1), kind.left.max(left));
        }
        kinds.into_values().collect()
    }
}

/// Steps of one kind that have begun.
struct TimeLeft {
    what: &'static str,
    count: usize,
    /// The longest time until the timeout of one of them.
    left: GoDuration,
}

/// Such as `a, b and c`.
fn listed(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// The fate of machines that was not played is not known.
fn cut(plan: &mut ObjectPlan, rounds: usize) {
    let PlanSummary { create, delete, in_place, .. } = plan.summary;
    plan.reason = Some(format!(
        "{} played, with {}, {} and {}; the rest takes too long",
        counted(rounds, "round"),
        counted(create, "creation"),
        counted(delete, "deletion"),
        counted(in_place, "update")
    ));
    (plan.verdict, plan.headline) = (PlanVerdict::Unknown, PlanVerdict::Unknown.words().to_owned());
    plan.machines.retain(|machine| machine.step.is_some());
    plan.duration = None;
}

/// The bounds that the controllers keep during a rollout, if its strategy has any.
fn bounds(deployment: &MachineDeployment) -> Option<RolloutBounds> {
    let bounds = bounds_of(deployment).ok()?;
    let is_bounded = deployment.spec.strategy.kind() != Some(StrategyType::Recreate);
    is_bounded.then(|| RolloutBounds {
        max_total: bounds.max_replicas(),
        min_available: bounds.min_available(),
        replicas: bounds.desired,
        max_surge: bounds.max_surge,
        max_unavailable: bounds.max_unavailable,
    })
}

/// UID of the set that makes the wanted machines.
fn new_set(course: &RehearsalCourse, wanted: Option<&MachineDeployment>) -> Option<String> {
    let sets = course.objects.get("MachineSet")?.iter();
    let mut sets = sets.filter_map(|set| serde_json::from_value::<MachineSet>(set.clone()).ok());
    sets.find(|set| wanted.is_some_and(|wanted| set.spec.makes(&wanted.spec.template)))?.uid()
}

/// A round before equal ones are folded.
#[derive(Clone, Debug, Default)]
struct UnfoldedRound {
    create: usize,
    drain: usize,
    update: usize,
    /// The longest of its drains, also of those before an update.
    drain_timeout: Option<GoDuration>,
    update_timeout: Option<GoDuration>,
    machines: Vec<String>,
    after: RolloutRound,
}

/// Something begins with it.
fn is_beginning(course: &RehearsalCourse, entry: &RehearsalEntry) -> bool {
    let is_act = matches!(entry.act, MachineTransition::Create | MachineTransition::Drain | MachineTransition::Update);
    // A machine that failed is replaced by another, again and again.
    is_act && !(entry.act == MachineTransition::Drain && !entry.is_known && course.ending != RehearsalEnding::Settled)
}

/// The pause between acts that ends a round, by the time of a join. Machines that join within seconds begin several rounds in the
/// time that another round takes.
pub fn pause_between_rounds(join: Option<Duration>) -> Duration {
    join.map_or(LONGEST_PAUSE, |join| LONGEST_PAUSE.min(join / 2))
}

/// The positions of the entries with which rounds begin.
pub fn starts_of_rounds(course: &RehearsalCourse, pause: Duration) -> Vec<usize> {
    let (mut starts, mut last) = (Vec::new(), None::<Duration>);
    for (at, entry) in course.entries.iter().enumerate().filter(|(_, entry)| is_beginning(course, entry)) {
        if last.is_none_or(|last| entry.at.saturating_sub(last) > pause) {
            starts.push(at);
        }
        last = Some(entry.at);
    }
    starts
}

fn raw_rounds(
    course: &RehearsalCourse,
    new: Option<&str>,
    pause: Duration,
    policy: &machine::MachinePolicy,
) -> Vec<UnfoldedRound> {
    let starts = starts_of_rounds(course, pause);
    let mut rounds: Vec<UnfoldedRound> = Vec::new();
    for (at, entry) in course.entries.iter().enumerate().filter(|(_, entry)| is_beginning(course, entry)) {
        if starts.binary_search(&at).is_ok() {
            rounds.push(UnfoldedRound::default());
        }
        let Some(round) = rounds.last_mut() else { continue };
        if entry.act != MachineTransition::Create {
            let timeout = entry.timeouts.drain.unwrap_or(policy.drain_timeout);
            round.drain_timeout = round.drain_timeout.max(Some(timeout));
        }
        match entry.act {
            MachineTransition::Create => round.create += 1,
            MachineTransition::Update => {
                let timeout = entry.timeouts.in_place_update.unwrap_or(policy.in_place_update_timeout);
                (round.update, round.update_timeout) = (round.update + 1, round.update_timeout.max(Some(timeout)));
            }
            _ => round.drain += 1,
        }
        round.machines.push(entry.machine.clone());
        round.after = counts(&entry.tallies, new);
    }
    rounds
}

fn counts(tallies: &TalliesBySet, new: Option<&str>) -> RolloutRound {
    let mut round = RolloutRound::default();
    for (set, tally) in tallies {
        let side = if Some(set.as_str()) == new { &mut round.new } else { &mut round.old };
        *side += tally.live;
        round.going += tally.going;
        round.available += tally.running;
    }
    round.total = round.old + round.new + round.going;
    round
}

/// Equal rounds become one with the numbers after the last of them. The end is one more round, in which nothing begins.
fn folded(raw: &[UnfoldedRound], course: &RehearsalCourse, new: Option<&str>) -> Vec<RolloutRound> {
    let mut rounds: Vec<RolloutRound> = Vec::new();
    for (number, one) in (1..).zip(raw) {
        let acts = |round: &RolloutRound| (round.create, round.drain, round.update);
        let next = RolloutRound {
            first: number,
            times: 1,
            create: one.create,
            drain: one.drain,
            update: one.update,
            ..one.after
        };
        match rounds.last_mut() {
            Some(last) if acts(last) == acts(&next) => {
                *last = RolloutRound { first: last.first, times: last.times + 1, ..next }
            }
            _ => rounds.push(next),
        }
    }
    if !raw.is_empty() {
        rounds.push(RolloutRound { first: raw.len() + 1, times: 1, ..counts(&course.tallies, new) });
    }
    rounds
}

fn machines(all: &[&Machine], course: &RehearsalCourse, raw: &[UnfoldedRound]) -> Vec<MachinePlan> {
    let steps: BTreeMap<&str, usize> = (1..)
        .zip(raw)
        .flat_map(|(number, round)| round.machines.iter().map(move |name| (name.as_str(), number)))
        .collect();
    let mut spare = course.entries.iter().filter(|entry| entry.act == MachineTransition::Create).count();
    let mut plans = Vec::new();
    for machine in all.iter().filter(|machine| !machine.is_terminating()) {
        let name = machine.name_any();
        let action = match course.kept.get(&name) {
            Some(true) => Action::Update,
            Some(false) => Action::Keep,
            None if spare > 0 => {
                spare -= 1;
                Action::Replace
            }
            None => Action::Delete,
        };
        let step = steps.get(name.as_str()).copied().filter(|_| action != Action::Keep);
        plans.push(MachinePlan { name, action, step });
    }
    plans
}

fn summary(course: &RehearsalCourse, machines: &[MachinePlan]) -> PlanSummary {
    let entries =
        |act: MachineTransition| course.entries.iter().filter(move |entry| entry.act == act && !entry.is_known).count();
    let lost = if course.ending == RehearsalEnding::Settled { 0 } else { entries(MachineTransition::Drain) };
    let count = |wanted: &[Action]| machines.iter().filter(|machine| wanted.contains(&machine.action)).count();
    PlanSummary {
        create: entries(MachineTransition::Create).saturating_sub(lost),
        delete: count(&[Action::Replace, Action::Delete]) + entries(MachineTransition::Drain) - lost,
        in_place: count(&[Action::Update]),
        propagate: 0,
        adopt: 0,
        unknown: 0,
    }
}

/// The machines whose creation or deletion has begun.
pub fn under_way(machines: &[&Machine]) -> Option<String> {
    use MachinePhase::{CrashLoopBackOff, New, Pending};
    let (going, there): (Vec<&&Machine>, Vec<&&Machine>) = machines.iter().partition(|one| one.is_terminating());
    let coming = there.iter().filter(|one| matches!(one.phase(), New | Pending | CrashLoopBackOff)).count();
    let parts = [(coming, "created"), (going.len(), "deleted")];
    let parts = parts.into_iter().filter(|(count, _)| *count > 0);
    let parts: Vec<String> = parts.map(|(count, act)| format!("{} being {act}", counted(count, "machine"))).collect();
    (!parts.is_empty()).then(|| format!("already under way: {}", parts.join(", ")))
}

/// How long the last machines took to join, the newest first.
fn all_joins(machines: &[&Machine]) -> Vec<i64> {
    let mut joins: Vec<(i64, i64)> = machines
        .iter()
        .filter_map(|machine| {
            let last = &machine.status.as_ref()?.last_operation;
            let is_join = last.type_ == Some(OperationType::Create) && last.state == Some(OperationState::Successful);
            let created = machine.creation_timestamp()?.0.as_second();
            let took = last.last_update_time.as_ref().filter(|_| is_join)?.0.as_second() - created;
            (0..LONGEST_JOIN).contains(&took).then_some((created, took))
        })
        .collect();
    joins.sort_unstable_by(|one, other| other.cmp(one));
    joins.into_iter().map(|(_, took)| took).take(JOINS).collect()
}

fn joins(machines: &[&Machine]) -> usize {
    all_joins(machines).len()
}

/// The median of the last joins; at least a second, so that the order is kept.
pub fn join_of(machines: &[&Machine]) -> Option<Duration> {
    let mut joins = all_joins(machines);
    joins.sort_unstable();
    let median = joins.get(joins.len() / 2)?;
    u64::try_from(*median).ok().map(|seconds| Duration::from_secs(seconds.max(1)))
}

/// A duration without units that are zero, as users write it.
pub fn brief(duration: GoDuration) -> String {
    let seconds = duration.as_signed().as_secs();
    u64::try_from(seconds).map_or_else(|_| duration.to_string(), self::seconds)
}

/// Such as `1h50m`, `2m4s` or `10m`.
pub fn seconds(total: u64) -> String {
    let parts = [(total / 3600, "h"), (total / 60 % 60, "m"), (total % 60, "s")];
    let text: String =
        parts.into_iter().filter(|(count, _)| *count > 0).map(|(count, unit)| format!("{count}{unit}")).collect();
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// The effect of the change that a rehearsal made, from the objects before and after it.
pub fn effect(before: &RehearsalCourse, after: &RehearsalCourse) -> FieldEffect {
    let happened = |act: MachineTransition| after.entries.iter().any(|entry| entry.act == act && entry.is_known);
    if after.kept.values().any(|moved| *moved) || happened(MachineTransition::Update) {
        return FieldEffect::InPlace;
    }
    if happened(MachineTransition::Drain) {
        return FieldEffect::Replace;
    }
    let kept = |course: &RehearsalCourse, pointers: &[&str]| -> Vec<Value> {
        let machines = course.objects.get("Machine").into_iter().flatten();
        machines
            .flat_map(|one| pointers.iter().map(|at| one.pointer(at).cloned().unwrap_or_default()).collect::<Vec<_>>())
            .collect()
    };
    let node = |course: &RehearsalCourse| -> Vec<Value> {
        let at = ["/metadata/labels", "/metadata/annotations", "/spec/taints"];
        let mut parts: Vec<Value> = (course.nodes.values())
            .flat_map(|node| at.map(|at| node.pointer(at).cloned().unwrap_or_default()))
            .collect();
        // It repeats the template, with fields that no controller applies.
        for annotations in parts.iter_mut().filter_map(Value::as_object_mut) {
            annotations.remove(labels::LAST_APPLIED_NODE_TEMPLATE);
        }
        parts
    };
    if node(before) != node(after) {
        FieldEffect::Nodes
    } else if kept(before, &["/spec", "/metadata/labels"]) != kept(after, &["/spec", "/metadata/labels"]) {
        FieldEffect::Machines
    } else {
        FieldEffect::Nothing
    }
}
