//! Acquires the Lease, renews it, and releases it.

use std::{future::pending, sync::Arc};

use tokio::{
    sync::watch,
    time::{sleep, timeout_at},
};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::AbortOnDropHandle,
};
use tracing::{debug, info, warn};

use super::{BREATH, LeaderElection, LeaseCallError, LeaseTerm, hand_over, holder, standby, terminating};
use crate::{
    fence::{ClosingFence, LeaseFence},
    freeze::FreezeCause,
    members::{
        SETTLES,
        standing::{FleetStanding, NamespaceMark},
    },
    panics,
    separate::run_in,
};

impl LeaderElection {
    /// Waits until this process is leader; `None` if `stop` came first: then the Lease is not held, or is released again. A future
    /// that is dropped may leave the name of this process in the Lease until it expires.
    pub async fn acquire_until(self, stop: &CancellationToken) -> Option<LeaseLeadership> {
        match self.runtime.clone() {
            Some(runtime) => {
                let stop = stop.clone();
                run_in(&runtime, async move { self.win(&stop).await }).await
            }
            None => self.win(stop).await,
        }
    }

    #[cfg(test)]
    pub(super) async fn acquire(self) -> LeaseLeadership {
        self.acquire_until(&CancellationToken::new()).await.unwrap()
    }

    async fn win(self, stop: &CancellationToken) -> Option<LeaseLeadership> {
        let namespace = &self.config.namespace;
        if let Some(member) = &self.member {
            stop.run_until_cancelled(member.settled(namespace)).await?;
        }
        let asking = self.member.as_ref().map(|member| member.ask_for(namespace));
        let term = standby::wait(&self, stop).await?;
        if stop.is_cancelled() {
            hand_over::release(&self, Some(term)).await;
            return None;
        }
        let member = self.member.clone().map(|member| (member.hold(namespace), member));
        drop(asking);
        info!(lease = self.config.name, identity = self.config.identity, "became leader");
        self.record(&term.lease, "became leader");
        let lost = CancellationToken::new();
        let release = CancellationToken::new();
        let fence = LeaseFence::default();
        fence.extend(term.ends_at);
        // When the task ends for any reason, even before it began, this process is no longer leader.
        let keeper = keep(self, term, fence.clone(), lost.clone().drop_guard(), release.clone());
        let keeper = tokio::spawn(panics::of_current_cell(keeper));
        let _end = fence.clone().closed_on_drop();
        Some(LeaseLeadership { lost, release, fence, member, keeper: AbortOnDropHandle::new(keeper), _end })
    }
}

/// This process is the leader. When dropped, the Lease is no longer renewed, and others take over when it expires.
#[derive(Debug)]
pub struct LeaseLeadership {
    lost: CancellationToken,
    release: CancellationToken,
    fence: LeaseFence,
    /// The standing of the process in its fleet, in which the Lease counts.
    member: Option<(NamespaceMark, Arc<FleetStanding>)>,
    keeper: AbortOnDropHandle<()>,
    /// Tasks that outlive the leadership may not act.
    _end: ClosingFence,
}

impl LeaseLeadership {
    /// Waits until this process is no longer leader. After that nothing may be written, and the process should end.
    pub async fn lost(&self) {
        self.lost.cancelled().await;
    }

    /// Closed when this process is no longer leader, and as soon as the Lease has not been renewed in time. That of a member of a
    /// fleet is open only while its membership is.
    pub(crate) fn fence(&self) -> LeaseFence {
        match &self.member {
            Some((_, member)) => self.fence.and(member.fence()),
            None => self.fence.clone(),
        }
    }

    /// Cancelled when this process is no longer leader.
    #[cfg(test)]
    pub(super) fn token(&self) -> CancellationToken {
        self.lost.clone()
    }

    /// Ends after running reconciles were aborted. A member of a fleet goes on, so no other expels it: it releases the Lease once
    /// the calls of these reconciles are over.
    pub async fn end_aborted(self) {
        let Some((_, member)) = self.member.as_ref() else { return self.abandon() };
        self.fence.close();
        let is_over = tokio::select! {
            biased;
            () = member.ending() => false,
            () = sleep(SETTLES) => true,
        };
        match is_over {
            true => self.release().await,
            false => self.abandon(),
        }
    }

    /// Stops renewing without a release, so others wait until the Lease expires. For a shutdown with running
    /// reconciles: their calls, especially to clouds, have that long to end before another process begins.
    pub fn abandon(self) {
        warn!("lease not released because reconciles are still running; it expires");
        drop(self);
    }

    /// Releases the Lease. Only if no reconcile is running; see [`abandon`](Self::abandon).
    pub async fn release(self) {
        self.release.cancel();
        // If the task failed, the Lease is not released and expires.
        let _ = self.keeper.await;
        if let Some((mark, _)) = self.member {
            mark.settle();
        }
    }
}

/// Renews until the lease is released or lost.
async fn keep(
    election: LeaderElection,
    mut term: LeaseTerm,
    fence: LeaseFence,
    lost: DropGuard,
    release: CancellationToken,
) {
    let mut freezes = election.freeze.as_ref().map(|freeze| freeze.subscribe());
    loop {
        let is_expelled = tokio::select! {
            biased;
            () = release.cancelled() => break,
            () = expulsion(&election) => true,
            () = due(&election, &mut freezes) => false,
        };
        let renewal = async {
            match is_expelled {
                true => None,
                false => renew(&election, &term).await,
            }
        };
        match timeout_at(term.ends_at, renewal).await {
            Ok(Some(renewed)) => {
                fence.extend(renewed.ends_at);
                term = renewed;
            }
            Ok(None) | Err(_) => {
                fence.close();
                drop(lost);
                warn!(lease = election.config.name, identity = election.config.identity, "stopped leading");
                election.record(&term.lease, "stopped leading");
                return;
            }
        }
    }
    // All work must have stopped before others can acquire the Lease.
    fence.close();
    drop(lost);
    hand_over::release(&election, Some(term)).await;
}

/// Waits until the Lease has to be renewed: regularly, and soon after a change of what it shows.
async fn due(election: &LeaderElection, freezes: &mut Option<watch::Receiver<Option<FreezeCause>>>) {
    let retry_period = election.config.timing.retry_period;
    let changed = async {
        let Some(freezes) = freezes else { return pending().await };
        match freezes.changed().await {
            Ok(()) => sleep(retry_period).await,
            Err(_) => pending().await,
        }
    };
    tokio::select! {
        () = sleep(election.renews_every.unwrap_or(retry_period)) => {}
        () = changed => {}
    }
}

/// Waits until this process is expelled from its fleet.
async fn expulsion(election: &LeaderElection) {
    match &election.member {
        Some(member) => member.expelled().await,
        None => pending().await,
    }
}

/// Retries until the Lease is renewed; `None` if another process holds it.
async fn renew(election: &LeaderElection, term: &LeaseTerm) -> Option<LeaseTerm> {
    // Without a version the Lease does not exist.
    let mut base = term.lease.metadata.resource_version.is_some().then(|| term.lease.clone());
    loop {
        let refusal = match election.claim(base.as_ref()).await {
            Ok(term) => return Some(term),
            Err(LeaseCallError::Terminating) => match terminating::renew(election, term).await {
                Ok(term) => return Some(term),
                Err(LeaseCallError::Taken(by)) => {
                    warn!(lease = election.config.name, by, "lease taken by another process");
                    return None;
                }
                Err(LeaseCallError::Conflict) => {
                    sleep(BREATH).await;
                    continue;
                }
                Err(refusal) => refusal,
            },
            Err(LeaseCallError::Conflict) => match election.read().await {
                Ok(Some(lease)) if lease.spec.as_ref().map(holder) != Some(&election.config.identity) => {
                    let by = lease.spec.as_ref().map(holder).unwrap_or_default();
                    warn!(lease = election.config.name, by, "lease taken by another process");
                    return None;
                }
                // Our response was lost, or another client changed or deleted the object.
                Ok(lease) => {
                    base = lease;
                    sleep(BREATH).await;
                    continue;
                }
                Err(refusal) => refusal,
            },
            Err(refusal) => refusal,
        };
        debug!(lease = election.config.name, %refusal, "lease not renewed, retrying");
        sleep(election.config.timing.retry_period).await;
    }
}
