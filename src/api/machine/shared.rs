use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1::NodeSpec, apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::wire::{is_zero, null_as_default, texts};

/// Reference to the MachineClass that describes the VM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClassSpec {
    /// API group of the class. Only used to compare templates.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub api_group: String,
    /// Kind of the class; `MachineClass`.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub kind: String,
    /// Name of the class, in the namespace of the Machine.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub name: String,
}

/// Metadata in a template. Labels, annotations and finalizers are used; other fields are kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct TemplateMeta {
    /// Labels for the object made from the template.
    #[serde(default, deserialize_with = "texts", skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations for the object made from the template.
    #[serde(default, deserialize_with = "texts", skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Finalizers for the object made from the template.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    /// Unknown fields.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: Map<String, Value>,
}

impl TemplateMeta {
    /// Removes `null`s such as Go's `creationTimestamp: null`.
    pub fn normalised(&self) -> Self {
        let mut meta = self.clone();
        meta.other.retain(|_, value| !value.is_null());
        meta
    }
}

/// Reads a spec whose taints are in the form in which the API server stores those of Nodes, because they are compared
/// with these: an empty value is absent, and times have whole seconds.
fn node_spec<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<NodeSpec>>, D::Error> {
    let mut spec = Option::<Box<NodeSpec>>::deserialize(deserializer)?;
    for taint in spec.iter_mut().flat_map(|spec| spec.taints.iter_mut().flatten()) {
        taint.value = taint.value.take().filter(|value| !value.is_empty());
        taint.time_added = taint.time_added.take().map(|Time(at)| Time(whole_seconds(at)));
    }
    Ok(spec)
}

fn whole_seconds(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

/// Labels, annotations and taints of the Node, which mcm keeps in sync.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeTemplate {
    /// Labels and annotations for the Node.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub metadata: TemplateMeta,
    /// Taints for the Node; other fields of a Node's spec are stored but not used.
    // Boxed because few Machines have it.
    #[serde(default, deserialize_with = "node_spec", skip_serializing_if = "Option::is_none")]
    pub spec: Option<Box<NodeSpec>>,
}

impl NodeTemplate {
    /// Semantic equality: absent, `null` and empty parts are equal.
    pub fn same_as(&self, other: &Self) -> bool {
        let spec = |template: &Self| template.spec.clone().unwrap_or_default();
        // Machines are compared with their template in each plan, and nearly all are equal without copies.
        self == other || self.metadata.normalised() == other.metadata.normalised() && spec(self) == spec(other)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::empty_value(json!({ "value": "" }), json!({}))]
    #[case::null_value(json!({ "value": null }), json!({}))]
    #[case::fraction_of_a_second(json!({ "timeAdded": "2026-01-01T00:00:00.5Z" }), json!({ "timeAdded": "2026-01-01T00:00:00Z" }))]
    fn taints_are_read_as_the_api_server_stores_them(#[case] written: Value, #[case] stored: Value) {
        let template = |mut taint: Value| -> NodeTemplate {
            taint
                .as_object_mut()
                .unwrap()
                .extend([("key".to_owned(), json!("k")), ("effect".to_owned(), json!("NoExecute"))]);
            serde_json::from_value(json!({ "spec": { "taints": [taint] } })).unwrap()
        };
        assert_eq!(template(written), template(stored));
    }
}
