//! Safety rules across objects: probes of API servers, the meltdown guard, the overshoot freeze, orphans, trust in a target cluster,
//! and whose Node is whose.

pub mod api_server;
pub mod meltdown;
pub mod node_claim;
pub mod orphans;
pub mod overshoot;
pub mod trust;
