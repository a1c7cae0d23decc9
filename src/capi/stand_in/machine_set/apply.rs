use std::sync::Arc;

use super::Action;
use crate::{
    api::{machine as native, patch},
    capi::{
        object::apply::{known_after, read},
        stand_in::observe::{Deployments, Ground},
        types::MachineSet,
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

/// Reconciles MachineSets, by the names of native sets.
pub(super) struct MachineSets {
    pub mirrors: Arc<Objects<MachineSet>>,
    pub natives: Arc<Objects<native::MachineSet>>,
    pub deployments: Arc<Deployments>,
    pub ground: Ground,
    pub clock: Arc<dyn Clock>,
}

pub(super) async fn apply(
    kind: &MachineSets,
    steps: Vec<Step<Action>>,
    turn: &mut Turn<'_, MachineSets>,
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
            Action::ReadNative => turn.session = read(&kind.natives, turn.key).await?,
        }
    }
    Ok(Next::Plan)
}
