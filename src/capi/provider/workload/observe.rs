use std::sync::Arc;

use super::{
    Snapshot,
    apply::{WorkloadClusters, kubeconfig_of, target_of},
};
use crate::{
    object::{observe::view, view::ObjectView},
    provider::mcm_machine_pool,
};
use mcm_api::{labels, node::Node};
use mcm_controllers::object::finalizer;
use mcm_runtime::{cache::Key, reconcile::SnapshotReader};

impl SnapshotReader for WorkloadClusters {
    type Key = Key;
    type Snapshot = Snapshot;
    type Memory = ();
    type Session = ();

    fn observe(&self, cluster: &Key, (): &(), (): &()) -> Option<Snapshot> {
        let kubeconfig = match view(&self.kubeconfigs.cache, &kubeconfig_of(cluster)) {
            ObjectView::Present(secret) => {
                ObjectView::Present(secret.metadata.resource_version.clone().unwrap_or_default().into())
            }
            ObjectView::Missing => ObjectView::Missing,
            ObjectView::Unknown => ObjectView::Unknown,
        };
        let has_pools = self.pools.cache.with(mcm_machine_pool::BY_CLUSTER, cluster, |pools| !pools.is_empty());
        let (left, is_undecided) = if has_pools { (Vec::new(), false) } else { self.left_nodes(cluster) };
        Some(Snapshot {
            left,
            is_undecided,
            has_pools,
            cluster: view(&self.clusters.cache, cluster),
            kubeconfig,
            attempt: self.workloads.attempt(cluster),
        })
    }
}

impl WorkloadClusters {
    /// The Nodes of the workload cluster with our finalizer that belonged to deleted Machines of the namespace, and whether
    /// there are others whose Machine cannot be read. Other managers may have Nodes there.
    fn left_nodes(&self, cluster: &Key) -> (Vec<Arc<Node>>, bool) {
        let (mut left, mut is_undecided) = (Vec::new(), false);
        let Some(target) = self.targets.get(&target_of(cluster)) else { return (left, is_undecided) };
        for node in target.nodes.cache.all() {
            if !finalizer::has(&node.metadata, labels::NODE_FINALIZER) {
                continue;
            }
            let Some(machine) = machine_of(&node).filter(|machine| machine.namespace == cluster.namespace) else {
                continue;
            };
            match view(&self.natives.cache, &machine) {
                ObjectView::Missing => left.push(node),
                ObjectView::Unknown => is_undecided = true,
                ObjectView::Present(_) => {}
            }
        }
        (left, is_undecided)
    }
}

/// The native Machine that a Node had, from the annotation of the machine controller.
fn machine_of(node: &Node) -> Option<Key> {
    let mut parts = node.annotations().get(labels::NODE_OF)?.split('/');
    Some(Key::new(parts.next()?, parts.next()?))
}
