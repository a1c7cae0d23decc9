use std::{borrow::Cow, collections::BTreeMap};

use k8s_openapi::{
    NamespaceResourceScope,
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta},
};
use kube::Resource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer, ser::SerializeMap};
use serde_json::{Map, Value};

use super::schema;
use crate::api::wire::{is_zero, null_as_default};

/// MachineClass is a kind of VM: its description in the words of the provider, the credentials to make it with, and what
/// a Node of it offers. It has no spec.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["providerSpec"]))]
pub struct MachineClass {
    /// Standard object metadata.
    #[schemars(skip)]
    pub metadata: ObjectMeta,
    /// Description of the VM in the words of the provider; handed to the driver as it is.
    #[serde(default)]
    #[schemars(schema_with = "schema::anything")]
    pub provider_spec: Value,
    /// Name of the driver that serves this class.
    #[serde(default, deserialize_with = "null_as_default")]
    pub provider: String,
    /// Secret with the `userData` of the VM and, unless `credentialsSecretRef` is set, the credentials for the provider.
    #[serde(default)]
    pub secret_ref: Option<SecretRef>,
    /// Secret whose entries win over those of `secretRef`; lets classes with different user data share credentials.
    #[serde(default)]
    pub credentials_secret_ref: Option<SecretRef>,
    /// What a Node of this class offers; lets an autoscaler scale from zero, and sets virtual capacity.
    #[serde(default)]
    pub node_template: Option<ClassNodeTemplate>,
}

/// Unlike the other kinds this one has no derived root that would write `apiVersion` and `kind`.
impl Serialize for MachineClass {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { metadata, provider_spec, provider, secret_ref, credentials_secret_ref, node_template } = self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("apiVersion", super::API_VERSION)?;
        map.serialize_entry("kind", &Self::kind(&()))?;
        map.serialize_entry("metadata", metadata)?;
        if !provider_spec.is_null() {
            map.serialize_entry("providerSpec", provider_spec)?;
        }
        if !provider.is_empty() {
            map.serialize_entry("provider", provider)?;
        }
        if let Some(secret) = secret_ref {
            map.serialize_entry("secretRef", secret)?;
        }
        if let Some(secret) = credentials_secret_ref {
            map.serialize_entry("credentialsSecretRef", secret)?;
        }
        if let Some(template) = node_template {
            map.serialize_entry("nodeTemplate", template)?;
        }
        map.end()
    }
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
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct SecretRef {
    /// Name of the Secret.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub name: String,
    /// Namespace of the Secret, which is that of the class.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub namespace: String,
}

/// What a Node of a class offers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend(
    "required" = ["capacity", "instanceType", "region", "zone"],
    "x-kubernetes-preserve-unknown-fields" = true,
    "x-kubernetes-validations" = schema::node_template_rules()
))]
pub struct ClassNodeTemplate {
    /// Resources of the Node; `cpu`, `gpu` and `memory` must be among them.
    #[serde(default, deserialize_with = "null_as_default")]
    #[schemars(schema_with = "schema::quantities")]
    pub capacity: BTreeMap<String, Quantity>,
    /// Resources to write into the Node's capacity that no hardware backs.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::quantities")]
    pub virtual_capacity: BTreeMap<String, Quantity>,
    /// Type of the VM in the words of the provider.
    #[serde(default, deserialize_with = "null_as_default")]
    #[schemars(schema_with = "schema::provider_name")]
    pub instance_type: String,
    /// Region of the VM.
    #[serde(default, deserialize_with = "null_as_default")]
    #[schemars(schema_with = "schema::provider_name")]
    pub region: String,
    /// Zone of the VM.
    #[serde(default, deserialize_with = "null_as_default")]
    #[schemars(schema_with = "schema::provider_name")]
    pub zone: String,
    /// CPU architecture; read by the autoscaler only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// What else was there.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: Map<String, Value>,
}
