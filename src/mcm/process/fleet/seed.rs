//! Control planes from the API: shoots as gardenlet lays them out, or Clusters of Cluster API.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use anyhow::{Result, bail};
use futures::{StreamExt, stream};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Namespace, Secret},
};
use kube::{Api, Client, ResourceExt, core::PartialObjectMeta};
use tokio::time::{Instant, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::planes::{
    AccessSecrets, FoundPlanes, PlaneProblem, PlaneTarget, SecretValue, ServerRule, secret_of_clusters,
    secrets_of_shoot, target_of,
};
use crate::process::plane_source::NamespaceSelector;
use mcm_conversion::types::Cluster;
use mcm_runtime::{
    cache::{CacheableKind, Key, ObjectCache},
    engaged::switch::{DEPLOYMENT, ROLE_OF_SHOOT, is_of_shoot},
    panics::{self, PanicPlace},
    trust::{CacheNeed, CacheRegistry, WatchTiming},
};

/// How often the Secrets of a control plane are read again. Tokens are renewed hours before they expire.
const REREAD: Duration = Duration::from_secs(60);
/// How often they are read again after a failure.
const RETRY: Duration = Duration::from_secs(10);
/// Reads at the same time.
const READS: usize = 16;
/// Time limit of a read.
const PATIENCE: Duration = Duration::from_secs(10);
/// The name of the control cluster in `/readyz` and metrics.
const CLUSTER: &str = "fleet";

type NamespaceLabels = PartialObjectMeta<Namespace>;

/// Objects that say where control planes are.
enum PlaneObjects {
    Shoots(Arc<ObjectCache<Deployment>>),
    Clusters(Arc<ObjectCache<Cluster>>),
}

/// Watches the control planes of a control cluster until this is dropped.
pub(super) struct SeedFinder {
    control: Client,
    selector: NamespaceSelector,
    rule: ServerRule,
    namespaces: Arc<ObjectCache<NamespaceLabels>>,
    objects: PlaneObjects,
    /// By namespace.
    reads: BTreeMap<String, AccessRead>,
    _watches: [AbortOnDropHandle<()>; 2],
}

/// The Secrets of a control plane as they were read.
struct AccessRead {
    secrets: AccessSecrets,
    until: Instant,
    found: Result<PlaneTarget, PlaneProblem>,
}

/// The kind of control planes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SeedKind {
    Gardener,
    ClusterApi,
}

impl SeedFinder {
    pub fn start(
        control: &Client,
        kind: SeedKind,
        selector: NamespaceSelector,
        allows_loopback: bool,
        caches: &CacheRegistry,
    ) -> Self {
        let namespaces = ObjectCache::<NamespaceLabels>::new(&[], |namespace| {
            namespace.metadata.managed_fields = None;
            namespace.metadata.annotations = None;
        });
        let of_namespaces = watch(&namespaces, control, None, caches);
        let (objects, of_objects) = match kind {
            SeedKind::Gardener => {
                let cache = ObjectCache::<Deployment>::new(&[], prune_deployment);
                let watch = watch(&cache, control, Some(format!("metadata.name={DEPLOYMENT}")), caches);
                (PlaneObjects::Shoots(cache), watch)
            }
            SeedKind::ClusterApi => {
                let cache = ObjectCache::<Cluster>::new(&[], |cluster| {
                    cluster.metadata.managed_fields = None;
                    cluster.status = None;
                    cluster.spec.other.clear();
                    cluster.spec.topology = None;
                });
                let watch = watch(&cache, control, None, caches);
                (PlaneObjects::Clusters(cache), watch)
            }
        };
        let rule = ServerRule::Confined { names_services: kind == SeedKind::Gardener, allows_loopback };
        let (control, reads) = (control.clone(), BTreeMap::new());
        Self { control, selector, rule, namespaces, objects, reads, _watches: [of_namespaces, of_objects] }
    }

    /// Waits for the first lists.
    ///
    /// # Errors
    /// The API server refuses one of them.
    pub async fn wait(&self) -> Result<()> {
        self.namespaces.wait_listed_or_refused().await;
        let (kind, refusal) = match &self.objects {
            PlaneObjects::Shoots(cache) => {
                cache.wait_listed_or_refused().await;
                ("Deployments", cache.refusal())
            }
            PlaneObjects::Clusters(cache) => {
                cache.wait_listed_or_refused().await;
                ("Clusters", cache.refusal())
            }
        };
        let of_namespaces = self.namespaces.refusal().map(|text| ("Namespaces", text));
        match of_namespaces.or(refusal.map(|text| (kind, text))) {
            Some((kind, text)) => bail!("list {kind} for --fleet: {text}; apply config/fleet/rbac.yaml"),
            None => Ok(()),
        }
    }

    /// The labels of the Namespaces in which control planes are looked for.
    pub fn labels(&self) -> String {
        let (label, value) = ROLE_OF_SHOOT;
        let role = matches!(self.objects, PlaneObjects::Shoots(_)).then(|| format!("{label}={value}"));
        let all = role.into_iter().chain([self.selector.to_string()]).filter(|labels| !labels.is_empty());
        all.collect::<Vec<_>>().join(",")
    }

    /// The control planes that exist now.
    ///
    /// # Errors
    /// The objects are unknown at the moment. A Secret that cannot be read is a problem of its control plane.
    pub async fn planes(&mut self) -> Result<FoundPlanes> {
        let wanted = self.wanted()?;
        self.reads.retain(|namespace, _| wanted.contains_key(namespace));
        let now = Instant::now();
        let is_due = |(namespace, secrets): &(&String, &AccessSecrets)| {
            self.reads.get(*namespace).is_none_or(|read| read.until <= now || read.secrets != **secrets)
        };
        let due = wanted.iter().filter_map(|(namespace, secrets)| Some((namespace, secrets.as_ref().ok()?)));
        let due: Vec<_> = due.filter(is_due).map(|(namespace, secrets)| (namespace.clone(), secrets.clone())).collect();
        let (control, rule) = (&self.control, self.rule);
        let read: Vec<(String, AccessRead)> = stream::iter(due)
            .map(|(namespace, secrets)| async move {
                let found = target(control, &namespace, &secrets, rule).await;
                let until = Instant::now() + if found.is_ok() { REREAD } else { RETRY };
                (namespace, AccessRead { secrets, until, found })
            })
            .buffer_unordered(READS)
            .collect()
            .await;
        self.reads.extend(read);
        let found = |namespace: &String| self.reads.get(namespace).map(|read| read.found.clone());
        let planes = wanted.into_iter().filter_map(|(namespace, secrets)| match secrets {
            Err(problem) => Some((namespace, Err(problem))),
            Ok(_) => found(&namespace).map(|found| (namespace, found)),
        });
        Ok(planes.collect())
    }

    /// The Secrets of each control plane that is to be served.
    fn wanted(&self) -> Result<BTreeMap<String, Result<AccessSecrets, PlaneProblem>>> {
        let known = |kind: &str, problem: Option<String>| match problem {
            Some(problem) => bail!("{kind} are not known: {problem}"),
            None => Ok(()),
        };
        known("Namespaces", self.namespaces.trust().problem())?;
        let namespaces = self.namespaces.all();
        let is_selected = |namespace: &&Arc<NamespaceLabels>| self.selector.matches(namespace.labels());
        let namespaces = namespaces.iter().filter(is_selected);
        Ok(match &self.objects {
            PlaneObjects::Shoots(deployments) => {
                known("Deployments", deployments.trust().problem())?;
                let shoots = namespaces.filter(|namespace| is_of_shoot(namespace.labels()));
                let secrets = |namespace: String| {
                    let key = Key::new(namespace.as_str(), DEPLOYMENT);
                    let secrets = if deployments.is_unreadable(&key) {
                        Some(Err(undecoded("Deployment", &key)))
                    } else {
                        deployments.get(&key).map(|deployment| secrets_of_shoot(&deployment))
                    };
                    Some((namespace, secrets?))
                };
                shoots.filter_map(|namespace| secrets(namespace.name_any())).collect()
            }
            PlaneObjects::Clusters(clusters) => {
                known("Clusters", clusters.trust().problem())?;
                let names: BTreeSet<String> = namespaces.map(|namespace| namespace.name_any()).collect();
                let unreadable = clusters.unreadable().into_iter().map(|object| Key::from_meta(&object.meta));
                let unreadable = unreadable.map(|key| (key.namespace.clone(), key)).collect();
                wanted_clusters(&names, &clusters.all(), &unreadable)
            }
        })
    }
}

/// The Secrets for the Clusters in these namespaces. A paused Cluster is left alone; one that is being deleted is served until it
/// is gone, because its machines are deleted first.
fn wanted_clusters(
    namespaces: &BTreeSet<String>,
    clusters: &[Arc<Cluster>],
    unreadable: &BTreeMap<String, Key>,
) -> BTreeMap<String, Result<AccessSecrets, PlaneProblem>> {
    let mut found: BTreeMap<String, Vec<&Cluster>> = BTreeMap::new();
    for cluster in clusters {
        found.entry(cluster.namespace().unwrap_or_default()).or_default().push(cluster);
    }
    let of_namespace = |namespace: &String| {
        if let Some(key) = unreadable.get(namespace) {
            return Some((namespace.clone(), Err(undecoded("Cluster", key))));
        }
        let clusters = found.get(namespace)?;
        let is_paused = clusters.iter().all(|cluster| cluster.spec.paused == Some(true));
        let mut names: Vec<&str> = clusters.iter().filter_map(|cluster| cluster.metadata.name.as_deref()).collect();
        names.sort_unstable();
        (!is_paused).then(|| (namespace.clone(), secret_of_clusters(&names)))
    };
    namespaces.iter().filter_map(of_namespace).collect()
}

fn undecoded(kind: &str, key: &Key) -> PlaneProblem {
    PlaneProblem::Unread { what: format!("{kind} {key}"), cause: "it cannot be decoded".to_owned() }
}

async fn target(
    control: &Client,
    namespace: &str,
    secrets: &AccessSecrets,
    rule: ServerRule,
) -> Result<PlaneTarget, PlaneProblem> {
    let api = Api::namespaced(control.clone(), namespace);
    let kubeconfig = value(&api, namespace, &secrets.kubeconfig).await?;
    let token = match &secrets.token {
        Some(token) => Some(value(&api, namespace, token).await?),
        None => None,
    };
    let origin = format!("Secret {namespace}/{}", secrets.kubeconfig.name);
    target_of((namespace, &origin), &kubeconfig, token.as_deref(), rule).await
}

async fn value(api: &Api<Secret>, namespace: &str, value: &SecretValue) -> Result<String, PlaneProblem> {
    let SecretValue { name, key } = value;
    let unread = |cause: String| PlaneProblem::Unread { what: format!("Secret {namespace}/{name}"), cause };
    let read = timeout(PATIENCE, api.get(name)).await;
    let read = read.map_err(|_| unread(format!("no response within {} s", PATIENCE.as_secs())))?;
    let secret = read.map_err(|error| unread(mcm_runtime::kubeconfig::cause(&error)))?;
    let bytes = secret.data.and_then(|mut data| data.remove(key));
    let bytes = bytes.ok_or_else(|| unread(format!("it has no key {key}")))?;
    String::from_utf8(bytes.0).map_err(|_| unread(format!("its key {key} is not text")))
}

/// Leaves what says where the Secrets are.
fn prune_deployment(deployment: &mut Deployment) {
    deployment.metadata.managed_fields = None;
    deployment.metadata.annotations = None;
    deployment.metadata.labels = None;
    deployment.status = None;
    if let Some(pod) = deployment.spec.as_mut().and_then(|spec| spec.template.spec.as_mut()) {
        *pod = k8s_openapi::api::core::v1::PodSpec { volumes: pod.volumes.take(), ..Default::default() };
    }
}

fn watch<K: CacheableKind>(
    cache: &Arc<ObjectCache<K>>,
    control: &Client,
    fields: Option<String>,
    caches: &CacheRegistry,
) -> AbortOnDropHandle<()> {
    caches.add(CLUSTER, cache, CacheNeed::Required);
    let (cache, control) = (Arc::clone(cache), control.clone());
    panics::keep(PanicPlace::Watch, "control planes".to_owned(), move || {
        Arc::clone(&cache).watch_fields(control.clone(), Api::all, fields.clone(), WatchTiming::CONTROL)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn cluster(namespace: &str, name: &str, spec: Value) -> Arc<Cluster> {
        let metadata = json!({ "name": name, "namespace": namespace, "deletionTimestamp": "2026-01-01T00:00:00Z" });
        Arc::new(serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap())
    }

    #[test]
    fn clusters_are_served_until_they_are_gone_unless_they_are_paused_several_or_unreadable() {
        let namespaces = ["one", "paused", "two", "odd", "empty"].map(str::to_owned).into();
        let clusters = [
            cluster("one", "a", json!({})),
            cluster("paused", "b", json!({ "paused": true })),
            cluster("two", "d", json!({ "paused": true })),
            cluster("two", "c", json!({ "paused": false })),
            cluster("odd", "e", json!({})),
            cluster("other", "f", json!({})),
        ];
        let unreadable = [("odd".to_owned(), Key::new("odd", "g"))].into();
        let found = wanted_clusters(&namespaces, &clusters, &unreadable);
        assert_eq!(found.keys().collect::<Vec<_>>(), ["odd", "one", "two"]);
        assert_eq!(found["one"].as_ref().unwrap().kubeconfig.name, "a-kubeconfig");
        assert_eq!(found["two"], Err(PlaneProblem::Clusters { names: "c, d".to_owned() }));
        let problem = found["odd"].as_ref().unwrap_err().to_string();
        assert!(problem.contains("Cluster odd/g"), "{problem}");
    }

    #[test]
    fn a_cached_deployment_has_its_volumes_and_no_environment() {
        let spec = json!({
            "containers": [{ "name": "a", "env": [{ "name": "SECRET", "value": "x" }] }],
            "volumes": [{ "name": "kubeconfig", "emptyDir": {} }],
        });
        let deployment = json!({ "metadata": {}, "spec": { "selector": {}, "template": { "spec": spec } } });
        let mut deployment: Deployment = serde_json::from_value(deployment).unwrap();
        prune_deployment(&mut deployment);
        let text = serde_json::to_string(&deployment).unwrap();
        assert!(text.contains("kubeconfig") && !text.contains("SECRET"), "{text}");
    }
}
