//! When an unhealthy machine is replaced: four fields of the native template, a MachineHealthCheck on the other side.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::{Deserialize, Serialize};

use super::{
    options::NativeDefaults,
    report::ConversionReport,
    seconds::{NEVER, fits, limit, seconds},
};
use crate::types::{Checks, MachineHealthCheckSpec, UnhealthyCondition};
use mcm_api::{GoDuration, machine::MachineConfiguration};

/// The default of Cluster API if a health check has no start-up timeout: 10 minutes.
const STARTUP: i32 = 600;
const READY: &str = "Ready";

/// The native fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct NativeHealthFields {
    pub creation_timeout: Option<GoDuration>,
    pub health_timeout: Option<GoDuration>,
    pub disable_health_timeout: Option<bool>,
    pub node_conditions: Option<String>,
}

/// The health settings of a machine in Cluster API.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct MachineHealthSettings {
    /// The checks of the health check that covers the machine; without one, the machine is never replaced.
    pub checks: Option<Checks>,
    /// Value of the annotation that excludes the machine.
    pub skip: Option<String>,
}

impl NativeHealthFields {
    pub(super) fn from_configuration(configuration: &MachineConfiguration) -> Self {
        Self {
            creation_timeout: configuration.creation_timeout,
            health_timeout: configuration.health_timeout,
            disable_health_timeout: configuration.disable_health_timeout,
            node_conditions: configuration.node_conditions.clone(),
        }
    }

    /// The health check with the same effect; `None` if no machine is ever replaced.
    pub(super) fn to_capi(&self, defaults: &NativeDefaults) -> MachineHealthSettings {
        let startup = seconds(self.creation_timeout.unwrap_or(defaults.creation_timeout)).unwrap_or(0);
        let is_off = self.disable_health_timeout == Some(true);
        if is_off && startup == 0 {
            return MachineHealthSettings::default();
        }
        let timeout_seconds = seconds(self.health_timeout.unwrap_or(defaults.health_timeout)).unwrap_or(i32::MAX);
        let condition = |type_: &str, status: &str| UnhealthyCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            timeout_seconds,
        };
        let listed = self.node_conditions.as_deref().unwrap_or(&defaults.node_conditions);
        let others = listed.split(',').filter(|type_| !type_.is_empty()).map(|type_| condition(type_, "True"));
        let ready = [condition(READY, "False"), condition(READY, "Unknown")];
        let unhealthy_node_conditions = if is_off { Vec::new() } else { ready.into_iter().chain(others).collect() };
        let checks =
            Checks { node_startup_timeout_seconds: Some(startup), unhealthy_node_conditions, ..Checks::default() };
        MachineHealthSettings { checks: Some(checks), skip: None }
    }

    /// [`Self::to_capi`] for a machine without an owner that replaces it: its exclusion is an annotation.
    pub(super) fn to_capi_machine(&self) -> MachineHealthSettings {
        let is_off = self.disable_health_timeout == Some(true) && self.creation_timeout != Some(NEVER);
        MachineHealthSettings { checks: None, skip: is_off.then(String::new) }
    }

    /// Reports durations that seconds cannot hold.
    pub(super) fn check(&self, prefix: &str, report: &mut ConversionReport) {
        for (name, duration) in [("creationTimeout", self.creation_timeout), ("healthTimeout", self.health_timeout)] {
            if duration.is_some_and(|duration| !fits(duration)) {
                report.refuse(
                    format!("{prefix}spec.{name}"),
                    "is longer than 2147483647 s, which Cluster API cannot hold",
                    "shorten it, or set 876000h for no limit",
                );
            }
        }
    }
}

impl MachineHealthSettings {
    /// The native fields with the same effect. Natively, absent values are limits, so nothing is left out.
    pub(super) fn to_native(&self) -> NativeHealthFields {
        let Some(checks) = &self.checks else {
            return NativeHealthFields {
                creation_timeout: Some(NEVER),
                disable_health_timeout: Some(true),
                ..NativeHealthFields::default()
            };
        };
        let creation_timeout = Some(limit(checks.node_startup_timeout_seconds.unwrap_or(STARTUP)));
        let Some(first) = checks.unhealthy_node_conditions.first() else {
            return NativeHealthFields {
                creation_timeout,
                disable_health_timeout: Some(true),
                ..NativeHealthFields::default()
            };
        };
        let others = checks.unhealthy_node_conditions.iter().map(|condition| condition.type_.as_str());
        let node_conditions = others.filter(|type_| *type_ != READY).collect::<Vec<_>>().join(",");
        NativeHealthFields {
            creation_timeout,
            health_timeout: Some(GoDuration::from_secs(i64::from(first.timeout_seconds))),
            disable_health_timeout: self.skip.is_some().then_some(true),
            node_conditions: Some(node_conditions),
        }
    }
}

/// Refuses settings that the native health check cannot express.
pub(super) fn check(spec: &MachineHealthCheckSpec, report: &mut ConversionReport) {
    let conditions = &spec.checks.unhealthy_node_conditions;
    let path = |index: usize, field: &str| format!("spec.checks.unhealthyNodeConditions[{index}].{field}");
    for (index, condition) in conditions.iter().enumerate() {
        let is_ready = condition.type_ == READY;
        let is_expected = if is_ready { condition.status != "True" } else { condition.status == "True" };
        if !is_expected {
            report.refuse(
                path(index, "status"),
                format!("{} {} does not make a machine unhealthy in MCM", condition.type_, condition.status),
                "MCM counts Ready if it is False or Unknown, other types if they are True",
            );
        }
        if condition.type_.is_empty() || condition.type_.contains(',') {
            report.refuse(path(index, "type"), "is not the type of a condition", "correct it");
        }
        if conditions.first().is_some_and(|first| first.timeout_seconds != condition.timeout_seconds) {
            report.refuse(
                path(index, "timeoutSeconds"),
                "differs from that of the first condition; MCM has one healthTimeout",
                "use the same number everywhere",
            );
        }
    }
    let has = |status: &str| conditions.iter().any(|one| one.type_ == READY && one.status == status);
    let has_both = has("False") && has("Unknown");
    if !conditions.is_empty() && !has_both {
        report.refuse(
            "spec.checks.unhealthyNodeConditions",
            "to MCM a machine is always unhealthy if Ready is False or Unknown",
            "list both, or neither and nothing else",
        );
    }
    let all = IntOrString::String("100%".to_owned());
    let unsupported = [
        ("spec.checks.unhealthyMachineConditions", !spec.checks.unhealthy_machine_conditions.is_empty()),
        ("spec.checks.unhealthyExpressions", !spec.checks.unhealthy_expressions.is_empty()),
        (
            "spec.remediation.triggerIf.unhealthyLessThanOrEqualTo",
            // All machines at once is no limit; it is the default of v1beta1.
            spec.remediation.trigger_if.unhealthy_less_than_or_equal_to.as_ref().is_some_and(|most| *most != all),
        ),
        ("spec.remediation.triggerIf.unhealthyInRange", !spec.remediation.trigger_if.unhealthy_in_range.is_empty()),
        ("spec.remediation.templateRef", !spec.remediation.template_ref.is_empty()),
    ];
    for (path, _) in unsupported.into_iter().filter(|(_, is_set)| *is_set) {
        report.refuse(path, "has no MCM equivalent: other machines would be replaced", "remove it");
    }
}
