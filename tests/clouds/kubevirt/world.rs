//! The fake as a cloud with VMs of two sizes.

use async_trait::async_trait;
use serde_json::{Value, json};

use super::{
    fake::{Kubernetes, NAMESPACE, REGION, TOKEN, ZONE},
    kit::server::{Fake, Shared, serve},
};
use crate::simulation::{Demo, Simulation, Vm};

const CLUSTER: &str = "mcm.gardener.cloud/cluster";
const ROLE: &str = "mcm.gardener.cloud/role";
const UID: &str = "machine.sapcloud.io/machine-uid";
const OWNER: &str = "machine.sapcloud.io/owner";

/// A cluster and the URL of its API server.
pub struct World {
    pub kubernetes: Shared<Kubernetes>,
    pub url: String,
}

impl World {
    pub async fn new() -> Self {
        let kubernetes = Fake::new(Kubernetes::new());
        let url = serve(&kubernetes).await;
        Self { kubernetes, url }
    }
}

/// A kubeconfig with a token.
pub fn kubeconfig(url: &str, token: &str) -> String {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "vms",
        "clusters": [{"name": "outer", "cluster": {"server": url}}],
        "users": [{"name": "mcm", "user": {"token": token}}],
        "contexts": [{"name": "vms", "context": {"cluster": "outer", "user": "mcm", "namespace": NAMESPACE}}],
    })
    .to_string()
}

#[async_trait]
impl Simulation for World {
    fn provider(&self) -> &'static str {
        "kubevirt"
    }

    fn about(&self) -> String {
        format!("KubeVirt is a fake at {}, which refuses what does not fit its OpenAPI document", self.url)
    }

    fn demo(&self, _: &str) -> Demo {
        Demo { spec: json!({}), field: "resources.requests.memory", values: ["4Gi", "8Gi"] }
    }

    fn violations(&self) -> Vec<String> {
        self.kubernetes.lock().cloud.violations.clone()
    }

    fn spec(&self, cluster: &str) -> Value {
        json!({
            "region": REGION, "zone": ZONE, "resources": {"requests": {"cpu": "2", "memory": "4Gi"}},
            "rootVolume": {
                "pvc": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "20Gi"}}},
                "source": {"http": {"url": "https://images.example.com/a.img"}},
            },
            "tags": {CLUSTER: cluster, ROLE: "node"},
        })
    }

    fn secret(&self) -> Value {
        json!({"kubeconfig": kubeconfig(&self.url, TOKEN), "userData": "hunter2-hunter2"})
    }

    async fn vms(&self) -> Vec<Vm> {
        let kubernetes = self.kubernetes.lock();
        let vm = |vm: &&Value| {
            let (name, labels) = (vm["metadata"]["name"].as_str().unwrap_or_default(), &vm["metadata"]["labels"]);
            Vm {
                provider_id: format!("kubevirt://{name}"),
                machine: name.to_owned(),
                node: name.to_owned(),
                is_running: true,
                cluster: labels[CLUSTER].as_str().unwrap_or_default().to_owned(),
                has_uid: !labels[UID].is_null(),
                owner: labels[OWNER].as_str().unwrap_or_default().to_owned(),
            }
        };
        kubernetes.cloud.alive().iter().map(vm).collect()
    }

    async fn created(&self) -> u64 {
        self.kubernetes.lock().cloud.created
    }

    async fn create_for(&self, name: &str, cluster: &str, owner: &str) {
        let mut labels = json!({CLUSTER: cluster, ROLE: "node"});
        if !owner.is_empty() {
            labels[OWNER] = owner.into();
        }
        self.kubernetes.lock().cloud.put(name, &labels);
    }

    async fn end(&self, provider_id: &str) {
        let name = provider_id.rsplit('/').next().unwrap();
        self.kubernetes.lock().cloud.take(name);
    }
}
