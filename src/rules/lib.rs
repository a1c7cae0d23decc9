//! Rules without input or output: plans and why they wait, drains, and what is safe.

#![allow(missing_docs, reason = "the product alone uses this crate: a name such as namespace needs no line")]
// `clippy.toml` allows numbers and the clocks of the process. What is left are the times that objects contain: adding to them
// panics at the end of time, so it has to be `checked_add`.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects, clippy::disallowed_methods))]

pub mod drain;
pub mod plan;
pub mod safety;
