//! The membership of this process in its fleet: it joins, renews its Lease, looks at the others, expels silent ones, and leaves.
//!
//! Its Lease is one that a member left, so that the number of Leases is bounded without the right to delete any; its name is new.
//! A renewal replaces the version that was read, and so does an expulsion: of both, one is refused. So a member that is expelled
//! cannot renew, and one that renewed was not silent.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Client, ResourceExt, api::ListParams};
use tokio::{
    runtime::Handle,
    time::{Instant, sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tracing::{debug, info, warn};

use super::{
    BREATH, LeaderElection, LeaseCallError, LeaseConfig, LeaseTerm, LeaseTiming, hand_over::hand_over, holder,
};
use crate::{
    clock::TimeSource,
    http::ReadinessPart,
    members::{EXPELLED_AFTER, FleetName, LOOK, RENEWAL, VALID_FOR, observed::MemberRecord, standing::FleetStanding},
    separate::run_in,
    shutdown,
};
use mcm_api::labels;

/// Timing of the Lease of a member.
const TIMING: LeaseTiming =
    LeaseTiming { lease_duration: EXPELLED_AFTER, renew_deadline: VALID_FOR, retry_period: Duration::from_millis(500) };
/// Time limit of one call: a renewal that gets no answer is repeated in time.
const PATIENCE: Duration = Duration::from_secs(3);
/// Most namespaces and longest name that are read of a member.
const MOST_ASKED: usize = 1000;
const LONGEST_NAMESPACE: usize = 63;

/// Configuration of a membership.
#[derive(Clone)]
pub struct MembershipConfig {
    /// A client for Leases; see `client::lease_client`.
    pub leases: Client,
    /// The runtime of that client; the current one if `None`.
    pub runtime: Option<Handle>,
    /// The fleet.
    pub fleet: FleetName,
    /// The time that Leases show.
    pub clock: Arc<dyn TimeSource>,
    /// The wall clock, which bounds a membership as well.
    pub wall: Arc<dyn TimeSource>,
    /// Random numbers for the names of the process and of its Lease. They decide which namespaces it serves.
    pub entropy: Arc<dyn Fn() -> u128 + Send + Sync>,
}

/// This process is a member of its fleet. When dropped, its Lease is no longer renewed, and others expel it.
pub struct FleetMembership {
    standing: Arc<FleetStanding>,
    leave: CancellationToken,
    keeper: AbortOnDropHandle<()>,
}

impl FleetMembership {
    /// Waits until this process is a member; `None` if `stop` came first.
    pub async fn join(config: MembershipConfig, readiness: ReadinessPart, stop: &CancellationToken) -> Option<Self> {
        match config.runtime.clone() {
            Some(runtime) => {
                let stop = stop.clone();
                run_in(&runtime, async move { enter(config, readiness, &stop).await }).await
            }
            None => enter(config, readiness, stop).await,
        }
    }

    /// The standing of this process.
    pub fn standing(&self) -> &Arc<FleetStanding> {
        &self.standing
    }

    /// Ends the membership: others may act at once. If work was aborted, they have to expel this process before, which takes as long
    /// as its calls may have an effect.
    pub async fn end(self) {
        if !self.standing.is_settled() {
            return warn!(
                lease = self.standing.lease,
                "lease not released because work was aborted; others expel this process"
            );
        }
        self.leave.cancel();
        // If the task failed, the Lease is not released, and others expel this process.
        let _ = self.keeper.await;
    }
}

async fn enter(
    config: MembershipConfig,
    readiness: ReadinessPart,
    stop: &CancellationToken,
) -> Option<FleetMembership> {
    let process = (config.entropy)();
    let mut complaint = None;
    let (member, lease) = loop {
        match stop.run_until_cancelled(FleetMember::join(&config, process)).await? {
            Ok(joined) => break joined,
            Err(LeaseCallError::Conflict) => sleep(BREATH).await,
            Err(refusal) => {
                let text = format!("join the fleet in namespace {}: {refusal}", config.fleet.namespace);
                readiness.missing(text.clone());
                if complaint.as_ref() != Some(&text) {
                    let hint = "check the API server and the RBAC for leases: apply config/fleet/rbac.yaml";
                    warn!(error = text, hint, "cannot join the fleet");
                    complaint = Some(text);
                }
                stop.run_until_cancelled(sleep(LOOK)).await?;
            }
        }
    };
    readiness.ready();
    let standing = Arc::clone(&member.standing);
    info!(lease = standing.lease, identity = standing.identity, "joined the fleet");
    let leave = CancellationToken::new();
    let keeper = AbortOnDropHandle::new(tokio::spawn(keep(member, lease, leave.clone())));
    Some(FleetMembership { standing, leave, keeper })
}

/// A member with its Lease.
struct FleetMember {
    fleet: FleetName,
    election: LeaderElection,
    standing: Arc<FleetStanding>,
}

/// Renews the Lease and looks at the others, until this process leaves or is expelled.
async fn keep(member: FleetMember, mut lease: Lease, leave: CancellationToken) {
    let standing = Arc::clone(&member.standing);
    let _end = standing.fence().clone().closed_on_drop();
    tokio::select! {
        biased;
        () = leave.cancelled() => {}
        () = member.renew_until_expelled(&mut lease) => {
            warn!(lease = standing.lease, identity = standing.identity, "expelled from the fleet");
            return standing.expel();
        }
        () = member.look_at_others() => {}
    }
    standing.fence().close();
    // A renewal that was under way may have been stored.
    match member.read_own().await {
        Ok(Some(lease)) => {
            hand_over(&member.election, LeaseTerm { lease, ends_at: Instant::now() + shutdown::LEASE }).await;
        }
        Ok(None) => {}
        Err(refusal) => warn!(lease = standing.lease, %refusal, "lease not released, others expel this process"),
    }
}

impl FleetMember {
    /// Takes a Lease that a member left, or creates one.
    async fn join(config: &MembershipConfig, process: u128) -> Result<(Self, Lease), LeaseCallError> {
        let [a, b, c, d, ..] = (config.entropy)().to_le_bytes();
        let fresh = config.fleet.lease_name(u32::from_le_bytes([a, b, c, d]));
        let leases = Self::with_lease(config, &fresh, process).list().await?;
        let is_own = |lease: &&Lease| holder_of(lease).ends_with(&format!("_{process:032x}"));
        // It can be ours if the response to our write was lost.
        let known = leases.iter().find(is_own).or_else(|| leases.iter().find(|lease| holder_of(lease).is_empty()));
        let name = known.map_or(fresh, ResourceExt::name_any);
        let member = Self::with_lease(config, &name, process);
        let sent = member.standing.sending();
        let term = member.write(known).await?;
        member.standing.renewed(sent);
        Ok((member, term.lease))
    }

    fn with_lease(config: &MembershipConfig, lease: &str, process: u128) -> Self {
        let MembershipConfig { leases, fleet, clock, wall, .. } = config;
        let host = hostname::get().unwrap_or_default();
        let identity = fleet.identity(&host.to_string_lossy(), lease, process);
        let standing = FleetStanding::new(fleet.clone(), lease.to_owned(), identity.clone(), Arc::clone(wall));
        let namespace = fleet.namespace.clone();
        let config = LeaseConfig { namespace, name: lease.to_owned(), identity, timing: TIMING };
        let election = LeaderElection::of_valid(leases.clone(), config, Arc::clone(clock));
        Self { fleet: fleet.clone(), election, standing }
    }

    /// Writes the Lease: creates it, or replaces the version that was read.
    async fn write(&self, base: Option<&Lease>) -> Result<LeaseTerm, LeaseCallError> {
        let mut lease = self.election.claimed(base);
        let meta = &mut lease.metadata;
        meta.labels.get_or_insert_default().insert(labels::FLEET.to_owned(), self.fleet.name.clone());
        let asked: Vec<String> = self.standing.asked().into_iter().collect();
        let annotations = meta.annotations.get_or_insert_default();
        match asked.is_empty() {
            true => drop(annotations.remove(labels::ASKS_FOR)),
            false => drop(annotations.insert(labels::ASKS_FOR.to_owned(), asked.join(","))),
        }
        in_time(self.election.write(lease)).await
    }

    /// Returns when another process has expelled this one.
    async fn renew_until_expelled(&self, lease: &mut Lease) {
        loop {
            sleep(RENEWAL).await;
            loop {
                let sent = self.standing.sending();
                match self.write(Some(lease)).await {
                    Ok(term) => {
                        *lease = term.lease;
                        self.standing.renewed(sent);
                        break;
                    }
                    Err(LeaseCallError::Conflict) => match self.read_own().await {
                        Ok(Some(current)) => *lease = current,
                        Ok(None) => return,
                        Err(refusal) => debug!(lease = self.standing.lease, %refusal, "own lease not read"),
                    },
                    Err(refusal) => debug!(lease = self.standing.lease, %refusal, "membership not renewed, retrying"),
                }
                sleep(TIMING.retry_period).await;
            }
        }
    }

    /// The Lease as it is now; `None` if it has another holder, or none, or does not exist.
    async fn read_own(&self) -> Result<Option<Lease>, LeaseCallError> {
        Ok(self.list().await?.into_iter().find(|lease| holder_of(lease) == self.standing.identity))
    }

    /// Reads the Leases of all members again and again, and expels those that are silent.
    async fn look_at_others(&self) {
        loop {
            let sent = Instant::now();
            match self.list().await {
                Ok(leases) => {
                    self.observe(&leases, sent);
                    self.expel_silent(&leases).await;
                }
                Err(refusal) => debug!(%refusal, "members of the fleet not read, retrying"),
            }
            sleep(LOOK).await;
        }
    }

    async fn list(&self) -> Result<Vec<Lease>, LeaseCallError> {
        let params = ListParams::default().labels(&format!("{}={}", labels::FLEET, self.fleet.name));
        let list = in_time(self.election.call(self.election.leases.list(&params))).await?;
        let leases = list.items.into_iter().map(|lease| lease.0);
        Ok(leases.filter(|lease| self.fleet.has(&lease.name_any())).collect())
    }

    fn observe(&self, leases: &[Lease], sent: Instant) {
        let records = leases.iter().map(record_of).collect();
        let is_changed = self.standing.members(|members, open_since| {
            let before = members.summary(open_since);
            members.listed(records, (sent, Instant::now()));
            members.summary(open_since) != before
        });
        if is_changed {
            self.standing.notify();
        }
    }

    /// A process that cannot renew its own Lease expels no other.
    async fn expel_silent(&self, leases: &[Lease]) {
        let silent: BTreeSet<String> = self.standing.members(|members, open_since| {
            members.silent(open_since).into_iter().map(|record| record.lease.clone()).collect()
        });
        let others = leases.iter().filter(|lease| silent.contains(&lease.name_any()));
        for lease in others.filter(|lease| lease.name_any() != self.standing.lease) {
            if !self.standing.fence().is_open() {
                return;
            }
            let mut emptied = lease.clone();
            emptied.spec.get_or_insert_default().holder_identity = Some(String::new());
            emptied.metadata.annotations.iter_mut().for_each(|all| drop(all.remove(labels::ASKS_FOR)));
            let name = lease.name_any();
            match in_time(self.election.replace(&name, emptied)).await {
                Ok(emptied) => {
                    warn!(lease = name, member = holder_of(lease), "expelled a silent member from the fleet");
                    let record = record_of(&emptied);
                    self.standing.members(|members, _| members.expelled(holder_of(lease), record, Instant::now()));
                    self.standing.notify();
                }
                Err(refusal) => debug!(lease = name, %refusal, "silent member not expelled, retrying"),
            }
        }
    }
}

/// A call within the patience of a member.
async fn in_time<T>(call: impl Future<Output = Result<T, LeaseCallError>>) -> Result<T, LeaseCallError> {
    timeout(PATIENCE, call).await.unwrap_or(Err(LeaseCallError::Silence(PATIENCE)))
}

fn holder_of(lease: &Lease) -> &str {
    lease.spec.as_ref().map(holder).unwrap_or_default()
}

fn record_of(lease: &Lease) -> MemberRecord {
    let asked = lease.metadata.annotations.as_ref().and_then(|all| all.get(labels::ASKS_FOR));
    let asked = asked.map(String::as_str).unwrap_or_default().split(',').take(MOST_ASKED);
    let asks_for = asked.filter(|name| (1..=LONGEST_NAMESPACE).contains(&name.len())).map(str::to_owned).collect();
    MemberRecord {
        lease: lease.name_any(),
        holder: holder_of(lease).to_owned(),
        version: lease.metadata.resource_version.clone().unwrap_or_default(),
        asks_for,
    }
}

#[cfg(test)]
mod tests;
