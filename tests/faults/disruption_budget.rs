//! A drain under a PodDisruptionBudget: as fast as the budget permits.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use futures::StreamExt;
use k8s_openapi::api::{core::v1::Pod, policy::v1::PodDisruptionBudget};
use kube::{
    Api, Client, ResourceExt,
    runtime::{WatchStreamExt, watcher},
};
use serde_json::json;
use tokio::task::JoinSet;

use crate::{
    run::{Bound, Run, number},
    stage::Stage,
    support::{control_plane::ControlPlane, objects},
};

const BUDGET: &str = "web";
/// Longest time between "the budget has room" and an eviction.
const LONGEST_GAP: f64 = 1.0;

/// Evictions and room, in their order.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Seen {
    /// So many disruptions are allowed.
    Room(i32),
    Evicted,
}

type Log = Arc<Mutex<Vec<(Instant, Seen)>>>;

/// With the real disruption controller, scheduler and ReplicaSet controller. kwok runs the pods; each is ready after a
/// delay.
#[tokio::test]
async fn a_drain_waits_no_longer_than_the_budget_demands() {
    let run = Run::start("disruption_budget");
    let pods = run.count("pods", 100, 20);
    let budget = run.count("budget", 5, 5);
    let delay = run.seconds("ready_after", 2.0, 2.0);
    run.say("starts a control plane with its controllers and kwok");
    let control = ControlPlane::apart_with(&["--with", "kube-controller-manager,kube-scheduler,kwok"])
        .await
        .unwrap()
        .install()
        .await
        .unwrap();
    // With heartbeats, because the node life-cycle controller runs.
    let stage = Stage::set(run, &control, &control, &["--heartbeat-period=10s"]).await;
    let manager = stage.world.run(&[]).await;
    stage.pool(1, json!({"spec": {"template": {"spec": {"nodeTemplate": {"spec": {"taints": null}}}}}})).await;
    stage.settled(1, "small").await;
    let first = stage.world.scene.now().names().into_iter().next().unwrap();
    run_pods(&stage, pods, budget, delay).await;
    until_ready(&stage, pods).await;
    stage.scale(2).await;
    stage.settled(2, "small").await;

    let log = Log::default();
    let mut tasks = JoinSet::new();
    tasks.spawn(follow_budget(stage.world.target.clone(), stage.world.namespace.clone(), Arc::clone(&log)));
    tasks.spawn(follow_pods(
        stage.world.target.clone(),
        stage.world.namespace.clone(),
        first.clone(),
        Arc::clone(&log),
    ));
    let is_heard =
        || log.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|(_, it)| matches!(it, Seen::Room(_)));
    crate::support::wait::until("the budget to be heard of", async || is_heard().then_some(())).await;

    stage.run.say(format!("drains {first}"));
    let start = Instant::now();
    // The deployment keeps two machines; this one is to go.
    stage.world.machines().delete(&first, &kube::api::DeleteParams::default()).await.unwrap();
    stage.until("the machine to be gone", |scene| !scene.machines.contains_key(&first)).await;
    let took = start.elapsed();
    tasks.shutdown().await;

    let log = log.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let evictions: Vec<Instant> = log.iter().filter(|(_, it)| *it == Seen::Evicted).map(|(at, _)| *at).collect();
    stage.run.exactly("pods evicted", evictions.len(), pods);
    let drain = evictions.last().zip(evictions.first()).map(|(last, first)| *last - *first).unwrap_or_default();
    let rounds = pods.div_ceil(budget).saturating_sub(1);
    stage.run.measured("from the first to the last eviction", drain.as_secs_f64(), "s");
    stage.run.measured("what the budget demands at least", number(rounds) * delay.as_secs_f64(), "s");
    stage.run.measured("from the deletion to the end", took.as_secs_f64(), "s");
    let gaps = gaps(&log);
    stage.run.measured("times that the budget got room", number(gaps.len()), "");
    let longest = gaps.iter().max().copied().unwrap_or_default();
    let mean = gaps.iter().sum::<Duration>().as_secs_f64() / number(gaps.len().max(1));
    stage.run.measured("mean wait of ours", mean, "s");
    stage.run.check("longest wait of ours", longest.as_secs_f64(), "s", Bound::AtMost(LONGEST_GAP));
    let terminated_on_force = stage.world.scene.now().was_told(&first, "Force Drain");
    stage.run.exactly("forced drains", usize::from(terminated_on_force), 0);
    stage.settled(2, "small").await;
    stage.close(Some(3), &[&manager]).await;
}

/// From each time that the budget had room, while pods were left, to the next eviction.
fn gaps(log: &[(Instant, Seen)]) -> Vec<Duration> {
    let Some(last) = log.iter().rposition(|(_, seen)| *seen == Seen::Evicted) else { return Vec::new() };
    let Some(first) = log.iter().position(|(_, seen)| *seen == Seen::Evicted) else { return Vec::new() };
    let mut gaps = Vec::new();
    let mut room_since: Option<Instant> = None;
    for (at, seen) in &log[first..=last] {
        match seen {
            Seen::Room(allowed) if *allowed > 0 => {
                room_since.get_or_insert(*at);
            }
            Seen::Room(_) => room_since = None,
            Seen::Evicted => gaps.extend(room_since.take().map(|since| *at - since)),
        }
    }
    gaps
}

async fn run_pods(stage: &Stage, pods: usize, budget: usize, delay: Duration) {
    let delay = format!("{}s", delay.as_secs_f64());
    let labels = json!({"app": "web"});
    let metadata = |name: &str| json!({"name": name, "namespace": stage.world.namespace});
    let containers = json!([{"name": "main", "image": "web.invalid/main"}]);
    let template = json!({
        "metadata": {"labels": labels, "annotations": {"pod-ready.stage.kwok.x-k8s.io/delay": delay}},
        "spec": {
            "terminationGracePeriodSeconds": 1, "containers": containers,
            "tolerations": [{"key": "simulated.mcm/fake", "operator": "Exists"}],
        },
    });
    let set = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata("web"),
        "spec": {"replicas": pods, "selector": {"matchLabels": labels}, "template": template},
    });
    let pdb = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata(BUDGET),
        "spec": {"maxUnavailable": budget, "selector": {"matchLabels": labels}},
    });
    for object in [set, pdb] {
        objects::apply(&stage.world.target, &object).await;
    }
}

async fn until_ready(stage: &Stage, pods: usize) {
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(stage.world.target.clone(), &stage.world.namespace);
    stage.run.say("waits for the pods to be ready");
    crate::support::wait::until_within(Duration::from_secs(180), "all pods to be ready", async || {
        let status = budgets.get(BUDGET).await.ok()?.status?;
        (status.current_healthy == i32::try_from(pods).unwrap()).then_some(())
    })
    .await;
}

async fn follow_budget(client: Client, namespace: String, log: Log) {
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(client, &namespace);
    let mut events = watcher(budgets, watcher::Config::default()).default_backoff().applied_objects().boxed();
    while let Some(event) = events.next().await {
        let Ok(budget) = event else { continue };
        let Some(status) = budget.status else { continue };
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        log.push((Instant::now(), Seen::Room(status.disruptions_allowed)));
    }
}

async fn follow_pods(client: Client, namespace: String, node: String, log: Log) {
    let pods: Api<Pod> = Api::namespaced(client, &namespace);
    let on_node = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
    let mut events = watcher(pods, on_node).default_backoff().applied_objects().boxed();
    let mut evicted = BTreeSet::new();
    while let Some(event) = events.next().await {
        let Ok(pod) = event else { continue };
        if pod.metadata.deletion_timestamp.is_some() && evicted.insert(pod.uid()) {
            log.lock().unwrap_or_else(PoisonError::into_inner).push((Instant::now(), Seen::Evicted));
        }
    }
}
