//! The common part of the executors of several kinds.

use crate::runtime::{
    cache::{Cached, Key},
    objects::{Objects, WriteError, WriteFailure},
    worker::ReconcileError,
};

/// Reads the object with the name of one that could not be created, so that it is in the cache before the next plan.
pub(in crate::capi) async fn known_after<K: Cached + serde::Serialize>(
    answer: Result<(), WriteError>,
    objects: &Objects<K>,
    key: &Key,
) -> Result<(), ReconcileError> {
    match answer {
        Err(error) if error.failure() == WriteFailure::AlreadyExists => read(objects, key).await.map(drop),
        answer => Ok(answer?),
    }
}

/// Reads an object live; whether it does not exist.
pub(in crate::capi) async fn read<K: Cached + serde::Serialize>(
    objects: &Objects<K>,
    key: &Key,
) -> Result<bool, ReconcileError> {
    let read = objects.read_again(key).await;
    let found = read.map_err(|source| ReconcileError::read(format!("{} {key}", K::kind(&())), source))?;
    Ok(found.is_none())
}
