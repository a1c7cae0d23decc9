use super::{Action, Reconciler, Snapshot};
use crate::{
    plan::Step,
    runtime::{reconcile::Next, worker::ReconcileError},
};

pub(super) async fn apply(
    snapshot: &Snapshot,
    steps: Vec<Step<Action>>,
    with: &Reconciler,
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
