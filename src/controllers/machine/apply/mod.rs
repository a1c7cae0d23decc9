//! Executes plans for Machines. It makes no decisions.

mod bootstrap_token;
mod driver;
mod freed;
mod lanes;
mod node;
mod permits;
mod pods;
mod ports;
mod secret_data;
mod session;
mod volumes;

use std::{sync::Arc, time::Duration};

use futures::FutureExt;
use kube::ResourceExt;
use serde_json::Value;
use tokio::time::Instant;

use super::{Action, ClassView, SecretFacts, Snapshot, metrics, watch_vm};
use lanes::SlotPurpose;
use mcm_api::{machine::MachineStatus, patch};
use mcm_driver::CloudAccount;
use mcm_rules::plan::{Event, Step};
use mcm_runtime::{
    cache::Key,
    fence,
    objects::{ObjectWriteError, WriteFailure, chain},
    reconcile::{LoopContinuation, PlanExecutor, ReconcileRun, UnresolvedWrite},
    worker::{ReconcileError, RequeueTime},
};

pub(crate) use driver::while_leading;
pub use freed::{FreedResources, short_of_resources};
#[cfg(test)]
pub(crate) use lanes::ReconcileSlots;
pub use permits::{HeldPermit, ReplacementPermits, look as look_at_permit, take as take_permit};
pub(crate) use ports::MachineContext;
pub use secret_data::of_class as secrets_of_class;
pub(crate) use session::MachineSession;

/// After this time a reconcile that has more steps gives its slot to the next Machine and is requeued, unless the driver has
/// just returned a VM.
const YIELD_AFTER: Duration = Duration::from_secs(10);

/// The machine kind as a reconciler.
pub(crate) struct MachineReconciler {
    pub context: Arc<MachineContext>,
}

impl PlanExecutor for MachineReconciler {
    async fn apply(
        &self,
        mut snapshot: Self::Snapshot,
        steps: Vec<Step<Action>>,
        turn: &mut ReconcileRun<'_, Self>,
    ) -> Result<LoopContinuation, ReconcileError> {
        let began = *turn.session.began.get_or_insert_with(Instant::now);
        let known_vm = snapshot.learned.vm.clone();
        let outcome = self.execute(&mut snapshot, steps, turn).await;
        let Snapshot { machine, learned, memory: changed, .. } = *snapshot;
        // An answer of the driver ends with the reconcile, and a VM that is not stored would be created again.
        let is_planned = learned.vm == known_vm;
        turn.session.uid.clone_from(&machine.metadata.uid);
        turn.session.learned = learned;
        turn.remember(|memory| memory.replace(changed));
        match outcome? {
            LoopContinuation::Plan if is_planned && began.elapsed() >= YIELD_AFTER => {
                Ok(LoopContinuation::Requeue(RequeueTime::After(Duration::ZERO)))
            }
            next => Ok(next),
        }
    }

    /// If the write of the provider ID succeeded unnoticed and the VM then died, a plan without the ID would create a
    /// second VM, and the first one would leak.
    async fn resolve(&self, key: &Key, write: &UnresolvedWrite) -> Result<(), ReconcileError> {
        let read = self.context.machines.read_again(&write.key).await;
        read.map_err(|source| ReconcileError::read(format!("machine {key}"), source))?;
        self.context.permits.release(key);
        Ok(())
    }
}

impl MachineReconciler {
    async fn execute(
        &self,
        snapshot: &mut Snapshot,
        steps: Vec<Step<Action>>,
        turn: &mut ReconcileRun<'_, Self>,
    ) -> Result<LoopContinuation, ReconcileError> {
        let mut steps = steps.into_iter().peekable();
        while let Some(step) = steps.next() {
            if !fence::may_act() {
                break;
            }
            if !self.has_slot(snapshot, &step.action, turn) {
                tracing::debug!(machine = %turn.key, "waiting for a slot");
                return Ok(match snapshot.slot_refused(&step.action) {
                    true => LoopContinuation::Plan,
                    false => LoopContinuation::Requeue(RequeueTime::OnChange),
                });
            }
            if pods::is_about_a_pod(&step.action) {
                let mut round = vec![step];
                while let Some(step) = steps.next_if(|step| pods::is_about_a_pod(&step.action)) {
                    round.push(step);
                }
                pods::call_all(&self.context, snapshot, &round, turn.key).await;
                round.iter().filter_map(|step| step.event.as_ref()).for_each(|event| self.record(snapshot, event));
                continue;
            }
            if !self.carry_out_one(snapshot, step.action, turn).await? {
                break;
            }
            if let Some(event) = step.event {
                self.record(snapshot, &event);
            }
        }
        Ok(LoopContinuation::Plan)
    }

    /// The action may be executed now; if not, the Machine is queued for a slot.
    fn has_slot(&self, snapshot: &Snapshot, action: &Action, turn: &mut ReconcileRun<'_, Self>) -> bool {
        let look = if snapshot.machine.is_terminating() {
            SlotPurpose::Delete
        } else if watch_vm::is_needed(snapshot) {
            SlotPurpose::Check
        } else {
            SlotPurpose::Create
        };
        let Some(lane) = SlotPurpose::for_action(action, look) else { return true };
        let account = match &snapshot.class {
            ClassView::Present { class, .. } | ClassView::Unserved(class) => CloudAccount::from_class(class),
            ClassView::Unknown | ClassView::Missing => CloudAccount::default(),
        };
        let visit = turn.session.visit.get_or_insert_with(|| self.context.lanes.visit(turn.key));
        let is_admitted = visit.admits(&account, lane);
        // The Machine may have been deleted, and its key forgotten, before it was queued here.
        if !is_admitted && self.context.machines.cache.get(turn.key).is_none() {
            self.context.lanes.forget(turn.key);
        }
        is_admitted
    }

    /// False if the API server refused a write of the Machine.
    async fn carry_out_one(
        &self,
        snapshot: &mut Snapshot,
        action: Action,
        turn: &mut ReconcileRun<'_, Self>,
    ) -> Result<bool, ReconcileError> {
        let context = &self.context;
        match action {
            Action::PatchMachine(patch) => return self.patch(snapshot, &patch, turn).await,
            Action::WriteStatus(status) => self.write_status(snapshot, &status, turn).await?,
            Action::ReadSecret => self.read_secret(snapshot, &mut turn.session).boxed().await,
            Action::GetVmStatus | Action::CreateVm | Action::InitializeVm | Action::DeleteVm => {
                driver::call(context, snapshot, &turn.session, &action).await;
            }
            Action::GetNode(key) => {
                let answer = node::read(context, snapshot, &key).await;
                snapshot.node_was_read(key, answer);
            }
            Action::PatchNode { node, patch, purpose } => {
                node::patch(context, snapshot, &node, &patch, node::NodePatchType::Merge, purpose).await?;
            }
            Action::StrategicPatchNode { node, patch, purpose } => {
                node::patch(context, snapshot, &node, &patch, node::NodePatchType::Strategic, purpose).await?;
            }
            Action::PatchNodeStatus { node, patch, purpose } => {
                node::patch(context, snapshot, &node, &patch, node::NodePatchType::StrategicStatus, purpose).await?;
            }
            Action::DeleteNode(node) => node::delete(context, snapshot, &node).await,
            Action::EnsureBootstrapToken(wanted) => {
                let answer = bootstrap_token::ensure_by_target_clock(context, snapshot, wanted).boxed().await;
                snapshot.now = context.now();
                snapshot.token_ensured(answer.map(|token| turn.session.token = Some(token)));
            }
            Action::DeleteBootstrapToken { id } => {
                if bootstrap_token::delete(context, snapshot, &id).boxed().await {
                    snapshot.token_deleted();
                }
            }
            Action::ListPods { node } => {
                let pods = pods::list(context, snapshot, &node).await;
                let attachments = volumes::attachments(context, snapshot, turn.key, &node, &pods).boxed().await;
                snapshot.now = context.now();
                snapshot.learned.allowances = pods::allowances(context, snapshot, turn.key);
                snapshot.pods_listed(pods, attachments);
            }
            Action::ReadVolumes(claims) => {
                let answers = volumes::read(context, snapshot, claims).await;
                snapshot.volumes_read(answers);
            }
            Action::DetachVolumes { node } => volumes::detach(context, snapshot, &node).await,
            Action::LookAtPermit(permits) => {
                let (machines, limits) = (&context.machines.cache, &context.policy.unhealthy_replacements);
                snapshot.learned.permit = look_at_permit(&context.permits, machines, &permits, turn.key, limits);
            }
            Action::TakePermit(permits) => {
                let (held, view) = take_permit(&context.permits, &context.machines.cache, &permits, turn.key);
                turn.session.permit = held;
                snapshot.learned.permit = view;
            }
            Action::WaivePermit(machine) => context.permits.waive(&machine),
            Action::EvictPod(_) | Action::DeletePod(_) => {}
        }
        Ok(true)
    }

    async fn patch(
        &self,
        snapshot: &mut Snapshot,
        patch: &Value,
        turn: &mut ReconcileRun<'_, Self>,
    ) -> Result<bool, ReconcileError> {
        match turn.track(self.context.machines.patch(&snapshot.machine.metadata, patch).await) {
            Ok(_) => snapshot.machine_written(patch),
            Err(error) if error.failure() == WriteFailure::Refused => {
                tracing::warn!(machine = %turn.key, error = error.text(), "the API server refused a write of the machine");
                snapshot.now = self.context.now();
                snapshot.machine_refused(patch, error.text());
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(true)
    }

    async fn write_status(
        &self,
        snapshot: &mut Snapshot,
        status: &MachineStatus,
        turn: &mut ReconcileRun<'_, Self>,
    ) -> Result<(), ObjectWriteError> {
        let patch = patch::status(&snapshot.machine.status.clone().unwrap_or_default(), status);
        let answer = self.context.machines.patch_status(&snapshot.machine.metadata, &patch).await;
        if let Err(error) = &answer
            && error.failure() == WriteFailure::Unknown
            && let Some(permit) = turn.session.permit.take()
        {
            // The Machine may be Failed in the API server and not in the cache. The permit is kept until it was read.
            permit.keep();
        }
        let written = turn.track(answer)?;
        metrics::transition(&written, snapshot, self.context.now(), &self.context.measured);
        snapshot.status_written(written);
        Ok(())
    }

    async fn read_secret(&self, snapshot: &mut Snapshot, session: &mut MachineSession) {
        let (ClassView::Present { class, .. } | ClassView::Unserved(class)) = &snapshot.class else { return };
        let machine = &snapshot.machine;
        // A check needs credentials only. The user data of a Machine are read live each time.
        let read = match watch_vm::is_needed(snapshot) {
            true => secret_data::of_class(class, &self.context.secrets).await,
            false => secret_data::of_machine(machine, class, &self.context.secrets).await,
        };
        let answer = read.map(|merged| {
            let mut facts = SecretFacts::from_data(&merged.data, merged.missing, merged.missing_user_data);
            facts.wants_token &= machine.user_data_secret().is_none();
            session.secret = merged.data;
            facts
        });
        snapshot.secret_read(answer.map_err(|error| chain(&error)));
    }

    fn record(&self, snapshot: &Snapshot, event: &Event) {
        self.context.events.record(&*snapshot.machine, event);
        let (namespace, machine) = (snapshot.machine.namespace(), snapshot.machine.name_any());
        if event.warning {
            tracing::warn!(namespace, machine, reason = %event.reason, "{}", event.message);
        } else {
            tracing::info!(namespace, machine, reason = %event.reason, "{}", event.message);
        }
    }
}
