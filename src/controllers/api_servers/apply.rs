//! Probes API servers, and stores the results for all kinds.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::future::join_all;
use parking_lot::Mutex;
use tokio::time::timeout;

use super::{Action, ApiServerId, ProbeResults, Snapshot};
use mcm_api::machine::Machine;
use mcm_rules::{
    plan::Step,
    safety::{
        api_server::{ApiServerHealth, ProbeTiming},
        trust::TargetTrust,
    },
};
use mcm_runtime::{
    clock::TimeSource,
    freeze::FreezeCause,
    handlers::HandlerList,
    objects::{CachedApi, chain},
    reconcile::{LoopContinuation, PlanExecutor, ReconcileRun},
    target::{CellTargets, TargetId},
    worker::ReconcileError,
};

/// The object that probes read. It does not exist; the name is the reference's.
const NAME: &str = "dummy_name";

/// Time limit of a probe: one API server that does not answer delays the results of all others for so long.
const LIMIT: Duration = Duration::from_secs(10);

/// API servers that froze or unfroze Machines.
pub(crate) struct FrozenServers(pub Vec<ApiServerId>);

type ApiServersHandler = dyn Fn(&FrozenServers) + Send + Sync;

/// The results of probes of the API servers of a cell.
#[derive(Default)]
pub(crate) struct ApiServers {
    known: Mutex<BTreeMap<ApiServerId, ApiServerHealth>>,
    handlers: HandlerList<ApiServersHandler>,
}

impl ApiServers {
    /// Calls `handler` when Machines have to be frozen or unfrozen, with the API servers that are the reason.
    pub fn on_change(&self, handler: impl Fn(&FrozenServers) + Send + Sync + 'static) {
        self.handlers.add(Box::new(handler));
    }

    /// Limits the trust in a target by its own API server and by that of the control cluster.
    pub fn limit(&self, target: &TargetId, trust: TargetTrust) -> TargetTrust {
        let (own, control) =
            (self.health_of(&ApiServerId::Target(target.to_string())), self.health_of(&ApiServerId::Control));
        control.limit(own.limit(trust))
    }

    /// Machines are frozen because of an API server.
    pub fn is_any_frozen(&self) -> bool {
        self.known.lock().values().any(|health| health.is_frozen)
    }

    /// Since when and why Machines are frozen because of an API server.
    pub fn freeze_cause(&self) -> Option<FreezeCause> {
        let known = self.known.lock();
        let (server, health) = known.iter().find(|(_, health)| health.is_frozen)?;
        let (since, error) = health.failing.clone()?;
        Some(FreezeCause { since, why: format!("the API server {server} does not answer: {error}") })
    }

    pub(super) fn health_of(&self, server: &ApiServerId) -> ApiServerHealth {
        self.known.lock().get(server).cloned().unwrap_or_default()
    }

    pub(super) fn forget(&self) {
        self.known.lock().clear();
    }

    fn set(&self, known: BTreeMap<ApiServerId, ApiServerHealth>) {
        let before = std::mem::replace(&mut *self.known.lock(), known.clone());
        let is_gone = |server: &ApiServerId| !known.contains_key(server);
        let thawed = before.iter().filter(|(server, health)| health.is_frozen && is_gone(server));
        let mut changed = FrozenServers(thawed.map(|(server, _)| server.clone()).collect());
        for (server, health) in &known {
            if before.get(server).is_some_and(|before| before.is_frozen) == health.is_frozen {
                continue;
            }
            changed.0.push(server.clone());
            match &health.failing {
                Some((since, error)) => {
                    tracing::warn!(%server, %since, error, "API server unreachable, machines frozen")
                }
                None => tracing::info!(%server, "API server reachable, machines unfrozen"),
            }
        }
        if !changed.0.is_empty() {
            self.handlers.each(|handler| handler(&changed));
        }
    }
}

/// Probes the API servers.
pub(crate) struct ApiServerProber {
    pub servers: Arc<ApiServers>,
    pub machines: Arc<CachedApi<Machine>>,
    /// Any namespace that the process may read.
    pub namespace: String,
    pub targets: Arc<CellTargets>,
    pub probing: ProbeTiming,
    pub clock: Arc<dyn TimeSource>,
}

/// State of one reconcile.
#[derive(Default)]
pub(crate) struct ProbeSession {
    pub(super) probed: Option<(ProbeResults, bool)>,
}

impl PlanExecutor for ApiServerProber {
    async fn apply(
        &self,
        _: Snapshot,
        steps: Vec<Step<Action>>,
        turn: &mut ReconcileRun<'_, Self>,
    ) -> Result<LoopContinuation, ReconcileError> {
        for step in steps {
            match step.action {
                Action::Probe => turn.session.probed = Some((self.probe_all().await, false)),
                Action::Conclude(known) => {
                    self.servers.set(known);
                    turn.session.probed.iter_mut().for_each(|(_, is_stored)| *is_stored = true);
                }
            }
        }
        Ok(LoopContinuation::Plan)
    }
}

impl ApiServerProber {
    async fn probe_all(&self) -> ProbeResults {
        let targets = self.targets.all().into_iter().map(|target| async move {
            let answer = probe(target.nodes.api("").get_opt(NAME)).await;
            (ApiServerId::Target(target.id.to_string()), answer)
        });
        let control = async {
            let answer = probe(self.machines.api(&self.namespace).get_opt(NAME)).await;
            (ApiServerId::Control, answer)
        };
        let (mut results, control) = futures::join!(join_all(targets), control);
        results.push(control);
        results.into_iter().collect()
    }
}

async fn probe<T>(read: impl Future<Output = kube::Result<T>>) -> Result<(), String> {
    match timeout(LIMIT, read).await {
        Ok(answer) => answer.map(drop).map_err(|error| chain(&error)),
        Err(_) => Err(format!("no response within {} s", LIMIT.as_secs())),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn an_api_server_that_is_not_probed_any_more_freezes_nothing() {
        let (servers, target) = (ApiServers::default(), ApiServerId::Target("target".to_owned()));
        let changed = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&changed);
        servers.on_change(move |frozen| seen.lock().push(frozen.0.clone()));
        let failing = Some((Timestamp::UNIX_EPOCH, "refused".to_owned()));
        let frozen = ApiServerHealth { is_frozen: true, failing, ..ApiServerHealth::default() };
        servers.set(BTreeMap::from([(target.clone(), frozen), (ApiServerId::Control, ApiServerHealth::default())]));
        assert!(servers.is_any_frozen());
        for _ in 0..2 {
            servers.set(BTreeMap::from([(ApiServerId::Control, ApiServerHealth::default())]));
            assert!(!servers.is_any_frozen());
        }
        assert_eq!(*changed.lock(), [vec![target.clone()], vec![target]]);
    }
}
