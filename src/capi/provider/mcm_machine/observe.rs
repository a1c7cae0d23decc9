use kube::ResourceExt;

use super::{McmMachineSession, Memory, Snapshot, apply::MCMMachines};
use crate::{
    object::{
        observe::{owner, owner_of, view},
        view::{ObjectView, OwnerView},
    },
    provider::{
        class,
        observe::{cluster_name, infrastructure},
    },
};
use mcm_api::machine as native_api;
pub use mcm_conversion::provider_id;
use mcm_runtime::{cache::Key, reconcile::SnapshotReader};

impl SnapshotReader for MCMMachines {
    type Key = Key;
    type Snapshot = Snapshot;
    type Memory = Memory;
    type Session = McmMachineSession;

    /// `None` if the object does not exist.
    fn observe(&self, key: &Key, memory: &Memory, session: &McmMachineSession) -> Option<Snapshot> {
        let object = self.objects.cache.get(key)?;
        let beside = |name: &str| Key::new(&key.namespace, name);
        let owner = match owner_of(&object.metadata, "Machine") {
            Some(reference) => OwnerView::Named(owner(&self.machines.cache, &object.metadata, reference)),
            None => OwnerView::None,
        };
        let of_owner = owner.known().map(|machine| machine.spec.cluster_name.clone());
        let cluster = match cluster_name(&object.metadata).map(str::to_owned).or(of_owner) {
            Some(name) => view(&self.clusters.cache, &beside(&name)),
            None => ObjectView::Missing,
        };
        let infrastructure = infrastructure(&self.infrastructures.cache, &cluster);
        let zone = owner.known().map_or("", |machine| machine.spec.failure_domain.as_str());
        let class = match &object.spec.machine_class {
            Some(_) => ObjectView::Missing,
            None => {
                let name = class::in_zone(&object.spec.machine_class_ref, zone, &infrastructure);
                view(&self.classes.cache, &beside(&name))
            }
        };
        let named = owner.known().and_then(|machine| machine.spec.bootstrap.data_secret_name.clone());
        let bootstrap = match named.map(|name| view(&self.secrets.cache, &beside(&name))) {
            Some(ObjectView::Present(_)) => ObjectView::Present(().into()),
            Some(ObjectView::Unknown) => ObjectView::Unknown,
            Some(ObjectView::Missing) | None => ObjectView::Missing,
        };
        let native = view(&self.natives.cache, key);
        let own_class = view(&self.classes.cache, key);
        let vm_class = match (native.known(), &object.spec.machine_class) {
            (Some(native), _) => view(&self.classes.cache, &beside(&native.spec.class.name)),
            (None, Some(_)) => own_class.clone(),
            (None, None) => class.clone(),
        };
        let served = vm_class.known().and_then(|class| self.drivers.get(class).ok()?.load_balancers());
        // Only before a native Machine is created: later the VM is its own.
        let wanted = &object.spec.provider_id;
        let is_new = matches!(native, ObjectView::Missing) && !wanted.is_empty();
        let has_vm = |one: &native_api::Machine| {
            provider_id::is_same(wanted, &one.spec.provider_id)
                && one.metadata.namespace.as_deref() == Some(&key.namespace)
        };
        let all = if is_new { self.natives.cache.all() } else { Vec::new() };
        let rival = all.into_iter().find(|one| has_vm(one)).map(|one| one.name_any());
        let rival = rival.or_else(|| session.unreadable_rival.clone());
        Some(Snapshot {
            native,
            rival,
            own_class,
            vm_class,
            served,
            obstacle: self.managers.namespace_obstacle(&key.namespace),
            watch_filter: self.watch_filter.clone(),
            now: self.clock.now(),
            object,
            owner,
            cluster,
            infrastructure,
            class,
            bootstrap,
            session: session.clone(),
            memory: memory.clone(),
        })
    }
}
