use std::sync::Arc;

use super::{Action, Snapshot};
use crate::{
    object::apply::read,
    stand_in::observe::{Deployments, Ground},
};
use mcm_api::machine::{self as native, MachineClass};
use mcm_conversion::types::{Machine, MachineSet};
use mcm_rules::plan::Step;
use mcm_runtime::{
    cache::Key,
    clock::Clock,
    objects::Objects,
    reconcile::{Execute, Next, Turn, UnresolvedWrite},
    worker::ReconcileError,
};

/// Reconciles Machines, by the names of native Machines.
pub(super) struct Machines {
    pub mirrors: Arc<Objects<Machine>>,
    pub natives: Arc<Objects<native::Machine>>,
    pub sets: Arc<Objects<MachineSet>>,
    pub native_sets: Arc<Objects<native::MachineSet>>,
    pub deployments: Arc<Deployments>,
    pub classes: Arc<Objects<MachineClass>>,
    pub ground: Ground,
    pub clock: Arc<dyn Clock>,
}

impl Execute for Machines {
    async fn apply(
        &self,
        _: Snapshot,
        steps: Vec<Step<Action>>,
        turn: &mut Turn<'_, Self>,
    ) -> Result<Next, ReconcileError> {
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
        Ok(Next::Plan)
    }

    async fn resolve(&self, key: &Key, _: &UnresolvedWrite) -> Result<(), ReconcileError> {
        read(&self.mirrors, key).await?;
        read(&self.natives, key).await.map(drop)
    }
}
