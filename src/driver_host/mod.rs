//! The drivers of a process: the catalogue, which wraps each with metrics, limits and deadlines, and drivers in other processes.
//! The interface and the drivers of clouds are crates beside this one: `src/driver`, `src/drivers/<cloud>`.

mod catalogue;
#[cfg(feature = "remote")]
pub mod remote;
pub(crate) mod tester;

pub(crate) use mcm_driver::*;

#[cfg(feature = "simulated")]
pub(crate) use catalogue::BuiltIn;
pub(crate) use catalogue::{Catalogue, NotValidated, ON_REQUEST, Others, clouds_of_build};
