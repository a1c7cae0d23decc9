use std::{sync::Arc, time::Instant};

use serde_json::{Value, json};

use super::*;
use crate::cli::run::default_settings;
use mcm_driver_host::DriverCatalogue;
use mcm_fake_api::{
    ApiServer, CLASSES, DEPLOYMENTS, MACHINES, NODES, PerfectNetwork, SECRETS, SETS, clock::VirtualClock,
};
use mcm_insight::{place::CallTarget, read_only::ReadOnlyClients, testing::TERMINAL};

const NAMESPACE: &str = "demo";
const API: &str = "machine.sapcloud.io/v1alpha1";
/// Machines of each of the deployments.
const OF_EACH: usize = 1000;
const DEPLOYMENTS_OF_ALL: usize = 5;

fn owner(kind: &str, name: &str) -> Value {
    json!([{ "apiVersion": API, "kind": kind, "name": name, "uid": format!("uid-{name}"), "controller": true }])
}

fn object(kind: &str, name: &str, more: Value) -> Value {
    let mut value = json!({ "apiVersion": API, "kind": kind, "metadata": {
        "name": name, "namespace": NAMESPACE, "uid": format!("uid-{name}"), "generation": 1,
        "creationTimestamp": "2026-11-01T00:00:00Z",
    } });
    crate::api::patch::apply(&mut value, &more);
    value
}

/// A control plane whose Nodes all are silent.
fn outage() -> ApiServer {
    let server = ApiServer::new(&VirtualClock::starting(jiff::Timestamp::now()), Arc::new(PerfectNetwork));
    let secret = json!({ "metadata": { "name": "keys", "namespace": NAMESPACE }, "data": { "userData": "eA==" } });
    server.seed(&SECRETS, secret);
    server.seed(
        &CLASSES,
        object(
            "MachineClass",
            "small",
            json!({
                "provider": "elsewhere", "providerSpec": {}, "secretRef": { "name": "keys", "namespace": NAMESPACE },
            }),
        ),
    );
    let since = jiff::Timestamp::now();
    for pool in 0..DEPLOYMENTS_OF_ALL {
        let (pool, set) = (format!("pool-{pool}"), format!("pool-{pool}-84dff"));
        let template = json!({ "metadata": { "labels": { "pool": pool } }, "spec": { "class": { "kind": "MachineClass", "name": "small" } } });
        let selector = json!({ "matchLabels": { "pool": pool } });
        let rolling = json!({ "maxSurge": 1, "maxUnavailable": 1 });
        server.seed(
            &DEPLOYMENTS,
            object(
                "MachineDeployment",
                &pool,
                json!({
                    "spec": {
                        "replicas": OF_EACH, "template": template, "selector": selector,
                        "strategy": { "type": "RollingUpdate", "rollingUpdate": rolling },
                    },
                    "status": { "observedGeneration": 1, "replicas": OF_EACH, "updatedReplicas": OF_EACH },
                }),
            ),
        );
        server.seed(
            &SETS,
            object(
                "MachineSet",
                &set,
                json!({
                    "metadata": { "ownerReferences": owner("MachineDeployment", &pool), "labels": { "pool": pool } },
                    "spec": { "replicas": OF_EACH, "template": template, "selector": selector },
                    "status": { "observedGeneration": 1, "replicas": OF_EACH },
                }),
            ),
        );
        for number in 0..OF_EACH {
            let name = format!("{set}-{number:05}");
            let condition = json!({ "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown" });
            server.seed(&MACHINES, object("Machine", &name, json!({
                "metadata": {
                    "ownerReferences": owner("MachineSet", &set), "labels": { "pool": pool, "node": name },
                    "finalizers": ["machine.sapcloud.io/machine-controller-manager"],
                },
                "spec": { "class": { "kind": "MachineClass", "name": "small" }, "providerID": format!("elsewhere:///{name}") },
                "status": {
                    "currentStatus": { "phase": "Unknown", "lastUpdateTime": since }, "conditions": [condition],
                    "lastOperation": { "type": "HealthCheck", "state": "Processing", "lastUpdateTime": since },
                },
            })));
            let zone = if number.is_multiple_of(4) { "eu-1b" } else { "eu-1a" };
            server.seed(
                &NODES,
                json!({
                    "apiVersion": "v1", "kind": "Node",
                    "metadata": {
                        "name": name, "uid": format!("node-{name}"), "labels": { "topology.kubernetes.io/zone": zone },
                        "annotations": { "machine.mcm/node-of": format!("{NAMESPACE}/{name}/uid-{name}") },
                    },
                    "spec": { "providerID": format!("elsewhere:///{name}") },
                    "status": { "conditions": [condition] },
                }),
            );
        }
    }
    server
}

/// Prints the figures with --nocapture.
fn fits(what: &str, text: &str) {
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() <= 24, "{what} has {} lines:\n{}", lines.len(), lines[..40.min(lines.len())].join("\n"));
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("Ready=Unknown (NodeStatusUnknown)"), "{what} names the condition:\n{text}");
    assert!(words.contains("zones: eu-1a"), "{what} names the zones:\n{text}");
    eprintln!("{what}:\n{text}");
}

/// Situation 48: all Nodes are silent.
#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_five_thousand_machines_fits_one_screen() {
    let server = outage();
    let client = server.client("reader");
    let uri = http::Uri::default();
    let reach = ReadOnlyClients {
        control: client.clone(),
        server: uri.clone(),
        target: Some((client, uri)),
        namespace: NAMESPACE.to_owned(),
        place: CallTarget::default(),
    };
    let begun = Instant::now();
    let cell = ReadOnly::from_clients(reach, default_settings(DriverCatalogue::default())).await;
    eprintln!("caches: {:?}", begun.elapsed());
    let facts = reader::facts(&cell).await.unwrap();
    eprintln!("facts: {:?}", begun.elapsed());
    let all = facts.all();
    eprintln!("answers: {:?}", begun.elapsed());
    fits("why", &report::all(TERMINAL, &all, &facts, &[]));
    eprintln!("why: {:?}", begun.elapsed());
    let roots: Vec<SubjectRef> =
        facts.deployments.keys().map(|name| facts.subject("MachineDeployment", name)).collect();
    let (branches, _) = tree::grow(&cell, &facts, &roots).await;
    eprintln!("branches: {:?}", begun.elapsed());
    fits("tree", &tree::report::text(TERMINAL, &branches, false, facts.now));
    eprintln!("tree: {:?}", begun.elapsed());
    fits("top", &view::plain(TERMINAL, &TopModel::from_facts(&facts)));
    eprintln!("top: {:?}", begun.elapsed());
}
