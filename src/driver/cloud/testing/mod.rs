//! The test kit of drivers: a server for fakes of clouds, and the matrix of faults.

#[path = "../../../../tests/clouds/kit/mod.rs"]
#[allow(dead_code, reason = "a driver uses only a part of it")]
pub(crate) mod kit;
pub(crate) mod matrix;
