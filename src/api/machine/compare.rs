//! Comparison of templates. A wrong "different" rolls every Machine of a deployment, so forms that Go, the API server
//! and mcm write differently (`null`, absent, empty, forms of durations) are equal here.

use serde_json::{Map, Value, json};

use super::{MachineSetSpec, MachineTemplate};
use crate::labels;

/// Two templates are equal in everything that needs a rollout: metadata except the label
/// [`labels::TEMPLATE_HASH`], the class (group and name) and the provider ID. Node template,
/// [`super::MachineConfiguration`] and the kind of the class are ignored: they are propagated without a rollout.
pub fn same_template(one: &MachineTemplate, other: &MachineTemplate) -> bool {
    rollout_key(one) == rollout_key(other)
}

/// The part that [`same_template`] compares, in a canonical form.
pub fn rollout_key(template: &MachineTemplate) -> Value {
    let mut labels = template.metadata.labels.clone();
    labels.remove(labels::TEMPLATE_HASH);
    without_zeros(json!({
        "labels": labels,
        "annotations": template.metadata.annotations,
        "finalizers": template.metadata.finalizers,
        "metadata": known(&template.metadata.other),
        "class": { "apiGroup": template.spec.class.api_group, "name": template.spec.class.name },
        "providerID": template.spec.provider_id,
    }))
    .unwrap_or_default()
}

/// Fields of Kubernetes metadata besides labels, annotations and finalizers. Go clients drop any other key when they
/// write the object, so such a key must not cause a rollout.
const METADATA: [&str; 12] = [
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "ownerReferences",
    "managedFields",
];

fn known(other: &Map<String, Value>) -> Map<String, Value> {
    other
        .iter()
        .filter(|(key, _)| METADATA.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// Copies the fields that need no rollout (node template, timeouts and health rules, kind of the class) from `source`
/// to `target`. Returns the names of the fields that changed; equal ones are not touched.
pub fn update_in_place(target: &mut MachineTemplate, source: &MachineTemplate) -> Vec<&'static str> {
    let mut changed = Vec::new();
    if !target.spec.node_template.same_as(&source.spec.node_template) {
        target.spec.node_template = source.spec.node_template.clone();
        changed.push("nodeTemplate");
    }
    if target.spec.configuration != source.spec.configuration {
        target.spec.configuration = source.spec.configuration.clone();
        changed.push("timeouts and health rules");
    }
    if target.spec.class.kind != source.spec.class.kind {
        target.spec.class.kind.clone_from(&source.spec.class.kind);
        changed.push("class.kind");
    }
    changed
}

impl MachineSetSpec {
    /// The set has this template; see [`same_template`].
    pub fn makes(&self, template: &MachineTemplate) -> bool {
        same_template(&self.template, template)
    }
}

/// Removes what Go's `omitempty` omits, at any depth; `None` if nothing is left. Labels and annotations with an empty
/// value are kept, because they are not absent.
fn without_zeros(value: Value) -> Option<Value> {
    fn strip(value: Value, keep_empty_text: bool) -> Option<Value> {
        match value {
            Value::Null | Value::Bool(false) => None,
            Value::Number(number) if number.as_f64() == Some(0.0) => None,
            Value::String(text) if text.is_empty() && !keep_empty_text => None,
            Value::Array(items) if items.is_empty() => None,
            Value::Object(fields) => {
                let kept: Map<String, Value> = fields
                    .into_iter()
                    .filter_map(|(key, field)| {
                        let texts = keep_empty_text || key == "labels" || key == "annotations";
                        Some((key, strip(field, texts)?))
                    })
                    .collect();
                (!kept.is_empty()).then_some(Value::Object(kept))
            }
            other => Some(other),
        }
    }
    strip(value, false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const BASE: &str = r#"{"metadata":{"labels":{"name":"pool","machine-template-hash":"123"},"annotations":{"a":""}},
        "spec":{"class":{"kind":"MachineClass","name":"small"}}}"#;

    fn template(json: &str) -> MachineTemplate {
        serde_json::from_str(json).unwrap()
    }

    #[rstest]
    #[case::other_hash(r#"{"metadata":{"labels":{"name":"pool","machine-template-hash":"9"},"annotations":{"a":""}},"spec":{"class":{"kind":"MachineClass","name":"small"}}}"#)]
    #[case::no_hash(r#"{"metadata":{"labels":{"name":"pool"},"annotations":{"a":""}},"spec":{"class":{"kind":"MachineClass","name":"small"}}}"#)]
    #[case::go_nulls(r#"{"metadata":{"creationTimestamp":null,"labels":{"name":"pool"},"annotations":{"a":""},"finalizers":null},"spec":{"class":{"apiGroup":"","kind":"MachineClass","name":"small"},"providerID":"","nodeTemplate":{"metadata":{"creationTimestamp":null},"spec":{}}}}"#)]
    #[case::empty_parts(r#"{"metadata":{"name":"","ownerReferences":[],"labels":{"name":"pool"},"annotations":{"a":""},"finalizers":[]},"spec":{"class":{"kind":"MachineClass","name":"small"}}}"#)]
    #[case::unknown_metadata(r#"{"metadata":{"annotation":{"a":"b"},"typo":1,"labels":{"name":"pool"},"annotations":{"a":""}},"spec":{"class":{"kind":"MachineClass","name":"small"}}}"#)]
    #[case::a_label_without_a_value_reads_as_empty(r#"{"metadata":{"labels":{"name":"pool"},"annotations":{"a":null}},"spec":{"class":{"kind":"MachineClass","name":"small"}}}"#)]
    #[case::kind(r#"{"metadata":{"labels":{"name":"pool"},"annotations":{"a":""}},"spec":{"class":{"kind":"Other","name":"small"}}}"#)]
    #[case::configuration(r#"{"metadata":{"labels":{"name":"pool"},"annotations":{"a":""}},"spec":{"class":{"kind":"MachineClass","name":"small"},"drainTimeout":"2h","maxEvictRetries":3,"nodeConditions":"X"}}"#)]
    #[case::node_template(r#"{"metadata":{"labels":{"name":"pool"},"annotations":{"a":""}},"spec":{"class":{"kind":"MachineClass","name":"small"},"nodeTemplate":{"metadata":{"labels":{"x":"y"}}}}}"#)]
    fn no_rollout_for(#[case] json: &str) {
        assert!(same_template(&template(BASE), &template(json)));
    }

    #[rstest]
    #[case::label(r#"{"metadata":{"labels":{"name":"pool","x":""},"annotations":{"a":""}},"spec":{"class":{"kind":"MachineClass","name":"small"}}}"#)]
    #[case::annotation(
        r#"{"metadata":{"labels":{"name":"pool"}},"spec":{"class":{"kind":"MachineClass","name":"small"}}}"#
    )]
    #[case::finalizer(r#"{"metadata":{"labels":{"name":"pool"},"annotations":{"a":""},"finalizers":["f"]},"spec":{"class":{"kind":"MachineClass","name":"small"}}}"#)]
    #[case::other_metadata(r#"{"metadata":{"namespace":"n","labels":{"name":"pool"},"annotations":{"a":""}},"spec":{"class":{"kind":"MachineClass","name":"small"}}}"#)]
    #[case::class_name(r#"{"metadata":{"labels":{"name":"pool"},"annotations":{"a":""}},"spec":{"class":{"kind":"MachineClass","name":"large"}}}"#)]
    #[case::class_group(r#"{"metadata":{"labels":{"name":"pool"},"annotations":{"a":""}},"spec":{"class":{"apiGroup":"g","kind":"MachineClass","name":"small"}}}"#)]
    #[case::provider_id(r#"{"metadata":{"labels":{"name":"pool"},"annotations":{"a":""}},"spec":{"providerID":"p","class":{"kind":"MachineClass","name":"small"}}}"#)]
    fn a_rollout_for(#[case] json: &str) {
        assert!(!same_template(&template(BASE), &template(json)));
    }

    #[test]
    fn spelling_is_no_reason_to_write_in_place() {
        let mut stored = template(
            r#"{"spec":{"drainTimeout":"2h0m0s","nodeTemplate":{"metadata":{"creationTimestamp":null},"spec":{"taints":null}}}}"#,
        );
        let before = stored.clone();
        assert!(update_in_place(&mut stored, &template(r#"{"spec":{"drainTimeout":"120m"}}"#)).is_empty());
        assert_eq!(stored, before);
    }

    #[test]
    fn what_needs_no_rollout_is_brought_over() {
        let mut stored = template(BASE);
        let source = template(
            r#"{"spec":{"class":{"kind":"K","name":"x"},"drainTimeout":"1m","nodeTemplate":{"metadata":{"labels":{"a":"b"}}}}}"#,
        );
        assert_eq!(update_in_place(&mut stored, &source), ["nodeTemplate", "timeouts and health rules", "class.kind"]);
        assert!(same_template(&stored, &template(BASE)), "nothing that a rollout is for was touched");
        assert!(update_in_place(&mut stored, &source).is_empty());
    }
}
