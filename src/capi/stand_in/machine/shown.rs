//! The content of a Machine that shows a native one.

use kube::ResourceExt;

use super::Snapshot;
use crate::{
    object::conditions::{self, ConditionVerdict},
    stand_in::mirror,
};
use mcm_api::{
    labels,
    machine::{Machine as Native, MachinePhase, OperationState},
    reasons::{StandInCondition, StandInReason},
};
use mcm_controllers::object::finalizer;
pub use mcm_conversion::{
    content_of, default_machine, provider_id, status as conversion,
    types::{INFRASTRUCTURE_GROUP, Machine, MachineDeployment, MachineSet, MachineStatus, ObjectRef, names},
    zone_of,
};

/// Labels of native machines that have another meaning in Cluster API, or none.
const NATIVE_ONLY: [&str; 3] = [labels::NODE, labels::DEPLOYMENT_NAME, labels::STAND_IN];

/// A new Machine. It is created with the fields that core would set, and the finalizer.
pub(super) fn made(snapshot: &Snapshot, native: &Native, set: &MachineSet, deployment: &MachineDeployment) -> Machine {
    let mut mirror = Machine::new(&native.name_any(), set.spec.template.spec.clone());
    mirror.metadata.namespace = native.namespace();
    updated(snapshot, &mirror, native, set, deployment)
}

/// S4: changes by users are undone; labels and annotations of other programs stay.
pub(super) fn updated(
    snapshot: &Snapshot,
    mirror: &Machine,
    native: &Native,
    set: &MachineSet,
    deployment: &MachineDeployment,
) -> Machine {
    let mut next = mirror.clone();
    let mut own = native.labels().clone();
    own.retain(|key, _| !NATIVE_ONLY.contains(&key.as_str()));
    own.extend(mirror::common_labels(deployment, native.labels().get(labels::TEMPLATE_HASH)));
    own.insert(names::SET_NAME.to_owned(), set.name_any());
    mirror::mark(&mut next.metadata, own, mirror::controller(set));
    if let Some(finalizers) = finalizer::with(&mirror.metadata, labels::STAND_IN_FINALIZER) {
        next.metadata.finalizers = Some(finalizers);
    }
    next.spec = set.spec.template.spec.clone();
    next.spec.cluster_name.clone_from(&deployment.spec.cluster_name);
    next.spec.deletion = deployment.spec.template.spec.deletion.clone();
    next.spec.min_ready_seconds = deployment.spec.template.spec.min_ready_seconds;
    next.spec.infrastructure_ref = ObjectRef {
        api_group: INFRASTRUCTURE_GROUP.to_owned(),
        kind: "MCMMachine".to_owned(),
        name: native.name_any(),
    };
    next.spec.provider_id = id_of(snapshot, native).unwrap_or_else(|| mirror.spec.provider_id.clone());
    // The webhooks of core, should it be installed, must find nothing to change in immutable fields.
    default_machine(&mut next);
    next
}

/// The ID of the VM, in the form of its Node. An ID whose zone is still unknown is not changed.
fn id_of(snapshot: &Snapshot, native: &Native) -> Option<String> {
    let zone = snapshot.class.as_ref().and_then(|class| zone_of(Some(&content_of(class))));
    provider_id::of_node(native, zone.as_deref())
}

/// The status.
pub(super) fn status(snapshot: &Snapshot, mirror: &Machine, native: &Native) -> MachineStatus {
    let stored = mirror.status.clone().unwrap_or_default();
    let was_provisioned = stored.initialization.infrastructure_provisioned == Some(true);
    let mut next = conversion::machine(native, was_provisioned);
    next.conditions = stored.conditions;
    next.observed_generation = mirror.metadata.generation;
    let is_provisioned = next.initialization.infrastructure_provisioned == Some(true);
    let is_ready = native.phase() == MachinePhase::Running && !native.is_terminating();
    let available = native.is_available() && is_ready;
    let all = [
        (StandInCondition::InfrastructureReady, infrastructure(native, is_provisioned)),
        (StandInCondition::NodeHealthy, node(native)),
        (StandInCondition::Ready, whether(StandInCondition::Ready, is_ready, told(native))),
        (StandInCondition::Available, whether(StandInCondition::Available, available, told(native))),
        (StandInCondition::UpToDate, whether(StandInCondition::UpToDate, snapshot.is_up_to_date, String::new())),
        (StandInCondition::Deleting, whether(StandInCondition::Deleting, native.is_terminating(), String::new())),
    ];
    for (type_, desired) in all {
        conditions::set(&mut next.conditions, type_, desired, mirror.metadata.generation, snapshot.now);
    }
    next
}

fn infrastructure(native: &Native, is_provisioned: bool) -> ConditionVerdict {
    let operation = native.status.as_ref().map(|status| &status.last_operation);
    match operation.filter(|operation| operation.state == Some(OperationState::Failed)) {
        _ if is_provisioned => ConditionVerdict::yes(StandInReason::Provisioned),
        Some(failed) => {
            let code =
                if failed.error_code.is_empty() { StandInReason::Failed.as_str() } else { failed.error_code.as_str() };
            ConditionVerdict::no(code, failed.description.clone())
        }
        None => ConditionVerdict::no(StandInReason::NotProvisioned, told(native)),
    }
}

fn node(native: &Native) -> ConditionVerdict {
    match native.phase() {
        MachinePhase::Running => ConditionVerdict::yes(StandInReason::Healthy),
        _ => ConditionVerdict::no(StandInReason::NotHealthy, told(native)),
    }
}

fn told(native: &Native) -> String {
    let phase = native.phase();
    let phase = if phase == MachinePhase::New { "new" } else { phase.as_str() };
    format!("the MCM Machine is {phase}")
}

fn whether(type_: StandInCondition, is_true: bool, message: String) -> ConditionVerdict {
    let message = if is_true { String::new() } else { message };
    ConditionVerdict::whether(is_true, type_.reason(is_true), message)
}
