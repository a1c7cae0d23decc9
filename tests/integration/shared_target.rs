//! Two control namespaces whose Nodes are in one cluster, and Machines of one that name Nodes of the other.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures::join;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, PostParams},
};
use serde_json::{Value, json};

use crate::support::{control_plane::ControlPlane, objects, scene::Scene, world::World};

/// The annotation with which a manager takes a Node.
const NODE_OF: &str = "machine.mcm/node-of";
const MARK: &str = "node.machine.sapcloud.io/not-managed-by-mcm";
/// From when on a Node without a Machine is marked.
const CREATION_TIMEOUT: &str = "--machine-creation-timeout=5s";
const WATCHED: Duration = Duration::from_secs(40);
const MACHINES: usize = 3;

#[tokio::test]
async fn two_managers_of_one_target_leave_each_other_s_nodes_alone() {
    // Managers of other tests mark Nodes of a target that they share, and each mark is a write.
    let target = ControlPlane::apart().await.unwrap();
    let (first, second) = join!(world("shared-a", &target), world("shared-b", &target));
    let (_one, _two) = join!(first.run(&[CREATION_TIMEOUT]), second.run(&[CREATION_TIMEOUT]));
    for world in [&first, &second] {
        let patient = json!({"spec": {"template": {"spec": {"creationTimeout": "60s"}}}});
        world.pool(MACHINES.try_into().unwrap(), patient).await;
        world.settled(MACHINES, "small").await;
    }
    let ours: BTreeSet<String> = &first.scene.now().names() | &second.scene.now().names();
    first
        .until("each node to name its machine", |scene| {
            ours.iter().all(|name| scene.nodes.get(name).is_some_and(|node| node.annotations().contains_key(NODE_OF)))
        })
        .await;

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
    let writes: Vec<usize> = writes.values().map(|versions| versions.len() - 1).collect();
    let (all, most) = (writes.iter().sum::<usize>(), writes.iter().max().copied().unwrap_or_default());
    // Besides the mark and its removal, the finalizer of a Node of the other manager may be removed, once per creation timeout. In a
    // loop of these removals, which the other manager undoes, a Node has 16 writes.
    assert!(
        all <= 3 * ours.len() && most <= 8,
        "{all} writes of {} nodes that nothing happens to: {writes:?}",
        ours.len()
    );
    let kept =
        |scene: &Scene, world: &World| world.scene.now().names().iter().all(|name| scene.nodes.contains_key(name));
    assert!(kept(&second.scene.now(), &first), "nodes of the first namespace");
    assert!(kept(&first.scene.now(), &second), "nodes of the second namespace");
}

/// In every combination of name, label, ID and class, for a Node of the other namespace and for one without a Machine.
#[tokio::test]
async fn machines_that_name_nodes_of_others_get_neither_these_nodes_nor_their_vms() {
    let target = ControlPlane::second().await;
    let (first, second) = join!(world("whose-a", target), world("whose-b", target));
    let (_one, _two) = join!(first.run(&[]), second.run(&["--machine-creation-timeout=3s"]));
    first.pool(1, json!({})).await;
    first.settled(1, "small").await;
    let theirs = first.scene.now().names().into_iter().next().unwrap();
    first
        .until("its manager to store whose node it is", |scene| {
            scene.nodes.get(&theirs).is_some_and(|node| node.annotations().contains_key("machine.mcm/node-of"))
        })
        .await;
    let vms = first.cloud.provider_ids().await;
    let nodes: Api<Node> = Api::all(first.target.clone());
    let control_plane = format!("{}-cp-0", second.namespace);
    let node: Node = serde_json::from_value(json!({
        "metadata": { "name": control_plane, "labels": { "node-role.kubernetes.io/control-plane": "" } },
        "spec": { "providerID": "aws:///eu-west-1a/i-0123", "taints": [{ "key": "cp", "effect": "NoSchedule" }] },
    }))
    .unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let mut before = Vec::new();
    for name in [&theirs, &control_plane] {
        let node = nodes.get(name).await.unwrap();
        before.push((node.metadata.uid, node.metadata.labels, node.metadata.annotations, node.spec));
    }
    second.classes().await;
    let mut forged = Vec::new();
    for (node, id) in [(&theirs, before[0].3.clone()), (&control_plane, before[1].3.clone())] {
        let id = id.and_then(|spec| spec.provider_id).unwrap();
        for (number, (has_label, has_id, class)) in
            [(true, true, "small"), (true, false, "small"), (false, true, "small"), (true, true, "none")]
                .into_iter()
                .enumerate()
        {
            // One of them has the name of the Machine whose Node it names.
            let name = if number == 0 { node.clone() } else { format!("{node}-{number}") };
            let label = if has_label { json!(node) } else { Value::Null };
            let change = json!({
                "metadata": { "labels": { "node": label } },
                "spec": { "providerID": if has_id { id.as_str() } else { "" }, "class": { "kind": "MachineClass", "name": class } },
            });
            let mut machine = objects::machine(&name);
            objects::merge(&mut machine, change);
            second.apply(machine).await;
            forged.push(name);
        }
    }
    let is_judged = |scene: &Scene, name: &String| {
        scene
            .machines
            .get(name)
            .is_some_and(|it| it.status.as_ref().is_some_and(|it| !it.last_operation.description.is_empty()))
    };
    second.until("the machines to be judged", |scene| forged.iter().all(|name| is_judged(scene, name))).await;
    for name in &forged {
        second.machines().delete(name, &DeleteParams::default()).await.unwrap();
    }
    // Others wait for a class that does not exist, or for an ID of its cloud.
    let may_go = |name: &String| !name.ends_with("-3") && (name.starts_with(&theirs) || name.ends_with("cp-0-1"));
    second
        .until("the machines to be gone", |scene| {
            !forged.iter().any(|name| may_go(name) && scene.machines.contains_key(name))
        })
        .await;
    for (name, before) in [&theirs, &control_plane].into_iter().zip(before) {
        let node = nodes.get(name).await.unwrap();
        let without_mark = |annotations: Option<BTreeMap<String, String>>| -> BTreeMap<String, String> {
            annotations.into_iter().flatten().filter(|(key, _)| key != MARK).collect()
        };
        assert_eq!((node.metadata.uid, node.metadata.labels, node.spec), (before.0, before.1, before.3));
        assert_eq!(without_mark(node.metadata.annotations), without_mark(before.2));
    }
    assert_eq!(first.cloud.provider_ids().await, vms);
    assert!(first.scene.now().settled(1, "small"));
}

async fn world(name: &str, target: &ControlPlane) -> World {
    World::between(ControlPlane::shared().await, target, name, &[]).await
}

/// Name, version, and whether it carries the mark.
fn state(node: &Node) -> (String, String, bool) {
    (node.name_any(), node.resource_version().unwrap_or_default(), node.annotations().contains_key(MARK))
}
