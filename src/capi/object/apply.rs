//! The common part of the executors of several kinds.

use mcm_runtime::{
    cache::{CacheableKind, Key},
    objects::CachedApi,
    worker::ReconcileError,
};

/// Reads an object live; whether it does not exist.
pub(crate) async fn read<K: CacheableKind + serde::Serialize>(
    objects: &CachedApi<K>,
    key: &Key,
) -> Result<bool, ReconcileError> {
    let read = objects.read_again(key).await;
    let found = read.map_err(|source| ReconcileError::read(format!("{} {key}", K::kind(&())), source))?;
    Ok(found.is_none())
}
