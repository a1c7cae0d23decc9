//! Selects the entries of a node template that the API server accepts on a Node. It refuses a whole patch for one
//! invalid entry, so invalid ones are left out and reported.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::Taint;
use serde_json::json;

use mcm_api::{
    labels,
    machine::{NodeTemplate, TemplateMeta},
    node::Node,
    syntax::{is_qualified_name, label_value_problem},
};

/// Total size of the annotations of an object, keys and values, in bytes.
const ANNOTATIONS_MAX: usize = 256 * 1024;
const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// The part of the template that the Node can have, and the problems of the rest, for users.
pub(super) fn applicable<'a>(template: &'a NodeTemplate, node: &Node) -> (Cow<'a, NodeTemplate>, Vec<String>) {
    let mut problems = invalid_entries(template);
    let mut applied = Cow::Borrowed(template);
    if !problems.is_empty() {
        remove_invalid(applied.to_mut());
    }
    while let Some(size) = excess(&applied, node)
        && let Some(largest) = largest_annotation(&applied.metadata)
    {
        problems.push(format!(
            "annotation {largest:?}: the annotations of the Node would have {size} bytes, and at most {ANNOTATIONS_MAX} are \
             allowed"
        ));
        applied.to_mut().metadata.annotations.remove(&largest);
    }
    (applied, problems)
}

fn invalid_entries(template: &NodeTemplate) -> Vec<String> {
    let meta = &template.metadata;
    let labels = meta.labels.iter().filter_map(|(key, value)| Some(format!("label {key:?}: {}", label(key, value)?)));
    let annotations =
        meta.annotations.keys().filter_map(|key| Some(format!("annotation {key:?}: {}", annotation(key)?)));
    let taints = taints(template).iter().filter_map(|it| Some(format!("taint {:?}: {}", it.key, taint(it)?)));
    labels.chain(annotations).chain(taints).collect()
}

fn remove_invalid(template: &mut NodeTemplate) {
    template.metadata.labels.retain(|key, value| label(key, value).is_none());
    template.metadata.annotations.retain(|key, _| annotation(key).is_none());
    if let Some(taints) = template.spec.as_mut().and_then(|spec| spec.taints.as_mut()) {
        taints.retain(|it| taint(it).is_none());
    }
}

const NAME: &str = "the key is not a qualified name such as example.com/name";

fn label(key: &str, value: &str) -> Option<String> {
    match is_qualified_name(key) {
        false => Some(NAME.to_owned()),
        true => label_value_problem(value).map(|problem| format!("the value {problem}")),
    }
}

/// The API server ignores the case of the keys of annotations.
fn annotation(key: &str) -> Option<&'static str> {
    if key.eq_ignore_ascii_case(labels::NODE_OF) {
        return Some("only the machine controller writes it");
    }
    (!is_qualified_name(&key.to_lowercase())).then_some(NAME)
}

fn taint(taint: &Taint) -> Option<String> {
    let effect = "the effect is none of NoSchedule, PreferNoSchedule, NoExecute";
    let is_effect = EFFECTS.contains(&taint.effect.as_str());
    label(&taint.key, taint.value.as_deref().unwrap_or_default()).or((!is_effect).then(|| effect.to_owned()))
}

fn taints(template: &NodeTemplate) -> &[Taint] {
    template.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

/// The size of the Node's annotations with those of the template, if it is too large. The template is stored once more,
/// as the merge base of the next write.
fn excess(template: &NodeTemplate, node: &Node) -> Option<usize> {
    let ours = &template.metadata.annotations;
    let is_other = |key: &str| !ours.contains_key(key) && key != labels::LAST_APPLIED_NODE_TEMPLATE;
    let others = node.annotations().iter().filter(|(key, _)| is_other(key));
    let others: usize = others.map(|(key, value)| key.len() + value.len()).sum();
    let plain = others + ours.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
    // Characters that JSON escapes are rare; only a template of some size has to be measured.
    let record = || labels::LAST_APPLIED_NODE_TEMPLATE.len() + json!(template).to_string().len();
    let total = if plain > ANNOTATIONS_MAX / 16 { plain + record() } else { plain };
    (total > ANNOTATIONS_MAX).then_some(total)
}

fn largest_annotation(meta: &TemplateMeta) -> Option<String> {
    meta.annotations.iter().max_by_key(|(key, value)| key.len() + value.len()).map(|(key, _)| key.clone())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn parts(template: Value) -> (NodeTemplate, Vec<String>) {
        let template = serde_json::from_value(template).unwrap();
        let (applied, problems) = applicable(&template, &Node::default());
        (applied.into_owned(), problems)
    }

    #[rstest]
    #[case::label_value(json!({ "metadata": { "labels": { "team": "data platform" } } }), r#"label "team": the value"#)]
    #[case::long_label_value(json!({ "metadata": { "labels": { "a": "x".repeat(64) } } }), r#"label "a": the value"#)]
    #[case::label_key(json!({ "metadata": { "labels": { "bad key": "x" } } }), r#"label "bad key": the key"#)]
    #[case::annotation_key(json!({ "metadata": { "annotations": { "bad key": "x" } } }), r#"annotation "bad key": the key"#)]
    #[case::large_annotation(
        json!({ "metadata": { "annotations": { "inventory": "x".repeat(140_000) } } }),
        r#"annotation "inventory": the annotations of the Node would have 2"#
    )]
    #[case::taint_effect(json!({ "spec": { "taints": [{ "key": "a", "effect": "NoSchedul" }] } }), r#"taint "a": the effect"#)]
    #[case::taint_key(json!({ "spec": { "taints": [{ "key": "a b", "effect": "NoExecute" }] } }), r#"taint "a b": the key"#)]
    #[case::taint_value(
        json!({ "spec": { "taints": [{ "key": "a", "value": "a b", "effect": "NoExecute" }] } }),
        r#"taint "a": the value"#
    )]
    fn an_invalid_entry_is_left_out_and_the_others_are_applied(#[case] change: Value, #[case] problem: &str) {
        let good = json!({
            "metadata": { "labels": { "x.io/pool": "a", "empty": "" }, "annotations": { "X.io/Owner": "any text, 100 %" } },
            "spec": { "taints": [{ "key": "dedicated", "effect": "NoSchedule" }] },
        });
        let (valid, problems) = parts(good.clone());
        assert_eq!(problems, [""; 0]);
        let mut both = good;
        for part in ["labels", "annotations"] {
            let entries = change["metadata"][part].as_object().cloned().unwrap_or_default();
            both["metadata"][part].as_object_mut().unwrap().extend(entries);
        }
        let taints = change["spec"]["taints"].as_array().cloned().unwrap_or_default();
        both["spec"]["taints"].as_array_mut().unwrap().extend(taints);
        let (applied, problems) = parts(both);
        assert_eq!(applied, valid);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].starts_with(problem), "{problems:?}");
    }

    #[test]
    fn annotations_of_others_count_for_the_total_size() {
        let template = serde_json::from_value(json!({ "metadata": { "annotations": { "a": "x".repeat(20_000) } } }));
        let template: NodeTemplate = template.unwrap();
        let with = |size: usize| -> Node {
            serde_json::from_value(json!({ "metadata": { "annotations": { "other": "x".repeat(size) } } })).unwrap()
        };
        assert!(applicable(&template, &with(200_000)).1.is_empty());
        assert_eq!(applicable(&template, &with(240_000)).1.len(), 1);
    }
}
