//! The patches of a plan, as the reconcile loop compares them with what was stored.

use std::borrow::Cow;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Serialize;
use serde_json::{Value, json};

use super::subject::SubjectRef;
use mcm_api::patch;

/// The patch that an action sends, and the object as the plan saw it.
pub struct SentPatch<'a> {
    pub(super) object: SubjectRef,
    pub(super) uid: &'a str,
    pub(super) stored: Box<dyn Fn() -> Value + 'a>,
    pub(super) patch: Cow<'a, Value>,
}

impl<'a> SentPatch<'a> {
    /// A patch of an object.
    pub fn new<K: Resource<DynamicType = ()> + Serialize>(object: &'a K, patch: &'a Value) -> Self {
        Self::with(object, Cow::Borrowed(patch))
    }

    /// A patch that was packed.
    pub fn packed<K: Resource<DynamicType = ()> + Serialize>(object: &'a K, patch: &patch::Packed) -> Self {
        Self::with(object, Cow::Owned(patch.unpack()))
    }

    /// A patch of an object of which only the metadata is known.
    pub fn of_metadata(kind: &str, meta: &'a ObjectMeta, patch: &'a Value) -> Self {
        Self {
            object: SubjectRef {
                kind: kind.to_owned(),
                namespace: meta.namespace.clone().unwrap_or_default(),
                name: meta.name.clone().unwrap_or_default(),
            },
            uid: meta.uid.as_deref().unwrap_or_default(),
            stored: Box::new(move || json!({ "metadata": meta })),
            patch: Cow::Borrowed(patch),
        }
    }

    fn with<K: Resource<DynamicType = ()> + Serialize>(object: &'a K, patch: Cow<'a, Value>) -> Self {
        Self {
            object: SubjectRef::from_object(object),
            uid: object.meta().uid.as_deref().unwrap_or_default(),
            stored: Box::new(move || serde_json::to_value(object).unwrap_or_default()),
            patch,
        }
    }
}

/// A patch that was accepted, was undone, and is wanted again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndoneWrite {
    /// The object.
    pub object: SubjectRef,
    /// The field that differs, with both values.
    pub difference: String,
    /// When it is sent again; `None` if that is now.
    pub until: Option<Timestamp>,
}
