//! Polls Leases, and records the results.

use std::{collections::BTreeMap, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1;
use kube::{Client, ResourceExt, api::ListParams};
use parking_lot::RwLock;

use super::leases::{self, NativeManagerLease, TrackedLease};
use crate::{
    object::gate::ManagerObstacle,
    provider::settings::{ROLE_NAME, Settings},
};
use mcm_runtime::{
    cell::{CellBuilder, CellScope, Kind},
    clock::TimeSource,
    handlers::HandlerList,
    leader,
    objects::chain,
    poll::{self, PollResult, PollTask},
};

pub(in super::super) const KIND: Kind<Settings> = Kind { role: ROLE_NAME, register };

/// The default of client-go.
const VALIDITY: i32 = 15;

type ManagerChangeHandler = dyn Fn() + Send + Sync;

/// The known native managers. Kinds of one cell share it.
#[derive(Default)]
pub(in super::super) struct ManagerRegistry {
    state: RwLock<ManagerLeaseTable>,
    handlers: HandlerList<ManagerChangeHandler>,
}

#[derive(Default)]
struct ManagerLeaseTable {
    /// The user declared that they are being replaced.
    is_ignored: bool,
    known: Vec<TrackedLease>,
    /// By namespace; `None` before the first look that succeeded.
    obstacles: Option<BTreeMap<String, ManagerObstacle>>,
    /// Why the last look failed.
    problem: Option<String>,
}

impl ManagerRegistry {
    /// Why nothing may be done in a namespace.
    pub fn namespace_obstacle(&self, namespace: &str) -> Option<ManagerObstacle> {
        let state = self.state.read();
        if state.is_ignored {
            return None;
        }
        match (&state.obstacles, &state.problem) {
            (Some(obstacles), _) => obstacles.get(namespace).cloned(),
            (None, Some(problem)) => {
                let on = format!("the Leases of MCM managers to become readable: {problem}");
                Some(ManagerObstacle { on, is_certain: true })
            }
            (None, None) => {
                Some(ManagerObstacle { on: "the Leases of MCM managers to be read".to_owned(), is_certain: false })
            }
        }
    }

    /// Calls `handler` when the answer may be another one.
    pub fn on_change(&self, handler: impl Fn() + Send + Sync + 'static) {
        self.handlers.add(Box::new(handler));
    }

    #[cfg(test)]
    pub fn known_for_tests(obstacles: &[(&str, &str)]) -> std::sync::Arc<Self> {
        let obstacle = |on: &str| ManagerObstacle { on: on.to_owned(), is_certain: true };
        let all = obstacles.iter().map(|(namespace, on)| ((*namespace).to_owned(), obstacle(on))).collect();
        let managers = Self::default();
        managers.state.write().obstacles = Some(all);
        std::sync::Arc::new(managers)
    }

    pub(super) fn ignore(&self) {
        self.state.write().is_ignored = true;
    }

    /// The state on a standby may be old.
    pub(super) fn forget(&self) {
        let mut state = self.state.write();
        *state = ManagerLeaseTable { is_ignored: state.is_ignored, ..ManagerLeaseTable::default() };
    }

    /// The result of the last poll. A Lease that is no longer renewed is free as soon as it expires.
    pub(super) fn poll_result(&self, now: Timestamp) -> PollResult {
        let state = self.state.read();
        if state.problem.is_some() {
            return PollResult::Failure;
        }
        let held = leases::held(&state.known, leader::is_own_form, now);
        match held.map(|lease| lease.validity).min().and_then(|end| end.try_into().ok()) {
            Some(end) => PollResult::AnswerFor(end),
            None => PollResult::Answer,
        }
    }

    /// A failure after a success changes nothing: the last answer is the best there is.
    pub(super) fn heard(&self, answer: Result<Vec<NativeManagerLease>, String>, now: Timestamp) {
        let is_news = {
            let mut state = self.state.write();
            match answer {
                Ok(read) => {
                    state.known = leases::known(&state.known, read, now);
                    let next = leases::obstacles(leases::held(&state.known, leader::is_own_form, now));
                    state.problem = None;
                    let is_news = state.obstacles.as_ref() != Some(&next);
                    state.obstacles = Some(next);
                    is_news
                }
                Err(problem) => {
                    let is_news = state.obstacles.is_none() && state.problem.as_ref() != Some(&problem);
                    state.problem = Some(problem);
                    is_news
                }
            }
        };
        if is_news {
            self.handlers.each(|handler| handler());
        }
    }
}

/// Polls for native managers.
struct NativeManagers {
    managers: Arc<ManagerRegistry>,
    control: Client,
    scope: CellScope,
    clock: Arc<dyn TimeSource>,
}

impl PollTask for NativeManagers {
    const NAME: &'static str = "nativemanagers";

    async fn poll(&self) -> PollResult {
        let answer = self.leases().await.map_err(|error| chain(&error));
        if let Err(problem) = &answer {
            tracing::warn!(problem, "Leases of MCM managers not read");
        }
        let now = self.clock.now();
        self.managers.heard(answer, now);
        self.managers.poll_result(now)
    }

    fn forget(&self) {
        self.managers.forget();
    }
}

impl NativeManagers {
    async fn leases(&self) -> kube::Result<Vec<NativeManagerLease>> {
        let api = self.scope.api::<v1::Lease>(&self.control);
        let mut read = Vec::new();
        for name in leases::NAMES {
            let by_name = ListParams::default().fields(&format!("metadata.name={name}"));
            read.extend(api.list(&by_name).await?.items.into_iter().map(manager_lease));
        }
        Ok(read)
    }
}

fn register(builder: &mut CellBuilder<'_>, settings: &Settings) {
    let managers = builder.shared::<ManagerRegistry>();
    if settings.replaces_native_manager {
        managers.ignore();
        return;
    }
    let config = builder.config();
    let (control, scope, clock) = (config.control.clone(), config.scope.clone(), Arc::clone(&config.shared.clock));
    poll::register(builder, NativeManagers { managers, control, scope, clock });
}

fn manager_lease(lease: v1::Lease) -> NativeManagerLease {
    let (namespace, name) = (lease.namespace().unwrap_or_default(), lease.name_any());
    let version = lease.resource_version().unwrap_or_default();
    let spec = lease.spec.unwrap_or_default();
    let seconds = spec.lease_duration_seconds.filter(|seconds| *seconds > 0).unwrap_or(VALIDITY);
    let validity = SignedDuration::from_secs(i64::from(seconds));
    NativeManagerLease { namespace, name, holder: spec.holder_identity.unwrap_or_default(), version, validity }
}
