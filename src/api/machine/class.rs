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
use crate::{
    kinds::MACHINE_CLASSES,
    wire::{is_zero, null_as_default},
};

/// MachineClass describes VMs of one type: the provider's configuration, the credentials to create them, and the
/// capacity of their Nodes. It has no spec.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["providerSpec"]))]
pub struct MachineClass {
    /// Standard object metadata.
    #[schemars(skip)]
    pub metadata: ObjectMeta,
    /// Configuration of the VM for the driver, which gets it unchanged.
    #[serde(default)]
    #[schemars(schema_with = "schema::anything")]
    pub provider_spec: Value,
    /// Name of the driver that serves this class.
    #[serde(default, deserialize_with = "null_as_default")]
    pub provider: String,
    /// Secret with the `userData` of the VM and, unless `credentialsSecretRef` is set, the credentials for the provider.
    #[serde(default)]
    pub secret_ref: Option<SecretRef>,
    /// Secret with the login, in place of that in `secretRef`, so that classes with different user data can share
    /// credentials.
    #[serde(default)]
    pub credentials_secret_ref: Option<SecretRef>,
    /// Properties of a Node of this class, so that an autoscaler can scale from zero; also the virtual capacity.
    #[serde(default)]
    pub node_template: Option<ClassNodeTemplate>,
}

/// The description of a VM in a MachineClass: its fields without metadata and Secret. Objects of Cluster API may contain it
/// in place of a reference to a class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ClassContent {
    /// Name of the driver.
    #[serde(skip_serializing_if = "is_zero")]
    pub provider: String,
    /// Configuration of the VM for the driver.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schemars(schema_with = "schema::anything")]
    pub provider_spec: Value,
    /// Properties of the Node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_template: Option<ClassNodeTemplate>,
    /// Secret with the credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials_secret_ref: Option<SecretRef>,
}

/// Both functions name every field, so that a new field of one type does not compile without the other. `serde(flatten)`
/// would need one definition only, and errors would no longer name the field that cannot be decoded.
impl MachineClass {
    /// A class with this content.
    pub fn with_content(metadata: ObjectMeta, secret_ref: Option<SecretRef>, content: ClassContent) -> Self {
        let ClassContent { provider, provider_spec, node_template, credentials_secret_ref } = content;
        Self { metadata, provider_spec, provider, secret_ref, credentials_secret_ref, node_template }
    }

    /// The content of the class.
    pub fn content(&self) -> ClassContent {
        let Self { metadata: _, secret_ref: _, provider, provider_spec, node_template, credentials_secret_ref } = self;
        ClassContent {
            provider: provider.clone(),
            provider_spec: provider_spec.clone(),
            node_template: node_template.clone(),
            credentials_secret_ref: credentials_secret_ref.clone(),
        }
    }
}

/// Unlike the other kinds, this one has no derived root type that would serialize `apiVersion` and `kind`.
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
        MACHINE_CLASSES.name.into()
    }

    fn group((): &()) -> Cow<'_, str> {
        MACHINE_CLASSES.group.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        MACHINE_CLASSES.version.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        MACHINE_CLASSES.plural.into()
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
    /// Namespace of the Secret; must be that of the class.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub namespace: String,
}

/// Properties of a Node of a class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend(
    "required" = ["capacity", "instanceType", "region", "zone"],
    "x-kubernetes-preserve-unknown-fields" = true,
    "x-kubernetes-validations" = schema::node_template_rules()
))]
pub struct ClassNodeTemplate {
    /// Resources of the Node; must contain `cpu`, `gpu` and `memory`.
    #[serde(default, deserialize_with = "null_as_default")]
    #[schemars(schema_with = "schema::quantities")]
    pub capacity: BTreeMap<String, Quantity>,
    /// Additional resources to set in the Node's capacity, such as extended resources.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::quantities")]
    pub virtual_capacity: BTreeMap<String, Quantity>,
    /// The provider's name of the VM type.
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
    /// CPU architecture; only the autoscaler reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// Unknown fields.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: Map<String, Value>,
}
