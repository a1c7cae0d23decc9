//! A small world in memory for tests of planners: objects as an API server stores them, time that advances only when a
//! test moves it, and simple stand-ins for the controllers that are not under test.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")]
#![cfg_attr(
    not(test),
    allow(
        dead_code,
        unused_imports,
        clippy::arithmetic_side_effects,
        clippy::disallowed_methods,
        reason = "tests of this crate use more of the model"
    )
)]

#[cfg(test)]
mod leading;
pub mod model;
#[cfg(test)]
mod stand_in;
#[cfg(test)]
mod store;
#[cfg(test)]
mod tiny;
#[cfg(test)]
mod wire;
#[cfg(test)]
mod world;

use mcm_fake_api::{self as api_server, clock};

#[cfg(test)]
pub(crate) use self::{
    api_server::{merge, merge_strategically},
    leading::{Leading, Standby, settings, until},
    stand_in::Happening,
    wire::{Fate, Wire},
    world::World,
};
#[cfg(test)]
use mcm_runtime::role::ControllerRole;

/// The role of a process that is neither of the Go programs, such as the provider for Cluster API.
#[cfg(test)]
pub const PROVIDER: ControllerRole = ControllerRole { name: "provider", lease: "provider" };
