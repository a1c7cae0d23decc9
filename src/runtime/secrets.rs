//! Secrets of the control namespace: metadata of all from a watch, data only of requested ones, read again after a
//! change.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt, core::PartialObjectMeta};
use parking_lot::Mutex;

use super::{
    cache::{Key, ObjectCache},
    dated::DatedObject,
    objects::read,
};
use mcm_api::syntax::is_subdomain;

/// The data of a Secret. It must not be logged.
pub type SecretContent = BTreeMap<String, Vec<u8>>;

/// The Secrets of a control cluster. Clones share what they have read.
#[derive(Clone)]
pub struct SecretCache {
    /// Metadata of all Secrets.
    pub cache: Arc<ObjectCache<PartialObjectMeta<Secret>>>,
    client: Client,
    held: Arc<Mutex<HashMap<Key, CachedSecret>>>,
}

#[derive(Clone)]
struct CachedSecret {
    version: Option<String>,
    data: Arc<SecretContent>,
}

impl SecretCache {
    /// The Secrets of a control cluster.
    pub fn new(cache: Arc<ObjectCache<PartialObjectMeta<Secret>>>, client: &Client) -> Self {
        let secrets = Self { cache, client: client.clone(), held: Arc::default() };
        let held = Arc::clone(&secrets.held);
        secrets.cache.on_change(move |change| {
            if change.gone {
                held.lock().remove(&change.key);
            }
        });
        secrets
    }

    /// Drops the data of a Secret that is not used any more.
    pub fn forget(&self, secret: &Key) {
        self.held.lock().remove(secret);
    }

    /// The data of a Secret; `None` if it does not exist.
    ///
    /// # Errors
    /// The Secret could not be read.
    pub async fn data(&self, key: &Key) -> Result<Option<Arc<SecretContent>>, kube::Error> {
        // A name from a spec becomes a part of a URL. The API server has no object with another name.
        if !is_subdomain(&key.name) {
            return Ok(None);
        }
        let known = self.cache.get(key);
        if let Some(known) = &known
            && let Some(held) = self.held.lock().get(key)
            && held.version == known.resource_version()
        {
            return Ok(Some(Arc::clone(&held.data)));
        }
        let Some(secret) = self.read(key).await? else {
            self.held.lock().remove(key);
            return Ok(None);
        };
        let data: SecretContent = secret.data.into_iter().flatten().map(|(key, value)| (key, value.0)).collect();
        let held = CachedSecret { version: secret.metadata.resource_version, data: Arc::new(data) };
        let data = Arc::clone(&held.data);
        self.held.lock().insert(key.clone(), held);
        Ok(Some(data))
    }

    async fn read(&self, key: &Key) -> Result<Option<Secret>, kube::Error> {
        let api: Api<DatedObject<Secret>> = Api::namespaced(self.client.clone(), &key.namespace);
        read(&api, &key.name).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use kube::{client::Body, runtime::watcher::Event};
    use serde_json::json;

    use super::*;
    use crate::guard::GuardedObject;

    fn metadata(version: &str) -> PartialObjectMeta<Secret> {
        let metadata = json!({ "name": "s", "namespace": "n", "uid": "u", "resourceVersion": version });
        serde_json::from_value(json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata })).unwrap()
    }

    #[tokio::test]
    async fn a_secret_is_missing_only_if_the_api_server_says_so_of_it() {
        for (details, is_known) in [(json!({ "name": "s", "kind": "secrets" }), true), (json!({}), false)] {
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "reason": "NotFound",
                "message": "not found", "details": details,
            });
            let service = tower::service_fn(move |_: http::Request<Body>| {
                let body = Body::from(status.to_string().into_bytes());
                let answer = http::Response::builder().status(404).body(body);
                async move { answer }
            });
            let secrets = SecretCache::new(ObjectCache::new(&[], |_| {}), &Client::new(service, "default"));
            let answer = secrets.data(&Key::new("n", "s")).await;
            assert_eq!(answer.is_ok_and(|data| data.is_none()), is_known);
        }
    }

    /// Some proxies shorten paths, so a slash in a name could lead to another namespace.
    #[tokio::test]
    async fn a_name_that_no_secret_can_have_is_not_looked_up() {
        let service = tower::service_fn(|request: http::Request<Body>| async move {
            Err::<http::Response<Body>, _>(format!("{} is not requested", request.uri()))
        });
        let secrets = SecretCache::new(ObjectCache::new(&[], |_| {}), &Client::new(service, "default"));
        for name in ["../../other/secrets/credentials", "a/b", "a?b", "", "..", "%2e%2e"] {
            assert_eq!(secrets.data(&Key::new("n", name)).await.unwrap(), None, "{name}");
        }
    }

    #[tokio::test]
    async fn data_are_read_once_and_forgotten_with_their_secret_or_when_nobody_needs_them() {
        let reads = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&reads);
        let service = tower::service_fn(move |_: http::Request<Body>| {
            counter.fetch_add(1, Ordering::SeqCst);
            let mut secret = serde_json::to_value(metadata("7")).unwrap();
            secret["data"] = json!({ "key": "dmFsdWU=" });
            let answer = http::Response::new(Body::from(secret.to_string().into_bytes()));
            async move { Ok::<_, std::convert::Infallible>(answer) }
        });
        let cache = ObjectCache::new(&[], |_| {});
        let secrets = SecretCache::new(Arc::clone(&cache), &Client::new(service, "default"));
        cache.observe(Event::Apply(GuardedObject::Readable(metadata("7"))));
        let key = Key::new("n", "s");
        for _ in 0..3 {
            assert_eq!(secrets.data(&key).await.unwrap().unwrap()["key"], b"value");
        }
        assert_eq!(reads.load(Ordering::SeqCst), 1);

        secrets.forget(&key);
        assert!(secrets.held.lock().is_empty());
        secrets.data(&key).await.unwrap();
        cache.observe(Event::Delete(GuardedObject::Readable(metadata("8"))));
        assert!(secrets.held.lock().is_empty(), "credentials of a deleted Secret are not kept");
    }
}
