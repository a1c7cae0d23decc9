//! All kinds.

use super::{
    api_servers, machine, machine_class, machine_deployment, machine_set, node, orphans, overshoot, secret,
    settings::Kind,
};
use mcm_runtime::kind_cache::KindCaches;

/// All kinds. The order does not matter.
pub const KINDS: &[Kind] = &[
    machine_deployment::KIND,
    machine_set::KIND,
    overshoot::KIND,
    machine::KIND,
    machine_class::KIND,
    secret::KIND,
    node::KIND,
    orphans::KIND,
    api_servers::KIND,
];

/// How the objects of all kinds are cached.
pub fn kind_caches() -> KindCaches {
    KindCaches::default()
        .with(machine_deployment::CACHE)
        .with(machine_set::CACHE)
        .with(machine::CACHE)
        .with(machine_class::CACHE)
        .with(secret::CACHE)
}
