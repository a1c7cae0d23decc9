//! Pods are evicted from a Node before its machine is deleted. The tests simulate the kubelet and the disruption
//! controller.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use futures::StreamExt;
use k8s_openapi::api::{
    core::v1::{Node, Pod},
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Api, Client, ResourceExt,
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

use crate::{
    support::{objects, pods, wait, world::World},
    why,
};

const BUDGET: &str = "one-at-a-time";
/// A pool that puts up with one refusal of an eviction.
static FEW_RETRIES: LazyLock<Value> = LazyLock::new(|| json!({"spec": {"template": {"spec": {"maxEvictRetries": 1}}}}));
const RETRIES_TAKE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_drain_evicts_pods_one_by_one_where_a_budget_says_so() {
    let world = World::new("drain").await;
    let _manager = world.run(&[]).await;
    let machine = machine_with_pods(&world, 1, 1).await;
    let kubelet = Kubelet::start(&world, true);

    world.scale(0).await;
    world.until("the node to be closed", |scene| is_closed(scene.nodes.get(&machine))).await;
    world.until("the machine to be gone", |scene| scene.machines.is_empty()).await;

    let left: Vec<String> =
        pods::all(&world.target, &world.namespace).await.iter().map(ResourceExt::name_any).collect();
    assert_eq!(left, ["daemon"], "pods of a DaemonSet stay");
    assert_eq!(kubelet.most_at_once(), 1, "pods that terminated at the same time");
    assert!(world.scene.now().was_told(&machine, "Drain successful. Initiate VM deletion"));
    assert_eq!(world.cloud.count("/alive").await, 0);
}

/// The reason is shown at once, whether the budget allows nothing for now or never will, which only a user ends.
#[rstest]
#[case::for_now(1, 4, OperationState::Processing, "Evictions are refused by the disruption budget BUDGET. ")]
#[case::for_ever(
    0,
    3,
    OperationState::Failed,
    "Drain failed due to - [error while evicting pod \"one\": pod disruption budget BUDGET is misconfigured and requires zero \
     voluntary evictions, error while evicting pod \"three\": pod disruption budget BUDGET is misconfigured and requires zero \
     voluntary evictions, error while evicting pod \"two\": pod disruption budget BUDGET is misconfigured and requires zero \
     voluntary evictions]. Will retry in next sync. "
)]
#[tokio::test]
async fn a_drain_that_a_budget_blocks_says_so_and_gives_way_to_force(
    #[case] most_unavailable: i32,
    #[case] code: i32,
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
    let why = why::until_code(&world, &format!("machine/{machine}"), code).await;
    assert_eq!(why.kinds(), ["Eviction"], "{}", why.answer);
    assert!(why.text().contains(BUDGET), "{}", why.answer);
    let why = why::ask(&world, &format!("pdb/{}/{BUDGET}", world.namespace)).await;
    assert_eq!(why.answer["machines"][0]["object"]["name"], machine, "{}", why.answer);
    assert_eq!(pods::all(&world.target, &world.namespace).await.len(), 4, "all are still there");
    assert_eq!(world.cloud.count("/alive").await, 1, "and so is the VM");

    let force = json!({"metadata": {"labels": {labels::FORCE_DELETION: "true"}}});
    world.machines().patch(&machine, &PatchParams::default(), &Patch::Merge(force)).await.unwrap();
    world.until("the machine to be gone", |scene| scene.machines.is_empty()).await;
    assert_eq!(world.cloud.count("/alive").await, 0);
    let scene = world.scene.now();
    assert!(scene.was_told(&machine, "Force Drain successful. "), "{:?}", scene.told);
    assert_eq!(scene.phases(&machine).last(), Some(&MachinePhase::Terminating));
}

/// An accepted eviction does not count as a refusal, whatever the number of allowed refusals.
#[tokio::test]
async fn an_accepted_eviction_has_its_grace_period() {
    const GRACE: Duration = Duration::from_secs(40);
    let world = World::patient("grace").await;
    let _manager = world.run(&[]).await;
    world.pool(1, FEW_RETRIES.clone()).await;
    world.settled(1, "small").await;
    let node = world.scene.now().names().into_iter().next().unwrap();
    let mut slow = pods::pod("slow", &node);
    objects::merge(&mut slow, json!({"spec": {"terminationGracePeriodSeconds": GRACE.as_secs()}}));
    pods::run(&world.target, &world.namespace, slow).await;

    world.scale(0).await;
    let pods = pods::api(&world.target, &world.namespace);
    let slow = async || pods.get_opt("slow").await.unwrap();
    let is_ending = |pod: &Pod| pod.metadata.deletion_timestamp.is_some();
    wait::until("the eviction", async || slow().await.filter(is_ending).map(drop)).await;
    let evicted = Instant::now();
    while evicted.elapsed() < GRACE - Duration::from_secs(1) {
        let pod = slow().await;
        let grace = pod.and_then(|pod| pod.metadata.deletion_grace_period_seconds);
        assert_eq!(grace, Some(GRACE.as_secs().try_into().unwrap()), "{:?} after the eviction", evicted.elapsed());
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    let _kubelet = Kubelet::start(&world, false);
    world.until("the machine to be gone", |scene| scene.machines.is_empty()).await;
}

/// Pods that tolerate everything come back to the closed Node, each as a new one.
#[tokio::test]
async fn a_drain_ends_although_pods_come_back() {
    let world = World::new("back").await;
    let _manager = world.run(&[]).await;
    world.pool(1, json!({})).await;
    world.settled(1, "small").await;
    let node = world.scene.now().names().into_iter().next().unwrap();
    let again = Arc::<AtomicUsize>::default();
    pods::run(&world.target, &world.namespace, pods::pod("stubborn-0", &node)).await;
    let coming = tokio::spawn(come_back(world.target.clone(), world.namespace.clone(), node, Arc::clone(&again)));

    world.scale(0).await;
    world.until("the machine to be gone", |scene| scene.machines.is_empty()).await;
    coming.abort();
    let again = again.load(Ordering::SeqCst);
    assert!((1..=10).contains(&again), "it came back {again} times");
}

/// The time in which an eviction may be refused begins with the drain, not with the deletion.
#[tokio::test]
async fn a_drain_that_begins_late_asks_the_budgets_first() {
    let world = World::patient("late-drain").await;
    let mut manager = world.run(&[]).await;
    let machine = machine_with_pods_of(&world, FEW_RETRIES.clone(), 1, 0).await;
    let _kubelet = Kubelet::start(&world, false);
    manager.program.kill();
    world.machines().delete(&machine, &DeleteParams::default()).await.unwrap();
    // Not a wait for a state: no controller acts here.
    tokio::time::sleep(RETRIES_TAKE + Duration::from_secs(1)).await;

    manager.program.start_again();
    world
        .until("the refusal to be told", |scene| {
            scene.was_told(&machine, "Evictions are refused by the disruption budget")
        })
        .await;
    assert_eq!(pods::all(&world.target, &world.namespace).await.len(), 4, "all are still there");
}

async fn come_back(client: Client, namespace: String, node: String, again: Arc<AtomicUsize>) {
    let pods = pods::api(&client, &namespace);
    let mut events = watcher(pods.clone(), watcher::Config::default()).default_backoff().applied_objects().boxed();
    let mut seen = BTreeSet::new();
    while let Some(event) = events.next().await {
        let Ok(pod) = event else { continue };
        if pod.metadata.deletion_timestamp.is_some() && seen.insert(pod.uid()) {
            let _ = pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await;
            let name = format!("stubborn-{}", again.fetch_add(1, Ordering::SeqCst) + 1);
            pods::run(&client, &namespace, pods::pod(&name, &node)).await;
        }
    }
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
    machine_with_pods_of(world, json!({}), most_unavailable, allowed).await
}

/// The same in a pool that is changed by a merge patch.
async fn machine_with_pods_of(world: &World, change: Value, most_unavailable: i32, allowed: i32) -> String {
    world.pool(1, change).await;
    world.settled(1, "small").await;
    let node = world.scene.now().names().into_iter().next().unwrap();
    for name in ["one", "two", "three"] {
        pods::run(&world.target, &world.namespace, pods::pod(name, &node)).await;
    }
    let mut daemon = pods::pod("daemon", &node);
    let owner = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "0", "controller": true}]);
    objects::merge(&mut daemon, json!({"metadata": {"ownerReferences": owner, "labels": {"app": "daemon"}}}));
    pods::run(&world.target, &world.namespace, daemon).await;
    budget(world, most_unavailable, allowed).await;
    node
}

/// A budget of the pods, which allows this many evictions now.
pub async fn budget(world: &World, most_unavailable: i32, allowed: i32) {
    let budget = json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": BUDGET, "namespace": world.namespace},
        "spec": {"maxUnavailable": most_unavailable, "selector": {"matchLabels": {"app": "web"}}},
    });
    objects::apply(&world.target, &budget).await;
    allow(&budgets(world), most_unavailable, allowed).await;
}

fn budgets(world: &World) -> Api<PodDisruptionBudget> {
    Api::namespaced(world.target.clone(), &world.namespace)
}

/// Writes the status of the budget of three pods, as the disruption controller would.
async fn allow(budgets: &Api<PodDisruptionBudget>, most_unavailable: i32, allowed: i32) {
    let desired = 3 - most_unavailable;
    let status = json!({"status": {
        "observedGeneration": 1, "disruptionsAllowed": allowed, "disruptedPods": null,
        "currentHealthy": desired + allowed, "desiredHealthy": desired, "expectedPods": 3,
    }});
    budgets.patch_status(BUDGET, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

/// Ends pods that shall terminate; with `replaces` another pod takes over elsewhere, so that the next one may go.
pub struct Kubelet {
    most_at_once: Arc<AtomicUsize>,
    task: AbortHandle,
}

impl Kubelet {
    pub fn start(world: &World, replaces: bool) -> Self {
        let pods = pods::api(&world.target, &world.namespace);
        let most_at_once = Arc::<AtomicUsize>::default();
        let task = tokio::spawn(end_pods(pods, budgets(world), Arc::clone(&most_at_once), replaces)).abort_handle();
        Self { most_at_once, task }
    }

    pub fn most_at_once(&self) -> usize {
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
        // It may already be deleted.
        let _ = pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await;
        if replaces {
            allow(&budgets, 1, 1).await;
        }
    }
}
