//! Indexes: finding objects by something other than their key.

use std::{any::Any, borrow::Borrow, collections::HashMap, fmt::Debug, hash::Hash, sync::Arc};

use super::CacheableKind;

/// A value by which objects are found. Its type contains the scope: a name alone is ambiguous with several namespaces
/// or clusters.
pub trait IndexTerm: Clone + Debug + Eq + Hash + Send + Sync + 'static {}
impl<T: Clone + Debug + Eq + Hash + Send + Sync + 'static> IndexTerm for T {}

/// An index of a [`Cache`](super::Cache): the terms under which an object is found.
#[derive(Debug)]
pub struct CacheIndex<K, T> {
    name: &'static str,
    terms: fn(&K) -> Vec<T>,
}

impl<K, T> CacheIndex<K, T> {
    /// The name is unique among the indexes of a kind.
    pub const fn new(name: &'static str, terms: fn(&K) -> Vec<T>) -> Self {
        Self { name, terms }
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn matches<Q: Eq + ?Sized>(&self, object: &K, term: &Q) -> bool
    where
        T: Borrow<Q>,
    {
        (self.terms)(object).iter().any(|own| own.borrow() == term)
    }
}

/// An index with any type of term, so that a cache can hold several.
pub trait AnyIndex<K: CacheableKind>: Sync {
    #[doc(hidden)]
    fn keep(&self) -> Box<dyn IndexUpdater<K>>;
}

impl<K: CacheableKind, T: IndexTerm> AnyIndex<K> for CacheIndex<K, T> {
    fn keep(&self) -> Box<dyn IndexUpdater<K>> {
        Box::new(IndexPostings { name: self.name, terms: self.terms, objects: HashMap::new() })
    }
}

#[doc(hidden)]
pub trait IndexUpdater<K: CacheableKind>: Send + Sync {
    fn name(&self) -> &'static str;
    fn change(&mut self, old: Option<&Arc<K>>, new: Option<&Arc<K>>);
    fn as_any(&self) -> &dyn Any;
}

/// Most terms have one object, some have thousands; sorted lists are small and fast enough for both.
pub(super) struct IndexPostings<K, T> {
    name: &'static str,
    terms: fn(&K) -> Vec<T>,
    objects: HashMap<T, Vec<Arc<K>>>,
}

impl<K: CacheableKind, T: IndexTerm> IndexUpdater<K> for IndexPostings<K, T> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn change(&mut self, old: Option<&Arc<K>>, new: Option<&Arc<K>>) {
        let terms = |object: Option<&Arc<K>>| object.map(|object| (self.terms)(object)).unwrap_or_default();
        let (before, after) = (terms(old), terms(new));
        if let Some(old) = old {
            before.iter().filter(|term| !after.contains(term)).for_each(|term| self.remove(term, old));
        }
        if let Some(new) = new {
            after.into_iter().for_each(|term| self.insert(term, new));
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl<K: CacheableKind, T: IndexTerm> IndexPostings<K, T> {
    pub(super) fn get<Q: Eq + Hash + ?Sized>(&self, term: &Q) -> &[Arc<K>]
    where
        T: Borrow<Q>,
    {
        self.objects.get(term).map(Vec::as_slice).unwrap_or_default()
    }

    fn insert(&mut self, term: T, object: &Arc<K>) {
        let objects = self.objects.entry(term).or_default();
        match position(objects, object) {
            Ok(place) => objects[place] = Arc::clone(object),
            Err(place) => objects.insert(place, Arc::clone(object)),
        }
    }

    fn remove(&mut self, term: &T, object: &Arc<K>) {
        let Some(objects) = self.objects.get_mut(term) else { return };
        if let Ok(place) = position(objects, object) {
            objects.remove(place);
        }
        if objects.is_empty() {
            self.objects.remove(term);
        }
    }
}

fn position<K: CacheableKind>(objects: &[Arc<K>], object: &Arc<K>) -> Result<usize, usize> {
    let name = |object: &Arc<K>| (object.meta().namespace.clone(), object.meta().name.clone());
    let wanted = name(object);
    objects.binary_search_by(|other| {
        let meta = other.meta();
        (&meta.namespace, &meta.name).cmp(&(&wanted.0, &wanted.1))
    })
}
