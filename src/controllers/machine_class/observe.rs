use std::sync::Arc;

use kube::{ResourceExt, core::ObjectMeta};

use super::{SecretState, Snapshot, apply::MachineClasses, secret_names};
use crate::{machine, object::unreadable_names};
use mcm_api::machine::MachineClass;
use mcm_runtime::{cache::Key, reconcile::SnapshotReader};

/// A class that cannot be decoded, if it is being deleted: then its metadata decide, and the Machines that name it.
fn terminating(metadata: ObjectMeta) -> Option<Arc<MachineClass>> {
    let is_terminating = metadata.deletion_timestamp.is_some();
    is_terminating.then(|| Arc::new(MachineClass { metadata, ..MachineClass::default() }))
}

impl SnapshotReader for MachineClasses {
    type Key = Key;
    type Snapshot = Snapshot;
    type Memory = ();
    type Session = ();

    fn namespaces(&self, key: &Key) -> Vec<String> {
        vec![key.namespace.clone()]
    }

    fn observe(&self, key: &Key, (): &(), (): &()) -> Option<Snapshot> {
        let classes = &self.classes.cache;
        let class = classes.get(key).or_else(|| terminating(classes.metadata_of_unreadable(key)?))?;
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

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::{machine_class::plan, testing::Wire};
    use mcm_api::labels::FINALIZER;
    use mcm_driver::DriverGuards;
    use mcm_driver_host::DriverCatalogue;
    use mcm_runtime::{
        clock::SystemClock, events::EventRecorder, guard::GuardedObject, metrics::MetricsRegistry, objects::CachedApi,
    };

    /// Steps and waits for a class that cannot be decoded.
    fn plan_of(is_terminating: bool, users: usize) -> Option<(usize, usize)> {
        let client = Wire::new().client();
        let (classes, machines) = (crate::machine_class::CACHE.empty(), crate::machine::CACHE.empty());
        let mut metadata = json!({
            "name": "c", "namespace": "ns", "uid": "c", "resourceVersion": "1", "finalizers": [FINALIZER],
        });
        if is_terminating {
            metadata["deletionTimestamp"] = json!("2026-11-28T00:00:00Z");
        }
        let metadata = serde_json::from_value(metadata).unwrap();
        classes.observe(Event::Apply(GuardedObject::Unreadable {
            metadata,
            error: "recursion limit exceeded".to_owned(),
        }));
        for index in 0..users {
            let metadata = json!({ "name": format!("m{index}"), "namespace": "ns", "uid": format!("m{index}") });
            let machine = json!({ "metadata": metadata, "spec": { "class": { "name": "c" } } });
            machines.wrote(serde_json::from_value(machine).unwrap());
        }
        let reconciler = MachineClasses {
            classes: Arc::new(CachedApi::namespaced(&classes, &client)),
            machines: Arc::new(CachedApi::namespaced(&machines, &client)),
            secrets: Arc::new(CachedApi::namespaced(&crate::secret::CACHE.empty(), &client)),
            drivers: Arc::new(DriverCatalogue::from_drivers([], &DriverGuards::unobserved())),
            events: EventRecorder::start(client, "test", Arc::new(SystemClock), MetricsRegistry::new()),
        };
        let plan = plan(&reconciler.observe(&Key::new("ns", "c"), &(), &())?);
        Some((plan.steps.len(), plan.waits.len()))
    }

    #[rstest]
    #[case::left_alone(false, 0, None)]
    #[case::released(true, 0, Some((1, 0)))]
    #[case::used(true, 1, Some((0, 1)))]
    #[tokio::test]
    async fn a_class_that_cannot_be_decoded_is_released_when_it_is_deleted_and_not_used(
        #[case] is_terminating: bool,
        #[case] users: usize,
        #[case] expected: Option<(usize, usize)>,
    ) {
        assert_eq!(plan_of(is_terminating, users), expected);
    }
}
