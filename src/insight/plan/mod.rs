//! The plan of a change: what it would do to machines, before it is made.

pub mod answer;
pub mod assume;
pub mod change;
pub mod drain;
pub mod everything;
pub mod fields;
mod fold;
mod live;
pub mod markdown;
pub(crate) mod obstacles;
pub mod outcome;
pub mod planner;
mod rehearse;
pub mod report;
mod scope;
