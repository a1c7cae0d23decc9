//! One Machine: its VM is created, joins as a Node, is watched, drained and deleted.
//!
//! `observe` reads the caches into a [`Snapshot`], [`plan`] answers the next actions, and `apply` carries them out, writes
//! down what it was told, and the loop of `crate::runtime::reconcile` plans again until there are no actions. What calls
//! told in one reconcile is [`Learned`]; what later reconciles should know is the [`Memory`]. Nothing sleeps in the middle,
//! so a crash anywhere is the same as "observe again".
//!
//! Rooms by stage of life: `create`, `running`, `delete`. Files that do I/O are `observe.rs`, `metrics.rs`, `lanes.rs` and
//! the folder `apply`; everything else decides.
//!
//! Rules that hold in every plan:
//! - a VM is made only when the driver certainly knows none, and its ID is stored before anything else happens;
//! - only a deletion timestamp starts a deletion, never a phase or a text;
//! - what is unknown (`NodeView::Unknown`, `ClassView::Unknown`, a failed call) leads to a wait, never to a decision, and a
//!   Node that the cache does not have (`NodeView::Missing`) leads to a live read: no drain is skipped, no Machine fails or
//!   becomes Unknown for a cache that is behind;
//! - a status is written only if it says something new (see `status::is_news`).

mod action;
mod answers;
mod apply;
mod conditions;
mod create;
mod delete;
mod lint;
mod memory;
pub(crate) mod metrics;
mod observe;
mod plan;
mod policy;
mod register;
mod retry;
mod running;
mod snapshot;
mod status;
mod steps;
pub mod token;
mod views;

pub use action::{Action, BootstrapToken};
pub(crate) use apply::{HeldPermit, Permits, take_permit};
pub use create::may_call_driver;
#[cfg(test)]
pub use memory::Call;
pub use memory::{Memory, NodeWrite};
pub(crate) use observe::trust_of;
pub use plan::plan;
pub use policy::Policy;
pub(crate) use register::{BY_CONTROLLER, BY_DEPLOYMENT, KIND, Ports, naming_class, of_node};
pub use snapshot::Snapshot;
pub(crate) use snapshot::is_same_vm;
pub use views::{ClassView, Learned, NodeKey, NodeView, PodCall, PodsView, SecretFacts};

#[cfg(test)]
mod tests;
