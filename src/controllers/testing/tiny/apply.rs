use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::Value;

use super::Snapshot;
use mcm_rules::plan::Step;
use mcm_runtime::{
    objects::CachedApi,
    reconcile::{LoopContinuation, PlanExecutor, ReconcileRun},
    worker::ReconcileError,
};

/// Reconciles ConfigMaps.
pub(super) struct ConfigMaps {
    pub objects: Arc<CachedApi<ConfigMap>>,
}

impl PlanExecutor for ConfigMaps {
    async fn apply(
        &self,
        snapshot: Snapshot,
        steps: Vec<Step<Value>>,
        _: &mut ReconcileRun<'_, Self>,
    ) -> Result<LoopContinuation, ReconcileError> {
        for step in steps {
            self.objects.patch(&snapshot.map.metadata, &step.action).await?;
        }
        Ok(LoopContinuation::Plan)
    }
}
