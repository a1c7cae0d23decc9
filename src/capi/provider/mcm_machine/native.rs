//! The native Machine of an MCMMachine, and the class that is created for it.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::Snapshot;
use crate::{
    object::{gate::GatedSnapshot, in_place::hash_annotation},
    provider::class,
};
use mcm_api::{
    GoDuration, labels,
    machine::{ClassContent, ClassSpec, GROUP, Machine, MachineClass, MachineConfiguration, MachineSpec},
};
use mcm_controllers::object::{finalizer, owner};
pub use mcm_conversion::{provider_id, types::names};

/// Longer than any creation takes: a machine is replaced only by a health check of Cluster API.
const NO_LIMIT_HOURS: i64 = 876_000;

/// The native Machine. Its ID is never another one than that of the object.
pub(super) fn machine(snapshot: &Snapshot, class: &str, content: &ClassContent) -> Machine {
    let object = &snapshot.object;
    let secret = snapshot.bootstrap_secret().map(|name| (labels::USER_DATA_SECRET.to_owned(), name.to_owned()));
    let is_new = object.spec.provider_id.is_empty();
    let in_the_making = is_new.then(|| (labels::BLOCK_MOVE.to_owned(), String::new()));
    let annotations: BTreeMap<_, _> = secret.into_iter().chain(in_the_making).collect();
    let limit = object.spec.creation_timeout_seconds.map(i64::from);
    Machine {
        metadata: ObjectMeta {
            name: Some(object.name_any()),
            namespace: object.namespace(),
            labels: Some(labels_of(snapshot)),
            annotations: (!annotations.is_empty()).then_some(annotations),
            finalizers: Some(vec![labels::FINALIZER.to_owned()]),
            owner_references: owner::reference_to(object.as_ref()).map(|reference| vec![reference]),
            ..ObjectMeta::default()
        },
        spec: MachineSpec {
            class: ClassSpec { api_group: GROUP.to_owned(), kind: "MachineClass".to_owned(), name: class.to_owned() },
            provider_id: provider_id::to_native(&object.spec.provider_id, &content.provider_spec),
            configuration: MachineConfiguration {
                creation_timeout: Some(GoDuration::from_secs(limit.unwrap_or(NO_LIMIT_HOURS * 3600))),
                disable_health_timeout: Some(true),
                ..MachineConfiguration::default()
            },
            ..MachineSpec::default()
        },
        status: None,
    }
}

/// The class of a description in the object itself. It is deleted with the object.
pub(super) fn class(snapshot: &Snapshot, content: &ClassContent) -> MachineClass {
    let object = &snapshot.object;
    let metadata = ObjectMeta {
        name: Some(object.name_any()),
        namespace: object.namespace(),
        labels: Some(labels_of(snapshot)),
        annotations: snapshot.description().as_ref().map(hash_annotation),
        owner_references: owner::reference_to(object.as_ref()).map(|reference| vec![reference]),
        ..ObjectMeta::default()
    };
    class::described(metadata, content, &snapshot.infrastructure)
}

/// The patch that restores the owner and the labels of the native Machine; `None` if they are unchanged. The pool
/// restores those of its members.
pub(super) fn healed(snapshot: &Snapshot, machine: &Machine) -> Option<Value> {
    if snapshot.is_member() {
        return None;
    }
    let reference = owner::reference_to(snapshot.object.as_ref())?;
    let mut metadata = serde_json::Map::new();
    if let Some(owners) = owner::adopted(&machine.metadata, &reference) {
        metadata.insert("ownerReferences".to_owned(), json!(owners));
    }
    let present = machine.metadata.labels.as_ref();
    let is_missing = |(key, value): &(String, String)| present.and_then(|labels| labels.get(key)) != Some(value);
    let missing: BTreeMap<String, String> = labels_of(snapshot).into_iter().filter(is_missing).collect();
    if !missing.is_empty() {
        metadata.insert("labels".to_owned(), json!(missing));
    }
    (!metadata.is_empty()).then(|| json!({ "metadata": metadata }))
}

/// The patch that allows the deletion of the VM with the native Machine; `None` if that is already allowed. The set
/// deletes the native Machine of a member, which is not drained again.
pub(super) fn released(snapshot: &Snapshot, machine: &Machine) -> Option<Value> {
    let (is_told, metadata) = if snapshot.is_member() {
        let label = json!({ "labels": { (labels::FORCE_DELETION): labels::TRUE } });
        (machine.labels().contains_key(labels::FORCE_DELETION), label)
    } else {
        let annotation = json!({ "annotations": { (labels::DELETE_VM): "" } });
        (machine.annotations().contains_key(labels::DELETE_VM), annotation)
    };
    (!is_told).then(|| json!({ "metadata": metadata }))
}

/// The deletion of the native Machine deletes its VM.
pub(super) fn is_released(machine: &Machine) -> bool {
    machine.is_terminating() && machine.annotations().contains_key(labels::DELETE_VM)
}

/// The native Machine keeps a VM for an MCMMachine of the same name that was removed by force.
pub(super) fn is_deserted(snapshot: &Snapshot, machine: &Machine) -> bool {
    let meta = &snapshot.object.metadata;
    let is_former = owner::controller_of(&machine.metadata).is_some_and(|controller| {
        controller.kind == "MCMMachine"
            && meta.name.as_ref() == Some(&controller.name)
            && meta.uid.as_ref() != Some(&controller.uid)
    });
    is_former && !machine.annotations().contains_key(labels::DELETE_VM)
}

/// The patch with which the object adopts the VM of such a native Machine, if the object names that VM: it adopts the
/// native Machine, or creates another one after this one is removed, because a deletion cannot be undone.
pub(super) fn taken_over(snapshot: &Snapshot, machine: &Machine) -> Option<Value> {
    let id = &snapshot.object.spec.provider_id;
    let has_vm = provider_id::is_same(id, &machine.spec.provider_id);
    if !has_vm || snapshot.is_member() || !is_deserted(snapshot, machine) {
        return None;
    }
    if machine.metadata.deletion_timestamp.is_some() {
        return finalizer::remove(&machine.metadata, labels::FINALIZER);
    }
    let owners = owner::moved(&machine.metadata, &owner::reference_to(snapshot.object.as_ref())?);
    Some(json!({ "metadata": { "ownerReferences": owners } }))
}

/// The native Machine belongs to the object: the object controls it, or did so and the owner was removed, or it
/// has the VM that the object is to adopt and has no controller. The native Machine of a pool member is in the same
/// pool, and a set controls it.
pub(super) fn belongs(snapshot: &Snapshot, machine: &Machine) -> bool {
    let object = &snapshot.object;
    if snapshot.is_member() {
        return machine.labels().get(labels::POOL) == object.labels().get(labels::POOL);
    }
    if let Some(controller) = owner::controller_of(&machine.metadata) {
        return object.metadata.uid.as_deref() == Some(&controller.uid);
    }
    let id = &object.spec.provider_id;
    let was_ours = snapshot.stored().machine_ref.is_some_and(|reference| reference.name == machine.name_any());
    was_ours || provider_id::is_same(id, &machine.spec.provider_id)
}

fn labels_of(snapshot: &Snapshot) -> BTreeMap<String, String> {
    let cluster = snapshot.cluster_name().map(|name| (names::CLUSTER_NAME.to_owned(), name.to_owned()));
    let filter = snapshot.watch_filter.as_ref().map(|value| (names::WATCH_FILTER.to_owned(), value.clone()));
    cluster.into_iter().chain(filter).collect()
}
