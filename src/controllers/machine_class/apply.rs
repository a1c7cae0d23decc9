use std::sync::Arc;

use super::{Action, Snapshot};
use crate::secret::MetadataOfSecret;
use mcm_api::machine::{Machine, MachineClass};
use mcm_driver_host::DriverCatalogue;
use mcm_rules::plan::Step;
use mcm_runtime::{
    events::EventRecorder,
    objects::CachedApi,
    reconcile::{LoopContinuation, PlanExecutor, ReconcileRun},
    worker::ReconcileError,
};

/// Reconciles MachineClasses.
pub(crate) struct MachineClasses {
    pub classes: Arc<CachedApi<MachineClass>>,
    pub machines: Arc<CachedApi<Machine>>,
    pub secrets: Arc<CachedApi<MetadataOfSecret>>,
    pub drivers: Arc<DriverCatalogue>,
    pub events: EventRecorder,
}

impl PlanExecutor for MachineClasses {
    async fn apply(
        &self,
        snapshot: Snapshot,
        steps: Vec<Step<Action>>,
        turn: &mut ReconcileRun<'_, Self>,
    ) -> Result<LoopContinuation, ReconcileError> {
        for step in steps {
            match step.action {
                Action::PatchClass(patch) => turn.patch_any(&self.classes, &snapshot.class.metadata, &patch).await?,
                Action::PatchSecret { secret, patch } => drop(turn.patch(&self.secrets, &secret, &patch).await?),
            }
            if let Some(event) = &step.event {
                self.events.record(&*snapshot.class, event);
            }
        }
        Ok(LoopContinuation::Plan)
    }
}
