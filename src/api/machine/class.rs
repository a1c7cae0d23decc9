use std::{borrow::Cow, collections::BTreeMap};

use k8s_openapi::{
    NamespaceResourceScope,
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta},
};
use kube::Resource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::api::wire::{is_zero, null_as_default};

/// A kind of VM: provider-specific description, credentials, and what a Node of it offers. It has no `spec`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineClass {
    /// Standard object metadata.
    pub metadata: ObjectMeta,
    /// Description of the VM in the words of the provider; opaque here.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub provider_spec: Value,
    /// Name of the driver that serves this class.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub provider: String,
    /// Secret with `userData` and, unless `credentialsSecretRef` is set, the credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretRef>,
    /// Secret whose entries win over those of `secretRef`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_secret_ref: Option<SecretRef>,
    /// What a Node of this class offers; used to scale from zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_template: Option<ClassNodeTemplate>,
}

impl Resource for MachineClass {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "MachineClass".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        super::GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        super::VERSION.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "machineclasses".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// A reference to a Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretRef {
    /// Name of the Secret.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub name: String,
    /// Namespace of the Secret; that of the class.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub namespace: String,
}

/// What a Node of a class offers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClassNodeTemplate {
    /// Resources of the Node; `cpu`, `gpu` and `memory` are expected.
    #[serde(default, deserialize_with = "null_as_default")]
    pub capacity: BTreeMap<String, Quantity>,
    /// Resources to write into the Node's capacity that no hardware backs.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub virtual_capacity: BTreeMap<String, Quantity>,
    /// Type of the VM in the words of the provider.
    #[serde(default, deserialize_with = "null_as_default")]
    pub instance_type: String,
    /// Region of the VM.
    #[serde(default, deserialize_with = "null_as_default")]
    pub region: String,
    /// Zone of the VM.
    #[serde(default, deserialize_with = "null_as_default")]
    pub zone: String,
    /// CPU architecture; read by the autoscaler only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// What else was there.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}
