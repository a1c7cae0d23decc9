//! Builds a new Machine from the template.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

use super::Snapshot;
use crate::object::{owner, suffix::NameSuffixes};
use mcm_api::{
    GoDuration,
    labels::{BLOCK_MOVE, EFFECTIVE_CREATION_TIMEOUT, FINALIZER, POOL},
    machine::{Machine, MachineSet},
};

/// The prefix of generated names is cut to this length, as the API server does, so that names are valid host names.
const MAX_PREFIX: usize = 58;

/// An endless iterator of new Machines. Names are unique among them and in the snapshot.
pub(super) fn machines(snapshot: &Snapshot) -> impl Iterator<Item = Machine> {
    let (set, may_have_vm) = (snapshot.set.as_ref(), !snapshot.is_class_unusable);
    let prefix = prefix_of(set);
    let mut taken: BTreeSet<String> = snapshot.machines.iter().map(|machine| machine.name_any()).collect();
    taken.extend(snapshot.unreadable.iter().cloned());
    NameSuffixes::seeded(snapshot.seed)
        .map(move |suffix| format!("{prefix}{suffix}"))
        .filter(move |name| taken.insert(name.clone()))
        .map(move |name| machine(set, name, may_have_vm))
}

/// The beginning of the names of its Machines.
fn prefix_of(set: &MachineSet) -> String {
    format!("{}-", set.name_any()).chars().take(MAX_PREFIX).collect()
}

/// True if a Machine has a name that the set gives its Machines.
pub(super) fn is_named_after(machine: &Machine, set: &MachineSet) -> bool {
    let name = machine.name_any();
    name.strip_prefix(&prefix_of(set)).is_some_and(|suffix| !suffix.contains('-'))
}

/// The creation timeout from the annotation that overrides the spec, if it can be parsed and is above zero.
pub(super) fn creation_timeout_override(annotations: Option<&BTreeMap<String, String>>) -> Option<GoDuration> {
    annotations?.get(EFFECTIVE_CREATION_TIMEOUT)?.parse().ok().and_then(GoDuration::positive)
}

/// With the finalizer from birth, which saves a write. Without the class and its Secrets no VM can be made, and the
/// Machine must be deletable without them: the machine controller adds the finalizer before it calls a driver.
fn machine(set: &MachineSet, name: String, may_have_vm: bool) -> Machine {
    let template = &set.spec.template;
    let mut annotations = template.metadata.annotations.clone();
    if let Some(text) = set.annotations().get(EFFECTIVE_CREATION_TIMEOUT) {
        annotations.insert(EFFECTIVE_CREATION_TIMEOUT.to_owned(), text.clone());
    }
    if template.metadata.labels.contains_key(POOL) {
        annotations.insert(BLOCK_MOVE.to_owned(), String::new());
    }
    let mut spec = template.spec.clone();
    // A provider ID in the template would make all Machines share one VM.
    spec.provider_id.clear();
    if let Some(timeout) = creation_timeout_override(Some(&annotations)) {
        spec.configuration.creation_timeout = Some(timeout);
    }
    let mut finalizers = template.metadata.finalizers.clone();
    finalizers.retain(|finalizer| finalizer != FINALIZER);
    if may_have_vm {
        finalizers.push(FINALIZER.to_owned());
    }
    Machine {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: set.namespace(),
            labels: Some(template.metadata.labels.clone()),
            annotations: (!annotations.is_empty()).then_some(annotations),
            finalizers: (!finalizers.is_empty()).then_some(finalizers),
            owner_references: owner::reference_to(set).map(|reference| vec![reference]),
            ..ObjectMeta::default()
        },
        spec,
        status: None,
    }
}
