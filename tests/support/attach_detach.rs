//! A small attach-detach controller, with what else moves a pod that has volumes: a kubelet that ends it, and its owner,
//! which starts the next one on another Node. Each step takes a time, and some volumes are stuck.
//!
//! A pod `web-3` has the claim `web-3`, bound to the PersistentVolume `NAMESPACE-web-3`. Node.status.volumesAttached is
//! written by the simulated cloud.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use futures::StreamExt;
use k8s_openapi::api::{core::v1::Pod, storage::v1::VolumeAttachment};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::{Value, json};
use tokio::{
    sync::Semaphore,
    task::{AbortHandle, JoinSet},
    time::sleep,
};

use super::{objects, pods, world::World};

const DRIVER: &str = "simulated.csi.mcm.dev";

/// How long each step takes.
#[derive(Clone, Copy, Debug)]
pub struct Latency {
    /// From the eviction of a pod until it is deleted.
    pub termination: Duration,
    pub detach: Duration,
    pub attach: Duration,
}

/// The record of one volume.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moved {
    pub evicted: Option<Instant>,
    pub detached: Option<Instant>,
    pub attached: Option<Instant>,
}

/// Runs until it is dropped.
pub struct AttachDetach {
    shared: Arc<Shared>,
    task: AbortHandle,
}

struct Shared {
    client: Client,
    namespace: String,
    cloud: super::cloud::Handle,
    latency: Latency,
    /// Pods whose volumes are never detached.
    stuck: BTreeSet<String>,
    /// The Node that successors run on.
    next_node: String,
    moved: Mutex<BTreeMap<String, Moved>>,
    /// Calls to the cloud at a time, as in a CSI attacher.
    workers: Semaphore,
}

impl AttachDetach {
    /// Pods with one volume each, attached to their Node.
    pub async fn pods(world: &World, names: &[String], node: &str) {
        let attach: Vec<String> = names.to_vec();
        assert!(world.cloud.volumes(node, &attach, &[]).await, "{node} has no VM");
        for name in names {
            for object in claim(&world.namespace, name) {
                objects::apply(&world.target, &object).await;
            }
            attach_to(&world.target, &world.namespace, name, node).await;
            pods::run(&world.target, &world.namespace, with_volume(&world.namespace, name, node)).await;
        }
    }

    /// Moves the volumes of pods that terminate to another Node.
    pub fn start(world: &World, latency: Latency, stuck: &[String], next_node: &str) -> Self {
        let shared = Arc::new(Shared {
            client: world.target.clone(),
            namespace: world.namespace.clone(),
            cloud: world.cloud.handle(),
            latency,
            stuck: stuck.iter().cloned().collect(),
            next_node: next_node.to_owned(),
            moved: Mutex::default(),
            workers: Semaphore::new(10),
        });
        let task = tokio::spawn(follow(Arc::clone(&shared))).abort_handle();
        Self { shared, task }
    }

    /// The records of the volumes of each pod so far.
    pub fn moved(&self) -> BTreeMap<String, Moved> {
        self.shared.moved().clone()
    }

    /// The most volumes that were on the move at the same time: between the eviction of their pod and their attachment.
    pub fn most_at_once(&self) -> usize {
        let moved = self.moved();
        let begun: Vec<(Instant, Instant)> =
            moved.values().filter_map(|it| Some((it.evicted?, it.attached.or(it.detached)?))).collect();
        let at = |time: Instant| begun.iter().filter(|(from, to)| *from <= time && time < *to).count();
        begun.iter().map(|(from, _)| at(*from)).max().unwrap_or_default()
    }
}

impl Drop for AttachDetach {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn moved(&self) -> MutexGuard<'_, BTreeMap<String, Moved>> {
        self.moved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, pod: &str, what: impl FnOnce(&mut Moved)) {
        what(self.moved().entry(pod.to_owned()).or_default());
    }

    /// From the eviction of a pod until its successor serves elsewhere.
    async fn carry(self: Arc<Self>, pod: String, node: String) {
        self.note(&pod, |it| it.evicted = Some(Instant::now()));
        sleep(self.latency.termination).await;
        let api = pods::api(&self.client, &self.namespace);
        // A forced drain may have been faster.
        let _ = api.delete(&pod, &DeleteParams::default().grace_period(0)).await;
        if self.stuck.contains(&pod) {
            return;
        }
        {
            let _worker = self.workers.acquire().await.unwrap();
            sleep(self.latency.detach).await;
        }
        self.cloud.volumes(&node, &[], std::slice::from_ref(&pod)).await;
        let attachments: Api<VolumeAttachment> = Api::all(self.client.clone());
        let _ = attachments.delete(&attachment(&self.namespace, &pod, &node), &DeleteParams::default()).await;
        self.note(&pod, |it| it.detached = Some(Instant::now()));
        {
            let _worker = self.workers.acquire().await.unwrap();
            sleep(self.latency.attach).await;
        }
        self.cloud.volumes(&self.next_node, std::slice::from_ref(&pod), &[]).await;
        attach_to(&self.client, &self.namespace, &pod, &self.next_node).await;
        self.note(&pod, |it| it.attached = Some(Instant::now()));
        pods::run(&self.client, &self.namespace, with_volume(&self.namespace, &pod, &self.next_node)).await;
    }
}

async fn follow(shared: Arc<Shared>) {
    let api = pods::api(&shared.client, &shared.namespace);
    let mut events = watcher(api, watcher::Config::default()).default_backoff().applied_objects().boxed();
    let mut seen = BTreeSet::new();
    let mut moves = JoinSet::new();
    while let Some(event) = events.next().await {
        let Ok(pod) = event else { continue };
        let has_volume = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.volumes.is_some());
        if pod.metadata.deletion_timestamp.is_none() || !has_volume(&pod) || !seen.insert(pod.uid()) {
            continue;
        }
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
        moves.spawn(Arc::clone(&shared).carry(pod.name_any(), node));
    }
}

fn volume(namespace: &str, pod: &str) -> String {
    format!("{namespace}-{pod}")
}

fn attachment(namespace: &str, pod: &str, node: &str) -> String {
    format!("{}-{node}", volume(namespace, pod))
}

/// A claim and its volume. No binder runs in a test, so the claim names its volume.
fn claim(namespace: &str, pod: &str) -> [Value; 2] {
    let capacity = json!({"storage": "1Gi"});
    let volume_name = volume(namespace, pod);
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume_name},
        "spec": {
            "capacity": capacity, "accessModes": ["ReadWriteOnce"], "storageClassName": "simulated",
            "csi": {"driver": DRIVER, "volumeHandle": pod},
        },
    });
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": pod, "namespace": namespace},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "simulated", "volumeName": volume_name,
            "resources": {"requests": capacity},
        },
    });
    [volume, claim]
}

fn with_volume(namespace: &str, name: &str, node: &str) -> Value {
    let mut pod = pods::pod(name, node);
    pod["metadata"]["namespace"] = namespace.into();
    pod["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": name}}]);
    pod
}

/// The attachment of a volume to a Node, as the CSI attacher confirms it.
async fn attach_to(client: &Client, namespace: &str, pod: &str, node: &str) {
    let name = attachment(namespace, pod, node);
    let object = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": name},
        "spec": {"attacher": DRIVER, "nodeName": node, "source": {"persistentVolumeName": volume(namespace, pod)}},
    });
    objects::apply(client, &object).await;
    let attachments: Api<VolumeAttachment> = Api::all(client.clone());
    let attached = json!({"status": {"attached": true}});
    attachments.patch_status(&name, &PatchParams::default(), &Patch::Merge(attached)).await.unwrap();
}
