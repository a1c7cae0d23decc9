//! The Nodes of simulated VMs: simulates kubelets and the controllers of a cloud, because no VM really runs.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::simulation::{Simulation, Vm};

/// Period of the reads of the cloud.
const PERIOD: Duration = Duration::from_millis(300);
/// From the first read of a VM until its Node joins.
const BOOT: Duration = Duration::from_millis(1500);
/// Period of heartbeats, so that the node controller does not mark Nodes.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// Nodes of all VMs of a cluster, until it is dropped. A VM that stops has a Node that is not ready; one that ended has no Node.
pub struct Nodes(JoinHandle<()>);

impl Nodes {
    pub fn keep(client: Client, cloud: Arc<dyn Simulation>, cluster: &'static str) -> Self {
        Self(tokio::spawn(async move {
            let mut keeper = Keeper { nodes: Api::all(client), kept: BTreeMap::new() };
            loop {
                let start = Instant::now();
                let mut vms = cloud.vms().await;
                let took = start.elapsed();
                vms.retain(|vm| vm.cluster == cluster && vm.has_uid);
                keeper.look_at(&vms).await;
                // With many VMs, leaves the cloud to others most of the time.
                tokio::time::sleep(PERIOD.max(took * 4)).await;
            }
        }))
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Keeper {
    nodes: Api<Node>,
    /// By provider ID: a new VM may have the name of one that ended.
    kept: BTreeMap<String, Kept>,
}

struct Kept {
    name: String,
    since: Instant,
    /// The last readiness written to its Node, and its time.
    told: Option<(bool, Instant)>,
}

impl Keeper {
    /// Failed requests are repeated in the next round.
    async fn look_at(&mut self, vms: &[Vm]) {
        self.delete_ended(vms).await;
        for vm in vms {
            let new = Kept { name: vm.node.clone(), since: Instant::now(), told: None };
            let kept = self.kept.entry(vm.provider_id.clone()).or_insert(new);
            let is_ready = match kept.told {
                None if vm.is_running && kept.since.elapsed() >= BOOT => {
                    // While there is the Node of an earlier VM with that name, it fails.
                    self.nodes.create(&PostParams::default(), &node(vm)).await.is_ok().then_some(true)
                }
                Some((is_ready, at)) if vm.is_running && (!is_ready || at.elapsed() >= HEARTBEAT) => {
                    tell(&self.nodes, &kept.name, "True").await.then_some(true)
                }
                Some((true, _)) if !vm.is_running => tell(&self.nodes, &kept.name, "Unknown").await.then_some(false),
                _ => None,
            };
            if let Some(is_ready) = is_ready {
                kept.told = Some((is_ready, Instant::now()));
            }
        }
    }

    /// Deletes the Nodes of deleted VMs, even where another VM has the name by now.
    async fn delete_ended(&mut self, vms: &[Vm]) {
        let ended: Vec<String> =
            self.kept.keys().filter(|id| !vms.iter().any(|vm| vm.provider_id == **id)).cloned().collect();
        for id in ended {
            let has_node = self.kept[&id].told.is_some();
            if !has_node || self.delete(&id).await {
                self.kept.remove(&id);
            }
        }
    }

    /// Deletes the Node of a VM, unless it is already deleted or belongs to another VM.
    async fn delete(&self, provider_id: &str) -> bool {
        let name = &self.kept[provider_id].name;
        let Ok(found) = self.nodes.get_opt(name).await else { return false };
        let is_of = |node: &Node| node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()) == Some(provider_id);
        let Some(node) = found.filter(is_of) else { return true };
        let preconditions = Some(Preconditions { uid: node.metadata.uid, ..Preconditions::default() });
        match self.nodes.delete(name, &DeleteParams { preconditions, ..DeleteParams::default() }).await {
            Ok(_) => true,
            Err(kube::Error::Api(status)) => status.code == 404,
            Err(_) => false,
        }
    }
}

/// Reports the status of a Node, unless it is deleted.
async fn tell(nodes: &Api<Node>, name: &str, ready: &str) -> bool {
    let patch = json!({"status": {"conditions": conditions(ready)}});
    match nodes.patch_status(name, &PatchParams::default(), &Patch::Strategic(patch)).await {
        Ok(_) => true,
        Err(kube::Error::Api(status)) => status.code == 404,
        Err(_) => false,
    }
}

fn node(vm: &Vm) -> Node {
    let capacity = json!({"cpu": "4", "memory": "16Gi", "pods": "110"});
    let node = json!({
        "metadata": {
            "name": vm.node,
            "labels": {"kubernetes.io/hostname": vm.node},
            // kwok runs pods on it.
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "spec": {"providerID": vm.provider_id},
        "status": {"capacity": capacity, "allocatable": capacity, "conditions": conditions("True")},
    });
    serde_json::from_value(node).unwrap()
}

fn conditions(ready: &str) -> Value {
    json!([{
        "type": "Ready", "status": ready, "reason": "Simulated", "message": "simulated",
        "lastHeartbeatTime": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    }])
}
