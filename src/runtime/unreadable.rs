//! Events on objects that exist and cannot be decoded.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::ObjectMeta};

use super::{
    cache::{CacheableKind, ObjectCache},
    events::EventRecorder,
};
use mcm_api::reasons::EventReason;
use mcm_rules::plan::Event;

/// Records an event on each object that becomes unreadable while `is_active`.
pub(super) fn watch<K: CacheableKind>(cache: &ObjectCache<K>, events: &EventRecorder, is_active: Arc<AtomicBool>) {
    let events = events.clone();
    cache.on_change(move |change| {
        if let Some(error) = change.unreadable.as_ref().filter(|_| is_active.load(Ordering::Relaxed)) {
            events.record_for(reference::<K>(&change.meta), &event(error));
        }
    });
}

/// Records an event on each object that is unreadable now.
pub(super) fn report<K: CacheableKind>(cache: &ObjectCache<K>, events: &EventRecorder) {
    for object in cache.unreadable() {
        events.record_for(reference::<K>(&object.meta), &event(&object.error));
    }
}

fn reference<K: CacheableKind>(meta: &ObjectMeta) -> ObjectReference {
    ObjectReference {
        api_version: Some(K::api_version(&()).into_owned()),
        kind: Some(K::kind(&()).into_owned()),
        name: meta.name.clone(),
        namespace: meta.namespace.clone(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
        ..ObjectReference::default()
    }
}

fn event(error: &str) -> Event {
    Event::warning(
        EventReason::Unreadable,
        format!("cannot be decoded and is left alone until it is corrected: {error}"),
    )
}
