//! Executes plans for MCMMachinePools.

use std::time::Duration;

use kube::{ResourceExt, api::ListParams};

use super::{Action, MCMMachinePools, Snapshot};
use crate::{
    api::{labels, patch},
    capi::provider::apply::known_after,
    plan::Step,
    runtime::{
        cache::Key,
        reconcile::{Next, Turn},
        worker::{ReconcileError, Requeue},
    },
};

/// Pause until the watch has delivered what a live read found.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

pub(super) async fn apply(
    kind: &MCMMachinePools,
    snapshot: &Snapshot,
    steps: Vec<Step<Action>>,
    turn: &mut Turn<'_, MCMMachinePools>,
) -> Result<Next, ReconcileError> {
    let seen = &snapshot.object.metadata;
    for step in steps {
        match step.action {
            Action::PatchSelf(change) => drop(turn.track(kind.objects.patch(seen, &change).await)?),
            Action::WriteStatus(status) => {
                let change = patch::status(&snapshot.object.status, &Some(*status));
                turn.track(kind.objects.patch_status(seen, &change).await)?;
                turn.status_written();
            }
            Action::CreateClass(class) => {
                let answer = turn.track(kind.classes.create(&class).await.map(drop));
                known_after(answer, &kind.classes, &Key::of(&class.metadata)).await?;
            }
            Action::DeleteClass(class) => turn.track(kind.classes.delete(&class.metadata).await)?,
            Action::CreateDeployment(deployment) => {
                let answer = turn.track(kind.deployments.create(&deployment).await.map(drop));
                known_after(answer, &kind.deployments, &Key::of(&deployment.metadata)).await?;
            }
            Action::PatchDeployment { deployment, patch } => {
                turn.track(kind.deployments.patch(&deployment.metadata, &patch).await)?;
            }
            Action::DeleteDeployment(deployment) => {
                turn.track(kind.deployments.delete(&deployment.metadata).await)?;
            }
            Action::PatchNative { machine, patch } => {
                turn.track(kind.natives.patch(&machine.metadata, &patch).await)?;
            }
            Action::CreateMember(member) => {
                let answer = turn.track(kind.members.create(&member).await.map(drop));
                known_after(answer, &kind.members, &Key::of(&member.metadata)).await?;
            }
            Action::DeleteMachine(machine) => turn.track(kind.machines.delete(&machine.metadata).await)?,
            Action::ReadNatives => {
                if !is_gone(kind, snapshot).await? {
                    return Ok(Next::Requeue(Requeue::After(LOOK_AGAIN)));
                }
                turn.session = true;
            }
        }
    }
    Ok(Next::Plan)
}

/// Whether the API server has no native object with the label of the pool.
async fn is_gone(kind: &MCMMachinePools, snapshot: &Snapshot) -> Result<bool, ReconcileError> {
    let namespace = snapshot.object.namespace().unwrap_or_default();
    let of_pool = ListParams::default().labels(&format!("{}={}", labels::POOL, snapshot.object.name_any())).limit(1);
    let failed = |source| ReconcileError::read("the native objects of the pool", source);
    let deployments = kind.deployments.api(&namespace).list_metadata(&of_pool).await.map_err(failed)?;
    let machines = kind.natives.api(&namespace).list_metadata(&of_pool).await.map_err(failed)?;
    Ok(deployments.items.is_empty() && machines.items.is_empty())
}
