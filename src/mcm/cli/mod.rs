//! The command line: sub-commands, flags and their errors.

pub mod adopt;
mod answers;
pub mod apply;
mod args;
mod check;
pub mod class;
mod completion;
pub mod convert;
pub mod crd;
mod dashboard;
pub mod demo;
mod dispatch;
mod document;
#[cfg(feature = "remote")]
pub mod driver;
mod error;
mod events;
mod exit;
pub mod flags;
mod fleet;
mod format;
pub mod logging;
mod normalize;
pub mod objects;
mod picture;
mod plan;
mod program;
mod reading;
mod rollout;
pub mod run;
pub mod simulated_cloud;
mod terminal;
#[cfg(test)]
mod tests;
mod top;
mod tree;
mod verbs;
mod version;
mod vms;
mod why;

pub use dispatch::main;
