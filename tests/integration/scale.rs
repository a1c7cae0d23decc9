//! As many machines as desired: never too many while scaling up, and only the surplus is deleted while scaling down.

use std::time::Duration;

use http::{Method, Request, header::CONTENT_TYPE};
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use rstest::rstest;
use serde_json::{Value, json};

use crate::support::{objects, wait, world::World};

#[rstest]
#[case::thirty(30)]
#[case::more_than_are_deleted_at_once(150)]
#[tokio::test]
async fn a_scale_down_removes_exactly_the_surplus(#[case] many: u32) {
    let count = usize::try_from(many).unwrap();
    let world = World::new("scale").await;
    let _manager = world.run(&[]).await;
    world.pool(many, json!({})).await;
    world.settled(count, "small").await;
    let before = world.scene.now().uids();
    assert_eq!(world.scene.now().ever.len(), count, "machines ever made");
    assert_eq!(world.cloud.count("/created").await, u64::from(many), "VMs ever made");

    world.scene.always("three available at least", |scene| scene.available() >= 3);
    world.scale(3).await;
    world.settled(3, "small").await;
    world.assert_vms_match().await;
    let scene = world.scene.now();
    assert!(scene.uids().is_subset(&before), "survivors were replaced");
    assert_eq!(scene.ever, before, "machines were made on the way down");
}

/// Creations and deletions in flight follow the desired number. With the limits of the drop-in programs they take many
/// seconds.
#[tokio::test]
async fn a_wish_that_changes_stops_what_is_under_way() {
    let world = World::patient("changed").await;
    let _manager = world.run(&["--kube-api-qps=20", "--kube-api-burst=30"]).await;
    world.pool(150, json!({})).await;
    world.until("some machines", |scene| scene.machines.len() >= 10).await;
    world.scale(5).await;
    let limit = Duration::from_secs(150);
    world
        .scene
        .find("five machines", limit, |scene| (scene.machines.len() == 5 && scene.available() == 5).then_some(()))
        .await;
    let ever = world.scene.now().ever.len();
    // As many as the reference creates, which stops at a hundred before it observes again.
    assert!(ever <= 100, "{ever} machines were made");
}

/// How a client writes an object.
#[derive(Clone, Copy)]
enum Way {
    Create,
    Apply,
    JsonPatch,
    MergePatch,
    Replace,
}

/// Writes the deployment `pool` as a client of this name does.
async fn write(world: &World, manager: &str, way: Way, body: &Value) {
    let (method, form, name, query) = match way {
        Way::Create => (Method::POST, "application/json", "", ""),
        Way::Apply => (Method::PATCH, "application/apply-patch+yaml", "/pool", "&force=true"),
        Way::JsonPatch => (Method::PATCH, "application/json-patch+json", "/pool", ""),
        Way::MergePatch => (Method::PATCH, "application/merge-patch+json", "/pool", ""),
        Way::Replace => (Method::PUT, "application/json", "/pool", ""),
    };
    let namespace = &world.namespace;
    let uri = format!(
        "/apis/machine.sapcloud.io/v1alpha1/namespaces/{namespace}/machinedeployments{name}?fieldManager={manager}{query}"
    );
    // A controller may write in between.
    wait::until("the write", async || {
        let mut body = body.clone();
        if matches!(way, Way::Replace) {
            let version = world.deployments().get("pool").await.unwrap().resource_version();
            body["metadata"]["resourceVersion"] = json!(version);
        }
        let request = Request::builder().method(method.clone()).uri(uri.as_str()).header(CONTENT_TYPE, form);
        let request = request.body(body.to_string().into_bytes()).unwrap();
        match world.client.request::<Value>(request).await {
            Ok(_) => Some(()),
            Err(kube::Error::Api(status)) if status.code == 409 => None,
            Err(error) => panic!("{error}"),
        }
    })
    .await;
}

/// A pool of two machines that a client of this name wrote, and its manifest.
async fn written_pool(world: &World, manager: &str, way: Way) -> Value {
    world.classes().await;
    let mut manifest = objects::deployment("pool", 2);
    manifest["metadata"]["namespace"] = json!(world.namespace);
    write(world, manager, way, &manifest).await;
    world.settled(2, "small").await;
    manifest
}

#[rstest]
#[case::a_manifest_that_is_applied(Way::Apply, "helm", Way::Apply)]
#[case::a_json_patch(Way::Create, "kubectl-patch", Way::JsonPatch)]
#[case::a_json_patch_of_what_was_applied(Way::Apply, "kubectl-patch", Way::JsonPatch)]
#[case::a_null_of_helm(Way::Create, "helm", Way::MergePatch)]
#[case::an_edit(Way::Create, "kubectl-edit", Way::MergePatch)]
#[case::a_replace(Way::Create, "kubectl-replace", Way::Replace)]
#[case::a_replace_of_what_was_applied(Way::Apply, "argocd-controller", Way::Replace)]
#[tokio::test]
async fn replicas_that_a_tool_loses_are_kept(#[case] created: Way, #[case] manager: &str, #[case] lost: Way) {
    let world = World::new("manifest").await;
    let _manager = world.run(&[]).await;
    let mut manifest = written_pool(&world, "helm", created).await;
    let before = world.scene.now().uids();
    let kept = before.clone();
    world.scene.always("no machine goes", move |scene| {
        scene.uids() == kept && !scene.machines.values().any(|machine| machine.is_terminating())
    });

    manifest["spec"].as_object_mut().unwrap().remove("replicas");
    let body = match lost {
        Way::JsonPatch => json!([{"op": "remove", "path": "/spec/replicas"}]),
        Way::MergePatch => json!({"spec": {"replicas": null}}),
        Way::Create | Way::Apply | Way::Replace => manifest.clone(),
    };
    write(&world, manager, lost, &body).await;
    let is_told = |reason: Option<&str>| reason == Some("ReplicasRestored");
    world.until("an event", |scene| scene.events.values().any(|event| is_told(event.reason.as_deref()))).await;
    world.settled(2, "small").await;

    world.scene.forget_rules();
    let zero = json!({"spec": {"replicas": 0}});
    let scale = Patch::Merge(&zero);
    world.deployments().patch_scale("pool", &PatchParams::default(), &scale).await.unwrap();
    world.until("no machine", |scene| scene.machines.is_empty()).await;
    assert_eq!(world.scene.now().ever, before);
}

/// Their Go clients leave 0 out.
#[rstest]
#[case::gardenlet("gardenlet", "gardenlet", Way::MergePatch)]
#[case::an_extension_of_gardener("gardener-extension-provider-aws", "gardener-extension-provider-aws", Way::MergePatch)]
#[case::the_autoscaler("kubectl-create", "cluster-autoscaler", Way::Replace)]
#[tokio::test]
async fn replicas_that_gardener_leaves_out_are_zero(#[case] creator: &str, #[case] manager: &str, #[case] way: Way) {
    let world = World::new("gardener").await;
    let _manager = world.run(&[]).await;
    let mut manifest = written_pool(&world, creator, Way::Create).await;
    let chosen: Vec<String> =
        world.scene.now().names().iter().map(|name| format!("{name}~2026-01-01T00:00:00Z")).collect();
    let body = match way {
        Way::Replace => {
            let list = json!({"node.machine.sapcloud.io/trigger-deletion-by-mcm": chosen.join(",")});
            manifest["metadata"]["annotations"] = list;
            manifest["spec"].as_object_mut().unwrap().remove("replicas");
            manifest
        }
        _ => json!({"spec": {"replicas": null}}),
    };
    write(&world, manager, way, &body).await;
    world.until("no machine", |scene| scene.machines.is_empty()).await;
    assert_eq!(world.scene.now().ever.len(), 2, "none was made");
}
