//! Executes plans for MCMMachineTemplates.

use std::sync::Arc;

use super::{Snapshot, WriteStatus};
use crate::{
    api::{machine::MachineClass, patch},
    capi::types::{Cluster, MCMMachineTemplate},
    plan::Step,
    runtime::{
        objects::Objects,
        reconcile::{Next, Turn},
        worker::ReconcileError,
    },
};

/// Reconciles MCMMachineTemplates.
pub(super) struct MCMMachineTemplates {
    pub objects: Arc<Objects<MCMMachineTemplate>>,
    pub clusters: Arc<Objects<Cluster>>,
    pub classes: Arc<Objects<MachineClass>>,
    pub watch_filter: Option<String>,
}

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
