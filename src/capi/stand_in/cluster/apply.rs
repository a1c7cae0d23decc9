use std::sync::Arc;

use super::{Action, Snapshot};
use crate::{
    api::patch,
    capi::{stand_in::observe::Ground, types::Cluster},
    plan::Step,
    runtime::{clock::Clock, objects::Objects, reconcile::Turn, worker::ReconcileError},
};

/// Reconciles Clusters.
pub(super) struct Clusters {
    pub objects: Arc<Objects<Cluster>>,
    pub ground: Ground,
    pub watch_filter: Option<String>,
    pub clock: Arc<dyn Clock>,
}

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
