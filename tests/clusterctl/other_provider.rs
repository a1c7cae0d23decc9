//! The infrastructure provider of another cloud, as far as core and `mcm adopt` see it: its real kinds, and a controller that
//! keeps the rules of the contract. It has VMs of the simulated cloud, with tags that no class of mcm has, and records
//! every VM that it makes or deletes. For a cluster whose workers are of mcm, it has those of another stand-in.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::{scene::Scene, world::World};

const FINALIZER: &str = "awsmachine.infrastructure.cluster.x-k8s.io";
const PAUSED: &str = "cluster.x-k8s.io/paused";
const ZONE: &str = "simulated-a";

/// The kinds of a provider.
pub struct Kinds {
    /// The line of `hack/other-providers`.
    line: usize,
    /// The beginning of their names.
    prefix: &'static str,
    version: &'static str,
    /// The rest of their names in the singular.
    names: &'static [&'static str],
}

const NAMES: [&str; 5] = ["cluster", "clustertemplate", "machine", "machinetemplate", "machinepool"];
pub const AWS: Kinds = Kinds { line: 0, prefix: "AWS", version: "v1beta2", names: &NAMES };
#[cfg_attr(not(feature = "openstack"), allow(dead_code, reason = "only flavours of clouds have its clusters"))]
pub const GCP: Kinds =
    Kinds { line: 1, prefix: "GCP", version: "v1beta1", names: &["cluster", "machine", "machinetemplate"] };

impl Kinds {
    fn plural(&self, kind: &str) -> String {
        format!("{}{kind}s", self.prefix.to_lowercase())
    }

    fn api(&self, kind: &str, client: &Client, namespace: &str) -> Api<DynamicObject> {
        let name =
            GroupVersionKind::gvk("infrastructure.cluster.x-k8s.io", self.version, &format!("{}{kind}", self.prefix));
        let resource = ApiResource::from_gvk_with_plural(&name, &self.plural(&kind.to_lowercase()));
        Api::namespaced_with(client.clone(), namespace, &resource)
    }
}

/// The VMs of its machines.
#[async_trait]
pub trait Vms: Send + Sync {
    /// Creates the VM of a machine once, and returns its ID in the form of Nodes.
    async fn create(&self, machine: &DynamicObject) -> Option<String>;

    /// Deletes a VM.
    async fn delete(&self, id: &str) -> Option<()>;
}

/// Fields of the infrastructure of a cluster that the provider writes.
#[derive(Clone, Default)]
pub struct Network {
    pub spec: Value,
    pub status: Value,
}

/// A running provider.
pub struct OtherProvider {
    /// Its actions on VMs.
    deeds: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Drop for OtherProvider {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl OtherProvider {
    /// Installs its kinds and starts it in the namespace of a scene, with VMs of the simulated cloud.
    pub async fn start(scene: &Scene) -> Self {
        Self::start_on(scene, &AWS, simulated(scene), None).await
    }

    /// The same with other VMs, and with clusters if it has a network for them.
    pub async fn start_on(scene: &Scene, kinds: &Kinds, vms: Arc<dyn Vms>, network: Option<Network>) -> Self {
        install(scene.world, kinds).await;
        let deeds = Arc::new(Mutex::new(Vec::new()));
        let client = scene.world.management.client();
        let controller = Controller {
            clusters: kinds.api("Cluster", &client, &scene.namespace),
            machines: kinds.api("Machine", &client, &scene.namespace),
            network,
            vms,
            deeds: Arc::clone(&deeds),
        };
        let task = tokio::spawn(async move {
            let mut resync = tokio::time::interval(Duration::from_millis(100));
            loop {
                resync.tick().await;
                controller.pass().await;
            }
        });
        Self { deeds, task }
    }

    /// VMs that it created and deleted, in order.
    pub fn deeds(&self) -> Vec<String> {
        self.deeds.lock().unwrap().clone()
    }
}

/// The kinds of a provider, as it ships them, without conversions between versions, which are not used here.
pub async fn install(world: &World, kinds: &Kinds) {
    let folders = std::env::var("MCM_TEST_OTHER_PROVIDERS")
        .unwrap_or_else(|_| panic!("run these tests with hack/test-clusterctl"));
    let folder = PathBuf::from(folders.lines().nth(kinds.line).unwrap());
    for kind in kinds.names.iter().map(|kind| kinds.plural(kind)) {
        let file = folder.join(format!("infrastructure.cluster.x-k8s.io_{kind}.yaml"));
        let mut crd: Value = serde_yaml_ng::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        crd["metadata"]["labels"] = json!({"cluster.x-k8s.io/v1beta1": kinds.version});
        world.apply(&crd);
        world.established(&format!("{kind}.infrastructure.cluster.x-k8s.io")).await;
    }
}

/// VMs of the simulated cloud for a namespace.
pub fn simulated(scene: &Scene) -> Arc<dyn Vms> {
    let (cloud, namespace) = (scene.world.cloud.url.clone(), scene.namespace.clone());
    Arc::new(Simulated { cloud, namespace, http: reqwest::Client::new() })
}

struct Simulated {
    cloud: String,
    namespace: String,
    http: reqwest::Client,
}

#[async_trait]
impl Vms for Simulated {
    async fn create(&self, machine: &DynamicObject) -> Option<String> {
        let vm = json!({
            "machineName": machine.name_any(), "namespace": self.namespace, "token": machine.uid(),
            "providerSpec": {"zone": ZONE, "region": "simulated"},
        });
        let answer = self.http.post(format!("{}/v1/vms", self.cloud)).json(&vm).send().await.ok()?;
        let vm: Value = answer.error_for_status().ok()?.json().await.ok()?;
        let tag = format!("{}/v1/vms/{}/cluster", self.cloud, vm["id"].as_str()?);
        self.http.post(tag).json(&json!({"cluster": ""})).send().await.ok()?;
        vm["providerID"].as_str().map(str::to_owned)
    }

    async fn delete(&self, id: &str) -> Option<()> {
        let id = id.rsplit('/').next()?;
        self.http.delete(format!("{}/v1/vms/{id}", self.cloud)).send().await.ok().map(drop)
    }
}

/// The controller of its clusters and machines.
struct Controller {
    clusters: Api<DynamicObject>,
    machines: Api<DynamicObject>,
    network: Option<Network>,
    vms: Arc<dyn Vms>,
    deeds: Arc<Mutex<Vec<String>>>,
}

impl Controller {
    async fn pass(&self) {
        if let Some(network) = &self.network {
            self.provision(network).await;
        }
        let Ok(all) = self.machines.list(&ListParams::default()).await else { return };
        for machine in all {
            self.reconcile(&machine).await;
        }
    }

    /// Writes the network of each cluster that has an owner.
    async fn provision(&self, network: &Network) -> Option<()> {
        let all = self.clusters.list(&ListParams::default()).await.ok()?;
        let is_new = |one: &&DynamicObject| !one.owner_references().is_empty() && one.data["status"]["ready"] != true;
        for cluster in all.iter().filter(is_new) {
            let (spec, status) = (json!({ "spec": network.spec }), json!({ "status": network.status }));
            let (name, how) = (cluster.name_any(), PatchParams::default());
            self.clusters.patch(&name, &how, &Patch::Merge(spec)).await.ok()?;
            self.clusters.patch_status(&name, &how, &Patch::Merge(status)).await.ok()?;
        }
        Some(())
    }

    /// Owner, pause, deletion, VM: in this order, as the contract requires.
    async fn reconcile(&self, machine: &DynamicObject) -> Option<()> {
        machine.owner_references().iter().find(|owner| owner.kind == "Machine")?;
        let is_paused = machine.annotations().contains_key(PAUSED);
        let said = machine.data["status"]["conditions"][0]["status"] == "True";
        if is_paused || said {
            let status = if is_paused { "True" } else { "False" };
            if is_paused != said {
                let condition =
                    json!({"type": "Paused", "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"});
                self.patch_status(machine, json!({"conditions": [condition]})).await;
            }
            return None;
        }
        if machine.metadata.deletion_timestamp.is_some() {
            return self.delete(machine).await;
        }
        if machine.finalizers().is_empty() {
            self.patch(machine, json!({"metadata": {"finalizers": [FINALIZER]}})).await;
            return None;
        }
        if machine.data["spec"]["providerID"].is_null() {
            return self.create(machine).await;
        }
        if machine.data["status"]["ready"] != true {
            let condition = json!({"type": "Paused", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"});
            self.patch_status(machine, json!({"ready": true, "conditions": [condition]})).await;
        }
        None
    }

    async fn create(&self, machine: &DynamicObject) -> Option<()> {
        let id = self.vms.create(machine).await?;
        self.deeds.lock().unwrap().push(format!("create {}", machine.name_any()));
        self.patch(machine, json!({"spec": {"providerID": id, "instanceID": id.rsplit('/').next()}})).await;
        None
    }

    async fn delete(&self, machine: &DynamicObject) -> Option<()> {
        if !machine.finalizers().iter().any(|one| one == FINALIZER) {
            return None;
        }
        self.deeds.lock().unwrap().push(format!("delete {}", machine.name_any()));
        self.vms.delete(machine.data["spec"]["providerID"].as_str()?).await?;
        self.patch(machine, json!({"metadata": {"finalizers": null}})).await;
        None
    }

    async fn patch(&self, machine: &DynamicObject, change: Value) {
        self.machines.patch(&machine.name_any(), &PatchParams::default(), &Patch::Merge(change)).await.ok();
    }

    async fn patch_status(&self, machine: &DynamicObject, status: Value) {
        let change = json!({ "status": status });
        self.machines.patch_status(&machine.name_any(), &PatchParams::default(), &Patch::Merge(change)).await.ok();
    }
}
