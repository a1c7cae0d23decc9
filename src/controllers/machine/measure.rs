//! What is measured of a Machine's life, as the reference measures it.

use std::time::Duration;

use super::{Action, ClassView, Snapshot};
use crate::{
    api::{
        labels,
        machine::{Machine, MachinePhase, OperationState, OperationType},
    },
    controllers::context::Context,
    runtime::metrics::Pool,
};

const ZONE: &str = "topology.kubernetes.io/zone";

/// A driver call ended.
pub(super) fn called(snapshot: &Snapshot, action: &Action, succeeded: bool, took: Duration, context: &Context) {
    let Some(pool) = pool(snapshot).filter(|_| succeeded) else { return };
    let machines = context.metrics.machines();
    let meta = &snapshot.machine.metadata;
    match action {
        Action::CreateVm => machines.created(pool, since(meta.creation_timestamp.as_ref(), context)),
        Action::InitializeVm => machines.initialized(pool, took),
        Action::DeleteVm => machines.deleted(pool, since(meta.deletion_timestamp.as_ref(), context)),
        _ => {}
    }
}

/// A status was written.
pub(super) fn transition(before: &Machine, after: &Machine, snapshot: &Snapshot, context: &Context) {
    let Some(pool) = pool(snapshot) else { return };
    let machines = context.metrics.machines();
    let operation = after.status.as_ref().map(|status| &status.last_operation);
    let joined = operation.is_some_and(|operation| {
        operation.type_ == Some(OperationType::Create) && operation.state == Some(OperationState::Successful)
    });
    match (before.phase(), after.phase()) {
        (from, MachinePhase::Running) if from != MachinePhase::Running && joined => {
            machines.joined(pool, since(after.metadata.creation_timestamp.as_ref(), context));
        }
        (MachinePhase::Pending, MachinePhase::Failed) => machines.failed_to_join(pool),
        (_, MachinePhase::Terminating)
            if operation.is_some_and(|operation| operation.description.starts_with("Drain successful")) =>
        {
            let took = since(after.metadata.deletion_timestamp.as_ref(), context);
            machines.drained(pool.namespace, pool.deployment, took);
        }
        _ => {}
    }
}

fn since(time: Option<&k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>, context: &Context) -> Duration {
    let elapsed = time.map(|time| context.now().duration_since(time.0)).unwrap_or_default();
    Duration::try_from(elapsed).unwrap_or_default()
}

fn pool(snapshot: &Snapshot) -> Option<Pool<'_>> {
    let machine = &snapshot.machine;
    let class = match &snapshot.class {
        ClassView::Present { class, .. } | ClassView::Unserved(class) => class.node_template.as_ref(),
        ClassView::Unknown | ClassView::Missing => None,
    };
    Some(Pool {
        namespace: machine.metadata.namespace.as_deref().unwrap_or_default(),
        deployment: machine.metadata.labels.as_ref()?.get(labels::DEPLOYMENT_NAME)?,
        instance_type: class.map(|template| template.instance_type.as_str()).unwrap_or_default(),
        zone: machine.spec.node_template.metadata.labels.get(ZONE).map(String::as_str).unwrap_or_default(),
    })
}
