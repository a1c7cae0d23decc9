//! Executes plans for MCMMachineTemplates.

use super::{MCMMachineTemplates, Snapshot, WriteStatus};
use crate::{
    api::patch,
    plan::Step,
    runtime::{
        reconcile::{Next, Turn},
        worker::ReconcileError,
    },
};

pub(super) async fn apply(
    kind: &MCMMachineTemplates,
    snapshot: &Snapshot,
    steps: Vec<Step<WriteStatus>>,
    turn: &mut Turn<'_, MCMMachineTemplates>,
) -> Result<Next, ReconcileError> {
    for Step { action: WriteStatus(status), .. } in steps {
        let change = patch::status(&snapshot.object.status, &Some(*status));
        turn.track(kind.objects.patch_status(&snapshot.object.metadata, &change).await)?;
        turn.status_written();
    }
    Ok(Next::Plan)
}
