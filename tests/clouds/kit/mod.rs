//! Fakes of clouds: a server that keeps a log and fails as told, and a check of requests against an API description.
//!
//! The unit tests of drivers use it too, so it depends on nothing in this crate.

pub mod server;
pub mod swagger;
