//! A cache whose watch runs only on demand: for kinds with many objects that are rarely needed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Weak},
    time::Duration,
};

use kube::{Api, Client};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;

use super::{
    cache::{CacheBounds, CacheableKind, Key, ObjectChange},
    objects::CachedApi,
    panics::{self, PanicPlace},
    queue::WorkQueue,
    trust::WatchTiming,
};

/// The watch ends so long after the last demand. A list costs more than an idle watch.
const KEPT_FOR: Duration = Duration::from_secs(120);

/// Objects of one cluster, watched on demand.
pub struct OnDemand<K: CacheableKind> {
    client: Client,
    bounds: Option<CacheBounds>,
    make: fn(&Client) -> Arc<CachedApi<K>>,
    term: fn(&K) -> String,
    state: Mutex<OnDemandState<K>>,
}

struct OnDemandState<K: CacheableKind> {
    running: Option<RunningWatch<K>>,
    waiting: BTreeMap<Key, ChangeWaiter>,
    needed_until: Instant,
}

struct RunningWatch<K: CacheableKind> {
    objects: Arc<CachedApi<K>>,
    _task: AbortOnDropHandle<()>,
}

/// A reader that waits for a change of some objects.
struct ChangeWaiter {
    terms: BTreeSet<Arc<str>>,
    queue: Arc<WorkQueue<Key>>,
    until: Instant,
}

impl<K: CacheableKind + Serialize> OnDemand<K> {
    /// A cache without a watch. `make` returns an empty cache, and `term` identifies an object for waiters.
    pub fn new(
        client: &Client,
        bounds: Option<CacheBounds>,
        make: fn(&Client) -> Arc<CachedApi<K>>,
        term: fn(&K) -> String,
    ) -> Arc<Self> {
        let state = OnDemandState { running: None, waiting: BTreeMap::new(), needed_until: Instant::now() };
        Arc::new(Self { client: client.clone(), bounds, make, term, state: Mutex::new(state) })
    }

    /// The objects, watched for some minutes from now on.
    pub fn demand(self: &Arc<Self>) -> Arc<CachedApi<K>> {
        let mut state = self.state.lock();
        state.needed_until = Instant::now() + KEPT_FOR;
        let running = state.running.get_or_insert_with(|| self.start());
        Arc::clone(&running.objects)
    }

    /// As [`OnDemand::demand`]; in this time, a change of an object with one of these terms enqueues the key.
    pub fn demand_waking(
        self: &Arc<Self>,
        key: &Key,
        terms: BTreeSet<Arc<str>>,
        queue: &Arc<WorkQueue<Key>>,
    ) -> Arc<CachedApi<K>> {
        let waiting = ChangeWaiter { terms, queue: Arc::clone(queue), until: Instant::now() + KEPT_FOR };
        self.state.lock().waiting.insert(key.clone(), waiting);
        self.demand()
    }

    fn start(self: &Arc<Self>) -> RunningWatch<K> {
        let objects = (self.make)(&self.client);
        self.bounds.into_iter().for_each(|bounds| objects.cache.limit(bounds));
        let waker = Arc::downgrade(self);
        objects.cache.on_change(move |change| {
            if let Some(own) = waker.upgrade() {
                own.wake(change);
            }
        });
        let (cache, client, own) = (Arc::clone(&objects.cache), self.client.clone(), Arc::downgrade(self));
        let task = panics::keep(PanicPlace::Watch, K::plural(&()).into_owned(), move || {
            let watch = Arc::clone(&cache).watch(client.clone(), Api::all, WatchTiming::CONTROL);
            let own = own.clone();
            async move {
                tokio::select! {
                    () = watch => {}
                    () = until_idle(own) => {}
                }
            }
        });
        RunningWatch { objects, _task: task }
    }

    fn wake(&self, change: &ObjectChange<K>) {
        let Some(term) = change.new.as_ref().or(change.old.as_ref()).map(|object| (self.term)(object)) else { return };
        let state = self.state.lock();
        for (key, waiting) in &state.waiting {
            if waiting.terms.contains(term.as_str()) {
                waiting.queue.add(key.clone());
            }
        }
    }

    #[cfg(any(test, feature = "testing"))]
    pub fn is_running(&self) -> bool {
        self.state.lock().running.is_some()
    }
}

async fn until_idle<K: CacheableKind>(own: Weak<OnDemand<K>>) {
    loop {
        sleep(KEPT_FOR / 4).await;
        let Some(own) = own.upgrade() else { return };
        let mut state = own.state.lock();
        let now = Instant::now();
        state.waiting.retain(|_, waiting| waiting.until > now);
        if state.needed_until <= now {
            // Also ends the current task.
            let ended = state.running.take();
            drop(state);
            drop(ended);
            return;
        }
    }
}
