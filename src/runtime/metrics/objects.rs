//! Gauges of machines, sets and deployments, made from the objects at each scrape.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::apimachinery::pkg::{apis::meta::v1::ObjectMeta, util::intstr::IntOrString};

use super::{Desc, Exposition};
use crate::api::machine::{
    Machine, MachineDeployment, MachinePhase, MachineSet, MachineSummary, OperationState, OperationType, StrategyType,
};

const MACHINES: Desc<0> = Desc::gauge("mcm_machine_items_total", "Machines there are.", []);
const MACHINE_PHASE: Desc<2> = Desc::gauge(
    "mcm_machine_current_status_phase",
    "Phase of a machine: -5 InPlaceUpdateFailed, -4 Terminating, -3 Failed, -2 CrashLoopBackOff, -1 Unknown, 0 Pending, \
     1 Running, 2 Available, 3 InPlaceUpdating, 4 InPlaceUpdateSuccessful.",
    ["name", "namespace"],
);
const MACHINE_INFO: Desc<8> = Desc::gauge(
    "mcm_machine_info",
    "What a machine is.",
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

const SETS: Desc<0> = Desc::gauge("mcm_machine_set_items_total", "Machine sets there are.", []);
const SET_INFO: Desc<6> = Desc::gauge(
    "mcm_machine_set_info",
    "What a machine set is.",
    [
        "name",
        "namespace",
        "createdAt",
        "spec_machine_class_api_group",
        "spec_machine_class_kind",
        "spec_machine_class_name",
    ],
);
const SET_CONDITION: Desc<3> = Desc::gauge(
    "mcm_machine_set_status_condition",
    "Condition of a machine set: 1 True, 0 False, 2 Unknown.",
    ["name", "namespace", "condition"],
);
const SET_FAILED: Desc<7> =
    Desc::gauge("mcm_machine_set_failed_machines", "A machine of a set whose last operation failed.", FAILED_LABELS);

const DEPLOYMENTS: Desc<0> = Desc::gauge("mcm_machine_deployment_items_total", "Machine deployments there are.", []);
const DEPLOYMENT_INFO: Desc<4> = Desc::gauge(
    "mcm_machine_deployment_info",
    "What a machine deployment is.",
    ["name", "namespace", "createdAt", "spec_strategy_type"],
);
const DEPLOYMENT_CONDITION: Desc<3> = Desc::gauge(
    "mcm_machine_deployment_status_condition",
    "Condition of a machine deployment: 1 True, 0 False, 2 Unknown.",
    ["name", "namespace", "condition"],
);
const DEPLOYMENT_FAILED: Desc<7> = Desc::gauge(
    "mcm_machine_deployment_failed_machines",
    "A machine of a deployment whose last operation failed.",
    FAILED_LABELS,
);
const FAILED_LABELS: [&str; 7] = [
    "name",
    "namespace",
    "failed_machine_name",
    "failed_machine_provider_id",
    "failed_machine_owner_ref",
    "failed_machine_last_operation_state",
    "failed_machine_last_operation_machine_operation_type",
];

/// A gauge with no labels but the object's name.
const fn plain(name: &'static str, help: &'static str) -> Desc<2> {
    Desc::gauge(name, help, ["name", "namespace"])
}

/// Adds all machines. Call it once per scrape.
pub fn machines<'a>(all: impl IntoIterator<Item = &'a Arc<Machine>>, out: &mut Exposition) {
    let all = sorted(all, |machine| &machine.metadata);
    out.sample(&MACHINES, [], all.len() as f64);
    for ([namespace, name], machine) in all {
        if let Some(number) = phase_number(machine.phase()) {
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

/// Adds all sets. Call it once per scrape.
pub fn machine_sets<'a>(all: impl IntoIterator<Item = &'a Arc<MachineSet>>, out: &mut Exposition) {
    const SPEC_REPLICAS: Desc<2> = plain("mcm_machine_set_info_spec_replicas", "Machines that a set shall have.");
    const MIN_READY: Desc<2> =
        plain("mcm_machine_set_info_spec_min_ready_seconds", "Value of minReadySeconds of a set; not used.");
    const REPLICAS: Desc<2> = plain("mcm_machine_set_status_replicas", "Machines of a set.");
    const AVAILABLE: Desc<2> =
        plain("mcm_machine_set_status_available_replicas", "Machines of a set that are available.");
    const READY: Desc<2> = plain("mcm_machine_set_status_ready_replicas", "Machines of a set that are ready.");
    const LABELLED: Desc<2> = plain(
        "mcm_machine_set_status_fully_labelled_replicas",
        "Machines of a set that carry all labels of its template.",
    );

    let all = sorted(all, |set| &set.metadata);
    out.sample(&SETS, [], all.len() as f64);
    for ([namespace, name], set) in all {
        let class = &set.spec.machine_class;
        let created = created_at(&set.metadata);
        out.sample(&SET_INFO, [name, namespace, &created, &class.api_group, &class.kind, &class.name], 1.0);
        gauges([name, namespace], [(SPEC_REPLICAS, set.spec.replicas), (MIN_READY, set.spec.min_ready_seconds)], out);
        let Some(status) = &set.status else { continue };
        let values = [
            (REPLICAS, status.replicas),
            (AVAILABLE, status.available_replicas),
            (READY, status.ready_replicas),
            (LABELLED, status.fully_labeled_replicas),
        ];
        gauges([name, namespace], values, out);
        let found = status.conditions.iter().map(|one| (&one.type_, &one.status));
        conditions(&SET_CONDITION, [name, namespace], found, out);
        failed(&SET_FAILED, [name, namespace], &status.failed_machines, out);
    }
}

/// Adds all deployments. Call it once per scrape.
pub fn machine_deployments<'a>(all: impl IntoIterator<Item = &'a Arc<MachineDeployment>>, out: &mut Exposition) {
    let all = sorted(all, |deployment| &deployment.metadata);
    out.sample(&DEPLOYMENTS, [], all.len() as f64);
    for ([namespace, name], deployment) in all {
        let created = created_at(&deployment.metadata);
        out.sample(&DEPLOYMENT_INFO, [name, namespace, &created, &deployment.spec.strategy.type_], 1.0);
        deployment_spec([name, namespace], deployment, out);
        let Some(status) = &deployment.status else { continue };
        deployment_status([name, namespace], status, out);
        let found = status.conditions.iter().map(|one| (&one.type_, &one.status));
        conditions(&DEPLOYMENT_CONDITION, [name, namespace], found, out);
        failed(&DEPLOYMENT_FAILED, [name, namespace], &status.failed_machines, out);
    }
}

fn deployment_spec(object: [&str; 2], deployment: &MachineDeployment, out: &mut Exposition) {
    const PAUSED: Desc<2> = plain("mcm_machine_deployment_info_spec_paused", "1 if a deployment is paused.");
    const REPLICAS: Desc<2> =
        plain("mcm_machine_deployment_info_spec_replicas", "Machines that a deployment shall have.");
    const MIN_READY: Desc<2> = plain(
        "mcm_machine_deployment_info_spec_min_ready_seconds",
        "Value of minReadySeconds of a deployment; not used.",
    );
    const HISTORY: Desc<2> =
        plain("mcm_machine_deployment_info_spec_revision_history_limit", "Old sets that a deployment keeps.");
    const DEADLINE: Desc<2> = plain(
        "mcm_machine_deployment_info_spec_progress_deadline_seconds",
        "Seconds without progress after which a rollout is reported as stuck.",
    );
    const ROLLBACK: Desc<2> =
        plain("mcm_machine_deployment_info_spec_rollback_to_revision", "Revision that a deployment shall return to.");
    const SURGE: Desc<2> = plain(
        "mcm_machine_deployment_info_spec_rolling_update_max_surge",
        "Machines that a rollout may have beyond the replicas.",
    );
    const UNAVAILABLE: Desc<2> = plain(
        "mcm_machine_deployment_info_spec_rolling_update_max_unavailable",
        "Machines that may be missing during a rollout.",
    );

    let spec = &deployment.spec;
    let values = [(PAUSED, i32::from(spec.paused)), (REPLICAS, spec.replicas), (MIN_READY, spec.min_ready_seconds)];
    gauges(object, values, out);
    let rolling =
        spec.strategy.rolling_update.as_ref().filter(|_| spec.strategy.kind() == Some(StrategyType::RollingUpdate));
    let surge = rolling.and_then(|rolling| count(rolling.max_surge.as_ref()?, spec.replicas, f64::ceil));
    let unavailable = rolling.and_then(|rolling| count(rolling.max_unavailable.as_ref()?, spec.replicas, f64::floor));
    let optional = [
        (HISTORY, spec.revision_history_limit.map(f64::from)),
        (DEADLINE, spec.progress_deadline_seconds.map(f64::from)),
        (ROLLBACK, spec.rollback_to.as_ref().map(|rollback| rollback.revision as f64)),
        (SURGE, surge),
        (UNAVAILABLE, unavailable),
    ];
    for (desc, value) in optional {
        if let Some(value) = value {
            out.sample(&desc, object, value);
        }
    }
}

fn deployment_status(object: [&str; 2], status: &crate::api::machine::MachineDeploymentStatus, out: &mut Exposition) {
    const REPLICAS: Desc<2> = plain("mcm_machine_deployment_status_replicas", "Machines of a deployment.");
    const AVAILABLE: Desc<2> =
        plain("mcm_machine_deployment_status_available_replicas", "Machines of a deployment that are available.");
    const UNAVAILABLE: Desc<2> =
        plain("mcm_machine_deployment_status_unavailable_replicas", "Machines that a deployment lacks.");
    const READY: Desc<2> =
        plain("mcm_machine_deployment_status_ready_replicas", "Machines of a deployment that are ready.");
    const UPDATED: Desc<2> =
        plain("mcm_machine_deployment_status_updated_replicas", "Machines of a deployment's current template.");
    const COLLISIONS: Desc<2> = plain(
        "mcm_machine_deployment_status_collision_count",
        "How often the name of a deployment's new set was taken.",
    );

    let values = [
        (REPLICAS, status.replicas),
        (AVAILABLE, status.available_replicas),
        (UNAVAILABLE, status.unavailable_replicas),
        (READY, status.ready_replicas),
        (UPDATED, status.updated_replicas),
    ];
    gauges(object, values, out);
    gauges(object, status.collision_count.map(|count| (COLLISIONS, count)), out);
}

/// By namespace and name. A name occurs once, as no two samples may have the same labels.
fn sorted<'a, K>(
    all: impl IntoIterator<Item = &'a Arc<K>>,
    metadata: impl Fn(&'a K) -> &'a ObjectMeta,
) -> BTreeMap<[&'a str; 2], &'a K> {
    let key = |object| {
        let ObjectMeta { namespace, name, .. } = metadata(object);
        [namespace.as_deref().unwrap_or_default(), name.as_deref().unwrap_or_default()]
    };
    all.into_iter().map(|object| (key(&**object), &**object)).collect()
}

fn created_at(metadata: &ObjectMeta) -> String {
    metadata.creation_timestamp.as_ref().map(|time| time.0.as_second()).unwrap_or_default().to_string()
}

fn gauges(object: [&str; 2], values: impl IntoIterator<Item = (Desc<2>, i32)>, out: &mut Exposition) {
    for (desc, value) in values {
        out.sample(&desc, object, f64::from(value));
    }
}

fn conditions<'a>(
    desc: &Desc<3>,
    [name, namespace]: [&str; 2],
    found: impl Iterator<Item = (&'a String, &'a String)>,
    out: &mut Exposition,
) {
    for (condition, status) in found.collect::<BTreeMap<_, _>>() {
        let value = match status.as_str() {
            "True" => 1.0,
            "False" => 0.0,
            _ => 2.0,
        };
        out.sample(desc, [name, namespace, condition], value);
    }
}

fn failed(desc: &Desc<7>, [name, namespace]: [&str; 2], machines: &[MachineSummary], out: &mut Exposition) {
    let by_name: BTreeMap<&str, &MachineSummary> = machines.iter().map(|one| (one.name.as_str(), one)).collect();
    for (machine, MachineSummary { provider_id, last_operation, owner_ref, .. }) in by_name {
        let state = last_operation.state.map_or("", state_name);
        let operation = last_operation.type_.map_or("", operation_name);
        out.sample(desc, [name, namespace, machine, provider_id, owner_ref, state, operation], 1.0);
    }
}

/// The numbers that the reference gives, and numbers of their own for the phases that it reports as Pending. A machine
/// without a phase has none.
const fn phase_number(phase: MachinePhase) -> Option<f64> {
    Some(match phase {
        MachinePhase::New => return None,
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

const fn state_name(state: OperationState) -> &'static str {
    match state {
        OperationState::Processing => "Processing",
        OperationState::Failed => "Failed",
        OperationState::Successful => "Successful",
    }
}

const fn operation_name(operation: OperationType) -> &'static str {
    match operation {
        OperationType::Create => "Create",
        OperationType::Update => "Update",
        OperationType::InPlaceUpdate => "InPlaceUpdate",
        OperationType::DrainNode => "DrainNode",
        OperationType::HealthCheck => "HealthCheck",
        OperationType::Delete => "Delete",
    }
}

/// A number, or a percentage of the replicas; `None` if it is neither.
fn count(value: &IntOrString, replicas: i32, round: fn(f64) -> f64) -> Option<f64> {
    match value {
        IntOrString::Int(number) => Some(f64::from(*number)),
        IntOrString::String(text) => match text.strip_suffix('%') {
            Some(percent) => Some(round(f64::from(percent.parse::<i32>().ok()?) * f64::from(replicas) / 100.0)),
            None => text.parse::<i32>().ok().map(f64::from),
        },
    }
}

#[cfg(test)]
mod tests;
