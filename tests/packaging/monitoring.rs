//! The alerts and dashboards of `config/monitoring`. promtool tests the expressions: `hack/test-rules`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use regex::Regex;
use serde_json::Value;

use rstest::rstest;

use super::{
    ROOT, dashboards,
    metrics::{families, family_of},
    objects, only,
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

/// A label that a scraper adds, such as `node`, would split a pair of replicas in two.
#[test]
fn every_alert_names_the_labels_that_it_keeps() {
    let label = Regex::new(r"\$labels\.([a-z]+)").unwrap();
    let kept = Regex::new(r"^(?:max|min) by \(([a-z, ]+)\)").unwrap();
    for (name, rule) in alerts() {
        let expression = rule["expr"].as_str().unwrap();
        assert!(!expression.contains("without ("), "{name}: {expression}");
        let texts = rule["annotations"].to_string();
        let used: BTreeSet<&str> = label.captures_iter(&texts).map(|found| found.get(1).unwrap().as_str()).collect();
        if expression.starts_with("absent(") {
            assert_eq!(used, BTreeSet::new(), "{name}");
            continue;
        }
        let kept = kept.captures(expression).unwrap_or_else(|| panic!("{name}: {expression}"));
        let kept: BTreeSet<&str> = kept.get(1).unwrap().as_str().split(", ").collect();
        assert!(used.is_subset(&kept), "{name}: {used:?}");
        assert!(kept.contains("cluster") && kept.contains("namespace"), "{name}: {kept:?}");
    }
}

/// Selectors of the commands in the pages of alerts, without those for Gardener.
fn selectors_of_runbooks() -> BTreeSet<String> {
    let selector = Regex::new(r"-l ([a-z./-]+=[a-z-]+)").unwrap();
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(format!("{ROOT}/docs/runbooks")).unwrap() {
        let page = fs::read_to_string(entry.unwrap().path()).unwrap();
        assert!(!page.contains("deploy/mcm"), "the name of the Deployment depends on the installation");
        found.extend(selector.captures_iter(&page).map(|one| one[1].to_owned()));
    }
    // Labels of the Deployment that Gardener creates.
    assert!(found.remove("role=machine-controller-manager"));
    found
}

#[rstest]
fn pages_of_alerts_find_the_pods_of_each_base_and_metrics_have_a_service(
    #[values("standalone", "drop-in", "cluster-api", "stand-in")] base: &str,
) {
    let all = objects(&read(&format!("config/{base}/manager.yaml")));
    let deployment = only(&all, "Deployment");
    let pod = &deployment["spec"]["template"];
    for selector in selectors_of_runbooks() {
        let (key, value) = selector.split_once('=').unwrap();
        for of in [&deployment["metadata"], &pod["metadata"]] {
            assert_eq!(of["labels"][key], value, "{base}: {selector}");
        }
    }
    let service = only(&all, "Service");
    assert_eq!(service["spec"]["selector"], deployment["spec"]["selector"]["matchLabels"]);
    let ports = pod["spec"]["containers"].as_array().unwrap().iter().flat_map(|one| one["ports"].as_array().unwrap());
    let ports: BTreeSet<_> = ports.map(|port| (port["name"].to_string(), port["containerPort"].as_u64())).collect();
    let served = service["spec"]["ports"].as_array().unwrap().iter();
    let served: BTreeSet<_> = served.map(|port| (port["name"].to_string(), port["port"].as_u64())).collect();
    assert!(served.is_subset(&ports), "{served:?} {ports:?}");
    assert!(ports.difference(&served).all(|(name, _)| name == "\"healthz\""), "{served:?} {ports:?}");
}

/// Prometheus names a job after its Service, and the alert of Gardener names the job.
#[test]
fn the_service_of_the_drop_in_is_the_job_of_its_alert() {
    let all = objects(&read("config/drop-in/manager.yaml"));
    let job = only(&all, "Service")["metadata"]["name"].as_str().unwrap();
    let expression = alerts()["MachineControllerManagerDown"]["expr"].clone();
    assert_eq!(expression, format!("absent(up{{job=\"{job}\"}} == 1)"));
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
