//! Gauges of deployments, computed from the cached objects at each scrape.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::object::metrics::{FAILED_LABELS, conditions, created_at, failed, gauges, plain, sorted};
use mcm_api::machine::{MachineDeployment, StrategyType};
use mcm_runtime::metrics::{MetricDesc, SeriesGroup, TextExposition};

const DEPLOYMENTS: MetricDesc<0> =
    MetricDesc::gauge("mcm_machine_deployment_items_total", "Number of machine deployments.", []);
const DEPLOYMENT_INFO: MetricDesc<4> = MetricDesc::gauge(
    "mcm_machine_deployment_info",
    "Properties of a machine deployment.",
    ["name", "namespace", "createdAt", "spec_strategy_type"],
);
const DEPLOYMENT_CONDITION: MetricDesc<3> = MetricDesc::gauge(
    "mcm_machine_deployment_status_condition",
    "Condition of a machine deployment: 1 True, 0 False, 2 Unknown.",
    ["name", "namespace", "condition"],
);
const DEPLOYMENT_FAILED: MetricDesc<7> = MetricDesc::gauge(
    "mcm_machine_deployment_failed_machines",
    "A machine of a deployment whose last operation failed.",
    FAILED_LABELS,
);

/// Adds all deployments. Call it once per scrape.
pub(crate) fn machine_deployments<'a>(
    all: impl IntoIterator<Item = &'a Arc<MachineDeployment>>,
    out: &mut TextExposition,
) {
    let all = sorted(all, |deployment| &deployment.metadata);
    out.sample(&DEPLOYMENTS, [], all.len() as f64);
    for ([namespace, name], deployment) in all {
        deployment_spec([name, namespace], deployment, out);
        let Some(status) = &deployment.status else { continue };
        deployment_status([name, namespace], status, out);
        let found = status.conditions.iter().map(|one| (one.type_.as_str(), one.status.as_str()));
        conditions(&DEPLOYMENT_CONDITION, [name, namespace], found, out);
        out.details(SeriesGroup::Machines, |out| {
            failed(&DEPLOYMENT_FAILED, [name, namespace], &status.failed_machines, out);
        });
    }
}

fn deployment_spec(object: [&str; 2], deployment: &MachineDeployment, out: &mut TextExposition) {
    const PAUSED: MetricDesc<2> = plain("mcm_machine_deployment_info_spec_paused", "1 if a deployment is paused.");
    const REPLICAS: MetricDesc<2> =
        plain("mcm_machine_deployment_info_spec_replicas", "Desired replicas of a deployment.");
    const MIN_READY: MetricDesc<2> = plain(
        "mcm_machine_deployment_info_spec_min_ready_seconds",
        "Value of minReadySeconds of a deployment. It has no effect.",
    );
    const HISTORY: MetricDesc<2> =
        plain("mcm_machine_deployment_info_spec_revision_history_limit", "Old machine sets that a deployment retains.");
    const DEADLINE: MetricDesc<2> = plain(
        "mcm_machine_deployment_info_spec_progress_deadline_seconds",
        "Seconds without progress after which a rollout is reported as stuck.",
    );
    const ROLLBACK: MetricDesc<2> = plain(
        "mcm_machine_deployment_info_spec_rollback_to_revision",
        "Revision to which a deployment is to be rolled back.",
    );
    const SURGE: MetricDesc<2> = plain(
        "mcm_machine_deployment_info_spec_rolling_update_max_surge",
        "Machines that may exist beyond the desired replicas during a rollout.",
    );
    const UNAVAILABLE: MetricDesc<2> = plain(
        "mcm_machine_deployment_info_spec_rolling_update_max_unavailable",
        "Machines that may be unavailable during a rollout.",
    );

    let spec = &deployment.spec;
    gauges(object, [(PAUSED, i32::from(spec.paused)), (REPLICAS, spec.replicas)], out);
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
    out.details(SeriesGroup::Machines, |out| {
        let ([name, namespace], created) = (object, created_at(&deployment.metadata));
        out.sample(&DEPLOYMENT_INFO, [name, namespace, &created, &spec.strategy.type_], 1.0);
        gauges(object, [(MIN_READY, spec.min_ready_seconds)], out);
        for (desc, value) in optional {
            if let Some(value) = value {
                out.sample(&desc, object, value);
            }
        }
    });
}

fn deployment_status(object: [&str; 2], status: &mcm_api::machine::MachineDeploymentStatus, out: &mut TextExposition) {
    const REPLICAS: MetricDesc<2> = plain("mcm_machine_deployment_status_replicas", "Machines of a deployment.");
    const AVAILABLE: MetricDesc<2> =
        plain("mcm_machine_deployment_status_available_replicas", "Machines of a deployment that are available.");
    const UNAVAILABLE: MetricDesc<2> = plain(
        "mcm_machine_deployment_status_unavailable_replicas",
        "Machines of a deployment that are missing or not available.",
    );
    const READY: MetricDesc<2> =
        plain("mcm_machine_deployment_status_ready_replicas", "Machines of a deployment that are ready.");
    const UPDATED: MetricDesc<2> =
        plain("mcm_machine_deployment_status_updated_replicas", "Machines of a deployment with the current template.");
    const COLLISIONS: MetricDesc<2> = plain(
        "mcm_machine_deployment_status_collision_count",
        "Hash collisions in the name of a deployment's new set.",
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
