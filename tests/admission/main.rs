//! Objects that a real API server accepts with our CRDs, and its errors about others.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

#[path = "../support/mod.rs"]
mod support;

mod accepted;
mod changed;
mod cluster_api;
mod machine_identity;
mod objects;
mod refused;
mod stand_in;
mod stored_before;
