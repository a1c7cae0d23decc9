//! A core/v1 Node reduced to the fields that plans read, to save memory.

use std::{
    borrow::Cow,
    fmt,
    num::NonZero,
    ops::{Deref, DerefMut},
    sync::LazyLock,
};

use k8s_openapi::{
    api::core::v1::{self, Taint},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
    jiff::Timestamp,
};
use kube::Resource;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::{
    sharing::{SharedText, TextMap},
    wire::{is_zero, null_as_default},
};

/// A Node.
#[derive(Resource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[resource(inherit = k8s_openapi::api::core::v1::Node)]
pub struct Node {
    /// Standard object metadata.
    pub metadata: NodeMetadata,
    /// Taints and cordon.
    #[serde(default, deserialize_with = "null_as_default")]
    pub spec: NodeSpec,
    /// Conditions, capacity and volumes.
    #[serde(default, deserialize_with = "null_as_default")]
    pub status: NodeStatus,
}

/// The labels or annotations of a Node without any.
static NO_TEXTS: LazyLock<TextMap> = LazyLock::new(TextMap::default);

/// In place of the methods of `ResourceExt`, which find nothing.
impl Node {
    /// Its labels.
    pub fn labels(&self) -> &TextMap {
        self.metadata.labels.as_ref().unwrap_or(&NO_TEXTS)
    }

    /// Its labels, to be changed.
    pub fn labels_mut(&mut self) -> &mut TextMap {
        self.metadata.labels.get_or_insert_default()
    }

    /// Its annotations.
    pub fn annotations(&self) -> &TextMap {
        self.metadata.annotations.as_ref().unwrap_or(&NO_TEXTS)
    }

    /// Its annotations, to be changed.
    pub fn annotations_mut(&mut self) -> &mut TextMap {
        self.metadata.annotations.get_or_insert_default()
    }
}

/// Metadata of a Node, written and read like [`ObjectMeta`]. Thousands of Nodes have the same labels and annotations, whose texts
/// their caches share. A function of an [`ObjectMeta`] finds neither.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "ObjectMeta", into = "ObjectMeta")]
pub struct NodeMetadata {
    /// Labels.
    pub labels: Option<TextMap>,
    /// Annotations.
    pub annotations: Option<TextMap>,
    /// All other fields.
    rest: ObjectMeta,
}

impl NodeMetadata {
    /// All texts of labels and annotations, so that equal ones can be shared.
    pub fn texts_mut(&mut self) -> impl Iterator<Item = &mut SharedText> {
        self.labels.iter_mut().chain(&mut self.annotations).flat_map(TextMap::texts_mut)
    }
}

impl Deref for NodeMetadata {
    type Target = ObjectMeta;

    fn deref(&self) -> &ObjectMeta {
        &self.rest
    }
}

impl DerefMut for NodeMetadata {
    fn deref_mut(&mut self) -> &mut ObjectMeta {
        &mut self.rest
    }
}

impl From<ObjectMeta> for NodeMetadata {
    fn from(mut rest: ObjectMeta) -> Self {
        let (labels, annotations) = (rest.labels.take(), rest.annotations.take());
        Self { labels: labels.map(TextMap::from), annotations: annotations.map(TextMap::from), rest }
    }
}

impl From<NodeMetadata> for ObjectMeta {
    fn from(meta: NodeMetadata) -> Self {
        let NodeMetadata { labels, annotations, rest } = meta;
        Self { labels: labels.as_ref().map(Into::into), annotations: annotations.as_ref().map(Into::into), ..rest }
    }
}

/// Taints and cordon of a Node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeSpec {
    /// The Node is cordoned.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub unschedulable: bool,
    /// Taints.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// ID of the VM behind the Node.
    #[serde(rename = "providerID", default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub provider_id: String,
}

/// Conditions, capacity and volumes of a Node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// Conditions.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<NodeCondition>,
    /// Resources of the Node.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "TextMap::is_empty")]
    pub capacity: TextMap,
    /// Volumes that are attached to the Node.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub volumes_attached: Vec<AttachedVolume>,
}

/// A condition of a Node. Nodes and Machines have a dozen with the same texts, which their caches share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeCondition {
    /// When it was last confirmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_heartbeat_time: Option<ConditionTime>,
    /// When its status last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<ConditionTime>,
    /// Message for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<SharedText>,
    /// Reason for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<SharedText>,
    /// `True`, `False` or `Unknown`.
    #[serde(default, deserialize_with = "null_as_default")]
    pub status: SharedText,
    /// Its type.
    #[serde(rename = "type", default, deserialize_with = "null_as_default")]
    pub type_: SharedText,
}

impl NodeCondition {
    /// All of its texts, so that equal ones can be shared.
    pub fn texts_mut(&mut self) -> impl Iterator<Item = &mut SharedText> {
        [&mut self.status, &mut self.type_].into_iter().chain(&mut self.message).chain(&mut self.reason)
    }
}

/// A time of a condition in whole seconds, as Kubernetes writes it. It has 8 bytes, also as an `Option`, and a [`Time`] has 24: the
/// conditions are the largest part of a cached Node.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Time", into = "Time")]
pub struct ConditionTime(NonZero<i64>);

impl ConditionTime {
    /// The value of 1970-01-01. Earlier dates are above zero as well: the first is 12,000 years before it.
    const EPOCH: i64 = 1 << 40;
}

impl From<Timestamp> for ConditionTime {
    fn from(at: Timestamp) -> Self {
        Self(NonZero::new(at.as_second().saturating_add(Self::EPOCH)).unwrap_or(NonZero::<i64>::MIN))
    }
}

impl From<ConditionTime> for Timestamp {
    fn from(ConditionTime(value): ConditionTime) -> Self {
        Self::from_second(value.get().saturating_sub(ConditionTime::EPOCH)).unwrap_or_default()
    }
}

impl From<Time> for ConditionTime {
    fn from(Time(at): Time) -> Self {
        at.into()
    }
}

impl From<ConditionTime> for Time {
    fn from(time: ConditionTime) -> Self {
        Self(time.into())
    }
}

impl fmt::Debug for ConditionTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Timestamp::from(*self).fmt(f)
    }
}

/// The schema of Kubernetes.
impl JsonSchema for NodeCondition {
    fn schema_name() -> Cow<'static, str> {
        v1::NodeCondition::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        v1::NodeCondition::json_schema(generator)
    }
}

/// A volume that is attached to a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachedVolume {
    /// Its name, which contains the ID of the volume at its provider.
    #[serde(default, deserialize_with = "null_as_default")]
    pub name: String,
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt;
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::decode;

    #[rstest]
    #[case::with_both(json!({
        "name": "n", "labels": { "b": "2", "a": "" }, "annotations": { "c": "3" }, "uid": "u", "finalizers": ["f"],
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }))]
    #[case::with_empty_ones(json!({ "labels": {}, "annotations": {}, "ownerReferences": [] }))]
    #[case::with_neither(json!({ "name": "n" }))]
    #[case::with_nulls(json!({ "name": "n", "labels": null, "annotations": null }))]
    fn metadata_are_written_like_those_of_other_objects(#[case] metadata: Value) {
        let plain: ObjectMeta = serde_json::from_value(metadata.clone()).unwrap();
        let node: Node = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
        assert_eq!(serde_json::to_string(&node.metadata).unwrap(), serde_json::to_string(&plain).unwrap());
    }

    #[rstest]
    #[case::a_label(json!({ "metadata": { "labels": { "a": 7 } } }), "metadata.labels.a: invalid type: integer `7`")]
    #[case::annotations(json!({ "metadata": { "annotations": [] } }), "metadata.annotations: invalid type: sequence")]
    #[case::a_date(json!({ "metadata": { "deletionTimestamp": "now" } }), "metadata.deletionTimestamp: ")]
    #[case::none(json!({}), "missing field `metadata`")]
    fn metadata_that_cannot_be_decoded_are_named(#[case] node: Value, #[case] expected: &str) {
        let error = decode::json::<Node>(&node.to_string()).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }

    #[rstest]
    #[case::whole("2026-01-01T00:00:07Z", "2026-01-01T00:00:07Z")]
    #[case::fraction("2026-01-01T00:00:07.75Z", "2026-01-01T00:00:07Z")]
    #[case::epoch("1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z")]
    #[case::zero_of_go("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z")]
    #[case::late("9999-12-01T00:00:00Z", "9999-12-01T00:00:00Z")]
    fn times_of_conditions_are_stored_in_whole_seconds(#[case] read: &str, #[case] stored: &str) {
        let time: ConditionTime = serde_json::from_value(json!(read)).unwrap();
        let expected: Timestamp = stored.parse().unwrap();
        assert_eq!((json!(time), Timestamp::from(time)), (json!(stored), expected));
        assert_eq!(format!("{time:?}"), stored);
        assert_eq!(size_of::<Option<ConditionTime>>(), 8);
    }

    #[test]
    fn times_have_the_whole_range_of_dates() {
        for at in [Timestamp::MIN, Timestamp::MAX] {
            assert_eq!(Timestamp::from(ConditionTime::from(at)).as_second(), at.as_second());
        }
    }

    #[test]
    fn labels_and_annotations_are_found_and_changed() {
        let mut node = Node::default();
        node.metadata.name = Some("n".to_owned());
        assert!(node.labels().is_empty() && node.annotations().is_empty());
        node.labels_mut().insert("a", "1");
        node.annotations_mut().insert("b", "2");
        assert_eq!(node.labels().get("a").unwrap(), "1");
        assert_eq!(node.annotations().get("b").unwrap(), "2");
        let written = json!({ "name": node.name_any(), "labels": { "a": "1" }, "annotations": { "b": "2" } });
        assert_eq!(json!(node.metadata), written);
        node.metadata.texts_mut().for_each(|text| *text = text.repeat(2).into());
        assert_eq!(json!(node)["metadata"]["labels"], json!({ "aa": "11" }));
    }
}
