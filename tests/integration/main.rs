//! The binary on a real control plane: each test has a separate namespace, simulated cloud and managers, and all of
//! them run with the rights of `config/standalone` and no more.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

#[path = "../support/mod.rs"]
mod support;

// First in the alphabet, hence started first: its tests take longest.
mod absent_target;
mod altered;
mod asked;
mod autoscaler;
mod bad_input;
mod cascade;
mod check;
mod clocks;
mod crashes;
mod dashboard;
mod definitions;
mod drain;
mod endpoints;
mod failures;
mod fleet;
mod found;
mod hostile_targets;
mod in_place;
mod leadership;
mod lifecycle;
mod namespace_deletion;
mod namespaces;
mod orphans;
mod ownership;
mod plan;
mod preserve;
mod remedies;
#[cfg(feature = "remote")]
mod remote_driver;
mod replicas;
mod restored;
mod rollout;
mod samples;
mod scale;
mod shared_target;
mod standby;
mod start_and_end;
mod steer;
mod vms;
mod volumes;
mod waits;
mod why;
