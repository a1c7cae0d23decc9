//! Decides when an object must not be reconciled.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

use super::view::ObjectView;
use mcm_conversion::types::{Cluster, names};

/// The reason for which nothing is written to an object; completes "waiting for". `None` if this manager may write to
/// it.
pub(crate) fn not_ours(meta: &ObjectMeta, watch_filter: Option<&str>) -> Option<String> {
    moved(meta).or_else(|| of_another(meta, watch_filter))
}

/// The object is at the source of a `clusterctl move`, which deletes it.
pub(crate) fn moved(meta: &ObjectMeta) -> Option<String> {
    let text = || "clusterctl move to delete it, because it now exists in another cluster".to_owned();
    is_annotated(meta, names::DELETE_FOR_MOVE).then(text)
}

/// The object has another watch filter, or none.
pub(crate) fn of_another(meta: &ObjectMeta, watch_filter: Option<&str>) -> Option<String> {
    let label = meta.labels.as_ref().and_then(|labels| labels.get(names::WATCH_FILTER)).map(String::as_str);
    match watch_filter {
        Some(wanted) if label != Some(wanted) => {
            Some(format!("the manager of {} {:?}", names::WATCH_FILTER, label.unwrap_or_default()))
        }
        _ => None,
    }
}

/// The wait of native objects after a pause of their Cluster.
pub(crate) const UNREAD: &str = "all MCM objects to be read live, because its Cluster is no longer paused";

/// The wait of the object if it or its Cluster is paused; completes "waiting for". A Cluster that does not exist pauses
/// nothing.
pub(crate) fn paused(meta: &ObjectMeta, cluster: &ObjectView<Cluster>) -> Option<String> {
    if is_annotated(meta, names::PAUSED) {
        return Some(format!("its annotation {} to be removed", names::PAUSED));
    }
    match cluster {
        ObjectView::Unknown => Some("its Cluster to become readable".to_owned()),
        ObjectView::Missing => None,
        ObjectView::Present(cluster) => {
            let is_paused = cluster.spec.paused == Some(true);
            is_paused.then(|| format!("Cluster {} to be unpaused", cluster.name_any()))
        }
    }
}

/// Another program manages the infrastructure object, whatever the value.
pub(crate) fn is_managed_elsewhere(meta: &ObjectMeta) -> bool {
    is_annotated(meta, names::MANAGED_BY)
}

fn is_annotated(meta: &ObjectMeta, annotation: &str) -> bool {
    meta.annotations.as_ref().is_some_and(|all| all.contains_key(annotation))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn meta(value: Value) -> ObjectMeta {
        serde_json::from_value(value).unwrap()
    }

    fn cluster(paused: Value) -> ObjectView<Cluster> {
        let cluster = json!({ "metadata": { "name": "c" }, "spec": { "paused": paused } });
        ObjectView::Present(Arc::new(serde_json::from_value(cluster).unwrap()))
    }

    /// Z1: by the Cluster, or by an annotation with any value.
    #[rstest]
    #[case::nothing(json!({}), cluster(Value::Null), false)]
    #[case::not_paused(json!({}), cluster(json!(false)), false)]
    #[case::cluster(json!({}), cluster(json!(true)), true)]
    #[case::annotation(json!({ "cluster.x-k8s.io/paused": "false" }), cluster(json!(false)), true)]
    #[case::no_cluster(json!({}), ObjectView::Missing, false)]
    #[case::unknown_cluster(json!({}), ObjectView::Unknown, true)]
    fn an_object_is_paused_by_its_cluster_or_itself(
        #[case] annotations: Value,
        #[case] cluster: ObjectView<Cluster>,
        #[case] expected: bool,
    ) {
        assert_eq!(paused(&meta(json!({ "annotations": annotations })), &cluster).is_some(), expected);
    }

    /// Z5, trap T10: the last annotation, after all others were removed.
    #[rstest]
    #[case::moved(json!({ "annotations": { "clusterctl.cluster.x-k8s.io/delete-for-move": "" } }), None, true)]
    #[case::no_filter(json!({ "labels": { "cluster.x-k8s.io/watch-filter": "a" } }), None, false)]
    #[case::own_filter(json!({ "labels": { "cluster.x-k8s.io/watch-filter": "a" } }), Some("a"), false)]
    #[case::other_filter(json!({ "labels": { "cluster.x-k8s.io/watch-filter": "b" } }), Some("a"), true)]
    #[case::unlabelled(json!({}), Some("a"), true)]
    fn an_object_of_another_manager_or_place_is_not_touched(
        #[case] object: Value,
        #[case] filter: Option<&str>,
        #[case] expected: bool,
    ) {
        assert_eq!(not_ours(&meta(object), filter).is_some(), expected);
    }
}
