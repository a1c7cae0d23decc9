//! Facts about the objects of a namespace, what each object waits for and why, and what a change would do. Everything but
//! the readers ([`read_only`], [`reader`], [`memory`] and [`cluster_api::observe`]) and the rehearsal is pure.

#![allow(missing_docs, reason = "the product alone uses this crate: a name such as namespace needs no line")]
// `clippy.toml` allows numbers and the clocks of the process. What is left are the times that objects contain: adding to them
// panics at the end of time, so it has to be `checked_add`.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects, clippy::disallowed_methods))]

pub mod advice;
pub mod answers;
pub mod budget;
pub mod budget_reader;
mod cause;
pub mod class;
pub mod cluster_api;
pub mod error;
pub mod family;
pub mod fleet;
pub mod grouping;
mod known;
pub mod manager;
pub mod memory;
pub mod ownerless;
pub mod place;
pub mod place_counts;
pub mod plan;
pub mod progress;
pub mod read_only;
pub mod reader;
pub mod rehearsal;
pub mod replacement;
pub mod report;
pub mod story;
pub mod table;
pub mod terminal;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod vms;
mod wording;
