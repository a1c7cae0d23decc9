//! Applies YAML documents of any kind, as `kubectl apply --server-side` does.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
    discovery::{self, Scope},
};
use tokio::time::Instant;

use crate::api::decode::{self, YamlLimits};

/// An API server serves a kind a moment after its CRD was created.
const PATIENCE: Duration = Duration::from_secs(20);

/// Applies every document of a YAML text in order, waiting for kinds that are about to be served.
///
/// # Errors
/// A document is not an object, its kind is not served, or the API server rejects it.
pub async fn apply(client: &Client, yaml: &str, manager: &str) -> Result<()> {
    let (objects, error) = decode::yaml_documents::<DynamicObject>(yaml, YamlLimits::FILES);
    if let Some(error) = error {
        return Err(error).context("read an object from YAML");
    }
    for object in &objects {
        apply_one(client, object, manager).await?;
    }
    Ok(())
}

async fn apply_one(client: &Client, object: &DynamicObject, manager: &str) -> Result<()> {
    let types = object.types.as_ref().context("read an object: apiVersion or kind is missing")?;
    let kind = GroupVersionKind::try_from(types)?;
    let what = format!("{} {}", kind.kind, object.name_any());
    let parameters = PatchParams::apply(manager).force();
    let start = Instant::now();
    loop {
        let failure: anyhow::Error = match discovery::pinned_kind(client, &kind).await {
            Ok((resource, capabilities)) => {
                let api: Api<DynamicObject> = match (capabilities.scope, object.namespace()) {
                    (Scope::Namespaced, Some(namespace)) => Api::namespaced_with(client.clone(), &namespace, &resource),
                    (Scope::Namespaced, None) => Api::default_namespaced_with(client.clone(), &resource),
                    (Scope::Cluster, _) => Api::all_with(client.clone(), &resource),
                };
                match api.patch(&object.name_any(), &parameters, &Patch::Apply(object)).await {
                    Ok(_) => return Ok(()),
                    Err(kube::Error::Api(status)) if status.code == 404 => kube::Error::Api(status).into(),
                    Err(error) => return Err(error).with_context(|| format!("apply {what}")),
                }
            }
            Err(error) => error.into(),
        };
        if start.elapsed() > PATIENCE {
            bail!(failure.context(format!("apply {what}")));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
