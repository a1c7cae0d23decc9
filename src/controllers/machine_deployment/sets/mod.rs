//! The sets of a deployment: which belong to it, which has the current template, and the numbers of each.

mod adoption;
pub(super) mod hash_label;
pub(super) mod history;
pub(super) mod naming;
pub(super) mod revision;
pub(super) mod rollback;

use std::{collections::BTreeMap, sync::Arc};

use adoption::{SetAdopter, heir_of};
use jiff::Timestamp;
use kube::ResourceExt;

use super::{
    Snapshot, UnreadableMachine,
    autoscaler::{AutoscalerRecord, ChosenMachines},
    counts::{ReplicaCounts, ScalableSet},
};
use crate::{
    machine_set::SetWritesInFlight,
    object::{
        deletion_order::{DeletionOrder, goes_first},
        draft::{DraftsByName, ObjectDraft},
        owner,
    },
};
use mcm_api::{
    labels,
    machine::{MOST_REPLICAS, Machine, MachineDeployment, MachineSet, MachineTemplate},
    selector::Selector,
};

/// A set and its Machines.
#[derive(Clone, Debug)]
pub(super) struct SetView {
    pub draft: ObjectDraft<MachineSet>,
    /// It has the current template.
    pub is_new: bool,
    /// Machines it controls.
    pub machines: Vec<Arc<Machine>>,
    /// Machines it controls that cannot be decoded.
    pub unreadable: Vec<UnreadableMachine>,
    /// Its writes in flight.
    pub in_flight: SetWritesInFlight,
    /// The Machines chosen by the autoscaler. The set deletes them and creates others.
    chosen: ChosenMachines,
    /// The Machines that the plan marks for the autoscaler, after the change: a mark decides which Machines the set
    /// deletes first.
    marked: BTreeMap<String, Machine>,
    /// The counts of its Machines.
    pub counts: ReplicaCounts,
    now: Timestamp,
}

/// All sets of a deployment.
#[derive(Clone, Debug, Default)]
pub(super) struct OwnedSets {
    /// The deployment's sets, oldest first.
    pub sets: Vec<SetView>,
    /// Sets that lost the labels of the selector and are released.
    pub released: Vec<ObjectDraft<MachineSet>>,
    /// Names of sets without a controller that may belong to several deployments. None adopts them.
    pub unclear: Vec<String>,
    /// Names of sets that cannot be decoded (one may be the new set), and of Machines of unknown sets.
    pub unknown: Vec<String>,
}

impl OwnedSets {
    /// The sets that the deployment controls. Adopts selected sets without a controller, unless they belong to another
    /// deployment. Releases sets whose labels were changed; sets that an earlier selector chose are old sets.
    pub(super) fn claim(snapshot: &Snapshot, selector: &Selector) -> Self {
        let deployment = &snapshot.deployment;
        let mut owned = Vec::new();
        let mut released = Vec::new();
        let mut unclear = Vec::new();
        for set in &snapshot.sets {
            let matches = selector.matches(set.metadata.labels.as_ref());
            let mut draft = ObjectDraft::new(set.clone());
            if is_controlled(deployment, set) {
                if matches || !is_relabelled(set) {
                    owned.push(draft);
                } else if !snapshot.strays.has(set) {
                    release(&mut draft, deployment);
                    released.push(draft);
                }
            } else if matches && set.metadata.deletion_timestamp.is_none() {
                match heir_of(set, deployment, &snapshot.rivals) {
                    SetAdopter::Own if adopt(&mut draft, deployment) => owned.push(draft),
                    SetAdopter::Unclear => unclear.push(set.name_any()),
                    SetAdopter::Own | SetAdopter::Other => {}
                }
            }
        }
        Self { released, unclear, ..Self::of_sets(snapshot, owned) }
    }

    /// The sets that the deployment controls, with any labels: all of them are deleted with it.
    pub(super) fn controlled(snapshot: &Snapshot) -> Self {
        let own = snapshot.sets.iter().filter(|set| is_controlled(&snapshot.deployment, set));
        Self::of_sets(snapshot, own.cloned().map(ObjectDraft::new).collect())
    }

    fn of_sets(snapshot: &Snapshot, mut drafts: Vec<ObjectDraft<MachineSet>>) -> Self {
        drafts.sort_by_cached_key(|draft| {
            let metadata = &draft.current().metadata;
            (metadata.creation_timestamp.clone(), metadata.name.clone())
        });
        let mut machines: BTreeMap<&str, Vec<Arc<Machine>>> = BTreeMap::new();
        for machine in &snapshot.machines {
            if let Some(owner) = owner::controller_of(&machine.metadata) {
                machines.entry(&owner.uid).or_default().push(machine.clone());
            }
        }
        let mut unknown = snapshot.unreadable_sets.clone();
        let mut unreadable: BTreeMap<&str, Vec<UnreadableMachine>> = BTreeMap::new();
        for machine in &snapshot.unreadable_machines {
            unreadable.entry(&machine.set_uid).or_default().push(machine.clone());
        }
        let new = find_new(&drafts, &snapshot.deployment.spec.template);
        let choice = AutoscalerRecord::from_deployment(&snapshot.deployment);
        let sets = drafts.into_iter().enumerate().map(|(index, draft)| {
            let uid = draft.current().metadata.uid.as_deref().unwrap_or_default();
            let machines = machines.remove(uid).unwrap_or_default();
            let unreadable = unreadable.remove(uid).unwrap_or_default();
            let in_flight = snapshot.in_flight.get(uid).cloned().unwrap_or_default();
            let (is_new, now, counts) = (Some(index) == new, snapshot.now, ReplicaCounts::default());
            let chosen = choice.among(machines.iter().map(Arc::as_ref), draft.current(), is_new);
            let marked = BTreeMap::new();
            SetView { draft, is_new, machines, unreadable, in_flight, chosen, marked, counts, now }.counted()
        });
        let sets = sets.collect();
        unknown.extend(unreadable.into_values().flatten().map(|machine| machine.name));
        Self { sets, released: Vec::new(), unclear: Vec::new(), unknown }
    }

    /// From now on the Machines count as marked.
    pub(super) fn see_marks(&mut self, marks: &DraftsByName<Machine>) {
        for set in &mut self.sets {
            let marked = set.machines.iter().filter(|machine| marks.has(machine));
            set.marked = marked.map(|machine| (machine.name_any(), marks.desired(machine).clone())).collect();
            if !set.marked.is_empty() {
                set.counts = set.counts_by(Machine::is_available);
            }
        }
    }

    /// The set with the current template.
    pub(super) fn new_set(&self) -> Option<&SetView> {
        self.sets.iter().find(|set| set.is_new)
    }

    pub(super) fn new_set_mut(&mut self) -> Option<&mut SetView> {
        self.sets.iter_mut().find(|set| set.is_new)
    }

    /// All other sets, oldest first.
    pub(super) fn old_sets(&self) -> impl Iterator<Item = &SetView> {
        self.sets.iter().filter(|set| !set.is_new)
    }

    pub(super) fn old_sets_mut(&mut self) -> impl Iterator<Item = &mut SetView> {
        self.sets.iter_mut().filter(|set| !set.is_new)
    }

    /// An old set has Machines or may create some.
    pub(super) fn is_rolling(&self) -> bool {
        self.old_sets().any(|set| set.counts.planned() > 0)
    }

    /// Machines of all sets.
    pub(super) fn current(&self) -> i32 {
        self.sets.iter().map(|set| set.counts.current()).sum()
    }

    /// Drafts of all sets, the new set first: it grows before others shrink.
    pub(super) fn into_drafts(self) -> impl Iterator<Item = ObjectDraft<MachineSet>> {
        let (new, old): (Vec<_>, Vec<_>) = self.sets.into_iter().partition(|set| set.is_new);
        new.into_iter().chain(old).map(|set| set.draft).chain(self.released)
    }
}

impl SetView {
    /// Plans read the counts many times, and there may be thousands of Machines.
    fn counted(mut self) -> Self {
        self.counts = self.counts_by(Machine::is_available);
        self
    }

    pub(super) fn name(&self) -> String {
        self.draft.current().name_any()
    }

    pub(super) fn is_deleting(&self) -> bool {
        self.draft.current().metadata.deletion_timestamp.is_some()
    }

    /// Its replicas after this plan.
    pub(super) fn desired_replicas(&self) -> i32 {
        if self.is_deleting() { 0 } else { self.draft.desired().spec.replicas }
    }

    /// The value of a numeric annotation.
    pub(super) fn number(&self, annotation: &str) -> Option<i32> {
        self.draft.current().annotations().get(annotation)?.parse().ok()
    }

    /// The set controller has observed the current generation, so it does not act on an earlier spec.
    pub(super) fn is_observed(&self) -> bool {
        let set = self.draft.current();
        let observed = set.status.as_ref().map_or(0, |status| status.observed_generation);
        self.is_deleting() || observed >= set.metadata.generation.unwrap_or_default()
    }

    /// It has no Machines and cannot create any.
    pub(super) fn is_gone(&self) -> bool {
        self.counts.planned() == 0 && self.is_observed()
    }

    /// It must not grow, because an in-place update moves its Machines to another set.
    pub(super) fn is_held(&self) -> bool {
        self.draft.current().labels().contains_key(labels::SCALE_UP_DISABLED)
    }

    /// A delete of the Machine is in flight.
    pub(super) fn is_going(&self, machine: &Machine) -> bool {
        machine.is_terminating() || self.in_flight.is_deleting(machine)
    }

    /// Position of a Machine in the deletion order of the set.
    fn order<'a>(&'a self, machine: &'a Machine) -> DeletionOrder<'a> {
        DeletionOrder::for_machine(self.after_marks(machine), self.now)
    }

    /// The Machine as it is after this plan has marked it, if it does.
    fn after_marks<'a>(&'a self, machine: &'a Machine) -> &'a Machine {
        machine.metadata.name.as_ref().and_then(|name| self.marked.get(name)).unwrap_or(machine)
    }

    /// The counts, if these Machines are the available ones. They are computed from the Machines themselves, because the
    /// status of a set may be stale.
    pub(super) fn counts_by(&self, is_available: impl Fn(&Machine) -> bool) -> ReplicaCounts {
        let Self { machines, unreadable, in_flight, chosen, .. } = self;
        let live: Vec<&Machine> =
            machines.iter().map(Arc::as_ref).filter(|machine| !machine.is_terminating()).collect();
        let (deleting, staying): (Vec<&Machine>, Vec<&Machine>) =
            live.iter().copied().partition(|machine| in_flight.is_deleting(machine));
        let (available, idle): (Vec<&Machine>, Vec<&Machine>) =
            staying.into_iter().partition(|machine| is_available(machine) && !chosen.has(machine));
        let first_available = available.iter().map(|machine| self.order(machine)).min();
        let goes_first = |machine: &Machine| first_available.as_ref().is_none_or(|first| self.order(machine) < *first);
        let seen = machines.iter().filter(|machine| in_flight.is_creating(machine)).count();
        let seen = seen + unreadable.iter().filter(|machine| in_flight.creates.contains(&machine.name)).count();
        let lasting = unreadable.iter().filter(|machine| !machine.is_terminating).count();
        ReplicaCounts {
            replicas: if self.is_deleting() { 0 } else { self.draft.current().spec.replicas.clamp(0, MOST_REPLICAS) },
            live: i32_count(live.iter()),
            deleting: i32_count(deleting.iter()),
            unreadable: i32_count(0..lasting),
            creating: i32_count(in_flight.creates.iter().skip(seen)),
            terminating: i32_count(live.len()..machines.len()) + i32_count(lasting..unreadable.len()),
            available: i32_count(available.iter()),
            expendable: i32_count(idle.iter().filter(|machine| goes_first(machine))),
        }
    }

    /// The input of scaling for this set.
    pub(super) fn scalable(&self) -> ScalableSet {
        let live = self.machines.iter().filter(|machine| !self.is_going(machine));
        ScalableSet {
            counts: self.counts,
            chosen: i32_count(live.filter(|machine| goes_first(self.after_marks(machine)))),
            is_new: self.is_new,
            desired: self.number(labels::DESIRED_REPLICAS),
            max: self.number(labels::MAX_REPLICAS),
        }
    }
}

/// Converts a count to the API's type.
pub(super) fn i32_count<T>(items: impl Iterator<Item = T>) -> i32 {
    i32::try_from(items.count()).unwrap_or(i32::MAX)
}

fn is_controlled(deployment: &MachineDeployment, set: &MachineSet) -> bool {
    deployment.metadata.uid.as_deref().is_some_and(|uid| owner::is_controlled_by(&set.metadata, uid))
}

/// The labels of the set do not match its selector, so a client changed them.
fn is_relabelled(set: &MachineSet) -> bool {
    !Selector::parse(set.spec.selector.as_ref()).is_ok_and(|selector| selector.matches(set.metadata.labels.as_ref()))
}

/// False if the set has a controller already.
fn adopt(draft: &mut ObjectDraft<MachineSet>, deployment: &MachineDeployment) -> bool {
    let reference = owner::reference_to(deployment);
    let owners = reference.and_then(|reference| owner::adopted(&draft.current().metadata, &reference));
    let is_adopted = owners.is_some();
    if is_adopted {
        let reason = format!("adopt set {}: its labels match and it has no controller", draft.current().name_any());
        draft.edit(reason, |set| set.metadata.owner_references = owners);
    }
    is_adopted
}

fn release(draft: &mut ObjectDraft<MachineSet>, deployment: &MachineDeployment) {
    let uid = deployment.metadata.uid.as_deref().unwrap_or_default();
    let owners = owner::released(&draft.current().metadata, uid);
    let reason = format!("release set {}: its labels no longer match", draft.current().name_any());
    draft.edit(reason, |set| set.metadata.owner_references = owners);
}

/// The oldest set of the template; a terminating set only if there is no other. Without one, a set that was created for this
/// template, and that the API server stored with another one.
fn find_new(drafts: &[ObjectDraft<MachineSet>], template: &MachineTemplate) -> Option<usize> {
    let is_deleting = |draft: &ObjectDraft<MachineSet>| draft.current().metadata.deletion_timestamp.is_some();
    let first = |is_new: &dyn Fn(&MachineSet) -> bool| {
        let equal = || drafts.iter().enumerate().filter(|(_, draft)| is_new(draft.current()));
        equal().find(|(_, draft)| !is_deleting(draft)).or_else(|| equal().next()).map(|(index, _)| index)
    };
    first(&|set| set.spec.makes(template)).or_else(|| first(&|set| naming::was_made_for(set, template)))
}

#[cfg(test)]
mod tests;
