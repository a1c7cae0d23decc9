//! `/configz`: the settings of the controllers, by the names of their flags. It contains no credentials and no paths.

use std::time::Duration;

use jiff::SignedDuration;
use serde_json::{Map, Value, json};

use super::{
    build_info::{VERSION, commit},
    options::ProcessOptions,
};
use crate::api::GoDuration;
use mcm_controllers::{MACHINES, SETS, machine};
use mcm_rules::{drain::VolumeTimeouts, safety::meltdown::MeltdownLimits};
use mcm_runtime::limiter::RequestRate;

/// The settings of a process.
pub(super) fn configz(options: &ProcessOptions) -> Value {
    let RequestRate { qps, burst } = options.rate;
    let mut flags = Map::new();
    let mut put = |flag: &str, value: Value| drop(flags.insert(flag.to_owned(), value));
    put("kube-api-qps", json!(qps));
    put("kube-api-burst", json!(burst));
    put("max-nodes-per-target", json!(options.max_nodes));
    put("leader-elect", json!(options.leases.is_some()));
    let is_provider = options.provider.is_some();
    if options.roles.contains(&SETS) {
        put("safety-up", json!(options.overshoot.margins.up));
        put("safety-down", json!(options.overshoot.margins.down));
        put("machine-safety-overshooting-period", duration_value(options.overshoot.period));
        put("autoscaler-scaledown-annotation-during-rollout", json!(options.deployment.annotate_nodes));
    }
    if options.roles.contains(&MACHINES) {
        put("machine-safety-apiserver-statuscheck-timeout", of_signed(options.probing.timeout));
        put("machine-safety-apiserver-statuscheck-period", of_signed(options.probing.period));
        put("machine-safety-orphan-vms-period", duration_value(options.orphans.period));
        put("machine-safety-orphan-vms-minimum-age", of_signed(options.orphans.minimum_age));
        put("machine-safety-orphan-vms-dry-run", json!(options.orphans.is_dry_run));
        put("machine-safety-orphan-vms-sole-user", json!(options.orphans.is_sole_user));
    }
    if is_provider || options.roles.contains(&MACHINES) {
        flags.insert("machine-series".to_owned(), json!(options.series.as_str()));
        flags.extend(of_machines(&options.machine));
    }
    if is_provider {
        flags.insert("vm-check-period".to_owned(), json!(options.machine.vm_check_period.to_string()));
    }
    let roles: Vec<&str> = options.roles.iter().map(|role| role.lease).collect();
    document(&roles, &flags)
}

/// The settings of a process without controllers.
pub(super) fn without_controllers() -> Value {
    document(&[], &Map::new())
}

fn document(roles: &[&str], flags: &Map<String, Value>) -> Value {
    json!({ "mcm": { "version": VERSION, "commit": commit(), "roles": roles, "flags": flags } })
}

fn of_machines(policy: &machine::MachinePolicy) -> Vec<(String, Value)> {
    let machine::MachinePolicy {
        creation_timeout,
        health_timeout,
        drain_timeout,
        in_place_update_timeout,
        preserve_timeout,
        max_evict_retries,
        volumes: VolumeTimeouts { detach, reattach },
        node_conditions,
        resource_exhausted_retry,
        bootstrap_token_groups,
        unhealthy_replacements: MeltdownLimits { per_deployment, per_zone },
        // Only the provider for Cluster API has a flag for it.
        vm_check_period: _,
    } = policy;
    let flags = [
        ("machine-creation-timeout", json!(creation_timeout.to_string())),
        ("machine-health-timeout", json!(health_timeout.to_string())),
        ("machine-drain-timeout", json!(drain_timeout.to_string())),
        ("machine-inplace-update-timeout", json!(in_place_update_timeout.to_string())),
        ("machine-preserve-timeout", json!(preserve_timeout.to_string())),
        ("machine-max-evict-retries", json!(max_evict_retries)),
        ("machine-pv-detach-timeout", of_signed(*detach)),
        ("machine-pv-reattach-timeout", of_signed(*reattach)),
        ("node-conditions", json!(node_conditions.join(","))),
        ("resource-exhausted-retry", json!(resource_exhausted_retry.to_string())),
        ("bootstrap-token-auth-extra-groups", json!(bootstrap_token_groups)),
        ("machine-safety-max-unhealthy-replacements", json!(per_deployment.to_string())),
        ("machine-safety-max-unhealthy-replacements-per-zone", json!(per_zone.map(|limit| limit.to_string()))),
    ];
    flags.map(|(flag, value)| (flag.to_owned(), value)).into()
}

fn duration_value(duration: Duration) -> Value {
    json!(GoDuration::from(duration).to_string())
}

fn of_signed(duration: SignedDuration) -> Value {
    duration_value(Duration::try_from(duration).unwrap_or_default())
}
