//! Syncs the Node with its Machine: label, finalizer, the template's labels, annotations and taints, and virtual
//! capacity.
//!
//! Annotations store the last applied values, so that entries removed from the template are removed from the Node and
//! entries of other clients stay.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
};

use k8s_openapi::{api::core::v1::Taint, apimachinery::pkg::api::resource::Quantity};
use serde_json::{Value, json};

use super::{
    super::{
        Action, Snapshot,
        memory::{NodePatchPart, NodeWrite},
        steps::{is_refused, set, wait_for_refused},
        views::{ClassView, TargetNodeView},
    },
    node_template::applicable,
};
use crate::object::finalizer;
use mcm_api::{
    labels,
    machine::{Machine, MachineClass, NodeTemplate},
    node::Node,
    quantity::is_same_quantity,
    sharing::TextMap,
};
use mcm_rules::{
    plan::{Plan, WaitKind},
    safety::node_claim,
};

/// Plans the writes to the Node, as few as possible.
pub(in super::super) fn plan(snapshot: &Snapshot) -> Plan<Action> {
    let mut plan = Plan::default();
    let TargetNodeView::Present(node) = &snapshot.serving_node() else { return plan };
    if node.metadata.deletion_timestamp.is_some() {
        return plan;
    }
    let (template, problems) = applicable(&snapshot.machine.spec.node_template, node);
    if !problems.is_empty() {
        let text =
            format!("spec.nodeTemplate to be corrected, because these entries are ignored: {}", problems.join("; "));
        plan.wait(WaitKind::NodeTemplate, text, None);
    }
    let mut virtual_capacity = desired_capacity(snapshot);
    if let Some(patch) = virtual_capacity.and_then(|desired| capacity_patch(node, desired)) {
        let purpose = NodeWrite::Capacity;
        if !is_refused(&mut plan, snapshot, purpose) {
            let action = Action::PatchNodeStatus { node: node.clone(), patch, purpose };
            plan.then(action, "the Node lacks the virtual capacity of its class");
            return plan;
        }
        // The annotation is written after the capacity, so that it never lists less than was applied.
        virtual_capacity = None;
    }
    let mut patch = sync_patch(node, &snapshot.machine, &template, virtual_capacity);
    if snapshot.is_rolled_out {
        keep_from_autoscaler(&mut patch, node);
    }
    if patch.is_null() {
        // A client that changes it back may not have done so yet.
        if let Some((purpose, failure, until)) = snapshot.memory.lately_reverted(snapshot.now) {
            wait_for_refused(&mut plan, purpose, failure, until);
        }
        return plan;
    }
    let is_refused_before = |write| snapshot.memory.is_refused(write);
    let writes = match is_refused_before(NodeWrite::Sync) {
        true => parts(&patch, |part| is_refused_before(NodeWrite::SyncPart(part))),
        false => vec![(NodeWrite::Sync, patch)],
    };
    for (purpose, patch) in writes {
        if !is_refused(&mut plan, snapshot, purpose) {
            let reason = "the Node differs from the template of its Machine";
            plan.then(Action::PatchNode { node: node.clone(), patch, purpose }, reason);
            return plan;
        }
    }
    plan
}

/// The parts of a patch that was refused as a whole, so that the valid ones are applied. Labels or annotations that were
/// refused together as well are written one by one.
fn parts(patch: &Value, is_refused: impl Fn(NodePatchPart) -> bool) -> Vec<(NodeWrite, Value)> {
    let metadata = |field: &str| patch["metadata"][field].as_object().into_iter().flatten();
    let is_split = |part: NodePatchPart, field: &str| metadata(field).count() > 1 && is_refused(part);
    let mut parts: BTreeMap<NodePatchPart, Value> = BTreeMap::new();
    let mut add =
        |part: NodePatchPart, path: &[&str], value: &Value| set(parts.entry(part).or_default(), path, value.clone());
    if let Some(finalizers) = patch.pointer("/metadata/finalizers") {
        add(NodePatchPart::Finalizer, &["metadata", "finalizers"], finalizers);
    }
    if let Some(taints) = patch.pointer("/spec/taints") {
        add(NodePatchPart::Taints, &["spec", "taints"], taints);
    }
    for (key, value) in metadata("labels") {
        let part = match key == labels::MACHINE_NAME {
            true => NodePatchPart::Finalizer,
            false if is_split(NodePatchPart::Labels, "labels") => entry("label", key),
            false => NodePatchPart::Labels,
        };
        add(part, &["metadata", "labels", key], value);
    }
    for (key, value) in metadata("annotations") {
        let part = match key.as_str() {
            labels::NODE_OF => NodePatchPart::Finalizer,
            labels::LAST_APPLIED_NODE_TEMPLATE | labels::LAST_APPLIED_VIRTUAL_CAPACITY => NodePatchPart::Records,
            _ if is_split(NodePatchPart::Annotations, "annotations") => entry("annotation", key),
            _ => NodePatchPart::Annotations,
        };
        add(part, &["metadata", "annotations", key], value);
    }
    parts.into_iter().map(|(part, patch)| (NodeWrite::SyncPart(part), patch)).collect()
}

fn entry(kind: &str, key: &str) -> NodePatchPart {
    let mut hasher = DefaultHasher::new();
    (kind, key).hash(&mut hasher);
    NodePatchPart::Entry(hasher.finish())
}

fn sync_patch(
    node: &Node,
    machine: &Machine,
    template: &NodeTemplate,
    virtual_capacity: Option<&BTreeMap<String, Quantity>>,
) -> Value {
    let base: NodeTemplate = applied(node, labels::LAST_APPLIED_NODE_TEMPLATE).unwrap_or_default();
    let mut patch = Value::Null;
    let (now, before) = (&template.metadata, &base.metadata);
    merge_map(&mut patch, "labels", node.labels(), &before.labels, &now.labels);
    merge_map(&mut patch, "annotations", node.annotations(), &before.annotations, &now.annotations);
    let machine_name = machine.metadata.name.as_deref().unwrap_or_default();
    if node.labels().get(labels::MACHINE_NAME).is_none_or(|named| named != machine_name) {
        set(&mut patch, &["metadata", "labels", labels::MACHINE_NAME], machine_name);
    }
    let named = node.annotations().get(labels::NODE_OF);
    if let Some(machine) = node_claim::annotation_for(machine)
        && named.is_none_or(|named| *named != machine)
    {
        set(&mut patch, &["metadata", "annotations", labels::NODE_OF], machine);
    }
    if let Some(finalizers) = finalizer::with(&node.metadata, labels::NODE_FINALIZER) {
        set(&mut patch, &["metadata", "finalizers"], finalizers);
    }
    let taints = merge_taints(&node.spec.taints, taints_of(&base), taints_of(template));
    if taints != node.spec.taints {
        set(&mut patch, &["spec", "taints"], json!(taints));
    }
    if !base.same_as(template) {
        set(&mut patch, &["metadata", "annotations", labels::LAST_APPLIED_NODE_TEMPLATE], json!(template).to_string());
    }
    if let Some(desired) = virtual_capacity
        && applied_capacity(node) != *desired
    {
        let record = if desired.is_empty() { Value::Null } else { json!(json!(desired).to_string()) };
        set(&mut patch, &["metadata", "annotations", labels::LAST_APPLIED_VIRTUAL_CAPACITY], record);
    }
    patch
}

/// Adds the annotations that the deployment controller sets on Nodes during a rollout, and removes after it, to the first patch
/// of a Node. Otherwise it would need another patch.
fn keep_from_autoscaler(patch: &mut Value, node: &Node) {
    let is_first = patch.pointer("/metadata/finalizers").is_some();
    let is_set = node.annotations().contains_key(labels::SCALE_DOWN_DISABLED)
        || patch["metadata"]["annotations"].get(labels::SCALE_DOWN_DISABLED).is_some();
    if is_first && !is_set {
        for key in [labels::SCALE_DOWN_DISABLED, labels::SCALE_DOWN_DISABLED_BY_MCM] {
            set(patch, &["metadata", "annotations", key], labels::SCALE_DOWN_IS_DISABLED);
        }
    }
}

/// The content of a last-applied annotation; empty if it is absent or cannot be parsed.
fn applied<T: serde::de::DeserializeOwned>(node: &Node, annotation: &str) -> Option<T> {
    serde_json::from_str(node.annotations().get(annotation)?).ok()
}

fn merge_map(
    patch: &mut Value,
    field: &str,
    actual: &TextMap,
    before: &BTreeMap<String, String>,
    desired: &BTreeMap<String, String>,
) {
    for key in before.keys().filter(|key| !desired.contains_key(*key) && actual.contains_key(key)) {
        set(patch, &["metadata", field, key], Value::Null);
    }
    for (key, value) in desired.iter().filter(|(key, value)| actual.get(key).is_none_or(|text| text != *value)) {
        set(patch, &["metadata", field, key], value.as_str());
    }
}

fn taints_of(template: &NodeTemplate) -> &[Taint] {
    template.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

/// Merges taints by key and effect. Taints of other clients and the order stay.
fn merge_taints(actual: &[Taint], before: &[Taint], desired: &[Taint]) -> Vec<Taint> {
    fn id(taint: &Taint) -> (&str, &str) {
        (&taint.key, &taint.effect)
    }
    let wanted: BTreeMap<(&str, &str), &Taint> = desired.iter().map(|taint| (id(taint), taint)).collect();
    let ours: BTreeSet<(&str, &str)> = before.iter().map(id).collect();
    let mut merged: Vec<Taint> = actual
        .iter()
        .filter(|taint| wanted.contains_key(&id(taint)) || !ours.contains(&id(taint)))
        .map(|taint| wanted.get(&id(taint)).map_or_else(|| taint.clone(), |wanted| (*wanted).clone()))
        .collect();
    let missing = wanted.iter().filter(|(id_, _)| !actual.iter().any(|taint| id(taint) == **id_));
    merged.extend(missing.map(|(_, taint)| (*taint).clone()));
    merged
}

/// The virtual capacity of the class. `None` if the class is unknown; then nothing is changed.
fn desired_capacity(snapshot: &Snapshot) -> Option<&BTreeMap<String, Quantity>> {
    let class: &MachineClass = match &snapshot.class {
        ClassView::Present { class, .. } | ClassView::Unserved(class) => class,
        ClassView::Unknown | ClassView::Missing => return None,
    };
    class.node_template.as_ref().map(|template| &template.virtual_capacity)
}

fn applied_capacity(node: &Node) -> BTreeMap<String, Quantity> {
    applied(node, labels::LAST_APPLIED_VIRTUAL_CAPACITY).unwrap_or_default()
}

fn capacity_patch(node: &Node, desired: &BTreeMap<String, Quantity>) -> Option<Value> {
    let actual = &node.status.capacity;
    let mut patch = Value::Null;
    for key in applied_capacity(node).keys().filter(|key| !desired.contains_key(*key) && actual.contains_key(key)) {
        set(&mut patch, &["status", "capacity", key], Value::Null);
    }
    for (key, value) in desired
        .iter()
        .filter(|(key, value)| !actual.get(key).is_some_and(|it| is_same_quantity(&Quantity(it.to_string()), value)))
    {
        set(&mut patch, &["status", "capacity", key], value.0.as_str());
    }
    (!patch.is_null()).then_some(patch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn machine() -> Machine {
        serde_json::from_value(json!({ "metadata": { "name": "m", "namespace": "ns", "uid": "u" }, "spec": {} }))
            .unwrap()
    }

    fn node(value: Value) -> Node {
        serde_json::from_value(value).unwrap()
    }

    fn template(value: Value) -> NodeTemplate {
        serde_json::from_value(value).unwrap()
    }

    /// The Node after `sync_patch` was applied to it.
    fn synced(node: &Node, template: &NodeTemplate) -> Node {
        let mut value = json!(node);
        merge(&mut value, sync_patch(node, &machine(), template, None));
        serde_json::from_value(value).unwrap()
    }

    fn merge(target: &mut Value, patch: Value) {
        match patch {
            Value::Object(entries) => {
                if !target.is_object() {
                    *target = json!({});
                }
                for (key, value) in entries {
                    if value.is_null() {
                        target.as_object_mut().unwrap().remove(&key);
                    } else {
                        merge(&mut target[key], value);
                    }
                }
            }
            other => *target = other,
        }
    }

    fn full() -> NodeTemplate {
        template(json!({
            "metadata": { "labels": { "pool": "a" }, "annotations": { "owner": "x" } },
            "spec": { "taints": [{ "key": "dedicated", "value": "a", "effect": "NoSchedule" }] },
        }))
    }

    #[test]
    fn everything_is_one_patch_and_the_second_one_is_empty() {
        let bare = node(json!({ "metadata": { "name": "n" } }));
        let after = synced(&bare, &full());
        assert_eq!(after.labels().get("pool").unwrap(), "a");
        assert_eq!(after.labels().get(labels::MACHINE_NAME).unwrap(), "m");
        assert_eq!(after.spec.taints.len(), 1);
        assert_eq!(after.metadata.finalizers, Some(vec![labels::NODE_FINALIZER.to_owned()]));
        assert!(sync_patch(&after, &machine(), &full(), None).is_null());
    }

    #[test]
    fn the_first_patch_leaves_the_annotation_of_a_user_alone() {
        let mut node =
            node(json!({ "metadata": { "name": "n", "annotations": { labels::SCALE_DOWN_DISABLED: "x" } } }));
        let patch = |node: &Node| {
            let mut patch = sync_patch(node, &machine(), &NodeTemplate::default(), None);
            keep_from_autoscaler(&mut patch, node);
            patch["metadata"]["annotations"].get(labels::SCALE_DOWN_DISABLED).cloned()
        };
        assert_eq!(patch(&node), None);
        node.metadata.annotations = None;
        assert_eq!(patch(&node), Some(json!("true")));
    }

    #[test]
    fn what_the_template_drops_goes_and_what_others_put_there_stays() {
        let mut value = json!(synced(&node(json!({ "metadata": { "name": "n" } })), &full()));
        value["metadata"]["labels"]["foreign"] = json!("1");
        value["spec"]["taints"].as_array_mut().unwrap().insert(0, json!({ "key": "other", "effect": "NoExecute" }));
        value["metadata"]["labels"]["pool"] = json!("edited by hand");
        let reduced = template(json!({ "metadata": { "labels": { "pool": "b" } } }));
        let after = synced(&node(value), &reduced);
        assert_eq!(after.labels().get("pool").unwrap(), "b");
        assert!(after.labels().contains_key("foreign"));
        assert!(!after.annotations().contains_key("owner"));
        assert_eq!(after.spec.taints.iter().map(|taint| taint.key.as_str()).collect::<Vec<_>>(), ["other"]);
        assert!(sync_patch(&after, &machine(), &reduced, None).is_null());
    }

    #[test]
    fn a_merge_base_in_other_spelling_is_not_rewritten() {
        let mut value = json!(synced(&node(json!({ "metadata": { "name": "n" } })), &full()));
        let base = r#"{"metadata":{"creationTimestamp":null,"labels":{"pool":"a"},"annotations":{"owner":"x"}},"spec":{"taints":[{"key":"dedicated","value":"a","effect":"NoSchedule"}]}}"#;
        value["metadata"]["annotations"][labels::LAST_APPLIED_NODE_TEMPLATE] = json!(base);
        assert!(sync_patch(&node(value), &machine(), &full(), None).is_null());
    }

    #[rstest]
    #[case::changed_value(&[("a", "1")], &[("a", "1")], &[("a", "2")], &[("a", "2")])]
    #[case::removed(&[("a", "1"), ("b", "1")], &[("a", "1")], &[], &[("b", "1")])]
    #[case::never_ours(&[("b", "1")], &[], &[], &[("b", "1")])]
    #[case::added_at_the_end(&[("b", "1")], &[], &[("a", "1")], &[("b", "1"), ("a", "1")])]
    fn taints(
        #[case] actual: &[(&str, &str)],
        #[case] before: &[(&str, &str)],
        #[case] desired: &[(&str, &str)],
        #[case] expected: &[(&str, &str)],
    ) {
        let list = |taints: &[(&str, &str)]| -> Vec<Taint> {
            let taint = |(key, value): &(&str, &str)| Taint {
                key: (*key).to_owned(),
                value: Some((*value).to_owned()),
                effect: "NoSchedule".to_owned(),
                time_added: None,
            };
            taints.iter().map(taint).collect()
        };
        assert_eq!(merge_taints(&list(actual), &list(before), &list(desired)), list(expected));
    }

    fn quantities(list: &[(&str, &str)]) -> BTreeMap<String, Quantity> {
        list.iter().map(|(key, value)| ((*key).to_owned(), Quantity((*value).to_owned()))).collect()
    }

    #[rstest]
    #[case::new(json!({}), &[("gpu", "4")], Some(json!({ "gpu": "4" })))]
    #[case::there(json!({ "gpu": "4" }), &[("gpu", "4")], None)]
    #[case::there_in_another_spelling(json!({ "gpu": "4", "mem": "1Gi" }), &[("gpu", "4000m"), ("mem", "1024Mi")], None)]
    #[case::a_tiny_one(json!({ "gpu": "1n" }), &[("gpu", "0.1n")], None)]
    #[case::a_huge_one(json!({ "gpu": "9223372036854775807" }), &[("gpu", "100E")], None)]
    #[case::no_longer_wanted(json!({ "old": "1" }), &[], Some(json!({ "old": null })))]
    #[case::never_ours(json!({ "cpu": "1" }), &[], None)]
    fn capacity(#[case] actual: Value, #[case] desired: &[(&str, &str)], #[case] expected: Option<Value>) {
        let node = node(json!({
            "metadata": { "annotations": { "node.machine.sapcloud.io/last-applied-virtual-capacity": "{\"old\":\"1\"}" } },
            "status": { "capacity": actual },
        }));
        let expected = expected.map(|capacity| json!({ "status": { "capacity": capacity } }));
        assert_eq!(capacity_patch(&node, &quantities(desired)), expected);
    }

    #[test]
    fn the_record_of_capacity_goes_with_the_last_resource() {
        let node = node(json!({
            "metadata": { "annotations": { "node.machine.sapcloud.io/last-applied-virtual-capacity": "{\"old\":\"1\"}" } },
        }));
        let patch = sync_patch(&node, &machine(), &NodeTemplate::default(), Some(&BTreeMap::new()));
        assert_eq!(patch["metadata"]["annotations"][labels::LAST_APPLIED_VIRTUAL_CAPACITY], Value::Null);
        assert!(
            patch["metadata"]["annotations"].as_object().unwrap().contains_key(labels::LAST_APPLIED_VIRTUAL_CAPACITY)
        );
    }
}
