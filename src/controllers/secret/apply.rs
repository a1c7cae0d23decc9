use std::sync::Arc;

use serde_json::Value;

use super::{MetadataOfSecret, Snapshot};
use mcm_api::machine::MachineClass;
use mcm_rules::plan::Step;
use mcm_runtime::{
    objects::CachedApi,
    reconcile::{LoopContinuation, PlanExecutor, ReconcileRun},
    worker::ReconcileError,
};

/// Reconciles the Secrets that classes name.
pub(crate) struct ClassSecrets {
    pub secrets: Arc<CachedApi<MetadataOfSecret>>,
    pub classes: Arc<CachedApi<MachineClass>>,
}

impl PlanExecutor for ClassSecrets {
    /// The only action for a Secret is a merge patch of its metadata.
    async fn apply(
        &self,
        snapshot: Snapshot,
        steps: Vec<Step<Value>>,
        turn: &mut ReconcileRun<'_, Self>,
    ) -> Result<LoopContinuation, ReconcileError> {
        for step in steps {
            turn.patch(&self.secrets, &snapshot.secret, &step.action).await?;
        }
        Ok(LoopContinuation::Plan)
    }
}
