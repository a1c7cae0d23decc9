//! The release of a Lease.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::PostParams;
use tokio::time::{Instant, sleep, timeout_at};
use tracing::{debug, info, warn};

use super::{LeaderElection, LeaseCallError, LeaseTerm, holder, terminating};
use crate::{dated::DatedObject, shutdown};

/// Releases the Lease. A member of a fleet that goes on repeats this until the Lease has another holder, or none: no other member
/// would expel it.
pub(super) async fn release(election: &LeaderElection, term: Option<LeaseTerm>) {
    if let Some(term) = term {
        hand_over(election, term).await;
    }
    let Some(member) = &election.member else { return };
    let again = async {
        loop {
            match election.read().await {
                Ok(Some(lease)) if lease.spec.as_ref().map(holder) == Some(&election.config.identity) => {
                    hand_over(election, LeaseTerm { lease, ends_at: Instant::now() + shutdown::LEASE }).await;
                }
                Ok(_) => return,
                Err(refusal) => debug!(lease = election.config.name, %refusal, "lease not read, retrying"),
            }
            sleep(election.config.timing.retry_period).await;
        }
    };
    tokio::select! {
        biased;
        () = member.ending() => {}
        () = member.expelled() => {}
        () = again => {}
    }
}

/// Releases the Lease as client-go does, by an empty holder.
pub(super) async fn hand_over(election: &LeaderElection, term: LeaseTerm) {
    let LeaseTerm { mut lease, ends_at } = term;
    let told = lease.clone();
    let is_lease = lease.metadata.resource_version.is_some();
    let now = Some(MicroTime(election.clock.now()));
    let spec = lease.spec.get_or_insert_default();
    spec.holder_identity = Some(String::new());
    spec.lease_duration_seconds = Some(1);
    spec.acquire_time = now.clone();
    spec.renew_time = now;
    let name = &election.config.name;
    let params = PostParams::default();
    let write = async {
        let is_gone = |refusal: &LeaseCallError| matches!(refusal, LeaseCallError::Api(kube::Error::Api(status)) if status.code == 404);
        match is_lease {
            true => match election.call(election.leases.replace(name, &params, &DatedObject(lease))).await {
                Err(refusal) if is_gone(&refusal) => terminating::release(election).await,
                outcome => outcome.map(drop),
            },
            false => terminating::release(election).await,
        }
    };
    match timeout_at(ends_at.min(Instant::now() + shutdown::LEASE), write).await {
        Ok(Ok(())) => info!(lease = name, identity = election.config.identity, "released the lease"),
        Ok(Err(refusal)) => warn!(lease = name, %refusal, "lease not released, it expires"),
        Err(_) => warn!(lease = name, "lease not released in time, it expires"),
    }
    election.record(&told, "stopped leading");
}
