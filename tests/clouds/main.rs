//! Drivers against simulations of their clouds, and the simulations against programs of others.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

#[path = "../support/mod.rs"]
mod support;

mod aws;
mod calls;
mod class_check;
mod ec2;
mod gcp;
mod keeper;
#[allow(dead_code, reason = "unit tests of drivers use the rest")]
mod kit;
mod metal_stack;
mod nodes;
mod orphans;
mod pool;
mod proxy;
mod remote;
mod server;
#[allow(dead_code, reason = "the demo ends VMs")]
mod simulation;
mod soak;
mod tester;
