use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::Value;

use super::{
    Snapshot,
    apply::{self, ConfigMaps},
    observe, plan,
};
use crate::{
    plan::{Plan, Step},
    runtime::{
        cache::Key,
        cell::{Builder, Kind, Role},
        metrics::{Desc, Exposition},
        queue::{Pacing, Queue},
        reconcile::{Next, Reconciler, Turn},
        worker::ReconcileError,
    },
};

pub(super) const ROLE: Role = Role { name: "tiny", lease: "tiny" };
pub(super) const KIND: Kind<()> = Kind { role: ROLE.name, register };

impl Reconciler for ConfigMaps {
    type Key = Key;
    type Snapshot = Snapshot;
    type Action = Value;
    type Memory = ();
    type Session = ();

    fn observe(&self, key: &Key, (): &(), (): &()) -> Option<Snapshot> {
        observe::observe(key, self)
    }

    fn plan(&self, snapshot: &Snapshot) -> Plan<Value> {
        plan::plan(snapshot)
    }

    fn lint(&self, snapshot: &Snapshot, plan: &Plan<Value>) -> Option<String> {
        plan::lint(snapshot, plan)
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

fn count(maps: &[Arc<ConfigMap>], out: &mut Exposition) {
    const MAPS: Desc<0> = Desc::gauge("tiny_maps", "Config maps.", []);
    out.sample(&MAPS, [], f64::from(u32::try_from(maps.len()).unwrap()));
}

fn register(builder: &mut Builder<'_>, (): &()) {
    let reconciler = ConfigMaps { objects: builder.objects() };
    let queue = Queue::new("tiny", Pacing::default());
    builder.controller::<ConfigMap, _>(reconciler, &queue, &Arc::default(), 1, |_| true);
    builder.export::<ConfigMap>(count);
}
