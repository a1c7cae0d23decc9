use std::sync::Arc;

use super::apply::StandInClusterReconciler;
use crate::stand_in::{
    observe::{PreconditionReader, add_those_of, keys},
    settings::{ROLE_NAME, Settings},
};
use mcm_conversion::types::Cluster;
use mcm_runtime::{
    cell::{CellBuilder, Kind},
    queue::{QueuePacing, WorkQueue},
};

pub(in super::super) const KIND: Kind<Settings> = Kind { role: ROLE_NAME, register };

fn register(builder: &mut CellBuilder<'_>, settings: &Settings) {
    let ground = PreconditionReader::new(builder);
    let clusters = Arc::new(StandInClusterReconciler {
        objects: builder.objects(),
        ground: ground.clone(),
        watch_filter: settings.watch_filter.clone(),
        clock: Arc::clone(&builder.config().shared.clock),
    });
    let queue = WorkQueue::new("standincluster", QueuePacing::default());
    builder.controller::<Cluster, _>(&clusters, &queue, &Arc::default(), settings.concurrency, |_| true);
    let objects = Arc::clone(&clusters.objects);
    ground.on_change(builder, move |namespace| {
        add_those_of(namespace, keys(&objects), &queue);
    });
}
