//! Calls to the target cluster that are no writes of cached objects: bootstrap tokens and pods.

use k8s_openapi::{
    ByteString,
    api::{
        core::v1::{Pod, Secret},
        policy::v1::PodDisruptionBudget,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, PostParams, Preconditions},
};
use rand::Rng;
use serde_json::{Value, json};

use super::{BootstrapToken, PodCall, PodsView, Snapshot};
use crate::{
    controllers::context::Context,
    drain::{Answer, PodFacts, PodRef, Refusal},
    runtime::objects::chain,
};

const TOKEN_NAMESPACE: &str = "kube-system";
const TOKEN_TYPE: &str = "bootstrap.kubernetes.io/token";
const TOKEN_SECRET_LENGTH: usize = 16;
const NO_TARGET: &str = "there is no target cluster";

/// The text of a token that is in the target cluster: the one that is there, or a new one.
pub(super) async fn ensure_token(context: &Context, wanted: &BootstrapToken) -> Result<String, String> {
    let client = target(context)?;
    let secrets: Api<Secret> = Api::namespaced(client, TOKEN_NAMESPACE);
    let name = secret_name(&wanted.id);
    // A second look only if somebody made it in between.
    for _ in 0..2 {
        let there = secrets.get_opt(&name).await.map_err(|error| failed("read bootstrap token", &wanted.id, &error))?;
        if let Some(secret) = there {
            return text_of(&secret)
                .ok_or_else(|| format!("bootstrap token {} has no token-secret: delete it", wanted.id));
        }
        match secrets.create(&PostParams::default(), &new_token(wanted, &name)).await {
            Ok(secret) => {
                return text_of(&secret).ok_or_else(|| format!("bootstrap token {} was not stored", wanted.id));
            }
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(failed("create bootstrap token", &wanted.id, &error)),
        }
    }
    Err(format!("bootstrap token {} comes and goes", wanted.id))
}

/// Deletes a token; it would expire anyway.
pub(super) async fn delete_token(context: &Context, id: &str) {
    let Ok(client) = target(context) else { return };
    let secrets: Api<Secret> = Api::namespaced(client, TOKEN_NAMESPACE);
    match secrets.delete(&secret_name(id), &DeleteParams::default()).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        Err(error) => tracing::info!(token = id, error = %chain(&error), "bootstrap token not deleted, it will expire"),
    }
}

/// All pods of a Node, live.
pub(super) async fn list_pods(context: &Context, node: &str) -> Result<Vec<PodFacts>, String> {
    let pods: Api<Pod> = Api::all(target(context)?);
    let on_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let listed = pods.list(&on_node).await.map_err(|error| failed("list pods of node", node, &error))?;
    Ok(listed.items.iter().map(PodFacts::of).collect())
}

/// Evicts one incarnation of a pod.
pub(super) async fn evict(context: &Context, snapshot: &Snapshot, pod: &PodRef) -> PodCall {
    let client = match target(context) {
        Ok(client) => client,
        Err(message) => return PodCall::Answered(Answer::Failed(message)),
    };
    let eviction = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": { "name": pod.name, "namespace": pod.namespace },
        "deleteOptions": { "preconditions": { "uid": &*pod.uid } },
    });
    let path = format!("/api/v1/namespaces/{}/pods/{}/eviction", pod.namespace, pod.name);
    let request = http::Request::post(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(eviction.to_string().into_bytes());
    let request = match request {
        Ok(request) => request,
        Err(error) => return PodCall::Answered(Answer::Failed(error.to_string())),
    };
    match client.clone().request::<Value>(request).await {
        Ok(_) => PodCall::Answered(Answer::Accepted),
        Err(kube::Error::Api(status)) if status.code == 429 => {
            let budgets = budgets(client, &pod.namespace).await;
            PodCall::Answered(Answer::Refused(refusal(snapshot, pod, &budgets, &status.message)))
        }
        Err(error) => other_answer(&error),
    }
}

/// Deletes one incarnation of a pod at once.
pub(super) async fn delete_pod(context: &Context, pod: &PodRef) -> PodCall {
    let client = match target(context) {
        Ok(client) => client,
        Err(message) => return PodCall::Answered(Answer::Failed(message)),
    };
    let pods: Api<Pod> = Api::namespaced(client, &pod.namespace);
    let parameters = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions { uid: Some(pod.uid.to_string()), resource_version: None }),
        ..DeleteParams::default()
    };
    match pods.delete(&pod.name, &parameters).await {
        Ok(_) => PodCall::Answered(Answer::Accepted),
        Err(error) => other_answer(&error),
    }
}

fn refusal(snapshot: &Snapshot, pod: &PodRef, budgets: &[PodDisruptionBudget], message: &str) -> Refusal {
    let facts = match &snapshot.pods {
        PodsView::Listed(pods) => pods.iter().find(|facts| facts.pod == *pod),
        PodsView::NotListed | PodsView::Failed(_) => None,
    };
    match facts {
        Some(facts) => Refusal::of(facts, budgets, message),
        None => Refusal { message: message.to_owned(), budget: None, is_misconfigured: false },
    }
}

/// Only to explain a refusal; that they cannot be read changes nothing.
async fn budgets(client: Client, namespace: &str) -> Vec<PodDisruptionBudget> {
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(client, namespace);
    budgets.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default()
}

fn other_answer(error: &kube::Error) -> PodCall {
    match error {
        kube::Error::Api(status) if matches!(status.code, 404 | 409) => PodCall::Gone,
        error => PodCall::Answered(Answer::Failed(chain(error))),
    }
}

fn target(context: &Context) -> Result<Client, String> {
    context.target.clone().ok_or_else(|| NO_TARGET.to_owned())
}

fn failed(what: &str, which: &str, error: &kube::Error) -> String {
    format!("cannot {what} {which}: {}", chain(error))
}

fn secret_name(id: &str) -> String {
    format!("bootstrap-token-{id}")
}

fn new_token(wanted: &BootstrapToken, name: &str) -> Secret {
    let seconds = wanted.expiration.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let data = [
        ("token-id", wanted.id.clone()),
        ("token-secret", random_secret()),
        ("expiration", seconds),
        ("usage-bootstrap-authentication", "true".to_owned()),
        ("usage-bootstrap-signing", "true".to_owned()),
        ("auth-extra-groups", wanted.auth_extra_groups.clone()),
        ("description", wanted.description.clone()),
    ];
    Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(TOKEN_NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        },
        type_: Some(TOKEN_TYPE.to_owned()),
        data: Some(data.into_iter().map(|(key, value)| (key.to_owned(), ByteString(value.into_bytes()))).collect()),
        ..Secret::default()
    }
}

fn random_secret() -> String {
    const ALPHABET: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let mut random = rand::rng();
    let mut letter = || ALPHABET.get(random.random_range(0..ALPHABET.len())).map_or('0', |byte| char::from(*byte));
    (0..TOKEN_SECRET_LENGTH).map(|_| letter()).collect()
}

fn text_of(secret: &Secret) -> Option<String> {
    let data = secret.data.as_ref()?;
    let part = |name: &str| std::str::from_utf8(&data.get(name)?.0).ok().map(str::to_owned);
    Some(format!("{}.{}", part("token-id")?, part("token-secret")?))
}
