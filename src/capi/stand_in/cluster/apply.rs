use std::sync::Arc;

use super::{Action, Snapshot};
use crate::{object::apply::read, stand_in::observe::PreconditionReader};
use mcm_conversion::types::Cluster;
use mcm_rules::plan::Step;
use mcm_runtime::{
    cache::Key,
    clock::TimeSource,
    objects::CachedApi,
    reconcile::{LoopContinuation, PlanExecutor, ReconcileRun, UnresolvedWrite},
    worker::ReconcileError,
};

/// Reconciles Clusters.
pub(super) struct StandInClusterReconciler {
    pub objects: Arc<CachedApi<Cluster>>,
    pub ground: PreconditionReader,
    pub watch_filter: Option<String>,
    pub clock: Arc<dyn TimeSource>,
}

impl PlanExecutor for StandInClusterReconciler {
    async fn apply(
        &self,
        snapshot: Snapshot,
        steps: Vec<Step<Action>>,
        turn: &mut ReconcileRun<'_, Self>,
    ) -> Result<LoopContinuation, ReconcileError> {
        for step in steps {
            match step.action {
                Action::WriteStatus(status) => {
                    turn.write_status(
                        &self.objects,
                        &snapshot.object.metadata,
                        &snapshot.object.status,
                        &Some(*status),
                    )
                    .await?;
                }
            }
        }
        Ok(LoopContinuation::Plan)
    }

    async fn resolve(&self, key: &Key, _: &UnresolvedWrite) -> Result<(), ReconcileError> {
        read(&self.objects, key).await.map(drop)
    }
}
