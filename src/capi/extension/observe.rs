//! Reads the objects that a response needs from the API server.

use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    hooks::{self, ExtensionHook, HookRequest, failure},
    plan::{self, DescriptionChange, NamedClasses},
};
use crate::object::view::ObjectView;
use mcm_conversion::types::{Cluster, INFRASTRUCTURE_GROUP, MCMCluster, MCMMachine};
use mcm_runtime::{
    dated::DatedObject,
    objects::{chain, read},
};

/// Responds to the hooks.
#[derive(Clone)]
pub struct HookResponder {
    client: Client,
}

impl HookResponder {
    /// With a client of the management cluster.
    pub const fn new(client: Client) -> Self {
        Self { client }
    }

    /// The response to a request, in JSON.
    pub async fn respond(&self, hook: ExtensionHook, request: &[u8]) -> Value {
        let request: HookRequest = match serde_json::from_slice(request) {
            Ok(request) => request,
            Err(error) => return failure(hook, format!("the request cannot be decoded: {error}")),
        };
        let response = match hook {
            ExtensionHook::Discovery => Ok(hooks::discovery()),
            ExtensionHook::CanUpdateMachine | ExtensionHook::CanUpdateMachineSet => self.claim(hook, &request).await,
            ExtensionHook::UpdateMachine => self.progress(&request).await,
        };
        response.unwrap_or_else(|message| {
            tracing::warn!(hook = hook.name(), message, "hook not answered");
            failure(hook, message)
        })
    }

    /// An API server that does not answer leads to a failure: without a claim, core would replace the machines.
    async fn claim(&self, hook: ExtensionHook, request: &HookRequest) -> Result<Value, String> {
        let Some(change) = DescriptionChange::from_request(hook, request) else { return Ok(hooks::claim(hook, &[])) };
        let classes = self.classes(&change).await?;
        let operations = change.claims(&classes);
        tracing::info!(hook = hook.name(), namespace = change.namespace, fields = operations.len(), "hook answered");
        Ok(hooks::claim(hook, &operations))
    }

    async fn progress(&self, request: &HookRequest) -> Result<Value, String> {
        let Some((namespace, name)) = plan::updated(request) else {
            return Err(
                "mcm updates only MCMMachines: register the extension of the infrastructure provider".to_owned()
            );
        };
        let object = self.view::<MCMMachine>(namespace, name).await?;
        let progress = plan::progress(request, &object);
        tracing::info!(namespace, name, ?progress, "update of a machine");
        Ok(hooks::progress(progress))
    }

    async fn classes(&self, change: &DescriptionChange<'_>) -> Result<NamedClasses, String> {
        // A failure domain may have other classes than those that objects name.
        let infrastructure =
            if change.zone.is_empty() { ObjectView::Missing } else { self.infrastructure(change).await? };
        if matches!(infrastructure, ObjectView::Unknown) {
            return Ok(NamedClasses::NONE);
        }
        let Some([current, desired]) = change.named(&infrastructure) else { return Ok(NamedClasses::NONE) };
        Ok(NamedClasses {
            current: self.view(change.namespace, &current).await?,
            desired: self.view(change.namespace, &desired).await?,
        })
    }

    /// The infrastructure of the Cluster; missing if it is of another provider, and unknown if it does not exist yet.
    async fn infrastructure(&self, change: &DescriptionChange<'_>) -> Result<ObjectView<MCMCluster>, String> {
        let cluster = match self.view::<Cluster>(change.namespace, change.cluster).await? {
            ObjectView::Present(cluster) => cluster,
            ObjectView::Missing | ObjectView::Unknown => return Ok(ObjectView::Unknown),
        };
        let reference = &cluster.spec.infrastructure_ref;
        if reference.kind != "MCMCluster" || reference.api_group != INFRASTRUCTURE_GROUP {
            return Ok(ObjectView::Missing);
        }
        let infrastructure = self.view(change.namespace, &reference.name).await?;
        let is_known = matches!(infrastructure, ObjectView::Present(_));
        Ok(if is_known { infrastructure } else { ObjectView::Unknown })
    }

    async fn view<K>(&self, namespace: &str, name: &str) -> Result<ObjectView<K>, String>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        let api: Api<DatedObject<K>> = Api::namespaced(self.client.clone(), namespace);
        match read(&api, name).await {
            Ok(found) => Ok(found.map_or(ObjectView::Missing, |object| ObjectView::Present(object.into()))),
            Err(kube::Error::SerdeError(_)) => Ok(ObjectView::Unknown),
            Err(error) => {
                let kind = K::kind(&());
                Err(format!("{kind} {namespace}/{name} cannot be read: {}: check the API server", chain(&error)))
            }
        }
    }
}
