//! Metadata of deployments and sets, and its obstacles to a conversion.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{
    keys::{self, MetadataMap},
    notes::{ConversionNotes, annotation, label},
    options::ConversionOptions,
    report::ConversionReport,
};
use crate::types::names::{self, is_label_value};
use mcm_api::labels;

/// Where the label with the name of the cluster is noted.
const CLUSTER: &str = "cluster";

/// Name and namespace. UID, versions, owners, finalizers and times belong to each side.
pub(super) fn identity(meta: &ObjectMeta, report: &mut ConversionReport) -> ObjectMeta {
    if meta.deletion_timestamp.is_some() {
        report.refuse("metadata.deletionTimestamp", "the object is being deleted", "wait until it is deleted");
    }
    ObjectMeta {
        name: meta.name.clone(),
        generate_name: meta.generate_name.clone(),
        namespace: meta.namespace.clone(),
        ..ObjectMeta::default()
    }
}

/// Metadata of a deployment or set of Cluster API.
pub(super) fn to_native(
    meta: &ObjectMeta,
    cluster: &str,
    options: &ConversionOptions,
    notes: &mut ConversionNotes,
    report: &mut ConversionReport,
) -> ObjectMeta {
    if meta.annotations.as_ref().is_some_and(|all| all.contains_key(names::PAUSED)) {
        let reason = "a single MCM object cannot be paused";
        report.refuse(annotation("", names::PAUSED), reason, "convert when it is no longer paused");
    }
    check_autoscaler(meta, report);
    let (mut labels, annotations) = carried(meta, notes, report);
    let name = notes.cross(
        &cluster.to_owned(),
        "spec.clusterName",
        CLUSTER,
        |cluster| Some(cluster.clone()),
        |label: &Option<String>| label.clone().or_else(|| options.cluster.clone()).unwrap_or_default(),
    );
    labels.extend(name.map(|name| (names::CLUSTER_NAME.to_owned(), name)));
    ObjectMeta { labels: filled(labels), annotations: filled(annotations), ..identity(meta, report) }
}

/// Metadata of a native deployment or set, and the name of its cluster.
pub(super) fn to_capi(
    meta: &ObjectMeta,
    options: &ConversionOptions,
    notes: &mut ConversionNotes,
    report: &mut ConversionReport,
) -> (ObjectMeta, String) {
    let name = meta.name.as_deref().unwrap_or_default();
    if !is_label_value(name) {
        let reason = "the name must be a label value in Cluster API: at most 63 letters, digits, - and .";
        report.refuse("metadata.name", reason, "create the object under a shorter name");
    }
    check_autoscaler(meta, report);
    if meta.labels.as_ref().is_some_and(|all| all.contains_key(labels::FREEZE)) {
        report.lose(
            label("", labels::FREEZE),
            "is copied and has no effect in Cluster API",
            "machines are created again",
        );
    }
    let cluster = cluster_of(meta, options, report);
    let (mut labels, annotations) = carried(meta, notes, report);
    let given = meta.labels.as_ref().and_then(|all| all.get(names::CLUSTER_NAME)).cloned();
    let cluster =
        notes.cross(&given, CLUSTER, "spec.clusterName", |_| cluster.clone(), |cluster: &String| Some(cluster.clone()));
    labels.insert(names::CLUSTER_NAME.to_owned(), cluster.clone());
    let meta = ObjectMeta { labels: filled(labels), annotations: filled(annotations), ..identity(meta, report) };
    (meta, cluster)
}

/// An annotation that names machines to delete must not be lost, nor appear.
fn check_autoscaler(meta: &ObjectMeta, report: &mut ConversionReport) {
    if meta.annotations.as_ref().and_then(|all| all.get(labels::TRIGGER_DELETION)).is_some_and(|all| !all.is_empty()) {
        let reason = "the autoscaler has chosen machines that are not deleted yet";
        report.refuse(annotation("", labels::TRIGGER_DELETION), reason, "wait until they are");
    }
}

/// The cluster of a native object.
pub(super) fn cluster_of(meta: &ObjectMeta, options: &ConversionOptions, report: &mut ConversionReport) -> String {
    let given = meta.labels.as_ref().and_then(|all| all.get(names::CLUSTER_NAME));
    let cluster = given.filter(|name| !name.is_empty()).or(options.cluster.as_ref());
    cluster.cloned().unwrap_or_else(|| {
        report.refuse(label("", names::CLUSTER_NAME), "the cluster is not known", "set the label, or pass --cluster");
        String::new()
    })
}

/// The namespace of an object; none if it is empty.
pub(super) fn namespace(name: &str) -> Option<String> {
    Some(name.to_owned()).filter(|name| !name.is_empty())
}

/// Labels or annotations, to put into an object.
pub(super) fn filled(keys: MetadataMap) -> Option<MetadataMap> {
    Some(keys).filter(|keys| !keys.is_empty())
}

fn carried(
    meta: &ObjectMeta,
    notes: &mut ConversionNotes,
    report: &mut ConversionReport,
) -> (MetadataMap, MetadataMap) {
    let mut given = meta.labels.clone().unwrap_or_default();
    given.remove(names::CLUSTER_NAME);
    let (mut labels, noted) = keys::carry(&given, "metadata.labels", keys::of_object, notes, report);
    labels.extend(noted);
    let given = meta.annotations.clone().unwrap_or_default();
    let (mut annotations, noted) = keys::carry(&given, "metadata.annotations", keys::of_object, notes, report);
    annotations.extend(noted);
    (labels, annotations)
}
