//! Tools for objects of any kind: drafts, owners, finalizers, conditions, deletion order.

pub mod authority;
pub mod condition;
pub mod deletion_order;
pub mod draft;
pub mod finalizer;
pub mod in_place;
pub(crate) mod metrics;
mod observe;
pub mod owner;
pub(crate) mod strays;
pub mod suffix;
pub(crate) mod summary;
pub(crate) mod text;
pub(crate) mod time;

pub use observe::{holds, prune, unreadable_names};
