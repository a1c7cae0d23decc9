//! Nodes are updated in place, and their machines stay. The test plays the agent on the Nodes.

use std::collections::BTreeSet;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
    runtime::{WatchStreamExt, watcher},
};
use mcm::api::{labels, machine::MachinePhase};
use serde_json::json;

use crate::support::{scene::Scene, world::World};

#[tokio::test]
async fn a_pool_is_updated_in_place_without_a_new_vm() {
    let world = World::new("in-place").await;
    let _manager = world.run(&[]).await;
    let amounts = json!({"maxSurge": 0, "maxUnavailable": 1, "orchestrationType": "Auto"});
    let strategy = json!({"type": "InPlaceUpdate", "rollingUpdate": null, "inPlaceUpdate": amounts});
    world.pool(3, json!({"spec": {"strategy": strategy}})).await;
    world.settled(3, "small").await;
    let vms = world.cloud.provider_ids().await;
    let (machines, names) = {
        let scene = world.scene.now();
        (scene.uids(), scene.names())
    };
    let nodes: Api<Node> = Api::all(world.target.clone());
    let agent = tokio::spawn(update_nodes(nodes, names.clone())).abort_handle();

    let (of_machines, of_nodes) = (machines.clone(), names.clone());
    world.scene.always("the same three machines, two of which serve, and one closed node at most", move |scene| {
        scene.uids() == of_machines
            && scene.available() >= 2
            && own(scene, &of_nodes).filter(|it| is_closed(it)).count() <= 1
    });
    world.change(json!({"spec": {"template": {"metadata": {"labels": {"version": "v2"}}}}})).await;
    world
        .until("all machines to be in the set of the new template, and everything else to be taken back", |scene| {
            let has_moved = |labels: &std::collections::BTreeMap<String, String>| {
                labels.get("version").is_some_and(|version| version == "v2")
                    && !labels.contains_key(labels::UPDATE_RESULT)
            };
            let is_tidy = |node: &Node| !is_closed(node) && !node.labels().contains_key(labels::CANDIDATE_FOR_UPDATE);
            scene.machines.values().all(|machine| has_moved(machine.labels()))
                && own(scene, &names).all(is_tidy)
                && scene.sets.values().all(|set| !set.labels().contains_key(labels::SCALE_UP_DISABLED))
                && scene.complete("pool", 3)
        })
        .await;
    agent.abort();
    assert_eq!(world.cloud.provider_ids().await, vms, "no VM is new");
    let scene = world.scene.now();
    assert_eq!(scene.ever, machines, "no machine was ever created beside them");
    for name in &names {
        let phases = scene.phases(name);
        assert!(phases.contains(&MachinePhase::InPlaceUpdating), "{phases:?}");
        assert_eq!(phases.last(), Some(&MachinePhase::Running));
        assert!(scene.was_told(name, "successfully updated dependencies"));
    }
}

fn own<'a>(scene: &'a Scene, names: &'a BTreeSet<String>) -> impl Iterator<Item = &'a Node> {
    names.iter().filter_map(|name| scene.nodes.get(name))
}

fn is_closed(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true)
}

/// The agent on each Node: it begins when its Node is ready, and reports success.
async fn update_nodes(nodes: Api<Node>, names: BTreeSet<String>) {
    let mut events = watcher(nodes.clone(), watcher::Config::default()).default_backoff().applied_objects().boxed();
    while let Some(event) = events.next().await {
        let Ok(node) = event else { continue };
        let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let is_ready = conditions.into_iter().any(|condition| {
            condition.type_ == "InPlaceUpdate" && condition.reason.as_deref() == Some("ReadyForUpdate")
        });
        if !is_ready || !names.contains(&node.name_any()) || node.labels().contains_key(labels::UPDATE_RESULT) {
            continue;
        }
        let patch = json!({"metadata": {"labels": {labels::UPDATE_RESULT: labels::SUCCESSFUL}}});
        nodes.patch(&node.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }
}
