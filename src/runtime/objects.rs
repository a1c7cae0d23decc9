//! Writes whose responses enter the cache before the next plan.

use std::sync::Arc;

use k8s_openapi::{NamespaceResourceScope, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, GetParams, Patch, PatchParams, PostParams, Preconditions},
    core::{Request, Status, response::StatusSummary},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{
    cache::{CacheableKind, Key, ObjectCache},
    dated::DatedObject,
    guard::GuardedObject,
    paths::is_path_part,
};

/// A write that failed.
#[derive(Debug, thiserror::Error)]
#[error("{verb} of {kind} {key} failed")]
pub struct ObjectWriteError {
    verb: &'static str,
    kind: String,
    key: Key,
    #[source]
    source: Box<kube::Error>,
}

/// Classification of a failed write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteFailure {
    /// Another client wrote the object since it was observed: observe again.
    Conflict,
    /// The object was deleted, or another one has its name.
    Gone,
    /// The name is taken.
    AlreadyExists,
    /// The API server rejected it; a retry does not help without a change.
    Refused,
    /// The API server was overloaded and rejected it without effect.
    Throttled,
    /// The outcome is unknown.
    Unknown,
}

impl ObjectWriteError {
    /// A failed call.
    pub fn new(verb: &'static str, kind: impl Into<String>, key: Key, source: kube::Error) -> Self {
        Self { verb, kind: kind.into(), key, source: Box::new(source) }
    }

    /// Classifies the failure.
    pub fn failure(&self) -> WriteFailure {
        let kube::Error::Api(status) = &*self.source else { return WriteFailure::Unknown };
        match (status.code, status.reason.as_str()) {
            (404, _) if is_about(status, &self.key.name) => WriteFailure::Gone,
            (409, "AlreadyExists") => WriteFailure::AlreadyExists,
            (409 | 422, _) if is_about_uid(status) => WriteFailure::Gone,
            (409, _) => WriteFailure::Conflict,
            (429, _) => WriteFailure::Throttled,
            (400..=403 | 405..=422, _) => WriteFailure::Refused,
            _ => WriteFailure::Unknown,
        }
    }

    /// Kind of the object.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Key of the object.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The error with all its causes, in one line.
    pub fn text(&self) -> String {
        chain(self)
    }
}

/// A response is about this object. A 404 can also mean that the API server does not serve the kind.
fn is_about(status: &Status, name: &str) -> bool {
    status.details.as_ref().is_some_and(|details| details.name == name)
}

/// Reads an object live. `None` only if the API server reports that this object does not exist; an API server that does
/// not serve the kind at the moment is an error.
pub async fn read<K>(api: &Api<DatedObject<K>>, name: &str) -> kube::Result<Option<K>>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    // A name from a spec becomes a part of a path. The API server has no object with another name.
    if !is_path_part(name) {
        return Ok(None);
    }
    match Box::pin(api.get(name)).await {
        Ok(DatedObject(object)) => Ok(Some(object)),
        Err(kube::Error::Api(status)) if status.code == 404 && is_about(&status, name) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A response shows that another object has the name now: a delete fails by its precondition, a patch because a
/// UID cannot change.
fn is_about_uid(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.message.contains("Precondition failed: UID in precondition")
        || causes.into_iter().any(|cause| cause.field == "metadata.uid")
}

/// An error with its causes, in one line. Of an API server's error only the message, because the rest repeats it.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = said(error);
    let mut source = if refusal(error).is_some() { None } else { error.source() };
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
    match boxed.or_else(|| error.downcast_ref::<kube::Error>()) {
        Some(kube::Error::Api(status)) => Some(status),
        Some(_) => None,
        // A wrapper that is transparent has the text of kube's error, which contains the whole response.
        None if error.to_string().starts_with("ApiError: ") => {
            let source = error.source()?;
            let boxed = source.downcast_ref::<Box<Status>>().map(|status| &**status);
            boxed.or_else(|| source.downcast_ref::<Status>())
        }
        None => None,
    }
}

/// The objects of one kind: cache and writes. The future of a request is large (1.5 KB) and there are many reconciles, so
/// it is boxed: a reconcile holds it only during the request.
pub struct CachedApi<K: CacheableKind> {
    /// The cache.
    pub cache: Arc<ObjectCache<K>>,
    api: ApiOfNamespace<K>,
}

type ApiOfNamespace<K> = Box<dyn Fn(&str) -> Api<DatedObject<K>> + Send + Sync>;

impl<K: CacheableKind + Serialize> CachedApi<K> {
    /// Objects of a namespaced kind.
    pub fn namespaced(cache: &Arc<ObjectCache<K>>, client: &Client) -> Self
    where
        K: Resource<Scope = NamespaceResourceScope>,
    {
        let client = client.clone();
        let api = move |namespace: &str| Api::namespaced(client.clone(), namespace);
        Self { cache: Arc::clone(cache), api: Box::new(api) }
    }

    /// Objects of a cluster-scoped kind.
    pub fn cluster_wide(cache: &Arc<ObjectCache<K>>, client: &Client) -> Self {
        let client = client.clone();
        Self { cache: Arc::clone(cache), api: Box::new(move |_| Api::all(client.clone())) }
    }

    /// The API of a namespace.
    pub fn api(&self, namespace: &str) -> Api<DatedObject<K>> {
        (self.api)(namespace)
    }

    /// Reads an object live, as [`read`] does, and stores it in the cache.
    pub async fn read_again(&self, key: &Key) -> kube::Result<Option<Arc<K>>> {
        let known = self.cache.get(key);
        if let Some(object) = read(&self.api(&key.namespace), &key.name).await? {
            return Ok(Some(self.cache.wrote(object)));
        }
        if let Some(uid) = known.and_then(|known| known.meta().uid.clone()) {
            self.cache.removed(key, &uid);
        }
        Ok(None)
    }

    /// Reads an object live, as [`Self::read_again`] does: true if it has the UID that was seen, and is not being deleted. An
    /// owner is read before an adoption: the garbage collector releases the objects of an owner that is deleted with the policy
    /// `Orphan`, and the cache may show that first.
    pub async fn is_alive(&self, seen: &ObjectMeta) -> Result<bool, ObjectWriteError> {
        let key = Key::from_meta(seen);
        let read = self.read_again(&key).await;
        let live = read.map_err(|source| ObjectWriteError::new("read", K::kind(&()), key, source))?;
        Ok(live.is_some_and(|live| live.meta().uid == seen.uid && live.meta().deletion_timestamp.is_none()))
    }

    /// Reads an object live, as the API server stores it.
    pub async fn stored(&self, seen: &ObjectMeta) -> Result<Value, ObjectWriteError> {
        let key = Key::from_meta(seen);
        let path = K::url_path(&(), Some(key.namespace.as_str()).filter(|namespace| !namespace.is_empty()));
        let read = async {
            let request =
                Request::new(path).get(&key.name, &GetParams::default()).map_err(kube::Error::BuildRequest)?;
            self.api(&key.namespace).into_client().request::<Value>(request).await
        };
        Box::pin(read).await.map_err(|source| ObjectWriteError::new("read", K::kind(&()), key.clone(), source))
    }

    /// Creates an object.
    pub async fn create(&self, object: &K) -> Result<Arc<K>, ObjectWriteError> {
        let key = Key::from_meta(object.meta());
        let object = DatedObject(object.clone());
        let created = Box::pin(self.api(&key.namespace).create(&PostParams::default(), &object)).await;
        self.take("create", key, created)
    }

    /// Sends a new object as a dry run, and returns it as the API server would store it.
    pub async fn try_create(&self, object: &K) -> Result<K, ObjectWriteError> {
        let key = Key::from_meta(object.meta());
        let how = PostParams { dry_run: true, ..PostParams::default() };
        let object = DatedObject(object.clone());
        let answer = Box::pin(self.api(&key.namespace).create(&how, &object)).await;
        answer
            .map(|DatedObject(object)| object)
            .map_err(|source| ObjectWriteError::new("dry run of a create", K::kind(&()), key, source))
    }

    /// Sends a merge patch with UID and resource version of `seen` as preconditions.
    pub async fn patch(&self, seen: &ObjectMeta, patch: &Value) -> Result<Arc<K>, ObjectWriteError> {
        let key = Key::from_meta(seen);
        let patch = Patch::Merge(with_precondition(patch, seen));
        let (api, how) = (self.api(&key.namespace), PatchParams::default());
        let patched = Box::pin(api.patch(&key.name, &how, &patch)).await;
        self.take("patch", key, patched).inspect_err(|error| self.forget_if_gone(error, seen))
    }

    /// Sends a merge patch with UID and resource version of `seen` as preconditions, also of an object that cannot be
    /// decoded: the response needs only metadata that can be.
    pub async fn patch_any(&self, seen: &ObjectMeta, patch: &Value) -> Result<ObjectMeta, ObjectWriteError> {
        let key = Key::from_meta(seen);
        let path = K::url_path(&(), Some(key.namespace.as_str()).filter(|namespace| !namespace.is_empty()));
        let patch = Patch::Merge(with_precondition(patch, seen));
        let patched = async {
            let request = Request::new(path).patch(&key.name, &PatchParams::default(), &patch);
            let request = request.map_err(kube::Error::BuildRequest)?;
            self.api(&key.namespace).into_client().request::<GuardedObject<K>>(request).await
        };
        match Box::pin(patched).await {
            Ok(object) => {
                let metadata = object.meta().clone();
                self.cache.wrote_any(object);
                Ok(metadata)
            }
            Err(source) => {
                let error = ObjectWriteError::new("patch", K::kind(&()), key, source);
                self.forget_if_gone(&error, seen);
                Err(error)
            }
        }
    }

    /// Sends a merge patch of the status with UID and resource version of `seen` as preconditions.
    pub async fn patch_status(&self, seen: &ObjectMeta, patch: &Value) -> Result<Arc<K>, ObjectWriteError> {
        let key = Key::from_meta(seen);
        let patch = Patch::Merge(with_precondition(patch, seen));
        let (api, how) = (self.api(&key.namespace), PatchParams::default());
        let patched = Box::pin(api.patch_status(&key.name, &how, &patch)).await;
        self.take("status update", key, patched).inspect_err(|error| self.forget_if_gone(error, seen))
    }

    /// Sends a strategic merge patch of a built-in object with the UID of `seen` as precondition. It names single
    /// entries of lists, so it needs no resource version.
    pub async fn patch_strategically(&self, seen: &ObjectMeta, patch: &Value) -> Result<Arc<K>, ObjectWriteError> {
        let key = Key::from_meta(seen);
        let patch = Patch::Strategic(with_uid(patch, seen));
        let (api, how) = (self.api(&key.namespace), PatchParams::default());
        let patched = Box::pin(api.patch(&key.name, &how, &patch)).await;
        self.take("patch", key, patched).inspect_err(|error| self.forget_if_gone(error, seen))
    }

    /// Sends a strategic merge patch of the status of a built-in object with the UID of `seen` as precondition. It
    /// names single entries of lists, so it needs no resource version.
    pub async fn patch_status_strategically(
        &self,
        seen: &ObjectMeta,
        patch: &Value,
    ) -> Result<Arc<K>, ObjectWriteError> {
        let key = Key::from_meta(seen);
        let patch = Patch::Strategic(with_uid(patch, seen));
        let (api, how) = (self.api(&key.namespace), PatchParams::default());
        let patched = Box::pin(api.patch_status(&key.name, &how, &patch)).await;
        self.take("status update", key, patched).inspect_err(|error| self.forget_if_gone(error, seen))
    }

    /// Deletes an object with the UID of `seen` as precondition.
    pub async fn delete(&self, seen: &ObjectMeta) -> Result<(), ObjectWriteError> {
        self.delete_if(seen, Preconditions { uid: seen.uid.clone(), resource_version: None }).await
    }

    /// Deletes an object with UID and resource version of `seen` as preconditions: not if it has changed, and so not if it
    /// has another owner by now.
    pub async fn delete_unchanged(&self, seen: &ObjectMeta) -> Result<(), ObjectWriteError> {
        let resource_version = seen.resource_version.clone();
        self.delete_if(seen, Preconditions { uid: seen.uid.clone(), resource_version }).await
    }

    async fn delete_if(&self, seen: &ObjectMeta, preconditions: Preconditions) -> Result<(), ObjectWriteError> {
        let key = Key::from_meta(seen);
        let uid = seen.uid.clone();
        let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
        match Box::pin(self.api(&key.namespace).delete(&key.name, &parameters)).await {
            Ok(either::Either::Left(DatedObject(object))) => {
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
                let error = ObjectWriteError::new("delete", K::kind(&()), key, source);
                self.forget_if_gone(&error, seen);
                if error.failure() == WriteFailure::Gone { Ok(()) } else { Err(error) }
            }
        }
    }

    /// Stores that an object does not exist, as the API server just reported.
    fn forget_if_gone(&self, error: &ObjectWriteError, seen: &ObjectMeta) {
        if error.failure() == WriteFailure::Gone {
            self.cache.removed(&error.key, seen.uid.as_deref().unwrap_or_default());
        }
    }

    fn take(
        &self,
        verb: &'static str,
        key: Key,
        answer: kube::Result<DatedObject<K>>,
    ) -> Result<Arc<K>, ObjectWriteError> {
        let written = answer.map(|DatedObject(object)| self.cache.wrote(object));
        written.map_err(|source| ObjectWriteError::new(verb, K::kind(&()), key, source))
    }
}

/// Adds UID and resource version to a merge patch, so that it fails with a conflict if the object has changed.
fn with_precondition(patch: &Value, seen: &ObjectMeta) -> Value {
    with_metadata(patch, "resourceVersion", seen.resource_version.as_deref())
}

/// Adds the UID to a patch, so that it fails with a conflict if another object has the name.
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

#[cfg(test)]
mod tests;
