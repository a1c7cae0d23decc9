use std::sync::Arc;

use kube::Client;

use super::{Action, Core, Snapshot, apply, plan};
use crate::{
    capi::stand_in::{
        observe::{Definition, Ground},
        settings::{ROLE_NAME, Settings},
        standing,
    },
    plan::{Plan, Step},
    runtime::{
        cell::{Builder, Kind},
        clock::Clock,
        queue::{Pacing, Queue},
        reconcile::{Next, Reconciler, Turn},
        worker::ReconcileError,
    },
};

pub(in super::super) const KIND: Kind<Settings> = Kind { role: ROLE_NAME, register };

/// There is one key.
const CORE: &str = "core";

/// Looks for core.
pub(super) struct Signals {
    pub core: Arc<Core>,
    pub ground: Ground,
    pub control: Client,
    pub clock: Arc<dyn Clock>,
}

impl Reconciler for Signals {
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

fn register(builder: &mut Builder<'_>, _: &Settings) {
    let core = builder.shared::<Core>();
    let reconciler = Signals {
        core: Arc::clone(&core),
        ground: Ground::new(builder),
        control: builder.config().control.clone(),
        clock: Arc::clone(&builder.config().shared.clock),
    };
    let queue = Queue::new("coreprovider", Pacing::default());
    builder.reconciler(reconciler, &queue, &Arc::default(), 1);
    let changed = Arc::clone(&queue);
    builder.on_change::<Definition>(move |change| {
        if standing::is_of_core(&change.key.name) || change.key.name == standing::INVENTORY {
            changed.add(CORE);
        }
    });
    // What a standby remembers may be old.
    builder.on_start(move || {
        core.forget();
        queue.add(CORE);
    });
}
