use std::sync::Arc;

use super::{Action, Snapshot};
use crate::{
    api::machine::{Machine, MachineClass},
    controllers::secret::MetadataOfSecret,
    driver::Catalogue,
    plan::Step,
    runtime::{events::Events, objects::Objects, reconcile::Next, worker::ReconcileError},
};

/// Reconciles MachineClasses.
pub(crate) struct MachineClasses {
    pub classes: Arc<Objects<MachineClass>>,
    pub machines: Arc<Objects<Machine>>,
    pub secrets: Arc<Objects<MetadataOfSecret>>,
    pub drivers: Arc<Catalogue>,
    pub events: Events,
}

pub(super) async fn apply(
    snapshot: &Snapshot,
    steps: Vec<Step<Action>>,
    with: &MachineClasses,
) -> Result<Next, ReconcileError> {
    for step in steps {
        match step.action {
            Action::PatchClass(patch) => drop(with.classes.patch(&snapshot.class.metadata, &patch).await?),
            Action::PatchSecret { secret, patch } => drop(with.secrets.patch(&secret, &patch).await?),
        }
        if let Some(event) = &step.event {
            with.events.record(&*snapshot.class, event);
        }
    }
    Ok(Next::Plan)
}
