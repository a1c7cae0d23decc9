//! Rejects a plan that would break a bound. The result of the plan is computed from the objects and the steps, without
//! the planner's numbers: each set is assumed to reach its replicas, deleting in its deletion order.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use serde_json::Value;

use super::super::{
    Action, Snapshot,
    autoscaler::{AutoscalerRecord, ChosenMachines},
};
use crate::{
    machine_set::SetWritesInFlight,
    object::{
        deletion_order::DeletionOrder,
        in_place::{self, UpdateResult},
        owner,
    },
};
use mcm_api::{
    labels,
    machine::{Machine, MachineDeployment, MachineSet, StrategyType},
    selector::Selector,
};
use mcm_rules::plan::{
    Step,
    lint::{PlanRule, PlanViolation},
};

/// The bounds that the steps would break. None for a deployment that is being deleted or is invalid.
pub(in super::super) fn lint(snapshot: &Snapshot, steps: &[Step<Action>]) -> Vec<PlanViolation> {
    let deployment = &snapshot.deployment;
    let Some(limits) = RolloutLimits::from_deployment(deployment) else { return Vec::new() };
    if deployment.metadata.deletion_timestamp.is_some() {
        return Vec::new();
    }
    let updates = InPlaceChanges::from_steps(snapshot, &limits, steps);
    let sets = sets_of(snapshot, steps, &updates);
    let created = steps.iter().map(|step| match &step.action {
        Action::CreateSet(set) => i64::from(set.spec.replicas),
        _ => 0,
    });
    let created: i64 = created.sum();
    let checks = [
        too_many(&limits, &sets, created),
        too_few(&limits, &sets),
        overlap(&limits, &sets, created),
        deletes_owner(&sets, steps),
        moves(snapshot, &limits, steps),
    ];
    checks.into_iter().flatten().collect()
}

struct RolloutLimits {
    strategy: StrategyType,
    replicas: i64,
    max_surge: i64,
    max_unavailable: i64,
}

impl RolloutLimits {
    fn from_deployment(deployment: &MachineDeployment) -> Option<Self> {
        let spec = &deployment.spec;
        let (strategy, replicas) = (spec.strategy.kind()?, i64::from(spec.replicas));
        let (mut max_surge, mut max_unavailable) = (0, 0);
        let knobs = match strategy {
            StrategyType::Recreate => None,
            StrategyType::RollingUpdate => {
                let knobs = spec.strategy.rolling_update.as_ref()?;
                Some((knobs.max_surge.as_ref()?, knobs.max_unavailable.as_ref()?, false))
            }
            StrategyType::InPlaceUpdate => {
                let knobs = spec.strategy.in_place_update.as_ref()?;
                let is_manual = knobs.orchestration_type == "Manual";
                Some((knobs.max_surge.as_ref()?, knobs.max_unavailable.as_ref()?, is_manual))
            }
        };
        if let Some((surge, unavailable, is_manual)) = knobs {
            max_surge = if is_manual { 0 } else { share(surge, replicas, true)? };
            max_unavailable = share(unavailable, replicas, false)?;
            if max_surge + max_unavailable == 0 {
                max_unavailable = 1;
            }
        }
        Some(Self { strategy, replicas, max_surge, max_unavailable })
    }
}

fn share(knob: &IntOrString, replicas: i64, rounds_up: bool) -> Option<i64> {
    let number = match knob {
        IntOrString::Int(number) => i64::from(*number),
        IntOrString::String(text) => {
            let hundredths = text.trim_end_matches('%').parse::<i64>().ok()?.saturating_mul(replicas);
            let rest = hundredths % 100;
            hundredths / 100 + i64::from(rounds_up && rest > 0)
        }
    };
    Some(number.max(0))
}

/// The changes of an in-place update: the Machines that move, with their new sets, and the selected Nodes before and
/// after the plan. Empty under other strategies.
#[derive(Default)]
struct InPlaceChanges {
    /// UID of the new controller by name of the Machine.
    moves: BTreeMap<String, String>,
    selected_before: BTreeSet<String>,
    selected_after: BTreeSet<String>,
}

impl InPlaceChanges {
    fn from_steps(snapshot: &Snapshot, limits: &RolloutLimits, steps: &[Step<Action>]) -> Self {
        if limits.strategy != StrategyType::InPlaceUpdate {
            return Self::default();
        }
        let mut updates = Self::default();
        let selection = |patch: &'_ Value| patch.pointer("/metadata/labels")?.get(labels::SELECTED_FOR_UPDATE).cloned();
        let selects = steps.iter().any(|step| match &step.action {
            Action::PatchNode { patch, .. } => selection(&patch.unpack()).is_some_and(|label| !label.is_null()),
            _ => false,
        });
        for machine in &snapshot.machines {
            let node = machine.node_name().and_then(|name| snapshot.nodes.get(name));
            // A Node that is not known may be selected: then no other is.
            let is_selected = node.map_or(selects, |node| node.labels().contains_key(labels::SELECTED_FOR_UPDATE));
            let patched = steps.iter().find_map(|step| match &step.action {
                Action::PatchNode { node: patched, patch, .. }
                    if node.is_some_and(|node| node.name_any() == patched.name_any()) =>
                {
                    selection(&patch.unpack())
                }
                _ => None,
            });
            if is_selected {
                updates.selected_before.insert(machine.name_any());
            }
            if patched.map_or(is_selected, |label| !label.is_null()) {
                updates.selected_after.insert(machine.name_any());
            }
        }
        updates.moves = moved(steps).map(|(machine, uid)| (machine.name_any(), uid)).collect();
        updates
    }
}

/// The Machines that get another controller, and its UID.
fn moved(steps: &[Step<Action>]) -> impl Iterator<Item = (&Arc<Machine>, String)> {
    steps.iter().filter_map(|step| {
        let Action::PatchMachine { machine, patch } = &step.action else { return None };
        let owners = patch.pointer("/metadata/ownerReferences")?.as_array()?;
        let controller = owners.iter().find(|owner| owner["controller"] == true)?;
        Some((machine, controller["uid"].as_str()?.to_owned()))
    })
}

struct LintedSet<'a> {
    set: &'a Arc<MachineSet>,
    /// Before and after the plan: the set creates no Machines, however many it lacks.
    is_held: (bool, bool),
    updates: &'a InPlaceChanges,
    is_new: bool,
    /// Replicas before and after the plan.
    before: i64,
    after: i64,
    /// Machines without a delete call in flight, in deletion order. Machines that were updated in place are last: they
    /// move to another set, and this one does not delete them.
    live: Vec<&'a Machine>,
    /// The Machines chosen by the autoscaler, which no longer serve.
    chosen: ChosenMachines,
    unreadable: i64,
    creating: i64,
    /// Machines whose delete call is in flight: they count as existing and as not available.
    deleting: i64,
    terminating: i64,
}

fn sets_of<'a>(snapshot: &'a Snapshot, steps: &[Step<Action>], updates: &'a InPlaceChanges) -> Vec<LintedSet<'a>> {
    let deployment = &snapshot.deployment;
    let Ok(selector) = Selector::parse(deployment.spec.selector.as_ref()) else { return Vec::new() };
    let uid = deployment.metadata.uid.as_deref().unwrap_or_default();
    let is_own = |set: &&Arc<MachineSet>| {
        let meta = &set.metadata;
        let is_adopted = owner::controller_of(meta).is_none() && meta.deletion_timestamp.is_none();
        selector.matches(meta.labels.as_ref()) && (is_adopted || owner::is_controlled_by(meta, uid))
    };
    let (nothing, choice, annotated) =
        (SetWritesInFlight::default(), AutoscalerRecord::from_deployment(deployment), annotated(steps));
    let own = snapshot.sets.iter().filter(is_own);
    own.map(|set| {
        let uid = set.metadata.uid.as_deref().unwrap_or_default();
        let in_flight = snapshot.in_flight.get(uid).unwrap_or(&nothing);
        let mut machines: Vec<&Machine> = snapshot.machines.iter().map(Arc::as_ref).collect();
        machines.retain(|machine| match updates.moves.get(&machine.name_any()) {
            Some(to) => to == uid,
            None => owner::is_controlled_by(&machine.metadata, uid),
        });
        let unreadable: Vec<_> = snapshot.unreadable_machines.iter().filter(|machine| machine.set_uid == uid).collect();
        let mut known: HashSet<&str> = machines.iter().filter_map(|machine| machine.metadata.name.as_deref()).collect();
        known.extend(unreadable.iter().map(|machine| machine.name.as_str()));
        let creating = in_flight.creates.iter().filter(|name| !known.contains(name.as_str())).count();
        let (terminating, live): (Vec<&Machine>, Vec<&Machine>) =
            machines.iter().copied().partition(|machine| machine.is_terminating());
        let (deleting, mut live): (Vec<&Machine>, Vec<&Machine>) =
            live.into_iter().partition(|machine| in_flight.is_deleting(machine));
        live.sort_by_cached_key(|machine| {
            let after = machine.metadata.name.as_deref().and_then(|name| annotated.get(name));
            (in_place::was_updated(machine), DeletionOrder::for_machine(after.unwrap_or(machine), snapshot.now))
        });
        let (going, unreadable): (Vec<_>, Vec<_>) = unreadable.into_iter().partition(|machine| machine.is_terminating);
        let is_deleting = set.metadata.deletion_timestamp.is_some();
        let is_held = set.labels().contains_key(labels::SCALE_UP_DISABLED);
        let before = if is_deleting { 0 } else { i64::from(set.spec.replicas) };
        let is_new = set.spec.makes(&deployment.spec.template);
        LintedSet {
            set,
            is_held: (is_held, held_after(set, steps).unwrap_or(is_held)),
            updates,
            is_new,
            before,
            after: if is_deleting { 0 } else { replicas_after(set, steps).unwrap_or(before) },
            chosen: choice.among(live.iter().copied(), set, is_new),
            live,
            unreadable: length(unreadable.len()),
            creating: length(creating),
            deleting: length(deleting.len()),
            terminating: length(terminating.len() + going.len()),
        }
    })
    .collect()
}

/// The Machines whose annotations the steps change, after the change: a mark decides which of them a set deletes first.
fn annotated(steps: &[Step<Action>]) -> BTreeMap<String, Machine> {
    let mut machines = BTreeMap::new();
    for step in steps {
        let Action::PatchMachine { machine, patch } = &step.action else { continue };
        let Some(changes) = patch.pointer("/metadata/annotations").and_then(Value::as_object) else { continue };
        let after = machines.entry(machine.name_any()).or_insert_with(|| Machine::clone(machine));
        for (key, value) in changes {
            match value.as_str() {
                Some(text) => after.annotations_mut().insert(key.clone(), text.to_owned()),
                None => after.annotations_mut().remove(key),
            };
        }
    }
    machines
}

/// The replicas that the steps set on a set, if they do.
fn replicas_after(set: &MachineSet, steps: &[Step<Action>]) -> Option<i64> {
    steps.iter().find_map(|step| match &step.action {
        Action::PatchSet { set: patched, patch } if patched.metadata.uid == set.metadata.uid => {
            patch.get("spec")?.get("replicas").map(|replicas| replicas.as_i64().unwrap_or(0))
        }
        _ => None,
    })
}

/// The set has the label `scale-up-disabled` after the steps; `None` if they do not change it.
fn held_after(set: &MachineSet, steps: &[Step<Action>]) -> Option<bool> {
    steps.iter().find_map(|step| match &step.action {
        Action::PatchSet { set: patched, patch } if patched.metadata.uid == set.metadata.uid => {
            Some(!patch.get("metadata")?.get("labels")?.get(labels::SCALE_UP_DISABLED)?.is_null())
        }
        _ => None,
    })
}

impl LintedSet<'_> {
    fn asked_before(&self) -> i64 {
        self.asked(self.before, self.is_held.0)
    }

    fn asked_after(&self) -> i64 {
        self.asked(self.after, self.is_held.1)
    }

    /// Machines that stay or will be created; terminating ones do not count.
    fn asked(&self, replicas: i64, is_held: bool) -> i64 {
        let present = length(self.live.len()) + self.deleting + self.unreadable + self.creating;
        if is_held { present } else { present.max(replicas) }
    }

    /// How many Machines the set deletes as its surplus.
    fn surplus(&self, replicas: i64) -> usize {
        let candidates = self.live.iter().filter(|machine| !in_place::was_updated(machine)).count();
        candidates.saturating_sub(usize::try_from(replicas).unwrap_or(0))
    }

    fn available_before(&self) -> i64 {
        self.available(self.before, &self.updates.selected_before)
    }

    fn available_after(&self) -> i64 {
        self.available(self.after, &self.updates.selected_after)
    }

    fn available(&self, replicas: i64, selected: &BTreeSet<String>) -> i64 {
        let serves = |machine: &&&Machine| self.serves(machine) && !selected.contains(&machine.name_any());
        length(self.live.iter().skip(self.surplus(replicas)).filter(serves).count())
    }

    fn serves(&self, machine: &Machine) -> bool {
        machine.is_available() && !self.chosen.has(machine)
    }

    /// Machines that remain and are not available, while an available one was deleted before them.
    fn outliving(&self, replicas: i64) -> i64 {
        length(self.outlived(replicas).filter(|machine| !self.serves(machine)).count()) + self.unreadable
    }

    /// The same without available Machines that the autoscaler chose.
    fn unavailable_outliving(&self, replicas: i64) -> i64 {
        length(self.outlived(replicas).filter(|machine| !machine.is_available()).count()) + self.unreadable
    }

    /// Machines that remain while an available one was deleted before them.
    fn outlived(&self, replicas: i64) -> impl Iterator<Item = &&Machine> {
        let first_available = self.live.iter().position(|machine| self.serves(machine));
        let skipped = first_available.map_or(usize::MAX, |first| first.max(self.surplus(replicas)));
        self.live.iter().skip(skipped)
    }

    fn has_machines(&self) -> bool {
        !self.live.is_empty() || self.unreadable + self.creating + self.deleting + self.terminating > 0
    }
}

fn too_many(limits: &RolloutLimits, sets: &[LintedSet<'_>], created: i64) -> Option<PlanViolation> {
    let before: i64 = sets.iter().map(LintedSet::asked_before).sum();
    let after: i64 = sets.iter().map(LintedSet::asked_after).sum::<i64>() + created;
    let most = limits.replicas.saturating_add(limits.max_surge);
    (after > before && after > most).then(|| {
        let text = format!("{after} planned > {} replicas + {} maxSurge", limits.replicas, limits.max_surge);
        PlanViolation::new(PlanRule::TooManyMachines, text)
    })
}

fn too_few(limits: &RolloutLimits, sets: &[LintedSet<'_>]) -> Option<PlanViolation> {
    let before: i64 = sets.iter().map(LintedSet::available_before).sum();
    let after: i64 = sets.iter().map(LintedSet::available_after).sum();
    let outliving: i64 = match limits.strategy {
        // The new set shrinks only with `spec.replicas`, and then deletes by priority.
        StrategyType::RollingUpdate => {
            let deletes = |set: &&LintedSet<'_>| !set.is_new || set.after < set.before;
            sets.iter().filter(deletes).map(|set| set.outliving(set.after)).sum()
        }
        // A Node that is not available is updated where it is. A set that shrinks deletes by priority.
        StrategyType::InPlaceUpdate => {
            let deletes = |set: &&LintedSet<'_>| set.surplus(set.after) > set.surplus(set.before);
            sets.iter().filter(deletes).map(|set| set.unavailable_outliving(set.after)).sum()
        }
        StrategyType::Recreate => return None,
    };
    let (replicas, max_unavailable) = (limits.replicas, limits.max_unavailable);
    (after < before && after < replicas - max_unavailable - outliving).then(|| {
        let text = format!(
            "{after} available < {replicas} replicas - {max_unavailable} maxUnavailable - {outliving} out of service and kept"
        );
        PlanViolation::new(PlanRule::TooFewAvailable, text)
    })
}

fn overlap(limits: &RolloutLimits, sets: &[LintedSet<'_>], created: i64) -> Option<PlanViolation> {
    if limits.strategy != StrategyType::Recreate {
        return None;
    }
    let others = |set: Option<&LintedSet<'_>>| {
        let is_other = |other: &&LintedSet<'_>| set.is_none_or(|set| !Arc::ptr_eq(set.set, other.set));
        sets.iter().filter(is_other).find(|other| other.has_machines() || other.after > 0)
    };
    let growing = sets.iter().filter(|set| set.asked_after() > set.asked_before());
    let beside = growing.map(|set| others(Some(set))).chain((created > 0).then(|| others(None)));
    let text = |other: &LintedSet<'_>| {
        format!("machine set {} has machines, and Recreate replaces all at once", other.set.name_any())
    };
    beside.flatten().next().map(|other| PlanViolation::new(PlanRule::Overlap, text(other)))
}

fn deletes_owner(sets: &[LintedSet<'_>], steps: &[Step<Action>]) -> Option<PlanViolation> {
    let is_deleted = |set: &LintedSet<'_>| {
        steps.iter().any(|step| matches!(&step.action, Action::DeleteSet(deleted) if Arc::ptr_eq(deleted, set.set)))
    };
    let in_use = sets.iter().find(|set| is_deleted(set) && (set.has_machines() || set.after > 0))?;
    Some(PlanViolation::new(PlanRule::DeletesInUse, format!("machine set {} has machines", in_use.set.name_any())))
}

/// A Machine moves only after its Node was updated in place, and only from a set that does not replace it.
fn moves(snapshot: &Snapshot, limits: &RolloutLimits, steps: &[Step<Action>]) -> Option<PlanViolation> {
    let problem = |machine: &Machine, to: &str| {
        let from = owner::controller_of(&machine.metadata).map(|from| from.uid.as_str());
        let set_of = |uid: Option<&str>| snapshot.sets.iter().find(|set| set.metadata.uid.as_deref() == uid);
        if from == Some(to) {
            return None;
        }
        if limits.strategy != StrategyType::InPlaceUpdate || set_of(Some(to)).is_none() || machine.is_terminating() {
            return Some((PlanRule::TouchesForeign, "it is not updated in place"));
        }
        let is_held = set_of(from).is_some_and(|set| set.labels().contains_key(labels::SCALE_UP_DISABLED));
        if !is_held {
            return Some((PlanRule::TooManyMachines, "its set would replace it"));
        }
        let node = machine.node_name().and_then(|name| snapshot.nodes.get(name));
        let result = node.and_then(|node| in_place::result_of(node));
        let is_known = snapshot.nodes_unknown.is_none() && result == Some(UpdateResult::Successful);
        (!is_known).then_some((PlanRule::ActsOnUnknown, "its node does not report a successful update"))
    };
    moved(steps).find_map(|(machine, to)| {
        let (rule, text) = problem(machine, &to)?;
        Some(PlanViolation::new(rule, format!("machine {} would get another set, and {text}", machine.name_any())))
    })
}

fn length(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
