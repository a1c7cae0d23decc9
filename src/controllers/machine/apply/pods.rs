use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::{core::v1::Pod, policy::v1::PodDisruptionBudget};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Preconditions},
};
use serde_json::{Value, json};

use super::super::{Action, PodCall, PodsView, Snapshot};
use crate::{
    controllers::machine::Ports,
    drain::{Answer, Method, PodFacts, PodRef, Refusal},
    plan::Step,
    runtime::objects::chain,
};

/// Concurrent calls for the pods of one drain.
const POD_CALLS: usize = 10;

/// All pods of a Node, live.
pub(super) async fn list(context: &Ports, snapshot: &Snapshot, node: &str) -> Result<Vec<PodFacts>, String> {
    let pods: Api<Pod> = Api::all(target(context, snapshot)?);
    let on_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let listed = pods.list(&on_node).await.map_err(|error| failed("list pods of node", node, &error))?;
    Ok(listed.items.iter().map(PodFacts::of).collect())
}

/// Evictions and deletes run together with the others of their plan.
pub(super) fn is_about_a_pod(action: &Action) -> bool {
    call_of(action).is_some()
}

fn call_of(action: &Action) -> Option<(Method, &PodRef)> {
    match action {
        Action::EvictPod(pod) => Some((Method::Evict, pod)),
        Action::DeletePod(pod) => Some((Method::Delete, pod)),
        _ => None,
    }
}

/// Result of one call. The disruption budget that refused it is not known yet.
enum Outcome {
    Accepted,
    /// 429, with its text.
    Refused(String),
    /// 404 or 409, with its text.
    Doubtful(String),
    Failed(String),
}

/// Makes the calls of one plan, several at a time. Each result is stored with the time at which it arrived.
pub(super) async fn call_all(context: &Ports, snapshot: &mut Snapshot, steps: &[Step<Action>]) {
    let pods: Vec<(Method, PodRef)> =
        steps.iter().filter_map(|step| call_of(&step.action)).map(|(method, pod)| (method, pod.clone())).collect();
    let client = target(context, snapshot);
    let calls: Vec<_> = pods.into_iter().map(|(method, pod)| answered(context, client.clone(), method, pod)).collect();
    let answers: Vec<Answered> = stream::iter(calls).buffered(POD_CALLS).collect().await;
    let refused = answers.iter().filter(|(_, _, outcome, _)| matches!(outcome, Outcome::Refused(_)));
    let namespaces: BTreeSet<String> = refused.map(|(_, pod, _, _)| pod.namespace.clone()).collect();
    let lists: Vec<_> = namespaces.into_iter().map(|namespace| budgets(client.clone(), namespace)).collect();
    let budgets: BTreeMap<String, Vec<PodDisruptionBudget>> = stream::iter(lists).buffered(POD_CALLS).collect().await;
    let facts = snapshot.learned.pods.clone();
    for (method, pod, outcome, at) in answers {
        let answer = match outcome {
            Outcome::Accepted => PodCall::Answered(Answer::Accepted),
            Outcome::Failed(message) => PodCall::Answered(Answer::Failed(message)),
            Outcome::Doubtful(message) => PodCall::Doubtful(message),
            Outcome::Refused(message) => {
                let budgets = budgets.get(&pod.namespace).map_or(&[][..], Vec::as_slice);
                PodCall::Answered(Answer::Refused(refusal(&facts, &pod, budgets, &message)))
            }
        };
        snapshot.now = at;
        snapshot.pod_called(method, &pod, answer);
    }
}

type Answered = (Method, PodRef, Outcome, Timestamp);

async fn answered(context: &Ports, client: Result<Client, String>, method: Method, pod: PodRef) -> Answered {
    let outcome = match client {
        Ok(client) => call(client, method, &pod).await,
        Err(message) => Outcome::Failed(message),
    };
    (method, pod, outcome, context.now())
}

async fn call(client: Client, method: Method, pod: &PodRef) -> Outcome {
    let answer = match method {
        Method::Evict => evict(client, pod).await,
        Method::Delete => delete(client, pod).await,
    };
    match answer {
        Ok(()) => Outcome::Accepted,
        Err(kube::Error::Api(status)) if status.code == 429 && method == Method::Evict => {
            Outcome::Refused(status.message)
        }
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Outcome::Doubtful(status.message),
        Err(error) => Outcome::Failed(chain(&error)),
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
    let path = format!("/api/v1/namespaces/{}/pods/{}/eviction", pod.namespace, pod.name);
    let request = http::Request::post(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(eviction.to_string().into_bytes())
        .map_err(kube::Error::HttpError)?;
    client.request::<Value>(request).await.map(drop)
}

/// Deletes one incarnation of a pod with grace period 0.
async fn delete(client: Client, pod: &PodRef) -> kube::Result<()> {
    let pods: Api<Pod> = Api::namespaced(client, &pod.namespace);
    let parameters = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions { uid: Some(pod.uid.to_string()), resource_version: None }),
        ..DeleteParams::default()
    };
    pods.delete(&pod.name, &parameters).await.map(drop)
}

fn refusal(pods: &PodsView, pod: &PodRef, budgets: &[PodDisruptionBudget], message: &str) -> Refusal {
    let facts = match pods {
        PodsView::Listed(pods) => pods.iter().find(|facts| facts.pod == *pod),
        PodsView::NotListed | PodsView::Failed(_) => None,
    };
    match facts {
        Some(facts) => Refusal::of(facts, budgets, message),
        None => Refusal { message: message.to_owned(), budget: None, is_misconfigured: false },
    }
}

/// The disruption budgets of a namespace. They only explain refusals, so a failed list is ignored.
async fn budgets(client: Result<Client, String>, namespace: String) -> (String, Vec<PodDisruptionBudget>) {
    let Ok(client) = client else { return (namespace, Vec::new()) };
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(client, &namespace);
    let listed = budgets.list(&ListParams::default()).await;
    (namespace, listed.map(|list| list.items).unwrap_or_default())
}

pub(super) fn target(context: &Ports, snapshot: &Snapshot) -> Result<Client, String> {
    context.target_of(snapshot).map(|target| target.client.clone()).map_err(str::to_owned)
}

pub(super) fn failed(what: &str, which: &str, error: &kube::Error) -> String {
    format!("cannot {what} {which}: {}", chain(error))
}
