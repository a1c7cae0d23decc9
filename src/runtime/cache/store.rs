//! The content of a cache, and which of several states of an object is stored. Without locks and time.

use std::{
    borrow::Borrow,
    collections::{BTreeMap, HashMap, HashSet},
    hash::Hash,
    sync::Arc,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;

use super::{
    AnyIndex, CacheIndex, CacheableKind, ChangeMetadata, Key, ObjectChange, UnreadableObject,
    bounds::{BoundsMeter, CacheExcess, CacheLoad, memory_of_unreadable},
    index::{IndexPostings, IndexTerm, IndexUpdater},
};
use crate::guard::GuardedObject;

/// How many deleted objects are remembered at least, within [`Store::forget_gone`]'s interval: more than can be deleted while
/// one call is in flight.
pub(super) const REMEMBERED: usize = 10_000;

/// Longest UID that is remembered after a deletion. API servers make UIDs of 36 characters.
const LONGEST_UID: usize = 128;

/// The objects of one kind with their indexes, and the facts that distinguish old states from new ones.
pub(super) struct CacheStore<K: CacheableKind> {
    objects: BTreeMap<Key, Arc<K>>,
    unreadable: BTreeMap<Key, UnreadableObject>,
    indexes: Vec<Box<dyn IndexUpdater<K>>>,
    gone: DeletedUids,
    /// Objects that a write or a live read returned and the watch has not shown yet, with the number of lists begun before.
    unconfirmed: HashMap<Key, u64>,
    /// Keys of `recent` that were returned while the last list was under way and were missing from it: either they are
    /// newer than the list, and the watch will deliver them, or they are deleted.
    doubtful: HashSet<Key>,
    /// How many lists have begun.
    listing: u64,
    listed: Vec<ReceivedObject<K>>,
    /// The version of the last live read of all objects. An object of this version or an older one that was not read is
    /// deleted, even if a slow watch still delivers it.
    read_at: Option<u64>,
    /// `None` without bounds.
    scale: Option<BoundsMeter<K>>,
    /// All objects; zero without bounds.
    held: CacheLoad,
    /// The objects of the current list; zero without bounds.
    listed_load: CacheLoad,
    /// The current list exceeded a bound, so it is not stored.
    is_list_refused: bool,
}

/// An object as a list, a watch or a read delivers it. It is behind a pointer: a list of whole objects would be copied while it grows,
/// and leave megabytes unused.
enum ReceivedObject<K> {
    /// Decoded. Of a list, it is the stored object if the version is the same: the list has no second copy.
    Readable(Arc<K>),
    /// Not decodable.
    Unreadable { metadata: Box<ObjectMeta>, error: String },
}

impl<K: CacheableKind> ReceivedObject<K> {
    fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Readable(object) => object.meta(),
            Self::Unreadable { metadata, .. } => metadata,
        }
    }
}

impl<K> From<GuardedObject<K>> for ReceivedObject<K> {
    fn from(object: GuardedObject<K>) -> Self {
        match object {
            GuardedObject::Readable(object) => Self::Readable(Arc::new(object)),
            GuardedObject::Unreadable { metadata, error } => Self::Unreadable { metadata, error },
        }
    }
}

/// Source of an object; decides whether it has to be newer than the stored one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FreshnessRule {
    /// It may be older than the stored object.
    Newer,
    /// It is the current state, even if its resource version is lower: etcd may have been restored.
    Truth,
}

impl<K: CacheableKind> CacheStore<K> {
    pub fn new(indexes: &[&dyn AnyIndex<K>]) -> Self {
        Self {
            objects: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            indexes: indexes.iter().map(|index| index.keep()).collect(),
            gone: DeletedUids::default(),
            unconfirmed: HashMap::new(),
            doubtful: HashSet::new(),
            listing: 0,
            listed: Vec::new(),
            read_at: None,
            scale: None,
            held: CacheLoad::default(),
            listed_load: CacheLoad::default(),
            is_list_refused: false,
        }
    }

    /// Bounds the objects. For a store that is still empty.
    pub fn limit(&mut self, scale: BoundsMeter<K>) {
        self.scale = Some(scale);
    }

    /// The bound that the objects exceed.
    pub fn excess(&self) -> Option<CacheExcess> {
        self.scale.as_ref()?.excess(self.held)
    }

    /// The most pages of a list; `None` without bounds.
    pub fn most_pages(&self, page: u32) -> Option<usize> {
        self.scale.as_ref().map(|scale| scale.bounds().pages(page))
    }

    /// Drops the objects that were deleted before the last call but one.
    pub fn forget_gone(&mut self) {
        self.gone.age_in_time();
    }

    pub fn get(&self, key: &Key) -> Option<&Arc<K>> {
        self.objects.get(key)
    }

    pub fn objects(&self) -> impl ExactSizeIterator<Item = &Arc<K>> {
        self.objects.values()
    }

    pub fn unreadable(&self) -> impl Iterator<Item = &UnreadableObject> {
        self.unreadable.values()
    }

    pub fn is_unreadable(&self, key: &Key) -> bool {
        self.unreadable.contains_key(key)
    }

    pub fn unreadable_of(&self, key: &Key) -> Option<&UnreadableObject> {
        self.unreadable.get(key)
    }

    /// The objects with a term, by key. `None` if the cache does not have the index.
    pub fn by<T: IndexTerm + Borrow<Q>, Q: Eq + Hash + ?Sized>(
        &self,
        index: &CacheIndex<K, T>,
        term: &Q,
    ) -> Option<&[Arc<K>]> {
        let kept = self.indexes.iter().find(|kept| kept.name() == index.name())?;
        kept.as_any().downcast_ref::<IndexPostings<K, T>>().map(|postings| postings.get(term))
    }

    /// A list begins; the request is sent after this.
    pub fn begin_listing(&mut self) {
        self.listing += 1;
        self.drop_listed();
        self.is_list_refused = false;
        self.doubtful.clear();
        self.read_at = None;
    }

    fn drop_listed(&mut self) {
        (self.listed, self.listed_load) = Default::default();
    }

    /// The list contains an object. A list that exceeds a bound is dropped.
    pub fn list(&mut self, object: GuardedObject<K>) -> Result<(), CacheExcess> {
        if self.is_list_refused {
            return Ok(());
        }
        if let Some(scale) = &self.scale {
            self.listed_load.add(scale.weigh_any(&object));
            if let Some(excess) = scale.excess(self.listed_load) {
                self.drop_listed();
                self.is_list_refused = true;
                return Err(excess);
            }
        }
        let held = self.objects.get(&Key::from_meta(object.meta()));
        let held = held.filter(|held| is_same_state(held.meta(), object.meta()));
        self.listed.push(held.cloned().map_or_else(|| object.into(), ReceivedObject::Readable));
        Ok(())
    }

    /// The current list exceeded a bound.
    pub fn is_list_refused(&self) -> bool {
        self.is_list_refused
    }

    /// The list is complete. It is authoritative for every object that was not written since it began.
    pub fn finish_listing(&mut self) -> Vec<ObjectChange<K>> {
        let listed = std::mem::take(&mut self.listed);
        self.listed_load = CacheLoad::default();
        let mut changes = self.remove_unlisted(&listed);
        for object in listed {
            let key = Key::from_meta(object.meta());
            let rule = if self.is_written_since_listing(&key) { FreshnessRule::Newer } else { FreshnessRule::Truth };
            if rule == FreshnessRule::Truth {
                self.gone.revive(object.meta().uid.as_deref().unwrap_or_default(), self.listing);
            }
            self.unconfirmed.remove(&key);
            changes.extend(self.put(object, rule));
        }
        changes
    }

    fn remove_unlisted(&mut self, listed: &[ReceivedObject<K>]) -> Vec<ObjectChange<K>> {
        let uids: HashSet<&str> = listed.iter().filter_map(|object| object.meta().uid.as_deref()).collect();
        let (doubtful, unlisted): (Vec<_>, Vec<_>) = self
            .held()
            .filter(|(_, uid)| !uids.contains(uid.as_str()))
            .partition(|(key, _)| self.is_written_since_listing(key));
        self.doubtful = doubtful.into_iter().map(|(key, _)| key).collect();
        unlisted.into_iter().filter_map(|(key, uid)| self.remove(&key, &uid, None)).collect()
    }

    fn is_written_since_listing(&self, key: &Key) -> bool {
        self.unconfirmed.get(key).is_some_and(|written| *written >= self.listing)
    }

    /// There are objects whose existence only another list can decide, unless the watch delivers them.
    pub fn is_in_doubt(&self) -> bool {
        !self.doubtful.is_empty()
    }

    /// The watch shows an object.
    pub fn apply(&mut self, object: GuardedObject<K>) -> Option<ObjectChange<K>> {
        let key = Key::from_meta(object.meta());
        self.unconfirmed.remove(&key);
        self.doubtful.remove(&key);
        self.put(object.into(), FreshnessRule::Newer)
    }

    /// Begins a live read of all objects: an object that is stored now and is not read is deleted.
    pub fn begin_reading(&mut self) -> Vec<(Key, String)> {
        self.read_at = None;
        self.held().collect()
    }

    /// Ends a live read of all objects at a version. Objects that were stored at its beginning, or are not newer, and
    /// were not read are dropped.
    pub fn finish_reading(
        &mut self,
        held: Vec<(Key, String)>,
        read: &HashSet<String>,
        version: Option<&str>,
    ) -> Vec<ObjectChange<K>> {
        self.read_at = version.and_then(|version| version.parse().ok());
        let metas = self.metas().filter(|meta| self.is_of_read_state(meta));
        let not_newer: Vec<_> = metas.map(identity).collect();
        let gone = held.into_iter().chain(not_newer).filter(|(_, uid)| !read.contains(uid));
        gone.collect::<Vec<_>>().into_iter().filter_map(|(key, uid)| self.remove(&key, &uid, None)).collect()
    }

    fn is_of_read_state(&self, meta: &ObjectMeta) -> bool {
        self.read_at.zip(version(meta)).is_some_and(|(read_at, version)| version <= read_at)
    }

    /// Keys and UIDs of all objects.
    fn held(&self) -> impl Iterator<Item = (Key, String)> {
        self.metas().map(identity)
    }

    fn metas(&self) -> impl Iterator<Item = &ObjectMeta> {
        let readable = self.objects.values().map(|object| object.meta());
        readable.chain(self.unreadable.values().map(|held| &held.meta))
    }

    /// One object of a live read, which may be older than the stored one.
    pub fn read(&mut self, object: GuardedObject<K>) -> Option<ObjectChange<K>> {
        let key = Key::from_meta(object.meta());
        let change = self.put(object.into(), FreshnessRule::Newer)?;
        self.unconfirmed.insert(key, self.listing);
        Some(change)
    }

    /// A write returned an object.
    pub fn wrote(&mut self, object: Arc<K>) -> Option<ObjectChange<K>> {
        let key = Key::from_meta(object.meta());
        let change = self.hold(object, FreshnessRule::Newer)?;
        self.doubtful.remove(&key);
        self.unconfirmed.insert(key, self.listing);
        Some(change)
    }

    /// An object was deleted; another one of its name stays.
    pub fn remove(&mut self, key: &Key, uid: &str, last: Option<ObjectMeta>) -> Option<ObjectChange<K>> {
        self.gone.insert(uid, self.listing);
        let is_same = |meta: &ObjectMeta| meta.uid.as_deref().unwrap_or_default() == uid;
        let old = self.objects.get(key).filter(|held| is_same(held.meta())).cloned();
        let unreadable = self.unreadable.get(key).filter(|held| is_same(&held.meta)).map(|held| held.meta.clone());
        let meta = old.as_ref().map(|old| ChangeMetadata::OfObject(Arc::clone(old)));
        let meta = meta.or_else(|| unreadable.clone().map(ChangeMetadata::from))?;
        self.unconfirmed.remove(key);
        self.doubtful.remove(key);
        if unreadable.is_some() {
            self.set_unreadable(key, None);
        }
        self.replace(key, None);
        Some(ObjectChange {
            key: key.clone(),
            meta: last.map_or(meta, ChangeMetadata::from),
            old,
            new: None,
            gone: true,
            unreadable: None,
        })
    }

    fn put(&mut self, object: ReceivedObject<K>, rule: FreshnessRule) -> Option<ObjectChange<K>> {
        match object {
            ReceivedObject::Readable(object) => self.hold(object, rule),
            ReceivedObject::Unreadable { metadata, error } => self.set_aside(*metadata, error, rule),
        }
    }

    fn hold(&mut self, object: Arc<K>, rule: FreshnessRule) -> Option<ObjectChange<K>> {
        let key = Key::from_meta(object.meta());
        if self.is_stale(&key, object.meta(), rule) {
            return None;
        }
        let meta = ChangeMetadata::OfObject(Arc::clone(&object));
        self.set_unreadable(&key, None);
        let old = self.replace(&key, Some(&object));
        Some(ObjectChange { key, meta, old, new: Some(object), gone: false, unreadable: None })
    }

    /// Stores an object that cannot be decoded, by its metadata only.
    fn set_aside(&mut self, meta: ObjectMeta, error: String, rule: FreshnessRule) -> Option<ObjectChange<K>> {
        let key = Key::from_meta(&meta);
        if self.is_stale(&key, &meta, rule) {
            return None;
        }
        self.set_unreadable(&key, Some(UnreadableObject { meta: meta.clone(), error: error.clone() }));
        let old = self.replace(&key, None);
        Some(ObjectChange { key, meta: meta.into(), old, new: None, gone: false, unreadable: Some(error) })
    }

    fn set_unreadable(&mut self, key: &Key, new: Option<UnreadableObject>) {
        let memory = |object: &UnreadableObject| memory_of_unreadable(&object.meta, &object.error);
        let is_bounded = self.scale.is_some();
        new.iter().filter(|_| is_bounded).for_each(|new| self.held.add(memory(new)));
        let old = match new {
            Some(new) => self.unreadable.insert(key.clone(), new),
            None => self.unreadable.remove(key),
        };
        old.iter().filter(|_| is_bounded).for_each(|old| self.held.remove(memory(old)));
    }

    fn replace(&mut self, key: &Key, new: Option<&Arc<K>>) -> Option<Arc<K>> {
        let old = match new {
            Some(new) => self.objects.insert(key.clone(), Arc::clone(new)),
            None => self.objects.remove(key),
        };
        if let Some(scale) = &self.scale {
            old.iter().for_each(|old| self.held.remove(scale.weigh(old)));
            new.into_iter().for_each(|new| self.held.add(scale.weigh(new)));
        }
        self.indexes.iter_mut().for_each(|index| index.change(old.as_ref(), new));
        old
    }

    /// A newer state is stored, or the object is known to be deleted.
    fn is_stale(&self, key: &Key, meta: &ObjectMeta, rule: FreshnessRule) -> bool {
        if meta.uid.as_ref().is_some_and(|uid| self.gone.contains(uid)) {
            return true;
        }
        let held = self.objects.get(key).map(|held| held.meta());
        let Some(held) = held.or_else(|| self.unreadable.get(key).map(|held| &held.meta)) else {
            return self.is_of_read_state(meta);
        };
        match rule {
            FreshnessRule::Newer => !is_newer(meta, held),
            FreshnessRule::Truth => is_same_state(meta, held),
        }
    }
}

fn is_same_state(one: &ObjectMeta, other: &ObjectMeta) -> bool {
    one.uid == other.uid && one.resource_version == other.resource_version
}

/// UIDs of the last deleted objects, with the number of lists begun before. A slow watch, a list or a late response may
/// still contain one of them; it would stay in the cache forever, because its deletion is not reported again.
#[derive(Default)]
struct DeletedUids {
    recent: HashMap<String, u64>,
    older: HashMap<String, u64>,
    has_aged: bool,
}

impl DeletedUids {
    fn contains(&self, uid: &str) -> bool {
        self.recent.contains_key(uid) || self.older.contains_key(uid)
    }

    fn insert(&mut self, uid: &str, listing: u64) {
        if uid.is_empty() || uid.len() > LONGEST_UID {
            return;
        }
        self.recent.insert(uid.to_owned(), listing);
        if self.recent.len() >= REMEMBERED {
            self.age();
            self.has_aged = true;
        }
    }

    fn age(&mut self) {
        self.older = std::mem::take(&mut self.recent);
    }

    /// Drops the keys that were recorded before the last call, unless so many were recorded that some have been dropped
    /// since.
    fn age_in_time(&mut self) {
        if !std::mem::take(&mut self.has_aged) {
            self.age();
        }
    }

    /// A list contains an object: if it was deleted before the list began, it exists again.
    fn revive(&mut self, uid: &str, listing: u64) {
        for uids in [&mut self.recent, &mut self.older] {
            if uids.get(uid).is_some_and(|gone_in| *gone_in < listing) {
                uids.remove(uid);
            }
        }
    }
}

fn identity(meta: &ObjectMeta) -> (Key, String) {
    (Key::from_meta(meta), meta.uid.clone().unwrap_or_default())
}

fn version(meta: &ObjectMeta) -> Option<u64> {
    meta.resource_version.as_deref()?.parse().ok()
}

/// Compares resource versions of one kind as numbers; one that cannot be compared counts as newer.
fn is_newer(candidate: &ObjectMeta, held: &ObjectMeta) -> bool {
    match (version(candidate), version(held)) {
        (Some(candidate), Some(held)) => candidate > held,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mcm_api::node::Node;

    #[test]
    fn a_list_needs_little_memory_besides_its_objects() {
        let (listed, object) = (size_of::<ReceivedObject<Node>>(), size_of::<Node>());
        assert!(listed * 10 < object, "{listed} of {object}");
    }

    #[test]
    fn deleted_objects_are_dropped_eventually() {
        let mut gone = DeletedUids::default();
        (0..3 * REMEMBERED).for_each(|uid| gone.insert(&uid.to_string(), 0));
        assert!(gone.recent.len() + gone.older.len() <= 2 * REMEMBERED);
        assert!(!gone.contains("0") && gone.contains(&(2 * REMEMBERED).to_string()));
        gone.age_in_time();
        assert!(gone.contains(&(3 * REMEMBERED - 1).to_string()), "it is remembered for one interval at least");
        gone.age_in_time();
        gone.age_in_time();
        assert!(gone.recent.is_empty() && gone.older.is_empty());
        gone.insert(&"u".repeat(LONGEST_UID + 1), 0);
        assert!(gone.recent.is_empty(), "a long UID needs no memory");
    }
}
