//! The cache of Secrets.

use std::sync::Arc;

use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::api::core::v1::Secret;
use kube::{Client, core::PartialObjectMeta};

use crate::runtime::{
    cache::Cache,
    cell::{Kept, Scope},
};

/// Of Secrets only the metadata is watched.
pub(crate) type MetadataOfSecret = PartialObjectMeta<Secret>;

impl Kept for MetadataOfSecret {
    fn cache() -> Arc<Cache<Self>> {
        Cache::new(&[], |secret| {
            secret.metadata.managed_fields = None;
            secret.metadata.annotations = None;
        })
    }

    /// A new leader need not read Secrets live: only finalizers depend on them, and those patches carry a resource
    /// version.
    fn refresh(_: Arc<Cache<Self>>, _: &Client, _: &Scope) -> BoxFuture<'static, kube::Result<()>> {
        std::future::ready(Ok(())).boxed()
    }
}
