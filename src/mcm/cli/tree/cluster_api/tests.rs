use serde_json::Value;

use super::*;
use crate::cli::{
    document::{JsonDocument, tests::fits},
    tree::{TreeDocument, report},
};
use mcm_insight::{
    cluster_api::testing::{WORKER, draining, healthy, nothing, read, vm, with_native, without_bootstrap_data, worker},
    story::MACHINE,
    testing::{TERMINAL, at, blocked_pool},
};

fn grown(facts: &NamespaceFacts, all: Vec<(Kind, Value)>, kind: Kind, name: &str) -> TreeBranch {
    capi_object_tree(CapiFacts { facts, objects: &read(all) }, &NodeSurroundings::default(), kind, name).unwrap()
}

/// Three workers of which two run and one is drained, and a Machine of the control plane.
fn several() -> (NamespaceFacts, Vec<(Kind, Value)>) {
    let mut all = draining();
    let mut facts = with_native(nothing(), WORKER, "Available", &[]);
    for name in ["demo-md-0-abcde-a1b2c", "demo-md-0-abcde-d3e4f", "demo-md-0-abcde-g5h6i"] {
        all.extend([worker(name), vm(name)]);
        facts = with_native(facts, name, "Available", &[]);
    }
    let (kind, mut machine) = worker("demo-cp-q8r9s");
    machine["metadata"]["labels"]["cluster.x-k8s.io/control-plane"] = "".into();
    machine["metadata"]["ownerReferences"][0]["kind"] = "KubeadmControlPlane".into();
    all.extend([(kind, machine), vm("demo-cp-q8r9s")]);
    (with_native(facts, "demo-cp-q8r9s", "Available", &[]), all)
}

#[test]
fn the_tree_of_a_cluster_fits_a_terminal_and_machines_that_are_alike_are_counted() {
    let (facts, all) = several();
    let tree = grown(&facts, all, Kind::Cluster, "demo");
    let text = report::text(TERMINAL, std::slice::from_ref(&tree), false, at(600));
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    insta::assert_snapshot!(text);
    let every = report::text(TERMINAL, std::slice::from_ref(&tree), true, at(600));
    assert_eq!(every.matches("MCMMachine/").count(), 5, "{every}");
    let objects = [tree];
    let document = JsonDocument::new("Tree", at(600), TreeDocument { objects: &objects, notes: &[] });
    fits::<JsonDocument<TreeDocument<'_>>>(&serde_json::to_value(document).unwrap());
}

#[test]
fn the_whole_namespace_begins_with_its_clusters_and_ends_with_mcm_objects_that_belong_to_none() {
    let facts = with_native(blocked_pool(), WORKER, "Available", &[]);
    let objects = read(healthy());
    let trees = all(CapiFacts { facts: &facts, objects: &objects }, &NodeSurroundings::default());
    let roots: Vec<_> = trees.iter().map(|tree| (tree.api_group.is_some(), tree.kind.as_str(), &*tree.name)).collect();
    assert_eq!(roots, [(true, "Cluster", "demo"), (false, "MachineDeployment", "pool")]);
    let whole = serde_json::to_string(&trees[0]).unwrap();
    assert!(whole.contains("MCMMachine") && whole.contains("\"kind\":\"Node\""), "{whole}");
    let document = JsonDocument::new("Tree", at(600), TreeDocument { objects: &trees, notes: &[] });
    fits::<JsonDocument<TreeDocument<'_>>>(&serde_json::to_value(document).unwrap());
}

#[test]
fn a_machine_that_has_no_vm_ends_at_its_mcm_machine() {
    let tree = grown(&nothing(), without_bootstrap_data(), Kind::MachineDeployment, "demo-md-0");
    let machine = &tree.children[0].children[0];
    assert_eq!((machine.kind.as_str(), machine.now.as_str()), ("Machine", "Pending"));
    let below: Vec<&str> = machine.children.iter().map(|child| child.kind.as_str()).collect();
    assert_eq!(below, ["MCMMachine"]);
    assert!(machine.children[0].children.is_empty(), "{tree:?}");
}

#[test]
fn a_tree_begins_at_any_object() {
    let facts = with_native(nothing(), WORKER, "Available", &[]);
    let tree = grown(&facts, healthy(), Kind::MCMMachine, WORKER);
    assert_eq!((tree.kind.as_str(), tree.children[0].kind.as_str()), ("MCMMachine", MACHINE));
    let missing = capi_object_tree(
        CapiFacts { facts: &facts, objects: &read(healthy()) },
        &NodeSurroundings::default(),
        Kind::Cluster,
        "dem",
    );
    assert_eq!(missing.unwrap_err().hint, "did you mean cluster/demo?");
}
