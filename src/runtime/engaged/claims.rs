//! The Leases of the namespaces that a cell serves beside that of its own Leases.
//!
//! They are those of the Go programs, under the rules of `leader.rs`: a Lease that another program renews is respected until it has
//! been silent for the duration that it records, and one that cannot be read is not free. Go programs honour the recorded duration
//! as well, so the renewals of a cell are rare.
//!
//! All replicas of a cell have the same name in these Leases. The Lease of the cell decides which of them acts, and a successor
//! waits only for that.

use std::{collections::BTreeMap, pin::pin, sync::Arc, time::Duration};

use futures::future::{BoxFuture, Either, select};
use kube::Client;
use parking_lot::Mutex;
use tokio::{
    runtime::Handle,
    sync::{Notify, mpsc},
    task::JoinSet,
    time::sleep,
};
use tokio_util::sync::CancellationToken;

use crate::{
    clock::TimeSource,
    fence::LeaseFence,
    handlers::NamespaceHandlers,
    leader::{CLAIM, CLAIM_RENEWAL, InvalidTiming, LeaderElection, LeaseConfig, LeaseLeadership},
    panics,
};

/// How often a namespace is checked for objects. Without any, its Lease is released.
const IDLE_CHECK: Duration = Duration::from_secs(600);

/// Configuration of the claims of a cell.
#[derive(Clone)]
pub struct ClaimConfig {
    /// A client for Leases; see `client::lease_client`.
    pub leases: Client,
    /// The runtime of that client; the current one if `None`.
    pub runtime: Option<Handle>,
    /// The namespace of the Leases of the cell.
    pub own: String,
    /// The time that Leases show.
    pub clock: Arc<dyn TimeSource>,
}

/// The claims of one role.
pub struct NamespaceClaims {
    config: ClaimConfig,
    lease: &'static str,
    identity: String,
    claims: Mutex<BTreeMap<String, ClaimState>>,
    wanted: Notify,
    pub(super) opened: NamespaceHandlers,
}

enum ClaimState {
    /// Work waits for it.
    Wanted,
    /// It is being acquired, or its objects are being read.
    Pending,
    /// The role may act until the fence closes.
    Held(LeaseFence),
}

/// Namespaces whose Leases were acquired, with their fences.
type ClaimBatch = Vec<(String, LeaseFence)>;

impl NamespaceClaims {
    /// None is held yet.
    pub fn new(config: ClaimConfig, lease: &'static str) -> Arc<Self> {
        let identity = identity_of(&config.own);
        let (claims, wanted, opened) = Default::default();
        Arc::new(Self { config, lease, identity, claims, wanted, opened })
    }

    /// The fence of work in a namespace, which closes when its Lease is lost.
    ///
    /// # Errors
    /// The Lease is not held; the text has the reason why the work waits. It is acquired from now on.
    pub(super) fn admit(&self, namespace: &str) -> Result<LeaseFence, String> {
        if namespace == self.config.own {
            return Ok(LeaseFence::default());
        }
        let mut claims = self.claims.lock();
        match claims.get(namespace) {
            Some(ClaimState::Held(fence)) if fence.is_open() => return Ok(fence.clone()),
            Some(_) => {}
            None => {
                claims.insert(namespace.to_owned(), ClaimState::Wanted);
                self.wanted.notify_one();
            }
        }
        Err(format!("the Lease {namespace}/{}, which another program may hold", self.lease))
    }

    /// Acquires the Leases that work waits for, and holds them until `release`, which releases them. `read` reads all objects of
    /// the cell live; only then its role acts in a namespace. `is_used` is true if a namespace has objects. Dropping the future
    /// leaves the Leases to expire.
    pub(crate) async fn hold<'a>(
        self: &Arc<Self>,
        is_used: Arc<dyn Fn(&str) -> bool + Send + Sync>,
        read: impl Fn() -> BoxFuture<'a, ()>,
        release: &CancellationToken,
    ) {
        // A predecessor of this process may have left its states.
        self.claims.lock().clear();
        let (send, mut acquired) = mpsc::unbounded_channel();
        let mut holders = JoinSet::new();
        let mut unread = Vec::new();
        let mut reading: Option<BoxFuture<'a, ClaimBatch>> = None;
        loop {
            if reading.is_none() && !unread.is_empty() {
                let (batch, read) = (std::mem::take(&mut unread), read());
                reading = Some(Box::pin(async move {
                    read.await;
                    batch
                }));
            }
            tokio::select! {
                biased;
                () = release.cancelled() => break,
                Some(_) = holders.join_next(), if !holders.is_empty() => {}
                Some(claim) = acquired.recv() => unread.push(claim),
                () = self.wanted.notified() => {
                    for namespace in self.take_wanted() {
                        let holder = Arc::clone(self).hold_one(namespace, send.clone(), Arc::clone(&is_used), release.clone());
                        holders.spawn(panics::of_current_cell(holder));
                    }
                }
                batch = next_batch(&mut reading) => {
                    reading = None;
                    batch.into_iter().for_each(|(namespace, fence)| self.open(&namespace, fence));
                }
            }
        }
        while holders.join_next().await.is_some() {}
    }

    fn take_wanted(&self) -> Vec<String> {
        let mut taken = Vec::new();
        for (namespace, state) in self.claims.lock().iter_mut() {
            if matches!(state, ClaimState::Wanted) {
                *state = ClaimState::Pending;
                taken.push(namespace.clone());
            }
        }
        taken
    }

    fn open(&self, namespace: &str, fence: LeaseFence) {
        {
            let mut claims = self.claims.lock();
            let Some(state) = claims.get_mut(namespace).filter(|_| fence.is_open()) else { return };
            *state = ClaimState::Held(fence);
        }
        self.opened.each(|handler| handler(namespace));
    }

    /// Holds one Lease until it is lost, released, or not needed any more.
    async fn hold_one(
        self: Arc<Self>,
        namespace: String,
        acquired: mpsc::UnboundedSender<(String, LeaseFence)>,
        is_used: Arc<dyn Fn(&str) -> bool + Send + Sync>,
        release: CancellationToken,
    ) {
        let end = release.child_token();
        let idle = async {
            loop {
                sleep(IDLE_CHECK).await;
                if !is_used(&namespace) {
                    return;
                }
            }
        };
        if let Ok(election) = self.election(&namespace) {
            let mut idle = pin!(idle);
            let leadership = match select(pin!(election.acquire_until(&end)), idle.as_mut()).await {
                Either::Left((leadership, _)) => leadership,
                Either::Right(((), acquiring)) => {
                    end.cancel();
                    acquiring.await
                }
            };
            if let Some(leadership) = leadership {
                let _ = acquired.send((namespace.clone(), leadership.fence()));
                until_over(leadership, idle, &end).await;
            }
        }
        self.claims.lock().remove(&namespace);
        // Parked keys want it again.
        self.opened.each(|handler| handler(&namespace));
    }

    fn election(&self, namespace: &str) -> Result<LeaderElection, InvalidTiming> {
        let config = LeaseConfig {
            namespace: namespace.to_owned(),
            name: self.lease.to_owned(),
            identity: self.identity.clone(),
            timing: CLAIM,
        };
        let election = LeaderElection::new(self.config.leases.clone(), config, Arc::clone(&self.config.clock))?;
        let election = election.renewing_every(CLAIM_RENEWAL);
        Ok(match &self.config.runtime {
            Some(runtime) => election.within(runtime.clone()),
            None => election,
        })
    }
}

/// The claims whose objects are being read, once they are.
async fn next_batch(reading: &mut Option<BoxFuture<'_, ClaimBatch>>) -> ClaimBatch {
    match reading {
        Some(reading) => reading.await,
        None => std::future::pending().await,
    }
}

async fn until_over(leadership: LeaseLeadership, idle: impl Future<Output = ()>, end: &CancellationToken) {
    tokio::select! {
        biased;
        () = leadership.lost() => {}
        () = end.cancelled() => leadership.release().await,
        () = idle => leadership.release().await,
    }
}

/// The name of all replicas of a cell in the Leases of its namespaces. It has the form of the names of this program.
pub fn identity_of(own: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, own.as_bytes());
    let suffix: String = digest.as_ref().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("mcm-cell-{own}_{suffix}")
}
