//! Safety rules across objects: probes of API servers, the meltdown guard, the overshoot freeze, orphans, and trust in a target cluster.

pub mod api_server;
pub mod meltdown;
pub mod orphans;
pub mod overshoot;
pub mod trust;
