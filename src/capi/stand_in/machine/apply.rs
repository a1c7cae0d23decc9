use std::sync::Arc;

use super::{Action, Snapshot};
use crate::{
    object::apply::read,
    stand_in::observe::{DeploymentCaches, PreconditionReader},
};
use mcm_api::machine::{self as native, MachineClass};
use mcm_conversion::types::{Machine, MachineSet};
use mcm_rules::plan::Step;
use mcm_runtime::{
    cache::Key,
    clock::TimeSource,
    objects::CachedApi,
    reconcile::{LoopContinuation, PlanExecutor, ReconcileRun, UnresolvedWrite},
    worker::ReconcileError,
};

/// Reconciles Machines, by the names of native Machines.
pub(super) struct StandInMachineReconciler {
    pub mirrors: Arc<CachedApi<Machine>>,
    pub natives: Arc<CachedApi<native::Machine>>,
    pub sets: Arc<CachedApi<MachineSet>>,
    pub native_sets: Arc<CachedApi<native::MachineSet>>,
    pub deployments: Arc<DeploymentCaches>,
    pub classes: Arc<CachedApi<MachineClass>>,
    pub ground: PreconditionReader,
    pub clock: Arc<dyn TimeSource>,
}

impl PlanExecutor for StandInMachineReconciler {
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
                Action::PatchNative { native, patch } => {
                    turn.track(turn.patch(&self.natives, &native.metadata, &patch).await)?;
                }
                Action::DeleteNative(native) => turn.track(self.natives.delete(&native.metadata).await)?,
                Action::ReadNative => turn.session.is_gone = read(&self.natives, turn.key).await?,
                Action::Confirm => {
                    self.ground.confirm().await?;
                    turn.session.is_confirmed = true;
                }
            }
        }
        Ok(LoopContinuation::Plan)
    }

    async fn resolve(&self, key: &Key, _: &UnresolvedWrite) -> Result<(), ReconcileError> {
        read(&self.mirrors, key).await?;
        read(&self.natives, key).await.map(drop)
    }
}
