//! What tests of several kinds have in common.

pub mod world;
