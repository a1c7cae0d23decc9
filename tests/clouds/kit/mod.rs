//! Fakes of clouds: a server that keeps a log and fails as told, and a check of requests against an API description.
//!
//! Unit tests of drivers include these files, so they use nothing of this crate.

pub mod server;
pub mod swagger;
