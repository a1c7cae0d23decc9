//! Each field of the infrastructure of a cluster, as the CRDs of other providers have it, is known to the conversion of its
//! machines.

use std::{
    io::Write,
    path::PathBuf,
    process::{Command, Stdio},
};

use rstest::rstest;
use serde_json::{Map, Value, json};

use crate::support::program::MCM;

/// A value of this schema with all of its fields, each with a value that is not empty.
fn sample(schema: &Value) -> Value {
    match schema["type"].as_str().unwrap_or_default() {
        "boolean" => json!(true),
        "integer" | "number" => json!(7),
        "array" => json!([sample(&schema["items"])]),
        "object" => match schema["properties"].as_object() {
            Some(properties) => {
                let fields = properties.iter().map(|(name, schema)| (name.clone(), sample(schema)));
                Value::Object(fields.collect::<Map<_, _>>())
            }
            None => json!({"x": sample(&schema["additionalProperties"])}),
        },
        _ => json!("x"),
    }
}

fn schema_of(line: usize, file: &str, version: &str) -> Value {
    let folders = std::env::var("MCM_TEST_OTHER_PROVIDERS")
        .unwrap_or_else(|_| panic!("run these tests with hack/test-clusterctl"));
    let file = PathBuf::from(folders.lines().nth(line).unwrap()).join(file);
    let crd: Value = serde_yaml_ng::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let versions = crd["spec"]["versions"].as_array().unwrap();
    let found = versions.iter().find(|one| one["name"] == version).unwrap();
    found["schema"]["openAPIV3Schema"]["properties"]["spec"].clone()
}

fn converted(objects: &[Value]) -> String {
    let mut command = Command::new(MCM);
    command.args(["convert", "--to", "capi", "--credentials-secret", "cloud", "-f", "-"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    child.stdin.take().unwrap().write_all(list.to_string().as_bytes()).unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap()
}

#[rstest]
#[case::aws(0, "infrastructure.cluster.x-k8s.io", "AWSCluster", "v1beta2", "AWSMachineTemplate")]
#[case::eks(0, "controlplane.cluster.x-k8s.io", "AWSManagedControlPlane", "v1beta2", "AWSMachineTemplate")]
#[case::gcp(1, "infrastructure.cluster.x-k8s.io", "GCPCluster", "v1beta1", "GCPMachineTemplate")]
fn each_field_of_the_cluster_is_used_listed_or_refused(
    #[case] line: usize,
    #[case] group: &str,
    #[case] kind: &str,
    #[case] version: &str,
    #[case] template: &str,
) {
    let schema = schema_of(line, &format!("{group}_{}s.yaml", kind.to_lowercase()), version);
    let reference = |group: &str, kind: &str| json!({"apiGroup": group, "kind": kind, "name": "c1"});
    let objects = |spec: Value| {
        let (of_cluster, metadata) = (format!("{group}/{version}"), json!({"name": "c1", "namespace": "demo"}));
        let machines = json!({"clusterName": "c1", "bootstrap": {"dataSecretName": "b"}, "infrastructureRef": reference(
            "infrastructure.cluster.x-k8s.io", template,
        )});
        [
            json!({
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": metadata,
                "spec": {"infrastructureRef": reference(group, kind), "controlPlaneRef": reference(group, kind)},
            }),
            json!({"apiVersion": of_cluster, "kind": kind, "metadata": metadata, "spec": spec}),
            json!({
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment", "metadata": metadata,
                "spec": {"clusterName": "c1", "template": {"spec": machines}},
            }),
            json!({
                "apiVersion": format!("infrastructure.cluster.x-k8s.io/{version}"), "kind": template,
                "metadata": metadata, "spec": {"template": {"spec": {"instanceType": "x"}}},
            }),
        ]
    };
    const UNKNOWN: &str = "has no rule for this field of the cluster";
    let mut spec = sample(&schema);
    assert!(spec.as_object().unwrap().len() >= 10, "{spec}");
    let text = converted(&objects(spec.clone()));
    assert!(text.contains(template) && !text.contains(UNKNOWN), "{text}");
    spec["fieldOfALaterVersion"] = json!("x");
    let text = converted(&objects(spec));
    assert!(text.contains("spec.fieldOfALaterVersion") && text.contains(UNKNOWN), "{text}");
}
