//! Executes plans for MCMClusters.

use std::sync::Arc;

use super::{Action, Snapshot};
use mcm_api::machine::MachineClass;
use mcm_controllers::secret::MetadataOfSecret;
use mcm_conversion::types::{Cluster, MCMCluster};
use mcm_rules::plan::Step;
use mcm_runtime::{
    cache::Key,
    clock::TimeSource,
    events::EventRecorder,
    objects::CachedApi,
    reconcile::{LoopContinuation, PlanExecutor, ReconcileRun, UnresolvedWrite},
    worker::ReconcileError,
};

/// Reconciles MCMClusters.
pub(super) struct MCMClusters {
    pub objects: Arc<CachedApi<MCMCluster>>,
    pub clusters: Arc<CachedApi<Cluster>>,
    pub classes: Arc<CachedApi<MachineClass>>,
    pub secrets: Arc<CachedApi<MetadataOfSecret>>,
    pub watch_filter: Option<String>,
    pub events: EventRecorder,
    pub clock: Arc<dyn TimeSource>,
}

impl PlanExecutor for MCMClusters {
    async fn apply(
        &self,
        snapshot: Snapshot,
        steps: Vec<Step<Action>>,
        turn: &mut ReconcileRun<'_, Self>,
    ) -> Result<LoopContinuation, ReconcileError> {
        let seen = &snapshot.object.metadata;
        for Step { action, event, .. } in steps {
            match action {
                Action::PatchSelf(change) => drop(turn.track(turn.patch(&self.objects, seen, &change).await)?),
                Action::WriteStatus(status) => {
                    turn.write_status(&self.objects, seen, &snapshot.object.status, &Some(*status)).await?;
                }
            }
            event.iter().for_each(|event| self.events.record(snapshot.object.as_ref(), event));
        }
        Ok(LoopContinuation::Plan)
    }

    async fn resolve(&self, key: &Key, _: &UnresolvedWrite) -> Result<(), ReconcileError> {
        let read = self.objects.read_again(key).await;
        read.map(drop).map_err(|source| ReconcileError::read(format!("MCMCluster {key}"), source))
    }
}
