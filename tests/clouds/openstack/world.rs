//! The fake as a cloud with servers of two flavors.

use async_trait::async_trait;
use serde_json::{Value, json};

use super::{
    fake::{
        DOMAIN, FLAVOR, GROUP, IMAGE, KEY_PAIR, LARGE, NETWORK_ID, OpenStack, PASSWORD, PROJECT, REGION, SUBNET_ID,
        USER, VOLUME_TYPE, ZONE,
    },
    kit::server::{Fake, Shared, serve},
};
use crate::simulation::{Demo, Simulation, Vm};

const CLUSTER: &str = "kubernetes.io-cluster-";
const ROLE: &str = "kubernetes.io-role-node";
const UID: &str = "machine.sapcloud.io-machine-uid";
const OWNER: &str = "machine.sapcloud.io-owner";

/// A cloud and the URL of its services.
pub struct World {
    pub openstack: Shared<OpenStack>,
    pub url: String,
}

impl World {
    pub async fn new() -> Self {
        let openstack = Fake::new(OpenStack::new());
        let url = serve(&openstack).await;
        openstack.lock().cloud.url.clone_from(&url);
        Self { openstack, url }
    }
}

#[async_trait]
impl Simulation for World {
    fn provider(&self) -> &'static str {
        "OpenStack"
    }

    fn about(&self) -> String {
        format!("OpenStack is a fake at {}, which refuses what does not fit the schemas of its services", self.url)
    }

    fn demo(&self, _: &str) -> Demo {
        let spec = json!({"spec": {
            "region": REGION, "availabilityZone": ZONE, "imageName": IMAGE, "keyName": KEY_PAIR, "networkID": NETWORK_ID,
            "subnetIDs": [SUBNET_ID], "securityGroups": [GROUP], "rootDiskType": VOLUME_TYPE,
        }});
        Demo { spec, field: "spec.flavorName", values: [FLAVOR, LARGE] }
    }

    fn violations(&self) -> Vec<String> {
        self.openstack.lock().cloud.violations.clone()
    }

    fn spec(&self, cluster: &str) -> Value {
        json!({
            "apiVersion": "openstack.machine.gardener.cloud/v1alpha1", "kind": "MachineProviderConfig",
            "spec": {
                "imageName": IMAGE, "region": REGION, "availabilityZone": ZONE, "flavorName": FLAVOR, "keyName": KEY_PAIR,
                "networkID": NETWORK_ID, "subnetIDs": [SUBNET_ID], "podNetworkCIDRs": ["10.96.0.0/11"],
                "securityGroups": [GROUP], "rootDiskSize": 50, "rootDiskType": VOLUME_TYPE,
                "tags": {format!("{CLUSTER}{cluster}"): "1", ROLE: "1"},
            },
        })
    }

    fn secret(&self) -> Value {
        json!({
            "authURL": format!("{}/identity/v3", self.url), "username": USER, "password": PASSWORD, "domainName": DOMAIN,
            "tenantName": PROJECT, "userData": "hunter2-hunter2",
        })
    }

    async fn vms(&self) -> Vec<Vm> {
        let openstack = self.openstack.lock();
        let vm = |server: &super::fake::Server| {
            let cluster = server.metadata.keys().find_map(|key| key.strip_prefix(CLUSTER)).unwrap_or_default();
            Vm {
                provider_id: format!("openstack:///{REGION}/{}", server.id),
                machine: server.name.clone(),
                node: server.name.clone(),
                is_running: server.status == "ACTIVE",
                cluster: cluster.to_owned(),
                has_uid: server.metadata.contains_key(UID),
                owner: server.metadata.get(OWNER).cloned().unwrap_or_default(),
            }
        };
        openstack.cloud.existing().into_iter().map(vm).collect()
    }

    async fn created(&self) -> u64 {
        self.openstack.lock().cloud.created
    }

    async fn create_for(&self, name: &str, cluster: &str, owner: &str) {
        let cluster = format!("{CLUSTER}{cluster}");
        let metadata = [(cluster.as_str(), "1"), (ROLE, "1")];
        let owner = Some((OWNER, owner)).filter(|(_, owner)| !owner.is_empty());
        let metadata: Vec<_> = metadata.into_iter().chain(owner).collect();
        self.openstack.lock().cloud.put(name, &metadata);
    }

    async fn end(&self, provider_id: &str) {
        self.openstack.lock().cloud.take(provider_id.rsplit('/').next().unwrap());
    }
}
