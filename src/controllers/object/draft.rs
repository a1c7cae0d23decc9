//! Collects changes to one object into one merge patch, or none.

use std::{collections::BTreeMap, sync::Arc};

use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde_json::Value;

use mcm_api::patch;
use mcm_rules::plan::Event;

/// An object as it is in the cache, and as it is desired.
#[derive(Clone, Debug)]
pub struct ObjectDraft<K> {
    current: Arc<K>,
    desired: Option<K>,
    reasons: Vec<String>,
    event: Option<Event>,
}

/// A finished draft that differs from the current object.
pub struct DraftPatch<K> {
    pub current: Arc<K>,
    pub patch: Value,
    pub reason: String,
    pub event: Option<Event>,
}

impl<K: Clone + Serialize> ObjectDraft<K> {
    pub fn new(current: Arc<K>) -> Self {
        Self { current, desired: None, reasons: Vec::new(), event: None }
    }

    pub(crate) fn current(&self) -> &Arc<K> {
        &self.current
    }

    pub(crate) fn desired(&self) -> &K {
        self.desired.as_ref().unwrap_or(&self.current)
    }

    /// Changes the desired object, for a reason.
    pub fn edit(&mut self, reason: impl Into<String>, change: impl FnOnce(&mut K)) {
        change(self.desired.get_or_insert_with(|| K::clone(&self.current)));
        self.reasons.push(reason.into());
    }

    /// The event to record after the patch; only the first one counts.
    pub(crate) fn record(&mut self, event: Event) {
        self.event.get_or_insert(event);
    }

    /// The patch from current to desired; `None` if they do not differ.
    pub fn finish(self) -> Option<DraftPatch<K>> {
        let to = serde_json::to_value(self.desired?).ok()?;
        let from = serde_json::to_value(self.current.as_ref()).ok()?;
        let patch = patch::diff(&from, &to)?;
        Some(DraftPatch { current: self.current, patch, reason: self.reasons.join("; "), event: self.event })
    }
}

/// Drafts of several objects of one kind, by name.
#[derive(Clone, Debug)]
pub(crate) struct DraftsByName<K>(BTreeMap<String, ObjectDraft<K>>);

impl<K> Default for DraftsByName<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Resource<DynamicType = ()> + Clone + Serialize> DraftsByName<K> {
    /// Changes an object, for a reason.
    pub(crate) fn edit(&mut self, current: &Arc<K>, reason: impl Into<String>, change: impl FnOnce(&mut K)) {
        self.0.entry(current.name_any()).or_insert_with(|| ObjectDraft::new(Arc::clone(current))).edit(reason, change);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn has(&self, current: &K) -> bool {
        self.0.contains_key(&current.name_any())
    }

    /// The desired object so far.
    pub(crate) fn desired<'a>(&'a self, current: &'a Arc<K>) -> &'a K {
        self.0.get(&current.name_any()).map_or(current, ObjectDraft::desired)
    }

    /// The changes, by name of the object.
    pub(crate) fn finish(self) -> impl Iterator<Item = DraftPatch<K>> {
        self.0.into_values().filter_map(ObjectDraft::finish)
    }
}
