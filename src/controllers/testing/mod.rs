//! A small world in memory for tests of planners: objects as an API server stores them, time that advances only when a
//! test moves it, and simple stand-ins for the controllers that are not under test.

mod leading;
mod model;
mod stand_in;
mod store;
mod tiny;
mod wire;
mod world;

use mcm_fake_api::{self as api_server, clock};
use mcm_runtime::role::ControllerRole;

pub(crate) use api_server::{merge, merge_strategically};
pub(crate) use leading::{Leading, Standby, settings, until};
pub(crate) use stand_in::Happening;
pub(crate) use wire::{Fate, Wire};
pub(crate) use world::World;

/// The role of a process that is neither of the Go programs, such as the provider for Cluster API.
pub const PROVIDER: ControllerRole = ControllerRole { name: "provider", lease: "provider" };
