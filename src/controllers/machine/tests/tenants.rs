//! Two tenants of one cell: what the author of a Machine writes leads to no cluster but that of his namespace.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    Settings, machine, node,
    testing::{Leading, Standby, Wire, settings, until},
};
use mcm_api::labels;
use mcm_driver::{Code, Driver, DriverGuards, testing::FakeDriver};
use mcm_driver_host::DriverCatalogue;

/// Longer than every pause before a retry.
const LONG: Duration = Duration::from_mins(3);

/// The Namespaces `shoot` and `other`, whose Nodes are in the clusters `one` and `two`.
fn control() -> Wire {
    let wire = Wire::new();
    for (name, target) in [("shoot", "one"), ("other", "two")] {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"target": target}}});
        wire.create("namespaces", namespace);
    }
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "shoot"},
        // <<BOOTSTRAP_TOKEN>>
        "data": {"userData": "PDxCT09UU1RSQVBfVE9LRU4+Pg=="},
    });
    wire.put::<Value>("secrets/s", &secret);
    let class = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass",
        "metadata": {"name": "c", "namespace": "shoot", "labels": {"target": "two"}, "finalizers": [labels::FINALIZER]},
        "provider": "cloud", "providerSpec": {}, "secretRef": {"name": "s", "namespace": "shoot"},
    });
    wire.put::<Value>("machineclasses/c", &class);
    wire
}

fn machine_with(wire: &Wire, metadata: &Value, spec: &Value) {
    let mut machine = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
        "metadata": {
            "name": "m", "namespace": "shoot", "finalizers": [labels::FINALIZER],
            "labels": {"target": "two", "cluster": "two", "node": "n"}, "annotations": {"target": "two"},
        },
        "spec": {"class": {"kind": "MachineClass", "name": "c"}},
    });
    crate::testing::merge(&mut machine, &json!({"metadata": metadata, "spec": spec}));
    wire.put::<Value>("machines/m", &machine);
}

/// With a cloud that has no VM.
fn lead(wire: &Wire, named: &[(&str, &Wire)]) -> Leading {
    lead_with(wire, FakeDriver::named("cloud").failing(Code::NotFound), named)
}

fn lead_with(wire: &Wire, cloud: FakeDriver, named: &[(&str, &Wire)]) -> Leading {
    let driver: Arc<dyn Driver> = Arc::new(cloud);
    let drivers = Arc::new(DriverCatalogue::from_drivers([driver], &DriverGuards::unobserved()));
    let kinds = [machine::KIND, node::KIND];
    Standby::start_with_namespaces(wire, &kinds, &Settings { drivers, ..settings() }, named).lead()
}

fn writes(wire: &Wire) -> Vec<String> {
    wire.requests().into_iter().filter(|request| !request.starts_with("GET ")).collect()
}

#[tokio::test(start_paused = true)]
async fn a_bootstrap_token_is_made_in_the_cluster_of_the_namespace_whatever_the_machine_says() {
    let (wire, one, two) = (control(), Wire::new(), Wire::new());
    machine_with(&wire, &json!({}), &json!({}));
    let _leading = lead(&wire, &[("one", &one), ("two", &two)]);
    until("the token is made", || one.count("POST secrets") == 1).await;
    sleep(LONG).await;
    assert_eq!(writes(&two), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_machine_without_the_cluster_of_its_namespace_gets_no_token_from_another() {
    let (wire, two) = (control(), Wire::new());
    machine_with(&wire, &json!({}), &json!({}));
    let _leading = lead(&wire, &[("two", &two)]);
    sleep(LONG).await;
    assert_eq!(writes(&two), [""; 0]);
    let moved = json!({"metadata": {"labels": {"target": "two"}}});
    wire.put::<Value>("machines/m", &moved);
    sleep(LONG).await;
    assert_eq!(writes(&two), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_copied_provider_id_drains_no_node_of_another_tenant() {
    let (wire, one, two) = (control(), Wire::new(), Wire::new());
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n", "creationTimestamp": "2020-01-01T00:00:00Z", "annotations": {labels::NOT_MANAGED: "1"}},
        "spec": {"providerID": "cloud:///theirs"},
    });
    two.put::<Value>("nodes/n", &node);
    machine_with(&wire, &json!({}), &json!({"providerID": "cloud:///theirs"}));
    let _leading = lead_with(&wire, FakeDriver::named("cloud"), &[("one", &one), ("two", &two)]);
    sleep(Duration::from_secs(1)).await;
    wire.remove_from("shoot", "machines/m");
    until("the machine is deleted", || wire.len("machines") == 0).await;
    assert_eq!(writes(&two), [""; 0]);
    assert_eq!(two.len("nodes"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_gets_its_target_later_is_served_then() {
    let (wire, one, two) = (control(), Wire::new(), Wire::new());
    wire.put::<Value>("namespaces/shoot", &json!({"metadata": {"labels": {"target": null}}}));
    machine_with(&wire, &json!({}), &json!({}));
    let _leading = lead(&wire, &[("one", &one), ("two", &two)]);
    sleep(LONG).await;
    assert_eq!((writes(&one), writes(&two)), (Vec::new(), Vec::new()));
    wire.put::<Value>("namespaces/shoot", &json!({"metadata": {"labels": {"target": "one"}}}));
    let took = until("the token is made", || one.count("POST secrets") == 1).await;
    assert!(took < Duration::from_secs(30), "{took:?}");
    assert_eq!(writes(&two), [""; 0]);
}
