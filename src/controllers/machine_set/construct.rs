//! A new Machine, as its template says.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

use super::Snapshot;
use crate::{
    api::{
        GoDuration,
        labels::{EFFECTIVE_CREATION_TIMEOUT, FINALIZER},
        machine::{Machine, MachineSet},
    },
    controllers::object::owner,
    controllers::object::suffix::Suffixes,
};

/// The API server cuts the name of the set in generated names at this length, so that they stay valid host names.
const MAX_PREFIX: usize = 58;

/// Machines for a set, without end; no two have the same name, and none the name of a Machine in the snapshot.
pub(super) fn machines(snapshot: &Snapshot) -> impl Iterator<Item = Machine> {
    let set = snapshot.set.as_ref();
    let prefix: String = format!("{}-", set.name_any()).chars().take(MAX_PREFIX).collect();
    let mut taken: BTreeSet<String> = snapshot.machines.iter().map(|machine| machine.name_any()).collect();
    taken.extend(snapshot.unreadable.iter().cloned());
    Suffixes::seeded(snapshot.seed)
        .map(move |suffix| format!("{prefix}{suffix}"))
        .filter(move |name| taken.insert(name.clone()))
        .map(|name| machine(set, name))
}

/// The creation timeout that overrides the one in the specification, if the annotations hold one that can be read.
pub(super) fn creation_timeout_override(annotations: Option<&BTreeMap<String, String>>) -> Option<GoDuration> {
    annotations?.get(EFFECTIVE_CREATION_TIMEOUT)?.parse().ok()
}

fn machine(set: &MachineSet, name: String) -> Machine {
    let template = &set.spec.template;
    let mut annotations = template.metadata.annotations.clone();
    if let Some(text) = set.annotations().get(EFFECTIVE_CREATION_TIMEOUT) {
        annotations.insert(EFFECTIVE_CREATION_TIMEOUT.to_owned(), text.clone());
    }
    let mut spec = template.spec.clone();
    // A template that names a VM would have all Machines share it.
    spec.provider_id.clear();
    if let Some(timeout) = creation_timeout_override(Some(&annotations)) {
        spec.configuration.creation_timeout = Some(timeout);
    }
    let mut finalizers = template.metadata.finalizers.clone();
    if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
        finalizers.push(FINALIZER.to_owned());
    }
    Machine {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: set.namespace(),
            labels: Some(template.metadata.labels.clone()),
            annotations: (!annotations.is_empty()).then_some(annotations),
            finalizers: Some(finalizers),
            owner_references: owner::reference_to(set).map(|reference| vec![reference]),
            ..ObjectMeta::default()
        },
        spec,
        status: None,
    }
}
