use super::{Action, Clusters, Snapshot};
use crate::{
    api::patch,
    plan::Step,
    runtime::{reconcile::Turn, worker::ReconcileError},
};

pub(super) async fn apply(
    kind: &Clusters,
    snapshot: &Snapshot,
    steps: Vec<Step<Action>>,
    turn: &mut Turn<'_, Clusters>,
) -> Result<(), ReconcileError> {
    for step in steps {
        match step.action {
            Action::WriteStatus(status) => {
                let change = patch::status(&snapshot.object.status, &Some(*status));
                turn.track(kind.objects.patch_status(&snapshot.object.metadata, &change).await)?;
                turn.status_written();
            }
        }
    }
    Ok(())
}
