//! A drain is forced at its deadline, however slow the API server is.

use std::time::{Duration, SystemTime};

use http::Method;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;

use crate::{
    run::{Bound, Run, number},
    stage::Stage,
    support::{control_plane::ControlPlane, door::Door, objects, pods},
};

const PODS: usize = 5;
const BUDGET: &str = "none";
/// How far from the deadline the deletion of the pods may be.
const TOLERANCE: f64 = 1.0;
/// Delays of each call to the target API server, in milliseconds.
const DELAYS: [u64; 4] = [0, 200, 1000, 2000];

/// Pods whose budget allows no eviction, on machines with a drain timeout, behind a door with a delay. The door records when
/// the deletion of a pod was requested.
#[tokio::test]
async fn a_drain_is_forced_at_its_deadline_although_the_api_server_is_slow() {
    let run = Run::start("forced_drain");
    let timeout = run.seconds("drain_timeout", 60.0, 15.0);
    let control = ControlPlane::shared().await;
    let stage = Stage::set(run, control, control, &[]).await;
    let door = stage.world.door_to(control).await;
    let manager = stage.world.run(&[]).await;
    let drain = format!("{}s", timeout.as_secs_f64());
    stage.pool(DELAYS.len(), json!({"spec": {"template": {"spec": {"drainTimeout": drain}}}})).await;
    stage.settled(DELAYS.len(), "small").await;
    refuse_all(&stage).await;
    let nodes: Vec<String> = stage.world.scene.now().names().into_iter().collect();
    for (node, delay) in nodes.iter().zip(DELAYS) {
        forced(&stage, &door, node, Duration::from_millis(delay), timeout).await;
    }
    door.open();
    stage.settled(DELAYS.len(), "small").await;
    stage.close(Some(2 * DELAYS.len()), &[&manager]).await;
}

async fn forced(stage: &Stage, door: &Door, node: &str, delay: Duration, timeout: Duration) {
    stage.run.say(format!("each call takes {delay:?} longer; a drain that nobody allows, for {timeout:?}"));
    for at in 0..PODS {
        let mut pod = pods::pod(&format!("{node}-{at}"), node);
        objects::merge(&mut pod, json!({"spec": {"terminationGracePeriodSeconds": 600}}));
        pods::run(&stage.world.target, &stage.world.namespace, pod).await;
    }
    door.slow(delay);
    let machine = stage.world.machines().delete(node, &DeleteParams::default()).await.unwrap();
    let machine = machine.left().unwrap();
    let deleted = machine.metadata.deletion_timestamp.clone().unwrap().0;
    let deadline = SystemTime::from(deleted) + timeout;
    stage.until("the machine to be gone", |scene| !scene.machines.contains_key(node)).await;
    let is_delete = |path: &str| path.contains("/pods/") && path.contains(&format!("/{}-", machine.name_any()));
    let deletes: Vec<f64> = door
        .heard()
        .iter()
        .filter(|(_, call)| call.method == Method::DELETE && is_delete(&call.path))
        .map(|(at, _)| seconds_since(*at, deadline))
        .collect();
    let name = |what: &str| format!("{delay:?} slower: {what}");
    stage.run.exactly(name("pods deleted"), deletes.len(), PODS);
    let first = deletes.iter().copied().fold(f64::INFINITY, f64::min);
    let last = deletes.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    stage.run.check(name("first request, from the deadline"), first, "s", Bound::AtLeast(-TOLERANCE));
    stage.run.check(name("last request, from the deadline"), last, "s", Bound::AtMost(TOLERANCE));
}

/// Negative before it.
fn seconds_since(time: SystemTime, origin: SystemTime) -> f64 {
    match time.duration_since(origin) {
        Ok(after) => after.as_secs_f64(),
        Err(before) => -before.duration().as_secs_f64(),
    }
}

/// A budget that allows nothing for now, as the disruption controller would write it.
async fn refuse_all(stage: &Stage) {
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": BUDGET, "namespace": stage.world.namespace},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    });
    objects::apply(&stage.world.target, &budget).await;
    let status = json!({"status": {
        "observedGeneration": 1, "disruptionsAllowed": 0, "disruptedPods": null,
        "currentHealthy": number(PODS) as i32 - 1, "desiredHealthy": number(PODS) as i32 - 1, "expectedPods": PODS,
    }});
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(stage.world.target.clone(), &stage.world.namespace);
    budgets.patch_status(BUDGET, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}
