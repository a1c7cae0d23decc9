//! Shared reflectors that also hold what our own writes returned, so that no plan works on a state older than its own
//! last action.
//!
//! One writer guards the kube-rs store: an object enters if it is newer than what is held, whether the watch brought
//! it or the answer to a write. What is gone stays gone, by UID, also for an answer that is late.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    fmt::Debug,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use futures::{Stream, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api, Resource,
    api::ListParams,
    runtime::{
        WatchStreamExt,
        reflector::{ObjectRef, Store, store::Writer},
        watcher,
    },
};
use parking_lot::{Mutex, RwLock};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

use super::guard::Guard;

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

    /// A name in a namespace.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// As kube-rs names objects.
    pub fn reference<K: Resource<DynamicType = ()>>(&self) -> ObjectRef<K> {
        let reference = ObjectRef::new(&self.name);
        if self.namespace.is_empty() { reference } else { reference.within(&self.namespace) }
    }

    /// From how kube-rs names objects.
    pub fn from_reference<K: Resource<DynamicType = ()>>(reference: &ObjectRef<K>) -> Self {
        Self { namespace: reference.namespace.clone().unwrap_or_default(), name: reference.name.clone() }
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

/// Objects in one answer to a listing.
const PAGE: u32 = 500;
/// How many objects that are gone are remembered: more than can go while one call is under way.
const REMEMBERED: usize = 10_000;

type Terms<K> = fn(&K) -> Vec<String>;
type Handler<K> = Box<dyn Fn(&Change<K>) + Send + Sync>;

/// Objects of one kind, with indexes and listeners.
pub struct Cache<K: Cached> {
    store: Store<K>,
    inner: Mutex<Inner<K>>,
    handlers: RwLock<Vec<Handler<K>>>,
    prune: fn(&mut K),
    synced: AtomicBool,
    synced_notify: Notify,
    watching: AtomicBool,
}

struct Inner<K: Cached> {
    writer: Writer<K>,
    indexes: Vec<Index<K>>,
    unreadable: BTreeMap<Key, Unreadable>,
    gone: Gone,
    /// Objects that a write returned and the watch has not shown yet, with the listing they were written in.
    unconfirmed: HashMap<Key, u64>,
    listing: u64,
    listed: Vec<Guard<K>>,
}

/// UIDs of the last objects that went. A watch that is behind, a listing or the answer to a write that was overtaken may
/// still bring one of them; it would be held for ever, because nobody reports its end a second time.
#[derive(Default)]
struct Gone {
    uids: HashSet<String>,
    order: VecDeque<String>,
}

/// Most terms lead to one object, some to thousands: sorted lists are small and quick enough for both.
struct Index<K> {
    terms: Terms<K>,
    objects: HashMap<String, Vec<Arc<K>>>,
}

impl<K: Cached> Cache<K> {
    /// An empty cache. Each entry of `indexes` gives the terms under which an object is found by [`Cache::by`].
    pub fn new(indexes: &[Terms<K>], prune: fn(&mut K)) -> Arc<Self> {
        let writer = Writer::default();
        Arc::new(Self {
            store: writer.as_reader(),
            inner: Mutex::new(Inner {
                writer,
                indexes: indexes.iter().map(|terms| Index { terms: *terms, objects: HashMap::new() }).collect(),
                unreadable: BTreeMap::new(),
                gone: Gone::default(),
                unconfirmed: HashMap::new(),
                listing: 0,
                listed: Vec::new(),
            }),
            handlers: RwLock::new(Vec::new()),
            prune,
            synced: AtomicBool::new(false),
            synced_notify: Notify::new(),
            watching: AtomicBool::new(false),
        })
    }

    /// The underlying store, for a kube-rs `Controller`.
    pub fn store(&self) -> Store<K> {
        self.store.clone()
    }

    /// Calls `handler` after each change, in the task that caused it: it must only pass the news on.
    pub fn on_change(&self, handler: impl Fn(&Change<K>) + Send + Sync + 'static) {
        self.handlers.write().push(Box::new(handler));
    }

    /// One object.
    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.store.get(&key.reference())
    }

    /// All objects, in no order.
    pub fn all(&self) -> Vec<Arc<K>> {
        self.store.state()
    }

    /// How many objects are held.
    pub fn len(&self) -> usize {
        self.store.len()
    }

    /// Nothing is held.
    pub fn is_empty(&self) -> bool {
        self.store.is_empty()
    }

    /// Objects that an index lists under a term, by key.
    pub fn by(&self, index: usize, term: &str) -> Vec<Arc<K>> {
        let inner = self.inner.lock();
        let found = inner.indexes.get(index).and_then(|index| index.objects.get(term));
        found.cloned().unwrap_or_default()
    }

    /// Objects that exist but could not be decoded.
    pub fn unreadable(&self) -> Vec<Unreadable> {
        self.inner.lock().unreadable.values().cloned().collect()
    }

    /// The first listing is complete.
    pub fn is_synced(&self) -> bool {
        self.synced.load(Ordering::Acquire)
    }

    /// The watch is established; false after an error until it works again.
    pub fn is_watching(&self) -> bool {
        self.watching.load(Ordering::Acquire)
    }

    /// Waits for the first listing.
    pub async fn wait_synced(&self) {
        loop {
            let notified = self.synced_notify.notified();
            if self.is_synced() {
                return;
            }
            notified.await;
        }
    }

    /// Watches until dropped.
    pub async fn watch(self: Arc<Self>, api: Api<Guard<K>>) {
        self.follow(watcher(api, watcher::Config::default())).await;
    }

    /// Takes in a watch until dropped or it ends; after an error it is given time and goes on.
    pub async fn follow(self: Arc<Self>, events: impl Stream<Item = watcher::Result<watcher::Event<Guard<K>>>> + Send) {
        let mut events = std::pin::pin!(events.default_backoff());
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    self.watching.store(true, Ordering::Release);
                    self.observe(event);
                }
                Err(error) => {
                    self.watching.store(false, Ordering::Release);
                    let error = crate::runtime::objects::chain(&error);
                    tracing::warn!(kind = %K::kind(&()), %error, "watch interrupted, trying again");
                }
            }
        }
    }

    /// Reads everything once more and holds what is newer than what is held.
    ///
    /// # Errors
    /// If the API server could not be asked; what was read until then is held.
    pub async fn refresh(&self, api: &Api<Guard<K>>) -> kube::Result<()> {
        let mut page = ListParams::default().limit(PAGE);
        loop {
            let list = api.list(&page).await?;
            let token = list.metadata.continue_.clone().filter(|token| !token.is_empty());
            let changes: Vec<_> = {
                let mut inner = self.inner.lock();
                list.items.into_iter().filter_map(|object| self.put(&mut inner, object)).collect()
            };
            self.notify(changes);
            match token {
                Some(token) => page.continue_token = Some(token),
                None => return Ok(()),
            }
        }
    }

    /// There is nothing to watch: the cache is complete as it is.
    pub fn assume_empty(&self) {
        self.observe(watcher::Event::Init);
        self.observe(watcher::Event::InitDone);
    }

    /// Takes in what the watch brought.
    pub fn observe(&self, event: watcher::Event<Guard<K>>) {
        let changes = {
            let mut inner = self.inner.lock();
            match event {
                watcher::Event::Init => {
                    inner.listing += 1;
                    inner.listed.clear();
                    Vec::new()
                }
                watcher::Event::InitApply(object) => {
                    inner.listed.push(object);
                    Vec::new()
                }
                watcher::Event::InitDone => self.replace(&mut inner),
                watcher::Event::Apply(object) => {
                    inner.unconfirmed.remove(&Key::of(object.meta()));
                    self.put(&mut inner, object).into_iter().collect()
                }
                watcher::Event::Delete(object) => {
                    let key = Key::of(object.meta());
                    let uid = object.meta().uid.clone().unwrap_or_default();
                    inner.unconfirmed.remove(&key);
                    inner.gone.insert(&uid);
                    self.remove(&mut inner, key, &uid, object.meta().clone()).into_iter().collect()
                }
            }
        };
        self.notify(changes);
    }

    /// Takes in the object that a write returned.
    pub fn wrote(&self, mut object: K) -> Arc<K> {
        let key = Key::of(object.meta());
        let removed = object.meta().deletion_timestamp.is_some()
            && object.meta().finalizers.as_ref().is_none_or(Vec::is_empty)
            && object.meta().deletion_grace_period_seconds.is_none_or(|seconds| seconds == 0);
        if removed {
            let uid = object.meta().uid.clone().unwrap_or_default();
            self.removed(&key, &uid);
            return Arc::new(object);
        }
        (self.prune)(&mut object);
        let change = {
            let mut inner = self.inner.lock();
            let listing = inner.listing;
            let change = self.hold(&mut inner, &object);
            if change.is_some() {
                inner.unconfirmed.insert(key, listing);
            }
            change
        };
        let held = change.as_ref().and_then(|change| change.new.clone());
        self.notify(change);
        held.unwrap_or_else(|| Arc::new(object))
    }

    /// Takes in that a write removed an object for good.
    pub fn removed(&self, key: &Key, uid: &str) {
        let change = {
            let mut inner = self.inner.lock();
            let meta = self.store.get(&key.reference()).map(|held| held.meta().clone());
            inner.unconfirmed.remove(key);
            inner.gone.insert(uid);
            meta.and_then(|meta| self.remove(&mut inner, key.clone(), uid, meta))
        };
        self.notify(change);
    }

    fn notify(&self, changes: impl IntoIterator<Item = Change<K>>) {
        let handlers = self.handlers.read();
        for change in changes {
            for handler in handlers.iter() {
                handler(&change);
            }
        }
    }

    /// Takes in an object if it is newer than what is held.
    fn put(&self, inner: &mut Inner<K>, object: Guard<K>) -> Option<Change<K>> {
        match object {
            Guard::Readable(mut object) => {
                (self.prune)(&mut object);
                self.hold(inner, &object)
            }
            Guard::Unreadable { metadata, error } => self.set_aside(inner, *metadata, error),
        }
    }

    fn hold(&self, inner: &mut Inner<K>, object: &K) -> Option<Change<K>> {
        let meta = object.meta().clone();
        let key = Key::of(&meta);
        let old = self.store.get(&key.reference());
        if inner.is_stale(&key, &meta, old.as_ref()) {
            return None;
        }
        inner.unreadable.remove(&key);
        inner.writer.apply_watcher_event(&watcher::Event::Apply(object.clone()));
        let new = self.store.get(&key.reference());
        inner.reindex(old.as_ref(), new.as_ref());
        Some(Change { key, meta, old, new, gone: false, unreadable: None })
    }

    /// An object that cannot be read is known by its metadata only.
    fn set_aside(&self, inner: &mut Inner<K>, meta: ObjectMeta, error: String) -> Option<Change<K>> {
        let key = Key::of(&meta);
        let old = self.store.get(&key.reference());
        if inner.is_stale(&key, &meta, old.as_ref()) {
            return None;
        }
        tracing::warn!(kind = %K::kind(&()), object = %key, %error, "object cannot be read and is left alone");
        inner.unreadable.insert(key.clone(), Unreadable { meta: meta.clone(), error: error.clone() });
        if let Some(old) = &old {
            inner.writer.apply_watcher_event(&watcher::Event::Delete(K::clone(old)));
            inner.reindex(Some(old), None);
        }
        Some(Change { key, meta, old, new: None, gone: false, unreadable: Some(error) })
    }

    /// Drops an object, unless another one took its name.
    fn remove(&self, inner: &mut Inner<K>, key: Key, uid: &str, meta: ObjectMeta) -> Option<Change<K>> {
        let same = |held: &ObjectMeta| held.uid.as_deref().unwrap_or_default() == uid;
        let old = self.store.get(&key.reference()).filter(|held| same(held.meta()));
        let unreadable = inner.unreadable.get(&key).is_some_and(|held| same(&held.meta));
        if unreadable {
            inner.unreadable.remove(&key);
        }
        if let Some(old) = &old {
            inner.writer.apply_watcher_event(&watcher::Event::Delete(K::clone(old)));
            inner.reindex(Some(old), None);
        }
        (old.is_some() || unreadable).then_some(Change { key, meta, old, new: None, gone: true, unreadable: None })
    }

    /// Takes in a complete listing: what is neither listed nor written since is gone.
    fn replace(&self, inner: &mut Inner<K>) -> Vec<Change<K>> {
        let listed = std::mem::take(&mut inner.listed);
        let listing = inner.listing;
        let uids: HashSet<&str> = listed.iter().filter_map(|object| object.meta().uid.as_deref()).collect();
        let first = !self.is_synced();
        if first {
            inner.writer.apply_watcher_event(&watcher::Event::Init);
            for object in self.store.state() {
                inner.writer.apply_watcher_event(&watcher::Event::InitApply(K::clone(&object)));
            }
            inner.writer.apply_watcher_event(&watcher::Event::InitDone);
        }
        let held = self.store.state();
        let held = held.iter().map(|object| object.meta().clone());
        let held: Vec<ObjectMeta> = held.chain(inner.unreadable.values().map(|held| held.meta.clone())).collect();
        let mut changes = Vec::new();
        for meta in held {
            let key = Key::of(&meta);
            let uid = meta.uid.clone().unwrap_or_default();
            let written_since = inner.unconfirmed.get(&key).is_some_and(|written| *written >= listing);
            if !uids.contains(uid.as_str()) && !written_since {
                inner.unconfirmed.remove(&key);
                changes.extend(self.remove(inner, key, &uid, meta));
            }
        }
        for object in listed {
            inner.unconfirmed.remove(&Key::of(object.meta()));
            changes.extend(self.put(inner, object));
        }
        self.synced.store(true, Ordering::Release);
        self.synced_notify.notify_waiters();
        changes
    }
}

impl Gone {
    fn contains(&self, uid: &str) -> bool {
        self.uids.contains(uid)
    }

    fn insert(&mut self, uid: &str) {
        if uid.is_empty() || !self.uids.insert(uid.to_owned()) {
            return;
        }
        self.order.push_back(uid.to_owned());
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.uids.remove(&oldest);
        }
    }
}

impl<K: Cached> Inner<K> {
    /// Whether something newer is held, or the object is known to be gone.
    fn is_stale(&self, key: &Key, meta: &ObjectMeta, held: Option<&Arc<K>>) -> bool {
        let held = held.map(|held| held.meta()).or_else(|| self.unreadable.get(key).map(|held| &held.meta));
        meta.uid.as_ref().is_some_and(|uid| self.gone.contains(uid))
            || held.is_some_and(|held| held.uid == meta.uid && !is_newer(meta, held))
    }

    fn reindex(&mut self, old: Option<&Arc<K>>, new: Option<&Arc<K>>) {
        for index in &mut self.indexes {
            let terms = |object: Option<&Arc<K>>| object.map(|object| (index.terms)(object)).unwrap_or_default();
            let (before, after) = (terms(old), terms(new));
            for (term, object) in before.iter().zip(old.into_iter().cycle()) {
                if !after.contains(term) {
                    index.remove(term, object);
                }
            }
            for (term, object) in after.into_iter().zip(new.into_iter().cycle()) {
                index.insert(term, object);
            }
        }
    }
}

impl<K: Cached> Index<K> {
    fn insert(&mut self, term: String, object: &Arc<K>) {
        let objects = self.objects.entry(term).or_default();
        match position(objects, object) {
            Ok(place) => objects[place] = Arc::clone(object),
            Err(place) => objects.insert(place, Arc::clone(object)),
        }
    }

    fn remove(&mut self, term: &str, object: &Arc<K>) {
        let Some(objects) = self.objects.get_mut(term) else { return };
        if let Ok(place) = position(objects, object) {
            objects.remove(place);
        }
        if objects.is_empty() {
            self.objects.remove(term);
        }
    }
}

fn position<K: Cached>(objects: &[Arc<K>], object: &Arc<K>) -> Result<usize, usize> {
    fn name(meta: &ObjectMeta) -> (Option<&str>, Option<&str>) {
        (meta.namespace.as_deref(), meta.name.as_deref())
    }
    objects.binary_search_by(|other| name(other.meta()).cmp(&name(object.meta())))
}

/// Resource versions of one kind are ordered; one that cannot be compared counts as newer.
fn is_newer(candidate: &ObjectMeta, held: &ObjectMeta) -> bool {
    let version = |meta: &ObjectMeta| meta.resource_version.as_deref().and_then(|text| text.parse::<u64>().ok());
    match (version(candidate), version(held)) {
        (Some(candidate), Some(held)) => candidate > held,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::runtime::watcher::Event;

    fn object(name: &str, uid: &str, version: u64) -> ConfigMap {
        ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.into()),
                namespace: Some("n".into()),
                uid: Some(uid.into()),
                resource_version: Some(version.to_string()),
                labels: Some([("colour".to_owned(), format!("v{version}"))].into()),
                ..ObjectMeta::default()
            },
            ..ConfigMap::default()
        }
    }

    fn guard(object: ConfigMap) -> Guard<ConfigMap> {
        Guard::Readable(object)
    }

    fn cache() -> Arc<Cache<ConfigMap>> {
        let colours: Terms<ConfigMap> =
            |object| object.metadata.labels.iter().flat_map(|labels| labels.values().cloned()).collect();
        Cache::new(&[colours], |_| {})
    }

    fn version(cache: &Cache<ConfigMap>, name: &str) -> Option<String> {
        cache.get(&Key::new("n", name)).and_then(|object| object.metadata.resource_version.clone())
    }

    #[test]
    fn a_write_is_read_at_once_and_an_older_watch_event_does_not_undo_it() {
        let cache = cache();
        cache.observe(Event::Apply(guard(object("a", "1", 5))));
        cache.wrote(object("a", "1", 7));
        cache.observe(Event::Apply(guard(object("a", "1", 6))));
        assert_eq!(version(&cache, "a").as_deref(), Some("7"));
        assert_eq!(cache.by(0, "v7").len(), 1);
        assert!(cache.by(0, "v5").is_empty(), "the index follows");
    }

    #[test]
    fn what_a_write_removed_does_not_come_back_with_a_late_event() {
        let cache = cache();
        cache.observe(Event::Apply(guard(object("a", "1", 5))));
        cache.removed(&Key::new("n", "a"), "1");
        cache.observe(Event::Apply(guard(object("a", "1", 6))));
        assert_eq!(version(&cache, "a"), None);
        cache.observe(Event::Delete(guard(object("a", "1", 7))));
        cache.observe(Event::Apply(guard(object("a", "2", 8))));
        assert_eq!(version(&cache, "a").as_deref(), Some("8"), "another object of that name is another object");
    }

    #[test]
    fn an_answer_that_the_watch_overtook_does_not_bring_back_what_is_gone() {
        let cache = cache();
        cache.observe(Event::Apply(guard(object("a", "1", 5))));
        cache.observe(Event::Delete(guard(object("a", "1", 7))));
        cache.wrote(object("a", "1", 6));
        assert_eq!(version(&cache, "a"), None);
        cache.observe(Event::Init);
        cache.observe(Event::InitApply(guard(object("a", "1", 6))));
        cache.observe(Event::InitDone);
        assert_eq!(version(&cache, "a"), None, "nor does a listing of before");
    }

    #[test]
    fn what_is_gone_is_forgotten_in_the_end() {
        let mut gone = Gone::default();
        (0..=REMEMBERED).for_each(|uid| gone.insert(&uid.to_string()));
        assert_eq!((gone.uids.len(), gone.order.len()), (REMEMBERED, REMEMBERED));
        assert!(!gone.contains("0") && gone.contains("1"));
    }

    #[test]
    fn a_listing_removes_what_it_lacks_but_not_what_was_written_meanwhile() {
        let cache = cache();
        cache.observe(Event::Apply(guard(object("old", "1", 5))));
        cache.wrote(object("lost", "3", 6));
        cache.observe(Event::Init);
        cache.wrote(object("fresh", "2", 9));
        cache.observe(Event::InitDone);
        assert_eq!(version(&cache, "old"), None);
        assert_eq!(version(&cache, "lost"), None, "written before the listing began and not in it: it is gone");
        assert_eq!(version(&cache, "fresh").as_deref(), Some("9"));
        assert!(cache.is_synced());
    }

    #[test]
    fn a_delete_of_a_former_object_leaves_its_successor() {
        let cache = cache();
        cache.observe(Event::Apply(guard(object("a", "2", 8))));
        cache.observe(Event::Delete(guard(object("a", "1", 7))));
        assert_eq!(version(&cache, "a").as_deref(), Some("8"));
    }

    #[test]
    fn an_unreadable_object_exists_without_content() {
        let cache = cache();
        cache.observe(Event::Apply(guard(object("a", "1", 5))));
        let metadata = Box::new(object("a", "1", 6).metadata);
        let broken = Guard::Unreadable { metadata, error: "bad".to_owned() };
        cache.observe(Event::Apply(broken));
        assert_eq!(version(&cache, "a"), None);
        assert_eq!(cache.unreadable().len(), 1);
        cache.observe(Event::Apply(guard(object("a", "1", 7))));
        assert_eq!(cache.unreadable().len(), 0);
    }
}
