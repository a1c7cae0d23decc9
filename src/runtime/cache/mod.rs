//! The objects of one kind, updated by a watch and by the responses of our own writes, so that no plan works on a state
//! older than its own last action.
//!
//! An object is stored if it is newer than the stored one, whether it was read by the watch or returned by a write. A
//! deleted object stays deleted, by UID, even if a late response contains it. A list is authoritative: it repairs
//! everything that went wrong before.

mod bounds;
mod entry;
mod index;
mod pool;
mod store;
mod watch;

use std::{
    borrow::Borrow,
    hash::Hash,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, runtime::watcher};
use parking_lot::RwLock;
use serde::Serialize;
use tokio::sync::Notify;

use super::{
    guard::GuardedObject,
    handlers::HandlerList,
    trust::{CacheLiveness, CacheTrust, MonitoredCache},
};
use bounds::{BoundsMeter, CacheExcess, ListTally, PageSize};
use store::CacheStore;

pub use bounds::CacheBounds;
pub use entry::{CacheableKind, ChangeMetadata, Key, ObjectChange, UnreadableObject, keep_identity};
pub use index::{AnyIndex, CacheIndex, IndexTerm};
pub use pool::{ValuePool, share_texts};

type ChangeHandler<K> = dyn Fn(&ObjectChange<K>) + Send + Sync;
type CacheTrustHandler = dyn Fn(&CacheTrust) + Send + Sync;

/// Objects of one kind, with indexes and handlers.
pub struct ObjectCache<K: CacheableKind> {
    store: RwLock<CacheStore<K>>,
    handlers: HandlerList<ChangeHandler<K>>,
    trust_handlers: HandlerList<CacheTrustHandler>,
    prune: fn(&mut K),
    pulse: Arc<CacheLiveness>,
    /// The trust as last reported to handlers.
    is_trust_lost: AtomicBool,
    /// Handlers know that the first list was complete.
    is_filling_told: AtomicBool,
    /// The first list is complete, or refused.
    filled: Notify,
    page: PageSize,
    tally: Arc<ListTally>,
}

impl<K: CacheableKind> ObjectCache<K> {
    /// An empty cache with its indexes. `prune` removes fields that nothing reads.
    pub fn new(indexes: &[&dyn AnyIndex<K>], prune: fn(&mut K)) -> Arc<Self> {
        Arc::new(Self {
            store: RwLock::new(CacheStore::new(indexes)),
            handlers: HandlerList::default(),
            trust_handlers: HandlerList::default(),
            prune,
            pulse: Arc::default(),
            is_trust_lost: AtomicBool::new(false),
            is_filling_told: AtomicBool::new(false),
            filled: Notify::new(),
            page: PageSize::default(),
            tally: Arc::default(),
        })
    }

    /// Bounds the content, before the cache is filled. Beyond a bound it is not trusted, until a list is within the bounds.
    pub fn limit(&self, bounds: CacheBounds)
    where
        K: Serialize,
    {
        self.store.write().limit(BoundsMeter::new(bounds));
        self.tally.limit(bounds);
    }

    /// Calls `handler` after each change, in the task that caused it, so it must return quickly.
    pub fn on_change(&self, handler: impl Fn(&ObjectChange<K>) + Send + Sync + 'static) {
        self.handlers.add(Box::new(handler));
    }

    /// Calls `handler` when the cache is filled, when it becomes untrusted, and when it is trusted again.
    pub fn on_trust(&self, handler: impl Fn(&CacheTrust) + Send + Sync + 'static) {
        self.trust_handlers.add(Box::new(handler));
    }

    /// Drops all handlers with their captured values.
    pub fn forget_handlers(&self) {
        self.handlers.forget();
        self.trust_handlers.forget();
    }

    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.store.read().get(key).cloned()
    }

    /// All objects, by key.
    pub fn all(&self) -> Vec<Arc<K>> {
        self.store.read().objects().cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.store.read().objects().len()
    }

    /// The objects with a term of an index, by key.
    pub fn by<T: IndexTerm + Borrow<Q>, Q: Eq + Hash + ?Sized>(
        &self,
        index: &CacheIndex<K, T>,
        term: &Q,
    ) -> Vec<Arc<K>> {
        self.with(index, term, <[Arc<K>]>::to_vec)
    }

    /// Reads the objects with a term while the cache is locked, without copying the list.
    pub fn with<T: IndexTerm + Borrow<Q>, Q: Eq + Hash + ?Sized, R>(
        &self,
        index: &CacheIndex<K, T>,
        term: &Q,
        read: impl FnOnce(&[Arc<K>]) -> R,
    ) -> R {
        let store = self.store.read();
        if let Some(objects) = store.by(index, term) {
            return read(objects);
        }
        debug_assert!(false, "the cache of {} has no index {}", K::plural(&()), index.name());
        let found: Vec<_> = store.objects().filter(|object| index.matches(object, term)).cloned().collect();
        read(&found)
    }

    /// There are no objects, be they decoded or not.
    pub fn is_empty(&self) -> bool {
        let store = self.store.read();
        store.objects().len() == 0 && store.unreadable().next().is_none()
    }

    /// A namespace has objects, be they decoded or not.
    pub(crate) fn has_in(&self, namespace: &str) -> bool {
        let store = self.store.read();
        let is_in = |meta: &ObjectMeta| meta.namespace.as_deref() == Some(namespace);
        store.objects().any(|object| is_in(object.meta())) || store.unreadable().any(|object| is_in(&object.meta))
    }

    /// Objects that exist and cannot be decoded.
    pub fn unreadable(&self) -> Vec<UnreadableObject> {
        self.store.read().unreadable().cloned().collect()
    }

    /// An object exists and cannot be decoded.
    pub fn is_unreadable(&self, key: &Key) -> bool {
        self.store.read().is_unreadable(key)
    }

    /// The metadata of an object that exists and cannot be decoded.
    pub fn metadata_of_unreadable(&self, key: &Key) -> Option<ObjectMeta> {
        self.store.read().unreadable_of(key).map(|held| held.meta.clone())
    }

    /// A list is complete, so the cache is filled.
    pub fn is_synced(&self) -> bool {
        self.pulse.is_filled()
    }

    /// The trust in the content now.
    pub fn trust(&self) -> CacheTrust {
        self.pulse.trust()
    }

    /// How long ago the last silence of the API server beyond the limit began and ended, if there was one.
    pub fn last_silence(&self) -> Option<(Duration, Duration)> {
        self.pulse.last_silence()
    }

    /// The last list left open which objects exist.
    fn is_in_doubt(&self) -> bool {
        self.store.read().is_in_doubt()
    }

    /// Waits for the first list.
    pub async fn wait_synced(&self) {
        loop {
            let filled = self.filled.notified();
            if self.is_synced() {
                return;
            }
            filled.await;
        }
    }

    /// Why the API server refuses to list the objects, until it does not.
    pub fn refusal(&self) -> Option<String> {
        self.pulse.refusal()
    }

    /// Waits until the first list is complete, or refused.
    pub async fn wait_listed_or_refused(&self) {
        loop {
            let decided = self.filled.notified();
            if self.is_synced() || self.refusal().is_some() {
                return;
            }
            decided.await;
        }
    }

    /// Stores an event of the watch. False if the objects exceed a bound, so that the watch has to end.
    pub fn observe(&self, event: watcher::Event<GuardedObject<K>>) -> bool {
        match event {
            watcher::Event::Init => {
                self.pulse.listing();
                self.store.write().begin_listing();
                self.tally.begin();
            }
            watcher::Event::InitApply(object) => {
                let object = self.pruned(object);
                if let Err(excess) = self.store.write().list(object) {
                    return self.exceeded(excess);
                }
            }
            watcher::Event::InitDone => {
                if self.store.read().is_list_refused() {
                    return false;
                }
                self.change(CacheStore::finish_listing);
                if let Some(excess) = self.excess() {
                    return self.exceeded(excess);
                }
                self.pulse.listed();
                self.filled.notify_waiters();
            }
            watcher::Event::Apply(object) => {
                let object = self.pruned(object);
                self.change(|store| store.apply(object));
                if let Some(excess) = self.excess() {
                    return self.exceeded(excess);
                }
            }
            watcher::Event::Delete(object) => {
                let meta = object.meta().clone();
                let uid = meta.uid.clone().unwrap_or_default();
                self.change(|store| store.remove(&Key::from_meta(&meta), &uid, Some(meta)));
            }
        }
        true
    }

    /// The bound that the objects exceed.
    fn excess(&self) -> Option<CacheExcess> {
        self.store.read().excess()
    }

    fn exceeded(&self, excess: CacheExcess) -> bool {
        self.over_limit(excess.to_string());
        false
    }

    /// The API server sends more than the cache may hold.
    fn over_limit(&self, why: String) {
        let kind = K::plural(&());
        if self.pulse.over_limit(why.clone()) {
            tracing::warn!(%kind, why, "cache over its limit, missing objects count as unknown");
        }
    }

    /// Stores the object that a write returned.
    pub fn wrote(&self, mut object: K) -> Arc<K> {
        if is_removed(object.meta()) {
            let uid = object.meta().uid.clone().unwrap_or_default();
            self.removed(&Key::from_meta(object.meta()), &uid);
            return Arc::new(object);
        }
        (self.prune)(&mut object);
        let object = Arc::new(object);
        self.change(|store| store.wrote(Arc::clone(&object)));
        object
    }

    /// Stores an object that a write returned, whether it can be decoded or not.
    pub fn wrote_any(&self, object: GuardedObject<K>) {
        match object {
            GuardedObject::Readable(object) => drop(self.wrote(object)),
            GuardedObject::Unreadable { metadata, .. } if is_removed(&metadata) => {
                self.removed(&Key::from_meta(&metadata), metadata.uid.as_deref().unwrap_or_default());
            }
            unreadable => self.change(|store| store.read(unreadable)),
        }
    }

    /// Stores that a write deleted an object.
    pub fn removed(&self, key: &Key, uid: &str) {
        self.change(|store| store.remove(key, uid, None));
    }

    fn pruned(&self, mut object: GuardedObject<K>) -> GuardedObject<K> {
        if let GuardedObject::Readable(object) = &mut object {
            (self.prune)(object);
        }
        object
    }

    /// Changes the store, then calls the handlers, which may read it.
    fn change<C: IntoIterator<Item = ObjectChange<K>>>(&self, change: impl FnOnce(&mut CacheStore<K>) -> C) {
        let changes = change(&mut self.store.write());
        for change in changes {
            if let Some(error) = &change.unreadable {
                let kind = K::plural(&());
                tracing::warn!(%kind, object = %change.key, error, "object cannot be decoded and is ignored");
            }
            self.handlers.each_of(|| format!("{} {}", K::kind(&()), change.key), |handler| handler(&change));
        }
    }
}

/// An object in a response shows that the write deleted it.
fn is_removed(meta: &ObjectMeta) -> bool {
    meta.deletion_timestamp.is_some()
        && meta.finalizers.as_ref().is_none_or(Vec::is_empty)
        && meta.deletion_grace_period_seconds.is_none_or(|seconds| seconds == 0)
}

impl<K: CacheableKind> MonitoredCache for ObjectCache<K> {
    fn plural(&self) -> String {
        K::plural(&()).into_owned()
    }

    fn trust(&self) -> CacheTrust {
        self.pulse.trust()
    }

    fn age(&self) -> Option<Duration> {
        self.pulse.age()
    }

    fn unreadable(&self) -> usize {
        self.store.read().unreadable().count()
    }

    fn is_over_limit(&self) -> bool {
        self.pulse.is_over_limit()
    }
}

#[cfg(test)]
mod tests;
