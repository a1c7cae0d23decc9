//! The cache of Secrets.

use k8s_openapi::api::core::v1::Secret;
use kube::core::PartialObjectMeta;

use mcm_runtime::{cache::ObjectCache, kind_cache::KindCache};

/// Of Secrets only the metadata is watched.
pub type MetadataOfSecret = PartialObjectMeta<Secret>;

/// How Secrets are cached. Only finalizers depend on them, and those patches carry a resource version.
pub const CACHE: KindCache<MetadataOfSecret> = KindCache::new(|_| {
    ObjectCache::new(&[], |secret: &mut MetadataOfSecret| {
        secret.metadata.managed_fields = None;
        secret.metadata.annotations = None;
    })
})
.without_live_reads();
