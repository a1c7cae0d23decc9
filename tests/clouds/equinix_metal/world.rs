//! The fake as a cloud with servers of two plans.

use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use serde_json::{Value, json};

use super::{
    fake::{BASE, Device, LARGE, METRO, MetalApi, PLAN, PROJECT, SYSTEM, TOKEN},
    kit::server::{Fake, Shared, serve},
};
use crate::simulation::{Demo, Simulation, Vm};

/// Servers of each plan.
const SERVERS: usize = 40;
const CLUSTER: &str = "kubernetes.io/cluster/";
const ROLE: &str = "kubernetes.io/role/node: 1";
const UID: &str = "machine.sapcloud.io/machine-uid";
const OWNER: &str = "machine.sapcloud.io/owner";

/// A cloud and the URL of its API.
pub struct World {
    pub metal: Shared<MetalApi>,
    pub url: String,
}

impl World {
    /// Its devices have other IDs than those of other worlds.
    pub async fn new() -> Self {
        static FIRST: AtomicU64 = AtomicU64::new(0);
        let metal = Fake::new(MetalApi::new(SERVERS));
        metal.lock().cloud.first = FIRST.fetch_add(1 << 16, Ordering::Relaxed);
        metal.lock().cloud.free.insert(LARGE.to_owned(), SERVERS);
        let url = serve(&metal).await + BASE;
        Self { metal, url }
    }
}

/// The tag of a cluster, as samples of classes write it.
fn cluster_tag(cluster: &str) -> String {
    format!("{CLUSTER}{cluster}: 1")
}

fn cluster_of(device: &Device) -> Option<&str> {
    device.tags.iter().find_map(|tag| tag.strip_prefix(CLUSTER)?.strip_suffix(": 1"))
}

#[async_trait]
impl Simulation for World {
    fn provider(&self) -> &'static str {
        "EquinixMetal"
    }

    fn about(&self) -> String {
        format!("Equinix Metal is a fake at {}, which refuses what does not fit its OpenAPI document", self.url)
    }

    fn demo(&self, _: &str) -> Demo {
        Demo { spec: json!({"projectID": PROJECT, "sshKeys": null}), field: "machineType", values: [PLAN, LARGE] }
    }

    fn violations(&self) -> Vec<String> {
        self.metal.lock().cloud.violations.clone()
    }

    fn spec(&self, cluster: &str) -> Value {
        json!({
            "metro": METRO, "machineType": PLAN, "OS": SYSTEM, "projectID": PROJECT, "billingCycle": "hourly",
            "tags": [cluster_tag(cluster), ROLE],
        })
    }

    fn secret(&self) -> Value {
        json!({"apiToken": TOKEN, "endpointURL": self.url, "userData": "hunter2-hunter2"})
    }

    async fn vms(&self) -> Vec<Vm> {
        let metal = self.metal.lock();
        let vm = |device: &Device| Vm {
            provider_id: format!("equinixmetal://{METRO}/{}", device.id),
            machine: device.hostname.clone(),
            node: device.hostname.clone(),
            is_running: device.state == "active",
            cluster: cluster_of(device).unwrap_or_default().to_owned(),
            has_uid: tag_of(device, UID).is_some(),
            owner: tag_of(device, OWNER).unwrap_or_default().to_owned(),
        };
        metal.cloud.present().into_iter().map(vm).collect()
    }

    async fn created(&self) -> u64 {
        self.metal.lock().cloud.created
    }

    async fn create_for(&self, name: &str, cluster: &str, owner: &str) {
        let owner = (!owner.is_empty()).then(|| format!("{OWNER}={owner}"));
        let tags: Vec<String> = [cluster_tag(cluster), ROLE.to_owned()].into_iter().chain(owner).collect();
        let tags: Vec<&str> = tags.iter().map(String::as_str).collect();
        self.metal.lock().cloud.put(name, &tags);
    }

    async fn end(&self, provider_id: &str) {
        let id = provider_id.rsplit('/').next().unwrap();
        self.metal.lock().cloud.take(id);
    }
}

/// The value of a tag of a device.
fn tag_of<'a>(device: &'a Device, key: &str) -> Option<&'a str> {
    device.tags.iter().find_map(|tag| tag.strip_prefix(key)?.strip_prefix('='))
}
