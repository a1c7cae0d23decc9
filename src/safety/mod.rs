//! Safety rules across objects: the meltdown guard, and trust in a target cluster.

pub mod meltdown;
pub mod trust;
