//! What a real API server lets into its store with our definitions, and what it says of the rest.

#[path = "../support/mod.rs"]
mod support;

mod accepted;
mod objects;
mod refused;
mod stored_before;
