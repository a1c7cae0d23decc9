//! The fake as a cloud.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use async_trait::async_trait;
use serde_json::{Value, json};

use super::{
    fake::{Ecs, GROUP, IMAGE, Instance, KEY_ID, KEY_PAIR, KEY_SECRET, LARGE, REGION, SWITCH, TYPE, ZONE},
    kit::server::{Fake, Shared, serve},
};
use crate::simulation::{Demo, Simulation, Vm};

/// Before the name of the cluster in the key of a tag.
const CLUSTER: &str = "kubernetes.io/cluster/";
const ROLE: &str = "kubernetes.io/role/node";
const UID: &str = "machine.sapcloud.io/machine-uid";
const OWNER: &str = "machine.sapcloud.io/owner";

/// The clouds of this process.
static WORLDS: AtomicUsize = AtomicUsize::new(0);

/// A cloud and the URL of its API.
pub struct World {
    pub ecs: Shared<Ecs>,
    pub url: String,
}

impl World {
    pub async fn new() -> Self {
        let ecs = Fake::new(Ecs::new());
        {
            let mut ecs = ecs.lock();
            ecs.cloud.boots = 2;
            // Nodes are named by IDs, and clouds of several tests share the API server that has the Nodes.
            ecs.cloud.prefix = format!("{}x2ze", WORLDS.fetch_add(1, Relaxed));
        }
        let url = serve(&ecs).await;
        Self { ecs, url }
    }
}

#[async_trait]
impl Simulation for World {
    fn provider(&self) -> &'static str {
        "Alicloud"
    }

    fn about(&self) -> String {
        format!(
            "Alibaba Cloud is a fake of ECS at {}, which refuses what does not fit the description of its API",
            self.url
        )
    }

    fn demo(&self, _: &str) -> Demo {
        let spec = json!({
            "imageID": IMAGE, "region": REGION, "zoneID": ZONE, "vSwitchID": SWITCH, "securityGroupID": GROUP, "keyPairName": KEY_PAIR,
        });
        Demo { spec, field: "instanceType", values: [TYPE, LARGE] }
    }

    fn violations(&self) -> Vec<String> {
        self.ecs.lock().cloud.violations.clone()
    }

    fn spec(&self, cluster: &str) -> Value {
        json!({
            "imageID": IMAGE, "instanceType": TYPE, "region": REGION, "zoneID": ZONE, "vSwitchID": SWITCH, "securityGroupID": GROUP,
            "tags": {format!("{CLUSTER}{cluster}"): "1", ROLE: "1"},
        })
    }

    fn secret(&self) -> Value {
        json!({
            "alicloudAccessKeyID": KEY_ID, "alicloudAccessKeySecret": KEY_SECRET, "endpointURL": self.url,
            "userData": "hunter2-hunter2",
        })
    }

    async fn vms(&self) -> Vec<Vm> {
        let vm = |instance: &Instance| {
            let cluster = instance.tags.keys().find_map(|key| key.strip_prefix(CLUSTER));
            Vm {
                provider_id: format!("{REGION}.{}", instance.id),
                machine: instance.name.clone(),
                node: format!("{}z", instance.id.replacen('-', "z", 1)),
                // It starts without a look at it.
                is_running: true,
                cluster: cluster.unwrap_or_default().to_owned(),
                has_uid: instance.tags.contains_key(UID),
                owner: instance.tags.get(OWNER).cloned().unwrap_or_default(),
            }
        };
        self.ecs.lock().cloud.alive().into_iter().map(vm).collect()
    }

    async fn created(&self) -> u64 {
        self.ecs.lock().cloud.created
    }

    async fn create_for(&self, name: &str, cluster: &str, owner: &str) {
        let cluster = format!("{CLUSTER}{cluster}");
        let tags = [(cluster.as_str(), "1"), (ROLE, "1"), (OWNER, owner)];
        let tags: Vec<_> = tags.into_iter().filter(|(_, value)| !value.is_empty()).collect();
        self.ecs.lock().cloud.put(name, &tags);
    }

    async fn end(&self, provider_id: &str) {
        let id = provider_id.rsplit('.').next().unwrap();
        self.ecs.lock().cloud.take(id);
    }
}
