//! Rejects a plan that would break a bound. It computes from the objects and the steps which Machines belong to the
//! set, how many there would be and which may be deleted, without the planner's results.

use std::{collections::BTreeSet, sync::Arc};

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::Value;

use super::{Action, Snapshot};
use crate::object::{deletion_order::DeletionOrder, finalizer, in_place, owner};
use mcm_api::{
    labels,
    machine::{AUTO_PRESERVED, Machine, MachinePhase},
    patch,
    selector::Selector,
};
use mcm_rules::plan::{
    Step,
    lint::{PlanRule, PlanViolation},
};

/// The bounds that the steps would break.
pub(super) fn lint(snapshot: &Snapshot, steps: &[Step<Action>]) -> Vec<PlanViolation> {
    if steps.iter().all(|step| matches!(step.action, Action::WriteStatus(_))) {
        return Vec::new();
    }
    let facts = SetLintFacts::new(snapshot, steps);
    let checks = [
        facts.too_many_machines(),
        facts.grows_while_frozen(),
        facts.creates_and_deletes(),
        facts.loses_vm(),
        facts.touches_foreign(),
        facts.deletes_without_cause(),
        facts.deletes_in_use(),
    ];
    checks.into_iter().flatten().collect()
}

/// The set, its Machines and the steps of its plan.
struct SetLintFacts<'a> {
    snapshot: &'a Snapshot,
    steps: &'a [Step<Action>],
    is_deleting: bool,
    selector: Option<Selector>,
    replicas: usize,
    /// The Machines that it controls and selects, and the adoptable ones.
    own: Vec<&'a Machine>,
    created: Vec<&'a Machine>,
    deleted: Vec<&'a Machine>,
}

impl<'a> SetLintFacts<'a> {
    fn new(snapshot: &'a Snapshot, steps: &'a [Step<Action>]) -> Self {
        let set = &snapshot.set;
        let selector = Selector::parse(set.spec.selector.as_ref()).ok().filter(|selector| !selector.selects_none());
        let created = steps.iter().filter_map(|step| match &step.action {
            Action::CreateMachine(machine) => Some(&**machine),
            _ => None,
        });
        let deleted = steps.iter().filter_map(|step| match &step.action {
            // A Machine that the set created and that is not its own changes no number.
            Action::DeleteMachine(machine) if snapshot.strays.has(machine) => None,
            Action::DeleteMachine(machine) => Some(&**machine),
            _ => None,
        });
        let mut facts = Self {
            snapshot,
            steps,
            is_deleting: set.metadata.deletion_timestamp.is_some(),
            selector,
            replicas: usize::try_from(set.spec.replicas).unwrap_or_default(),
            own: Vec::new(),
            created: created.collect(),
            deleted: deleted.collect(),
        };
        let own = snapshot.machines.iter().map(Arc::as_ref).filter(|machine| facts.is_own(machine));
        facts.own = own.collect();
        facts
    }

    fn is_own(&self, machine: &Machine) -> bool {
        let meta = &machine.metadata;
        let is_selected = self.selector.as_ref().is_some_and(|selector| selector.matches(meta.labels.as_ref()));
        let is_orphan = owner::controller_of(meta).is_none() && meta.deletion_timestamp.is_none();
        if self.is_deleting {
            self.controls(machine) && (is_selected || self.selector.is_none())
        } else {
            is_selected && (self.controls(machine) || is_orphan)
        }
    }

    fn controls(&self, machine: &Machine) -> bool {
        let uid = self.snapshot.set.metadata.uid.as_deref();
        uid.is_some_and(|uid| owner::is_controlled_by(&machine.metadata, uid))
    }

    fn too_many_machines(&self) -> Option<PlanViolation> {
        let (created, replicas) = (self.created.len(), self.replicas);
        let present = self.own.iter().filter(|machine| !machine.is_terminating()).count();
        let unreadable = self.snapshot.unreadable.len();
        let text = if created > 0 && self.is_deleting {
            format!("{created} created for a set that is being deleted")
        } else if created > 0 && present + unreadable + created > replicas {
            format!("{present} machines + {unreadable} unreadable + {created} created > {replicas} replicas")
        } else {
            return None;
        };
        Some(PlanViolation::new(PlanRule::TooManyMachines, text))
    }

    fn grows_while_frozen(&self) -> Option<PlanViolation> {
        let of_set = self.snapshot.set.labels();
        let is_frozen = labels::is_true(&*self.snapshot.set, labels::FREEZE);
        let label = if is_frozen { labels::FREEZE } else { labels::SCALE_UP_DISABLED };
        let is_held = is_frozen || of_set.contains_key(label);
        (is_held && !self.created.is_empty())
            .then(|| PlanViolation::new(PlanRule::GrowsWhileFrozen, format!("the set has the label {label}")))
    }

    /// A plan with both creations and deletions would be ambiguous if it is interrupted.
    fn creates_and_deletes(&self) -> Option<PlanViolation> {
        let (created, deleted) = (self.created.len(), self.deleted.len());
        (created > 0 && deleted > 0).then(|| {
            PlanViolation::new(PlanRule::CreatesAndDeletes, format!("{created} created and {deleted} deleted"))
        })
    }

    /// Problems of a new Machine with which its VM could leak or belong to another Machine.
    fn loses_vm(&self) -> Option<PlanViolation> {
        let lack = |machine: &Machine| {
            if !finalizer::has(&machine.metadata, labels::FINALIZER) && !self.snapshot.is_class_unusable {
                Some("would be created without its finalizer".to_owned())
            } else if !self.controls(machine) || !self.is_own(machine) {
                Some("would be created without belonging to the set".to_owned())
            } else if !machine.spec.provider_id.is_empty() {
                Some(format!("would be created with spec.providerID {}", machine.spec.provider_id))
            } else {
                None
            }
        };
        let text =
            self.created.iter().find_map(|machine| Some(format!("machine {} {}", machine.name_any(), lack(machine)?)));
        text.map(|text| PlanViolation::new(PlanRule::LosesVm, text))
    }

    fn touches_foreign(&self) -> Option<PlanViolation> {
        let patched = self.steps.iter().filter_map(|step| match &step.action {
            Action::PatchMachine { machine, .. } => Some(machine),
            _ => None,
        });
        let is_foreign =
            |machine: &Machine| owner::controller_of(&machine.metadata).is_some() && !self.controls(machine);
        let foreign = patched.map(Arc::as_ref).find(|machine| is_foreign(machine));
        let may_go = |machine: &Machine| if self.is_deleting { self.controls(machine) } else { self.is_own(machine) };
        let foreign = foreign.or_else(|| self.deleted.iter().copied().find(|machine| !may_go(machine)));
        foreign.map(|machine| {
            PlanViolation::new(
                PlanRule::TouchesForeign,
                format!("machine {} does not belong to this set", machine.name_any()),
            )
        })
    }

    fn deletes_without_cause(&self) -> Option<PlanViolation> {
        if self.deleted.is_empty() {
            return None;
        }
        if self.is_deleting {
            let is_held = finalizer::has(&self.snapshot.set.metadata, labels::FINALIZER);
            let text = "the set has no finalizer, so another controller deletes its machines";
            return (!is_held).then(|| PlanViolation::new(PlanRule::TooManyDeleted, text));
        }
        let mut candidates: Vec<&Machine> = self.own.clone();
        candidates.retain(|machine| !machine.is_terminating() && !in_place::was_updated(machine));
        candidates.sort_by_cached_key(|machine| {
            (!self.is_chosen(machine), DeletionOrder::for_machine(machine, self.snapshot.now))
        });
        let present = candidates.len();
        // Machines that it replaces are part of the surplus.
        let is_replaced = |machine: &Machine| {
            let has_failed = machine.phase() == MachinePhase::Failed && self.preserved_by(machine).is_none();
            self.goes_beyond_the_number(machine) || has_failed
        };
        let replaced: BTreeSet<String> =
            self.deleted.iter().filter(|machine| is_replaced(machine)).map(|machine| machine.name_any()).collect();
        candidates.retain(|machine| !replaced.contains(&machine.name_any()));
        let others = candidates.len().saturating_sub(self.replicas);
        let surplus: BTreeSet<String> = candidates.iter().take(others).map(|machine| machine.name_any()).collect();
        let bound = format!(
            "it is not among the first {} in deletion order ({present} machines - {} replicas)",
            surplus.len(),
            self.replicas
        );
        self.deleted.iter().find_map(|machine| {
            let name = machine.name_any();
            if machine.is_terminating() || surplus.contains(&name) || self.goes_beyond_the_number(machine) {
                return None;
            }
            if let Some(why) = self.preserved_by(machine) {
                let text = format!("machine {name} is preserved ({why}); {bound}");
                return Some(PlanViolation::new(PlanRule::DeletesPreserved, text));
            }
            let is_replaced = machine.phase() == MachinePhase::Failed && !in_place::was_updated(machine);
            (!is_replaced).then(|| {
                PlanViolation::new(PlanRule::TooManyDeleted, format!("machine {name} has not failed; {bound}"))
            })
        })
    }

    /// The autoscaler marked it before it last changed the replicas.
    fn is_chosen(&self, machine: &Machine) -> bool {
        let time = |text: Option<&String>| text?.parse::<Timestamp>().ok();
        let of_machine = machine.annotations();
        let marked = time(of_machine.get(labels::MARKED_FOR_DELETION_TIME));
        let scaled = time(self.snapshot.set.annotations().get(labels::LAST_SCALER_CHANGE));
        of_machine.get(labels::PRIORITY).is_some_and(|value| value == "1")
            && marked.zip(scaled).is_some_and(|(marked, scaled)| marked <= scaled)
    }

    /// It is chosen, and the deployment has scaled the set for it.
    fn goes_beyond_the_number(&self, machine: &Machine) -> bool {
        let set = &self.snapshot.set;
        let scaled_for = set.annotations().get(labels::DESIRED_REPLICAS).and_then(|text| text.parse::<i32>().ok());
        let is_scaled = match &self.snapshot.deployment {
            Some(deployment) => scaled_for.is_none_or(|replicas| replicas == deployment.spec.replicas),
            None => owner::controller_of(&set.metadata).is_none(),
        };
        is_scaled && self.is_chosen(machine)
    }

    /// Until when a Machine is preserved after this plan, or because of which annotation.
    fn preserved_by(&self, machine: &Machine) -> Option<String> {
        if let Some(expiry) = machine.preserve_expiry() {
            return (expiry > self.snapshot.now).then(|| format!("until {expiry}"));
        }
        if machine.phase() != MachinePhase::Failed {
            return None;
        }
        let mut annotations = serde_json::to_value(&machine.metadata.annotations).unwrap_or_default();
        let patches = self.steps.iter().filter_map(|step| match &step.action {
            Action::PatchMachine { machine: patched, patch } if patched.metadata.name == machine.metadata.name => {
                patch.pointer("/metadata/annotations")
            }
            _ => None,
        });
        patches.for_each(|change| patch::apply(&mut annotations, change));
        let words = [labels::LAST_NODE_PRESERVE, labels::PRESERVE].map(|key| (key, annotations[key].as_str()));
        let known = ["now", "when-failed", AUTO_PRESERVED, "false"];
        let (key, word) =
            words.into_iter().find_map(|(key, word)| Some((key, word.filter(|word| known.contains(word))?)))?;
        (word != "false").then(|| format!("{key}={word}"))
    }

    /// Without its finalizer the set is deleted, and its Machines have no owner.
    fn deletes_in_use(&self) -> Option<PlanViolation> {
        let meta = &self.snapshot.set.metadata;
        let removes = |step: &Step<Action>| match &step.action {
            Action::PatchSet(patch) => {
                patch.pointer("/metadata/finalizers").is_some_and(|kept| !holds(kept, labels::FINALIZER))
            }
            _ => false,
        };
        let left = self.own.len() + self.snapshot.unreadable.len();
        let is_used = finalizer::has(meta, labels::FINALIZER) && left > 0 && self.steps.iter().any(removes);
        is_used.then(|| PlanViolation::new(PlanRule::DeletesInUse, format!("the set has {left} machines")))
    }
}

fn holds(list: &Value, name: &str) -> bool {
    list.as_array().into_iter().flatten().any(|one| one == name)
}
