//! Runs the roles of a cell, each while its Lease is held.

use futures::future::select_all;
use tokio_util::sync::CancellationToken;

use super::{
    cell::{ControllerCell, RoleEnd},
    fence::{self, LeaseFence},
    leader::{LeaderElection, LeaseLeadership},
    role::ControllerRole,
};

/// The Lease was lost: another process may act now.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("lost the lease {0}")]
pub struct LostLease(&'static str);

/// Runs each role, with an election once its Lease is acquired, until `stop`. When one role ends, all end. `begun` is
/// called when a role may act.
///
/// # Errors
/// A Lease is lost.
pub async fn lead(
    cell: &ControllerCell,
    roles: Vec<(ControllerRole, Option<LeaderElection>)>,
    begun: &(dyn Fn(&ControllerRole) + Sync),
    stop: &CancellationToken,
) -> Result<(), LostLease> {
    let stop = stop.child_token();
    let lead = |(role, election)| Box::pin(lead_one(cell, role, election, begun, stop.clone()));
    let mut running: Vec<_> = roles.into_iter().map(lead).collect();
    let mut outcome = Ok(());
    while !running.is_empty() {
        let (ended, _, rest) = select_all(running).await;
        stop.cancel();
        outcome = outcome.and(ended);
        running = rest;
    }
    outcome
}

async fn lead_one(
    cell: &ControllerCell,
    role: ControllerRole,
    election: Option<LeaderElection>,
    begun: &(dyn Fn(&ControllerRole) + Sync),
    stop: CancellationToken,
) -> Result<(), LostLease> {
    let Some(election) = election else {
        begun(&role);
        // Tasks that outlive the role may not act.
        let fence = LeaseFence::default();
        let _end = fence.clone().closed_on_drop();
        fence::within(fence, cell.lead(&role, &stop)).await;
        return Ok(());
    };
    // A process whose caches cannot be filled must not take a Lease from one whose caches are full.
    if stop.run_until_cancelled(cell.wait_synced()).await.is_none() {
        return Ok(());
    }
    let Some(leadership) = election.acquire_until(&stop).await else { return Ok(()) };
    begun(&role);
    lead_role(cell, &role, leadership, &stop).await
}

async fn lead_role(
    cell: &ControllerCell,
    role: &ControllerRole,
    leadership: LeaseLeadership,
    stop: &CancellationToken,
) -> Result<(), LostLease> {
    tokio::select! {
        biased;
        () = leadership.lost() => Err(LostLease(role.lease)),
        ended = fence::within(leadership.fence(), cell.lead(role, stop)) => {
            match ended {
                RoleEnd::Completely => leadership.release().await,
                // The next leader waits until the Lease has expired, and so until the aborted calls are over.
                RoleEnd::Aborted => leadership.end_aborted().await,
            }
            Ok(())
        }
    }
}
