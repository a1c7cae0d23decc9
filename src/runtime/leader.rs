//! Leader election on a Lease, with the rules of client-go, so that the Go programs and mcm exclude each other.
//!
//! At most one process leads: a leader stops `renew_deadline` after it *sent* its last successful renewal; others take
//! over `lease_duration` after they *saw* it. Each uses its own monotonic clock. Times in the Lease are for people; no
//! decision reads them. Every write carries the resource version on which it is based.
//!
//! A monotonic clock stops while a computer is suspended or a VM is paused. A leader that resumes considers itself the
//! leader until its next renewal, at most one retry period later; client-go has the same gap. Meanwhile resource
//! versions guard writes to existing objects, and a VM is looked up before it is created.
//!
//! The RBAC of the reference grants create, get, watch and update of Leases, so this code uses neither list nor patch. Where
//! the namespace is being deleted there can be no Lease; `leader/terminating.rs` has the rules for that case.

mod hand_over;
mod leadership;
mod membership;
mod standby;
mod terminating;

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{Api, Client, Resource, api::PostParams, core::Status};
use tokio::{
    runtime::Handle,
    time::{Instant, timeout},
};

use super::{
    clock::TimeSource, dated::DatedObject, events::EventRecorder, freeze::FreezeNotice, http::ReadinessPart,
    kubeconfig::cause, members::standing::FleetStanding,
};
use mcm_api::{labels, reasons::EventReason};
use mcm_rules::plan::Event;

pub use leadership::LeaseLeadership;
pub use membership::{FleetMembership, MembershipConfig};

/// Timing of claims of namespaces by a process whose liveness another Lease shows. Go programs honour the recorded duration.
pub const CLAIM: LeaseTiming = LeaseTiming {
    lease_duration: Duration::from_secs(900),
    renew_deadline: Duration::from_secs(600),
    retry_period: Duration::from_secs(2),
};
/// The period of renewals of claims.
pub const CLAIM_RENEWAL: Duration = Duration::from_secs(300);

/// Timing of leader election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTiming {
    /// How long others wait for a silent leader (`--leader-elect-lease-duration`). Stored in whole seconds.
    pub lease_duration: Duration,
    /// How long a leader continues without a renewal (`--leader-elect-renew-deadline`).
    pub renew_deadline: Duration,
    /// Time between two attempts (`--leader-elect-retry-period`).
    pub retry_period: Duration,
}

impl Default for LeaseTiming {
    fn default() -> Self {
        Self {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// Timing with which two processes could lead at the same time, or none for a long time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTiming {
    /// Others would take over before the leader stops.
    #[error(
        "the lease duration must be at least 1s and longer than the renew deadline; raise --leader-elect-lease-duration"
    )]
    Lease,
    /// A leader would have no second attempt.
    #[error(
        "the renew deadline must be longer than 1.2 retry periods; raise --leader-elect-renew-deadline or lower --leader-elect-retry-period"
    )]
    Renew,
    /// Attempts would follow each other without a pause.
    #[error("the retry period must be longer than zero; raise --leader-elect-retry-period")]
    Retry,
}

impl LeaseTiming {
    /// Validates the timing as client-go does.
    ///
    /// # Errors
    /// The timing is invalid.
    pub fn validate(&self) -> Result<(), InvalidTiming> {
        if self.lease_duration < Duration::from_secs(1) || self.seconds() <= self.renew_deadline {
            return Err(InvalidTiming::Lease);
        }
        if self.renew_deadline <= self.retry_period.mul_f64(JITTER) {
            return Err(InvalidTiming::Renew);
        }
        if self.retry_period.is_zero() {
            return Err(InvalidTiming::Retry);
        }
        Ok(())
    }

    /// The lease duration as stored in the Lease, in whole seconds.
    const fn seconds(&self) -> Duration {
        Duration::from_secs(self.lease_duration.as_secs())
    }

    /// Time limit of one call: short enough for a second one before the deadline.
    fn patience(&self) -> Duration {
        LONGEST_CALL.min(self.renew_deadline / 2)
    }
}

/// Pause between a conflict and the next attempt of a leader.
const BREATH: Duration = Duration::from_millis(50);
/// Longest time limit of one call.
const LONGEST_CALL: Duration = Duration::from_secs(30);
/// Longest pause in multiples of the retry period.
const JITTER: f64 = 1.2;

/// Configuration of a candidate: which Lease, under which identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseConfig {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease: `machine-controller-manager` or `machine-controller`.
    pub name: String,
    /// The identity of this process; see [`identity`].
    pub identity: String,
    /// The timing.
    pub timing: LeaseTiming,
}

impl LeaseConfig {
    /// The pause before another attempt.
    fn pause(&self) -> Duration {
        self.timing.retry_period.mul_f64(1.0 + (JITTER - 1.0) * self.share())
    }

    /// Between 0 and 1, different for each process, so that they do not all call at the same time.
    fn share(&self) -> f64 {
        let mut hasher = DefaultHasher::new();
        self.identity.hash(&mut hasher);
        f64::from(hasher.finish() as u32) / f64::from(u32::MAX)
    }
}

/// The host name and a random suffix, unique also among processes on one host.
pub fn identity() -> String {
    let host = hostname::get().unwrap_or_default();
    format!("{}_{:032x}", host.to_string_lossy(), rand::random::<u128>())
}

/// An identity is that of a process of this program. A Go program has the name of its host, or a UUID with dashes.
pub fn is_own_form(identity: &str) -> bool {
    let suffix = identity.rsplit_once('_').map_or("", |(_, suffix)| suffix);
    suffix.len() == 32 && suffix.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// An election with this process as a candidate.
#[derive(Debug)]
pub struct LeaderElection {
    leases: Api<DatedObject<Lease>>,
    config: LeaseConfig,
    clock: Arc<dyn TimeSource>,
    events: Option<EventRecorder>,
    readiness: Option<ReadinessPart>,
    server: String,
    /// The runtime of the client; the current one if `None`.
    runtime: Option<Handle>,
    /// The period of renewals; the retry period if `None`.
    renews_every: Option<Duration>,
    freeze: Option<Arc<FreezeNotice>>,
    /// Set while a program that is no replica of this process holds the Lease.
    is_foreign: Arc<AtomicBool>,
    /// The standing of the process in its fleet, if it is a member of one.
    member: Option<Arc<FleetStanding>>,
}

impl LeaderElection {
    /// Calls of `client` must not wait for others; see `client::lease_client`.
    ///
    /// # Errors
    /// The timing is invalid.
    pub fn new(client: Client, config: LeaseConfig, clock: Arc<dyn TimeSource>) -> Result<Self, InvalidTiming> {
        config.timing.validate()?;
        Ok(Self::of_valid(client, config, clock))
    }

    fn of_valid(client: Client, config: LeaseConfig, clock: Arc<dyn TimeSource>) -> Self {
        let leases = Api::namespaced(client, &config.namespace);
        Self {
            leases,
            config,
            clock,
            events: None,
            readiness: None,
            server: String::new(),
            runtime: None,
            renews_every: None,
            freeze: None,
            is_foreign: Arc::default(),
            member: None,
        }
    }

    /// Names the API server in logs.
    #[must_use]
    pub fn at(self, server: String) -> Self {
        Self { server, ..self }
    }

    /// Runs in another runtime, in which its client was made: renewals must not wait for other work.
    #[must_use]
    pub fn within(self, runtime: Handle) -> Self {
        Self { runtime: Some(runtime), ..self }
    }

    /// Renews the Lease at this period, which must be much shorter than the renew deadline. Failed renewals are repeated at the retry
    /// period.
    #[must_use]
    pub fn renewing_every(self, period: Duration) -> Self {
        Self { renews_every: Some(period), ..self }
    }

    /// Acquires the Lease as a member of a fleet, from which an expelled member loses it at once. The leader needs its membership as well.
    #[must_use]
    pub fn of_member(self, member: &Arc<FleetStanding>) -> Self {
        Self { member: Some(Arc::clone(member)), ..self }
    }

    /// Records events on the Lease when this process becomes leader and when it stops.
    #[must_use]
    pub fn recording(self, events: EventRecorder) -> Self {
        Self { events: Some(events), ..self }
    }

    /// Shows in an annotation of the Lease since when and why Machines are frozen.
    #[must_use]
    pub fn showing(self, freeze: Arc<FreezeNotice>) -> Self {
        Self { freeze: Some(freeze), ..self }
    }

    /// Sets a flag while a program that is no replica of this process holds the Lease.
    #[must_use]
    pub fn noticing(self, is_foreign: Arc<AtomicBool>) -> Self {
        Self { is_foreign, ..self }
    }

    /// Reports to `readiness` whether the Lease can be read. A standby is also ready.
    #[must_use]
    pub fn reporting(self, readiness: ReadinessPart) -> Self {
        Self { readiness: Some(readiness), ..self }
    }

    /// Writes the Lease with our identity: a renewal if it is ours already, otherwise an acquisition.
    async fn claim(&self, base: Option<&Lease>) -> Result<LeaseTerm, LeaseCallError> {
        self.write(self.claimed(base)).await
    }

    /// Creates the Lease, or replaces the version that was read.
    async fn write(&self, lease: Lease) -> Result<LeaseTerm, LeaseCallError> {
        let sent_at = Instant::now();
        let lease = match lease.metadata.resource_version {
            None => self.call(self.leases.create(&PostParams::default(), &DatedObject(lease))).await?.0,
            Some(_) => self.replace(&self.config.name, lease).await?,
        };
        Ok(LeaseTerm { lease, ends_at: sent_at + self.config.timing.renew_deadline })
    }

    /// Replaces the version of a Lease that was read.
    async fn replace(&self, name: &str, lease: Lease) -> Result<Lease, LeaseCallError> {
        match self.call(self.leases.replace(name, &PostParams::default(), &DatedObject(lease))).await {
            // The Lease was deleted.
            Err(LeaseCallError::Api(kube::Error::Api(status))) if status.code == 404 => Err(LeaseCallError::Conflict),
            Ok(DatedObject(lease)) => Ok(lease),
            Err(refusal) => Err(refusal),
        }
    }

    /// Reads the Lease; `None` if it does not exist.
    async fn read(&self) -> Result<Option<Lease>, LeaseCallError> {
        let lease = self.call(self.leases.get_opt(&self.config.name)).await?;
        Ok(lease.map(|DatedObject(lease)| lease))
    }

    /// A call with a time limit.
    async fn call<T>(&self, call: impl Future<Output = kube::Result<T>>) -> Result<T, LeaseCallError> {
        let patience = self.config.timing.patience();
        timeout(patience, call).await.map_err(|_| LeaseCallError::Silence(patience))?.map_err(LeaseCallError::from)
    }

    fn claimed(&self, base: Option<&Lease>) -> Lease {
        let LeaseConfig { namespace, name, identity, timing } = &self.config;
        let now = Some(MicroTime(self.clock.now()));
        let mut lease = base.cloned().unwrap_or_else(|| Lease {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                namespace: Some(namespace.clone()),
                ..ObjectMeta::default()
            },
            spec: None,
        });
        let spec = lease.spec.get_or_insert_default();
        if base.is_none() {
            spec.lease_transitions = Some(0);
        }
        if holder(spec) != identity {
            if base.is_some() {
                spec.lease_transitions = Some(spec.lease_transitions.unwrap_or_default().saturating_add(1));
            }
            spec.holder_identity = Some(identity.clone());
            spec.acquire_time = now.clone();
        }
        spec.lease_duration_seconds = Some(i32::try_from(timing.seconds().as_secs()).unwrap_or(i32::MAX));
        spec.renew_time = now;
        match self.freeze.as_ref().and_then(|freeze| freeze.published(identity)) {
            Some(frozen) => {
                lease.metadata.annotations.get_or_insert_default().insert(labels::FROZEN.to_owned(), frozen);
            }
            None => {
                lease.metadata.annotations.iter_mut().for_each(|all| drop(all.remove(labels::FROZEN)));
            }
        }
        lease
    }

    /// A holder has ended for good, so that its Lease is free.
    fn is_expelled(&self, holder: &str) -> bool {
        self.member.as_ref().is_some_and(|member| member.is_expelled(holder))
    }

    /// Shows a holder of the Lease, for as long as it is not free. Without a fleet each process of this program counts as a replica.
    fn show_holder(&self, holder: &str, is_free: bool) {
        let is_replica = match &self.member {
            Some(member) => member.is_member(holder),
            None => is_own_form(holder),
        };
        self.is_foreign.store(!is_free && !is_replica, Ordering::Relaxed);
    }

    fn record(&self, lease: &Lease, what: &str) {
        if let Some(events) = &self.events {
            let message = format!("{} {what}", self.config.identity);
            events.record_for(lease.object_ref(&()), &Event::normal(EventReason::LeaderElection, message));
        }
    }
}

/// The Lease as acquired or renewed, and until when it is valid.
#[derive(Clone, Debug)]
struct LeaseTerm {
    lease: Lease,
    ends_at: Instant,
}

/// A failed call.
#[derive(Debug, thiserror::Error)]
enum LeaseCallError {
    #[error("another process wrote the lease first")]
    Conflict,
    #[error("no response within {}ms", .0.as_millis())]
    Silence(Duration),
    #[error("the namespace is being deleted")]
    Terminating,
    #[error("the namespace does not exist")]
    NoNamespace,
    #[error("{0} leads")]
    Taken(String),
    #[error("this process is stopped")]
    Stopped,
    #[error("{}", cause(.0))]
    Api(kube::Error),
}

impl From<kube::Error> for LeaseCallError {
    fn from(error: kube::Error) -> Self {
        match error {
            // Conflict and AlreadyExists share a code.
            kube::Error::Api(status) if status.code == 409 => Self::Conflict,
            kube::Error::Api(status) if is_terminating(&status) => Self::Terminating,
            kube::Error::Api(status) if is_of_namespace(&status) => Self::NoNamespace,
            other => Self::Api(other),
        }
    }
}

/// A create was refused because the namespace is being deleted.
fn is_terminating(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 403 && causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}

/// A create was refused because the namespace does not exist.
fn is_of_namespace(status: &Status) -> bool {
    status.code == 404 && status.details.as_ref().is_some_and(|details| details.kind == "namespaces")
}

fn holder(spec: &LeaseSpec) -> &str {
    spec.holder_identity.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests;
