//! Executes plans for MCMClusters.

use super::{Action, MCMClusters, Snapshot};
use crate::{
    api::patch,
    plan::Step,
    runtime::{
        reconcile::{Next, Turn},
        worker::ReconcileError,
    },
};

pub(super) async fn apply(
    kind: &MCMClusters,
    snapshot: &Snapshot,
    steps: Vec<Step<Action>>,
    turn: &mut Turn<'_, MCMClusters>,
) -> Result<Next, ReconcileError> {
    let seen = &snapshot.object.metadata;
    for Step { action, event, .. } in steps {
        match action {
            Action::PatchSelf(change) => drop(turn.track(kind.objects.patch(seen, &change).await)?),
            Action::WriteStatus(status) => {
                let change = patch::status(&snapshot.object.status, &Some(*status));
                turn.track(kind.objects.patch_status(seen, &change).await)?;
                turn.status_written();
            }
        }
        event.iter().for_each(|event| kind.events.record(snapshot.object.as_ref(), event));
    }
    Ok(Next::Plan)
}
