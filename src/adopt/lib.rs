//! The migration of machines between Cluster API and the native controllers, and between infrastructure providers of Cluster
//! API, in both directions.
//!
//! An MCMMigration holds the authority over a deployment, or over a single machine. No other state is stored: the next
//! step follows from the objects, so an interrupted migration can be continued. `plan` is pure; `observe` and `apply`
//! make requests to the API servers and the cloud.
//!
//! The controllers of both sides never act on the same machine: they confirm the pause before it changes its owner, and
//! are resumed only after the authority was switched.

#![allow(missing_docs, reason = "the product alone uses this crate: a name such as namespace needs no line")]
// `clippy.toml` allows numbers and the clocks of the process. What is left are the times that objects contain: adding to them
// panics at the end of time, so it has to be `checked_add`.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects, clippy::disallowed_methods))]

pub mod apply;
mod checks;
mod from_other;
mod from_pool;
mod group;
mod hand_over;
mod hold;
mod object;
pub mod observe;
mod plan;
mod pool_checks;
mod pools;
mod route;
mod snapshot;
mod stage;
mod start;
mod step;
mod swap;
mod swap_checks;
#[cfg(test)]
mod tests;
mod to_capi;
mod to_native;
mod to_other;
mod to_pool;
mod unit;
mod verdicts;
mod way;

pub use hand_over::has_finalizer;
pub use object::{Kind, ObjectId, UnstructuredObject};
pub use plan::{Plan, StepProgress, way_of};
pub use pools::StayingPool;
pub use snapshot::{MachineObjects, Snapshot, lone_name};
pub use stage::MigrationStage;
pub use unit::MigrationUnit;
pub use verdicts::{MigrationCheck, OF_MACHINE};
pub use way::MigrationDirection;
