//! The watch handlers in a cell: the deletion of a Node, and the caches of a standby.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::super::KIND;
use crate::testing::{Fate, Standby, Wire, settings, until};
use mcm_api::labels;
use mcm_rules::plan::WaitKind;
use mcm_runtime::{cache::Key, cells::CellOverview};

/// Machine `m` runs on Node `n`, which gets no finalizer, so that it can go at once.
fn world() -> Wire {
    let wire = Wire::new();
    wire.judge(|request| if request == "PATCH nodes/n" { Fate::Unavailable } else { Fate::Answered });
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "creationTimestamp": "2020-01-01T00:00:00Z"},
        "spec": {"providerID": "cloud:///1"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    wire.put::<Value>("nodes/n", &node);
    machine(&wire);
    wire
}

fn machine(wire: &Wire) {
    let machine = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
        "metadata": {"name": "m", "namespace": "shoot", "labels": {"node": "n"}},
        "spec": {"class": {"kind": "MachineClass", "name": "c"}, "providerID": "cloud:///1"},
    });
    wire.put::<Value>("machines/m", &machine);
    wire.put::<Value>("machines/m", &json!({"status": {"currentStatus": {"phase": "Running"}}}));
}

/// Long enough to include long pauses between retries.
const LONG: Duration = Duration::from_mins(10);

#[tokio::test(start_paused = true)]
async fn the_machine_of_a_terminating_node_is_deleted_soon() {
    let wire = world();
    let _leading = Standby::start_with_target(&wire, &[KIND], &settings()).lead();
    sleep(LONG).await;
    wire.remove("nodes/n");
    let took = until("its machine is deleted", || wire.len("machines") == 0).await;
    assert!(took < Duration::from_secs(5), "{took:?}");
}

/// Only its machine has the time: the Node does not change any more.
#[tokio::test(start_paused = true)]
async fn a_terminating_node_is_deleted_soon_after_its_machine() {
    let wire = world();
    wire.judge(|_| Fate::Answered);
    let meta = json!({"finalizers": [labels::NODE_FINALIZER], "deletionTimestamp": "2020-01-02T00:00:00Z"});
    wire.put::<Value>("nodes/n", &json!({"metadata": meta}));
    wire.put::<Value>("machines/m", &json!({"metadata": {"finalizers": [labels::FINALIZER]}}));
    let _leading = Standby::start_with_target(&wire, &[KIND], &settings()).lead();
    sleep(LONG).await;
    assert_eq!((wire.len("machines"), wire.len("nodes")), (1, 1));
    wire.remove("machines/m");
    let took = until("the node is gone", || wire.len("nodes") == 0).await;
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn the_waits_of_a_node_are_explained_in_the_namespace_of_its_cell() {
    let wire = world();
    wire.remove("machines/m");
    let now = json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}});
    wire.put::<Value>("nodes/n", &now);
    let leading = Standby::start_with_target(&wire, &[KIND], &settings()).lead();
    let explained = |namespace| leading.cell.explain("node", &Key::new(namespace, "n"));
    let is_waiting = || explained("shoot").is_some_and(|it| !it.waits.is_empty());
    until("it waits for a machine", is_waiting).await;
    let waits = explained("shoot").unwrap().waits;
    assert_eq!(waits.iter().map(|waiting| waiting.wait.kind).collect::<Vec<_>>(), [WaitKind::NodeClaim]);
    assert_eq!(explained("another"), None);
    assert!(leading.cell.waiters(None).is_empty(), "Nodes of others wait as well");
}

#[tokio::test(start_paused = true)]
async fn a_node_deletion_seen_by_a_standby_deletes_no_machine() {
    let wire = world();
    let standby = Standby::start_with_target(&wire, &[KIND], &settings());
    sleep(LONG).await;
    wire.remove("nodes/n");
    sleep(LONG).await;
    let _leading = standby.lead();
    sleep(LONG).await;
    assert_eq!(wire.len("machines"), 1);
}

#[tokio::test(start_paused = true)]
async fn the_nodes_of_each_target_are_read_at_a_takeover() {
    let (wire, other) = (world(), Wire::new());
    let standby = Standby::start_with_targets(&wire, &[KIND], &settings(), &[("here", &wire), ("there", &other)]);
    // Not when a watch is opened again.
    sleep(LONG + Duration::from_secs(7)).await;
    let reads = || [&wire, &other].map(|target| target.requests().iter().filter(|it| *it == "GET nodes").count());
    let before = reads();
    let _leading = standby.lead();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(reads(), before.map(|count| count + 2), "once for each role");
}

#[tokio::test(start_paused = true)]
async fn a_target_that_does_not_answer_holds_up_no_other_at_a_takeover() {
    let (wire, away) = (world(), Wire::new());
    away.judge(|_| Fate::Unavailable);
    let standby = Standby::start_with_targets(&wire, &[KIND], &settings(), &[("here", &wire), ("away", &away)]);
    sleep(LONG).await;
    let _leading = standby.lead();
    sleep(Duration::from_secs(10)).await;
    wire.remove("nodes/n");
    let took = until("the machine of the node is deleted", || wire.len("machines") == 0).await;
    assert!(took < Duration::from_secs(5), "{took:?}");
}

/// A Machine of the same name in another namespace was deleted. That is no evidence about the Node.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_machine_that_only_named_a_node_releases_nothing() {
    let wire = Wire::new();
    let theirs = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": "n", "creationTimestamp": "2020-01-01T00:00:00Z", "finalizers": [labels::NODE_FINALIZER],
            "labels": {labels::MACHINE_NAME: "m"}, "annotations": {labels::NODE_OF: "demo/m/u"},
        },
        "spec": {"providerID": "cloud:///1"},
    });
    wire.put::<Value>("nodes/n", &theirs);
    machine(&wire);
    let _leading = Standby::start_with_target(&wire, &[KIND], &settings()).lead();
    sleep(LONG).await;
    wire.remove("machines/m");
    // Before the mark has been set for the creation timeout.
    sleep(Duration::from_secs(60)).await;
    assert_eq!(wire.get::<Value>("nodes/n").unwrap()["metadata"]["finalizers"], json!([labels::NODE_FINALIZER]));
}
