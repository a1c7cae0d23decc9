//! Tools for objects of any kind: drafts, owners, finalizers, conditions, deletion order.

pub(crate) mod authority;
pub(crate) mod condition;
pub(crate) mod deletion_order;
pub(crate) mod draft;
pub mod finalizer;
pub(crate) mod in_place;
pub(crate) mod metrics;
mod observe;
pub mod owner;
pub(crate) mod strays;
pub mod suffix;
pub(crate) mod summary;
pub(crate) mod text;
pub(crate) mod time;

pub(crate) use observe::{holds, prune, unreadable_names};
