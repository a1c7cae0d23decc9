//! Converts a MachineDeployment to its native deployment and back.

use std::{collections::BTreeSet, sync::Arc};

use kube::ResourceExt;
use serde_json::Value;

use super::{Action, Snapshot};
use crate::stand_in::mirror;
use mcm_api::{
    labels,
    machine::{API_VERSION, MachineClass, MachineDeployment as Native},
};
use mcm_rules::plan::Plan;
pub use {
    mcm_conversion as conversion,
    mcm_conversion::{
        ConversionOptions, ConversionRefusal, ConversionResult, ROLLOUT_AFTER, UNMAPPED, VERSION,
        types::{CORE, INFRASTRUCTURE_GROUP, MachineDeployment, MachineDeploymentSpec, MachineHealthCheck, names},
        user_data_of,
    },
};

/// The native objects for a MachineDeployment.
#[derive(Debug)]
pub(super) struct DesiredNativeObjects {
    /// The deployment.
    pub deployment: Native,
    /// A class that is created for it. Its Secret is a copy of the Secret with bootstrap data.
    pub class: Option<MachineClass>,
    /// That Secret, and its copy.
    pub copied: Option<(String, String)>,
}

/// Converts a MachineDeployment. An error contains all refusals.
pub(super) fn wanted(
    snapshot: &Snapshot,
    object: &MachineDeployment,
) -> Result<DesiredNativeObjects, Vec<ConversionRefusal>> {
    let mut objects = vec![with_type(object, CORE, "MachineDeployment")];
    let template = snapshot.template.known();
    let infrastructure = format!("{INFRASTRUCTURE_GROUP}/v1beta2");
    objects.extend(template.map(|template| with_type(template.as_ref(), &infrastructure, "MCMMachineTemplate")));
    let named = template.map(|template| template.spec.template.spec.machine_class_ref.name.as_str());
    let class = named.and_then(|name| snapshot.classes.get(name));
    objects.extend(class.map(|class| with_type(class.as_ref(), API_VERSION, "MachineClass")));
    objects.extend(health_checks(snapshot, object).map(|check| with_type(check, CORE, "MachineHealthCheck")));
    let options = ConversionOptions { now: Some(snapshot.now), ..ConversionOptions::default() };
    let ConversionResult { objects, refusals, .. } = conversion::to_native(&objects, &options);
    let deployment = objects.iter().find(|one| one["kind"] == "MachineDeployment");
    let Some(mut deployment) = deployment.and_then(decoded::<Native>).filter(|_| refusals.is_empty()) else {
        return Err(refusals);
    };
    deployment.labels_mut().insert(labels::STAND_IN.to_owned(), object.name_any());
    let used = &deployment.spec.template.spec.class.name;
    let is_derived = named != Some(used.as_str());
    let derived = objects.iter().find(|one| one["kind"] == "MachineClass" && one["metadata"]["name"] == used.as_str());
    let class = derived.filter(|_| is_derived).and_then(decoded::<MachineClass>).map(|mut class| {
        class.labels_mut().insert(labels::STAND_IN.to_owned(), object.name_any());
        class
    });
    let source = object.spec.template.spec.bootstrap.data_secret_name.clone().filter(|_| is_derived);
    Ok(DesiredNativeObjects { deployment, class, copied: source.map(|source| (source.clone(), user_data_of(&source))) })
}

/// The health checks of its machines that are in effect.
fn health_checks<'a>(
    snapshot: &'a Snapshot,
    object: &'a MachineDeployment,
) -> impl Iterator<Item = &'a MachineHealthCheck> {
    let all = snapshot.health_checks.iter().flatten().map(Arc::as_ref);
    all.filter(|check| {
        let is_paused = mirror::has_annotation(&check.metadata, names::PAUSED);
        let is_in_effect = !is_paused && check.metadata.deletion_timestamp.is_none();
        is_in_effect && conversion::may_cover(check, object)
    })
}

/// The stand-in created a native deployment from this one.
pub(super) fn is_ours(native: &Native, object: &MachineDeployment) -> bool {
    mirror::source_of(&native.metadata) == Some(&object.name_any())
}

/// The desired native deployment, computed from the current one.
pub(super) fn updated(current: &Native, wanted: &Native) -> Native {
    let mut next = current.clone();
    next.labels_mut().extend(wanted.labels().clone());
    next.annotations_mut().extend(wanted.annotations().clone());
    if !wanted.annotations().contains_key(UNMAPPED) {
        next.annotations_mut().remove(UNMAPPED);
    }
    next.spec = wanted.spec.clone();
    // The native controller clears it.
    next.spec.rollback_to = current.spec.rollback_to.clone();
    // A change of labels or annotations alone would replace all machines natively, and none in Cluster API.
    if is_same_revision(current, wanted) {
        next.spec.template.metadata = current.spec.template.metadata.clone();
    }
    next
}

/// Cluster API would not replace machines.
fn is_same_revision(current: &Native, wanted: &Native) -> bool {
    let (current, wanted) = (&current.spec.template, &wanted.spec.template);
    let is_same = |key: &str| current.metadata.annotations.get(key) == wanted.metadata.annotations.get(key);
    current.spec.class.name == wanted.spec.class.name && is_same(VERSION) && is_same(ROLLOUT_AFTER)
}

/// The MachineDeployment that shows a native one which has the authority.
pub(super) fn shown(
    snapshot: &Snapshot,
    native: &Native,
    cluster: &str,
) -> Result<MachineDeploymentSpec, Vec<ConversionRefusal>> {
    let mut objects = vec![with_type(native, API_VERSION, "MachineDeployment")];
    let class = snapshot.classes.get(&native.spec.template.spec.class.name);
    objects.extend(class.map(|class| with_type(class.as_ref(), API_VERSION, "MachineClass")));
    let options = ConversionOptions {
        cluster: Some(cluster.to_owned()),
        now: Some(snapshot.now),
        ..ConversionOptions::default()
    };
    let ConversionResult { objects, refusals, .. } = conversion::to_capi(&objects, &options);
    let shown = objects.iter().find(|one| one["kind"] == "MachineDeployment" && one["apiVersion"] == CORE);
    let shown = shown.and_then(decoded::<MachineDeployment>).filter(|_| refusals.is_empty());
    shown.map(|deployment| deployment.spec).ok_or(refusals)
}

/// Unused classes of the stand-in, including terminating ones.
pub(super) fn unused_classes<'a>(
    snapshot: &'a Snapshot,
    wanted: Option<&str>,
) -> impl Iterator<Item = &'a Arc<MachineClass>> {
    let used: BTreeSet<String> =
        snapshot.used_classes.iter().map(String::as_str).chain(wanted).map(str::to_owned).collect();
    let own = snapshot.classes.values().filter(|class| class.labels().contains_key(labels::STAND_IN));
    own.filter(move |class| !used.contains(&class.name_any()))
}

/// Deletes those classes, and copies of bootstrap data that no class names.
pub(super) fn clean_up(plan: &mut Plan<Action>, snapshot: &Snapshot, wanted: Option<&str>) {
    let ending = |class: &&Arc<MachineClass>| class.metadata.deletion_timestamp.is_some();
    for class in unused_classes(snapshot, wanted).filter(|class| !ending(class)) {
        plan.then(Action::DeleteClass(Arc::clone(class)), "no MCM object uses it");
    }
    for copy in &snapshot.stale_copies {
        plan.then(Action::DeleteCopy(copy.clone()), "no class names it");
    }
}

fn with_type<K: serde::Serialize>(object: &K, api_version: &str, kind: &str) -> Value {
    let mut value = serde_json::to_value(object).unwrap_or_default();
    value["apiVersion"] = api_version.into();
    value["kind"] = kind.into();
    if let Some(object) = value.as_object_mut() {
        object.remove("status");
    }
    value
}

fn decoded<T: serde::de::DeserializeOwned>(value: &Value) -> Option<T> {
    serde_json::from_value(value.clone()).ok()
}
