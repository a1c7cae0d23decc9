//! The test world that several kinds share.

pub mod world;
