//! Drains that are stuck do not hold up creations.

use std::time::{Duration, Instant};

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use mcm::api::labels;
use serde_json::json;

use crate::{
    run::{Bound, Run},
    stage::Stage,
    support::{control_plane::ControlPlane, objects, pods},
};

/// How much longer creations may take.
const RATIO: f64 = 1.1;

/// As many machines are created with and without stuck drains beside them, several times; the medians are compared.
#[tokio::test]
async fn stuck_drains_do_not_delay_creations() {
    let run = Run::start("stuck_drains");
    let drains = run.count("drains", 100, 20);
    let creations = run.count("creations", 100, 20);
    let repeats = run.count("repeats", 5, 3);
    let control = ControlPlane::shared().await;
    let stage = Stage::set(run, control, control, &[]).await;
    let manager = stage.world.run(&[]).await;
    let real = json!({"providerSpec": {"createLatency": "1s", "bootLatency": "2s", "deleteLatency": "100ms"}});
    stage.classes(real).await;
    stage.deployment("stuck", drains, json!({})).await;
    stage.until("the machines to be drained", |scene| scene.available() == drains).await;
    create(&stage, creations, drains, 0).await;

    let mut alone = Vec::new();
    for at in 1..=repeats {
        alone.push(create(&stage, creations, drains, at).await);
    }
    get_stuck(&stage, drains).await;
    let mut beside = Vec::new();
    for at in 1..=repeats {
        beside.push(create(&stage, creations, drains, repeats + at).await);
    }
    let (alone, beside) = (median(alone), median(beside));
    stage.run.measured(format!("{creations} creations alone"), alone.as_secs_f64(), "s");
    stage.run.measured(format!("{creations} creations beside {drains} stuck drains"), beside.as_secs_f64(), "s");
    let ratio = beside.as_secs_f64() / alone.as_secs_f64();
    stage.run.check("ratio", ratio, "", Bound::AtMost(RATIO));
    let draining = stage.world.scene.now().machines.values().filter(|it| it.is_terminating()).count();
    stage.run.exactly("drains still stuck", draining, drains);

    let force = json!({"metadata": {"labels": {labels::FORCE_DELETION: "True"}}});
    let stuck: Vec<String> = stage.world.scene.now().names().into_iter().collect();
    for name in stuck {
        stage.world.machines().patch(&name, &PatchParams::default(), &Patch::Merge(&force)).await.unwrap();
    }
    stage.until("all machines to be gone", |scene| scene.machines.is_empty()).await;
    stage.close(Some(drains + creations * (2 * repeats + 1)), &[&manager]).await;
}

/// The time until new machines serve. They are removed again.
async fn create(stage: &Stage, creations: usize, others: usize, at: usize) -> Duration {
    let name = format!("new-{at}");
    let start = Instant::now();
    stage.deployment(&name, creations, json!({})).await;
    stage
        .until("the new machines to serve", |scene| {
            let is_new = |machine: &mcm::api::machine::Machine| {
                machine.is_available()
                    && machine.metadata.labels.iter().flatten().any(|(key, value)| key == "name" && *value == name)
            };
            scene.machines.values().filter(|machine| is_new(machine)).count() == creations
        })
        .await;
    let took = start.elapsed();
    stage.world.deployments().delete(&name, &DeleteParams::background()).await.unwrap();
    stage.until("them to be gone", |scene| scene.machines.len() == others).await;
    took
}

/// A pod on each Node whose budget allows no eviction; then all machines are deleted.
async fn get_stuck(stage: &Stage, drains: usize) {
    let (target, namespace) = (&stage.world.target, &stage.world.namespace);
    let nodes: Vec<String> = stage.world.scene.now().names().into_iter().collect();
    for node in &nodes {
        pods::run(target, namespace, pods::pod(&format!("pod-{node}"), node)).await;
    }
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "none", "namespace": namespace},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    });
    objects::apply(target, &budget).await;
    let desired = i32::try_from(drains).unwrap() - 1;
    let status = json!({"status": {
        "observedGeneration": 1, "disruptionsAllowed": 0, "disruptedPods": null,
        "currentHealthy": desired, "desiredHealthy": desired, "expectedPods": drains,
    }});
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(target.clone(), namespace);
    budgets.patch_status("none", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    stage.world.deployments().delete("stuck", &DeleteParams::background()).await.unwrap();
    let told = "Evictions are refused by the disruption budget";
    stage
        .until("all drains to be stuck", |scene| {
            let is_stuck = |machine: &mcm::api::machine::Machine| {
                let status = machine.status.as_ref();
                status.is_some_and(|status| status.last_operation.description.contains(told))
            };
            scene.machines.values().filter(|machine| is_stuck(machine)).count() == drains
        })
        .await;
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}
