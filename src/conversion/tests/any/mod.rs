//! Any objects that can be converted, with every field.

mod capi;
mod native;

use k8s_openapi::apimachinery::pkg::{
    apis::meta::v1::{LabelSelector, LabelSelectorRequirement, ObjectMeta, Time},
    util::intstr::IntOrString,
};
use proptest::{
    arbitrary::any, collection, option, prelude::Just, prop_compose, prop_oneof, sample::select, strategy::Strategy,
};
use serde_json::{Value, json};

use crate::{keys::MetadataMap, metadata::filled, types::NodeTaint};

pub use capi::{capi_deployment, capi_machine};
pub use native::{native_deployment, native_machine};

pub fn keys(known: &'static [&'static str]) -> impl Strategy<Value = MetadataMap> {
    collection::btree_map(
        select(known).prop_map(str::to_owned),
        select(vec!["", "a", "b"]).prop_map(str::to_owned),
        0..4,
    )
}

pub const OBJECT_KEYS: &[&str] = &[
    "team",
    "example.com/team",
    "cluster.x-k8s.io/watch-filter",
    "cluster.x-k8s.io/autoscaling-options-maxnodeprovisiontime",
    "topology.cluster.x-k8s.io/owned",
];
pub const TEMPLATE_LABELS: &[&str] = &[
    "team",
    "name",
    "machine-template-hash",
    "cluster.x-k8s.io/set-name",
    "node-role.kubernetes.io/worker",
    "node.cluster.x-k8s.io/size",
    "sub.node-restriction.kubernetes.io/x",
];
pub const TEMPLATE_ANNOTATIONS: &[&str] = &[
    "team",
    "node.cluster.x-k8s.io/owner",
    "cluster.x-k8s.io/delete-machine",
    "cluster.x-k8s.io/skip-remediation",
    "cluster.x-k8s.io/something",
    "machinepriority.machine.sapcloud.io",
    "node.machine.sapcloud.io/preserve",
];

pub fn number_or_percent() -> impl Strategy<Value = IntOrString> {
    prop_oneof![
        (0..5).prop_map(IntOrString::Int),
        (0..101).prop_map(|percent| IntOrString::String(format!("{percent}%"))),
    ]
}

pub fn time() -> impl Strategy<Value = Time> {
    (0..1_000_000_000i64).prop_map(|second| Time(jiff::Timestamp::from_second(second).unwrap()))
}

pub fn selector() -> impl Strategy<Value = LabelSelector> {
    let expression = LabelSelectorRequirement { key: "pool".into(), operator: "Exists".into(), values: None };
    (any::<bool>(), option::of(Just(expression))).prop_map(|(only, expression)| LabelSelector {
        match_labels: (!only || expression.is_none()).then(|| [("pool".to_owned(), "a".to_owned())].into()),
        match_expressions: expression.map(|expression| vec![expression]),
    })
}

prop_compose! {
    pub fn taint()(key in select(vec!["a", "b"]), value in select(vec!["", "x"]), effect in select(vec!["NoSchedule", "NoExecute"])) -> NodeTaint {
        NodeTaint { key: key.into(), value: value.into(), effect: effect.into() }
    }
}

/// The class `small`, with its Secret or without.
pub fn class() -> Vec<Value> {
    vec![json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass",
        "metadata": { "name": "small", "namespace": "demo" },
        "provider": "simulated", "providerSpec": { "x": null },
        "secretRef": { "name": "cloud", "namespace": "demo" },
        "nodeTemplate": { "capacity": { "cpu": "1" }, "instanceType": "x", "region": "eu", "zone": "eu-a" },
    })]
}

pub fn metadata(name: &str, labels: MetadataMap, annotations: MetadataMap) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.into()),
        namespace: Some("demo".into()),
        labels: filled(labels),
        annotations: filled(annotations),
        ..ObjectMeta::default()
    }
}
