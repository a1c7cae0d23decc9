//! The kinds of the stand-in.

use super::{
    cluster, machine, machine_deployment, machine_set, observe,
    settings::{ROLE_NAME, Settings},
    signals,
};
use mcm_runtime::{cell::Kind, kind_cache::KindCaches, role::ControllerRole};

/// All kinds run under one Lease.
pub const ROLE: ControllerRole = ControllerRole { name: ROLE_NAME, lease: "mcm-stand-in" };

/// All kinds.
pub const KINDS: &[Kind<Settings>] =
    &[signals::KIND, cluster::KIND, machine_deployment::KIND, machine_set::KIND, machine::KIND];

/// Adds the caches of all kinds.
pub fn with_caches(kinds: KindCaches) -> KindCaches {
    observe::with_caches(kinds)
        .with(machine_deployment::CACHE)
        .with(machine_deployment::HEALTH_CHECKS)
        .with(machine_deployment::MIGRATIONS)
        .with(machine_set::CACHE)
}
