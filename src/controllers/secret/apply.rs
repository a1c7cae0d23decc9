use serde_json::Value;

use super::{Reconciler, Snapshot};
use crate::{
    plan::Step,
    runtime::{reconcile::Next, worker::ReconcileError},
};

/// The only action for a Secret is a merge patch of its metadata.
pub(super) async fn apply(
    snapshot: &Snapshot,
    steps: Vec<Step<Value>>,
    with: &Reconciler,
) -> Result<Next, ReconcileError> {
    for step in steps {
        with.secrets.patch(&snapshot.secret, &step.action).await?;
    }
    Ok(Next::Plan)
}
