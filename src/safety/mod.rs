//! Safety rules across objects: the meltdown guard, the overshoot freeze, orphans, and trust in a target cluster.

pub mod meltdown;
pub mod orphans;
pub mod overshoot;
pub mod trust;
