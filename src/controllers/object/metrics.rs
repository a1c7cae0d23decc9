//! Metrics helpers that several kinds share.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use mcm_api::machine::{MachineSummary, OperationState, OperationType};
use mcm_runtime::metrics::{MetricDesc, TextExposition};

pub(crate) const FAILED_LABELS: [&str; 7] = [
    "name",
    "namespace",
    "failed_machine_name",
    "failed_machine_provider_id",
    "failed_machine_owner_ref",
    "failed_machine_last_operation_state",
    "failed_machine_last_operation_machine_operation_type",
];

/// A gauge whose only labels are the object's name and namespace.
pub(crate) const fn plain(name: &'static str, help: &'static str) -> MetricDesc<2> {
    MetricDesc::gauge(name, help, ["name", "namespace"])
}

/// Sorted by namespace and name, without duplicates, because two samples must not have the same labels.
pub(crate) fn sorted<'a, K>(
    all: impl IntoIterator<Item = &'a Arc<K>>,
    metadata: impl Fn(&'a K) -> &'a ObjectMeta,
) -> BTreeMap<[&'a str; 2], &'a K> {
    let key = |object| {
        let ObjectMeta { namespace, name, .. } = metadata(object);
        [namespace.as_deref().unwrap_or_default(), name.as_deref().unwrap_or_default()]
    };
    all.into_iter().map(|object| (key(&**object), &**object)).collect()
}

pub(crate) fn created_at(metadata: &ObjectMeta) -> String {
    metadata.creation_timestamp.as_ref().map(|time| time.0.as_second()).unwrap_or_default().to_string()
}

pub(crate) fn gauges(
    object: [&str; 2],
    values: impl IntoIterator<Item = (MetricDesc<2>, i32)>,
    out: &mut TextExposition,
) {
    for (desc, value) in values {
        out.sample(&desc, object, f64::from(value));
    }
}

pub(crate) fn conditions<'a>(
    desc: &MetricDesc<3>,
    [name, namespace]: [&str; 2],
    found: impl Iterator<Item = (&'a str, &'a str)>,
    out: &mut TextExposition,
) {
    for (condition, status) in found.collect::<BTreeMap<_, _>>() {
        let value = match status {
            "True" => 1.0,
            "False" => 0.0,
            _ => 2.0,
        };
        out.sample(desc, [name, namespace, condition], value);
    }
}

pub(crate) fn failed(
    desc: &MetricDesc<7>,
    [name, namespace]: [&str; 2],
    machines: &[MachineSummary],
    out: &mut TextExposition,
) {
    let by_name: BTreeMap<&str, &MachineSummary> = machines.iter().map(|one| (one.name.as_str(), one)).collect();
    for (machine, MachineSummary { provider_id, last_operation, owner_ref, .. }) in by_name {
        let state = last_operation.state.as_ref().map_or("", OperationState::as_str);
        let operation = last_operation.type_.as_ref().map_or("", OperationType::as_str);
        out.sample(desc, [name, namespace, machine, provider_id, owner_ref, state, operation], 1.0);
    }
}

#[cfg(test)]
mod tests;
