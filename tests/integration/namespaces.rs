//! One cell for all namespaces of a control cluster: which of them it serves, and where their Nodes are.

use std::{collections::BTreeSet, fs, time::Duration};

use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Namespace, Secret},
};
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams},
};
use mcm::api::machine::MachinePhase;
use serde_json::{Value, json};
use tokio_util::task::AbortOnDropHandle;

use crate::support::{
    clouds,
    control_plane::ControlPlane,
    objects, wait,
    world::{Manager, World},
};

const ELECTION: [&str; 3] =
    ["--leader-elect-lease-duration=12s", "--leader-elect-renew-deadline=10s", "--leader-elect-retry-period=500ms"];
const LEASES: [&str; 2] = ["machine-controller-manager", "machine-controller"];
/// How often a Go program renews its Leases.
const RENEWAL: Duration = Duration::from_secs(2);
const SYSTEM: &str = "mcm-system";

/// Starts a process with these cells, which has all rights, and whose clouds are those of the worlds.
async fn start(worlds: &[&World], cells: Value) -> Manager {
    let first = worlds[0];
    let cloud_of = |world: &&World| (world.namespace.clone(), world.cloud.url.clone());
    let clouds = clouds::behind_one_address(worlds.iter().map(cloud_of)).await;
    let file = first.folder().join("cells.yaml");
    fs::write(&file, serde_yaml_ng::to_string(&json!({ "cells": cells })).unwrap()).unwrap();
    let flags = [format!("--cells={}", file.display()), format!("--simulated-cloud={clouds}")];
    let flags: Vec<&str> = ELECTION.into_iter().chain(flags.iter().map(String::as_str)).collect();
    first.launch_bare("run", &flags).ready().await
}

/// A Go program that holds the Leases of a namespace until this is dropped. It does not release them.
async fn go_program(client: &Client, namespace: &str) -> AbortOnDropHandle<()> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let renew = async move |renewal: u64| {
        for name in LEASES {
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
                "spec": {
                    "holderIdentity": "machine-controller-manager-7d9c", "leaseDurationSeconds": 15,
                    "renewTime": format!("2001-01-01T00:00:00.{renewal:06}Z"),
                },
            });
            leases.patch(name, &PatchParams::apply("go").force(), &Patch::Apply(&lease)).await?;
        }
        Ok::<_, kube::Error>(())
    };
    renew(0).await.unwrap();
    AbortOnDropHandle::new(tokio::spawn(async move {
        for renewal in 1.. {
            tokio::time::sleep(RENEWAL).await;
            // The next one follows long before the Leases end.
            let _ = renew(renewal).await;
        }
    }))
}

async fn holders(world: &World) -> BTreeSet<String> {
    let leases: Api<Lease> = Api::namespaced(world.client.clone(), &world.namespace);
    let leases = leases.list(&ListParams::default()).await.unwrap().items;
    leases.into_iter().filter_map(|lease| lease.spec?.holder_identity).collect()
}

#[tokio::test]
async fn a_cell_for_all_namespaces_leaves_those_to_go_programs_that_they_hold() {
    let control = ControlPlane::apart().await.unwrap().install().await.unwrap();
    control.ensure_namespace(SYSTEM).await;
    let theirs = World::between(&control, &control, "theirs", &[]).await;
    let ours = World::between(&control, &control, "ours", &[]).await;
    let go = go_program(&theirs.client, &theirs.namespace).await;
    theirs.pool(20, json!({})).await;
    ours.pool(3, json!({})).await;
    let cell = json!({
        "name": "all", "namespace": "*", "leaseNamespace": SYSTEM,
        "kubeconfig": control.kubeconfig(), "targetKubeconfig": control.kubeconfig(),
    });
    let _manager = start(&[&ours, &theirs], json!([cell])).await;

    ours.pool_serves(3, "small").await;
    ours.roll("large").await;
    ours.pool_serves(3, "large").await;
    assert_eq!(theirs.cloud.count("/created").await, 0);
    assert!(theirs.scene.now().machines.is_empty());
    assert!(theirs.scene.now().sets.is_empty(), "nothing is written in the namespace");
    let name_of_cell = holders(&ours).await;
    assert!(
        name_of_cell.len() == 1 && name_of_cell.iter().all(|name| name.starts_with("mcm-cell-")),
        "{name_of_cell:?}"
    );

    // It ends without a release, and is succeeded after its duration.
    drop(go);
    theirs.pool_serves(20, "small").await;
    theirs.assert_vms_match().await;
    ours.assert_vms_match().await;
    assert_eq!(holders(&theirs).await, name_of_cell, "one owner");
}

#[tokio::test]
async fn replicas_of_a_cell_follow_each_other_at_once_in_its_namespaces() {
    let control = ControlPlane::apart().await.unwrap().install().await.unwrap();
    control.ensure_namespace(SYSTEM).await;
    let world = World::between(&control, &control, "pool", &[]).await;
    world.pool(3, json!({})).await;
    let cell = json!({
        "name": "all", "namespace": "*", "leaseNamespace": SYSTEM,
        "kubeconfig": control.kubeconfig(), "targetKubeconfig": control.kubeconfig(),
    });
    let mut first = start(&[&world], json!([cell])).await;
    world.pool_serves(3, "small").await;
    // It leaves its name in the Leases of the namespace, for 15 min.
    first.program.restart_after_kill();
    first.until_ready().await;
    world.roll("large").await;
    world.pool_serves(3, "large").await;
    world.assert_vms_match().await;
    first.program.terminate();
    assert!(first.program.ended().await.success());
    assert_eq!(holders(&world).await, BTreeSet::from([String::new()]), "they are released");
}

#[tokio::test]
async fn the_namespace_has_the_target_whatever_a_machine_is_labelled_with() {
    let control = ControlPlane::apart().await.unwrap().install().await.unwrap();
    control.ensure_namespace(SYSTEM).await;
    let (one, two) = (&control, ControlPlane::second().await);
    let tenant = World::between(&control, one, "tenant", &[]).await;
    let victim = World::between(&control, two, "victim", &["--seed=7"]).await;
    for (world, target) in [(&tenant, "one"), (&victim, "two")] {
        let label = json!({"metadata": {"labels": {"example.com/target": target}}});
        let namespaces: Api<Namespace> = Api::all(world.client.clone());
        namespaces.patch(&world.namespace, &PatchParams::default(), &Patch::Merge(&label)).await.unwrap();
    }
    let cell = json!({
        "name": "all", "namespace": "*", "leaseNamespace": SYSTEM, "kubeconfig": control.kubeconfig(),
        "targets": {
            "label": "example.com/target",
            "kubeconfigs": {"one": one.kubeconfig(), "two": two.kubeconfig()},
        },
    });
    let _manager = start(&[&tenant, &victim], json!([cell])).await;
    let labels = json!({"example.com/target": "two"});
    tenant
        .pool(2, json!({"metadata": {"labels": labels}, "spec": {"template": {"metadata": {"labels": labels}}}}))
        .await;
    victim.pool(1, json!({})).await;
    tenant.pool_serves(2, "small").await;
    victim.pool_serves(1, "small").await;
    let theirs = tenant.scene.now().names();
    let nodes = victim.scene.now().nodes.keys().cloned().collect::<BTreeSet<String>>();
    assert!(theirs.is_disjoint(&nodes), "nodes of the tenant in the cluster of another");

    // A machine that waits for its cloud keeps its token.
    tenant.cloud.control(json!({"stockOuts": [{"instanceType": "small"}]})).await;
    let mut machine = objects::machine("alone");
    machine["metadata"]["labels"] = labels;
    tenant.apply(machine).await;
    let has_failed = |phase| phase == Some(MachinePhase::CrashLoopBackOff);
    tenant.until("the creation to be tried", |scene| has_failed(scene.phase("alone"))).await;
    for (client, has_token) in [(&tenant.target, true), (&victim.target, false)] {
        let secrets: Api<Secret> = Api::namespaced(client.clone(), "kube-system");
        let tokens = secrets.list(&ListParams::default().fields("type=bootstrap.kubernetes.io/token")).await.unwrap();
        assert_eq!(!tokens.items.is_empty(), has_token);
    }
}

#[tokio::test]
async fn a_namespace_is_parked_by_its_deployment_and_another_goes_on() {
    let shared = ControlPlane::shared().await;
    let parked = World::between(shared, shared, "parked", &[]).await;
    let other = World::between(shared, shared, "unparked", &[]).await;
    let cell = |name: &str, world: &World| {
        json!({
            "name": name, "namespace": world.namespace, "parkedByDeployment": true,
            "kubeconfig": world.admin(), "targetKubeconfig": world.admin(),
        })
    };
    for world in [&parked, &other] {
        world.pool(3, json!({})).await;
    }
    switch(&other, Some(1)).await;
    let manager = start(&[&parked, &other], json!([cell("parked", &parked), cell("other", &other)])).await;

    // There is no Deployment yet.
    other.pool_serves(3, "small").await;
    assert!(parked.scene.now().machines.is_empty());
    switch(&parked, Some(1)).await;
    parked.pool_serves(3, "small").await;

    for off in [Some(0), None] {
        switch(&parked, off).await;
        wait::until("the namespace to be parked", async || {
            let parkings = manager.program.log().matches("the namespace is parked").count();
            (parkings > usize::from(off.is_none())).then_some(())
        })
        .await;
        let (_, metrics) = manager.get("/metrics").await;
        for line in [r#"mcm_cell_parked{cell="parked"} 1"#, r#"mcm_cell_parked{cell="other"} 0"#] {
            assert!(metrics.lines().any(|one| one == line), "{line} is missing in\n{metrics}");
        }
        let (class, next) = if off.is_some() { ("small", "large") } else { ("large", "small") };
        let before = state(&parked).await;
        parked.roll(next).await;
        other.roll(next).await;
        other.pool_serves(3, next).await;
        assert_eq!(state(&parked).await, before, "nothing is done while the Deployment is off");
        parked.pool_serves(3, class).await;
        switch(&parked, Some(1)).await;
        parked.pool_serves(3, next).await;
    }
    parked.assert_vms_match().await;
}

/// The machines of a namespace, and how many VMs were created for it.
async fn state(world: &World) -> (BTreeSet<String>, u64) {
    let machines = world.scene.now().uids();
    (machines, world.cloud.count("/created").await)
}

/// Sets the replicas of the Deployment of a namespace, or deletes it.
async fn switch(world: &World, replicas: Option<u32>) {
    let deployments: Api<k8s_openapi::api::apps::v1::Deployment> =
        Api::namespaced(world.client.clone(), &world.namespace);
    let Some(replicas) = replicas else {
        deployments.delete(LEASES[0], &kube::api::DeleteParams::background()).await.unwrap();
        return;
    };
    let labels = json!({"app": "mcm"});
    let container = json!({"name": "mcm", "image": "registry.example/mcm"});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": LEASES[0], "namespace": world.namespace},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    });
    deployments.patch(LEASES[0], &PatchParams::apply("gardenlet").force(), &Patch::Apply(&deployment)).await.unwrap();
}
