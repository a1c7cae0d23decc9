use super::{Action, MachineSets};
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
