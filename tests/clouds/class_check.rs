//! `mcm class check --live`.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt, process::Command};

use crate::simulation::{ENDPOINTS, Simulation};

/// Result, field and text.
pub type Line = (String, String, String);

/// The result of a class check, with the endpoints in the environment.
pub async fn checked(cloud: &dyn Simulation, spec: Value, environment: &[(&str, &str)]) -> Vec<Line> {
    let class = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass",
        "metadata": {"name": "class", "namespace": "ns"}, "provider": cloud.provider(), "providerSpec": spec,
        "secretRef": {"name": "secret", "namespace": "ns"},
    });
    let mut data = cloud.secret();
    data.as_object_mut().unwrap().remove("endpointURL");
    let metadata = json!({"name": "secret", "namespace": "ns"});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data});
    let mut child = Command::new(env!("CARGO_BIN_EXE_mcm"))
        .args(["class", "check", "--live", "-o", "json", "-f", "-", ENDPOINTS])
        .envs(environment.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(format!("{class}\n{secret}").as_bytes()).await.unwrap();
    let output = child.wait_with_output().await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for secret in ["hunter2", "top-secret-key", "PRIVATE KEY", "ya29"] {
        assert!(!text.contains(secret), "{text}");
    }
    let report: Value = serde_json::from_str(&text).unwrap();
    let of = |line: &Value, name: &str| line[name].as_str().unwrap().to_owned();
    let lines = report["classes"][0]["results"].as_array().unwrap();
    lines.iter().map(|line| (of(line, "result"), of(line, "field"), of(line, "text"))).collect()
}
