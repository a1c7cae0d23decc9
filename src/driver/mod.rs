//! The driver interface: the reference's six methods, its codes, and the catalogue that wraps every driver with
//! metrics, limits and deadlines.

mod account;
mod catalogue;
pub(crate) mod code;
#[cfg_attr(not(test), expect(dead_code, reason = "tests run the suite; no command does yet"))]
pub(crate) mod conformance;
mod environment;
mod error;
#[cfg(test)]
mod fake;
mod guard;
mod interface;
pub(crate) mod operation;
#[cfg(feature = "simulated")]
mod simulated;
pub(crate) mod spec;
mod vm;

pub(crate) use account::Account;
pub(crate) use catalogue::Catalogue;
pub(crate) use code::Code;
pub(crate) use environment::{Environment, OpenError};
pub(crate) use error::DriverError;
pub(crate) use guard::{Guards, Observer};
pub(crate) use interface::{Capabilities, Driver, MachineRequest, SecretData};
pub(crate) use operation::Operation;
pub(crate) use vm::Vm;
