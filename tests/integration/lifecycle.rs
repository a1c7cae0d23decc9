//! From a deployment to its machines and back to nothing.

use std::{collections::BTreeSet, os::unix::fs::symlink, path::Path};

use k8s_openapi::{
    api::core::v1::{Event, Node, Secret},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, ListParams},
};
use mcm::api::{
    labels,
    machine::{Machine, MachinePhase, OperationState, OperationType},
};
use serde_json::json;

use crate::support::{
    objects,
    program::MCM,
    wait,
    world::{Manager, World},
};

#[tokio::test]
async fn a_deployment_comes_up_and_goes_away() {
    let world = World::new("life").await;
    let _manager = world.run(&[]).await;
    live(&world).await;
}

#[tokio::test]
async fn an_elected_manager_needs_no_more_rights_than_those_granted() {
    let world = World::new("elected").await;
    let _manager = world.launch_run(&[]).ready().await;
    live(&world).await;
}

#[tokio::test]
async fn the_two_programs_of_the_reference_do_it_together_under_their_names() {
    let world = World::new("halves").await;
    let _sets = half(&world, "machine-controller-manager", &[]).ready().await;
    let _machines = half(&world, "machine-controller", &[&world.cloud_flag()]).ready().await;
    live(&world).await;
}

#[tokio::test]
async fn managed_fields_of_a_machine_applied_by_a_user_are_kept() {
    let world = World::new("applied").await;
    let _manager = world.run(&[]).await;
    world.classes().await;
    world.apply(objects::machine("by-hand")).await;
    world.until("it to serve", |scene| scene.phase("by-hand") == Some(MachinePhase::Running)).await;
    let records =
        |machine: &Machine| machine.managed_fields().iter().filter_map(|entry| entry.manager.clone()).collect();
    let managers: BTreeSet<String> = records(&world.scene.now().machines["by-hand"]);
    assert!(managers.contains("tests"), "{managers:?}");

    // A field that the user omits from the next apply is removed.
    let mut shorter = objects::machine("by-hand");
    objects::merge(&mut shorter, json!({"metadata": {"labels": {"a": "b"}}}));
    assert!(world.apply(shorter).await.labels().contains_key("a"));
    assert!(!world.apply(objects::machine("by-hand")).await.labels().contains_key("a"));
}

fn half(world: &World, name: &str, flags: &[&str]) -> Manager {
    let link = world.folder().join(name);
    symlink(Path::new(MCM), &link).unwrap();
    world.launch_as(&link, &[], &format!("{name}.log"), flags)
}

/// The whole life of a pool of three.
async fn live(world: &World) {
    world.pool(3, json!({})).await;
    world.settled(3, "small").await;

    world.assert_vms_match().await;
    assert_machines(world);
    assert_sets(world);
    assert_nodes(world).await;
    assert_references_are_held(world).await;
    assert_no_bootstrap_token_is_left(world).await;
    assert_events(world).await;

    let nodes = world.scene.now().names();
    world.remove_pool().await;
    world.until("their nodes to be gone", |scene| nodes.iter().all(|node| !scene.nodes.contains_key(node))).await;
    assert_eq!(world.cloud.count("/alive").await, 0);
    assert_references_are_released(world).await;
}

fn assert_machines(world: &World) {
    let scene = world.scene.now();
    let set = scene.sets.values().next().unwrap();
    assert_eq!(scene.ever.len(), 3, "machines were made and removed again");
    for (name, machine) in &scene.machines {
        assert_eq!(machine.phase(), MachinePhase::Running);
        assert_eq!(machine.node_name(), Some(name.as_str()));
        assert_eq!(machine.annotations().get(labels::PRIORITY).map(String::as_str), Some("3"));
        assert_eq!(machine.finalizers(), [labels::FINALIZER]);
        assert_eq!(machine.managed_fields(), [], "who wrote which field is recorded again");
        assert_eq!(machine.owner_references(), [set.controller_owner_ref(&()).map(blocking).unwrap()]);
        let status = machine.status.as_ref().unwrap();
        let operation = &status.last_operation;
        assert_eq!(
            (operation.type_.clone(), operation.state.clone()),
            (Some(OperationType::Create), Some(OperationState::Successful))
        );
        let joined = format!("Machine {name} successfully joined the cluster in ");
        assert!(operation.description.starts_with(&joined), "{}", operation.description);
        assert!(status.conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True"));
    }
}

/// The reference's sets own their machines in this way too.
fn blocking(reference: OwnerReference) -> OwnerReference {
    OwnerReference { block_owner_deletion: Some(true), ..reference }
}

fn assert_sets(world: &World) {
    let scene = world.scene.now();
    let deployment = &scene.deployments["pool"];
    assert_eq!(deployment.finalizers(), [labels::FINALIZER]);
    let status = deployment.status.as_ref().unwrap();
    assert_eq!((status.unavailable_replicas, status.failed_machines.len()), (0, 0));
    let conditions: BTreeSet<_> =
        status.conditions.iter().map(|condition| (&*condition.type_, &*condition.status, &*condition.reason)).collect();
    let expected =
        [("Available", "True", "MinimumReplicasAvailable"), ("Progressing", "True", "NewMachineSetAvailable")];
    assert_eq!(conditions, BTreeSet::from(expected));

    let [set] = scene.sets.values().collect::<Vec<_>>()[..] else { panic!("several sets: {:?}", scene.sets.keys()) };
    assert_eq!(set.finalizers(), [labels::FINALIZER]);
    assert_eq!(set.owner_references(), [deployment.controller_owner_ref(&()).map(blocking).unwrap()]);
    let status = set.status.as_ref().unwrap();
    let counts = [status.replicas, status.ready_replicas, status.available_replicas, status.fully_labeled_replicas];
    assert_eq!(counts, [3; 4]);
    assert_eq!(Some(status.observed_generation), set.metadata.generation);
    assert_eq!(set.annotations().get(labels::REVISION).map(String::as_str), Some("1"));
    assert_eq!(deployment.annotations().get(labels::REVISION).map(String::as_str), Some("1"));
}

async fn assert_nodes(world: &World) {
    // Some of this is written after the machine runs.
    world
        .until("the nodes to carry what the template says", |scene| {
            scene.machines.keys().all(|name| scene.nodes.get(name).is_some_and(|node| is_linked(node, name)))
        })
        .await;
}

fn is_linked(node: &Node, machine: &str) -> bool {
    let spec = node.spec.clone().unwrap_or_default();
    let tainted = spec.taints.iter().flatten().any(|taint| {
        (&*taint.key, taint.value.as_deref(), &*taint.effect) == ("example.com/dedicated", Some("pool"), "NoSchedule")
    });
    tainted
        && node.labels().get(labels::MACHINE_NAME).is_some_and(|name| name == machine)
        && node.labels().get("example.com/pool").is_some_and(|value| value == "pool")
        && node.annotations().get("example.com/note").is_some_and(|value| value == "from the template")
        && node.annotations().contains_key(labels::LAST_APPLIED_NODE_TEMPLATE)
        && node.finalizers().iter().any(|finalizer| finalizer == labels::NODE_FINALIZER)
}

async fn assert_references_are_held(world: &World) {
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), &world.namespace);
    wait::until("finalizers of the class and its Secret", async || {
        let class = world.class_api().get("small").await.unwrap();
        let secret = secrets.get("pool").await.unwrap();
        (class.finalizers() == [labels::FINALIZER] && secret.finalizers() == [labels::SECRET_FINALIZER]).then_some(())
    })
    .await;
    assert!(world.class_api().get("large").await.unwrap().finalizers().is_empty(), "nobody uses it");
}

async fn assert_references_are_released(world: &World) {
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), &world.namespace);
    for class in ["small", "large"] {
        world.class_api().delete(class, &DeleteParams::default()).await.unwrap();
    }
    secrets.delete("pool", &DeleteParams::default()).await.unwrap();
    wait::until("the classes and their Secret to be gone", async || {
        let classes = world.class_api().list(&ListParams::default()).await.unwrap();
        (classes.items.is_empty() && secrets.get_opt("pool").await.unwrap().is_none()).then_some(())
    })
    .await;
}

async fn assert_no_bootstrap_token_is_left(world: &World) {
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), "kube-system");
    let names = world.scene.now().names();
    wait::until("the bootstrap tokens to be gone", async || {
        let tokens = secrets.list(&ListParams::default().fields("type=bootstrap.kubernetes.io/token")).await.unwrap();
        let mut descriptions = tokens.items.iter().filter_map(description);
        (!descriptions.any(|text| names.iter().any(|name| text.contains(name)))).then_some(())
    })
    .await;
}

fn description(token: &Secret) -> Option<String> {
    let bytes = token.data.as_ref()?.get("description")?;
    Some(String::from_utf8_lossy(&bytes.0).into_owned())
}

async fn assert_events(world: &World) {
    let events: Api<Event> = Api::namespaced(world.client.clone(), &world.namespace);
    wait::until("the events that the reference emits", async || {
        let events = events.list(&ListParams::default()).await.unwrap().items;
        let count = |kind: &str, reason: &str, component: &str| {
            let same = events.iter().filter(|event| {
                event.involved_object.kind.as_deref() == Some(kind)
                    && event.reason.as_deref() == Some(reason)
                    && event.source.as_ref().and_then(|source| source.component.as_deref()) == Some(component)
            });
            same.map(|event| event.count.unwrap_or(1)).sum::<i32>()
        };
        let made = count("MachineSet", "SuccessfulCreate", "machineset-controller");
        let scaled = count("MachineDeployment", "ScalingMachineSet", "machine-controller-manager");
        (made == 3 && scaled == 1).then_some(())
    })
    .await;
}
