//! The infrastructure provider of another cloud, as far as core and `mcm adopt` see it: its real kinds, and a controller that
//! keeps the rules of the contract. It has VMs of the simulated cloud, with tags that no class of mcm has, and records
//! every VM that it makes or deletes.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

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
    /// Installs its kinds and starts it in the namespace of a scene.
    pub async fn start(scene: &Scene) -> Self {
        install(scene.world).await;
        let deeds = Arc::new(Mutex::new(Vec::new()));
        let controller = Controller {
            machines: machines(scene.world.management.client(), &scene.namespace),
            cloud: scene.world.cloud.url.clone(),
            namespace: scene.namespace.clone(),
            http: reqwest::Client::new(),
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

/// The kinds of the provider for AWS, as it ships them, without conversions between versions, which are not used here.
async fn install(world: &World) {
    let folders = std::env::var("MCM_TEST_OTHER_PROVIDERS")
        .unwrap_or_else(|_| panic!("run these tests with hack/test-clusterctl"));
    let folder = PathBuf::from(folders.lines().next().unwrap());
    for kind in ["awsclusters", "awsmachines", "awsmachinetemplates"] {
        let file = folder.join(format!("infrastructure.cluster.x-k8s.io_{kind}.yaml"));
        let mut crd: Value = serde_yaml_ng::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        crd["metadata"]["labels"] = json!({"cluster.x-k8s.io/v1beta1": "v1beta1_v1beta2"});
        world.apply(&crd);
        world.established(&format!("{kind}.infrastructure.cluster.x-k8s.io")).await;
    }
}

fn machines(client: Client, namespace: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("infrastructure.cluster.x-k8s.io", "v1beta2", "AWSMachine");
    Api::namespaced_with(client, namespace, &ApiResource::from_gvk_with_plural(&kind, "awsmachines"))
}

/// The controller of its machines.
struct Controller {
    machines: Api<DynamicObject>,
    cloud: String,
    namespace: String,
    http: reqwest::Client,
    deeds: Arc<Mutex<Vec<String>>>,
}

impl Controller {
    async fn pass(&self) {
        let Ok(all) = self.machines.list(&ListParams::default()).await else { return };
        for machine in all {
            self.reconcile(&machine).await;
        }
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
        let vm = json!({
            "machineName": machine.name_any(), "namespace": self.namespace, "token": machine.uid(),
            "providerSpec": {"zone": ZONE, "region": "simulated"},
        });
        let answer = self.http.post(format!("{}/v1/vms", self.cloud)).json(&vm).send().await.ok()?;
        let vm: Value = answer.error_for_status().ok()?.json().await.ok()?;
        self.deeds.lock().unwrap().push(format!("create {}", machine.name_any()));
        let tag = format!("{}/v1/vms/{}/cluster", self.cloud, vm["id"].as_str()?);
        self.http.post(tag).json(&json!({"cluster": ""})).send().await.ok()?;
        self.patch(machine, json!({"spec": {"providerID": vm["providerID"], "instanceID": vm["id"]}})).await;
        None
    }

    async fn delete(&self, machine: &DynamicObject) -> Option<()> {
        if !machine.finalizers().iter().any(|one| one == FINALIZER) {
            return None;
        }
        let id = machine.data["spec"]["providerID"].as_str()?.rsplit('/').next()?.to_owned();
        self.deeds.lock().unwrap().push(format!("delete {}", machine.name_any()));
        self.http.delete(format!("{}/v1/vms/{id}", self.cloud)).send().await.ok()?;
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
