//! Executes plans for MCMClusters.

use std::sync::Arc;

use super::{Action, Snapshot};
use crate::{
    api::{machine::MachineClass, patch},
    capi::types::{Cluster, MCMCluster},
    controllers::secret::MetadataOfSecret,
    plan::Step,
    runtime::{
        clock::Clock,
        events::Events,
        objects::Objects,
        reconcile::{Next, Turn},
        worker::ReconcileError,
    },
};

/// Reconciles MCMClusters.
pub(super) struct MCMClusters {
    pub objects: Arc<Objects<MCMCluster>>,
    pub clusters: Arc<Objects<Cluster>>,
    pub classes: Arc<Objects<MachineClass>>,
    pub secrets: Arc<Objects<MetadataOfSecret>>,
    pub watch_filter: Option<String>,
    pub events: Events,
    pub clock: Arc<dyn Clock>,
}

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
