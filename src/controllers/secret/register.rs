use std::{sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::api::core::v1::Secret;
use kube::{Client, core::PartialObjectMeta};
use serde_json::Value;

use super::{Snapshot, apply, observe, plan};
use crate::{
    api::{labels, machine::MachineClass},
    controllers::{self, Kind, Settings, machine_class},
    plan::{Plan, Step},
    runtime::{
        cache::{Cache, Key},
        cell::{Builder, Kept, Scope},
        objects::Objects,
        queue::{Pacing, Queue},
        reconcile::{self, Next, States, Turn},
        worker::ReconcileError,
    },
};

/// Of Secrets only the metadata is watched.
pub(crate) type MetadataOfSecret = PartialObjectMeta<Secret>;

pub(crate) const KIND: Kind = Kind { role: controllers::MACHINES.name, register };

/// Changes of classes and Secrets come in bursts when many are applied.
const PACING: Pacing = Pacing { gather: Duration::from_millis(50), per_cost: 0 };
const WORKERS: usize = 16;

impl Kept for MetadataOfSecret {
    fn cache() -> Arc<Cache<Self>> {
        Cache::new(&[], |secret| {
            secret.metadata.managed_fields = None;
            secret.metadata.annotations = None;
        })
    }

    /// A new leader need not read Secrets live: only finalizers depend on them, and those patches carry a resource
    /// version.
    fn refresh(_: Arc<Cache<Self>>, _: &Client, _: &Scope) -> BoxFuture<'static, kube::Result<()>> {
        std::future::ready(Ok(())).boxed()
    }
}

pub(crate) struct Reconciler {
    pub(super) secrets: Arc<Objects<MetadataOfSecret>>,
    pub(super) classes: Arc<Objects<MachineClass>>,
}

impl reconcile::Reconciler for Reconciler {
    type Key = Key;
    type Snapshot = Snapshot;
    type Action = Value;
    type Memory = ();
    type Session = ();

    fn observe(&self, key: &Key, (): &(), (): &()) -> Option<Snapshot> {
        observe::observe(key, self)
    }

    fn plan(&self, snapshot: &Snapshot) -> Plan<Value> {
        plan(snapshot)
    }

    async fn apply(
        &self,
        snapshot: Snapshot,
        steps: Vec<Step<Value>>,
        _: &mut Turn<'_, Self>,
    ) -> Result<Next, ReconcileError> {
        apply::apply(&snapshot, steps, self).await
    }
}

fn register(builder: &mut Builder<'_>, _: &Settings) {
    let (secrets, classes) = (builder.objects::<MetadataOfSecret>(), builder.objects::<MachineClass>());
    let queue = Queue::new("secret", PACING);

    let (named_by, known) = (Arc::clone(&classes), Arc::clone(&queue));
    let reconciler = Reconciler { secrets, classes };
    let is_ours = move |change: &crate::runtime::cache::Change<MetadataOfSecret>| {
        let is_held = change.meta.finalizers.iter().flatten().any(|finalizer| finalizer == labels::SECRET_FINALIZER);
        is_held || machine_class::naming(&named_by.cache, &change.key).next().is_some()
    };
    builder.controller(reconciler, &queue, &Arc::<States<Reconciler>>::default(), WORKERS, is_ours);

    builder.on_change::<MachineClass>(move |change| {
        let classes = change.old.iter().chain(&change.new);
        for secret in classes.flat_map(|class| machine_class::secret_names(class)) {
            known.add(Key::new(&change.key.namespace, secret));
        }
    });
}
