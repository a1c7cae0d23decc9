//! Reads native objects live, and remembers for which Clusters that was done.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kube::Client;
use parking_lot::RwLock;

use super::{Action, Snapshot};
use mcm_api::machine::{Machine, MachineDeployment, MachineSet};
use mcm_conversion::types::{Cluster, MCMMachinePool};
use mcm_rules::plan::Step;
use mcm_runtime::{
    cell::CellScope,
    handlers::HandlerList,
    kind_cache::CachedKind,
    objects::CachedApi,
    reconcile::{LoopContinuation, PlanExecutor, ReconcileRun},
    worker::ReconcileError,
};

/// Reads the native objects of Clusters that are not paused any more.
pub(super) struct ResumeReconciler {
    pub clusters: Arc<CachedApi<Cluster>>,
    pub pools: Arc<CachedApi<MCMMachinePool>>,
    pub deployments: Arc<CachedApi<MachineDeployment>>,
    pub sets: Arc<CachedApi<MachineSet>>,
    pub machines: Arc<CachedApi<Machine>>,
    pub resumed: Arc<ResumedClusters>,
    pub control: Client,
    pub scope: CellScope,
}

type ResumeHandler = dyn Fn() + Send + Sync;

/// The Clusters whose native objects were read. Kinds of one cell share it.
#[derive(Default)]
pub(in super::super) struct ResumedClusters {
    /// By UID; `false` while the objects are being read.
    clusters: RwLock<BTreeMap<String, bool>>,
    handlers: HandlerList<ResumeHandler>,
}

impl ResumedClusters {
    /// All native objects were read since the Cluster with this UID was paused.
    pub fn contains(&self, uid: &str) -> bool {
        self.clusters.read().get(uid) == Some(&true)
    }

    /// Calls `handler` after each read.
    pub fn on_change(&self, handler: impl Fn() + Send + Sync + 'static) {
        self.handlers.add(Box::new(handler));
    }

    /// The Cluster is paused or deleted: the cached state of its objects may be out of date when the pause ends.
    pub fn forget(&self, uid: &str) {
        self.clusters.write().remove(uid);
    }

    #[cfg(test)]
    pub fn known_for_tests(&self, uid: &str) {
        self.clusters.write().insert(uid.to_owned(), true);
    }

    pub(super) fn forget_all(&self) {
        self.clusters.write().clear();
    }

    pub(super) fn begin(&self, uids: &BTreeSet<String>) {
        self.clusters.write().extend(uids.iter().map(|uid| (uid.clone(), false)));
    }

    /// A Cluster that was paused in the meantime has to be read again.
    pub(super) fn finish(&self, uids: &BTreeSet<String>) {
        for uid in uids {
            self.clusters.write().get_mut(uid).into_iter().for_each(|is_known| *is_known = true);
        }
        self.handlers.each(|handler| handler());
    }
}

impl ResumeReconciler {
    async fn read_live<K: CachedKind>(&self, objects: &CachedApi<K>) -> Result<(), ReconcileError> {
        let read = objects.cache.refresh(&self.scope.api(&self.control)).await;
        read.map_err(|source| ReconcileError::read("all MCM objects", source))
    }
}

impl PlanExecutor for ResumeReconciler {
    async fn apply(
        &self,
        _: Snapshot,
        steps: Vec<Step<Action>>,
        _: &mut ReconcileRun<'_, Self>,
    ) -> Result<LoopContinuation, ReconcileError> {
        for step in steps {
            let Action::Read(clusters) = step.action;
            self.resumed.begin(&clusters);
            self.read_live(&self.deployments).await?;
            self.read_live(&self.sets).await?;
            self.read_live(&self.machines).await?;
            self.resumed.finish(&clusters);
        }
        Ok(LoopContinuation::Plan)
    }
}
