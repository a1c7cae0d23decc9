//! The capacity of a machine, which an autoscaler needs to scale from zero: the provider of a template writes it into the status.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::Value;

use super::provider::ProviderTemplate;
use mcm_api::machine::ClassNodeTemplate;

pub(super) const UNKNOWN: &str =
    "the status of the template has no capacity, so an autoscaler cannot scale its machines from zero";
pub(super) const ADVICE: &str = "write nodeTemplate in the class, or annotate its users with \
                                 capacity.cluster-autoscaler.kubernetes.io/cpu and memory";
/// Annotations of an owner of machines that the autoscaler reads.
const LEAST: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size";
const SIZE: [&str; 2] =
    ["capacity.cluster-autoscaler.kubernetes.io/cpu", "capacity.cluster-autoscaler.kubernetes.io/memory"];
/// Resources of GPUs, whose sum is `gpu`.
const GPUS: [&str; 2] = ["nvidia.com/gpu", "amd.com/gpu"];

/// An autoscaler needs the capacity of the template of an owner with these annotations.
pub(super) fn needs_capacity(annotations: &Value) -> bool {
    annotations[LEAST] == "0" && !SIZE.iter().all(|size| annotations[*size].is_string())
}

/// The `nodeTemplate` of the class, if the status of its template has CPUs and memory.
pub(super) fn node_template(
    template: &Value,
    source: &ProviderTemplate<'_>,
    provider_spec: &Value,
) -> Option<ClassNodeTemplate> {
    let shown = template.pointer("/status/capacity")?.as_object()?;
    let amount = |name: &str| shown.get(name).and_then(Value::as_str).map(|text| Quantity(text.to_owned()));
    let gpus: u64 = GPUS.iter().filter_map(|gpu| shown.get(*gpu)?.as_str()?.parse::<u64>().ok()).sum();
    let capacity = [("cpu", amount("cpu")?), ("memory", amount("memory")?), ("gpu", Quantity(gpus.to_string()))];
    let others = shown.iter().filter(|(name, _)| !["cpu", "memory"].contains(&name.as_str()));
    let others: BTreeMap<String, Quantity> =
        others.filter_map(|(name, value)| Some((name.clone(), Quantity(value.as_str()?.to_owned())))).collect();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let zone = provider_spec["zone"].as_str().or_else(|| source.zone()).unwrap_or_default().to_owned();
    Some(ClassNodeTemplate {
        capacity: capacity.map(|(name, value)| (name.to_owned(), value)).into(),
        virtual_capacity: others,
        instance_type: text(&provider_spec["machineType"]),
        region: text(&provider_spec["region"]),
        zone,
        architecture: template.pointer("/status/nodeInfo/architecture").and_then(Value::as_str).map(str::to_owned),
        ..ClassNodeTemplate::default()
    })
}
