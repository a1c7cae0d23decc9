//! The standing of this process in its fleet: whether it may act, who the others are, and which namespaces it holds.
//!
//! `leader/membership.rs` keeps it up to date. Elections, gates and the process read it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Weak},
};

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{FleetName, SETTLES, VALID_FOR, observed::ObservedMembers};
use crate::{
    clock::TimeSource,
    fence::LeaseFence,
    panics::{self, PanicPlace},
};

/// Most namespaces that a member asks for at once, which bounds its Lease.
const MOST_ASKED: usize = 64;

/// The moment at which a request was sent, by both clocks.
#[derive(Clone, Copy, Debug)]
pub struct SendingTime {
    monotonic: Instant,
    wall: Timestamp,
}

/// The standing of this process in its fleet.
pub struct FleetStanding {
    /// The name of this process in Leases.
    pub identity: String,
    /// The name of its Lease.
    pub lease: String,
    /// Open while this process is a member.
    fence: LeaseFence,
    wall: Arc<dyn TimeSource>,
    state: Mutex<StandingState>,
    /// Called when the process may act again.
    reopened: Mutex<Vec<Weak<ReopenHandler>>>,
    changed: Notify,
    expelled: CancellationToken,
    ending: CancellationToken,
}

/// A function that is called when a process may act again.
pub type ReopenHandler = dyn Fn() + Send + Sync;

#[derive(Debug)]
struct StandingState {
    /// Since when this process has been able to renew its Lease without a lapse.
    open_since: Instant,
    members: ObservedMembers,
    asked: NamespaceCounts,
    held: NamespaceCounts,
    /// Namespaces in which work was aborted, and when.
    aborted: BTreeMap<String, Instant>,
}

/// Namespaces, with the number of Leases of each.
type NamespaceCounts = BTreeMap<String, usize>;

impl FleetStanding {
    /// For a process that has not joined yet. It has a Lease and a name in it.
    pub fn new(fleet: FleetName, lease: String, identity: String, wall: Arc<dyn TimeSource>) -> Arc<Self> {
        let (asked, held, aborted) = Default::default();
        let members = ObservedMembers::new(fleet);
        let state = StandingState { open_since: Instant::now(), members, asked, held, aborted };
        Arc::new(Self {
            identity,
            lease,
            fence: LeaseFence::of_two_clocks(Arc::clone(&wall)),
            wall,
            state: Mutex::new(state),
            reopened: Mutex::default(),
            changed: Notify::new(),
            expelled: CancellationToken::new(),
            ending: CancellationToken::new(),
        })
    }

    /// The time, before a request is sent.
    pub fn sending(&self) -> SendingTime {
        SendingTime { monotonic: Instant::now(), wall: self.wall.now() }
    }

    /// A renewal that was sent then succeeded.
    pub fn renewed(&self, sent: SendingTime) {
        let was_open = self.fence.is_open();
        let wall_until = sent.wall.checked_add(VALID_FOR).unwrap_or(Timestamp::MAX);
        self.fence.extend_both(sent.monotonic + VALID_FOR, wall_until);
        if was_open || !self.fence.is_open() {
            return;
        }
        self.state.lock().open_since = Instant::now();
        let handlers: Vec<_> = {
            let mut all = self.reopened.lock();
            all.retain(|handler| handler.strong_count() > 0);
            all.iter().filter_map(Weak::upgrade).collect()
        };
        let what = || "a membership that is valid again".to_owned();
        handlers.iter().for_each(|handler| panics::caught_in(PanicPlace::Handler, what, || handler()));
        self.changed.notify_one();
    }

    /// Others have expelled this process. It stays so.
    pub fn expel(&self) {
        self.fence.close();
        self.expelled.cancel();
    }

    /// Waits until this process is expelled.
    pub async fn expelled(&self) {
        self.expelled.cancelled().await;
    }

    /// The process ends. A claim that it leaves is free once it is expelled.
    pub fn end(&self) {
        self.ending.cancel();
    }

    /// Waits until the process ends.
    pub async fn ending(&self) {
        self.ending.cancelled().await;
    }

    /// The fence of work in any namespace: closed while this process cannot renew its Lease.
    pub fn fence(&self) -> &LeaseFence {
        &self.fence
    }

    /// The same for work that begins.
    ///
    /// # Errors
    /// This process may not act; the text has the reason why the work waits.
    pub fn admit(&self) -> Result<LeaseFence, String> {
        match self.fence.is_open() {
            true => Ok(self.fence.clone()),
            false => Err(format!("this process to renew the Lease {} of its fleet", self.lease)),
        }
    }

    /// Calls a handler when this process may act again, until the handler is dropped.
    pub fn on_reopen(&self, handler: &Arc<ReopenHandler>) {
        self.reopened.lock().push(Arc::downgrade(handler));
    }

    /// A holder of a claim is a member of this fleet that has ended for good.
    pub fn is_expelled(&self, holder: &str) -> bool {
        self.state.lock().members.is_expelled(holder, Instant::now())
    }

    /// A holder is or was a member of the fleet of this process.
    pub fn is_member(&self, holder: &str) -> bool {
        self.state.lock().members.is_member(holder)
    }

    /// Changes or reads the members as last seen.
    pub fn members<T>(&self, work: impl FnOnce(&mut ObservedMembers, Instant) -> T) -> T {
        let state = &mut *self.state.lock();
        work(&mut state.members, state.open_since)
    }

    /// Waits until the members, or their wishes, may have changed.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// The members, or their wishes, may have changed.
    pub fn notify(&self) {
        self.changed.notify_one();
    }

    /// This process is ready to take a Lease of a namespace over, until the result is dropped.
    pub fn ask_for(self: &Arc<Self>, namespace: &str) -> NamespaceMark {
        NamespaceMark::begin(self, namespace, MarkKind::Asked)
    }

    /// This process holds a Lease of a namespace, until the result is dropped. Unless it is [settled](NamespaceMark::settle) before,
    /// calls may still have an effect for a while.
    pub fn hold(self: &Arc<Self>, namespace: &str) -> NamespaceMark {
        NamespaceMark::begin(self, namespace, MarkKind::Held)
    }

    /// Waits until no aborted call in a namespace may have an effect: this process would otherwise succeed itself at once.
    pub async fn settled(&self, namespace: &str) {
        let aborted = self.state.lock().aborted.get(namespace).copied();
        if let Some(aborted) = aborted {
            sleep_until(aborted + SETTLES).await;
        }
    }

    /// No aborted call may have an effect in any namespace.
    pub fn is_settled(&self) -> bool {
        self.state.lock().aborted.values().all(|aborted| aborted.elapsed() >= SETTLES)
    }

    /// Namespaces that this process is ready to take over.
    pub fn asked(&self) -> BTreeSet<String> {
        self.state.lock().asked.keys().take(MOST_ASKED).cloned().collect()
    }

    /// This process holds a Lease of a namespace.
    pub fn holds(&self, namespace: &str) -> bool {
        self.state.lock().held.contains_key(namespace)
    }
}

impl std::fmt::Debug for FleetStanding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FleetStanding").field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// A namespace that counts in the standing of this process until this is dropped.
#[derive(Debug)]
pub struct NamespaceMark {
    standing: Arc<FleetStanding>,
    namespace: String,
    kind: MarkKind,
    is_settled: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MarkKind {
    Asked,
    Held,
}

impl NamespaceMark {
    fn begin(standing: &Arc<FleetStanding>, namespace: &str, kind: MarkKind) -> Self {
        {
            let count = &mut *standing.state.lock();
            let count = count.counts(kind).entry(namespace.to_owned()).or_default();
            *count = count.saturating_add(1);
        }
        let (standing, namespace) = (Arc::clone(standing), namespace.to_owned());
        Self { standing, namespace, kind, is_settled: false }
    }

    /// All calls in the namespace have ended.
    pub fn settle(mut self) {
        self.is_settled = true;
    }
}

impl StandingState {
    fn counts(&mut self, kind: MarkKind) -> &mut NamespaceCounts {
        match kind {
            MarkKind::Asked => &mut self.asked,
            MarkKind::Held => &mut self.held,
        }
    }
}

impl Drop for NamespaceMark {
    fn drop(&mut self) {
        let state = &mut *self.standing.state.lock();
        if self.kind == MarkKind::Held && !self.is_settled {
            state.aborted.insert(self.namespace.clone(), Instant::now());
        }
        let counts = state.counts(self.kind);
        if let Some(count) = counts.get_mut(&self.namespace) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                counts.remove(&self.namespace);
            }
        }
        self.standing.changed.notify_one();
    }
}
