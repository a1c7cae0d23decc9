//! The cache of ConfigMaps.

use k8s_openapi::api::core::v1::ConfigMap;

use mcm_runtime::{cache::ObjectCache, kind_cache::KindCache};

/// How ConfigMaps are cached.
pub const CACHE: KindCache<ConfigMap> =
    KindCache::new(|_| ObjectCache::new(&[], |map| map.metadata.managed_fields = None));
