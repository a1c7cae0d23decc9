//! Safety rules across objects: the meltdown guard, the overshoot freeze, and trust in a target cluster.

pub mod meltdown;
pub mod overshoot;
pub mod trust;
