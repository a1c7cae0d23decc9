//! Reads the objects around an infrastructure object from the caches.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::view::View;
use crate::{
    api::labels,
    capi::types::{CORE_GROUP, Cluster, INFRASTRUCTURE_GROUP, MCMCluster, names},
    runtime::cache::{Cache, Cached, Key},
};

/// An object of a cache.
pub(in crate::capi) fn view<K: Cached>(cache: &Cache<K>, key: &Key) -> View<K> {
    match cache.get(key) {
        Some(object) => View::Present(object),
        None if !cache.is_synced() || cache.unreadable().iter().any(|one| Key::of(&one.meta) == *key) => View::Unknown,
        None => View::Missing,
    }
}

/// The owner of a kind of core.
pub(in crate::capi) fn owner_of<'a>(meta: &'a ObjectMeta, kind: &str) -> Option<&'a OwnerReference> {
    let group = |owner: &OwnerReference| owner.api_version.split('/').next() == Some(CORE_GROUP);
    meta.owner_references.iter().flatten().find(|owner| owner.kind == kind && group(owner))
}

/// The object that an owner reference names. Another object of that name is none.
pub(in crate::capi) fn owner<K: Cached>(cache: &Cache<K>, meta: &ObjectMeta, reference: &OwnerReference) -> View<K> {
    match view(cache, &Key::beside(meta, &reference.name)) {
        View::Present(object) if object.meta().uid.as_deref() != Some(&reference.uid) => View::Missing,
        seen => seen,
    }
}

/// Name of the MCMMachinePool that a native object, or an MCMMachine, belongs to.
pub(in crate::capi) fn pool_of(meta: &ObjectMeta) -> Option<&str> {
    meta.labels.as_ref()?.get(labels::POOL).map(String::as_str)
}

/// Whether an object is in a namespace.
pub(in crate::capi) fn is_in(meta: &ObjectMeta, namespace: &str) -> bool {
    meta.namespace.as_deref() == Some(namespace)
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
