//! Writes whose results enter the cache before anyone plans again.

use std::sync::Arc;

use k8s_openapi::{NamespaceResourceScope, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
    core::{Status, response::StatusSummary},
};
use serde::Serialize;
use serde_json::{Value, json};

use super::cache::{Cache, Cached, Key};

/// A write that failed.
#[derive(Debug, thiserror::Error)]
#[error("{verb} of {kind} {key} failed")]
pub struct WriteError {
    verb: &'static str,
    kind: String,
    key: Key,
    #[source]
    source: Box<kube::Error>,
}

/// Why a write failed, as far as it matters for what comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteFailure {
    /// Somebody else wrote in between: look again.
    Conflict,
    /// The object is gone, or another one has its name.
    Gone,
    /// The name is taken.
    AlreadyExists,
    /// The API server refused it for good.
    Refused,
    /// It may have been carried out or not.
    Unknown,
}

impl WriteError {
    /// A failed call.
    pub fn new(verb: &'static str, kind: impl Into<String>, key: Key, source: kube::Error) -> Self {
        Self { verb, kind: kind.into(), key, source: Box::new(source) }
    }

    /// Classifies the failure.
    pub fn failure(&self) -> WriteFailure {
        let kube::Error::Api(status) = &*self.source else { return WriteFailure::Unknown };
        match (status.code, status.reason.as_str()) {
            (404, _) if is_about(status, &self.key) => WriteFailure::Gone,
            (409, "AlreadyExists") => WriteFailure::AlreadyExists,
            (409, _) => WriteFailure::Conflict,
            (400..=403 | 405..=422, _) => WriteFailure::Refused,
            _ => WriteFailure::Unknown,
        }
    }

    /// The whole chain of causes in one line.
    pub fn text(&self) -> String {
        chain(self)
    }
}

/// Whether an answer is about this very object. A 404 is also what an API server says that does not know the kind.
fn is_about(status: &Status, key: &Key) -> bool {
    status.details.as_ref().is_some_and(|details| details.name == key.name)
}

/// An error and its causes in one line. Of an API server's refusal only its message: the rest repeats it.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = said(error);
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = said(cause);
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        if refusal(cause).is_some() {
            break;
        }
        source = cause.source();
    }
    text
}

fn said(error: &(dyn std::error::Error + 'static)) -> String {
    match refusal(error) {
        Some(status) if !status.message.is_empty() => status.message.clone(),
        _ => error.to_string(),
    }
}

fn refusal<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Status> {
    let boxed = error.downcast_ref::<Box<kube::Error>>().map(|error| &**error);
    match boxed.or_else(|| error.downcast_ref::<kube::Error>())? {
        kube::Error::Api(status) => Some(status),
        _ => None,
    }
}

/// The objects of one kind: its cache, and the way to write them.
pub struct Objects<K: Cached> {
    /// What is known.
    pub cache: Arc<Cache<K>>,
    api: ApiOfNamespace<K>,
}

type ApiOfNamespace<K> = Box<dyn Fn(&str) -> Api<K> + Send + Sync>;

impl<K: Cached + Serialize> Objects<K> {
    /// Objects of a kind that lives in namespaces.
    pub fn namespaced(cache: &Arc<Cache<K>>, client: &Client) -> Self
    where
        K: Resource<Scope = NamespaceResourceScope>,
    {
        let client = client.clone();
        let api = move |namespace: &str| Api::namespaced(client.clone(), namespace);
        Self { cache: Arc::clone(cache), api: Box::new(api) }
    }

    /// Objects of a kind that lives beside namespaces.
    pub fn cluster_wide(cache: &Arc<Cache<K>>, client: &Client) -> Self {
        let client = client.clone();
        Self { cache: Arc::clone(cache), api: Box::new(move |_| Api::all(client.clone())) }
    }

    /// The API of a namespace.
    pub fn api(&self, namespace: &str) -> Api<K> {
        (self.api)(namespace)
    }

    /// Creates an object.
    pub async fn create(&self, object: &K) -> Result<Arc<K>, WriteError> {
        let key = Key::of(object.meta());
        let created = self.api(&key.namespace).create(&PostParams::default(), object).await;
        self.take("create", key, created)
    }

    /// Merge-patches an object that is still as it was seen.
    pub async fn patch(&self, seen: &ObjectMeta, patch: &Value) -> Result<Arc<K>, WriteError> {
        let key = Key::of(seen);
        let patch = Patch::Merge(with_precondition(patch, seen));
        let name = &key.name;
        let patched = self.api(&key.namespace).patch(name, &PatchParams::default(), &patch).await;
        self.take("patch", key, patched).inspect_err(|error| self.forget_if_gone(error, seen))
    }

    /// Merge-patches the status of an object that is still as it was seen.
    pub async fn patch_status(&self, seen: &ObjectMeta, patch: &Value) -> Result<Arc<K>, WriteError> {
        let key = Key::of(seen);
        let patch = Patch::Merge(with_precondition(patch, seen));
        let patched = self.api(&key.namespace).patch_status(&key.name, &PatchParams::default(), &patch).await;
        self.take("status update", key, patched).inspect_err(|error| self.forget_if_gone(error, seen))
    }

    /// Strategic merge patch of a built-in object that still has the UID it was seen with: names single entries of lists, so
    /// it needs no version.
    pub async fn patch_strategically(&self, seen: &ObjectMeta, patch: &Value) -> Result<Arc<K>, WriteError> {
        let key = Key::of(seen);
        let patch = Patch::Strategic(with_uid(patch, seen));
        let patched = self.api(&key.namespace).patch(&key.name, &PatchParams::default(), &patch).await;
        self.take("patch", key, patched).inspect_err(|error| self.forget_if_gone(error, seen))
    }

    /// Strategic merge patch of the status of a built-in object: names single entries of lists, so it needs no version.
    pub async fn patch_status_strategically(&self, seen: &ObjectMeta, patch: &Value) -> Result<Arc<K>, WriteError> {
        let key = Key::of(seen);
        let patch = Patch::Strategic(patch);
        let patched = self.api(&key.namespace).patch_status(&key.name, &PatchParams::default(), &patch).await;
        self.take("status update", key, patched).inspect_err(|error| self.forget_if_gone(error, seen))
    }

    /// Deletes this very object.
    pub async fn delete(&self, seen: &ObjectMeta) -> Result<(), WriteError> {
        let key = Key::of(seen);
        let uid = seen.uid.clone();
        let parameters = DeleteParams {
            preconditions: Some(Preconditions { uid: uid.clone(), resource_version: None }),
            ..DeleteParams::background()
        };
        match self.api(&key.namespace).delete(&key.name, &parameters).await {
            Ok(either::Either::Left(object)) => {
                self.cache.wrote(object);
                Ok(())
            }
            Ok(either::Either::Right(status)) => {
                if status.status == Some(StatusSummary::Success) {
                    self.cache.removed(&key, uid.as_deref().unwrap_or_default());
                }
                Ok(())
            }
            Err(source) => {
                let error = WriteError::new("delete", K::kind(&()), key, source);
                self.forget_if_gone(&error, seen);
                if error.failure() == WriteFailure::Gone { Ok(()) } else { Err(error) }
            }
        }
    }

    /// The API server has just said that an object is not there.
    fn forget_if_gone(&self, error: &WriteError, seen: &ObjectMeta) {
        if error.failure() == WriteFailure::Gone {
            self.cache.removed(&error.key, seen.uid.as_deref().unwrap_or_default());
        }
    }

    fn take(&self, verb: &'static str, key: Key, answer: kube::Result<K>) -> Result<Arc<K>, WriteError> {
        answer.map(|object| self.cache.wrote(object)).map_err(|source| WriteError::new(verb, K::kind(&()), key, source))
    }
}

/// A merge patch that fails with a conflict if the object is no longer as it was seen.
pub(crate) fn with_precondition(patch: &Value, seen: &ObjectMeta) -> Value {
    with_metadata(patch, "resourceVersion", seen.resource_version.as_deref())
}

/// A patch that fails with a conflict if another object has taken the name.
fn with_uid(patch: &Value, seen: &ObjectMeta) -> Value {
    with_metadata(patch, "uid", seen.uid.as_deref())
}

fn with_metadata(patch: &Value, field: &str, value: Option<&str>) -> Value {
    let mut patch = patch.clone();
    if let (Some(value), Some(fields)) = (value, patch.as_object_mut()) {
        let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.insert(field.to_owned(), json!(value));
        }
    }
    patch
}

/// The patch that turns one status into another: changed fields, and `null` for those that are gone.
pub fn merge_patch(from: &Value, to: &Value) -> Value {
    let (Value::Object(from), Value::Object(to)) = (from, to) else { return to.clone() };
    let mut patch = serde_json::Map::new();
    for (key, value) in to {
        match from.get(key) {
            Some(old) if old == value => {}
            Some(old) => {
                patch.insert(key.clone(), merge_patch(old, value));
            }
            None => {
                patch.insert(key.clone(), value.clone());
            }
        }
    }
    for key in from.keys().filter(|key| !to.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    Value::Object(patch)
}

#[cfg(test)]
mod tests {
    use kube::core::response::StatusDetails;
    use rstest::rstest;

    use super::*;

    #[test]
    fn a_merge_patch_names_only_what_changes() {
        let from = json!({"a": 1, "b": {"c": 2, "d": 3}, "e": [1]});
        let to = json!({"a": 1, "b": {"c": 4}, "e": [1, 2], "f": true});
        assert_eq!(merge_patch(&from, &to), json!({"b": {"c": 4, "d": null}, "e": [1, 2], "f": true}));
        assert_eq!(merge_patch(&to, &to), json!({}));
    }

    #[test]
    fn a_refusal_is_told_in_the_words_of_the_api_server_and_once() {
        let status = Status::failure("the object has been modified", "Conflict").with_code(409);
        let error = WriteError::new("patch", "Node", Key::new("", "n"), kube::Error::Api(Box::new(status)));
        assert_eq!(error.text(), "patch of Node n failed: the object has been modified");
        assert_eq!(error.failure(), WriteFailure::Conflict);
    }

    #[rstest]
    #[case::this_object("n", WriteFailure::Gone)]
    #[case::another_object("default", WriteFailure::Unknown)]
    #[case::the_whole_kind("", WriteFailure::Unknown)]
    fn only_what_the_api_server_names_is_gone(#[case] name: &str, #[case] expected: WriteFailure) {
        let details: StatusDetails = serde_json::from_value(json!({ "name": name })).unwrap();
        let status = Status::failure("not found", "NotFound").with_code(404).with_details(details);
        let error = WriteError::new("patch", "Node", Key::new("", "n"), kube::Error::Api(Box::new(status)));
        assert_eq!(error.failure(), expected);
    }

    #[test]
    fn a_patch_carries_the_version_it_was_made_for() {
        let seen = ObjectMeta { resource_version: Some("7".into()), ..ObjectMeta::default() };
        let patch = with_precondition(&json!({"metadata": {"labels": {"a": "b"}}}), &seen);
        assert_eq!(patch, json!({"metadata": {"labels": {"a": "b"}, "resourceVersion": "7"}}));
    }
}
