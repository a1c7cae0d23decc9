//! External failures and the recovery from them.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::Node;
use kube::{Api, ResourceExt, api::DeleteParams};
use mcm::api::machine::MachinePhase;
use serde_json::json;

use crate::support::{scene::Scene, world::World};

/// "At once" for a user at a screen, on a busy machine.
const SECONDS: Duration = Duration::from_secs(90);

#[tokio::test]
async fn a_quota_is_visible_within_seconds_and_its_end_too() {
    let world = World::new("quota").await;
    let _manager = world.run(&["--resource-exhausted-retry=1s"]).await;
    world.cloud.control(json!({"quotas": [{"limit": 2}]})).await;
    let asked = Instant::now();
    world.pool(3, json!({})).await;
    let told = world
        .find("a machine that says what is exhausted", |scene| {
            scene.told.iter().find(|told| told.operation.error_code == "ResourceExhausted").cloned()
        })
        .await;
    assert!(asked.elapsed() < SECONDS, "it took {:?}", asked.elapsed());
    assert_eq!(told.phase, MachinePhase::CrashLoopBackOff);
    assert_eq!(
        told.operation.description,
        "Cloud provider message - machine codes error: code = [ResourceExhausted] message = [the quota of 2 VMs of instance \
         type \"*\" in zone \"*\" is used up]"
    );
    world.until("the others to serve", |scene| scene.available() == 2).await;

    world.cloud.control(json!({})).await;
    world.settled(3, "small").await;
    assert_made(&world, 3).await;
}

#[tokio::test]
async fn a_lost_reply_leads_to_no_second_vm_and_leaves_none_behind() {
    let world = World::new("lost").await;
    let _manager = world.run(&[]).await;
    let lost = |operation: &str| json!({"faults": [{"operation": operation, "lostReply": true, "count": 3}]});
    world.cloud.control(lost("create")).await;
    world.pool(3, json!({})).await;
    world
        .until("each machine to hear of an error", |scene| {
            let codes = scene.told.iter().filter(|told| told.operation.error_code == "Unknown");
            codes.map(|told| &told.machine).collect::<BTreeSet<_>>().len() == 3
        })
        .await;
    world.settled(3, "small").await;
    assert_made(&world, 3).await;

    world.cloud.control(lost("delete")).await;
    world.remove_pool().await;
    assert_eq!(world.cloud.count("/alive").await, 0);
    assert_eq!(world.cloud.count("/created").await, 3);
}

#[tokio::test]
async fn dead_machines_are_replaced_one_at_a_time() {
    // A busy machine that delays heartbeats must not look like a dead one.
    let flags = ["--heartbeat-period=1s", "--node-monitor-grace=8s"];
    let world = World::with_cloud("dead", &flags).await;
    let _manager = world.run(&["--machine-health-timeout=4s"]).await;
    world.pool(4, json!({})).await;
    world.settled(4, "small").await;
    let originals: Vec<String> = world.scene.now().names().into_iter().collect();
    let [first, second, ..] = &originals[..] else { panic!("{originals:?}") };

    let mut failed = BTreeSet::new();
    world.scene.always("a machine fails only while all others run or are unknown", move |scene| {
        let fresh: Vec<String> = scene
            .machines
            .iter()
            .filter(|(name, machine)| machine.phase() == MachinePhase::Failed && !failed.contains(*name))
            .map(|(name, _)| name.clone())
            .collect();
        failed.extend(fresh.iter().cloned());
        let out_of_service = |(name, machine): (&String, &mcm::api::machine::Machine)| {
            !fresh.contains(name) && !matches!(machine.phase(), MachinePhase::Running | MachinePhase::Unknown)
        };
        fresh.is_empty() || (fresh.len() == 1 && !scene.machines.iter().any(out_of_service))
    });
    for machine in [first, second] {
        world.cloud.kill(machine, "stop").await;
    }
    world
        .until("both to be replaced", |scene| {
            ![first, second].iter().any(|name| scene.machines.contains_key(*name)) && scene.available() == 4
        })
        .await;
    world.settled(4, "small").await;
    assert_made(&world, 6).await;
    let scene = world.scene.now();
    for machine in [first, second] {
        use MachinePhase::{Failed, Running, Unknown};
        let phases = scene.phases(machine);
        assert!(phases.windows(3).any(|three| three == [Running, Unknown, Failed]), "{machine}: {phases:?}");
        assert!(scene.was_told(machine, "health checks failing since last 4s."), "{:?}", scene.told);
    }
}

#[tokio::test]
async fn a_machine_whose_node_is_deleted_is_replaced() {
    let world = World::new("node").await;
    let _manager = world.run(&[]).await;
    world.pool(2, json!({})).await;
    world.settled(2, "small").await;
    let victim = world.scene.now().names().into_iter().next().unwrap();

    let nodes: Api<Node> = Api::all(world.client.clone());
    nodes.delete(&victim, &DeleteParams::default()).await.unwrap();
    world.until("its machine to be gone", |scene| !scene.machines.contains_key(&victim)).await;
    world.settled(2, "small").await;
    assert_made(&world, 3).await;
}

#[tokio::test]
async fn a_machine_with_a_bad_condition_recovers_when_it_is_cleared() {
    let world = World::new("condition").await;
    let _manager = world.run(&[]).await;
    world.pool(1, json!({})).await;
    world.settled(1, "small").await;
    let machine = world.scene.now().names().into_iter().next().unwrap();

    world.cloud.condition(&machine, "KernelDeadlock", Some("True")).await;
    world.until("the machine to be unknown", |scene| phase(scene, &machine) == Some(MachinePhase::Unknown)).await;
    let unhealthy = format!("Machine {machine} is unhealthy - changing MachinePhase to Unknown. Node conditions: ");
    assert!(world.scene.now().was_told(&machine, &unhealthy));
    assert!(world.scene.now().was_told(&machine, "KernelDeadlock"));

    world.cloud.condition(&machine, "KernelDeadlock", None).await;
    world.settled(1, "small").await;
    let recovered = format!("Machine {machine} successfully re-joined the cluster");
    assert!(world.scene.now().was_told(&machine, &recovered));
    assert_made(&world, 1).await;
}

#[tokio::test]
async fn a_machine_that_does_not_join_in_time_is_replaced() {
    let world = World::new("late").await;
    let _manager = world.run(&[]).await;
    world.cloud.control(json!({"neverJoin": ["*"]})).await;
    world.pool(1, json!({"spec": {"template": {"spec": {"creationTimeout": "20s"}}}})).await;
    let late = world
        .find("a machine that failed", |scene| {
            scene.told.iter().find(|told| told.phase == MachinePhase::Failed).cloned()
        })
        .await;
    assert_eq!(late.operation.description, format!("Machine {} failed to join the cluster in 20s.", late.machine));

    // A failed machine whose Node joins before it is deleted runs again.
    world
        .until("the machine to be given up", |scene| scene.live().all(|machine| machine.name_any() != late.machine))
        .await;
    world.cloud.control(json!({})).await;
    world
        .until("its replacement to serve", |scene| {
            !scene.machines.contains_key(&late.machine) && scene.settled(1, "small")
        })
        .await;
    world.assert_vms_match().await;
}

fn phase(scene: &Scene, machine: &str) -> Option<MachinePhase> {
    scene.machines.get(machine).map(mcm::api::machine::Machine::phase)
}

/// Asserts the total number of Machines and VMs ever created, and that the remaining ones match.
async fn assert_made(world: &World, ever: usize) {
    world.assert_vms_match().await;
    assert_eq!(world.scene.now().ever.len(), ever, "machines ever made");
    assert_eq!(world.cloud.count("/created").await, u64::try_from(ever).unwrap(), "VMs ever made");
}
