//! Executes plans of the overshoot freeze.

use std::sync::Arc;

use kube::{Resource, ResourceExt};

use super::{Action, MachineSetGroup, OvershootPolicy, Snapshot};
use mcm_api::{
    machine::{Machine, MachineDeployment, MachineSet},
    patch,
};
use mcm_rules::plan::{self, Step};
use mcm_runtime::{
    cache::{CacheableKind, Key},
    clock::TimeSource,
    events::EventRecorder,
    hold_check::HoldCheck,
    objects::{CachedApi, ObjectWriteError},
    reconcile::{LoopContinuation, PlanExecutor, ReconcileRun},
    worker::ReconcileError,
};

const COMPONENT: &str = "machine-controller-manager";

/// Key of a subject.
pub(super) type SubjectKey = MachineSetGroup<Key>;

impl SubjectKey {
    /// The reference to it.
    pub fn object(&self) -> plan::SubjectRef {
        let (kind, Key { namespace, name }) = match self {
            Self::Deployment(key) => (MachineDeployment::kind(&()), key.clone()),
            Self::Set(key) => (MachineSet::kind(&()), key.clone()),
        };
        plan::SubjectRef { kind: kind.into_owned(), namespace, name }
    }
}

/// Freezes and unfreezes sets.
pub(crate) struct OvershootReconciler {
    pub deployments: Arc<CachedApi<MachineDeployment>>,
    pub sets: Arc<CachedApi<MachineSet>>,
    pub machines: Arc<CachedApi<Machine>>,
    pub holds: Arc<HoldCheck>,
    pub policy: OvershootPolicy,
    pub events: EventRecorder,
    pub clock: Arc<dyn TimeSource>,
}

impl PlanExecutor for OvershootReconciler {
    async fn apply(
        &self,
        snapshot: Snapshot,
        steps: Vec<Step<Action>>,
        turn: &mut ReconcileRun<'_, Self>,
    ) -> Result<LoopContinuation, ReconcileError> {
        for step in steps {
            match step.action {
                Action::RememberUnfreeze(uid) => turn.remember(|memory| {
                    memory
                        .unfrozen
                        .retain(|uid, _| snapshot.sets.iter().any(|one| one.set.uid().as_ref() == Some(uid)));
                    memory.unfrozen.insert(uid, snapshot.now);
                }),
                Action::WriteSet { set, status, patch } => {
                    let status = status.map(|status| patch::status(&set.status, &Some(*status)));
                    write(turn, &self.sets, &set, status, patch).await?;
                    if let Some(event) = step.event {
                        tracing::info!(set = %Key::from_meta(&set.metadata), reason = %step.reason, "{}", event.reason);
                        self.events.with_component(COMPONENT).record(&*set, &event);
                    }
                }
                Action::WriteDeployment { status, patch } => {
                    let Some(deployment) = &snapshot.deployment else { continue };
                    let status = status.map(|status| patch::status(&deployment.status, &Some(*status)));
                    write(turn, &self.deployments, deployment, status, patch).await?;
                }
            }
        }
        Ok(LoopContinuation::Plan)
    }
}

/// Writes the status, then the metadata on top of it.
async fn write<K: CacheableKind + serde::Serialize>(
    turn: &ReconcileRun<'_, OvershootReconciler>,
    objects: &CachedApi<K>,
    seen: &Arc<K>,
    status: Option<serde_json::Value>,
    patch: Option<serde_json::Value>,
) -> Result<(), ObjectWriteError> {
    let mut current = Arc::clone(seen);
    if let Some(status) = status {
        current = objects.patch_status(current.meta(), &status).await?;
    }
    if let Some(patch) = patch {
        turn.patch(objects, current.meta(), &patch).await?;
    }
    Ok(())
}
