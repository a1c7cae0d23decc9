//! Reads the objects of Cluster API in a namespace.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::ready,
};

use futures::{
    StreamExt,
    future::join_all,
    stream::{BoxStream, select_all},
};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams},
    core::PartialObjectMeta,
    runtime::{WatchStreamExt, watcher},
};

use super::{
    CapiObjects, named,
    object::{CapiObject, Kind},
};
use crate::{
    error::UsageError,
    reader::{self, all_pages},
    story::{DEPLOYMENT, kind_of},
    terminal::short,
};
use mcm_runtime::kubeconfig::sentence;

/// Reads all objects of Cluster API in a namespace. Kinds that cannot be read are unknown, and a note names each.
pub async fn read(control: &Client, namespace: &str) -> CapiObjects {
    let mut found = read_kinds(control, namespace, &Kind::ALL).await;
    let of_provider = [Kind::MCMCluster, Kind::MCMMachine, Kind::MCMMachinePool];
    if of_provider.into_iter().any(|kind| found.all(kind).next().is_some()) {
        found.provider = reader::provider(control).await;
    }
    found
}

/// Reads the objects of some kinds. Kinds that cannot be read are unknown, and a note names each.
pub async fn read_kinds(control: &Client, namespace: &str, kinds: &[Kind]) -> CapiObjects {
    let lists = join_all(kinds.iter().copied().map(|kind| list(control, namespace, kind))).await;
    let mut found = CapiObjects::default();
    let mut absent = Vec::new();
    for (kind, list) in kinds.iter().copied().zip(lists) {
        match list {
            Ok(objects) => found.add(kind, objects),
            Err(kube::Error::Api(status)) if status.code == 404 => absent.push(kind.plural()),
            Err(error) => {
                let text = sentence(&error);
                found.notes.push(format!("not read, so unknown: {} of Cluster API ({})", kind.plural(), short(&text)));
            }
        }
    }
    if !absent.is_empty() {
        found.notes.push(format!("the API server does not serve these kinds of Cluster API: {}", absent.join(", ")));
    }
    found
}

/// True if the namespace has a Cluster that the user may read.
pub async fn has_clusters(control: &Client, namespace: &str) -> bool {
    let first = ListParams::default().limit(1);
    api(control, namespace, Kind::Cluster).list_metadata(&first).await.is_ok_and(|page| !page.items.is_empty())
}

/// The error for a deployment that was not found. It names a MachineDeployment of Cluster API, if one has the name.
pub async fn missing_deployment(
    control: &Client,
    namespace: &str,
    wanted: &str,
    error: anyhow::Error,
) -> anyhow::Error {
    let kind = Kind::MachineDeployment;
    let name = match (named(wanted), wanted.split_once('/')) {
        (Some((of_word, name)), _) if of_word == kind => name,
        (None, Some((word, name))) if kind_of(word) == Some(DEPLOYMENT) => name,
        (None, None) => wanted,
        _ => return error,
    };
    let found = api(control, namespace, kind).get_metadata_opt(name).await;
    if !found.is_ok_and(|found| found.is_some()) {
        return error;
    }
    let message =
        format!("{name} is a MachineDeployment of Cluster API, which rolls out without MCM MachineDeployments");
    UsageError { message, hint: format!("mcm tree {} -n {namespace} -w", kind.argument(name)) }.into()
}

/// A stream with an item after each change of an object of the kinds that the API server serves.
///
/// # Errors
/// The API server does not answer.
pub async fn changes(control: &Client, namespace: &str) -> kube::Result<BoxStream<'static, ()>> {
    let mut served = BTreeSet::new();
    for version in BTreeSet::from(Kind::ALL.map(|kind| kind.resource().api_version)) {
        match control.list_api_group_resources(&version).await {
            Ok(list) => served.extend(list.resources.into_iter().map(|one| (version.clone(), one.name))),
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error),
        }
    }
    let is_served = |kind: &Kind| {
        let ApiResource { api_version, plural, .. } = kind.resource();
        served.contains(&(api_version, plural))
    };
    let watched = Kind::ALL.into_iter().filter(is_served).map(|kind| {
        let metadata: Api<PartialObjectMeta<DynamicObject>> =
            Api::namespaced_with(control.clone(), namespace, &kind.resource());
        let events = watcher(metadata, watcher::Config::default()).default_backoff();
        // A kind that the user may not read never changes.
        events.filter_map(|event| ready(event.ok().map(drop))).boxed()
    });
    Ok(select_all(watched).boxed())
}

fn api(control: &Client, namespace: &str, kind: Kind) -> Api<DynamicObject> {
    Api::namespaced_with(control.clone(), namespace, &kind.resource())
}

async fn list(control: &Client, namespace: &str, kind: Kind) -> kube::Result<Vec<DynamicObject>> {
    all_pages(&api(control, namespace, kind), ListParams::default()).await
}

impl CapiObjects {
    pub fn add(&mut self, kind: Kind, objects: Vec<DynamicObject>) {
        let mut of_kind = BTreeMap::new();
        for object in objects {
            let name = object.name_any();
            let decoded = serde_json::from_value::<CapiObject>(object.data);
            match decoded {
                Ok(decoded) => drop(of_kind.insert(name, CapiObject { metadata: object.metadata, ..decoded })),
                Err(error) => {
                    let kind = kind.name();
                    self.notes.push(format!("{kind} {name} cannot be read: {}", short(&error.to_string())));
                    self.unreadable.insert((kind, name));
                }
            }
        }
        self.by_kind.insert(kind, of_kind);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::{Request, Response};
    use kube::client::Body;
    use parking_lot::Mutex;
    use rstest::rstest;
    use serde_json::{Value, json};
    use tower::{BoxError, service_fn};

    use super::*;

    /// The answer of an API server that serves Clusters and no other kind: the second answer of a watch has a change.
    fn answer(request: &Request<Body>) -> (u16, Value) {
        let query = request.uri().query().unwrap_or_default();
        let meta = |kind: &str| json!({ "kind": kind, "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "demo", "resourceVersion": "7"} });
        match request.uri().path() {
            "/apis/cluster.x-k8s.io/v1beta2" => {
                let resource =
                    json!({"name": "clusters", "singularName": "", "namespaced": true, "kind": "Cluster", "verbs": []});
                (200, json!({"groupVersion": "cluster.x-k8s.io/v1beta2", "resources": [resource]}))
            }
            "/apis/cluster.x-k8s.io/v1beta2/namespaces/demo/clusters" if query.contains("watch=true") => {
                (200, json!({"type": "MODIFIED", "object": meta("PartialObjectMetadata")}))
            }
            "/apis/cluster.x-k8s.io/v1beta2/namespaces/demo/machinedeployments/demo-md-0" => {
                (200, meta("PartialObjectMetadata"))
            }
            "/apis/cluster.x-k8s.io/v1beta2/namespaces/demo/clusters" => {
                let mut list = meta("PartialObjectMetadataList");
                list["items"] = json!([]);
                (200, list)
            }
            _ => (
                404,
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}),
            ),
        }
    }

    #[tokio::test]
    async fn kinds_that_are_served_are_watched() {
        let paths: Arc<Mutex<BTreeSet<String>>> = Arc::default();
        let seen = Arc::clone(&paths);
        let server = service_fn(move |request: Request<Body>| {
            seen.lock().insert(request.uri().path().to_owned());
            let (code, body) = answer(&request);
            let body = Body::from(format!("{body}\n").into_bytes());
            async move { Ok::<_, BoxError>(Response::builder().status(code).body(body)?) }
        });
        let changes = changes(&Client::new(server, "demo"), "demo").await.unwrap();
        // The beginning and the end of the list, and the change.
        assert_eq!(changes.take(3).count().await, 3);
        let expected = [
            "/apis/cluster.x-k8s.io/v1beta2",
            "/apis/cluster.x-k8s.io/v1beta2/namespaces/demo/clusters",
            "/apis/infrastructure.cluster.x-k8s.io/v1beta2",
        ];
        assert_eq!(*paths.lock(), BTreeSet::from(expected.map(str::to_owned)));
    }

    #[rstest]
    #[case::forbidden(403, "not read, so unknown: mcmmachines of Cluster API (may not list mcmmachines)")]
    #[case::not_installed(404, "the API server does not serve these kinds of Cluster API: mcmmachines")]
    #[tokio::test]
    async fn a_kind_that_cannot_be_read_is_unknown_and_named(#[case] code: u16, #[case] note: &str) {
        let paths: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = Arc::clone(&paths);
        let server = service_fn(move |request: Request<Body>| {
            seen.lock().push(request.uri().path().to_owned());
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "may not list mcmmachines", "reason": "Refused", "code": code});
            let body = Body::from(status.to_string().into_bytes());
            async move { Ok::<_, BoxError>(Response::builder().status(code).body(body)?) }
        });
        let found = read_kinds(&Client::new(server, "demo"), "demo", &[Kind::MCMMachine]).await;
        assert!(!found.is_read(Kind::MCMMachine));
        assert_eq!(found.notes, [note]);
        assert_eq!(*paths.lock(), ["/apis/infrastructure.cluster.x-k8s.io/v1beta2/namespaces/demo/mcmmachines"]);
    }

    #[tokio::test]
    async fn a_deployment_of_cluster_api_is_named_with_the_command_that_shows_its_rollout() {
        let server = service_fn(|request: Request<Body>| {
            let (code, body) = answer(&request);
            let body = Body::from(body.to_string().into_bytes());
            async move { Ok::<_, BoxError>(Response::builder().status(code).body(body)?) }
        });
        let client = Client::new(server, "demo");
        let error = async |wanted: &str| {
            missing_deployment(&client, "demo", wanted, anyhow::anyhow!("there is no {wanted}")).await
        };
        for wanted in ["demo-md-0", "md/demo-md-0", "machinedeployment/demo-md-0"] {
            let error = error(wanted).await;
            let usage = error.downcast_ref::<UsageError>().unwrap();
            assert!(usage.message.starts_with("demo-md-0 is a MachineDeployment of Cluster API"), "{wanted}: {usage}");
            assert_eq!(usage.hint, "mcm tree machinedeployment.cluster.x-k8s.io/demo-md-0 -n demo -w");
        }
        for wanted in ["demo-md-1", "machineset/demo-md-0", "cluster/demo-md-0"] {
            assert_eq!(error(wanted).await.to_string(), format!("there is no {wanted}"));
        }
    }
}
