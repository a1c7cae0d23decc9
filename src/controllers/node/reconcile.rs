//! Observe, plan, apply for one Node.

use std::sync::Arc;

use futures::StreamExt;
use tokio_util::sync::CancellationToken;

use super::{Action, Snapshot, gone, plan};
use crate::{
    controllers::{
        context::{Context, machines_by},
        controller::{ReconcileError, Wake},
        plan::Step,
    },
    runtime::{cache::Key, objects::chain},
};

/// One pass over a Node that exists.
pub async fn reconcile(key: Key, context: Arc<Context>) -> Result<Wake, ReconcileError> {
    let Some(nodes) = &context.nodes else { return Ok(Wake::OnChange) };
    let Some(node) = nodes.cache.get(&key) else { return Ok(Wake::OnChange) };
    let machines = &context.machines.cache;
    let snapshot = Snapshot {
        node,
        machines: machines.by(machines_by::NODE, &key.name),
        machines_complete: machines.is_synced() && machines.unreadable().is_empty(),
        now: context.now(),
    };
    let plan = plan(&snapshot, &context.node_policy);
    let wake = plan.wake_at();
    for step in plan.steps {
        apply(&snapshot, step, &context).await?;
    }
    Ok(wake.into())
}

/// Deletes the Machines of Nodes that the watch has reported gone, until `stop`.
pub async fn follow_gone(context: Arc<Context>, stop: CancellationToken) {
    let mut nodes = std::pin::pin!(context.queues.gone_nodes.stream());
    while let Some(Some((key, _meter))) = stop.run_until_cancelled(nodes.next()).await {
        if let Err(error) = reconcile_gone(&key.name, &context).await {
            tracing::warn!(node = %key, error = %chain(&error), "machine of a node that is gone not deleted, trying again");
            context.queues.gone_nodes.add(key);
        }
    }
}

async fn reconcile_gone(node: &str, context: &Context) -> Result<(), ReconcileError> {
    for step in gone(node, &context.machines.cache.by(machines_by::NODE, node)).steps {
        if let Action::DeleteMachine(machine) = step.action {
            tracing::info!(node, reason = %step.reason, "node gone");
            context.machines.delete(&machine.metadata).await?;
        }
    }
    Ok(())
}

async fn apply(snapshot: &Snapshot, step: Step<Action>, context: &Context) -> Result<(), ReconcileError> {
    tracing::debug!(node = snapshot.node.metadata.name, reason = %step.reason, "step");
    match step.action {
        Action::DeleteMachine(machine) => context.machines.delete(&machine.metadata).await?,
        Action::PatchNode(patch) => {
            if let Some(nodes) = &context.nodes {
                nodes.patch(&snapshot.node.metadata, &patch).await?;
            }
        }
    }
    Ok(())
}
