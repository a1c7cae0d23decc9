use std::sync::Arc;

use serde_json::Value;

use super::{MetadataOfSecret, Snapshot};
use crate::{
    api::machine::MachineClass,
    plan::Step,
    runtime::{objects::Objects, reconcile::Next, worker::ReconcileError},
};

/// Reconciles the Secrets that classes name.
pub(crate) struct ClassSecrets {
    pub secrets: Arc<Objects<MetadataOfSecret>>,
    pub classes: Arc<Objects<MachineClass>>,
}

/// The only action for a Secret is a merge patch of its metadata.
pub(super) async fn apply(
    snapshot: &Snapshot,
    steps: Vec<Step<Value>>,
    with: &ClassSecrets,
) -> Result<Next, ReconcileError> {
    for step in steps {
        with.secrets.patch(&snapshot.secret, &step.action).await?;
    }
    Ok(Next::Plan)
}
