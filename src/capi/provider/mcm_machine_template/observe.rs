use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{
    Snapshot,
    apply::MCMMachineTemplates,
    capacity::{CapacityKey, VmType},
};
use crate::{
    object::{
        observe::{owner_of, view},
        view::ObjectView,
    },
    provider::{
        class,
        observe::{cluster_name, infrastructure},
    },
};
use mcm_api::machine::MachineClass;
use mcm_conversion::types::{Cluster, MCMMachineTemplate};
use mcm_driver::CloudAccount;
use mcm_runtime::{cache::Key, reconcile::SnapshotReader};

impl SnapshotReader for MCMMachineTemplates {
    type Key = Key;
    type Snapshot = Snapshot;
    type Memory = ();
    type Session = ();

    /// `None` if the object does not exist.
    fn observe(&self, key: &Key, (): &(), (): &()) -> Option<Snapshot> {
        let object = self.objects.cache.get(key)?;
        let beside = |name: &str| Key::new(&key.namespace, name);
        let cluster = cluster_of(&object.metadata).map(|name| view(&self.clusters.cache, &beside(name)));
        let cluster = cluster.unwrap_or(ObjectView::Missing);
        let class = view(&self.classes.cache, &beside(&object.spec.template.spec.machine_class_ref.name));
        let vm_type = self.vm_type(&object, &cluster, &class);
        Some(Snapshot {
            reading: vm_type.as_ref().and_then(|vm_type| self.capacities.reading(&vm_type.key)),
            vm_type,
            cluster,
            class,
            watch_filter: self.watch_filter.clone(),
            now: self.clock.now(),
            object,
        })
    }
}

impl MCMMachineTemplates {
    /// The type of the VMs of a template, if its class has no `nodeTemplate` and its driver reads their capacity.
    fn vm_type(
        &self,
        object: &MCMMachineTemplate,
        cluster: &ObjectView<Cluster>,
        named: &ObjectView<MachineClass>,
    ) -> Option<VmType> {
        let class = match &object.spec.template.spec.machine_class {
            Some(content) => {
                let metadata = ObjectMeta {
                    name: object.metadata.name.clone(),
                    namespace: object.metadata.namespace.clone(),
                    ..ObjectMeta::default()
                };
                let infrastructure = infrastructure(&self.infrastructures.cache, cluster);
                Arc::new(class::described(metadata, content, &infrastructure))
            }
            None => Arc::clone(named.known()?),
        };
        if class.node_template.is_some() {
            return None;
        }
        let name = self.drivers.get(&class).ok()?.capacity_key(&class)?;
        Some(VmType { key: CapacityKey { account: CloudAccount::from_class(&class), name }, class })
    }
}

/// The name of the Cluster of a template: core writes an owner reference, and a ClusterClass a label.
pub(super) fn cluster_of(meta: &ObjectMeta) -> Option<&str> {
    cluster_name(meta).or_else(|| owner_of(meta, "Cluster").map(|owner| owner.name.as_str()))
}
