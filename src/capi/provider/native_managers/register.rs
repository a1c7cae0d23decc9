use std::sync::Arc;

use kube::Client;

use super::{Action, Managers, Snapshot, apply, plan};
use crate::{
    capi::provider::settings::{ROLE_NAME, Settings},
    plan::{Plan, Step},
    runtime::{
        cell::{Builder, Kind, Scope},
        clock::Clock,
        queue::{Pacing, Queue},
        reconcile::{Next, Reconciler, Turn},
        worker::ReconcileError,
    },
};

pub(in super::super) const KIND: Kind<Settings> = Kind { role: ROLE_NAME, register };

/// There is one key.
const LEASES: &str = "leases";

/// Looks for native managers.
pub(super) struct NativeManagers {
    pub managers: Arc<Managers>,
    pub control: Client,
    pub scope: Scope,
    pub clock: Arc<dyn Clock>,
}

impl Reconciler for NativeManagers {
    type Key = &'static str;
    type Snapshot = Snapshot;
    type Action = Action;
    type Memory = ();
    /// It has looked.
    type Session = bool;

    fn observe(&self, _: &&'static str, (): &(), has_looked: &bool) -> Option<Snapshot> {
        Some(self.snapshot(*has_looked))
    }

    fn plan(&self, snapshot: &Snapshot) -> Plan<Action> {
        plan::plan(snapshot)
    }

    async fn apply(
        &self,
        _: Snapshot,
        steps: Vec<Step<Action>>,
        turn: &mut Turn<'_, Self>,
    ) -> Result<Next, ReconcileError> {
        apply::apply(self, steps).await;
        turn.session = true;
        Ok(Next::Plan)
    }
}

fn register(builder: &mut Builder<'_>, settings: &Settings) {
    let managers = builder.shared::<Managers>();
    if settings.replaces_native_manager {
        managers.ignore();
        return;
    }
    let reconciler = NativeManagers {
        managers: Arc::clone(&managers),
        control: builder.config().control.clone(),
        scope: builder.config().scope.clone(),
        clock: Arc::clone(&builder.config().shared.clock),
    };
    let queue = Queue::new("nativemanagers", Pacing::default());
    builder.reconciler(reconciler, &queue, &Arc::default(), 1);
    builder.on_start(move || {
        managers.forget();
        queue.add(LEASES);
    });
}
