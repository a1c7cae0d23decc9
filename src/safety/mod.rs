//! What keeps many small right decisions from adding up to a disaster.

pub mod meltdown;
pub mod trust;
