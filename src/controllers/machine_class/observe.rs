use kube::ResourceExt;

use super::{SecretState, Snapshot, apply::MachineClasses, secret_names};
use crate::{
    controllers::{machine, object::unreadable_names},
    runtime::{cache::Key, reconcile::Observe},
};

impl Observe for MachineClasses {
    type Key = Key;
    type Snapshot = Snapshot;
    type Memory = ();
    type Session = ();

    fn observe(&self, key: &Key, (): &(), (): &()) -> Option<Snapshot> {
        let class = self.classes.cache.get(key)?;
        let machines = &self.machines.cache;
        let secrets = &self.secrets.cache;
        let state = |name: &str| match secrets.get(&Key::new(&key.namespace, name)) {
            Some(secret) => SecretState::Present(Box::new(secret.metadata.clone())),
            None if secrets.is_synced() => SecretState::Absent,
            None => SecretState::Unknown,
        };
        Some(Snapshot {
            machines_using: machine::naming_class(machines, key).map(|machine| machine.name_any()).collect(),
            unreadable_machines: unreadable_names(machines, &key.namespace),
            secrets: secret_names(&class).into_iter().map(|name| (name.to_owned(), state(name))).collect(),
            problems: self.drivers.validate(&class).ok(),
            class,
        })
    }
}
