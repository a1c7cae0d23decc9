use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use jiff::Timestamp;
use k8s_openapi::api::{core::v1::Pod, policy::v1::PodDisruptionBudget};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Preconditions},
};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::ports::MachineContext;
use crate::machine::{Action, PodCall, PodsView, Snapshot, plan::forced_from};
use mcm_rules::{
    drain::{DisruptionAllowance, DrainAnswer, EvictionRefusal, PodFacts, PodRef, PodRemovalMethod, is_of_several},
    plan::Step,
};
use mcm_runtime::{cache::Key, dated::DatedObject, objects::chain, paths::path_of, target::TargetCluster};

/// Concurrent calls for the pods of one drain.
const POD_CALLS: usize = 10;

/// All pods of a Node, live.
pub(super) async fn list(context: &MachineContext, snapshot: &Snapshot, node: &str) -> Result<Vec<PodFacts>, String> {
    let target = target(context, snapshot)?;
    // A forced drain is not delayed by others.
    let is_forced = time_left(context, snapshot).is_none();
    let pods: Api<DatedObject<Pod>> = Api::all(if is_forced { target.client.clone() } else { target.drains.clone() });
    let on_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let listed = in_time(context, snapshot, pods.list(&on_node).boxed()).await?;
    let listed = listed.map_err(|error| failed("list pods of node", node, &error))?;
    Ok(listed.items.iter().map(|pod| PodFacts::from_pod(&pod.0)).collect())
}

/// Current allowances of the budgets that refused evictions. When one of them allows a disruption, the Machine is
/// enqueued.
pub(super) fn allowances(
    context: &MachineContext,
    snapshot: &Snapshot,
    key: &Key,
) -> BTreeMap<String, DisruptionAllowance> {
    let refusing = snapshot.memory.refusing_budgets();
    let Ok(target) = context.target_of(snapshot) else { return BTreeMap::new() };
    if refusing.is_empty() {
        return BTreeMap::new();
    }
    let budgets = target.budgets.demand_waking(key, refusing.clone(), &context.queue);
    let allowance = |name: Arc<str>| {
        let (namespace, short) = name.split_once('/')?;
        let budget = budgets.cache.get(&Key::new(namespace, short))?;
        let disruptions = budget.status.as_ref()?.disruptions_allowed;
        let version = budget.metadata.resource_version.clone()?;
        Some((name.to_string(), DisruptionAllowance { version, disruptions }))
    };
    refusing.into_iter().filter_map(allowance).collect()
}

/// Evictions and deletes run together with the others of their plan.
pub(super) fn is_about_a_pod(action: &Action) -> bool {
    call_of(action).is_some()
}

fn call_of(action: &Action) -> Option<(PodRemovalMethod, &PodRef)> {
    match action {
        Action::EvictPod(pod) => Some((PodRemovalMethod::Evict, pod)),
        Action::DeletePod(pod) => Some((PodRemovalMethod::Delete, pod)),
        _ => None,
    }
}

/// Result of one call. The disruption budget that refused it is not known yet.
enum PodCallResult {
    Accepted,
    /// 429, or several budgets select the pod; with the text.
    Refused(String),
    /// 404 or 409, with its text.
    Doubtful(String),
    Failed(String),
}

/// Makes the calls of one plan, several at a time. Each result is stored with the time at which it arrived.
pub(super) async fn call_all(context: &MachineContext, snapshot: &mut Snapshot, steps: &[Step<Action>], key: &Key) {
    let pods: Vec<(PodRemovalMethod, PodRef)> =
        steps.iter().filter_map(|step| call_of(&step.action)).map(|(method, pod)| (method, pod.clone())).collect();
    let target = target(context, snapshot);
    let calls: Vec<_> =
        pods.into_iter().map(|(method, pod)| answered(context, snapshot, target.clone(), method, pod)).collect();
    let answers: Vec<AnsweredPodCall> = stream::iter(calls).buffered(POD_CALLS).collect().await;
    let refused = answers.iter().filter(|(_, _, outcome, _)| matches!(outcome, PodCallResult::Refused(_)));
    let namespaces: BTreeSet<String> = refused.map(|(_, pod, _, _)| pod.namespace.clone()).collect();
    let client = target.map(|target| target.drains.clone());
    let lists: Vec<_> = namespaces.into_iter().map(|namespace| budgets(client.clone(), namespace)).collect();
    let lists = stream::iter(lists).buffered(POD_CALLS).collect().boxed();
    // They only explain refusals.
    let budgets: BTreeMap<String, Vec<PodDisruptionBudget>> =
        in_time(context, snapshot, lists).await.unwrap_or_default();
    let facts = snapshot.learned.pods.clone();
    for (method, pod, outcome, at) in answers {
        let answer = match outcome {
            PodCallResult::Accepted => PodCall::Answered(DrainAnswer::Accepted),
            PodCallResult::Failed(message) => PodCall::Answered(DrainAnswer::Failed(message)),
            PodCallResult::Doubtful(message) => PodCall::Doubtful(message),
            PodCallResult::Refused(message) => {
                let budgets = budgets.get(&pod.namespace).map_or(&[][..], Vec::as_slice);
                PodCall::Answered(DrainAnswer::Refused(refusal(&facts, &pod, budgets, &message)))
            }
        };
        snapshot.now = at;
        snapshot.pod_called(method, &pod, answer);
    }
    // A change from now on enqueues the Machine. Earlier allowances are used up.
    allowances(context, snapshot, key);
    snapshot.learned.allowances.clear();
}

type AnsweredPodCall = (PodRemovalMethod, PodRef, PodCallResult, Timestamp);

async fn answered(
    context: &MachineContext,
    snapshot: &Snapshot,
    target: Result<Arc<TargetCluster>, String>,
    method: PodRemovalMethod,
    pod: PodRef,
) -> AnsweredPodCall {
    let node = snapshot.machine.node_name().unwrap_or_default();
    let outcome = match target {
        Ok(target) => in_time(context, snapshot, call(&target, method, node, &pod).boxed())
            .await
            .unwrap_or_else(PodCallResult::Failed),
        Err(message) => PodCallResult::Failed(message),
    };
    (method, pod, outcome, context.now())
}

/// Evictions of all Nodes have one rate, and the Nodes take turns. Deletes are urgent.
async fn call(target: &TargetCluster, method: PodRemovalMethod, node: &str, pod: &PodRef) -> PodCallResult {
    let answer = match method {
        PodRemovalMethod::Evict => {
            target.evictions.take(node).await;
            evict(target.drains.clone(), pod).await
        }
        PodRemovalMethod::Delete => delete(target.client.clone(), pod).await,
    };
    match answer {
        Ok(()) => PodCallResult::Accepted,
        Err(kube::Error::Api(status)) if status.code == 429 && method == PodRemovalMethod::Evict => {
            PodCallResult::Refused(status.message)
        }
        Err(kube::Error::Api(status)) if method == PodRemovalMethod::Evict && is_of_several(&status.message) => {
            PodCallResult::Refused(status.message)
        }
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => PodCallResult::Doubtful(status.message),
        Err(error) => PodCallResult::Failed(chain(&error)),
    }
}

/// Evicts one incarnation of a pod. Not by `Api::evict`, which sends no precondition that the API server reads.
async fn evict(client: Client, pod: &PodRef) -> kube::Result<()> {
    let eviction = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": { "name": pod.name, "namespace": pod.namespace },
        "deleteOptions": { "preconditions": { "uid": &*pod.uid } },
    });
    let path = path_of(&["api", "v1", "namespaces", &pod.namespace, "pods", &pod.name, "eviction"])?;
    let request = http::Request::post(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(eviction.to_string().into_bytes())
        .map_err(kube::Error::HttpError)?;
    client.request::<Value>(request).await.map(drop)
}

/// Deletes one incarnation of a pod with grace period 0.
async fn delete(client: Client, pod: &PodRef) -> kube::Result<()> {
    let pods: Api<DatedObject<Pod>> = Api::namespaced(client, &pod.namespace);
    let parameters = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions { uid: Some(pod.uid.to_string()), resource_version: None }),
        ..DeleteParams::default()
    };
    pods.delete(&pod.name, &parameters).await.map(drop)
}

fn refusal(pods: &PodsView, pod: &PodRef, budgets: &[PodDisruptionBudget], message: &str) -> EvictionRefusal {
    let facts = match pods {
        PodsView::Listed(pods) => pods.iter().find(|facts| facts.pod == *pod),
        PodsView::NotListed | PodsView::Failed(_) => None,
    };
    match facts {
        Some(facts) => EvictionRefusal::for_pod(facts, budgets, message),
        None => EvictionRefusal {
            message: message.to_owned(),
            budget: None,
            version: None,
            is_misconfigured: false,
            is_of_several: is_of_several(message),
        },
    }
}

/// The disruption budgets of a namespace. They only explain refusals, so a failed list is ignored.
async fn budgets(client: Result<Client, String>, namespace: String) -> (String, Vec<PodDisruptionBudget>) {
    let Ok(client) = client else { return (namespace, Vec::new()) };
    let budgets: Api<DatedObject<PodDisruptionBudget>> = Api::namespaced(client, &namespace);
    let listed = budgets.list(&ListParams::default()).await;
    (namespace, listed.map(|list| list.items.into_iter().map(|budget| budget.0).collect()).unwrap_or_default())
}

pub(super) fn target(context: &MachineContext, snapshot: &Snapshot) -> Result<Arc<TargetCluster>, String> {
    context.target_of(snapshot).map_err(str::to_owned)
}

/// Until the drain is forced; `None` if it is forced already, or never will be.
fn time_left(context: &MachineContext, snapshot: &Snapshot) -> Option<Duration> {
    let forced_from = forced_from(snapshot, &context.policy)?;
    let left = forced_from.duration_since(context.now());
    (left.is_positive()).then(|| left.unsigned_abs())
}

/// The result, unless the drain has to be forced before. The request may still take effect.
pub(super) async fn in_time<T>(
    context: &MachineContext,
    snapshot: &Snapshot,
    work: BoxFuture<'_, T>,
) -> Result<T, String> {
    match time_left(context, snapshot) {
        Some(left) => {
            timeout(left, work).await.map_err(|_| "the API server did not respond before drainTimeout".to_owned())
        }
        None => Ok(work.await),
    }
}

pub(super) fn failed(what: &str, which: &str, error: &kube::Error) -> String {
    format!("cannot {what} {which}: {}", chain(error))
}
