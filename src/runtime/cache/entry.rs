//! Objects of a cache: their kinds, their keys, their changes.

use std::{fmt::Debug, hash::Hash, ops::Deref, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::de::DeserializeOwned;

/// A kind that can be cached.
pub trait CacheableKind: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static {}

impl<K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static> CacheableKind for K {}

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
    pub fn from_meta(meta: &ObjectMeta) -> Self {
        Self { namespace: meta.namespace.clone().unwrap_or_default(), name: meta.name.clone().unwrap_or_default() }
    }

    /// The key of this name in the namespace of an object.
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

/// Drops all metadata but the identity of an object, its version and its end.
pub fn keep_identity<K: Resource>(object: &mut K) {
    let meta = object.meta_mut();
    *meta = ObjectMeta {
        name: meta.name.take(),
        namespace: meta.namespace.take(),
        uid: meta.uid.take(),
        resource_version: meta.resource_version.take(),
        generation: meta.generation.take(),
        deletion_timestamp: meta.deletion_timestamp.take(),
        finalizers: meta.finalizers.take(),
        ..ObjectMeta::default()
    };
}

/// A change of one object.
#[derive(Debug)]
pub struct ObjectChange<K> {
    /// The object.
    pub key: Key,
    /// Its metadata, as last known.
    pub meta: ChangeMetadata<K>,
    /// The object before; `None` if none was stored or it was unreadable.
    pub old: Option<Arc<K>>,
    /// The object now; `None` if it was deleted or is unreadable.
    pub new: Option<Arc<K>>,
    /// It was deleted.
    pub gone: bool,
    /// The decoding error, if it exists and cannot be decoded.
    pub unreadable: Option<String>,
}

/// Metadata of a changed object. The first list makes a change for each object, and the copies of their metadata would leave holes in
/// memory between the stored objects.
#[derive(Debug)]
pub enum ChangeMetadata<K> {
    /// Of this object.
    OfObject(Arc<K>),
    /// Of an object that cannot be decoded, or as the watch reported them with a deletion.
    Alone(Box<ObjectMeta>),
}

impl<K: Resource> Deref for ChangeMetadata<K> {
    type Target = ObjectMeta;

    fn deref(&self) -> &ObjectMeta {
        match self {
            Self::OfObject(object) => object.meta(),
            Self::Alone(meta) => meta,
        }
    }
}

impl<K> From<ObjectMeta> for ChangeMetadata<K> {
    fn from(meta: ObjectMeta) -> Self {
        Self::Alone(Box::new(meta))
    }
}

/// An object that exists and cannot be decoded.
#[derive(Clone, Debug)]
pub struct UnreadableObject {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// The decoding error.
    pub error: String,
}

#[cfg(any(test, feature = "testing"))]
impl<K: CacheableKind> ObjectChange<K> {
    /// The change from one state of an object to another, of which at least one exists.
    pub fn between(old: Option<K>, new: Option<K>) -> Self {
        let (old, new) = (old.map(Arc::new), new.map(Arc::new));
        let object = new.as_ref().or(old.as_ref()).cloned();
        let meta = object.map_or_else(|| ObjectMeta::default().into(), ChangeMetadata::OfObject);
        let (key, gone) = (Key::from_meta(&meta), new.is_none());
        Self { key, meta, old, new, gone, unreadable: None }
    }
}
