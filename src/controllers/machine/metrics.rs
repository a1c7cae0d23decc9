//! Metrics of Machines, measured as in the reference.

use std::{sync::Arc, time::Duration};

use super::{Action, ClassView, Snapshot};
use crate::{
    api::{
        labels,
        machine::{Machine, MachinePhase, OperationState, OperationType},
    },
    controllers::{
        machine::Ports,
        object::metrics::{conditions, created_at, sorted},
    },
    runtime::metrics::{Desc, Exposition, Pool},
};

const ZONE: &str = "topology.kubernetes.io/zone";

/// A driver call ended.
pub(super) fn called(snapshot: &Snapshot, action: &Action, succeeded: bool, took: Duration, context: &Ports) {
    let Some(pool) = pool(snapshot).filter(|_| succeeded) else { return };
    let machines = context.metrics.machines();
    let meta = &snapshot.machine.metadata;
    match action {
        Action::CreateVm => machines.created(pool, since(meta.creation_timestamp.as_ref(), context)),
        Action::InitializeVm => machines.initialized(pool, took),
        // The VM of a Machine that is not being deleted is deleted if it cannot join. That is no deletion of a Machine.
        Action::DeleteVm if meta.deletion_timestamp.is_some() => {
            machines.deleted(pool, since(meta.deletion_timestamp.as_ref(), context));
        }
        _ => {}
    }
}

/// A status was written.
pub(super) fn transition(before: &Machine, after: &Machine, snapshot: &Snapshot, context: &Ports) {
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

fn since(time: Option<&k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>, context: &Ports) -> Duration {
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

const MACHINES: Desc<0> = Desc::gauge("mcm_machine_items_total", "Number of machines.", []);
const MACHINE_PHASE: Desc<2> = Desc::gauge(
    "mcm_machine_current_status_phase",
    "Phase of a machine: -5 InPlaceUpdateFailed, -4 Terminating, -3 Failed, -2 CrashLoopBackOff, -1 Unknown, 0 Pending, \
     1 Running, 2 Available, 3 InPlaceUpdating, 4 InPlaceUpdateSuccessful.",
    ["name", "namespace"],
);
const MACHINE_INFO: Desc<8> = Desc::gauge(
    "mcm_machine_info",
    "Properties of a machine.",
    [
        "name",
        "namespace",
        "createdAt",
        "spec_provider_id",
        "spec_class_api_group",
        "spec_class_kind",
        "spec_class_name",
        "node_name",
    ],
);
const MACHINE_CONDITION: Desc<3> = Desc::gauge(
    "mcm_machine_status_condition",
    "Condition of a machine: 1 True, 0 False, 2 Unknown.",
    ["name", "namespace", "condition"],
);

/// Adds all machines. Call it once per scrape.
pub(crate) fn machines<'a>(all: impl IntoIterator<Item = &'a Arc<Machine>>, out: &mut Exposition) {
    let all = sorted(all, |machine| &machine.metadata);
    out.sample(&MACHINES, [], all.len() as f64);
    for ([namespace, name], machine) in all {
        if let Some(number) = phase_number(&machine.phase()) {
            out.sample(&MACHINE_PHASE, [name, namespace], number);
        }
        let class = &machine.spec.class;
        let node = machine.node_name().unwrap_or_default();
        let created = created_at(&machine.metadata);
        let info =
            [name, namespace, &created, &machine.spec.provider_id, &class.api_group, &class.kind, &class.name, node];
        out.sample(&MACHINE_INFO, info, 1.0);
        let found = machine.status.iter().flat_map(|status| &status.conditions);
        conditions(&MACHINE_CONDITION, [name, namespace], found.map(|one| (&one.type_, &one.status)), out);
    }
}

/// The numbers of the reference, and distinct numbers for the phases that it reports as Pending. A machine
/// without a phase has none, nor has one whose phase we do not know.
const fn phase_number(phase: &MachinePhase) -> Option<f64> {
    Some(match phase {
        MachinePhase::New | MachinePhase::Other(_) => return None,
        MachinePhase::InPlaceUpdateFailed => -5.0,
        MachinePhase::Terminating => -4.0,
        MachinePhase::Failed => -3.0,
        MachinePhase::CrashLoopBackOff => -2.0,
        MachinePhase::Unknown => -1.0,
        MachinePhase::Pending => 0.0,
        MachinePhase::Running => 1.0,
        MachinePhase::Available => 2.0,
        MachinePhase::InPlaceUpdating => 3.0,
        MachinePhase::InPlaceUpdateSuccessful => 4.0,
    })
}
