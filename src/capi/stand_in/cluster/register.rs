use std::sync::Arc;

use super::apply::Clusters;
use crate::stand_in::{
    observe::{Ground, add_those_of, keys},
    settings::{ROLE_NAME, Settings},
};
use mcm_conversion::types::Cluster;
use mcm_runtime::{
    cell::{Builder, Kind},
    queue::{Pacing, Queue},
};

pub(in super::super) const KIND: Kind<Settings> = Kind { role: ROLE_NAME, register };

fn register(builder: &mut Builder<'_>, settings: &Settings) {
    let ground = Ground::new(builder);
    let clusters = Arc::new(Clusters {
        objects: builder.objects(),
        ground: ground.clone(),
        watch_filter: settings.watch_filter.clone(),
        clock: Arc::clone(&builder.config().shared.clock),
    });
    let queue = Queue::new("standincluster", Pacing::default());
    builder.controller::<Cluster, _>(&clusters, &queue, &Arc::default(), settings.concurrency, |_| true);
    let objects = Arc::clone(&clusters.objects);
    ground.on_change(builder, move |namespace| {
        add_those_of(namespace, keys(&objects), &queue);
    });
}
