//! The Nodes of simulated VMs: what kubelets and the node controller do where VMs do not really run.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::simulation::{Simulation, Vm};

/// Between two looks at the cloud.
const PERIOD: Duration = Duration::from_millis(300);
/// From the first look at a VM until its Node joins.
const BOOT: Duration = Duration::from_millis(1500);
/// Between two heartbeats, so that the node controller leaves Nodes alone.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// Nodes of all VMs of a cluster, until it is dropped. A VM that stops has a Node that is not ready; nobody deletes it.
pub struct Nodes(JoinHandle<()>);

impl Nodes {
    pub fn keep(client: Client, cloud: Arc<dyn Simulation>, cluster: &'static str) -> Self {
        Self(tokio::spawn(async move {
            let mut keeper = Keeper { nodes: Api::all(client), kept: BTreeMap::new() };
            loop {
                let start = Instant::now();
                let mut vms = cloud.vms().await;
                vms.retain(|vm| vm.cluster == cluster && vm.has_uid);
                keeper.look_at(&vms).await;
                // Where there are many VMs, who looks at them leaves the cloud to others most of the time.
                tokio::time::sleep(PERIOD.max(start.elapsed() * 4)).await;
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
    /// By provider ID.
    kept: BTreeMap<String, Kept>,
}

struct Kept {
    name: String,
    since: Instant,
    /// Whether its Node was last told to be ready, and when.
    told: Option<(bool, Instant)>,
}

impl Keeper {
    /// What fails is repeated at the next look.
    async fn look_at(&mut self, vms: &[Vm]) {
        for vm in vms {
            let new = Kept { name: vm.node.clone(), since: Instant::now(), told: None };
            let kept = self.kept.entry(vm.provider_id.clone()).or_insert(new);
            let is_done = match kept.told {
                None if vm.is_running && kept.since.elapsed() >= BOOT => {
                    self.nodes.create(&PostParams::default(), &node(vm)).await.is_ok()
                }
                Some((true, at)) if vm.is_running && at.elapsed() >= HEARTBEAT => {
                    tell(&self.nodes, &kept.name, "True").await
                }
                _ => false,
            };
            if is_done {
                kept.told = Some((true, Instant::now()));
            }
        }
        for (id, kept) in &mut self.kept {
            let is_up = vms.iter().any(|vm| vm.provider_id == *id && vm.is_running);
            if !is_up
                && kept.told.is_some_and(|(is_ready, _)| is_ready)
                && tell(&self.nodes, &kept.name, "Unknown").await
            {
                kept.told = Some((false, Instant::now()));
            }
        }
    }
}

/// A Node that is gone is told nothing.
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
