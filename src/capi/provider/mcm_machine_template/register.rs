use std::sync::Arc;

use super::{
    Snapshot, WriteStatus,
    apply::{self, MCMMachineTemplates},
    cache::BY_CLASS,
    plan,
};
use crate::{
    api::machine::MachineClass,
    capi::{
        provider::settings::{ROLE_NAME, Settings},
        types::{Cluster, MCMMachineTemplate},
    },
    plan::{Plan, Step},
    runtime::{
        cache::Key,
        cell::{Builder, Kind},
        queue::{Pacing, Queue},
        reconcile::{Next, Reconciler, Turn, UnresolvedWrite},
        worker::ReconcileError,
    },
};

pub(in super::super) const KIND: Kind<Settings> = Kind { role: ROLE_NAME, register };

impl Reconciler for MCMMachineTemplates {
    type Key = Key;
    type Snapshot = Snapshot;
    type Action = WriteStatus;
    type Memory = ();
    type Session = ();

    fn observe(&self, key: &Key, (): &(), (): &()) -> Option<Snapshot> {
        self.snapshot(key)
    }

    fn plan(&self, snapshot: &Snapshot) -> Plan<WriteStatus> {
        plan::plan(snapshot)
    }

    async fn apply(
        &self,
        snapshot: Snapshot,
        steps: Vec<Step<WriteStatus>>,
        turn: &mut Turn<'_, Self>,
    ) -> Result<Next, ReconcileError> {
        apply::apply(self, &snapshot, steps, turn).await
    }

    async fn resolve(&self, key: &Key, _: &UnresolvedWrite) -> Result<(), ReconcileError> {
        let read = self.objects.read_again(key).await;
        read.map(drop).map_err(|source| ReconcileError::read(format!("MCMMachineTemplate {key}"), source))
    }

    fn is_status(_: &WriteStatus) -> bool {
        true
    }
}

fn register(builder: &mut Builder<'_>, settings: &Settings) {
    let reconciler = MCMMachineTemplates {
        objects: builder.objects(),
        clusters: builder.objects(),
        classes: builder.objects(),
        watch_filter: settings.watch_filter.clone(),
    };
    let objects = Arc::clone(&reconciler.objects);
    let queue = Queue::new("mcmmachinetemplate", Pacing::default());
    let limit = settings.concurrency;
    builder.controller::<MCMMachineTemplate, _>(reconciler, &queue, &Arc::default(), limit, |_| true);
    let (all, of_class) = (Arc::clone(&objects), Arc::clone(&queue));
    builder.on_change::<MachineClass>(move |change| {
        for template in all.cache.by(BY_CLASS, &change.key) {
            of_class.add(Key::of(&template.metadata));
        }
    });
    // Only a paused Cluster matters, and few templates have the label.
    builder.on_change::<Cluster>(move |change| {
        let is_of = |template: &MCMMachineTemplate| {
            crate::capi::provider::observe::cluster_name(&template.metadata) == Some(&change.key.name)
                && template.metadata.namespace.as_deref() == Some(&change.key.namespace)
        };
        objects.cache.all().iter().filter(|one| is_of(one)).for_each(|one| queue.add(Key::of(&one.metadata)));
    });
}
