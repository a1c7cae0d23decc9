//! A failed machine that is preserved stays with its VM, and its pods leave it, until its time is over.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use mcm::api::{
    labels::{PRESERVE, PRESERVED_TAINT, SCALE_DOWN_DISABLED},
    machine::MachinePhase,
};
use serde_json::json;

use crate::support::{objects, pods, scene::Scene, world::World};

#[tokio::test]
async fn a_preserved_machine_that_failed_is_drained_and_kept_and_replaced_when_its_time_is_over() {
    let world = World::with_cloud("preserved", &["--heartbeat-period=1s", "--node-monitor-grace=8s"]).await;
    let _manager = world.run(&["--machine-health-timeout=4s"]).await;
    world.pool(1, json!({})).await;
    world.settled(1, "small").await;
    let machine = world.scene.now().names().into_iter().next().unwrap();
    let asks = json!({"metadata": {"annotations": {PRESERVE: "when-failed"}}});
    let nodes: Api<Node> = Api::all(world.target.clone());
    nodes.patch(&machine, &PatchParams::default(), &Patch::Merge(asks)).await.unwrap();
    for name in ["web", "daemon"] {
        let mut pod = pods::pod(name, &machine);
        // A pod without a grace period needs no kubelet to end it.
        objects::merge(&mut pod, json!({"spec": {"terminationGracePeriodSeconds": 0}}));
        if name == "daemon" {
            let owner =
                json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "0", "controller": true}]);
            objects::merge(&mut pod, json!({"metadata": {"ownerReferences": owner}}));
        }
        pods::run(&world.target, &world.namespace, pod).await;
    }

    world.cloud.kill(&machine, "stop").await;
    world
        .until("the machine to fail and its node to be drained", |scene| {
            scene.phase(&machine) == Some(MachinePhase::Failed)
                && told(scene, &machine, "True", "Preserved node drained successfully.")
        })
        .await;
    {
        let scene = world.scene.now();
        assert!(scene.machines[&machine].preserve_expiry().unwrap() > Timestamp::now());
        assert!(is_tainted(&scene.nodes[&machine]));
        assert_eq!(scene.nodes[&machine].annotations()[SCALE_DOWN_DISABLED], "true");
        assert_eq!(scene.ever.len(), 1, "nothing replaces it");
    }
    let left = pods::all(&world.target, &world.namespace).await;
    assert_eq!(left.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["daemon"]);
    assert_eq!(world.cloud.count("/created").await, 1);

    let over = json!({"status": {"currentStatus": {"preserveExpiryTime": Timestamp::now()}}});
    world.machines().patch_status(&machine, &PatchParams::default(), &Patch::Merge(over)).await.unwrap();
    world.until("it to be replaced", |scene| !scene.machines.contains_key(&machine) && scene.available() == 1).await;
    world.settled(1, "small").await;
    world.assert_vms_match().await;
    assert_eq!(world.cloud.count("/created").await, 2);
}

fn told(scene: &Scene, node: &str, status: &str, text: &str) -> bool {
    let conditions = scene.nodes.get(node).and_then(|node| node.status.as_ref()?.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| {
        let says = condition.message.as_ref().is_some_and(|message| message.contains(text));
        condition.type_ == "Preserved" && condition.status == status && says
    })
}

fn is_tainted(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    taints.into_iter().flatten().any(|taint| taint.key == PRESERVED_TAINT)
}
