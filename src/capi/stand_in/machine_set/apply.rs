use std::sync::Arc;

use super::{Action, Snapshot};
use crate::{
    object::apply::read,
    stand_in::observe::{DeploymentCaches, PreconditionReader},
};
use mcm_api::machine as native;
use mcm_conversion::types::MachineSet;
use mcm_rules::plan::Step;
use mcm_runtime::{
    cache::Key,
    clock::TimeSource,
    objects::CachedApi,
    reconcile::{LoopContinuation, PlanExecutor, ReconcileRun, UnresolvedWrite},
    worker::ReconcileError,
};

/// Reconciles MachineSets, by the names of native sets.
pub(super) struct StandInSetReconciler {
    pub mirrors: Arc<CachedApi<MachineSet>>,
    pub natives: Arc<CachedApi<native::MachineSet>>,
    pub deployments: Arc<DeploymentCaches>,
    pub ground: PreconditionReader,
    pub clock: Arc<dyn TimeSource>,
}

impl PlanExecutor for StandInSetReconciler {
    async fn apply(
        &self,
        _: Snapshot,
        steps: Vec<Step<Action>>,
        turn: &mut ReconcileRun<'_, Self>,
    ) -> Result<LoopContinuation, ReconcileError> {
        for step in steps {
            match step.action {
                Action::Create(mirror) => {
                    turn.create_or_read(&self.mirrors, &mirror).await?;
                }
                Action::Patch { mirror, patch } => {
                    drop(turn.track(turn.patch(&self.mirrors, &mirror.metadata, &patch).await)?)
                }
                Action::WriteStatus { mirror, status } => {
                    turn.write_status(&self.mirrors, &mirror.metadata, &mirror.status, &Some(*status)).await?;
                }
                Action::Delete(mirror) => turn.track(self.mirrors.delete(&mirror.metadata).await)?,
                Action::ReadNative => turn.session = read(&self.natives, turn.key).await?,
            }
        }
        Ok(LoopContinuation::Plan)
    }

    async fn resolve(&self, key: &Key, _: &UnresolvedWrite) -> Result<(), ReconcileError> {
        read(&self.mirrors, key).await.map(drop)
    }
}
