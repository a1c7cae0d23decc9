//! How kinds are cached.

use mcm_runtime::kind_cache::KindCaches;

use super::{provider, stand_in};

/// How the objects of all kinds are cached, those of `machine.sapcloud.io` among them.
pub fn kind_caches() -> KindCaches {
    stand_in::with_caches(provider::with_caches(mcm_controllers::kind_caches()))
}
