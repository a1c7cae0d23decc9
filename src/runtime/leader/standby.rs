//! A standby waits until the Lease is released (by a watch) or expires.

use std::{pin::pin, time::Duration};

use futures::StreamExt;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::{
    Api,
    api::{WatchEvent, WatchParams},
};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{debug, info, warn};

use super::{LeaderElection, LeaseCallError, LeaseConfig, LeaseTerm, cause, holder, terminating};

/// Longest pause between noticing that the Lease is free and acquiring it, so that many standbys do not all write.
const SPREAD: Duration = Duration::from_millis(250);

/// How often the same refusal is logged.
const COMPLAINTS: Duration = Duration::from_secs(60);

/// A watch from this version begins with the current state.
const ANY_VERSION: &str = "0";

/// Returns once the Lease is acquired.
pub(super) async fn wait(election: &LeaderElection) -> LeaseTerm {
    let mut seen = ObservedLease::default();
    let mut claims = None;
    let mut complaint = MissingLeaseReason::default();
    loop {
        let refusal = match attempt(election, &mut seen).await {
            Ok(AcquireOutcome::Ours(term)) => return *term,
            Ok(AcquireOutcome::Held(version)) => {
                await_change(election, &mut seen, &version).await;
                continue;
            }
            Err(LeaseCallError::Terminating) => match terminating::acquire(election, &mut claims).await {
                Ok(Some(term)) if term.ends_at > Instant::now() => return term,
                Ok(_) => LeaseCallError::Terminating,
                Err(refusal) => refusal,
            },
            Err(refusal) => refusal,
        };
        match refusal {
            LeaseCallError::Conflict => sleep(SPREAD.mul_f64(election.config.share())).await,
            refusal => {
                complaint.make(election, &refusal);
                sleep(election.config.pause()).await;
            }
        }
    }
}

/// The reason for which there is no Lease, as last logged.
#[derive(Default)]
struct MissingLeaseReason(Option<(String, Instant)>);

impl MissingLeaseReason {
    /// Logs a refusal once, and again every minute.
    fn make(&mut self, election: &LeaderElection, refusal: &LeaseCallError) {
        let LeaseConfig { name: lease, namespace, .. } = &election.config;
        let (text, hint) = match refusal {
            LeaseCallError::NoNamespace => (
                format!("the namespace {namespace} does not exist on {}", election.server),
                format!("kubectl create namespace {namespace}"),
            ),
            LeaseCallError::Terminating => (
                format!(
                    "the namespace {namespace} is being deleted, so another process leads, or nothing is left to do"
                ),
                "wait, or create the namespace again once it is gone".to_owned(),
            ),
            refusal => (refusal.to_string(), "check the API server and the RBAC for leases".to_owned()),
        };
        if let Some(readiness) = &election.readiness {
            readiness.missing(text.clone());
        }
        if self.0.as_ref().is_none_or(|(last, at)| *last != text || at.elapsed() >= COMPLAINTS) {
            warn!(lease, error = text, hint, "cannot use the lease");
            self.0 = Some((text, Instant::now()));
        }
    }
}

enum AcquireOutcome {
    Ours(Box<LeaseTerm>),
    /// Held by another process, in this resource version.
    Held(String),
}

async fn attempt(election: &LeaderElection, seen: &mut ObservedLease) -> Result<AcquireOutcome, LeaseCallError> {
    let lease = election.read().await?;
    if let Some(readiness) = &election.readiness {
        readiness.ready();
    }
    if let Some(lease) = &lease {
        seen.observe(lease, &election.config);
    }
    // Also if it was deleted: the leader notices that only at its next renewal.
    if !seen.is_free(&election.config) {
        let version = lease.and_then(|lease| lease.metadata.resource_version);
        return Ok(AcquireOutcome::Held(version.unwrap_or_else(|| ANY_VERSION.to_owned())));
    }
    let term = election.claim(lease.as_ref()).await?;
    // If this process was paused since, the response proves only that it held the Lease then.
    if term.ends_at <= Instant::now() {
        Err(LeaseCallError::Conflict)
    } else {
        Ok(AcquireOutcome::Ours(Box::new(term)))
    }
}

/// Returns when the Lease should be checked again.
async fn await_change(election: &LeaderElection, seen: &mut ObservedLease, version: &str) {
    let LeaseConfig { name, timing, .. } = &election.config;
    let params = WatchParams::default().fields(&format!("metadata.name={name}"));
    let opening = timeout(timing.patience(), Api::watch(&election.leases, &params, version));
    let mut events = pin!(match opening.await {
        Ok(Ok(events)) => events,
        Ok(Err(error)) => {
            debug!(lease = name, error = cause(&error), "cannot watch the lease, polling it");
            return sleep(election.config.pause()).await;
        }
        Err(_) => return,
    });
    loop {
        let event = tokio::select! {
            biased;
            event = events.next() => event,
            () = sleep_until(seen.runs_out_at()) => return,
        };
        match event {
            Some(Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease))) => {
                seen.observe(&lease.0, &election.config);
                if seen.is_free(&election.config) {
                    return sleep(SPREAD.mul_f64(election.config.share())).await;
                }
            }
            // Its holder may still lead until the Lease would expire.
            Some(Ok(WatchEvent::Deleted(_) | WatchEvent::Bookmark(_))) => {}
            Some(Ok(WatchEvent::Error(_)) | Err(_)) | None => return sleep(election.config.pause()).await,
        }
    }
}

/// The Lease as last seen, and when it was seen.
#[derive(Debug)]
struct ObservedLease {
    spec: LeaseSpec,
    at: Instant,
    lasts: Duration,
}

impl Default for ObservedLease {
    fn default() -> Self {
        Self { spec: LeaseSpec::default(), at: Instant::now(), lasts: Duration::ZERO }
    }
}

impl ObservedLease {
    /// Stores the Lease. Only a changed Lease counts as a renewal.
    fn observe(&mut self, lease: &Lease, config: &LeaseConfig) {
        let spec = lease.spec.clone().unwrap_or_default();
        if spec == self.spec {
            return;
        }
        if holder(&spec) != holder(&self.spec) {
            info!(lease = config.name, leader = holder(&spec), "leader changed");
        }
        let lasts = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        *self =
            Self { spec, at: Instant::now(), lasts: lasts.map_or(config.timing.lease_duration, Duration::from_secs) };
    }

    fn is_free(&self, config: &LeaseConfig) -> bool {
        let holder = holder(&self.spec);
        // It can be ours if the response to our write was lost.
        holder.is_empty() || holder == config.identity || self.runs_out_at() <= Instant::now()
    }

    fn runs_out_at(&self) -> Instant {
        self.at + self.lasts
    }
}
