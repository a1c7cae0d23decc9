//! Observe, plan, apply for one Machine.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use kube::ResourceExt;
use parking_lot::Mutex;
use serde_json::json;

use super::{
    Action, ClassView, Memory, NodeKey, NodeView, NodeWrite, SecretFacts, Snapshot, calls, measure, plan, token,
};
use crate::{
    api::{machine::MachineStatus, node::Node},
    controllers::{
        context::{Context, machines_by, nodes_by},
        controller::{ROUNDS, ReconcileError, Wake},
        plan::{Note, Step},
    },
    driver::{MachineRequest, SecretData},
    runtime::{
        cache::Key,
        objects::{WriteError, WriteFailure, merge_patch},
    },
    safety::meltdown::{Census, Permit},
};

const COMPONENT: &str = "machine-controller";

/// Who holds which permit of the meltdown guard.
#[derive(Debug, Default)]
pub struct Permits(Mutex<BTreeMap<String, String>>);

impl Permits {
    fn take(&self, key: &str, machine: &str) -> Result<(), String> {
        let mut holders = self.0.lock();
        match holders.get(key) {
            Some(holder) if holder != machine => Err(holder.clone()),
            _ => {
                holders.insert(key.to_owned(), machine.to_owned());
                Ok(())
            }
        }
    }

    fn release(&self, machine: &str) {
        self.0.lock().retain(|_, holder| holder != machine);
    }
}

/// What a pass knows and no plan may see: Secret data.
#[derive(Default)]
pub(super) struct Pass {
    secret: SecretData,
    token: Option<String>,
}

/// What a Machine holds while a pass over it is under way. It is given back however the pass ends, also if it is dropped.
struct Turn<'a> {
    key: &'a Key,
    context: &'a Context,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.context.permits.release(&self.key.name);
        self.context.lanes.leave(self.key);
    }
}

/// One pass over a Machine: plans and applies until there is nothing left to do.
pub async fn reconcile(key: Key, context: Arc<Context>) -> Result<Wake, ReconcileError> {
    let _turn = Turn { key: &key, context: &context };
    if context.memory.machines.get(&key).is_in_doubt {
        read_again(&key, &context).await?;
    }
    let Some(mut snapshot) = observe(&key, &context) else { return Ok(Wake::OnChange) };
    let mut pass = Pass::default();
    let outcome = settle(&mut snapshot, &mut pass, &key, &context).await;
    snapshot.memory.is_in_doubt =
        matches!(&outcome, Err(ReconcileError::Write(error)) if error.failure() == WriteFailure::Unknown);
    if context.machines.cache.get(&key).is_some() {
        context.memory.machines.set(&key, snapshot.memory);
    } else {
        context.memory.machines.forget(&key);
    }
    outcome
}

/// After a write whose answer was lost. A plan that does not know which VM the Machine already has would make another one
/// if that VM had died meanwhile, and nothing would lead to the new one.
async fn read_again(key: &Key, context: &Context) -> Result<(), ReconcileError> {
    let machines = &context.machines;
    let found = machines
        .api(&key.namespace)
        .get_opt(&key.name)
        .await
        .map_err(|source| ReconcileError::Read { what: format!("machine {key}"), source: source.into() })?;
    match (found, machines.cache.get(key)) {
        (Some(machine), _) => drop(machines.cache.wrote(machine)),
        (None, Some(known)) => machines.cache.removed(key, known.uid().as_deref().unwrap_or_default()),
        (None, None) => {}
    }
    Ok(())
}

async fn settle(
    snapshot: &mut Snapshot,
    pass: &mut Pass,
    key: &Key,
    context: &Context,
) -> Result<Wake, ReconcileError> {
    let mut last = String::new();
    for _ in 0..ROUNDS * 2 {
        snapshot.now = context.now();
        snapshot.node = observe_node(snapshot, context);
        let plan = plan(snapshot, &context.machine_policy);
        if plan.steps.is_empty() {
            for wait in &plan.waits {
                tracing::debug!(machine = %key, on = %wait.on, until = ?wait.until, "waits");
            }
            return Ok(plan.wake_at().into());
        }
        for step in plan.steps {
            tracing::debug!(machine = %key, reason = %step.reason, "step");
            last.clone_from(&step.reason);
            if !context.lanes.admits(key, &step.action) {
                tracing::debug!(machine = %key, "waits for others that call the cloud or empty nodes");
                return Ok(Wake::OnChange);
            }
            apply(snapshot, pass, step, context).await?;
        }
        if is_gone(snapshot) {
            return Ok(Wake::OnChange);
        }
    }
    Err(ReconcileError::Restless { key: key.clone(), step: last })
}

/// Its last finalizer was removed.
fn is_gone(snapshot: &Snapshot) -> bool {
    let meta = &snapshot.machine.metadata;
    meta.deletion_timestamp.is_some() && meta.finalizers.as_ref().is_none_or(Vec::is_empty)
}

fn observe(key: &Key, context: &Context) -> Option<Snapshot> {
    let machine = context.machines.cache.get(key)?;
    let class = observe_class(key, &machine.spec.class.name, context);
    let memory: Memory = context.memory.machines.get(key);
    Some(Snapshot::new(machine, NodeView::Unknown, class, memory, context.now()))
}

fn observe_class(key: &Key, name: &str, context: &Context) -> ClassView {
    let classes = &context.classes.cache;
    let Some(class) = classes.get(&Key::new(&key.namespace, name)) else {
        let unreadable = classes.unreadable().iter().any(|class| class.meta.name.as_deref() == Some(name));
        return if classes.is_synced() && !unreadable { ClassView::Missing } else { ClassView::Unknown };
    };
    match context.drivers.get(&class) {
        Ok(driver) => ClassView::Present { driver: driver.capabilities(), class },
        Err(_) => ClassView::Unserved(class),
    }
}

fn observe_node(snapshot: &Snapshot, context: &Context) -> NodeView {
    let Some(nodes) = &context.nodes else { return NodeView::NoTarget };
    let found = match snapshot.node_key() {
        NodeKey::Name(name) => nodes.cache.get(&Key::new("", &name)),
        NodeKey::OfMachine(name) => nodes.cache.by(nodes_by::MACHINE, &name).into_iter().next(),
    };
    match found {
        Some(node) => NodeView::Present(node),
        None if nodes.cache.is_synced() && nodes.cache.unreadable().is_empty() => NodeView::Absent,
        None => NodeView::Unknown,
    }
}

async fn apply(
    snapshot: &mut Snapshot,
    pass: &mut Pass,
    step: Step<Action>,
    context: &Context,
) -> Result<(), ReconcileError> {
    match step.action {
        Action::PatchMachine(patch) => {
            snapshot.machine = context.machines.patch(&snapshot.machine.metadata, &patch).await?;
        }
        Action::WriteStatus(status) => write_status(snapshot, &status, context).await?,
        Action::ReadSecret => read_secret(snapshot, pass, context).await,
        Action::AskVm | Action::CreateVm | Action::InitializeVm | Action::DeleteVm => {
            call_driver(snapshot, pass, &step.action, context).await;
        }
        Action::PatchNode { node, patch, purpose } => {
            let Some(nodes) = &context.nodes else { return Ok(()) };
            let answer = nodes.patch(&node.metadata, &patch).await;
            node_written(snapshot, purpose, answer)?;
        }
        Action::AmendNode { node, patch, purpose } => {
            let Some(nodes) = &context.nodes else { return Ok(()) };
            let answer = nodes.patch_strategically(&node.metadata, &patch).await;
            node_written(snapshot, purpose, answer)?;
        }
        Action::PatchNodeStatus { node, patch, purpose } => {
            let Some(nodes) = &context.nodes else { return Ok(()) };
            let answer = nodes.patch_status_strategically(&node.metadata, &patch).await;
            node_written(snapshot, purpose, answer)?;
        }
        Action::DeleteNode(node) => delete_node(snapshot, &node, context).await?,
        Action::EnsureBootstrapToken(wanted) => {
            let answer = calls::ensure_token(context, &wanted).await;
            snapshot.token = match answer {
                Ok(token) => {
                    pass.token = Some(token);
                    super::TokenView::Ensured
                }
                Err(message) => super::TokenView::Failed(message),
            };
        }
        Action::DeleteBootstrapToken { id } => calls::delete_token(context, &id).await,
        Action::ListPods { node } => {
            let pods = calls::list_pods(context, &node).await;
            snapshot.pods_listed(pods);
        }
        Action::EvictPod(pod) => {
            let answer = calls::evict(context, snapshot, &pod).await;
            snapshot.pod_called(crate::drain::Method::Evict, &pod, answer);
        }
        Action::DeletePod(pod) => {
            let answer = calls::delete_pod(context, &pod).await;
            snapshot.pod_called(crate::drain::Method::Delete, &pod, answer);
        }
        Action::TakePermit { key } => take_permit(snapshot, &key, context),
    }
    if let Some(event) = step.event {
        tell(snapshot, &event, context);
    }
    Ok(())
}

fn tell(snapshot: &Snapshot, event: &Note, context: &Context) {
    context.note(&*snapshot.machine, COMPONENT, event);
    let machine = snapshot.machine.name_any();
    if event.warning {
        tracing::warn!(machine, reason = %event.reason, "{}", event.message);
    } else {
        tracing::info!(machine, reason = %event.reason, "{}", event.message);
    }
}

async fn write_status(snapshot: &mut Snapshot, status: &MachineStatus, context: &Context) -> Result<(), WriteError> {
    let before = serde_json::to_value(&snapshot.machine.status).unwrap_or_default();
    let after = serde_json::to_value(status).unwrap_or_default();
    let patch = json!({ "status": merge_patch(&before, &after) });
    let written = context.machines.patch_status(&snapshot.machine.metadata, &patch).await?;
    measure::transition(&snapshot.machine, &written, snapshot, context);
    snapshot.machine = written;
    Ok(())
}

async fn read_secret(snapshot: &mut Snapshot, pass: &mut Pass, context: &Context) {
    let (ClassView::Present { class, .. } | ClassView::Unserved(class)) = &snapshot.class else { return };
    let answer = context.secrets.of_class(class).await.map(|merged| {
        let facts = SecretFacts::of(&merged.data, merged.missing);
        pass.secret = merged.data;
        facts
    });
    snapshot.secret_read(answer.map_err(|error| crate::runtime::objects::chain(&error)));
}

async fn call_driver(snapshot: &mut Snapshot, pass: &Pass, action: &Action, context: &Context) {
    let ClassView::Present { class, .. } = &snapshot.class else { return };
    let Ok(driver) = context.drivers.get(class) else { return };
    let request = MachineRequest {
        machine: Arc::clone(&snapshot.machine),
        class: Arc::clone(class),
        secret: filled_in(snapshot, pass, action),
    };
    let start = Instant::now();
    match action {
        Action::AskVm => {
            let answer = driver.status(&request).await;
            snapshot.vm_asked(answer);
        }
        Action::CreateVm => {
            let answer = driver.create(&request).await;
            measure::called(snapshot, action, answer.is_ok(), start.elapsed(), context);
            snapshot.vm_created(answer);
        }
        Action::InitializeVm => {
            let answer = driver.initialize(&request).await;
            measure::called(snapshot, action, answer.is_ok(), start.elapsed(), context);
            snapshot.vm_initialized(answer);
        }
        _ => {
            let answer = driver.delete(&request).await;
            measure::called(snapshot, action, answer.is_ok(), start.elapsed(), context);
            snapshot.vm_deleted(answer);
        }
    }
}

/// User data with its placeholders filled in where a VM reads it, as it is stored elsewhere.
fn filled_in(snapshot: &Snapshot, pass: &Pass, action: &Action) -> SecretData {
    let mut secret = pass.secret.clone();
    if matches!(action, Action::CreateVm | Action::InitializeVm)
        && let Some(user_data) = secret.0.get_mut("userData")
    {
        *user_data = token::fill_in(user_data, &snapshot.machine.name_any(), pass.token.as_deref());
    }
    secret
}

fn node_written(
    snapshot: &mut Snapshot,
    purpose: NodeWrite,
    answer: Result<Arc<Node>, WriteError>,
) -> Result<(), WriteError> {
    match answer {
        Ok(node) => snapshot.node_written(purpose, NodeView::Present(node)),
        Err(error) => match error.failure() {
            WriteFailure::Conflict => return Err(error),
            WriteFailure::Gone => snapshot.node = NodeView::Absent,
            _ => snapshot.node_failed(purpose, error.text()),
        },
    }
    Ok(())
}

async fn delete_node(snapshot: &mut Snapshot, node: &Node, context: &Context) -> Result<(), WriteError> {
    let Some(nodes) = &context.nodes else { return Ok(()) };
    match nodes.delete(&node.metadata).await {
        Ok(()) => {
            let left = nodes.cache.get(&Key::of(&node.metadata)).filter(|left| left.uid() == node.uid());
            snapshot.node_written(NodeWrite::Delete, left.map_or(NodeView::Absent, NodeView::Present));
        }
        Err(error) => match error.failure() {
            // Not found, or another Node of that name.
            WriteFailure::Gone | WriteFailure::Conflict => {
                snapshot.node_written(NodeWrite::Delete, NodeView::Absent);
                nodes.cache.removed(&Key::of(&node.metadata), node.uid().as_deref().unwrap_or_default());
            }
            _ => snapshot.node_failed(NodeWrite::Delete, error.text()),
        },
    }
    Ok(())
}

fn take_permit(snapshot: &mut Snapshot, key: &str, context: &Context) {
    snapshot.permit = match context.permits.take(key, &snapshot.machine.name_any()) {
        Ok(()) => {
            let siblings = context.machines.cache.by(machines_by::DEPLOYMENT, key);
            Permit::Held(Census::of(siblings.iter().map(|machine| &**machine)))
        }
        Err(by) => Permit::Refused { by },
    };
}
