//! A standby waits until the Lease is released (by a watch) or expires.

use std::{pin::pin, time::Duration};

use futures::StreamExt;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::{
    Api,
    api::{WatchEvent, WatchParams},
};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{
    LeaderElection, LeaseCallError, LeaseConfig, LeaseTerm, cause,
    hand_over::{self, hand_over},
    holder, terminating,
};
use crate::shutdown;

/// Longest pause between noticing that the Lease is free and acquiring it, so that many standbys do not all write.
const SPREAD: Duration = Duration::from_millis(250);

/// How often the same refusal is logged.
const COMPLAINTS: Duration = Duration::from_secs(60);

/// A watch from this version begins with the current state.
const ANY_VERSION: &str = "0";

/// Returns once the Lease is acquired; `None` if `stop` came first. A claim whose outcome is unknown is taken back.
pub(super) async fn wait(election: &LeaderElection, stop: &CancellationToken) -> Option<LeaseTerm> {
    let mut seen = ObservedLease::default();
    let term = wait_seeing(election, &mut seen, stop).await;
    if term.is_none() && seen.may_be_ours {
        match election.member {
            Some(_) => hand_over::release(election, None).await,
            None => take_back(election).await,
        }
    }
    term
}

/// Releases the Lease if it has the name of this process.
async fn take_back(election: &LeaderElection) {
    let ends_at = Instant::now() + shutdown::LEASE;
    match timeout(shutdown::LEASE, election.read()).await {
        Ok(Ok(Some(lease))) if lease.spec.as_ref().map(holder) == Some(&election.config.identity) => {
            hand_over(election, LeaseTerm { lease, ends_at }).await;
        }
        Ok(Ok(_)) => {}
        Ok(Err(_)) | Err(_) => warn!(
            lease = election.config.name,
            "the lease may have been acquired at the end and was not released; it expires"
        ),
    }
}

async fn wait_seeing(
    election: &LeaderElection,
    seen: &mut ObservedLease,
    stop: &CancellationToken,
) -> Option<LeaseTerm> {
    let mut claims = None;
    let mut complaint = MissingLeaseReason::default();
    while !stop.is_cancelled() {
        let refusal = match attempt(election, seen, stop).await {
            Ok(AcquireOutcome::Ours(term)) => return Some(*term),
            Ok(AcquireOutcome::Held(version)) => {
                stop.run_until_cancelled(await_change(election, seen, &version)).await?;
                continue;
            }
            Err(LeaseCallError::Terminating) => match terminating::acquire(election, &mut claims).await {
                Ok(Some(term)) if term.ends_at > Instant::now() => return Some(term),
                Ok(_) => LeaseCallError::Terminating,
                Err(refusal) => refusal,
            },
            Err(refusal) => refusal,
        };
        let pause = match refusal {
            LeaseCallError::Conflict => SPREAD.mul_f64(election.config.share()),
            refusal => {
                complaint.make(election, &refusal);
                election.config.pause()
            }
        };
        stop.run_until_cancelled(sleep(pause)).await?;
    }
    None
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

async fn attempt(
    election: &LeaderElection,
    seen: &mut ObservedLease,
    stop: &CancellationToken,
) -> Result<AcquireOutcome, LeaseCallError> {
    let lease = stop.run_until_cancelled(election.read()).await.ok_or(LeaseCallError::Stopped)??;
    if let Some(readiness) = &election.readiness {
        readiness.ready();
    }
    if let Some(lease) = &lease {
        seen.observe(lease, &election.config);
    }
    // Also if it was deleted: the leader notices that only at its next renewal.
    if !seen.show(election) {
        let version = lease.and_then(|lease| lease.metadata.resource_version);
        return Ok(AcquireOutcome::Held(version.unwrap_or_else(|| ANY_VERSION.to_owned())));
    }
    let stopped = async {
        stop.cancelled().await;
        sleep(shutdown::LEASE).await;
    };
    seen.may_be_ours = true;
    let claim = election.claim(lease.as_ref());
    let claimed = tokio::select! {
        biased;
        claimed = claim => claimed,
        () = stopped => return Err(LeaseCallError::Stopped),
    };
    seen.may_be_ours = !matches!(claimed, Ok(_) | Err(LeaseCallError::Conflict | LeaseCallError::NoNamespace));
    let term = claimed?;
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
            () = expulsion(election, seen) => return,
        };
        match event {
            Some(Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease))) => {
                seen.observe(&lease.0, &election.config);
                if seen.show(election) {
                    return sleep(SPREAD.mul_f64(election.config.share())).await;
                }
            }
            // Its holder may still lead until the Lease would expire.
            Some(Ok(WatchEvent::Deleted(_) | WatchEvent::Bookmark(_))) => {}
            Some(Ok(WatchEvent::Error(_)) | Err(_)) | None => return sleep(election.config.pause()).await,
        }
    }
}

/// Waits until the holder is expelled from the fleet of this process.
async fn expulsion(election: &LeaderElection, seen: &ObservedLease) {
    let Some(member) = &election.member else { return std::future::pending().await };
    while !member.is_expelled(holder(&seen.spec)) {
        sleep(SPREAD).await;
    }
}

/// The Lease as last seen, and when it was seen.
#[derive(Debug)]
struct ObservedLease {
    spec: LeaseSpec,
    at: Instant,
    lasts: Duration,
    /// A claim of this process was sent, and its outcome is unknown.
    may_be_ours: bool,
}

impl Default for ObservedLease {
    fn default() -> Self {
        Self { spec: LeaseSpec::default(), at: Instant::now(), lasts: Duration::ZERO, may_be_ours: false }
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
        let lasts = lasts.map_or(config.timing.lease_duration, Duration::from_secs);
        *self = Self { spec, at: Instant::now(), lasts, ..*self };
    }

    /// Shows the holder to the cell. True if the Lease is free.
    fn show(&self, election: &LeaderElection) -> bool {
        let is_free = self.is_free(election);
        election.show_holder(holder(&self.spec), is_free);
        is_free
    }

    fn is_free(&self, election: &LeaderElection) -> bool {
        let holder = holder(&self.spec);
        // It can be ours if the response to our write was lost.
        holder.is_empty()
            || holder == election.config.identity
            || self.runs_out_at() <= Instant::now()
            || election.is_expelled(holder)
    }

    fn runs_out_at(&self) -> Instant {
        self.at + self.lasts
    }
}
