use std::sync::Arc;

use super::{
    Action, Resumed, Snapshot,
    apply::{self, Resume},
    plan,
};
use crate::{
    capi::{
        provider::settings::{ROLE_NAME, Settings},
        types::{Cluster, MCMMachinePool},
    },
    plan::{Plan, Step},
    runtime::{
        cell::{Builder, Kind},
        queue::{Pacing, Queue},
        reconcile::{Next, Reconciler, Turn},
        worker::ReconcileError,
    },
};

pub(in super::super) const KIND: Kind<Settings> = Kind { role: ROLE_NAME, register };

/// There is one key: one read serves all Clusters.
const ALL: &str = "clusters";

impl Reconciler for Resume {
    type Key = &'static str;
    type Snapshot = Snapshot;
    type Action = Action;
    type Memory = ();
    type Session = ();

    fn observe(&self, _: &&'static str, (): &(), (): &()) -> Option<Snapshot> {
        Some(self.snapshot())
    }

    fn plan(&self, snapshot: &Snapshot) -> Plan<Action> {
        plan::plan(snapshot)
    }

    async fn apply(
        &self,
        _: Snapshot,
        steps: Vec<Step<Action>>,
        _: &mut Turn<'_, Self>,
    ) -> Result<Next, ReconcileError> {
        apply::apply(self, steps).await?;
        Ok(Next::Plan)
    }
}

fn register(builder: &mut Builder<'_>, _: &Settings) {
    let resumed = builder.shared::<Resumed>();
    let reconciler = Resume {
        clusters: builder.objects(),
        pools: builder.objects(),
        deployments: builder.objects(),
        sets: builder.objects(),
        machines: builder.objects(),
        resumed: Arc::clone(&resumed),
        control: builder.config().control.clone(),
        scope: builder.config().scope.clone(),
    };
    let queue = Queue::new("pausedclusters", Pacing::default());
    builder.reconciler(reconciler, &queue, &Arc::default(), 1);

    let (known, ended) = (Arc::clone(&resumed), Arc::clone(&queue));
    builder.on_change::<Cluster>(move |change| {
        let uids = [change.old.as_ref().and_then(|old| old.metadata.uid.as_deref()), change.meta.uid.as_deref()];
        let is_running = change.new.as_ref().is_some_and(|cluster| cluster.spec.paused != Some(true));
        if !is_running {
            uids.into_iter().flatten().for_each(|uid| known.forget(uid));
        }
        ended.add(ALL);
    });
    let first = Arc::clone(&queue);
    builder.on_change::<MCMMachinePool>(move |change| {
        if change.old.as_ref().map(|old| &old.metadata.labels) != change.new.as_ref().map(|new| &new.metadata.labels) {
            first.add(ALL);
        }
    });
    // A standby also saw Clusters and their objects at different times.
    builder.on_start(move || {
        resumed.forget_all();
        queue.add(ALL);
    });
}
