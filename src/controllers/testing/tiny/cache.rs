//! The cache of ConfigMaps.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;

use crate::runtime::{cache::Cache, cell::Kept};

impl Kept for ConfigMap {
    fn cache() -> Arc<Cache<Self>> {
        Cache::new(&[], |map| map.metadata.managed_fields = None)
    }
}
