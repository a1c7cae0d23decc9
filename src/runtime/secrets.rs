//! Secrets of the control namespace: metadata of all, data only of those that a class in use refers to, read when it
//! changed.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt, core::PartialObjectMeta};
use parking_lot::Mutex;

use super::cache::{Cache, Key};
use crate::{
    api::machine::{MachineClass, SecretRef},
    driver::SecretData,
};

/// The Secrets of a control cluster. Clones share what they have read.
#[derive(Clone)]
pub struct Secrets {
    /// Metadata of all Secrets.
    pub cache: Arc<Cache<PartialObjectMeta<Secret>>>,
    client: Client,
    held: Arc<Mutex<HashMap<Key, Held>>>,
}

#[derive(Clone)]
struct Held {
    version: Option<String>,
    data: Arc<BTreeMap<String, Vec<u8>>>,
}

/// The merged data of a class.
#[derive(Clone, Debug, Default)]
pub struct Merged {
    /// Data of `secretRef`, overlaid by that of `credentialsSecretRef`.
    pub data: SecretData,
    /// Secrets that the class names and that certainly do not exist.
    pub missing: Vec<String>,
}

impl Secrets {
    /// The Secrets of a control cluster.
    pub fn new(cache: Arc<Cache<PartialObjectMeta<Secret>>>, client: &Client) -> Self {
        let secrets = Self { cache, client: client.clone(), held: Arc::default() };
        let held = Arc::clone(&secrets.held);
        secrets.cache.on_change(move |change| {
            if change.gone {
                held.lock().remove(&change.key);
            }
        });
        secrets
    }

    /// Drops what was read of a Secret that no class refers to any more.
    pub fn forget(&self, secret: &Key) {
        self.held.lock().remove(secret);
    }

    /// The data for calls about a class.
    ///
    /// # Errors
    /// If a Secret could not be read; one that certainly does not exist is no error but listed as missing.
    pub async fn of_class(&self, class: &MachineClass) -> Result<Merged, kube::Error> {
        let mut merged = Merged::default();
        for reference in [&class.secret_ref, &class.credentials_secret_ref].into_iter().flatten() {
            match self.data(class.metadata.namespace.as_deref().unwrap_or_default(), reference).await? {
                Some(data) => merged.data.0.extend(data.iter().map(|(key, value)| (key.clone(), value.clone()))),
                None => merged.missing.push(format!("{}/{}", reference.namespace, reference.name)),
            }
        }
        Ok(merged)
    }

    /// Only Secrets beside the class count, whatever namespace the reference names.
    async fn data(
        &self,
        namespace: &str,
        reference: &SecretRef,
    ) -> Result<Option<Arc<BTreeMap<String, Vec<u8>>>>, kube::Error> {
        let elsewhere = !reference.namespace.is_empty() && reference.namespace != namespace;
        if elsewhere || reference.name.is_empty() {
            return Ok(None);
        }
        let key = Key::new(namespace, &reference.name);
        let known = self.cache.get(&key);
        if let Some(known) = &known
            && let Some(held) = self.held.lock().get(&key)
            && held.version == known.resource_version()
        {
            return Ok(Some(Arc::clone(&held.data)));
        }
        let Some(secret) = Api::<Secret>::namespaced(self.client.clone(), namespace).get_opt(&key.name).await? else {
            self.held.lock().remove(&key);
            return Ok(None);
        };
        let data: BTreeMap<_, _> = secret.data.into_iter().flatten().map(|(key, value)| (key, value.0)).collect();
        let held = Held { version: secret.metadata.resource_version, data: Arc::new(data) };
        let data = Arc::clone(&held.data);
        self.held.lock().insert(key, held);
        Ok(Some(data))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use kube::{client::Body, runtime::watcher::Event};
    use serde_json::json;

    use super::*;
    use crate::runtime::guard::Guard;

    fn metadata(version: &str) -> PartialObjectMeta<Secret> {
        let metadata = json!({ "name": "s", "namespace": "n", "uid": "u", "resourceVersion": version });
        serde_json::from_value(json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata })).unwrap()
    }

    #[tokio::test]
    async fn data_are_read_once_and_forgotten_with_their_secret_and_with_their_last_class() {
        let reads = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&reads);
        let service = tower::service_fn(move |_: http::Request<Body>| {
            counter.fetch_add(1, Ordering::SeqCst);
            let mut secret = serde_json::to_value(metadata("7")).unwrap();
            secret["data"] = json!({ "key": "dmFsdWU=" });
            let answer = http::Response::new(Body::from(secret.to_string().into_bytes()));
            async move { Ok::<_, std::convert::Infallible>(answer) }
        });
        let cache = Cache::new(&[], |_| {});
        let secrets = Secrets::new(Arc::clone(&cache), &Client::new(service, "default"));
        cache.observe(Event::Apply(Guard::Readable(metadata("7"))));
        let class: MachineClass = serde_json::from_value(
            json!({ "metadata": { "namespace": "n" }, "secretRef": { "name": "s", "namespace": "n" } }),
        )
        .unwrap();
        for _ in 0..3 {
            assert_eq!(secrets.of_class(&class).await.unwrap().data.0["key"], b"value");
        }
        assert_eq!(reads.load(Ordering::SeqCst), 1);

        secrets.forget(&Key::new("n", "s"));
        assert!(secrets.held.lock().is_empty());
        secrets.of_class(&class).await.unwrap();
        cache.observe(Event::Delete(Guard::Readable(metadata("8"))));
        assert!(secrets.held.lock().is_empty(), "credentials of a deleted Secret are not kept");
    }
}
