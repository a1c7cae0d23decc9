//! Two control namespaces whose Nodes are in one cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures::join;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use serde_json::json;

use crate::support::{control_plane::ControlPlane, scene::Scene, world::World};

const MARK: &str = "node.machine.sapcloud.io/not-managed-by-mcm";
/// From when on a Node without a Machine is marked.
const CREATION_TIMEOUT: &str = "--machine-creation-timeout=5s";
const WATCHED: Duration = Duration::from_secs(40);
const MACHINES: usize = 3;

#[tokio::test]
async fn two_managers_of_one_target_leave_each_other_s_nodes_alone() {
    let (first, second) = join!(world("shared-a"), world("shared-b"));
    let (_one, _two) = join!(first.run(&[CREATION_TIMEOUT]), second.run(&[CREATION_TIMEOUT]));
    for world in [&first, &second] {
        let patient = json!({"spec": {"template": {"spec": {"creationTimeout": "60s"}}}});
        world.pool(MACHINES.try_into().unwrap(), patient).await;
        world.settled(MACHINES, "small").await;
    }
    let ours: BTreeSet<String> = &first.scene.now().names() | &second.scene.now().names();

    let (sender, states) = std::sync::mpsc::channel();
    let watched = ours.clone();
    first.scene.always("every state of the nodes is written down", move |scene| {
        watched.iter().filter_map(|name| scene.nodes.get(name)).all(|node| sender.send(state(node)).is_ok())
    });
    // Not a wait for a state: events in a time are counted.
    tokio::time::sleep(WATCHED).await;
    first.scene.forget_rules();

    let mut writes = BTreeMap::<String, BTreeSet<String>>::new();
    let mut marks = BTreeMap::<String, Vec<bool>>::new();
    for (name, version, is_marked) in states.try_iter() {
        writes.entry(name.clone()).or_default().insert(version);
        marks.entry(name).or_default().push(is_marked);
    }
    for seen in marks.values_mut() {
        seen.dedup();
    }
    let changes: usize = marks.values().map(|seen| seen.len() - 1).sum();
    assert!(changes <= 2 * ours.len(), "the mark came and went {changes} times: {marks:?}");
    let writes: usize = writes.values().map(|versions| versions.len() - 1).sum();
    assert!(writes <= 2 * ours.len(), "{writes} writes of {} nodes that nothing happens to", ours.len());
    let kept =
        |scene: &Scene, world: &World| world.scene.now().names().iter().all(|name| scene.nodes.contains_key(name));
    assert!(kept(&second.scene.now(), &first), "nodes of the first namespace");
    assert!(kept(&first.scene.now(), &second), "nodes of the second namespace");
}

async fn world(name: &str) -> World {
    World::between(ControlPlane::shared().await, ControlPlane::second().await, name, &[]).await
}

/// Name, version, and whether it carries the mark.
fn state(node: &Node) -> (String, String, bool) {
    (node.name_any(), node.resource_version().unwrap_or_default(), node.annotations().contains_key(MARK))
}
