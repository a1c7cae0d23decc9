use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;

use super::apply::ConfigMaps;
use mcm_runtime::{
    cell::{CellBuilder, Kind},
    metrics::{MetricDesc, TextExposition},
    queue::{QueuePacing, WorkQueue},
    role::ControllerRole,
};

pub(super) const ROLE: ControllerRole = ControllerRole { name: "tiny", lease: "tiny" };
pub const KIND: Kind<()> = Kind { role: ROLE.name, register };

fn count(maps: &[Arc<ConfigMap>], out: &mut TextExposition) {
    const MAPS: MetricDesc<0> = MetricDesc::gauge("tiny_maps", "Config maps.", []);
    out.sample(&MAPS, [], f64::from(u32::try_from(maps.len()).unwrap()));
}

fn register(builder: &mut CellBuilder<'_>, (): &()) {
    let reconciler = Arc::new(ConfigMaps { objects: builder.objects() });
    let queue = WorkQueue::new("tiny", QueuePacing::default());
    builder.controller::<ConfigMap, _>(&reconciler, &queue, &Arc::default(), 1, |_| true);
    builder.export::<ConfigMap>(count);
}
