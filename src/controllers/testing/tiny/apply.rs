use serde_json::Value;

use super::{Snapshot, register::ConfigMaps};
use crate::{
    plan::Step,
    runtime::{reconcile::Next, worker::ReconcileError},
};

pub(super) async fn apply(
    snapshot: &Snapshot,
    steps: Vec<Step<Value>>,
    maps: &ConfigMaps,
) -> Result<Next, ReconcileError> {
    for step in steps {
        maps.objects.patch(&snapshot.map.metadata, &step.action).await?;
    }
    Ok(Next::Plan)
}
