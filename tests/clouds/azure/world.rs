//! The fake as a cloud with one resource group.

use async_trait::async_trait;
use serde_json::{Value, json};

use super::{
    fake::{Arm, CLIENT, CLIENT_SECRET, GROUP, IMAGE, LARGE, LOCATION, SIZE, SUBNET, SUBSCRIPTION, TENANT, VNET},
    kit::server::{Fake, Shared, serve},
};
use crate::simulation::{Demo, Simulation, Vm};

const CLUSTER: &str = "kubernetes.io-cluster-";
const ROLE: &str = "kubernetes.io-role-node";
const UID: &str = "machine.sapcloud.io-machine-uid";
const OWNER: &str = "machine.sapcloud.io-owner";

/// A cloud and the URL of its services.
pub struct World {
    pub arm: Shared<Arm>,
    pub url: String,
}

impl World {
    pub async fn new() -> Self {
        let arm = Fake::new(Arm::new());
        let url = serve(&arm).await;
        Self { arm, url }
    }
}

#[async_trait]
impl Simulation for World {
    fn provider(&self) -> &'static str {
        "Azure"
    }

    fn about(&self) -> String {
        format!(
            "Azure is a fake at {}, which refuses what does not fit the definitions of Microsoft's clients",
            self.url
        )
    }

    fn demo(&self, _: &str) -> Demo {
        let spec = json!({
            "resourceGroup": GROUP, "subnetInfo": {"vnetName": VNET, "subnetName": SUBNET},
            "properties": {"storageProfile": {"imageReference": {"urn": null, "id": IMAGE}}},
        });
        Demo { spec, field: "properties.hardwareProfile.vmSize", values: [SIZE, LARGE] }
    }

    fn violations(&self) -> Vec<String> {
        self.arm.lock().cloud.violations.clone()
    }

    fn spec(&self, cluster: &str) -> Value {
        json!({
            "location": LOCATION, "resourceGroup": GROUP, "tags": {format!("{CLUSTER}{cluster}"): "1", ROLE: "1"},
            "subnetInfo": {"vnetName": VNET, "subnetName": SUBNET},
            "properties": {
                "hardwareProfile": {"vmSize": SIZE},
                "osProfile": {"adminUsername": "core", "linuxConfiguration": {"disablePasswordAuthentication": true}},
                "storageProfile": {
                    "imageReference": {"id": IMAGE}, "osDisk": {"createOption": "FromImage", "diskSizeGB": 50},
                },
                "zone": 1,
            },
        })
    }

    fn secret(&self) -> Value {
        json!({
            "tenantID": TENANT, "clientID": CLIENT, "subscriptionID": SUBSCRIPTION, "clientSecret": CLIENT_SECRET,
            "endpointURL": self.url, "authorityURL": self.url, "userData": "hunter2-hunter2",
        })
    }

    async fn vms(&self) -> Vec<Vm> {
        let arm = self.arm.lock();
        let vm = |vm: &&Value| {
            let name = vm["name"].as_str().unwrap_or_default();
            let tags = vm["tags"].as_object();
            let cluster = tags.into_iter().flatten().find_map(|(key, _)| key.strip_prefix(CLUSTER));
            Vm {
                provider_id: format!("azure:///{LOCATION}/{name}"),
                machine: name.to_owned(),
                node: name.to_owned(),
                is_running: vm["properties"]["provisioningState"] == "Succeeded",
                cluster: cluster.unwrap_or_default().to_owned(),
                has_uid: vm["tags"][UID].is_string(),
                owner: vm["tags"][OWNER].as_str().unwrap_or_default().to_owned(),
            }
        };
        arm.cloud.vms().iter().map(vm).collect()
    }

    async fn created(&self) -> u64 {
        self.arm.lock().cloud.created
    }

    async fn create_for(&self, name: &str, cluster: &str, owner: &str) {
        let mut tags = json!({format!("{CLUSTER}{cluster}"): "1", ROLE: "1"});
        if !owner.is_empty() {
            tags[OWNER] = json!(owner);
        }
        self.arm.lock().cloud.put(name, &tags);
    }

    async fn end(&self, provider_id: &str) {
        let name = provider_id.rsplit('/').next().unwrap();
        self.arm.lock().cloud.take(name);
    }
}
