//! Observe, plan, apply for one class, and for one Secret.

use std::sync::Arc;

use kube::ResourceExt;

use super::{Action, SecretSnapshot, SecretState, Snapshot, plan, plan_secret, secret_names};
use crate::{
    controllers::{
        context::{Context, machines_by},
        controller::{ReconcileError, Wake},
    },
    runtime::cache::Key,
};

/// Kind by which Machines refer to a class; with another kind they have no claim on it.
const KIND: &str = "MachineClass";

/// One pass over a class.
pub async fn reconcile(key: Key, context: Arc<Context>) -> Result<Wake, ReconcileError> {
    let Some(snapshot) = observe(&key, &context) else { return Ok(Wake::OnChange) };
    let plan = plan(&snapshot);
    let wake = plan.wake_at();
    for step in plan.steps {
        tracing::debug!(class = %key, reason = %step.reason, "step");
        match step.action {
            Action::PatchClass(patch) => {
                context.classes.patch(&snapshot.class.metadata, &patch).await?;
            }
            Action::PatchSecret { secret, patch } => context.secrets.patch(&secret, &patch).await?,
        }
    }
    Ok(wake.into())
}

/// One pass over a Secret.
pub async fn reconcile_secret(key: Key, context: Arc<Context>) -> Result<Wake, ReconcileError> {
    let Some(secret) = context.secrets.cache.get(&key) else { return Ok(Wake::OnChange) };
    let snapshot = SecretSnapshot {
        secret: Box::new(secret.metadata.clone()),
        classes: context.classes.cache.all(),
        unreadable_classes: names(context.classes.cache.unreadable()),
    };
    let plan = plan_secret(&snapshot);
    let wake = plan.wake_at();
    for step in plan.steps {
        tracing::debug!(secret = %key, reason = %step.reason, "step");
        context.secrets.patch(&secret.metadata, &step.action).await?;
    }
    Ok(wake.into())
}

fn observe(key: &Key, context: &Context) -> Option<Snapshot> {
    let class = context.classes.cache.get(key)?;
    let users = context.machines.cache.by(machines_by::CLASS, &key.name);
    let users = users.iter().filter(|machine| machine.spec.class.kind == KIND);
    let machines_using = users.map(|machine| machine.name_any()).collect();
    let state = |name: &str| match context.secrets.cache.get(&Key::new(&key.namespace, name)) {
        Some(secret) => SecretState::Present(Box::new(secret.metadata.clone())),
        None if context.secrets.cache.is_synced() => SecretState::Absent,
        None => SecretState::Unknown,
    };
    let secrets = secret_names(&class).into_iter().map(|name| (name.to_owned(), state(name))).collect();
    Some(Snapshot { machines_using, unreadable_machines: names(context.machines.cache.unreadable()), secrets, class })
}

fn names(unreadable: Vec<crate::runtime::cache::Unreadable>) -> Vec<String> {
    unreadable.into_iter().filter_map(|object| object.meta.name).collect()
}
