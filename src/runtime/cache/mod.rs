//! The objects of one kind, kept up to date by a watch and by what our own writes returned, so that no plan works on a
//! state older than its own last action.
//!
//! An object enters if it is newer than what is held, whether the watch brought it or the answer to a write. What is gone
//! stays gone, by UID, also for an answer that is late. A listing is the truth: it repairs whatever else went wrong.

mod index;
mod store;
mod watch;

use std::{
    borrow::Borrow,
    fmt::Debug,
    hash::Hash,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, runtime::watcher};
use parking_lot::RwLock;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

pub use index::{AnyIndex, Index, Term};

use super::{
    guard::Guard,
    trust::{Pulse, Trust, Watched},
};
use store::Store;

/// What can be cached.
pub trait Cached: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static {}
impl<K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static> Cached for K {}

/// Namespace and name; the namespace is empty for cluster-scoped kinds.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl Key {
    /// The key of an object.
    pub fn of(meta: &ObjectMeta) -> Self {
        Self { namespace: meta.namespace.clone().unwrap_or_default(), name: meta.name.clone().unwrap_or_default() }
    }

    /// Something of this name in the namespace of an object.
    pub fn beside(meta: &ObjectMeta, name: &str) -> Self {
        Self::new(meta.namespace.clone().unwrap_or_default(), name)
    }

    /// A name in a namespace.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

/// What happened to an object.
#[derive(Debug)]
pub struct Change<K> {
    /// Which object.
    pub key: Key,
    /// Its metadata, as last known.
    pub meta: ObjectMeta,
    /// What was held before; `None` if nothing readable was.
    pub old: Option<Arc<K>>,
    /// What is held now; `None` if it is gone or unreadable.
    pub new: Option<Arc<K>>,
    /// It no longer exists.
    pub gone: bool,
    /// It exists and could not be decoded: what is wrong with it.
    pub unreadable: Option<String>,
}

/// An object that exists but could not be decoded.
#[derive(Clone, Debug)]
pub struct Unreadable {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// What is wrong with it.
    pub error: String,
}

type Handler<K> = Box<dyn Fn(&Change<K>) + Send + Sync>;
type TrustHandler = Box<dyn Fn(&Trust) + Send + Sync>;

/// Objects of one kind, with indexes and listeners.
pub struct Cache<K: Cached> {
    store: RwLock<Store<K>>,
    handlers: RwLock<Vec<Handler<K>>>,
    trust_handlers: RwLock<Vec<TrustHandler>>,
    prune: fn(&mut K),
    pulse: Arc<Pulse>,
    /// As last said.
    is_trust_lost: AtomicBool,
    filled: Notify,
}

impl<K: Cached> Cache<K> {
    /// An empty cache with its indexes. `prune` drops from each object what nobody reads.
    pub fn new(indexes: &[&dyn AnyIndex<K>], prune: fn(&mut K)) -> Arc<Self> {
        Arc::new(Self {
            store: RwLock::new(Store::new(indexes)),
            handlers: RwLock::default(),
            trust_handlers: RwLock::default(),
            prune,
            pulse: Arc::default(),
            is_trust_lost: AtomicBool::new(false),
            filled: Notify::new(),
        })
    }

    /// Calls `handler` after each change, in the task that caused it: it must only pass the news on.
    pub fn on_change(&self, handler: impl Fn(&Change<K>) + Send + Sync + 'static) {
        self.handlers.write().push(Box::new(handler));
    }

    /// Calls `handler` when the trust in a filled cache is lost, and when it is there again.
    pub fn on_trust(&self, handler: impl Fn(&Trust) + Send + Sync + 'static) {
        self.trust_handlers.write().push(Box::new(handler));
    }

    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.store.read().get(key).cloned()
    }

    /// All objects, by key.
    pub fn all(&self) -> Vec<Arc<K>> {
        self.store.read().objects().cloned().collect()
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.store.read().objects().len()
    }

    /// Objects that an index lists under a term, by key.
    pub fn by<T: Term + Borrow<Q>, Q: Eq + Hash + ?Sized>(&self, index: &Index<K, T>, term: &Q) -> Vec<Arc<K>> {
        self.with(index, term, <[Arc<K>]>::to_vec)
    }

    /// Reads the objects under a term while the cache is locked, without copying the list.
    pub fn with<T: Term + Borrow<Q>, Q: Eq + Hash + ?Sized, R>(
        &self,
        index: &Index<K, T>,
        term: &Q,
        read: impl FnOnce(&[Arc<K>]) -> R,
    ) -> R {
        let store = self.store.read();
        if let Some(objects) = store.by(index, term) {
            return read(objects);
        }
        debug_assert!(false, "the cache of {} does not keep the index {}", K::plural(&()), index.name());
        let found: Vec<_> = store.objects().filter(|object| index.matches(object, term)).cloned().collect();
        read(&found)
    }

    /// Objects that exist but could not be decoded.
    pub fn unreadable(&self) -> Vec<Unreadable> {
        self.store.read().unreadable().cloned().collect()
    }

    /// A listing is complete.
    pub fn is_synced(&self) -> bool {
        self.pulse.is_filled()
    }

    /// What the content is worth now.
    pub fn trust(&self) -> Trust {
        self.pulse.trust()
    }

    /// How long ago the API server was heard again after the last silence that cost the trust in the content, if there was
    /// one.
    pub fn recovered_for(&self) -> Option<Duration> {
        self.pulse.recovered_for()
    }

    /// Waits for the first listing.
    pub async fn wait_synced(&self) {
        loop {
            let filled = self.filled.notified();
            if self.is_synced() {
                return;
            }
            filled.await;
        }
    }

    /// Takes in what the watch brought.
    pub fn observe(&self, event: watcher::Event<Guard<K>>) {
        match event {
            watcher::Event::Init => {
                self.pulse.listing();
                self.store.write().begin_listing();
            }
            watcher::Event::InitApply(object) => {
                let object = self.pruned(object);
                self.store.write().list(object);
            }
            watcher::Event::InitDone => {
                self.change(Store::finish_listing);
                self.pulse.listed();
                self.filled.notify_waiters();
            }
            watcher::Event::Apply(object) => {
                let object = self.pruned(object);
                self.change(|store| store.apply(object));
            }
            watcher::Event::Delete(object) => {
                let meta = object.meta().clone();
                let uid = meta.uid.clone().unwrap_or_default();
                self.change(|store| store.remove(&Key::of(&meta), &uid, Some(meta)));
            }
        }
    }

    /// Takes in the object that a write returned.
    pub fn wrote(&self, mut object: K) -> Arc<K> {
        if is_removed(object.meta()) {
            let uid = object.meta().uid.clone().unwrap_or_default();
            self.removed(&Key::of(object.meta()), &uid);
            return Arc::new(object);
        }
        (self.prune)(&mut object);
        let object = Arc::new(object);
        self.change(|store| store.wrote(Arc::clone(&object)));
        object
    }

    /// Takes in that a write removed an object for good.
    pub fn removed(&self, key: &Key, uid: &str) {
        self.change(|store| store.remove(key, uid, None));
    }

    fn pruned(&self, mut object: Guard<K>) -> Guard<K> {
        if let Guard::Readable(object) = &mut object {
            (self.prune)(object);
        }
        object
    }

    /// Changes the store, then tells the handlers, which may read it.
    fn change<C: IntoIterator<Item = Change<K>>>(&self, change: impl FnOnce(&mut Store<K>) -> C) {
        let changes = change(&mut self.store.write());
        let handlers = self.handlers.read();
        for change in changes {
            if let Some(error) = &change.unreadable {
                let kind = K::plural(&());
                tracing::warn!(%kind, object = %change.key, error, "object cannot be read and is left alone");
            }
            handlers.iter().for_each(|handler| handler(&change));
        }
    }
}

/// A write that answers an object in this state has removed it.
fn is_removed(meta: &ObjectMeta) -> bool {
    meta.deletion_timestamp.is_some()
        && meta.finalizers.as_ref().is_none_or(Vec::is_empty)
        && meta.deletion_grace_period_seconds.is_none_or(|seconds| seconds == 0)
}

impl<K: Cached> Watched for Cache<K> {
    fn plural(&self) -> String {
        K::plural(&()).into_owned()
    }

    fn trust(&self) -> Trust {
        self.pulse.trust()
    }

    fn age(&self) -> Option<Duration> {
        self.pulse.age()
    }
}

#[cfg(test)]
mod tests;
