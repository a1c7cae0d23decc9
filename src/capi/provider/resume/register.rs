use std::sync::Arc;

use super::{ResumedClusters, apply::ResumeReconciler};
use crate::provider::settings::{ROLE_NAME, Settings};
use mcm_conversion::types::{Cluster, MCMMachinePool};
use mcm_runtime::{
    cache::ObjectChange,
    cell::{CellBuilder, Kind},
    enqueue::EnqueueMapper,
    queue::{QueuePacing, WorkQueue},
};

pub(in super::super) const KIND: Kind<Settings> = Kind { role: ROLE_NAME, register };

/// There is one key: one read serves all Clusters.
const ALL: &str = "clusters";

fn register(builder: &mut CellBuilder<'_>, _: &Settings) {
    let resume = Arc::new(ResumeReconciler {
        clusters: builder.objects(),
        pools: builder.objects(),
        deployments: builder.objects(),
        sets: builder.objects(),
        machines: builder.objects(),
        resumed: builder.shared(),
        control: builder.config().control.clone(),
        scope: builder.config().scope.clone(),
    });
    let queue = WorkQueue::new("pausedclusters", QueuePacing::default());
    builder.reconciler(&resume, &queue, &Arc::default(), 1);
    let known = Arc::clone(&resume.resumed);
    builder.on_change::<Cluster>(move |change| forget(&known, change));
    let enqueue = EnqueueMapper::new(&resume, &queue);
    builder.on_change(enqueue.on(|_, _: &ObjectChange<Cluster>| vec![ALL]));
    builder.on_change(enqueue.on(of_pool));
    // A standby may have read Clusters and their objects at different times.
    let (resumed, add_all) = (Arc::clone(&resume.resumed), enqueue.all(|_| vec![ALL]));
    builder.on_start(move || {
        resumed.forget_all();
        add_all();
    });
}

/// The objects of a Cluster that is paused or deleted may change unseen.
fn forget(resumed: &ResumedClusters, change: &ObjectChange<Cluster>) {
    let is_running = change.new.as_ref().is_some_and(|cluster| cluster.spec.paused != Some(true));
    if !is_running {
        let uids = [change.old.as_ref().and_then(|old| old.metadata.uid.as_deref()), change.meta.uid.as_deref()];
        uids.into_iter().flatten().for_each(|uid| resumed.forget(uid));
    }
}

/// The labels of a pool name its Cluster.
fn of_pool<C>(_: &C, change: &ObjectChange<MCMMachinePool>) -> Vec<&'static str> {
    let labels = |pool: &Arc<MCMMachinePool>| pool.metadata.labels.clone();
    if change.old.as_ref().map(labels) == change.new.as_ref().map(labels) { Vec::new() } else { vec![ALL] }
}
