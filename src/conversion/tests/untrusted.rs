//! Input is not trusted: any input has a result, and reports contain nothing confidential.

use proptest::{
    collection, option,
    prelude::{Just, ProptestConfig},
    prop_assert, prop_assert_eq, prop_oneof, proptest,
    sample::{Index, select},
    strategy::Strategy,
};
use rstest::rstest;
use serde_json::{Value, json};

use super::{any, aws, capi_deployment, gcp, machine_pool, native_deployment, refused, set, to_capi, to_native};
use crate::{ConversionOptions, ConversionResult, InfrastructureChoice, UNMAPPED, to_capi as to_capi_with};

const SECRET: &str = "s3cr3t";

/// Any value of YAML, with names that the conversion reads.
fn value() -> impl Strategy<Value = Value> {
    let names = || select(vec!["spec", "name", "kind", "template", "metadata", "labels", "x", ""]);
    let leaf = prop_oneof![
        Just(Value::Null),
        proptest::arbitrary::any::<bool>().prop_map(Value::from),
        proptest::arbitrary::any::<i64>().prop_map(Value::from),
        proptest::arbitrary::any::<f64>().prop_map(Value::from),
        select(vec![
            "",
            "a",
            "100%",
            "-1",
            "9999999999",
            "876000h",
            "1e400s",
            "[1-",
            "a/b/c",
            "aws:///",
            "gce://",
            "é\0"
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, move |inner| {
        prop_oneof![
            collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            collection::btree_map(names().prop_map(str::to_owned), inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// Everything that may stand anywhere in an object.
pub fn pointers(value: &Value) -> Vec<String> {
    let mut found = vec![String::new()];
    let children: Vec<(String, &Value)> = match value {
        Value::Object(fields) => {
            fields.iter().map(|(key, value)| (key.replace('~', "~0").replace('/', "~1"), value)).collect()
        }
        Value::Array(items) => items.iter().enumerate().map(|(index, value)| (index.to_string(), value)).collect(),
        _ => Vec::new(),
    };
    for (key, value) in children {
        found.extend(pointers(value).into_iter().map(|rest| format!("/{key}{rest}")));
    }
    found
}

fn convert(objects: &[Value]) -> Vec<ConversionResult> {
    let cloud = ConversionOptions {
        infrastructure: InfrastructureChoice::OfCloud,
        cluster: Some("c1".into()),
        ..ConversionOptions::default()
    };
    vec![to_native(objects), to_capi(objects), to_capi_with(objects, &cloud)]
}

/// The object with a value that was confidential is named, the value is not.
fn says_a_secret(conversions: &[ConversionResult]) -> bool {
    let reports = conversions.iter().map(|one| format!("{:?} {:?}", one.losses, one.refusals));
    reports.into_iter().any(|report| report.contains(SECRET))
}

fn secret(name: &str, content: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name, "namespace": "demo" }, "data": content })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn no_value_in_any_place_breaks_the_conversion(
        capi in any::capi_deployment(),
        native in any::native_deployment(),
        machine in any::capi_machine(),
        at in proptest::arbitrary::any::<Index>(),
        value in value(),
    ) {
        for mut objects in [capi, native, machine, aws::aws(), gcp::gcp_in_zone(), machine_pool::capi_pool()] {
            let all: Vec<(usize, String)> = objects
                .iter()
                .enumerate()
                .flat_map(|(index, object)| pointers(object).into_iter().map(move |pointer| (index, pointer)))
                .collect();
            let (index, pointer) = at.get(&all);
            *objects[*index].pointer_mut(pointer).unwrap() = value.clone();
            convert(&objects);
        }
    }

    #[test]
    fn no_object_breaks_the_conversion(
        kind in select(vec![
            ("cluster.x-k8s.io/v1beta2", "MachineDeployment"), ("cluster.x-k8s.io/v1beta2", "MachineSet"),
            ("cluster.x-k8s.io/v1beta2", "Machine"), ("cluster.x-k8s.io/v1beta2", "MachinePool"),
            ("cluster.x-k8s.io/v1beta2", "MachineHealthCheck"), ("cluster.x-k8s.io/v1beta2", "Cluster"),
            ("infrastructure.cluster.x-k8s.io/v1beta2", "AWSMachineTemplate"),
            ("infrastructure.cluster.x-k8s.io/v1beta1", "GCPMachineTemplate"),
            ("machine.sapcloud.io/v1alpha1", "MachineDeployment"), ("machine.sapcloud.io/v1alpha1", "MachineSet"),
            ("machine.sapcloud.io/v1alpha1", "Machine"), ("machine.sapcloud.io/v1alpha1", "MachineClass"),
            ("v1", "Secret"), ("v1", "List"), ("", ""),
        ]),
        metadata in value(),
        spec in value(),
        items in option::of(value()),
        other in value(),
    ) {
        let object = json!({
            "apiVersion": kind.0, "kind": kind.1, "metadata": metadata, "spec": spec, "items": items, "providerSpec": spec,
            "provider": "AWS",
        });
        let all = convert(&[object, other]);
        prop_assert_eq!(all.len(), 3);
    }

    /// Notes are annotations, which any client may write.
    #[test]
    fn no_note_breaks_the_conversion(native in any::native_deployment(), value in value(), at in proptest::arbitrary::any::<Index>()) {
        let mut capi = to_capi_with(&native, &ConversionOptions { cluster: Some("c1".into()), ..ConversionOptions::default() }).objects;
        let Some(text) = capi[0]["metadata"]["annotations"][UNMAPPED].as_str() else { return Ok(()) };
        let mut note: Value = serde_json::from_str(text).unwrap();
        let all = pointers(&note);
        let pointer: &String = at.get(&all);
        *note.pointer_mut(pointer).unwrap() = value;
        set(&mut capi[0], "/metadata/annotations/conversion.mcm~1unmapped", json!(note.to_string()));
        to_native(&capi);
    }

    /// Secrets and undecodable values contain it in any place.
    #[test]
    fn confidential_values_are_in_no_report(
        capi in any::capi_deployment(),
        native in any::native_deployment(),
        data in prop_oneof![
            Just(json!({ "value": SECRET, "userData": SECRET })), Just(json!(SECRET)), Just(json!({ "value": { "x": SECRET } })),
            Just(json!({ "value": "PDxCT09UU1RSQVBfVE9LRU4+PiBzM2NyM3Q=", "userData": "PDxCT09UU1RSQVBfVE9LRU4+PiBzM2NyM3Q=" })),
        ],
    ) {
        for mut objects in [capi, native, aws::aws(), machine_pool::capi_pool()] {
            objects.retain(|one| one["kind"] != "Secret");
            for name in ["join", "cloud", "join-userdata", "small-bootstrap"] {
                objects.push(secret(name, data.clone()));
            }
            prop_assert!(!says_a_secret(&convert(&objects)));
        }
    }
}

/// A decoder quotes undecodable values.
#[rstest]
#[case("/spec/replicas", json!(SECRET), "spec.replicas", "is not valid: expected i32")]
#[case("/spec/template/spec/drainTimeout", json!(SECRET), "spec.template.spec.drainTimeout", "is not valid")]
#[case("/spec/template/metadata/labels", json!([SECRET]), "spec.template.metadata.labels", "is not valid: expected a map")]
#[case("/metadata/labels/a", json!({ "b": SECRET }), "metadata.labels.a", "is not valid: expected a string")]
fn a_value_that_cannot_be_read_is_named_by_its_path_and_not_quoted(
    #[case] pointer: &str,
    #[case] value: Value,
    #[case] path: &str,
    #[case] reason: &str,
) {
    let mut given = native_deployment();
    set(&mut given[0], pointer, value);
    let conversion = to_capi(&given);
    assert_eq!(refused(&conversion), [path]);
    assert_eq!(conversion.refusals[0].reason, reason);
}

/// Natively it would be replaced by another text.
#[test]
fn bootstrap_data_with_a_placeholder_is_refused() {
    let mut given = capi_deployment();
    set(&mut given[0], "/spec/template/spec/bootstrap/dataSecretName", json!("join"));
    given.extend(any::class());
    given.push(secret("join", json!({ "value": "PDxCT09UU1RSQVBfVE9LRU4+PiBzM2NyM3Q=" })));
    assert_eq!(refused(&to_native(&given)), ["spec.template.spec.bootstrap.dataSecretName"]);
}
