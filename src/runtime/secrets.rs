//! Secrets of the control namespace: metadata of all, data only of those that a class in use refers to, read when it
//! changed.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use k8s_openapi::{api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
    core::PartialObjectMeta,
};
use parking_lot::Mutex;
use serde_json::Value;

use super::{
    cache::{Cache, Key},
    objects::{WriteError, with_precondition},
};
use crate::{
    api::machine::{MachineClass, SecretRef},
    driver::SecretData,
};

/// The Secrets of one namespace.
pub struct Secrets {
    /// Metadata of all Secrets.
    pub cache: Arc<Cache<PartialObjectMeta<Secret>>>,
    api: Api<Secret>,
    namespace: String,
    held: Mutex<HashMap<String, Held>>,
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
    /// The Secrets of a namespace.
    pub fn new(cache: Arc<Cache<PartialObjectMeta<Secret>>>, api: Api<Secret>, namespace: &str) -> Self {
        Self { cache, api, namespace: namespace.to_owned(), held: Mutex::default() }
    }

    /// The data for calls about a class.
    ///
    /// # Errors
    /// If a Secret could not be read; one that certainly does not exist is no error but listed as missing.
    pub async fn of_class(&self, class: &MachineClass) -> Result<Merged, kube::Error> {
        let mut merged = Merged::default();
        for reference in [&class.secret_ref, &class.credentials_secret_ref].into_iter().flatten() {
            match self.data(reference).await? {
                Some(data) => merged.data.0.extend(data.iter().map(|(key, value)| (key.clone(), value.clone()))),
                None => merged.missing.push(format!("{}/{}", reference.namespace, reference.name)),
            }
        }
        Ok(merged)
    }

    /// Merge-patches the metadata of a Secret that is still as it was seen.
    ///
    /// # Errors
    /// If the API server refused the patch or could not be asked.
    pub async fn patch(&self, seen: &ObjectMeta, patch: &Value) -> Result<(), WriteError> {
        let key = Key::of(seen);
        let patch = Patch::Merge(with_precondition(patch, seen));
        match self.api.patch_metadata(&key.name, &PatchParams::default(), &patch).await {
            Ok(patched) => {
                self.cache.wrote(patched);
                Ok(())
            }
            Err(source) => Err(WriteError::new("patch", "Secret", key, source)),
        }
    }

    async fn data(&self, reference: &SecretRef) -> Result<Option<Arc<BTreeMap<String, Vec<u8>>>>, kube::Error> {
        let elsewhere = !reference.namespace.is_empty() && reference.namespace != self.namespace;
        if elsewhere || reference.name.is_empty() {
            return Ok(None);
        }
        let name = &reference.name;
        let known = self.cache.get(&Key::new(&self.namespace, name));
        if let Some(known) = &known
            && let Some(held) = self.held.lock().get(name)
            && held.version == known.resource_version()
        {
            return Ok(Some(Arc::clone(&held.data)));
        }
        let Some(secret) = self.api.get_opt(name).await? else {
            self.held.lock().remove(name);
            return Ok(None);
        };
        let data: BTreeMap<_, _> = secret.data.into_iter().flatten().map(|(key, value)| (key, value.0)).collect();
        let held = Held { version: secret.metadata.resource_version, data: Arc::new(data) };
        let data = Arc::clone(&held.data);
        self.held.lock().insert(name.clone(), held);
        Ok(Some(data))
    }
}
