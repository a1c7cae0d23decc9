//! Defaults that the admission webhooks of Cluster API fill in.

use k8s_openapi::apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString};

use super::scalable::default_replicas;
use crate::types::{Machine, MachineDeployment, MachineHealthCheck, MachinePool, MachineSet, MachineTemplate, names};

/// Of a Machine, in seconds.
pub(super) const NODE_DELETION_TIMEOUT: i32 = 10;
const NODE_STARTUP_TIMEOUT: i32 = 600;

/// Fills in the defaults of a deployment.
pub fn deployment(deployment: &mut MachineDeployment) {
    let name = deployment.metadata.name.clone().unwrap_or_default();
    let cluster = deployment.spec.cluster_name.clone();
    let spec = &mut deployment.spec;
    deployment.metadata.labels.get_or_insert_default().insert(names::CLUSTER_NAME.to_owned(), cluster.clone());
    spec.replicas.get_or_insert_with(|| default_replicas(deployment.metadata.annotations.as_ref()));
    let strategy = &mut spec.rollout.strategy;
    if strategy.type_.is_empty() {
        strategy.type_ = "RollingUpdate".to_owned();
    }
    if strategy.type_ == "RollingUpdate" {
        strategy.rolling_update.max_surge.get_or_insert(IntOrString::Int(1));
        strategy.rolling_update.max_unavailable.get_or_insert(IntOrString::Int(0));
    }
    selector(&mut spec.selector, &mut spec.template, names::DEPLOYMENT_NAME, &name);
    spec.selector.match_labels.get_or_insert_default().insert(names::CLUSTER_NAME.to_owned(), cluster.clone());
    spec.template.metadata.labels.insert(names::CLUSTER_NAME.to_owned(), cluster);
    version(&mut spec.template.spec.version);
}

/// Fills in the defaults of a set.
pub fn set(set: &mut MachineSet) {
    let name = set.metadata.name.clone().unwrap_or_default();
    let spec = &mut set.spec;
    let cluster = spec.cluster_name.clone();
    set.metadata.labels.get_or_insert_default().insert(names::CLUSTER_NAME.to_owned(), cluster);
    spec.replicas.get_or_insert_with(|| default_replicas(set.metadata.annotations.as_ref()));
    selector(&mut spec.selector, &mut spec.template, names::SET_NAME, &name);
    version(&mut spec.template.spec.version);
}

/// Fills in the defaults of a pool.
pub fn pool(pool: &mut MachinePool) {
    let spec = &mut pool.spec;
    let cluster = spec.cluster_name.clone();
    pool.metadata.labels.get_or_insert_default().insert(names::CLUSTER_NAME.to_owned(), cluster);
    spec.replicas.get_or_insert_with(|| default_replicas(pool.metadata.annotations.as_ref()));
    version(&mut spec.template.spec.version);
}

/// Fills in the defaults of a machine.
pub fn machine(machine: &mut Machine) {
    let cluster = machine.spec.cluster_name.clone();
    machine.metadata.labels.get_or_insert_default().insert(names::CLUSTER_NAME.to_owned(), cluster);
    machine.spec.deletion.node_deletion_timeout_seconds.get_or_insert(NODE_DELETION_TIMEOUT);
    version(&mut machine.spec.version);
}

/// Fills in the defaults of a health check.
pub fn health_check(check: &mut MachineHealthCheck) {
    let cluster = check.spec.cluster_name.clone();
    check.metadata.labels.get_or_insert_default().insert(names::CLUSTER_NAME.to_owned(), cluster);
    check.spec.checks.node_startup_timeout_seconds.get_or_insert(NODE_STARTUP_TIMEOUT);
}

fn selector(selector: &mut LabelSelector, template: &mut MachineTemplate, label: &str, name: &str) {
    let has_labels = selector.match_labels.as_ref().is_some_and(|labels| !labels.is_empty());
    let has_expressions = selector.match_expressions.as_ref().is_some_and(|all| !all.is_empty());
    if !has_labels && !has_expressions {
        selector.match_labels.get_or_insert_default().insert(label.to_owned(), name.to_owned());
        template.metadata.labels.insert(label.to_owned(), name.to_owned());
    }
}

fn version(version: &mut String) {
    if !version.is_empty() && !version.starts_with('v') {
        version.insert(0, 'v');
    }
}
