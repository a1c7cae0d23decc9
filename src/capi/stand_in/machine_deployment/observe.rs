use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kube::ResourceExt;

use super::{Memory, Snapshot, StandInDeploymentSession, apply::StandInDeploymentReconciler};
use crate::object::{
    observe::{is_in, view},
    view::ObjectView,
};
use mcm_api::{labels, machine::MachineClass};
use mcm_controllers::{machine, machine_class, object::owner};
pub use mcm_conversion::{
    types::{INFRASTRUCTURE_GROUP, Machine, MachineDeployment, MachineHealthCheck},
    user_data_of,
};
use mcm_runtime::{cache::Key, reconcile::SnapshotReader};

impl SnapshotReader for StandInDeploymentReconciler {
    type Key = Key;
    type Snapshot = Snapshot;
    type Memory = Memory;
    type Session = StandInDeploymentSession;

    /// `None` if there is neither the deployment nor an authority over it.
    fn observe(&self, key: &Key, memory: &Memory, session: &StandInDeploymentSession) -> Option<Snapshot> {
        let object = view(&self.objects.cache, key);
        let migration = view(&self.migrations.cache, key);
        if matches!((&object, &migration), (ObjectView::Missing, ObjectView::Missing)) {
            return None;
        }
        let beside = |name: &str| Key::new(&key.namespace, name);
        let spec = object.known().map(|object| object.spec.clone()).unwrap_or_default();
        let reference = &spec.template.spec.infrastructure_ref;
        let template = match (reference.api_group.as_str(), reference.kind.as_str()) {
            (INFRASTRUCTURE_GROUP, "MCMMachineTemplate") => view(&self.templates.cache, &beside(&reference.name)),
            _ => ObjectView::Missing,
        };
        let source = spec.template.spec.bootstrap.data_secret_name.clone().filter(|name| !name.is_empty());
        Some(Snapshot {
            standing: self.ground.standing(&key.namespace),
            cluster: view(&self.clusters.cache, &beside(&spec.cluster_name)),
            template,
            health_checks: self.health_checks(&key.namespace),
            classes: self.classes(&key.namespace),
            used_classes: self.used_classes(&key.namespace),
            native: view(&self.natives.cache, key),
            children: self.children(key),
            machines: self.machines(key),
            bootstrap: source.as_ref().map_or(ObjectView::Missing, |name| self.version(&beside(name))),
            copy: source.as_ref().map_or(ObjectView::Missing, |name| self.copied(&beside(&user_data_of(name)))),
            stale_copies: self.stale_copies(&key.namespace),
            memory: memory.clone(),
            session: *session,
            watch_filter: self.watch_filter.clone(),
            now: self.clock.now(),
            object,
            migration,
        })
    }
}

impl StandInDeploymentReconciler {
    fn health_checks(&self, namespace: &str) -> Result<Vec<Arc<MachineHealthCheck>>, String> {
        let cache = &self.health_checks.cache;
        if !cache.is_synced() {
            return Err("the MachineHealthChecks cannot be listed".to_owned());
        }
        if let Some(one) = cache.unreadable().iter().find(|one| is_in(&one.meta, namespace)) {
            return Err(format!("MachineHealthCheck {} cannot be read", one.meta.name.as_deref().unwrap_or_default()));
        }
        let all = cache.all().into_iter();
        Ok(all.filter(|check| is_in(&check.metadata, namespace)).collect())
    }

    fn classes(&self, namespace: &str) -> BTreeMap<String, Arc<MachineClass>> {
        let all = self.classes.cache.all().into_iter().filter(|class| is_in(&class.metadata, namespace));
        all.map(|class| (class.name_any(), class)).collect()
    }

    fn used_classes(&self, namespace: &str) -> BTreeSet<String> {
        let (deployments, sets, machines) =
            (self.natives.cache.all(), self.native_sets.cache.all(), self.native_machines.cache.all());
        let of_deployments = deployments.iter().map(|one| (&one.metadata, &one.spec.template.spec.class.name));
        let of_sets = sets.iter().map(|one| (&one.metadata, &one.spec.template.spec.class.name));
        let of_machines = machines.iter().map(|one| (&one.metadata, &one.spec.class.name));
        let all = of_deployments.chain(of_sets).chain(of_machines);
        all.filter(|(meta, _)| is_in(meta, namespace)).map(|(_, class)| class.clone()).collect()
    }

    fn children(&self, key: &Key) -> usize {
        let sets = self.native_sets.cache.all().into_iter().filter(|set| {
            let owner = owner::controller_of(&set.metadata);
            is_in(&set.metadata, &key.namespace) && owner.is_some_and(|owner| owner.name == key.name)
        });
        let machines = self.native_machines.cache.by(machine::BY_DEPLOYMENT, &key.name).into_iter();
        let owned = machines.filter(|machine| {
            is_in(&machine.metadata, &key.namespace) && owner::controller_of(&machine.metadata).is_some()
        });
        sets.count() + owned.count()
    }

    fn machines(&self, key: &Key) -> Vec<(Arc<Machine>, Arc<mcm_api::machine::Machine>)> {
        let natives = self.native_machines.cache.by(machine::BY_DEPLOYMENT, &key.name).into_iter();
        let own = natives.filter(|native| is_in(&native.metadata, &key.namespace));
        own.filter_map(|native| Some((self.machines.cache.get(&Key::from_meta(&native.metadata))?, native))).collect()
    }

    fn version(&self, secret: &Key) -> ObjectView<String> {
        match view(&self.secrets.cache, secret) {
            ObjectView::Present(secret) => ObjectView::Present(Arc::new(secret.resource_version().unwrap_or_default())),
            ObjectView::Missing => ObjectView::Missing,
            ObjectView::Unknown => ObjectView::Unknown,
        }
    }

    fn copied(&self, secret: &Key) -> ObjectView<String> {
        match view(&self.secrets.cache, secret) {
            ObjectView::Present(secret) => {
                ObjectView::Present(Arc::new(secret.labels().get(labels::COPIED_VERSION).cloned().unwrap_or_default()))
            }
            ObjectView::Missing => ObjectView::Missing,
            ObjectView::Unknown => ObjectView::Unknown,
        }
    }

    /// A copy that a deployment is about to name again is created again.
    fn stale_copies(&self, namespace: &str) -> BTreeSet<String> {
        let secrets = self.secrets.cache.all();
        let own = secrets.iter().filter(|one| {
            is_in(&one.metadata, namespace)
                && one.labels().contains_key(labels::COPIED_VERSION)
                && one.metadata.deletion_timestamp.is_none()
        });
        let deployments = self.objects.cache.all();
        let is_needed = |name: &str| deployments.iter().any(|one| is_in(&one.metadata, namespace) && needs(one, name));
        let is_named = |key: &Key| machine_class::naming(&self.classes.cache, key).next().is_some();
        let stale = own.filter(|one| !is_needed(&one.name_any()) && !is_named(&Key::from_meta(&one.metadata)));
        stale.map(|one| one.name_any()).collect()
    }
}

/// A deployment whose machines boot with the copied data.
fn needs(deployment: &MachineDeployment, copy: &str) -> bool {
    let source = deployment.spec.template.spec.bootstrap.data_secret_name.as_deref();
    deployment.metadata.deletion_timestamp.is_none() && source.is_some_and(|source| user_data_of(source) == copy)
}
