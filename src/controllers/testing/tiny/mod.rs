//! The smallest possible kind: a ConfigMap lists the keys of its data in an annotation.
//!
//! The folder has the files of every kind, and uses the tools that [`Builder`](mcm_runtime::cell::Builder) and
//! [`Reconciler`](mcm_runtime::reconcile::Reconciler) offer to every kind. The only other reference to it is the
//! line that adds its `KIND` to a cell.

mod apply;
mod cache;
#[cfg(test)]
mod leading;
mod observe;
mod plan;
mod register;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;

/// The annotation that lists the keys.
const KEYS: &str = "tiny/keys";

/// The annotation of a ConfigMap that is not written; its value completes "waiting for".
const HOLD: &str = "tiny/hold";

/// Everything a plan is made from.
pub struct Snapshot {
    map: Arc<ConfigMap>,
}
