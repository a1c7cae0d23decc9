//! The object around a template, and the parts of the template that depend on it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};

use crate::{
    defaults,
    health::{MachineHealthSettings, NativeHealthFields},
    input::ConversionInput,
    keys::{MetadataMap, MetadataPair},
    options::ConversionOptions,
    scalable::selects_name,
    seconds::seconds,
    types::names,
};
use mcm_api::{GoDuration, labels};

/// The object around a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateOwner {
    Deployment,
    Set,
    /// A Machine: its metadata and spec are those of the template.
    Machine,
}

/// The location of a template.
#[derive(Debug)]
pub struct TemplateLocation<'a> {
    pub owner: TemplateOwner,
    /// Name of the object.
    pub name: &'a str,
    pub namespace: &'a str,
    pub cluster: &'a str,
    /// The selector of the object uses the label `name`.
    pub selects_name: bool,
    pub options: &'a ConversionOptions,
    /// All objects.
    pub input: &'a ConversionInput<'a>,
}

impl<'a> TemplateLocation<'a> {
    /// Of an object with this metadata and selector.
    pub fn new(
        owner: TemplateOwner,
        metadata: &'a ObjectMeta,
        cluster: &'a str,
        selector: Option<&LabelSelector>,
        options: &'a ConversionOptions,
        input: &'a ConversionInput<'a>,
    ) -> Self {
        let name = metadata.name.as_deref().unwrap_or_default();
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        Self { owner, name, namespace, cluster, selects_name: selects_name(selector), options, input }
    }

    /// Path of the template in its object.
    pub const fn prefix(&self) -> &'static str {
        match self.owner {
            TemplateOwner::Machine => "",
            TemplateOwner::Deployment | TemplateOwner::Set => "spec.template.",
        }
    }

    /// Natively a template does not name the cluster, and names the deployment in the label that the permits to replace
    /// machines are counted by.
    pub fn labels_to_native(&self, given: &MetadataMap) -> MetadataMap {
        let mut all = given.clone();
        match self.owner {
            TemplateOwner::Deployment => {
                all.retain(|key, value| key != names::CLUSTER_NAME || value != self.cluster);
                all.entry(labels::DEPLOYMENT_NAME.to_owned()).or_insert_with(|| self.name.to_owned());
            }
            TemplateOwner::Set => {}
            TemplateOwner::Machine => {
                if let Some(deployment) = given.get(names::DEPLOYMENT_NAME) {
                    all.entry(labels::DEPLOYMENT_NAME.to_owned()).or_insert_with(|| deployment.clone());
                }
            }
        }
        all
    }

    /// The inverse of [`Self::labels_to_native`].
    pub fn labels_to_capi(&self, given: &MetadataMap) -> MetadataMap {
        let mut all = given.clone();
        let named = match self.owner {
            TemplateOwner::Deployment => {
                all.insert(names::CLUSTER_NAME.to_owned(), self.cluster.to_owned());
                all.remove(labels::TEMPLATE_HASH);
                Some(self.name.to_owned())
            }
            TemplateOwner::Set => None,
            TemplateOwner::Machine => given.get(names::DEPLOYMENT_NAME).cloned(),
        };
        if !self.selects_name && named.is_some() && named.as_ref() == given.get(labels::DEPLOYMENT_NAME) {
            all.remove(labels::DEPLOYMENT_NAME);
        }
        all
    }

    pub fn pair_to_native(&self, pair: &MetadataPair) -> MetadataPair {
        let mut native = pair.to_native(&names::NODE_LABEL_DOMAINS);
        native.machine = self.labels_to_native(&native.machine);
        native
    }

    pub fn pair_to_capi(&self, pair: &MetadataPair) -> MetadataPair {
        let mut capi = pair.to_capi(&names::NODE_LABEL_DOMAINS);
        capi.machine = self.labels_to_capi(&capi.machine);
        capi
    }

    pub fn health_to_capi(&self, native: &NativeHealthFields) -> MachineHealthSettings {
        match self.owner {
            TemplateOwner::Machine => native.to_capi_machine(),
            TemplateOwner::Deployment | TemplateOwner::Set => native.to_capi(&self.options.native),
        }
    }

    /// The default of the webhook of Cluster API.
    pub fn node_deletion_timeout(&self) -> Option<i32> {
        (self.owner == TemplateOwner::Machine).then_some(defaults::NODE_DELETION_TIMEOUT)
    }

    pub fn drain_to_capi(&self, native: Option<GoDuration>) -> Option<i32> {
        seconds(native.unwrap_or(self.options.native.drain_timeout))
    }
}
