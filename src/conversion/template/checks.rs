//! Obstacles to the conversion of a template, and fields without effect on the other side.

use k8s_openapi::api::core::v1::NodeSpec;

use super::{
    place::{TemplateLocation, TemplateOwner},
    values::ALWAYS,
};
use crate::{
    health::NativeHealthFields,
    notes::{annotation, label},
    report::ConversionReport,
    seconds::{NEVER, fits},
    types::{MachineMeta, MachineSpec, names},
};
use mcm_api::{labels, machine};

/// Refuses fields that no native controller honours.
pub fn check_capi(meta: &MachineMeta, spec: &MachineSpec, place: &TemplateLocation<'_>, report: &mut ConversionReport) {
    let at = place.prefix();
    if place.owner != TemplateOwner::Machine && meta.labels.contains_key(names::CONTROL_PLANE) {
        report.refuse(
            label(at, names::CONTROL_PLANE),
            "MCM MachineSets are for workers",
            "leave the control plane to its provider, or convert its Machines one by one",
        );
    }
    if meta.labels.contains_key(labels::NODE) {
        let reason = "MCM names the Node of a machine in this label, and deletes it with the machine";
        report.refuse(label(at, labels::NODE), reason, "use another label");
    }
    for key in meta.annotations.keys() {
        let is_hook = [names::PRE_DRAIN_HOOK, names::PRE_TERMINATE_HOOK].iter().any(|hook| key.starts_with(hook));
        let (reason, advice) = match key.as_str() {
            names::EXCLUDE_DRAIN => (
                "MCM drains every Node; force-deletion is not equivalent, because it also abandons the VM",
                "remove the annotation",
            ),
            names::REMEDIATE_MACHINE => {
                ("the Machine is about to be replaced", "wait until it is, or delete it, and convert again")
            }
            names::PAUSED => ("a single MCM object cannot be paused", "convert when it is no longer paused"),
            _ if is_hook => ("MCM does not wait for it: the VM would be deleted too early", "remove the annotation"),
            _ => continue,
        };
        report.refuse(annotation(at, key), reason, advice);
    }
    for index in 0..spec.readiness_gates.len() {
        report.refuse(
            format!("{at}spec.readinessGates[{index}]"),
            "has no MCM equivalent: machines would count as ready too early",
            "remove it",
        );
    }
    for (index, taint) in spec.taints.iter().enumerate().filter(|(_, taint)| taint.propagation != ALWAYS) {
        report.refuse(
            format!("{at}spec.taints[{index}].propagation"),
            format!("{:?} is not supported: MCM always keeps a taint on the Node", taint.propagation),
            "use Always, or have the kubelet register with the taint",
        );
    }
}

/// Refuses fields that Cluster API cannot hold, and reports fields without effect there.
pub fn check_native(template: &machine::MachineTemplate, place: &TemplateLocation<'_>, report: &mut ConversionReport) {
    let at = place.prefix();
    let spec = &template.spec;
    if spec.configuration.drain_timeout.is_some_and(|duration| !fits(duration)) {
        report.refuse(
            format!("{at}spec.drainTimeout"),
            "is longer than 2147483647 s, which Cluster API cannot hold",
            "shorten it, or set 876000h for no limit",
        );
    }
    NativeHealthFields::from_configuration(&spec.configuration).check(at, report);
    if spec.class.name.is_empty() {
        report.refuse(format!("{at}spec.class.name"), "is empty", "name the MachineClass");
    }
    if !["", "MachineClass"].contains(&spec.class.kind.as_str()) {
        report.refuse(
            format!("{at}spec.class.kind"),
            format!("{:?} is not MachineClass", spec.class.kind),
            "correct it",
        );
    }
    if place.owner != TemplateOwner::Machine && !spec.provider_id.is_empty() {
        report.refuse(format!("{at}spec.providerID"), "all machines would share one VM", "remove it");
    }
    if template.metadata.labels.contains_key(labels::NODE) {
        report.refuse(label(at, labels::NODE), "all machines would claim one Node", "remove it");
    }
    let node_spec = spec.node_template.spec.as_deref().cloned().unwrap_or_default();
    if (NodeSpec { taints: None, ..node_spec.clone() }) != NodeSpec::default() {
        report.lose(format!("{at}spec.nodeTemplate.spec"), "fields other than taints have no effect", "");
    }
    for (index, taint) in node_spec.taints.iter().flatten().enumerate().filter(|(_, one)| one.time_added.is_some()) {
        report.lose(
            format!("{at}spec.nodeTemplate.spec.taints[{index}].timeAdded"),
            format!("of {} is not kept", taint.key),
            "",
        );
    }
    let no_effect = "is copied and has no effect in Cluster API";
    for key in [labels::FORCE_DELETION, labels::FREEZE] {
        if template.metadata.labels.contains_key(key) {
            report.lose(label(at, key), no_effect, "");
        }
    }
    let annotations = &template.metadata.annotations;
    if annotations.contains_key(labels::PRESERVE) {
        report.lose(annotation(at, labels::PRESERVE), no_effect, "a failed machine is not kept");
    }
    if annotations.get(labels::PRIORITY).is_some_and(|priority| priority != "1") {
        report.lose(
            annotation(at, labels::PRIORITY),
            no_effect,
            "Cluster API supports only delete-machine, which is priority 1",
        );
    }
    if spec.configuration.drain_timeout.is_some_and(|drain| drain.as_nanos() <= 0) {
        report.lose(
            format!("{at}spec.drainTimeout"),
            "0 means at once in MCM and no limit in Cluster API; it becomes 1 second",
            "",
        );
    }
    if place.owner == TemplateOwner::Machine && spec.configuration.creation_timeout != Some(NEVER) {
        report.lose(
            format!("{at}health"),
            "timeouts of a single machine have no place in Cluster API",
            "a MachineHealthCheck covers the machines of sets and deployments",
        );
    }
}
