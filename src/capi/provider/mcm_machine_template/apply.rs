//! Executes plans for MCMMachineTemplates.

use std::sync::Arc;

use super::{Snapshot, WriteStatus};
use mcm_api::machine::MachineClass;
use mcm_conversion::types::{Cluster, MCMMachineTemplate};
use mcm_rules::plan::Step;
use mcm_runtime::{
    cache::Key,
    objects::CachedApi,
    reconcile::{LoopContinuation, PlanExecutor, ReconcileRun, UnresolvedWrite},
    worker::ReconcileError,
};

/// Reconciles MCMMachineTemplates.
pub(super) struct MCMMachineTemplates {
    pub objects: Arc<CachedApi<MCMMachineTemplate>>,
    pub clusters: Arc<CachedApi<Cluster>>,
    pub classes: Arc<CachedApi<MachineClass>>,
    pub watch_filter: Option<String>,
}

impl PlanExecutor for MCMMachineTemplates {
    async fn apply(
        &self,
        snapshot: Snapshot,
        steps: Vec<Step<WriteStatus>>,
        turn: &mut ReconcileRun<'_, Self>,
    ) -> Result<LoopContinuation, ReconcileError> {
        for Step { action: WriteStatus(status), .. } in steps {
            turn.write_status(&self.objects, &snapshot.object.metadata, &snapshot.object.status, &Some(*status))
                .await?;
        }
        Ok(LoopContinuation::Plan)
    }

    async fn resolve(&self, key: &Key, _: &UnresolvedWrite) -> Result<(), ReconcileError> {
        let read = self.objects.read_again(key).await;
        read.map(drop).map_err(|source| ReconcileError::read(format!("MCMMachineTemplate {key}"), source))
    }
}
