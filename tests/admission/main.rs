//! What a real API server lets into its store with our definitions, and what it says of the rest.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

#[path = "../support/mod.rs"]
mod support;

mod accepted;
mod cluster_api;
mod objects;
mod refused;
mod stand_in;
mod stored_before;
