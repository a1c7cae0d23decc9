//! The alerts and dashboards of `config/monitoring`. promtool tests the expressions: `hack/test-rules`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use regex::Regex;
use serde_json::Value;

use super::{
    ROOT, dashboards,
    metrics::{families, family_of},
};

/// Files of rules. The second is for installations in the place of the Go programs.
const RULES: [&str; 2] = ["rules.yaml", "rules-drop-in.yaml"];

fn read(path: &str) -> String {
    fs::read_to_string(format!("{ROOT}/{path}")).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn yaml(name: &str) -> Value {
    serde_yaml_ng::from_str(&read(&format!("config/monitoring/{name}"))).unwrap()
}

/// The alerts, by name.
fn alerts() -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    for file in RULES {
        for group in yaml(file)["groups"].as_array().unwrap() {
            for rule in group["rules"].as_array().unwrap() {
                let name = rule["alert"].as_str().unwrap().to_owned();
                assert!(found.insert(name, rule.clone()).is_none(), "{rule}");
            }
        }
    }
    found
}

/// Expressions, with the place of each.
fn expressions() -> Vec<(String, String)> {
    let of_alerts = alerts().into_iter().map(|(name, rule)| (name, rule["expr"].as_str().unwrap().to_owned()));
    let of_dashboards = dashboards::queries().map(|(place, query)| (place, query.to_owned()));
    of_alerts.chain(of_dashboards).collect()
}

#[test]
fn every_metric_of_an_alert_or_dashboard_exists() {
    let families = families();
    let name = Regex::new(r"\b(?:mcm|process|rest_client)_[a-z_]+\b").unwrap();
    let mut problems = Vec::new();
    let mut checked = BTreeSet::new();
    for (place, expression) in expressions() {
        for series in name.find_iter(&expression).map(|found| found.as_str()) {
            checked.insert(series.to_owned());
            if family_of(&families, series).is_none() {
                problems.push(format!("{place}: there is no metric {series}"));
            }
        }
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
    assert!(checked.len() > 30, "{checked:?}");
}

#[test]
fn every_kind_of_wait_of_an_alert_exists() {
    let kinds: BTreeSet<String> =
        read("docs/waits.md").lines().filter_map(|line| line.strip_prefix("## ")).map(str::to_owned).collect();
    let pattern = Regex::new(r#"kind=~?"([A-Za-z|]+)""#).unwrap();
    let mut checked = 0;
    for (place, expression) in expressions() {
        for kind in pattern
            .captures_iter(&expression)
            .flat_map(|found| found[1].split('|').map(str::to_owned).collect::<Vec<_>>())
        {
            checked += 1;
            assert!(kinds.contains(&kind), "{place}: there is no wait {kind}");
        }
    }
    assert!(checked >= 10, "{checked}");
}

#[test]
fn every_alert_has_a_page_and_every_page_an_alert() {
    let alerts = alerts();
    let index = read("docs/runbooks/README.md");
    for (name, rule) in &alerts {
        let path = rule["annotations"]["runbook_url"].as_str().unwrap();
        assert_eq!(path, format!("docs/runbooks/{name}.md"));
        let page = read(path);
        assert!(page.starts_with(&format!("# {name}: ")), "{path}");
        assert!(page.contains("\n## See\n") && page.contains("\n## Do\n"), "{path}");
        let severity = rule["labels"]["severity"].as_str().unwrap();
        assert!(index.contains(&format!("| [{name}]({name}.md) | {severity} |")), "{name} in docs/runbooks/README.md");
    }
    for entry in fs::read_dir(format!("{ROOT}/docs/runbooks")).unwrap() {
        let name = entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned();
        assert!(name == "README" || alerts.contains_key(&name), "{name}");
    }
}

#[test]
fn every_alert_is_tested_while_it_fires_and_while_it_is_silent() {
    let tests = yaml("rules_test.yaml");
    let checks: Vec<&Value> = tests["tests"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|test| test["alert_rule_test"].as_array().unwrap())
        .collect();
    for name in alerts().keys() {
        let of_alert = checks.iter().filter(|check| check["alertname"] == name.as_str());
        let (fires, silent): (Vec<&Value>, Vec<&Value>) = of_alert.partition(|check| !check["exp_alerts"].is_null());
        // Silent while all is well, and before or without the cause.
        assert!(!fires.is_empty() && silent.len() >= 2, "{name}: {} fire, {} are silent", fires.len(), silent.len());
    }
    for check in checks {
        assert!(alerts().contains_key(check["alertname"].as_str().unwrap()), "{check}");
    }
}
