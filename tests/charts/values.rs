//! Each value of `values.yaml` in each mode: it changes what the chart renders, or Helm refuses it.

use std::collections::BTreeMap;

use rstest::rstest;
use serde_json::{Value, json};

use crate::cluster::{CHART, Cluster, play};

/// Paths, and the value that has to be set so that a template reads them.
const NEEDS: [(&str, &str); 7] = [
    ("target.secret", r#"target={"type":"secret","secretName":"shoot"}"#),
    ("monitoring.serviceMonitor.interval", "monitoring.serviceMonitor.enabled=true"),
    ("monitoring.serviceMonitor.labels", "monitoring.serviceMonitor.enabled=true"),
    ("monitoring.prometheusRule.runbookBase", "monitoring.prometheusRule.enabled=true"),
    ("monitoring.prometheusRule.labels", "monitoring.prometheusRule.enabled=true"),
    ("monitoring.dashboards.labels", "monitoring.dashboards.enabled=true"),
    ("crds.", "crds.enabled=true"),
];

/// Values that differ from the default one. Of several, each is for some modes.
fn others(path: &str, default: &Value) -> Vec<Value> {
    match default {
        Value::Bool(value) => return vec![json!(!value)],
        Value::Number(value) => return vec![json!(value.as_u64().unwrap() + 1)],
        _ => {}
    }
    let named = |name: &str| json!([{ "name": name }]);
    match path {
        "image.digest" => vec![json!(format!("sha256:{}", "0".repeat(64)))],
        "image.pullPolicy" => vec![json!("Always")],
        "target.type" => vec![json!("none")],
        "target.bootstrapTokens" => vec![json!(true), json!(false)],
        "dropIn.programs" => vec![json!(["machine-controller"])],
        "log.format" => vec![json!("json")],
        "resources.requests.cpu" | "resources.requests.memory" | "resources.limits.memory" => vec![json!("2Gi")],
        "topologySpreadConstraints" => vec![json!([])],
        "networkPolicy.from" => vec![json!([{ "podSelector": {} }])],
        "monitoring.serviceMonitor.interval" => vec![json!("10s")],
        "monitoring.prometheusRule.runbookBase" => vec![json!("https://git.example/mcm/")],
        _ if path.starts_with("extraArgs.") => vec![json!(["--flag"])],
        _ if default.is_string() => vec![json!("other")],
        _ if default.is_array() => vec![named("other")],
        _ => vec![json!({ "other": "other" })],
    }
}

/// Paths and default values: all but objects with fields.
fn leaves(value: &Value, path: &str, all: &mut BTreeMap<String, Value>) {
    match value.as_object().filter(|fields| !fields.is_empty()) {
        Some(fields) => {
            let dot = if path.is_empty() { "" } else { "." };
            fields.iter().for_each(|(name, below)| leaves(below, &format!("{path}{dot}{name}"), all));
        }
        None => drop(all.insert(path.to_owned(), value.clone())),
    }
}

/// `None` if Helm refuses the values because of the schema.
fn render(cluster: &Cluster, mode: &str, values: &[String]) -> Option<String> {
    let mode = format!("mode=\"{mode}\"");
    let mut words =
        vec!["template", "mcm", CHART, "-n", "sys", "--set-json", &mode, "--set-json", "crds.enabled=false"];
    values.iter().for_each(|value| words.extend(["--set-json", value]));
    match cluster.try_helm(&words) {
        Ok(manifest) => Some(manifest),
        Err(error) if error.contains("values don't meet") => None,
        Err(error) => panic!("{values:?}: {error}"),
    }
}

#[rstest]
fn each_value_changes_what_a_mode_renders_or_is_refused(#[values("standalone", "drop-in", "capi-manager")] mode: &str) {
    play(async |cluster| {
        let values = std::fs::read_to_string(format!("{CHART}/values.yaml")).unwrap();
        let mut all = BTreeMap::new();
        leaves(&serde_yaml_ng::from_str(&values).unwrap(), "", &mut all);
        assert_eq!(all.remove("mode"), Some(json!("standalone")));
        assert!(all.len() > 50, "{all:?}");
        let mut rendered: BTreeMap<Vec<String>, Option<String>> = BTreeMap::new();
        let mut ignored = Vec::new();
        for (path, default) in &all {
            let needs = NEEDS.iter().filter(|(of, _)| path.starts_with(of)).map(|(_, need)| (*need).to_owned());
            let needs: Vec<String> = needs.collect();
            let before = rendered.entry(needs.clone()).or_insert_with(|| render(cluster, mode, &needs)).clone();
            let after = others(path, default)
                .into_iter()
                .map(|other| render(cluster, mode, &[&needs[..], &[format!("{path}={other}")]].concat()));
            let accepted: Vec<Option<String>> = after.filter(Option::is_some).collect();
            if !accepted.is_empty() && accepted.iter().all(|after| *after == before) {
                ignored.push(path);
            }
        }
        assert!(ignored.is_empty(), "{mode} ignores {ignored:?}");
    });
}
