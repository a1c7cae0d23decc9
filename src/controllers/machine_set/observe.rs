use std::sync::Arc;

use kube::ResourceExt;

use super::{
    MachineSetReconciler, Snapshot,
    apply::{Memory, SetSession},
    claim::selects,
};
use crate::{machine, machine_class, object::owner};
use mcm_api::{
    machine::{Machine, MachineSet, is_auto_preserved},
    selector::Selector,
};
use mcm_runtime::{cache::Key, reconcile::SnapshotReader};

impl SnapshotReader for MachineSetReconciler {
    type Key = Key;
    type Snapshot = Snapshot;
    type Memory = Memory;
    type Session = SetSession;

    fn namespaces(&self, key: &Key) -> Vec<String> {
        vec![key.namespace.clone()]
    }

    /// `None` if the set does not exist.
    fn observe(&self, key: &Key, memory: &Memory, _: &SetSession) -> Option<Snapshot> {
        let (now, seed) = (self.clock.now(), (self.entropy)());
        let set = self.sets.cache.get(key)?;
        let uid = set.uid().unwrap_or_default();
        let cache = &self.machines.cache;
        let mut machines = cache.by(machine::BY_CONTROLLER, &uid);
        let mut orphans = Vec::new();
        if let Ok(selector) = Selector::parse(set.spec.selector.as_ref()) {
            orphans = cache.by(machine::BY_CONTROLLER, "");
            orphans.retain(|machine| {
                machine.metadata.namespace == set.metadata.namespace
                    && selector.matches(machine.metadata.labels.as_ref())
            });
        }
        let rivals = self.rivals_of(&set, &orphans);
        machines.extend(orphans);
        let strays = Selector::parse(set.spec.selector.as_ref()).map(|selector| {
            let find = |name: &str| cache.get(&Key::beside(&set.metadata, name));
            memory.strays.view(&uid, &selector, now, find)
        });
        let deployment = owner::controller_of(&set.metadata).and_then(|owner| {
            let found = self.deployments.get(&Key::beside(&set.metadata, &owner.name));
            found.filter(|deployment| deployment.metadata.uid.as_ref() == Some(&owner.uid))
        });
        let unreadable = cache.unreadable().into_iter();
        let unreadable: Vec<_> = unreadable.filter(|machine| owner::is_controlled_by(&machine.meta, &uid)).collect();
        let class = Key::beside(&set.metadata, &set.spec.template.spec.class.name);
        Some(Snapshot {
            hold: self.holds.hold_for(&set.metadata),
            is_class_unusable: machine_class::is_unusable(&self.classes.cache, &self.secrets.cache, &class),
            set,
            deployment,
            young_failures: self.recent.failures(machines.iter().map(Arc::as_ref), memory.replacements),
            rivals,
            machines,
            unreadable_preserved: unreadable.iter().filter(|machine| is_auto_preserved(&machine.meta)).count(),
            unreadable: unreadable.into_iter().filter_map(|machine| machine.meta.name).collect(),
            strays: strays.unwrap_or_default(),
            failure: memory.failure.clone(),
            now,
            seed,
        })
    }

    fn is_unreadable(&self, key: &Key) -> bool {
        self.sets.cache.is_unreadable(key)
    }
}

impl MachineSetReconciler {
    /// The sets that also select some of these Machines.
    fn rivals_of(&self, set: &MachineSet, orphans: &[Arc<Machine>]) -> Vec<Arc<MachineSet>> {
        if orphans.is_empty() {
            return Vec::new();
        }
        let mut sets = self.sets.cache.all();
        sets.retain(|other| {
            other.metadata.namespace == set.metadata.namespace
                && other.metadata.name != set.metadata.name
                && other.metadata.deletion_timestamp.is_none()
                && orphans.iter().any(|machine| selects(other, machine))
        });
        sets
    }
}
