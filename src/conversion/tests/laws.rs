//! The laws of 3.3.

use std::collections::BTreeSet;

use proptest::{
    prelude::{ProptestConfig, TestCaseError},
    prop_assert, prop_assert_eq, proptest,
    sample::Index,
};
use serde_json::{Value, json};

use super::{any, options, set, untrusted::pointers};
use crate::{ConversionLoss, ConversionOptions, ConversionResult, UNMAPPED, input::is_zero, to_capi, to_native};

fn sorted(mut objects: Vec<Value>) -> Vec<Value> {
    objects.sort_by_key(|object| format!("{} {}", object["kind"], object["metadata"]["name"]));
    objects
}

/// The set that a deployment would make.
fn as_set(mut objects: Vec<Value>) -> Vec<Value> {
    objects[0]["kind"] = json!("MachineSet");
    let spec = objects[0]["spec"].as_object_mut().unwrap();
    for field in ["rollout", "remediation", "paused", "strategy", "revisionHistoryLimit", "progressDeadlineSeconds"] {
        spec.remove(field);
    }
    objects
}

fn with_cluster() -> ConversionOptions {
    ConversionOptions { cluster: Some("c1".into()), ..options() }
}

/// Fields that both sides have in different forms: they are computed, and nothing is lost.
const COMPUTED_NATIVELY: &[&str] = &[
    "metadata.labels",
    "spec.strategy.rollingUpdate",
    "spec.template.metadata.annotations['node.cluster.x-k8s.io/",
    "spec.template.metadata.labels",
    "spec.template.spec.class.",
    "spec.template.spec.creationTimeout",
    "spec.template.spec.disableHealthTimeout",
    "spec.template.spec.drainTimeout",
    "spec.template.spec.healthTimeout",
    "spec.template.spec.nodeConditions",
    "spec.template.spec.nodeTemplate.metadata.annotations['node.cluster.x-k8s.io/",
    "spec.template.spec.nodeTemplate.metadata.labels",
];
const COMPUTED_IN_CLUSTER_API: &[&str] = &[
    "spec.deletion",
    "spec.machineNaming",
    "spec.remediation",
    "spec.rollout.strategy.rollingUpdate",
    "spec.template.metadata.annotations['cluster.x-k8s.io/delete-machine']",
    "spec.template.metadata.annotations['cluster.x-k8s.io/skip-remediation']",
    "spec.template.metadata.annotations['machinepriority.machine.sapcloud.io']",
    "spec.template.metadata.labels",
    "spec.template.spec.bootstrap.dataSecretName",
    "spec.template.spec.deletion.nodeDrainTimeoutSeconds",
    "spec.template.spec.failureDomain",
    "spec.template.spec.infrastructureRef.name",
    "spec.template.spec.taints",
];

/// The paths of all values that differ, except values that Go leaves out.
fn differences(path: &str, one: &Value, other: &Value) -> Vec<String> {
    if one == other || (is_zero(one) && is_zero(other)) {
        return Vec::new();
    }
    if let (Value::Array(a), Value::Array(b)) = (one, other)
        && a.len() == b.len()
    {
        let items = a.iter().zip(b).enumerate();
        return items.flat_map(|(index, (a, b))| differences(&format!("{path}[{index}]"), a, b)).collect();
    }
    let fields = |value: &Value| value.as_object().cloned().unwrap_or_default();
    let (a, b) = (fields(one), fields(other));
    let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    if keys.is_empty() {
        return vec![path.to_owned()];
    }
    let is_map = path.ends_with("labels") || path.ends_with("annotations");
    let below = |key: &String| {
        let path = match key {
            key if is_map => format!("{path}['{key}']"),
            key if path.is_empty() => key.clone(),
            key => format!("{path}.{key}"),
        };
        differences(&path, a.get(key).unwrap_or(&Value::Null), b.get(key).unwrap_or(&Value::Null))
    };
    keys.into_iter().flat_map(below).collect()
}

/// Without the annotation that a value is kept in.
fn forgotten(mut objects: Vec<Value>) -> Vec<Value> {
    for object in &mut objects {
        if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
            annotations.remove(UNMAPPED);
        }
    }
    objects
}

/// Losses without a report: paths that are not restored without the note.
fn silent(source: &Value, back: &Value, losses: &[ConversionLoss], computed: &[&str]) -> Vec<String> {
    let mut all = differences("", source, back);
    all.retain(|path| !losses.iter().any(|loss| !loss.path.is_empty() && path.starts_with(&loss.path)));
    all.retain(|path| !computed.iter().any(|computed| path.starts_with(computed)));
    all
}

type Convert = fn(&[Value], &ConversionOptions) -> ConversionResult;

/// Objects that are converted there and back are as they were, and nothing is refused on either way.
fn comes_back(objects: Vec<Value>, there: Convert, back: Convert) -> Result<(), TestCaseError> {
    let converted = there(&objects, &with_cluster());
    prop_assert_eq!(&converted.refusals, &[]);
    let back = back(&converted.objects, &with_cluster());
    prop_assert_eq!(&back.refusals, &[]);
    prop_assert_eq!(sorted(back.objects), sorted(objects));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// `toCAPI(toNative(default(x))) == default(x)`
    #[test]
    fn a_deployment_of_cluster_api_is_restored(objects in any::capi_deployment()) {
        comes_back(objects, to_native, to_capi)?;
    }

    /// `toNative(toCAPI(y)) == y`
    #[test]
    fn a_native_deployment_is_restored(objects in any::native_deployment()) {
        comes_back(objects, to_capi, to_native)?;
    }

    /// Both laws for sets.
    #[test]
    fn a_set_is_restored(capi in any::capi_deployment(), native in any::native_deployment()) {
        comes_back(as_set(capi), to_native, to_capi)?;
        comes_back(as_set(native), to_capi, to_native)?;
    }

    /// `toCAPI(toNative(default(x))) == default(x)`
    #[test]
    fn a_machine_of_cluster_api_is_restored(objects in any::capi_machine()) {
        let native = to_native(&objects, &with_cluster());
        prop_assert_eq!(&native.refusals, &[]);
        let back = to_capi(&native.objects, &with_cluster());
        if back.refusals.is_empty() {
            prop_assert_eq!(sorted(back.objects), sorted(objects));
        } else {
            // The zone of the Node cannot be known from a class without one.
            prop_assert!(back.refusals.iter().all(|refusal| refusal.path == "spec.providerID"));
        }
    }

    /// `toNative(toCAPI(y)) == y`
    #[test]
    fn a_native_machine_is_restored(objects in any::native_machine()) {
        comes_back(objects, to_capi, to_native)?;
    }

    #[test]
    fn nothing_native_is_lost_silently(objects in any::native_deployment()) {
        let capi = to_capi(&objects, &with_cluster());
        let back = forgotten(to_native(&forgotten(capi.objects), &with_cluster()).objects);
        prop_assert_eq!(silent(&objects[0], &back[0], &capi.losses, COMPUTED_NATIVELY), Vec::<String>::new());
    }

    #[test]
    fn nothing_of_cluster_api_is_lost_silently(objects in any::capi_deployment()) {
        let native = to_native(&objects, &with_cluster());
        let back = forgotten(to_capi(&forgotten(native.objects), &with_cluster()).objects);
        prop_assert_eq!(silent(&objects[0], &back[0], &native.losses, COMPUTED_IN_CLUSTER_API), Vec::<String>::new());
    }

    /// A field that the schema does not have is refused with its path, at any depth.
    #[test]
    fn an_unknown_field_is_refused_and_named(
        capi in any::capi_deployment(),
        native in any::native_deployment(),
        at in proptest::arbitrary::any::<Index>(),
    ) {
        for (mut objects, is_capi) in [(capi, true), (native, false)] {
            let free = ["labels", "annotations", "matchLabels", "status", "templateRef"];
            let places: Vec<String> = pointers(&objects[0])
                .into_iter()
                .filter(|pointer| objects[0].pointer(pointer).is_some_and(Value::is_object))
                // Native templates keep unknown metadata, as the API server does.
                .filter(|pointer| is_capi || !(pointer.ends_with("/metadata") && pointer != "/metadata"))
                .filter(|pointer| !free.iter().any(|free| pointer.ends_with(free)))
                .collect();
            let place = at.get(&places);
            set(&mut objects[0], &format!("{place}/noSuchField"), json!("x"));
            let conversion =
                if is_capi { to_native(&objects, &with_cluster()) } else { to_capi(&objects, &with_cluster()) };
            let named = conversion.refusals.iter().any(|refusal| refusal.path.ends_with("noSuchField"));
            prop_assert!(named, "{:?} names nothing below {}", conversion.refusals, place);
            prop_assert!(!conversion.objects.iter().any(|object| object["kind"] == "MachineDeployment"));
        }
    }
}
