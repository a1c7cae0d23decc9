//! Executes plans for MCMMachines.

use super::{Action, MCMMachines, Snapshot};
use crate::{
    api::patch,
    capi::provider::apply::{known_after, read},
    plan::Step,
    runtime::{
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
