//! The sets of a deployment: which are its own, which makes Machines of the current template, and what each amounts to.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{
    ResourceExt,
    core::{Selector, SelectorExt},
};

use super::{Snapshot, draft::Draft, rollout::Count, scale::Scalable};
use crate::api::{
    labels,
    machine::{API_VERSION, Machine, MachineDeployment, MachinePhase, MachineSet, MachineTemplate},
};

/// A set and its Machines.
#[derive(Clone, Debug)]
pub(super) struct SetView {
    pub draft: Draft<MachineSet>,
    /// Machines it controls.
    pub machines: Vec<Arc<Machine>>,
    /// Machines of it that exist but cannot be read.
    pub unreadable: i32,
    /// Machines that it may be creating right now.
    pub coming: i32,
}

/// All sets of a deployment.
#[derive(Clone, Debug, Default)]
pub(super) struct Family {
    /// The deployment's sets, oldest first.
    pub sets: Vec<SetView>,
    /// Which of them makes Machines of the current template.
    pub new: Option<usize>,
    /// Sets that are its own no longer.
    pub released: Vec<Draft<MachineSet>>,
    /// What cannot be read and is no Machine of a known set: it may be a set, even the new one.
    pub unknown: Vec<String>,
}

impl Family {
    /// Sorts the sets of a snapshot. Sets that carry the right labels and belong to nobody are adopted, sets that lost
    /// them are released.
    pub(super) fn gather(snapshot: &Snapshot, selector: &Selector) -> Self {
        let deployment = &snapshot.deployment;
        let mut drafts = Vec::new();
        let mut released = Vec::new();
        for set in &snapshot.sets {
            let matches = selector.matches(set.labels());
            let mut draft = Draft::of(set.clone());
            match controller_of(set.owner_references()) {
                Some(owner) if Some(&owner.uid) != deployment.metadata.uid.as_ref() => {}
                Some(_) if matches => drafts.push(draft),
                Some(_) => {
                    release(&mut draft, deployment);
                    released.push(draft);
                }
                None if matches && set.metadata.deletion_timestamp.is_none() => {
                    adopt(&mut draft, deployment);
                    drafts.push(draft);
                }
                None => {}
            }
        }
        Self { released, ..Self::of_sets(snapshot, drafts) }
    }

    /// The sets that the deployment controls, whatever their labels: all of them go when it is deleted.
    pub(super) fn controlled(snapshot: &Snapshot) -> Self {
        let uid = snapshot.deployment.metadata.uid.as_ref();
        let own = |set: &&Arc<MachineSet>| controller_of(set.owner_references()).map(|owner| &owner.uid) == uid;
        Self::of_sets(snapshot, snapshot.sets.iter().filter(own).cloned().map(Draft::of).collect())
    }

    fn of_sets(snapshot: &Snapshot, mut drafts: Vec<Draft<MachineSet>>) -> Self {
        drafts.sort_by_cached_key(|draft| {
            let metadata = &draft.seen().metadata;
            (metadata.creation_timestamp.clone(), metadata.name.clone())
        });
        let mut machines: BTreeMap<&str, Vec<Arc<Machine>>> = BTreeMap::new();
        for machine in &snapshot.machines {
            if let Some(owner) = controller_of(machine.owner_references()) {
                machines.entry(&owner.uid).or_default().push(machine.clone());
            }
        }
        let mut sets: Vec<SetView> = drafts
            .into_iter()
            .map(|draft| {
                let uid = draft.seen().metadata.uid.as_deref().unwrap_or_default();
                let machines = machines.remove(uid).unwrap_or_default();
                let coming = snapshot.coming.get(&draft.seen().name_any()).copied().unwrap_or_default();
                SetView { draft, machines, unreadable: 0, coming: i32::try_from(coming).unwrap_or(i32::MAX) }
            })
            .collect();
        let mut unknown = Vec::new();
        for name in &snapshot.unreadable {
            match sets.iter_mut().find(|set| is_machine_name(name, &set.name())) {
                Some(set) => set.unreadable += 1,
                None => unknown.push(name.clone()),
            }
        }
        let new = newest_template(&sets, &snapshot.deployment.spec.template);
        Self { sets, new, released: Vec::new(), unknown }
    }

    /// The set that makes Machines of the current template.
    pub(super) fn new_set(&self) -> Option<&SetView> {
        self.sets.get(self.new?)
    }

    /// All other sets, oldest first.
    pub(super) fn old_sets(&self) -> impl Iterator<Item = &SetView> {
        self.sets.iter().enumerate().filter(|(index, _)| Some(*index) != self.new).map(|(_, set)| set)
    }

    /// All other sets, oldest first, to be changed.
    pub(super) fn old_sets_mut(&mut self) -> impl Iterator<Item = &mut SetView> {
        let new = self.new;
        self.sets.iter_mut().enumerate().filter(move |(index, _)| Some(*index) != new).map(|(_, set)| set)
    }

    /// The set that makes Machines of the current template, to be changed.
    pub(super) fn new_set_mut(&mut self) -> Option<&mut SetView> {
        self.sets.get_mut(self.new?)
    }

    /// Some old set has Machines, or is about to make some.
    pub(super) fn is_rolling(&self) -> bool {
        self.old_sets().any(|set| set.count().planned() > 0)
    }

    /// Machines of all sets.
    pub(super) fn existing(&self) -> i32 {
        self.sets.iter().map(|set| set.count().existing()).sum()
    }
}

impl SetView {
    pub(super) fn name(&self) -> String {
        self.draft.seen().name_any()
    }

    pub(super) fn is_deleting(&self) -> bool {
        self.draft.seen().metadata.deletion_timestamp.is_some()
    }

    /// What the set is asked for after this plan.
    pub(super) fn wanted_replicas(&self) -> i32 {
        if self.is_deleting() { 0 } else { self.draft.wanted().spec.replicas }
    }

    /// An annotation with a number in it.
    pub(super) fn number(&self, annotation: &str) -> Option<i32> {
        self.draft.seen().annotations().get(annotation)?.parse().ok()
    }

    /// The set's controller has seen the set as it is, so nothing comes of what it was asked before.
    pub(super) fn is_observed(&self) -> bool {
        let set = self.draft.seen();
        let observed = set.status.as_ref().map_or(0, |status| status.observed_generation);
        self.is_deleting() || observed >= set.metadata.generation.unwrap_or_default()
    }

    /// Its Machines in numbers; from the Machines themselves, as a set's status lags behind.
    pub(super) fn count(&self) -> Count {
        let live = self.machines.iter().filter(|machine| !machine.is_terminating());
        let live_count = count_of(live.clone()) + self.unreadable;
        // A set deletes by priority first; an unhealthy Machine goes first only if no available one is worth less.
        let least = live.clone().filter(|machine| machine.is_available()).map(|machine| worth(machine)).min();
        let expendable = live.clone().filter(|machine| {
            let worth = worth(machine);
            let (_, unmarked) = worth;
            !machine.is_available()
                && !may_outlast(machine)
                && least.is_none_or(|least| worth < least || (worth == least && unmarked))
        });
        Count {
            spec: if self.is_deleting() { 0 } else { self.draft.seen().spec.replicas },
            live: live_count,
            coming: self.coming,
            terminating: count_of(self.machines.iter()) + self.unreadable - live_count,
            available: count_of(live.clone().filter(|machine| machine.is_available())),
            expendable: count_of(expendable),
        }
    }

    /// What scaling reads of it.
    pub(super) fn scalable(&self, is_new: bool) -> Scalable {
        Scalable {
            count: self.count(),
            is_new,
            desired: self.number(labels::DESIRED_REPLICAS),
            max: self.number(labels::MAX_REPLICAS),
        }
    }
}

/// The reference by which an object is controlled.
pub(super) fn controller_of(owners: &[OwnerReference]) -> Option<&OwnerReference> {
    owners.iter().find(|owner| owner.controller == Some(true))
}

/// The reference of a set to its deployment.
pub(super) fn owner_reference(deployment: &MachineDeployment) -> OwnerReference {
    OwnerReference {
        api_version: API_VERSION.to_owned(),
        kind: "MachineDeployment".to_owned(),
        name: deployment.name_any(),
        uid: deployment.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// Length as the API counts.
pub(super) fn count_of<T>(items: impl Iterator<Item = T>) -> i32 {
    i32::try_from(items.count()).unwrap_or(i32::MAX)
}

/// Other owners stay; the controller stands first, where the autoscaler looks for it.
fn adopt(draft: &mut Draft<MachineSet>, deployment: &MachineDeployment) {
    let own = owner_reference(deployment);
    draft.edit(format!("adopt set {}: its labels match and nobody controls it", draft.seen().name_any()), |set| {
        let owners = set.owner_references_mut();
        owners.retain(|owner| owner.uid != own.uid);
        owners.insert(0, own);
    });
}

/// Only the deployment's own reference goes.
fn release(draft: &mut Draft<MachineSet>, deployment: &MachineDeployment) {
    let own = deployment.metadata.uid.clone().unwrap_or_default();
    draft.edit(format!("release set {}: its labels do not match any more", draft.seen().name_any()), |set| {
        set.owner_references_mut().retain(|owner| owner.uid != own);
    });
}

/// The oldest set of the template; one that is being deleted only if there is no other.
fn newest_template(sets: &[SetView], template: &MachineTemplate) -> Option<usize> {
    let equal = || sets.iter().enumerate().filter(|(_, set)| set.draft.seen().spec.makes(template));
    equal().find(|(_, set)| !set.is_deleting()).or_else(|| equal().next()).map(|(index, _)| index)
}

/// A generated name below the set: its name, a dash, five characters.
fn is_machine_name(name: &str, set: &str) -> bool {
    name.strip_prefix(set)
        .and_then(|rest| rest.strip_prefix('-'))
        .is_some_and(|suffix| suffix.len() == 5 && suffix.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

/// What counts before health when a set chooses whom to delete: the lower goes first.
fn worth(machine: &Machine) -> (i32, bool) {
    let annotations = machine.annotations();
    let priority = annotations.get(labels::PRIORITY).and_then(|text| text.parse().ok());
    let marked = annotations.get(labels::MARKED_FOR_DELETION_TIME).is_some_and(|at| at.parse::<Timestamp>().is_ok());
    (priority.unwrap_or(labels::DEFAULT_PRIORITY), !marked)
}

/// An unhealthy Machine that a set may keep rather than one that serves: preserved, or in an in-place update.
fn may_outlast(machine: &Machine) -> bool {
    let preserved = machine.status.as_ref().is_some_and(|status| status.current_status.preserve_expiry_time.is_some());
    preserved
        || matches!(
            machine.phase(),
            MachinePhase::InPlaceUpdating | MachinePhase::InPlaceUpdateSuccessful | MachinePhase::InPlaceUpdateFailed
        )
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    const RUNNING: &str = "Running";

    /// A set of two Machines: one that serves, with these annotations, and one that does not.
    fn count_with(annotations: Value, unhealthy: Value) -> Count {
        let set = json!({"metadata": {"name": "set"}, "spec": {"replicas": 2}});
        let healthy = json!({"metadata": {"annotations": annotations}, "spec": {}, "status": {"currentStatus": {"phase": RUNNING}}});
        let read = |machine: Value| Arc::new(serde_json::from_value::<Machine>(machine).unwrap());
        let set = Draft::of(Arc::new(serde_json::from_value(set).unwrap()));
        SetView { draft: set, machines: vec![read(healthy), read(unhealthy)], unreadable: 1, coming: 1 }.count()
    }

    #[rstest]
    #[case::unhealthy_goes_first(json!({}), json!({"metadata": {}, "spec": {}}), 1)]
    #[case::unless_the_healthy_one_is_worth_less(json!({"machinepriority.machine.sapcloud.io": "1"}), json!({"metadata": {}, "spec": {}}), 0)]
    #[case::or_is_marked(json!({"machine.sapcloud.io/marked-for-deletion-time": "2026-01-01T00:00:00Z"}), json!({"metadata": {}, "spec": {}}), 0)]
    #[case::or_the_unhealthy_one_is_preserved(json!({}), json!({"metadata": {}, "spec": {}, "status": {"currentStatus": {"phase": "Failed", "preserveExpiryTime": "2026-01-01T00:00:00Z"}}}), 0)]
    #[case::or_is_being_updated(json!({}), json!({"metadata": {}, "spec": {}, "status": {"currentStatus": {"phase": "InPlaceUpdating"}}}), 0)]
    fn only_what_surely_goes_first_is_expendable(
        #[case] healthy: Value,
        #[case] unhealthy: Value,
        #[case] expendable: i32,
    ) {
        assert_eq!(
            count_with(healthy, unhealthy),
            Count { spec: 2, live: 3, coming: 1, terminating: 0, available: 1, expendable }
        );
    }

    #[rstest]
    #[case("pool-abcde-x7k2p", true)]
    #[case("pool-abcde-x7k2p-1", false)]
    #[case("pool-abcdf-x7k2p", false)]
    #[case("pool-abcde", false)]
    fn the_name_tells_whose_machine_it_is(#[case] name: &str, #[case] expected: bool) {
        assert_eq!(is_machine_name(name, "pool-abcde"), expected);
    }
}
