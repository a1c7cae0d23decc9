//! The steps in which one machine is replaced: another one is created first. An annotation of the Machine records how far it is, so
//! the command may end between any two steps, and continues when it is called again. Pure.

use std::{collections::BTreeSet, fmt};

use kube::ResourceExt;
use serde_json::{Value, json};

use super::{
    patch::{ObjectPatch, change, deleted, replaced},
    scale::{ScaledObject, count_of},
};
use crate::{
    api::{
        labels::{self, FIRST_PRIORITY, PRIORITY, REPLACEMENT},
        machine::{Machine, MachineSet, StrategyType},
    },
    cli::exit::ExitError,
};
use mcm_controllers::object::{deletion_order::DeletionOrder, owner::controller_of};
use mcm_insight::{
    family::is_frozen,
    story::{DEPLOYMENT, MACHINE, NamespaceFacts, SET},
};
use mcm_rules::plan::{SubjectRef, shell::resource_name};

/// The next step.
#[derive(Debug)]
pub(super) enum ReplacementStep {
    /// A patch.
    Write(ObjectPatch),
    /// A patch that deletes the Machine and no other one.
    Release(ObjectPatch),
    /// A patch that gives the replacement up: it deletes the machine that was added, if there is one, and never the Machine.
    GiveUp {
        patch: ObjectPatch,
        /// The name of the machine that was added.
        added: Option<String>,
    },
    /// A patch after which nothing is left to do.
    Last(ObjectPatch),
    /// Nothing can be written before something else happens, for which it waits.
    Wait(String),
    /// Nothing is left to do.
    Done(String),
}

/// A replacement that has begun, for the time after its Machine.
#[derive(Clone, Debug)]
pub(super) struct ReplacementState {
    owner: SubjectRef,
    /// The number of machines before it.
    replicas: i32,
}

/// The annotation.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ReplacementRecord {
    /// The number of machines before the replacement.
    replicas: i32,
    /// The number of other machines that were available before.
    available: usize,
    /// The other machines before, as [`short_name`] writes them: any other was added.
    others: Vec<String>,
    /// Another machine is available, and the Machine is the first that its set deletes.
    is_ready: bool,
}

impl fmt::Display for ReplacementRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { replicas, available, others, is_ready } = self;
        let ready = if *is_ready { ",ready" } else { "" };
        write!(f, "replicas={replicas},available={available},others={}{ready}", others.join("+"))
    }
}

impl ReplacementRecord {
    /// The record of a Machine. One that cannot be read counts as none: the replacement begins again.
    fn from_machine(machine: &Machine) -> Option<Self> {
        let text = machine.annotations().get(REPLACEMENT)?.as_str();
        let (text, is_ready) = match text.strip_suffix(",ready") {
            Some(text) => (text, true),
            None => (text, false),
        };
        let mut parts = text.split(',');
        let replicas = parts.next()?.strip_prefix("replicas=")?.parse().ok()?;
        let available = parts.next()?.strip_prefix("available=")?.parse().ok()?;
        let others = parts.next()?.strip_prefix("others=")?;
        let others = others.split('+').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        parts.next().is_none().then_some(Self { replicas, available, others, is_ready })
    }

    fn is_grown_to(&self, replicas: i32) -> bool {
        replicas == self.replicas.saturating_add(1)
    }
}

/// The name of a machine without that of its set, such as `-jpgkd`.
fn short_name<'a>(name: &'a str, set: &str) -> &'a str {
    name.strip_prefix(set).filter(|rest| rest.starts_with('-')).unwrap_or(name)
}

/// A Machine with the objects that create another one.
struct ReplacedMachine<'a> {
    facts: &'a NamespaceFacts,
    object: SubjectRef,
    machine: &'a Machine,
    set: &'a MachineSet,
    scaled: ScaledObject<'a>,
    record: Option<ReplacementRecord>,
}

/// The next step to replace a Machine. `begun` is the replacement that this process began or continued.
///
/// # Errors
/// The Machine cannot be replaced.
pub(super) fn next(
    facts: &NamespaceFacts,
    name: &str,
    begun: Option<&ReplacementState>,
) -> Result<ReplacementStep, ExitError> {
    let Some(machine) = facts.machines.get(name) else { return after(facts, name, begun) };
    let replaced = ReplacedMachine::find(facts, name, machine)?;
    if machine.is_terminating() {
        let begun = replaced.state().or_else(|| begun.cloned());
        return after(facts, name, begun.as_ref());
    }
    let replicas = replaced.scaled.replicas;
    match &replaced.record {
        Some(record) if record.is_ready && record.is_grown_to(replicas) => {
            Ok(ReplacementStep::Release(replaced.release(record)))
        }
        Some(record) if record.is_ready && record.replicas == replicas => {
            Ok(ReplacementStep::Wait(format!("MachineSet {} to delete Machine {name}", replaced.set.name_any())))
        }
        Some(record) if record.is_grown_to(replicas) => Ok(replaced.once_available(record)),
        Some(record) if record.replicas == replicas => {
            replaced.may_be_replaced()?;
            Ok(ReplacementStep::Write(replaced.grow()))
        }
        // Another client changed the number meanwhile: the Deployment returns to its number.
        _ => {
            replaced.may_be_replaced()?;
            Ok(ReplacementStep::Write(replaced.mark()))
        }
    }
}

/// The next step to give a replacement up.
///
/// # Errors
/// No replacement of the Machine is under way, or its set would delete another machine than the added one.
pub(super) fn next_to_stop(facts: &NamespaceFacts, name: &str) -> Result<ReplacementStep, ExitError> {
    let machine = facts.machines.get(name).filter(|machine| !machine.is_terminating());
    let why = || format!("mcm why machine/{name} -n {}", facts.namespace);
    let Some(machine) = machine else {
        return Err(ExitError::no(format!("Machine {name} is being deleted, which cannot be undone"), why()));
    };
    let replaced = ReplacedMachine::find(facts, name, machine)?;
    let Some(record) = &replaced.record else {
        return Err(ExitError::no(format!("no replacement of Machine {name} is under way"), why()));
    };
    let (is_grown, added) = (record.is_grown_to(replaced.scaled.replicas), replaced.added(record));
    if let Some(added) = added.filter(|_| is_grown || record.is_ready) {
        replaced.goes_first(added)?;
        if !is_first(added) {
            return Ok(ReplacementStep::Write(replaced.choose_added(added)));
        }
    }
    if record.is_ready {
        return Ok(ReplacementStep::Write(replaced.keep(record)));
    }
    if is_grown {
        return Ok(replaced.shrink(record, added));
    }
    let says = format!("gives the replacement of Machine {name} up: it stays");
    Ok(ReplacementStep::Last(replaced.annotate(json!({ REPLACEMENT: null }), says)))
}

/// The replacement of a Machine that has begun, from its annotation.
pub(super) fn state_of(facts: &NamespaceFacts, name: &str) -> Option<ReplacementState> {
    ReplacedMachine::find(facts, name, facts.machines.get(name)?).ok()?.state()
}

/// The Machine is gone or leaves: what is left is the number of machines.
fn after(facts: &NamespaceFacts, name: &str, begun: Option<&ReplacementState>) -> Result<ReplacementStep, ExitError> {
    let why = format!("mcm why machine/{name} -n {}", facts.namespace);
    let Some(ReplacementState { owner, replicas }) = begun else {
        return Err(ExitError::no(format!("Machine {name} is being deleted"), why));
    };
    let scaled = ScaledObject::find(facts, owner, "")?;
    let SubjectRef { kind, name: of, .. } = owner;
    if scaled.replicas != replicas.saturating_add(1) {
        return Ok(ReplacementStep::Done(format!("Machine {name} leaves, and {kind} {of} has another one")));
    }
    let says = format!("returns {kind} {of} to {}, because Machine {name} left meanwhile", count_of(*replicas));
    Ok(ReplacementStep::Last(ObjectPatch { needs_consent: true, ..scaled.patch(*replicas, says) }))
}

impl<'a> ReplacedMachine<'a> {
    fn find(facts: &'a NamespaceFacts, name: &str, machine: &'a Machine) -> Result<Self, ExitError> {
        let (object, namespace) = (facts.subject(MACHINE, name), &facts.namespace);
        let owner = controller_of(&machine.metadata);
        let set = owner.filter(|owner| owner.kind == SET).and_then(|owner| facts.sets.get(&owner.name));
        let Some(set) = set else {
            let message = match owner {
                Some(owner) => format!("{} {} controls Machine {name}, so no set replaces it", owner.kind, owner.name),
                None => format!("no MachineSet controls Machine {name}, so none replaces it"),
            };
            return Err(ExitError::no(message, format!("mcm why machine/{name} -n {namespace}")));
        };
        let deployment = controller_of(&set.metadata).filter(|owner| owner.kind == DEPLOYMENT);
        let owner = match deployment {
            Some(owner) => facts.subject(DEPLOYMENT, &owner.name),
            None => facts.subject(SET, &set.name_any()),
        };
        let scaled = ScaledObject::find(facts, &owner, "")?;
        let record = ReplacementRecord::from_machine(machine);
        Ok(Self { facts, object, machine, set, scaled, record })
    }

    fn state(&self) -> Option<ReplacementState> {
        Some(ReplacementState { owner: self.scaled.object.clone(), replicas: self.record.as_ref()?.replicas })
    }

    /// The other machines that are not deleted.
    fn others(&self) -> Vec<&'a Machine> {
        let sets = match self.scaled.kind {
            DEPLOYMENT => self.facts.sets_of(&self.scaled.object.name),
            _ => vec![self.set.name_any()],
        };
        let machines = sets.iter().flat_map(|set| self.facts.machines_of_set(set));
        machines.filter(|machine| machine.name_any() != self.object.name && !machine.is_terminating()).collect()
    }

    fn available(&self) -> usize {
        self.others().iter().filter(|machine| machine.is_available()).count()
    }

    /// The machine that the replacement added: a new one that is not available, else the newest.
    fn added(&self, record: &ReplacementRecord) -> Option<&'a Machine> {
        let (set, known): (_, BTreeSet<&str>) =
            (self.set.name_any(), record.others.iter().map(String::as_str).collect());
        let others = self.others().into_iter();
        let new = others.filter(|machine| !known.contains(short_name(&machine.name_any(), &set)));
        new.max_by_key(|machine| (!machine.is_available(), machine.creation_timestamp(), machine.name_any()))
    }

    /// Refuses if the set would delete another machine before the added one, although that gets the first priority.
    fn goes_first(&self, added: &Machine) -> Result<(), ExitError> {
        let (now, SubjectRef { name, namespace, .. }) = (self.facts.now, &self.object);
        let chosen = with_priority(added, Some(FIRST_PRIORITY));
        // The Machine loses its priority first.
        let kept = if self.is_chosen() { with_priority(self.machine, None) } else { self.machine.clone() };
        let mut others: Vec<&Machine> = self.others();
        others.retain(|machine| machine.metadata.name != added.metadata.name);
        others.push(&kept);
        let order = DeletionOrder::for_machine(&chosen, now);
        let earlier = others.into_iter().find(|machine| DeletionOrder::for_machine(machine, now) < order);
        let Some(earlier) = earlier else { return Ok(()) };
        let (added_name, earlier) = (added.name_any(), earlier.name_any());
        let hint = match added.preserved_until(now).is_some() {
            true => format!("mcm machine preserve {added_name} -n {namespace} --stop"),
            false => format!(
                "kubectl get {} {earlier} -n {namespace} -o yaml shows the annotation {PRIORITY}",
                resource_name(MACHINE)
            ),
        };
        let message = format!(
            "one machine less would delete {earlier} before {added_name}, which the replacement of Machine {name} added, so nothing was written"
        );
        Err(ExitError::no(message, hint))
    }

    /// The machine that was added becomes the first that its set deletes.
    fn choose_added(&self, added: &Machine) -> ObjectPatch {
        let (name, added_name) = (&self.object.name, added.name_any());
        let says =
            format!("gives the replacement of Machine {name} up: {added_name} is deleted instead, and {name} stays");
        let patch = json!({ "metadata": { "annotations": { PRIORITY: FIRST_PRIORITY } } });
        let object = self.facts.subject(MACHINE, &added_name);
        ObjectPatch { needs_consent: true, ..change(&object, &added.metadata, patch, says) }
    }

    /// The machine that was added is no longer the first that its set deletes.
    fn keep_added(&self, added: &Machine) -> ObjectPatch {
        let added_name = added.name_any();
        let says = format!("{added_name} is no longer next to be deleted");
        let patch = json!({ "metadata": { "annotations": { PRIORITY: null } } });
        change(&self.facts.subject(MACHINE, &added_name), &added.metadata, patch, says)
    }

    /// One machine less: the machine that was added leaves.
    fn shrink(&self, record: &ReplacementRecord, added: Option<&Machine>) -> ReplacementStep {
        let (SubjectRef { kind, name: owner, .. }, added) = (&self.scaled.object, added.map(ResourceExt::name_any));
        let effect = match &added {
            Some(added) => format!("which deletes {added}"),
            None => "before another machine is created".to_owned(),
        };
        let says = format!("{kind} {owner} returns to {}, {effect}", count_of(record.replicas));
        let patch = ObjectPatch { needs_consent: true, ..self.scaled.patch(record.replicas, says) };
        ReplacementStep::GiveUp { patch, added }
    }

    /// Records the number of machines. It has no effect on the controllers.
    fn mark(&self) -> ObjectPatch {
        let (SubjectRef { kind, name: owner, .. }, name) = (&self.scaled.object, &self.object.name);
        let says = format!(
            "replaces Machine {name} of {kind} {owner}: creates another one first, and deletes {name} once that is available"
        );
        let (replicas, available, set) = (self.scaled.replicas, self.available(), self.set.name_any());
        let others = self.others().into_iter();
        let others = others.map(|machine| short_name(&machine.name_any(), &set).to_owned()).collect();
        let record = ReplacementRecord { replicas, available, others, is_ready: false };
        let mut annotations = json!({ REPLACEMENT: record.to_string() });
        if self.is_chosen() {
            annotations[PRIORITY] = Value::Null;
        }
        let ObjectPatch { planned, warnings, .. } = self.grow();
        ObjectPatch { planned, warnings, needs_consent: true, ..self.annotate(annotations, says) }
    }

    /// One machine more.
    fn grow(&self) -> ObjectPatch {
        let (SubjectRef { kind, name, .. }, replicas) = (&self.scaled.object, self.scaled.replicas);
        let says = format!("{kind} {name} gets one machine more, {} instead of {replicas}", replicas.saturating_add(1));
        ObjectPatch { needs_consent: true, ..self.scaled.patch(replicas.saturating_add(1), says) }
    }

    /// Another machine is available: the Machine becomes the first that its set deletes.
    fn once_available(&self, record: &ReplacementRecord) -> ReplacementStep {
        // It is, if giving the replacement up ended half-way.
        if let Some(added) = self.added(record).filter(|added| is_first(added)) {
            return ReplacementStep::Write(self.keep_added(added));
        }
        let available = self.available();
        let needed = record.available.saturating_add(1);
        if available >= needed {
            let record = ReplacementRecord { is_ready: true, ..record.clone() };
            let annotations = json!({ REPLACEMENT: record.to_string(), PRIORITY: FIRST_PRIORITY });
            let says = format!("{} is next to be deleted: {available} others are available", self.object.name);
            return ReplacementStep::Write(ObjectPatch { needs_consent: true, ..self.annotate(annotations, says) });
        }
        let others = self.others();
        let starting = others.iter().filter(|machine| !machine.is_available());
        let starting: Vec<String> = starting.map(|machine| phase_of(machine)).collect();
        let names = if starting.is_empty() { "another machine".to_owned() } else { starting.join(", ") };
        ReplacementStep::Wait(format!("{names} to become available ({available} others of {needed} are)"))
    }

    /// One machine less, which is the Machine.
    fn release(&self, record: &ReplacementRecord) -> ObjectPatch {
        let (SubjectRef { kind, name: owner, .. }, name) = (&self.scaled.object, &self.object.name);
        let says = format!("{kind} {owner} returns to {}, which deletes {name}", count_of(record.replicas));
        ObjectPatch { needs_consent: true, ..self.scaled.patch(record.replicas, says) }
    }

    /// The Machine is no longer the first that its set deletes.
    fn keep(&self, record: &ReplacementRecord) -> ObjectPatch {
        let record = ReplacementRecord { is_ready: false, ..record.clone() };
        let says = format!("{} is no longer next to be deleted", self.object.name);
        self.annotate(json!({ REPLACEMENT: record.to_string(), PRIORITY: null }), says)
    }

    fn is_chosen(&self) -> bool {
        self.record.as_ref().is_some_and(|record| record.is_ready)
    }

    fn annotate(&self, annotations: Value, says: String) -> ObjectPatch {
        let patch = json!({ "metadata": { "annotations": annotations } });
        change(&self.object, &self.machine.metadata, patch, says)
    }

    /// Refuses where a larger number of machines creates none, or where the set may delete another machine than this one.
    fn may_be_replaced(&self) -> Result<(), ExitError> {
        let SubjectRef { name, namespace, .. } = &self.object;
        let SubjectRef { kind, name: owner, .. } = &self.scaled.object;
        deleted(&self.scaled.object, self.scaled.meta())?;
        if let Some(controller) = controller_of(self.scaled.meta()) {
            let message = format!(
                "{} {} sets the replicas of {kind} {owner}, so Machine {name} is replaced there",
                controller.kind, controller.name
            );
            return Err(ExitError::no(message, format!("mcm tree {owner} -n {namespace}")));
        }
        if self.machine.preserved_until(self.facts.now).is_some() {
            let message = format!("Machine {name} is preserved, so its set deletes another one before it");
            return Err(ExitError::no(message, format!("mcm machine preserve {name} -n {namespace} --stop")));
        }
        let set = self.set.name_any();
        if is_frozen(self.set) || self.set.labels().contains_key(labels::SCALE_UP_DISABLED) {
            let message = format!("MachineSet {set} is frozen, so it creates no machine");
            return Err(ExitError::no(message, format!("mcm unfreeze machineset/{set} -n {namespace}")));
        }
        let Some(family) = self.facts.family(owner).filter(|_| self.scaled.kind == DEPLOYMENT) else { return Ok(()) };
        if family.deployment.spec.strategy.kind() == Some(StrategyType::InPlaceUpdate) {
            let message = format!(
                "MachineDeployment {owner} has the strategy InPlaceUpdate, which keeps each machine and its disks"
            );
            return Err(ExitError::no(message, format!("mcm why machine/{name} -n {namespace}")));
        }
        if family.deployment.spec.paused {
            let message = format!("MachineDeployment {owner} is paused");
            return Err(ExitError::no(message, format!("mcm rollout resume {owner} -n {namespace}")));
        }
        let new = family.new_set();
        if new.map(ResourceExt::name_any) != Some(set) || replaced(self.facts, &family, new) > 0 {
            let message =
                format!("a rollout of MachineDeployment {owner} is under way, which replaces machines itself");
            return Err(ExitError::no(message, format!("mcm rollout status {owner} -n {namespace}")));
        }
        Ok(())
    }
}

/// The machine has the priority with which its set deletes it before others.
fn is_first(machine: &Machine) -> bool {
    machine.annotations().get(PRIORITY).is_some_and(|priority| priority == FIRST_PRIORITY)
}

/// The machine with another priority, or without one.
fn with_priority(machine: &Machine, priority: Option<&str>) -> Machine {
    let mut machine = machine.clone();
    let annotations = machine.annotations_mut();
    match priority {
        Some(priority) => drop(annotations.insert(PRIORITY.to_owned(), priority.to_owned())),
        None => drop(annotations.remove(PRIORITY)),
    }
    machine
}

/// A machine with its phase.
fn phase_of(machine: &Machine) -> String {
    match machine.phase().as_str() {
        "" => machine.name_any(),
        phase => format!("{} ({phase})", machine.name_any()),
    }
}

#[cfg(test)]
mod tests;
