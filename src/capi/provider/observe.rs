//! Reads the objects around an infrastructure object from the caches.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::object::{observe::view, view::ObjectView};
use mcm_api::labels;
use mcm_conversion::types::{Cluster, INFRASTRUCTURE_GROUP, MCMCluster, names};
use mcm_runtime::cache::{Key, ObjectCache};

/// Name of the MCMMachinePool that a native object, or an MCMMachine, belongs to.
pub(crate) fn pool_of(meta: &ObjectMeta) -> Option<&str> {
    meta.labels.as_ref()?.get(labels::POOL).map(String::as_str)
}

/// Name of the Cluster in the label.
pub(crate) fn cluster_name(meta: &ObjectMeta) -> Option<&str> {
    meta.labels.as_ref()?.get(names::CLUSTER_NAME).map(String::as_str)
}

/// The infrastructure of a Cluster, if it is ours.
pub(crate) fn infrastructure(cache: &ObjectCache<MCMCluster>, cluster: &ObjectView<Cluster>) -> ObjectView<MCMCluster> {
    let cluster = match cluster {
        ObjectView::Unknown => return ObjectView::Unknown,
        ObjectView::Missing => return ObjectView::Missing,
        ObjectView::Present(cluster) => cluster,
    };
    let reference = &cluster.spec.infrastructure_ref;
    if reference.kind == "MCMCluster" && reference.api_group == INFRASTRUCTURE_GROUP {
        view(cache, &Key::beside(&cluster.metadata, &reference.name))
    } else {
        ObjectView::Missing
    }
}
