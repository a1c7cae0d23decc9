//! Executes plans for MCMMachines.

use super::{Action, MCMMachines, Snapshot};
use crate::{
    api::patch,
    plan::Step,
    runtime::{
        cache::{Cached, Key},
        objects::{Objects, WriteError, WriteFailure},
        reconcile::{Next, Turn},
        worker::ReconcileError,
    },
};

pub(super) async fn apply(
    kind: &MCMMachines,
    snapshot: &Snapshot,
    steps: Vec<Step<Action>>,
    turn: &mut Turn<'_, MCMMachines>,
) -> Result<Next, ReconcileError> {
    let seen = &snapshot.object.metadata;
    for step in steps {
        match step.action {
            Action::PatchSelf(change) => drop(turn.track(kind.objects.patch(seen, &change).await)?),
            Action::WriteStatus(status) => {
                let change = patch::status(&snapshot.object.status, &Some(*status));
                turn.track(kind.objects.patch_status(seen, &change).await)?;
                turn.status_written();
            }
            Action::CreateClass(class) => {
                let answer = kind.classes.create(&class).await.map(drop);
                let answer = turn.track(answer);
                known_after(answer, &kind.classes, turn.key).await?;
            }
            Action::CreateNative(machine) => {
                let answer = kind.natives.create(&machine).await.map(drop);
                let answer = turn.track(answer);
                known_after(answer, &kind.natives, turn.key).await?;
            }
            Action::PatchNative { machine, patch } => {
                turn.track(kind.natives.patch(&machine.metadata, &patch).await)?;
            }
            Action::DeleteNative(machine) => turn.track(kind.natives.delete(&machine.metadata).await)?,
            Action::ReadNative => turn.session = read(&kind.natives, turn.key).await?,
        }
    }
    Ok(Next::Plan)
}

/// What has the name of an object that could not be created is in the cache before the next plan.
async fn known_after<K: Cached + serde::Serialize>(
    answer: Result<(), WriteError>,
    objects: &Objects<K>,
    key: &Key,
) -> Result<(), ReconcileError> {
    match answer {
        Err(error) if error.failure() == WriteFailure::AlreadyExists => read(objects, key).await.map(drop),
        answer => Ok(answer?),
    }
}

/// Reads an object live; whether it does not exist.
pub(super) async fn read<K: Cached + serde::Serialize>(
    objects: &Objects<K>,
    key: &Key,
) -> Result<bool, ReconcileError> {
    let read = objects.read_again(key).await;
    let found = read.map_err(|source| ReconcileError::read(format!("{} {key}", K::kind(&())), source))?;
    Ok(found.is_none())
}
