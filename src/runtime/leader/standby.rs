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

use super::{Candidacy, Election, Refusal, Tenure, holder};

/// Longest pause between noticing that the Lease is free and acquiring it, so that many standbys do not all write.
const SPREAD: Duration = Duration::from_millis(250);

/// A watch from this version begins with the current state.
const ANY_VERSION: &str = "0";

/// Returns once the Lease is acquired.
pub(super) async fn wait(election: &Election) -> Tenure {
    let mut seen = Seen::default();
    loop {
        match attempt(election, &mut seen).await {
            Ok(Outcome::Ours(tenure)) => return *tenure,
            Ok(Outcome::Held(version)) => await_change(election, &mut seen, &version).await,
            Err(Refusal::Conflict) => sleep(SPREAD.mul_f64(election.candidacy.share())).await,
            Err(refusal) => {
                let lease = &election.candidacy.name;
                warn!(lease, %refusal, "cannot use the lease; check the API server and the RBAC for leases");
                if let Some(readiness) = &election.readiness {
                    readiness.missing(refusal.to_string());
                }
                sleep(election.candidacy.pause()).await;
            }
        }
    }
}

enum Outcome {
    Ours(Box<Tenure>),
    /// Held by another process, in this resource version.
    Held(String),
}

async fn attempt(election: &Election, seen: &mut Seen) -> Result<Outcome, Refusal> {
    let lease = election.read().await?;
    if let Some(readiness) = &election.readiness {
        readiness.ready();
    }
    if let Some(lease) = &lease {
        seen.observe(lease, &election.candidacy);
    }
    // Also if it was deleted: the leader notices that only at its next renewal.
    if !seen.is_free(&election.candidacy) {
        let version = lease.and_then(|lease| lease.metadata.resource_version);
        return Ok(Outcome::Held(version.unwrap_or_else(|| ANY_VERSION.to_owned())));
    }
    let tenure = election.claim(lease.as_ref()).await?;
    // If this process was paused since, the response proves only that it held the Lease then.
    if tenure.ends_at <= Instant::now() { Err(Refusal::Conflict) } else { Ok(Outcome::Ours(Box::new(tenure))) }
}

/// Returns when the Lease should be checked again.
async fn await_change(election: &Election, seen: &mut Seen, version: &str) {
    let Candidacy { name, timing, .. } = &election.candidacy;
    let params = WatchParams::default().fields(&format!("metadata.name={name}"));
    let opening = timeout(timing.patience(), Api::watch(&election.leases, &params, version));
    let mut events = pin!(match opening.await {
        Ok(Ok(events)) => events,
        Ok(Err(error)) => {
            debug!(lease = name, %error, "cannot watch the lease, polling it");
            return sleep(election.candidacy.pause()).await;
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
                seen.observe(&lease, &election.candidacy);
                if seen.is_free(&election.candidacy) {
                    return sleep(SPREAD.mul_f64(election.candidacy.share())).await;
                }
            }
            // Its holder may still lead until the Lease would expire.
            Some(Ok(WatchEvent::Deleted(_) | WatchEvent::Bookmark(_))) => {}
            Some(Ok(WatchEvent::Error(_)) | Err(_)) | None => return sleep(election.candidacy.pause()).await,
        }
    }
}

/// The Lease as last seen, and when it was seen.
#[derive(Debug)]
struct Seen {
    spec: LeaseSpec,
    at: Instant,
    lasts: Duration,
}

impl Default for Seen {
    fn default() -> Self {
        Self { spec: LeaseSpec::default(), at: Instant::now(), lasts: Duration::ZERO }
    }
}

impl Seen {
    /// Stores the Lease. Only a changed Lease counts as a renewal.
    fn observe(&mut self, lease: &Lease, candidacy: &Candidacy) {
        let spec = lease.spec.clone().unwrap_or_default();
        if spec == self.spec {
            return;
        }
        if holder(&spec) != holder(&self.spec) {
            info!(lease = candidacy.name, leader = holder(&spec), "leader changed");
        }
        let lasts = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        *self = Self {
            spec,
            at: Instant::now(),
            lasts: lasts.map_or(candidacy.timing.lease_duration, Duration::from_secs),
        };
    }

    fn is_free(&self, candidacy: &Candidacy) -> bool {
        let holder = holder(&self.spec);
        // It can be ours if the response to our write was lost.
        holder.is_empty() || holder == candidacy.identity || self.runs_out_at() <= Instant::now()
    }

    fn runs_out_at(&self) -> Instant {
        self.at + self.lasts
    }
}
