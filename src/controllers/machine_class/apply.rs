use std::sync::Arc;

use super::{Action, Snapshot};
use crate::secret::MetadataOfSecret;
use mcm_api::machine::{Machine, MachineClass};
use mcm_driver_host::Catalogue;
use mcm_rules::plan::Step;
use mcm_runtime::{
    events::Events,
    objects::Objects,
    reconcile::{Execute, Next, Turn},
    worker::ReconcileError,
};

/// Reconciles MachineClasses.
pub(crate) struct MachineClasses {
    pub classes: Arc<Objects<MachineClass>>,
    pub machines: Arc<Objects<Machine>>,
    pub secrets: Arc<Objects<MetadataOfSecret>>,
    pub drivers: Arc<Catalogue>,
    pub events: Events,
}

impl Execute for MachineClasses {
    async fn apply(
        &self,
        snapshot: Snapshot,
        steps: Vec<Step<Action>>,
        turn: &mut Turn<'_, Self>,
    ) -> Result<Next, ReconcileError> {
        for step in steps {
            match step.action {
                Action::PatchClass(patch) => turn.patch_any(&self.classes, &snapshot.class.metadata, &patch).await?,
                Action::PatchSecret { secret, patch } => drop(turn.patch(&self.secrets, &secret, &patch).await?),
            }
            if let Some(event) = &step.event {
                self.events.record(&*snapshot.class, event);
            }
        }
        Ok(Next::Plan)
    }
}
