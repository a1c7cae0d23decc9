//! The machine controller: creates the VM of a Machine, waits for its Node, monitors it, drains it and deletes the VM.
//!
//! `observe` reads the caches into a [`Snapshot`], `plan` returns the next actions, and `apply` executes them and
//! stores their results in the snapshot. The loop in `mcm_runtime::reconcile` plans again until no actions are left.
//! The results of calls in one reconcile are [`MachineCallResults`]; facts for later reconciles are the [`Memory`]. No step
//! sleeps, so a crash at any point is equivalent to observing again.
//!
//! One folder per stage: `create`, `running`, `preserve`, `delete`. Only `observe.rs`, `register.rs`, `metrics.rs` and the folder
//! `apply` do I/O; everything else decides.
//!
//! Rules that hold in every plan:
//! - a VM is created only after the driver reported its absence, and its ID is stored before anything else
//!   happens;
//! - only a deletion timestamp starts a deletion, never a phase or a text;
//! - unknown facts (`TargetNodeView::Unknown`, `ClassView::Unknown`, a failed call) lead to a wait, never to a decision;
//! - a Node that a Machine names is its own only with evidence (`mcm_rules::safety::node_claim`); without it, the driver is asked;
//! - a Node that is missing in the cache (`TargetNodeView::Missing`) leads to a live read: a stale cache never causes a
//!   skipped drain or a Machine that becomes Unknown or Failed;
//! - a status is written only if it contains something new (see `status::is_news`).

mod action;
mod answers;
mod apply;
mod cache;
mod conditions;
mod create;
mod delete;
mod drain_reason;
mod evidence;
mod lint;
mod memory;
pub(crate) mod metrics;
mod observe;
mod plan;
mod policy;
mod preserve;
mod progress;
mod refused;
mod register;
mod retry;
mod running;
mod snapshot;
mod status;
mod steps;
pub mod token;
mod views;
mod watch_vm;

pub use action::{Action, BootstrapToken};
pub(crate) use apply::while_leading;
pub use apply::{FreedResources, HeldPermit, ReplacementPermits, look_at_permit, secrets_of_class, take_permit};
pub use cache::{BY_CONTROLLER, BY_DEPLOYMENT, CACHE, naming_class, of_node, unreadable_of_node};
pub use create::may_call_driver;
pub use drain_reason::DrainReason;
#[cfg(test)]
pub use memory::VmCall;
pub use memory::{Memory, NodeWrite};
pub(crate) use observe::trust_of;
#[cfg(test)]
pub use plan::plan;
pub use policy::MachinePolicy;
pub use register::KIND;
pub(crate) use snapshot::is_same_vm;
pub use snapshot::{RivalMachines, Snapshot};
pub use views::{ClassView, MachineCallResults, NodeLookup, PodCall, PodsView, SecretFacts, TargetNodeView};

mod drain_node;
#[cfg(test)]
mod tests;
