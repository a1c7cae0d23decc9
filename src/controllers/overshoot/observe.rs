use std::{collections::BTreeSet, sync::Arc};

use kube::ResourceExt;

use super::{
    CountedSet, MachineSetGroup, Memory, Snapshot,
    apply::{OvershootReconciler, SubjectKey},
};
use crate::{
    machine, machine_deployment, machine_set,
    object::{
        deletion_order::{goes_first, marked_at},
        owner,
    },
};
use mcm_api::machine::{Machine, MachineDeployment, MachineSet};
use mcm_runtime::{
    cache::{Key, ObjectCache, UnreadableObject},
    reconcile::SnapshotReader,
    trust::MonitoredCache,
};

impl SnapshotReader for OvershootReconciler {
    type Key = SubjectKey;
    type Snapshot = Snapshot;
    type Memory = Memory;
    type Session = ();

    fn namespaces(&self, key: &SubjectKey) -> Vec<String> {
        vec![key.object().namespace]
    }

    /// `None` if there is nothing to check, or nothing may be touched now.
    fn observe(&self, subject: &SubjectKey, memory: &Memory, (): &()) -> Option<Snapshot> {
        let (deployment, sets, unreadable_sets) = match subject {
            MachineSetGroup::Deployment(key) => {
                let deployment =
                    self.deployments.cache.get(key).filter(|one| self.holds.hold_for(&one.metadata).is_none())?;
                let uid = deployment.uid().unwrap_or_default();
                let sets = self.sets.cache.by(machine_set::BY_CONTROLLER, &uid);
                let unreadable = self.sets.cache.unreadable().into_iter();
                let unreadable = unreadable.filter(|set| owner::is_controlled_by(&set.meta, &uid));
                (Some(deployment), sets, unreadable.filter_map(|set| set.meta.name).collect())
            }
            MachineSetGroup::Set(key) => {
                let is_it = |set: &Arc<MachineSet>| subject_of(&self.deployments.cache, set) == Some(subject.clone());
                let set = self.sets.cache.get(key).filter(is_it)?;
                if self.holds.hold_for(&set.metadata).is_some() {
                    return None;
                }
                (None, vec![set], Vec::new())
            }
        };
        let unreadable = self.machines.cache.unreadable();
        let chosen = deployment.as_deref().map(machine_deployment::chosen).unwrap_or_default();
        let sets = sets.into_iter().map(|set| self.count(set, &chosen, &unreadable)).collect();
        let memory = memory.clone();
        Some(Snapshot {
            policy: self.policy,
            deployment,
            sets,
            unreadable_sets,
            uncertain: self.uncertain(),
            memory,
            now: self.clock.now(),
        })
    }
}

impl OvershootReconciler {
    /// Machines that the autoscaler chose do not count: each lowers the replicas of the deployment at once, and exists until its
    /// Node is drained.
    fn count(&self, set: Arc<MachineSet>, chosen: &BTreeSet<&str>, unreadable: &[UnreadableObject]) -> CountedSet {
        let uid = set.uid().unwrap_or_default();
        let is_chosen = |machine: &Machine| {
            let is_listed = machine.metadata.name.as_deref().is_some_and(|name| chosen.contains(name));
            is_listed || goes_first(machine) && marked_at(machine).is_some()
        };
        let counted = |all: &[Arc<Machine>]| all.iter().filter(|machine| !is_chosen(machine)).count();
        let readable = self.machines.cache.with(machine::BY_CONTROLLER, &uid, counted);
        let unreadable = unreadable.iter().filter(|machine| owner::is_controlled_by(&machine.meta, &uid)).count();
        CountedSet { set, machines: readable.saturating_add(unreadable) }
    }

    /// Stale caches may lack Machines that exist.
    fn uncertain(&self) -> Option<String> {
        let caches: [&dyn MonitoredCache; 3] = [&*self.machines.cache, &*self.sets.cache, &*self.deployments.cache];
        caches.into_iter().find_map(|cache| Some(format!("{}: {}", cache.plural(), cache.trust().problem()?)))
    }
}

/// Under which subject a set is checked; `None` if its deployment cannot be decoded.
pub(super) fn subject_of(deployments: &ObjectCache<MachineDeployment>, set: &MachineSet) -> Option<SubjectKey> {
    let own = Key::from_meta(&set.metadata);
    let Some(reference) = owner::controller_of(&set.metadata) else { return Some(MachineSetGroup::Set(own)) };
    let key = Key::new(&own.namespace, &reference.name);
    let is_it = |uid: Option<&String>| uid == Some(&reference.uid);
    if deployments.get(&key).is_some_and(|deployment| is_it(deployment.metadata.uid.as_ref())) {
        return Some(MachineSetGroup::Deployment(key));
    }
    let is_unreadable = |other: &UnreadableObject| is_it(other.meta.uid.as_ref());
    (!deployments.unreadable().iter().any(is_unreadable)).then_some(MachineSetGroup::Set(own))
}
