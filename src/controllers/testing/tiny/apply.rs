use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::Value;

use super::Snapshot;
use crate::{
    plan::Step,
    runtime::{objects::Objects, reconcile::Next, worker::ReconcileError},
};

/// Reconciles ConfigMaps.
pub(super) struct ConfigMaps {
    pub objects: Arc<Objects<ConfigMap>>,
}

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
