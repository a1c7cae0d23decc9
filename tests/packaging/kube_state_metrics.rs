//! The configuration of kube-state-metrics in `config/kube-state-metrics` reads fields that the CRDs have.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use mcm::api::labels;
use serde::Deserialize;
use serde_json::Value;

use super::{ROOT, yaml};

const FILE: &str = "config/kube-state-metrics/machines.yaml";
/// Fields of the metadata of each object, which a CRD does not list, and labels of Machines.
const METADATA: [&[&str]; 5] = [
    &["metadata", "namespace"],
    &["metadata", "name"],
    &["metadata", "creationTimestamp"],
    &["metadata", "labels", labels::NODE],
    &["metadata", "labels", labels::DEPLOYMENT_NAME],
];

type FieldPath = Vec<String>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ResourceEntry {
    group_version_kind: ObjectType,
    metric_name_prefix: String,
    labels_from_path: BTreeMap<String, FieldPath>,
    metrics: Vec<MetricEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ObjectType {
    group: String,
    version: String,
    kind: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MetricEntry {
    name: String,
    help: String,
    each: Value,
}

/// The schema of a kind in its CRD.
fn schema_of(kind: &ObjectType) -> Value {
    let definitions = fs::read_dir(format!("{ROOT}/crds")).unwrap().map(|entry| entry.unwrap().path());
    let files = definitions.filter(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    let mut specs = files.map(|path| {
        let text = fs::read_to_string(path).unwrap();
        serde_yaml_ng::from_str::<Value>(&text).unwrap()["spec"].clone()
    });
    let spec = specs.find(|spec| spec["group"] == kind.group.as_str() && spec["names"]["kind"] == kind.kind.as_str());
    let versions = spec.unwrap_or_else(|| panic!("there is no CRD of {}", kind.kind))["versions"].clone();
    let version = versions.as_array().unwrap().iter().find(|one| one["name"] == kind.version.as_str()).cloned();
    version.unwrap_or_else(|| panic!("{} has no version {}", kind.kind, kind.version))["schema"]["openAPIV3Schema"]
        .clone()
}

/// The schema of a field; of a list that of its items.
fn field<'a>(schema: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(schema, |schema, part| {
        let field = schema["properties"].get(part)?;
        Some(field.get("items").unwrap_or(field))
    })
}

/// A field exists, below the part of the object that a metric reads.
fn exists(schema: &Value, base: &[String], path: &[String]) -> bool {
    let whole: Vec<&str> = base.iter().chain(path).map(String::as_str).collect();
    METADATA.contains(&whole.as_slice()) || field(schema, base).is_some_and(|part| field(part, path).is_some())
}

#[test]
fn each_field_of_a_series_exists() {
    let config = yaml(FILE);
    assert_eq!(config["kind"], "CustomResourceStateMetrics");
    let (mut names, mut problems) = (BTreeSet::new(), Vec::new());
    for resource in config["spec"]["resources"].as_array().unwrap() {
        let ResourceEntry { group_version_kind, metric_name_prefix, labels_from_path, metrics } =
            serde_json::from_value(resource.clone()).unwrap();
        assert!(metric_name_prefix.starts_with("kube_"), "a series of this process has another prefix");
        let schema = schema_of(&group_version_kind);
        let mut check = |name: &str, base: &[String], path: &[String]| {
            if !exists(&schema, base, path) {
                problems.push(format!("{name}: {base:?} {path:?}"));
            }
        };
        labels_from_path.values().for_each(|path| check("all", &[], path));
        for MetricEntry { name, help, each } in metrics {
            assert!(help.ends_with('.'), "{name}: {help}");
            let form = each["type"].as_str().unwrap();
            let of_form = &each[form.to_lowercase()];
            let base: FieldPath = serde_json::from_value(of_form["path"].clone()).unwrap_or_default();
            check(&name, &[], &base);
            match form {
                "Info" => {
                    assert!(name.ends_with("_info"), "{name}");
                    for path in of_form["labelsFromPath"].as_object().unwrap().values() {
                        check(&name, &base, &serde_json::from_value::<FieldPath>(path.clone()).unwrap());
                    }
                }
                "Gauge" => assert_eq!(of_form.as_object().unwrap().len(), 1, "{name}"),
                other => panic!("{name}: unchecked type {other}"),
            }
            names.insert(name);
        }
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
    let expected = ["machine_condition_info", "machine_created", "machine_info", "machine_phase_info"];
    assert_eq!(names.iter().map(String::as_str).collect::<Vec<_>>(), expected);
}

#[test]
fn a_field_that_no_schema_has_is_found() {
    let kind = ObjectType {
        group: "machine.sapcloud.io".to_owned(),
        version: "v1alpha1".to_owned(),
        kind: "Machine".to_owned(),
    };
    let schema = schema_of(&kind);
    let path =
        |text: &str| -> FieldPath { text.split('.').filter(|part| !part.is_empty()).map(str::to_owned).collect() };
    for (base, below, is_there) in [
        ("status.conditions", "type", true),
        ("status.conditions", "state", false),
        ("status.currentStatus", "phase", true),
        ("status", "phase", false),
        ("", "metadata.labels.node", true),
        ("", "metadata.labels.nodes", false),
        ("spec", "class.name", true),
    ] {
        assert_eq!(exists(&schema, &path(base), &path(below)), is_there, "{base} {below}");
    }
}
