//! Reads the objects around an infrastructure object from the caches.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::{
    api::labels,
    capi::{
        object::{observe::view, view::View},
        types::{Cluster, INFRASTRUCTURE_GROUP, MCMCluster, names},
    },
    runtime::cache::{Cache, Key},
};

/// Name of the MCMMachinePool that a native object, or an MCMMachine, belongs to.
pub(in crate::capi) fn pool_of(meta: &ObjectMeta) -> Option<&str> {
    meta.labels.as_ref()?.get(labels::POOL).map(String::as_str)
}

/// Name of the Cluster in the label.
pub(in crate::capi) fn cluster_name(meta: &ObjectMeta) -> Option<&str> {
    meta.labels.as_ref()?.get(names::CLUSTER_NAME).map(String::as_str)
}

/// The infrastructure of a Cluster, if it is ours.
pub(in crate::capi) fn infrastructure(cache: &Cache<MCMCluster>, cluster: &View<Cluster>) -> View<MCMCluster> {
    let cluster = match cluster {
        View::Unknown => return View::Unknown,
        View::Missing => return View::Missing,
        View::Present(cluster) => cluster,
    };
    let reference = &cluster.spec.infrastructure_ref;
    if reference.kind == "MCMCluster" && reference.api_group == INFRASTRUCTURE_GROUP {
        view(cache, &Key::beside(&cluster.metadata, &reference.name))
    } else {
        View::Missing
    }
}
