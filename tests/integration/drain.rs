//! Pods leave a Node before its machine goes. The tests play the kubelet and the disruption controller.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures::StreamExt;
use k8s_openapi::api::{
    core::v1::{Node, Pod},
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
    runtime::{WatchStreamExt, watcher},
};
use mcm::api::{
    labels,
    machine::{MachinePhase, OperationState, OperationType},
};
use rstest::rstest;
use serde_json::{Value, json};
use tokio::task::AbortHandle;

use crate::support::{objects, world::World};

const BUDGET: &str = "one-at-a-time";

#[tokio::test]
async fn a_drain_evicts_pods_one_by_one_where_a_budget_says_so() {
    let world = World::new("drain").await;
    let _manager = world.run(&[]).await;
    let machine = machine_with_pods(&world, 1, 1).await;
    let kubelet = Kubelet::start(&world, true);

    world.scale(0).await;
    world.until("the node to be closed", |scene| is_closed(scene.nodes.get(&machine))).await;
    world.until("the machine to be gone", |scene| scene.machines.is_empty()).await;

    let left: Vec<String> = pods(&world).await.iter().map(ResourceExt::name_any).collect();
    assert_eq!(left, ["daemon"], "pods of a DaemonSet stay");
    assert_eq!(kubelet.most_at_once(), 1, "pods that terminated at the same time");
    assert!(world.scene.now().was_told(&machine, "Drain successful. Initiate VM deletion"));
    assert_eq!(world.cloud.count("/alive").await, 0);
}

/// The reason is there to be read at once, whether the budget allows nothing for now or never will.
#[rstest]
#[case::for_now(1, OperationState::Processing, "Evictions are refused by the disruption budget BUDGET. ")]
#[case::for_ever(
    0,
    OperationState::Failed,
    "Drain failed due to - [error while evicting pod \"one\": pod disruption budget BUDGET is misconfigured and requires zero \
     voluntary evictions, error while evicting pod \"three\": pod disruption budget BUDGET is misconfigured and requires zero \
     voluntary evictions, error while evicting pod \"two\": pod disruption budget BUDGET is misconfigured and requires zero \
     voluntary evictions]. Will retry in next sync. "
)]
#[tokio::test]
async fn a_drain_that_a_budget_blocks_says_so_and_gives_way_to_force(
    #[case] most_unavailable: i32,
    #[case] state: OperationState,
    #[case] reason: &str,
) {
    let world = World::new("blocked").await;
    let _manager = world.run(&[]).await;
    let machine = machine_with_pods(&world, most_unavailable, 0).await;
    let _kubelet = Kubelet::start(&world, false);

    world.scale(0).await;
    let told = world
        .find("the reason why the drain does not go on", |scene| {
            let operation = &scene.machines.get(&machine)?.status.as_ref()?.last_operation;
            operation.description.contains(BUDGET).then(|| operation.clone())
        })
        .await;
    assert_eq!((told.type_, told.state), (Some(OperationType::Delete), Some(state)));
    let reason = reason.replace("BUDGET", &format!("{}/{BUDGET}", world.namespace));
    assert_eq!(told.description, format!("{reason}Initiate node drain"));
    assert_eq!(pods(&world).await.len(), 4, "all are still there");
    assert_eq!(world.cloud.count("/alive").await, 1, "and so is the VM");

    let force = json!({"metadata": {"labels": {labels::FORCE_DELETION: "true"}}});
    world.machines().patch(&machine, &PatchParams::default(), &Patch::Merge(force)).await.unwrap();
    world.until("the machine to be gone", |scene| scene.machines.is_empty()).await;
    assert_eq!(world.cloud.count("/alive").await, 0);
    let scene = world.scene.now();
    assert!(scene.was_told(&machine, "Force Drain successful. "), "{:?}", scene.told);
    assert_eq!(scene.phases(&machine).last(), Some(&MachinePhase::Terminating));
}

fn is_closed(node: Option<&Node>) -> bool {
    let Some(node) = node else { return false };
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let announced =
        conditions.into_iter().any(|condition| condition.type_ == "Terminating" && condition.status == "True");
    announced && node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true)
}

/// A pool of one machine whose Node runs three pods under a budget, and one of a DaemonSet. `allowed` disruptions are possible
/// at the moment.
async fn machine_with_pods(world: &World, most_unavailable: i32, allowed: i32) -> String {
    world.pool(1, json!({})).await;
    world.settled(1, "small").await;
    let node = world.scene.now().names().into_iter().next().unwrap();
    for name in ["one", "two", "three"] {
        run(world, pod(name, &node)).await;
    }
    let mut daemon = pod("daemon", &node);
    let owner = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "0", "controller": true}]);
    objects::merge(&mut daemon, json!({"metadata": {"ownerReferences": owner, "labels": {"app": "daemon"}}}));
    run(world, daemon).await;
    world
        .apply(json!({
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": BUDGET},
            "spec": {"maxUnavailable": most_unavailable, "selector": {"matchLabels": {"app": "web"}}},
        }))
        .await;
    allow(&budgets(world), most_unavailable, allowed).await;
    node
}

fn pod(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "web.invalid/main"}],
        },
    })
}

async fn run(world: &World, pod: Value) {
    let name = world.apply(pod).await.name_any();
    let ready = json!({"type": "Ready", "status": "True"});
    let status = json!({"status": {"phase": "Running", "conditions": [ready]}});
    let api: Api<Pod> = Api::namespaced(world.client.clone(), &world.namespace);
    api.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

async fn pods(world: &World) -> Vec<Pod> {
    let api: Api<Pod> = Api::namespaced(world.client.clone(), &world.namespace);
    api.list(&ListParams::default()).await.unwrap().items
}

fn budgets(world: &World) -> Api<PodDisruptionBudget> {
    Api::namespaced(world.client.clone(), &world.namespace)
}

/// What the disruption controller would write about three pods.
async fn allow(budgets: &Api<PodDisruptionBudget>, most_unavailable: i32, allowed: i32) {
    let desired = 3 - most_unavailable;
    let status = json!({"status": {
        "observedGeneration": 1, "disruptionsAllowed": allowed, "disruptedPods": null,
        "currentHealthy": desired + allowed, "desiredHealthy": desired, "expectedPods": 3,
    }});
    budgets.patch_status(BUDGET, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

/// Ends pods that shall terminate; with `replaces` another pod takes over elsewhere, so that the next one may go.
struct Kubelet {
    most_at_once: Arc<AtomicUsize>,
    task: AbortHandle,
}

impl Kubelet {
    fn start(world: &World, replaces: bool) -> Self {
        let pods: Api<Pod> = Api::namespaced(world.client.clone(), &world.namespace);
        let most_at_once = Arc::<AtomicUsize>::default();
        let task = tokio::spawn(end_pods(pods, budgets(world), Arc::clone(&most_at_once), replaces)).abort_handle();
        Self { most_at_once, task }
    }

    fn most_at_once(&self) -> usize {
        self.most_at_once.load(Ordering::SeqCst)
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn end_pods(pods: Api<Pod>, budgets: Api<PodDisruptionBudget>, most_at_once: Arc<AtomicUsize>, replaces: bool) {
    let mut events = watcher(pods.clone(), watcher::Config::default()).default_backoff().applied_objects().boxed();
    let mut seen = BTreeSet::new();
    while let Some(event) = events.next().await {
        let Ok(pod) = event else { continue };
        if pod.metadata.deletion_timestamp.is_none() || !seen.insert(pod.uid()) {
            continue;
        }
        let all = pods.list(&ListParams::default()).await.unwrap().items;
        let terminating = all.iter().filter(|pod| pod.metadata.deletion_timestamp.is_some()).count();
        most_at_once.fetch_max(terminating, Ordering::SeqCst);
        // It may be gone already.
        let _ = pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await;
        if replaces {
            allow(&budgets, 1, 1).await;
        }
    }
}
