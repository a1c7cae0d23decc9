use std::sync::Arc;

use super::Action;
use crate::{
    api::{
        machine::{self as native, MachineClass},
        patch,
    },
    capi::{
        object::apply::{known_after, read},
        stand_in::observe::{Deployments, Ground},
        types::{Machine, MachineSet},
    },
    plan::Step,
    runtime::{
        cache::Key,
        clock::Clock,
        objects::Objects,
        reconcile::{Next, Turn},
        worker::ReconcileError,
    },
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

pub(super) async fn apply(
    kind: &Machines,
    steps: Vec<Step<Action>>,
    turn: &mut Turn<'_, Machines>,
) -> Result<Next, ReconcileError> {
    for step in steps {
        match step.action {
            Action::Create(mirror) => {
                let answer = turn.track(kind.mirrors.create(&mirror).await.map(drop));
                known_after(answer, &kind.mirrors, &Key::of(&mirror.metadata)).await?;
            }
            Action::Patch { mirror, patch } => drop(turn.track(kind.mirrors.patch(&mirror.metadata, &patch).await)?),
            Action::WriteStatus { mirror, status } => {
                let change = patch::status(&mirror.status, &Some(*status));
                turn.track(kind.mirrors.patch_status(&mirror.metadata, &change).await)?;
                turn.status_written();
            }
            Action::Delete(mirror) => turn.track(kind.mirrors.delete(&mirror.metadata).await)?,
            Action::PatchNative { native, patch } => {
                turn.track(kind.natives.patch(&native.metadata, &patch).await)?;
            }
            Action::DeleteNative(native) => turn.track(kind.natives.delete(&native.metadata).await)?,
            Action::ReadNative => turn.session.is_gone = read(&kind.natives, turn.key).await?,
            Action::Confirm => {
                kind.ground.confirm().await?;
                turn.session.is_confirmed = true;
            }
        }
    }
    Ok(Next::Plan)
}
