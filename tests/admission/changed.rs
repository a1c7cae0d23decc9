//! Updates that would leave machines without an owner are refused. Updates of controllers and Go clients are not.

use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams, PostParams},
};
use mcm::api::machine::GROUP;
use rstest::rstest;

use crate::{
    objects::{DEPLOYMENT, Kind, SET, yaml},
    support::control_plane::ControlPlane,
};

const KEPT: &str = "spec.selector: Invalid value: leave it as it is, because machines that it no longer selects would have no \
                    owner; to select by other labels, create another object";

/// A stored object whose template has more labels than the selector.
async fn stored(kind: Kind, change: &str) -> (Api<DynamicObject>, String) {
    let control_plane = ControlPlane::shared().await;
    let namespace = control_plane.namespace("changed").await;
    let api = kind.api(&control_plane.client(), GROUP, &namespace);
    let object = api.create(&PostParams::default(), &kind.with(change)).await.unwrap();
    (api, object.metadata.name.unwrap())
}

async fn changed(api: &Api<DynamicObject>, name: &str, change: &str) -> Result<DynamicObject, String> {
    let patch = Patch::Merge(yaml(change));
    api.patch(name, &PatchParams::default(), &patch).await.map_err(|error| error.to_string())
}

#[rstest]
#[case::one_more_label("spec: {selector: {matchLabels: {zone: a}}}")]
#[case::other_labels("spec: {selector: {matchLabels: {pool: null, zone: a}}}")]
#[case::another_value("spec: {selector: {matchLabels: {pool: b}}, template: {metadata: {labels: {pool: b}}}}")]
#[case::no_labels("spec: {selector: {matchLabels: null}}")]
#[case::an_expression("spec: {selector: {matchExpressions: [{key: pool, operator: Exists}]}}")]
#[tokio::test]
async fn another_selector_is_refused(#[values(SET, DEPLOYMENT)] kind: Kind, #[case] change: &str) {
    let (api, name) = stored(kind, "{}").await;
    let refusal = changed(&api, &name, change).await.unwrap_err();
    assert!(refusal.contains(KEPT) || refusal.contains(&KEPT.replace("value: ", "value: \"object\": ")), "{refusal}");
}

#[rstest]
#[case::another_value("[{key: zone, operator: In, values: [b]}]")]
#[case::another_operator("[{key: zone, operator: NotIn, values: [a]}]")]
#[case::none("null")]
#[tokio::test]
async fn another_expression_is_refused(#[values(SET, DEPLOYMENT)] kind: Kind, #[case] change: &str) {
    let expression = "spec: {selector: {matchExpressions: [{key: zone, operator: In, values: [a]}]}}";
    let (api, name) = stored(kind, expression).await;
    let change = format!("spec: {{selector: {{matchExpressions: {change}}}}}");
    assert!(changed(&api, &name, &change).await.unwrap_err().contains("leave it as it is"));
}

/// Clients of Go write whole objects, without empty parts.
#[rstest]
#[case::nothing_changes("{}", "spec: {replicas: 5, selector: {matchLabels: {pool: workers}}}")]
#[case::empty_parts_go(
    "spec: {selector: {matchExpressions: []}}",
    "spec: {replicas: 5, selector: {matchExpressions: null}}"
)]
#[case::empty_values_go(
    "spec: {selector: {matchExpressions: [{key: pool, operator: Exists, values: []}]}}",
    "spec: {selector: {matchExpressions: [{key: pool, operator: Exists}]}}"
)]
#[case::the_template_gets_a_label("{}", "spec: {template: {metadata: {labels: {some: label}}}}")]
#[tokio::test]
async fn the_same_selector_is_taken(#[values(SET, DEPLOYMENT)] kind: Kind, #[case] object: &str, #[case] change: &str) {
    let (api, name) = stored(kind, object).await;
    changed(&api, &name, change).await.unwrap();
}

/// The controllers do nothing for an empty selector, so its object has no machines.
#[rstest]
#[tokio::test]
async fn an_empty_selector_can_be_corrected(#[values(SET, DEPLOYMENT)] kind: Kind) {
    let (api, name) = stored(kind, "spec: {selector: {matchLabels: null}}").await;
    changed(&api, &name, "spec: {selector: {matchLabels: {pool: workers}}}").await.unwrap();
    changed(&api, &name, "spec: {selector: {matchLabels: {zone: a}}}").await.unwrap_err();
}

/// A deployment adds the hash of the template to a set that it adopts, once.
#[tokio::test]
async fn a_set_gets_the_hash_of_its_template() {
    let with_hash = |hash: &str| {
        format!(
            "spec: {{selector: {{matchLabels: {{machine-template-hash: {hash}}}}}, \
             template: {{metadata: {{labels: {{machine-template-hash: {hash}}}}}}}}}"
        )
    };
    let (api, name) = stored(SET, "{}").await;
    changed(&api, &name, &with_hash("'1'")).await.unwrap();
    changed(&api, &name, &with_hash("'2'")).await.unwrap_err();
    changed(&api, &name, &with_hash("null")).await.unwrap_err();
    let (api, name) = stored(DEPLOYMENT, "{}").await;
    changed(&api, &name, &with_hash("'1'")).await.unwrap_err();
}
