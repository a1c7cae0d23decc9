//! Objects of Cluster API that show native objects.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde_json::{Value, json};

use mcm_api::{
    labels,
    machine::{Machine as NativeMachine, MachineDeployment as NativeDeployment},
    patch,
};
use mcm_controllers::object::{finalizer, owner};
use mcm_conversion::types::{MCMMigration, Machine, MachineAuthority, MachineDeployment, names};

/// The stand-in created the object to show a native one.
pub(super) fn is_mirror(meta: &ObjectMeta) -> bool {
    has_annotation(meta, labels::MIRROR)
}

/// The object has the annotation, with any value.
pub(super) fn has_annotation(meta: &ObjectMeta, annotation: &str) -> bool {
    meta.annotations.as_ref().is_some_and(|all| all.contains_key(annotation))
}

/// The MachineDeployment of Cluster API from which a native object was created.
pub(super) fn source_of(meta: &ObjectMeta) -> Option<&str> {
    meta.labels.as_ref()?.get(labels::STAND_IN).map(String::as_str)
}

/// The sets and machines of a deployment are shown: from the time the finalizer is set until the deployment is
/// deleted while the native side has the authority.
pub(super) fn is_shown(
    deployment: &MachineDeployment,
    native: &NativeDeployment,
    migration: Option<&MCMMigration>,
) -> bool {
    let meta = &deployment.metadata;
    let (authority, is_going) = (authority(migration), meta.deletion_timestamp.is_some());
    let is_known = authority.is_some() || source_of(&native.metadata) == Some(&deployment.name_any());
    let is_released = is_going && authority != Some(MachineAuthority::ClusterApi);
    finalizer::has(meta, labels::STAND_IN_FINALIZER) && is_known && !is_released
}

/// The objects above a shown set or machine.
#[derive(Clone, Debug, Default)]
pub(super) struct MirrorAncestors {
    /// The native deployment.
    pub native: Option<Arc<NativeDeployment>>,
    /// The deployment of Cluster API, if its dependents are shown.
    pub deployment: Option<Arc<MachineDeployment>>,
    /// The wait of the deployment if it or its Cluster is paused; completes "waiting for".
    pub paused: Option<String>,
}

/// The owner of the deployment; `None` before it was decided.
pub(super) fn authority(migration: Option<&MCMMigration>) -> Option<MachineAuthority> {
    migration?.status.as_ref()?.authority
}

/// The labels that all machines of a deployment have in Cluster API.
pub(super) fn common_labels(deployment: &MachineDeployment, hash: Option<&String>) -> BTreeMap<String, String> {
    let mut all = deployment.spec.template.metadata.labels.clone();
    all.insert(names::CLUSTER_NAME.to_owned(), deployment.spec.cluster_name.clone());
    all.insert(names::DEPLOYMENT_NAME.to_owned(), deployment.name_any());
    all.extend(hash.map(|hash| (labels::TEMPLATE_HASH.to_owned(), hash.clone())));
    all
}

/// Annotations of all mirrors. Core does not reconcile paused objects, should it be installed.
pub(super) fn marks() -> BTreeMap<String, String> {
    [labels::MIRROR, names::PAUSED].map(|key| (key.to_owned(), String::new())).into()
}

/// Adds labels, annotations and the controller. Others stay.
pub(super) fn mark(meta: &mut ObjectMeta, own: BTreeMap<String, String>, controller: Option<OwnerReference>) {
    meta.labels.get_or_insert_default().extend(own);
    meta.annotations.get_or_insert_default().extend(marks());
    if let Some(controller) = controller.filter(|one| !owner::is_controlled_by(meta, &one.uid)) {
        meta.owner_references = Some(owner::moved(meta, &controller));
    }
}

/// A controller reference that does not keep its owner from being deleted.
pub(super) fn controller<K: Resource<DynamicType = ()>>(object: &K) -> Option<OwnerReference> {
    owner::reference_to(object).map(|reference| OwnerReference { block_owner_deletion: None, ..reference })
}

/// The annotation `delete-machine` as the native priority; `None` if the native Machine has it already.
pub(super) fn priority(mirror: &Machine, native: &NativeMachine) -> Option<Value> {
    let is_chosen = has_annotation(&mirror.metadata, names::DELETE_MACHINE);
    let is_first = native.annotations().get(labels::PRIORITY).map(String::as_str) == Some(labels::FIRST_PRIORITY);
    let wanted = is_chosen.then_some(labels::FIRST_PRIORITY);
    (is_chosen != is_first).then(|| json!({ "metadata": { "annotations": { labels::PRIORITY: wanted } } }))
}

/// The patch from one state of an object to another; `None` if they do not differ.
pub(super) fn change<K: Serialize>(from: &K, to: &K) -> Option<Value> {
    patch::diff(&serde_json::to_value(from).ok()?, &serde_json::to_value(to).ok()?)
}
