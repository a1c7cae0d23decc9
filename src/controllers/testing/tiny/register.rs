use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;

use super::apply::ConfigMaps;
use mcm_runtime::{
    cell::{Builder, Kind},
    metrics::{Desc, Exposition},
    queue::{Pacing, Queue},
    role::Role,
};

pub(super) const ROLE: Role = Role { name: "tiny", lease: "tiny" };
pub const KIND: Kind<()> = Kind { role: ROLE.name, register };

fn count(maps: &[Arc<ConfigMap>], out: &mut Exposition) {
    const MAPS: Desc<0> = Desc::gauge("tiny_maps", "Config maps.", []);
    out.sample(&MAPS, [], f64::from(u32::try_from(maps.len()).unwrap()));
}

fn register(builder: &mut Builder<'_>, (): &()) {
    let reconciler = Arc::new(ConfigMaps { objects: builder.objects() });
    let queue = Queue::new("tiny", Pacing::default());
    builder.controller::<ConfigMap, _>(&reconciler, &queue, &Arc::default(), 1, |_| true);
    builder.export::<ConfigMap>(count);
}
