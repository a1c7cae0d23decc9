//! Executes plans for Nodes.

use std::sync::Arc;

use super::{Action, Memory, NodePolicy, ObservedNode, Snapshot};
use crate::{
    api_servers::ApiServers,
    machine::{HeldPermit, ReplacementPermits, look_at_permit, take_permit},
};
use mcm_api::machine::Machine;
use mcm_rules::{plan::Step, safety::meltdown::ReplacementPermit};
use mcm_runtime::{
    cache::Key,
    cell::CellScope,
    clock::TimeSource,
    hold_check::HoldCheck,
    objects::{CachedApi, chain},
    reconcile::{LoopContinuation, PlanExecutor, ReconcileRun},
    target::{CellTargets, TargetNodeKey},
    worker::ReconcileError,
};

/// The context of the Node reconciler.
pub(crate) struct NodeReconciler {
    pub machines: Arc<CachedApi<Machine>>,
    pub targets: Arc<CellTargets>,
    pub scope: CellScope,
    pub permits: Arc<ReplacementPermits>,
    pub servers: Arc<ApiServers>,
    pub holds: Arc<HoldCheck>,
    pub clock: Arc<dyn TimeSource>,
    pub policy: NodePolicy,
}

/// State of one reconcile: results of its calls, and the permit it holds.
#[derive(Default)]
pub(crate) struct NodeSession {
    pub(super) exists: Option<Result<bool, String>>,
    pub(super) permit: ReplacementPermit,
    held: Option<HeldPermit>,
}

impl PlanExecutor for NodeReconciler {
    async fn apply(
        &self,
        snapshot: Snapshot,
        steps: Vec<Step<Action>>,
        turn: &mut ReconcileRun<'_, Self>,
    ) -> Result<LoopContinuation, ReconcileError> {
        let memory = snapshot.memory.clone();
        turn.remember(|stored| *stored = Memory { gone: stored.gone.take(), ..memory });
        for step in steps {
            self.execute(&snapshot, step, turn).await?;
        }
        Ok(LoopContinuation::Plan)
    }
}

impl NodeReconciler {
    async fn execute(
        &self,
        snapshot: &Snapshot,
        step: Step<Action>,
        turn: &mut ReconcileRun<'_, Self>,
    ) -> Result<(), ReconcileError> {
        let now = snapshot.now;
        match step.action {
            Action::DeleteMachine(machine) => {
                tracing::info!(node = %turn.key, reason = %step.reason, "machine deleted");
                self.machines.delete_unchanged(&machine.metadata).await?;
            }
            Action::PatchNode { patch, mark } => {
                let target = self.targets.get(&turn.key.target);
                let (Some(target), ObservedNode::Present(node)) = (target, &snapshot.subject) else { return Ok(()) };
                turn.patch(&target.nodes, &node.metadata, &patch).await?;
                turn.remember(|memory| memory.mark_changed(mark, now));
            }
            Action::RememberMark => turn.remember(|memory| memory.mark_put(now)),
            Action::GetNode => turn.session.exists = Some(self.exists(turn.key).await),
            Action::LookAtPermit { permits, machine } => {
                let (machines, limits) = (&self.machines.cache, &self.policy.unhealthy_replacements);
                let key = Key::from_meta(&machine.metadata);
                turn.session.permit = look_at_permit(&self.permits, machines, &permits, &key, limits);
            }
            Action::TakePermit { permits, machine } => {
                (turn.session.held, turn.session.permit) =
                    take_permit(&self.permits, &self.machines.cache, &permits, &Key::from_meta(&machine.metadata));
            }
            Action::ForgetGoneNode => turn.remember(|memory| memory.gone = None),
        }
        Ok(())
    }

    async fn exists(&self, key: &TargetNodeKey) -> Result<bool, String> {
        let Some(target) = self.targets.get(&key.target) else {
            return Err(format!("{} is not connected", key.target));
        };
        let read = target.nodes.read_again(&key.in_target()).await.map(|node| node.is_some());
        read.map_err(|error| format!("cannot read node {key}: {}", chain(&error)))
    }
}
