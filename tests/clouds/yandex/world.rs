//! The fake as a cloud with a folder.

use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use serde_json::{Value, json};

use super::{
    fake::{ACCOUNT, FOLDER, IMAGE, KEY_ID, PLATFORMS, PRIVATE_KEY, SUBNET, YandexApi, ZONE, label_of},
    kit::server::{Fake, Shared, serve},
};
use crate::simulation::{Demo, Simulation, Vm};

const CLUSTER: &str = "kubernetes-io-cluster-";
const ROLE: &str = "kubernetes-io-role-node";
const UID: &str = "machine-sapcloud-io-machine-uid";
const OWNER: &str = "machine-sapcloud-io-owner";

/// A cloud and the URL of its API.
pub struct World {
    pub yandex: Shared<YandexApi>,
    pub url: String,
}

impl World {
    /// Its instances have other IDs than those of other worlds.
    pub async fn new() -> Self {
        static FIRST: AtomicU64 = AtomicU64::new(0);
        let yandex = Fake::new(YandexApi::new());
        yandex.lock().cloud.first = FIRST.fetch_add(1 << 16, Ordering::Relaxed);
        let url = serve(&yandex).await;
        Self { yandex, url }
    }

    /// The key of the service account.
    pub fn key(&self) -> String {
        json!({"id": KEY_ID, "service_account_id": ACCOUNT, "private_key": PRIVATE_KEY}).to_string()
    }
}

#[async_trait]
impl Simulation for World {
    fn provider(&self) -> &'static str {
        "Yandex"
    }

    fn about(&self) -> String {
        format!("Yandex Cloud is a fake at {}, which refuses what does not fit the messages of its API", self.url)
    }

    fn demo(&self, _: &str) -> Demo {
        let interface = json!({"subnetID": SUBNET});
        let disk = json!({"autoDelete": true, "typeID": "network-ssd", "size": 68_719_476_736_i64, "imageID": IMAGE});
        let spec = json!({"bootDiskSpec": disk, "networkInterfaceSpecs": [interface]});
        Demo { spec, field: "platformID", values: PLATFORMS }
    }

    fn violations(&self) -> Vec<String> {
        self.yandex.lock().cloud.violations.clone()
    }

    fn spec(&self, cluster: &str) -> Value {
        json!({
            "labels": {format!("{CLUSTER}{cluster}"): "1", ROLE: "1"}, "zoneID": ZONE, "platformID": PLATFORMS[0],
            "resourcesSpec": {"cores": 2, "memory": 4_294_967_296_i64},
            "bootDiskSpec": {"autoDelete": true, "size": 53_687_091_200_i64, "imageID": IMAGE},
            "networkInterfaceSpecs": [{"subnetID": SUBNET}],
        })
    }

    fn secret(&self) -> Value {
        json!({
            "serviceAccountJSON": self.key(), "folderID": FOLDER, "endpointURL": self.url, "userData": "hunter2-hunter2",
        })
    }

    async fn vms(&self) -> Vec<Vm> {
        let yandex = self.yandex.lock();
        let vm = |instance: &&Value| {
            let text = |field: &str| instance[field].as_str().unwrap_or_default().to_owned();
            let labels = instance["labels"].as_object();
            let cluster = labels.and_then(|labels| labels.keys().find_map(|key| key.strip_prefix(CLUSTER)));
            Vm {
                provider_id: format!("yandex://{}/{}", text("zoneId"), text("id")),
                machine: text("name"),
                node: text("name"),
                is_running: instance["status"] == "RUNNING",
                cluster: cluster.unwrap_or_default().to_owned(),
                has_uid: label_of(instance, UID).is_some(),
                owner: label_of(instance, OWNER).unwrap_or_default().to_owned(),
            }
        };
        yandex.cloud.alive().iter().map(vm).collect()
    }

    async fn created(&self) -> u64 {
        self.yandex.lock().cloud.created
    }

    async fn create_for(&self, name: &str, cluster: &str, owner: &str) {
        let owner = (!owner.is_empty()).then(|| format!("{OWNER}={owner}"));
        let labels: Vec<String> = [format!("{CLUSTER}{cluster}"), ROLE.to_owned()].into_iter().chain(owner).collect();
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        self.yandex.lock().cloud.put(name, &labels);
    }

    async fn end(&self, provider_id: &str) {
        let id = provider_id.rsplit('/').next().unwrap();
        self.yandex.lock().cloud.take(id);
    }
}
