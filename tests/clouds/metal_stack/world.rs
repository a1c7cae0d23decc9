//! The fake as a cloud with servers of two sizes.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use serde_json::{Value, json};

use super::{
    fake::{BASE, HMAC, IMAGE, LARGE, Machine, MetalApi, NETWORK, PARTITION, PROJECT, SIZE},
    kit::server::{Fake, Shared, serve},
};
use crate::simulation::{Demo, Simulation, Vm};

/// Servers of each size.
const SERVERS: usize = 40;
const CLUSTER: &str = "cluster.metal-stack.io/id";
const UID: &str = "machine.sapcloud.io/machine-uid";
const OWNER: &str = "machine.sapcloud.io/owner";

/// A cloud and the URL of its API.
pub struct World {
    pub metal: Shared<MetalApi>,
    pub url: String,
}

impl World {
    /// Its machines have other IDs than those of other worlds.
    pub async fn new() -> Self {
        static FIRST: AtomicUsize = AtomicUsize::new(0);
        let metal = Fake::new(MetalApi::starting_at(FIRST.fetch_add(1 << 16, Ordering::Relaxed), SERVERS));
        metal.lock().cloud.add(LARGE, SERVERS);
        let url = serve(&metal).await + BASE;
        Self { metal, url }
    }
}

#[async_trait]
impl Simulation for World {
    fn provider(&self) -> &'static str {
        "metal"
    }

    fn about(&self) -> String {
        format!("metal-stack is a fake at {}, which refuses what does not fit its Swagger document", self.url)
    }

    fn demo(&self, _: &str) -> Demo {
        Demo { spec: json!({"project": PROJECT, "network": NETWORK}), field: "size", values: [SIZE, LARGE] }
    }

    fn violations(&self) -> Vec<String> {
        self.metal.lock().cloud.violations.clone()
    }

    fn spec(&self, cluster: &str) -> Value {
        json!({
            "partition": PARTITION, "size": SIZE, "image": IMAGE, "project": PROJECT, "network": NETWORK,
            "tags": [format!("{CLUSTER}={cluster}")],
        })
    }

    fn secret(&self) -> Value {
        json!({"metalAPIURL": self.url, "metalAPIHMac": HMAC, "userData": "hunter2-hunter2"})
    }

    async fn vms(&self) -> Vec<Vm> {
        let metal = self.metal.lock();
        let vm = |machine: &super::fake::Machine| {
            let name = machine.allocation.as_ref().and_then(|one| one["name"].as_str()).unwrap_or_default();
            Vm {
                provider_id: format!("metal:///{PARTITION}/{}", machine.id),
                machine: name.to_owned(),
                node: name.to_owned(),
                is_running: true,
                cluster: tag_of(machine, CLUSTER).unwrap_or_default().to_owned(),
                has_uid: tag_of(machine, UID).is_some(),
                owner: tag_of(machine, OWNER).unwrap_or_default().to_owned(),
            }
        };
        metal.cloud.allocations().into_iter().map(vm).collect()
    }

    async fn created(&self) -> u64 {
        self.metal.lock().cloud.allocated
    }

    async fn create_for(&self, name: &str, cluster: &str, owner: &str) {
        let owner = (!owner.is_empty()).then(|| format!("{OWNER}={owner}"));
        let tags: Vec<String> = [format!("{CLUSTER}={cluster}")].into_iter().chain(owner).collect();
        let tags: Vec<&str> = tags.iter().map(String::as_str).collect();
        self.metal.lock().cloud.put(name, "machine", &tags);
    }

    async fn end(&self, provider_id: &str) {
        let id = provider_id.rsplit('/').next().unwrap();
        self.metal.lock().cloud.take(id);
    }
}

/// The value of a tag of a machine.
fn tag_of<'a>(machine: &'a Machine, key: &str) -> Option<&'a str> {
    machine.tags.iter().find_map(|tag| tag.strip_prefix(key)?.strip_prefix('='))
}
