//! The test kit of drivers: a server for fakes of clouds, a check of requests against an API description, the suite with its matrix of faults
//! and the profiles of clouds, bootstrap data of Cluster API, and a driver for tests of its callers.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::arithmetic_side_effects,
    reason = "a test may panic"
)]

pub mod bootstrap;
mod case;
mod certificates;
mod fake_driver;
pub mod matrix;
mod objects;
pub mod profile;
mod recorder;
pub mod server;
pub mod suite;
pub mod swagger;

use crate::SecretPolicy;

pub use self::{
    certificates::{TestCa, serve_tls},
    fake_driver::FakeDriver,
    objects::{class, code, request, secret, with_id},
    recorder::Recorder,
};

/// Fakes listen on this host, and tokens are in temporary folders.
pub fn secret_policy() -> SecretPolicy {
    SecretPolicy {
        endpoints: ["http://127.0.0.1", "127.0.0.1"].into_iter().flat_map(str::parse).collect(),
        folders: vec![std::env::temp_dir()],
        ..SecretPolicy::default()
    }
}
