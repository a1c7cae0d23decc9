//! The driver interface: the reference's six methods, its codes, and the catalogue that wraps every driver with
//! metrics, limits and deadlines. A driver may run in another process.

#![cfg_attr(
    not(all(feature = "simulated", feature = "remote", feature = "aws", feature = "gcp", feature = "metal-stack")),
    allow(dead_code, reason = "a driver uses only a part of what all share")
)]

mod account;
#[cfg(feature = "aws")]
mod aws;
mod catalogue;
#[cfg(feature = "cloud")]
mod cloud;
mod cluster_tag;
pub(crate) mod code;
#[cfg(any(test, feature = "cloud", feature = "remote"))]
pub(crate) mod conformance;
mod environment;
mod error;
#[cfg(test)]
mod fake;
#[cfg(feature = "gcp")]
mod gcp;
mod guard;
pub(crate) mod inspection;
mod interface;
#[cfg(feature = "metal-stack")]
mod metal_stack;
pub(crate) mod operation;
#[cfg(feature = "remote")]
pub mod remote;
pub(crate) mod secret_policy;
pub(crate) mod spec;
#[cfg(feature = "cloud")]
pub(crate) mod tester;
mod vm;

pub(crate) use account::Account;
pub(crate) use catalogue::{BuiltIn, Catalogue, clouds_of_build};
pub(crate) use code::Code;
pub(crate) use environment::{Environment, OpenError};
pub(crate) use error::DriverError;
pub(crate) use guard::{Guards, Observer};
pub(crate) use interface::{Capabilities, Driver, MachineRequest, ProblemsHook, SecretData};
pub(crate) use operation::Operation;
pub(crate) use secret_policy::SecretPolicy;
pub(crate) use vm::{Listed, ListedVm, Vm};
