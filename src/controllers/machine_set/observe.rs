use std::sync::Arc;

use kube::ResourceExt;

use super::{MachineSets, Snapshot, apply::Memory};
use crate::{
    api::{machine::is_auto_preserved, selector::Selector},
    controllers::{machine, machine_class, object::owner},
    runtime::{cache::Key, reconcile::Observe},
};

impl Observe for MachineSets {
    type Key = Key;
    type Snapshot = Snapshot;
    type Memory = Memory;
    type Session = ();

    /// `None` if the set does not exist.
    fn observe(&self, key: &Key, memory: &Memory, (): &()) -> Option<Snapshot> {
        let (now, seed) = (self.clock.now(), (self.entropy)());
        let set = self.sets.cache.get(key)?;
        let uid = set.uid().unwrap_or_default();
        let cache = &self.machines.cache;
        let mut machines = cache.by(machine::BY_CONTROLLER, &uid);
        if let Ok(selector) = Selector::parse(set.spec.selector.as_ref()) {
            let orphans = cache.by(machine::BY_CONTROLLER, "").into_iter();
            machines.extend(orphans.filter(|machine| {
                machine.metadata.namespace == set.metadata.namespace
                    && selector.matches(machine.metadata.labels.as_ref())
            }));
        }
        let deployment = owner::controller_of(&set.metadata).and_then(|owner| {
            let found = self.deployments.get(&Key::beside(&set.metadata, &owner.name));
            found.filter(|deployment| deployment.metadata.uid.as_ref() == Some(&owner.uid))
        });
        let unreadable = cache.unreadable().into_iter();
        let unreadable: Vec<_> = unreadable.filter(|machine| owner::is_controlled_by(&machine.meta, &uid)).collect();
        let class = Key::beside(&set.metadata, &set.spec.template.spec.class.name);
        Some(Snapshot {
            hold: self.holds.of(&set.metadata),
            is_class_unusable: machine_class::is_unusable(&self.classes.cache, &self.secrets.cache, &class),
            set,
            deployment,
            young_failures: self.recent.failures(machines.iter().map(Arc::as_ref), memory.replacements),
            machines,
            unreadable_preserved: unreadable.iter().filter(|machine| is_auto_preserved(&machine.meta)).count(),
            unreadable: unreadable.into_iter().filter_map(|machine| machine.meta.name).collect(),
            failure: memory.failure.clone(),
            now,
            seed,
        })
    }

    fn is_unreadable(&self, key: &Key) -> bool {
        self.sets.cache.is_unreadable(key)
    }
}
