//! One Machine: its VM is created, joins as a Node, is watched, drained and deleted.
//!
//! [`plan`] answers the next actions for a [`Snapshot`]. The shell carries them out in order, puts what it was told into
//! the snapshot (a written object replaces the one in it; other answers go through the `Snapshot` methods) and asks
//! again, until there are no actions; then it drops the snapshot, keeps the [`Memory`] and sleeps until
//! `Plan::wake_at` or a change. So nothing sleeps in the middle, and a crash anywhere is the same as "observe again".
//!
//! Rules that hold in every plan:
//! - a VM is made only when the driver certainly knows none, and its ID is stored before anything else happens;
//! - only a deletion timestamp starts a deletion, never a phase or a text;
//! - what is unknown (`NodeView::Unknown`, `ClassView::Unknown`, a failed call) leads to a wait, never to a decision;
//! - a status is written only if it says something new (see `status::is_news`).

mod action;
mod calls;
mod conditions;
mod create;
mod delete;
mod evacuate;
mod health;
mod lanes;
mod measure;
mod memory;
mod node_link;
mod plan;
mod policy;
mod progress;
mod reconcile;
mod retry;
mod snapshot;
mod status;
pub mod token;

pub use action::{Action, BootstrapToken};
pub use lanes::Lanes;
pub use memory::{Call, CallFailure, Memory, NodeFailure, NodeWrite};
pub use plan::plan;
pub use policy::Policy;
pub use reconcile::{Permits, reconcile};
pub use snapshot::{
    ClassView, NodeKey, NodeView, PodCall, PodsView, SecretFacts, SecretView, Snapshot, TokenView, VmView,
};

#[cfg(test)]
mod tests;
