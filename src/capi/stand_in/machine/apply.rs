use super::{Action, Machines};
use crate::{
    api::patch,
    capi::provider::apply::{known_after, read},
    plan::Step,
    runtime::{
        cache::Key,
        reconcile::{Next, Turn},
        worker::ReconcileError,
    },
};

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
