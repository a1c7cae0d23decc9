//! The fake as a cloud with servers of two flavors.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicU32, Ordering},
};

use async_trait::async_trait;
use serde_json::{Value, json};

use super::{
    fake::{
        Changed, DOMAIN, FLAVOR, GROUP, IMAGE, KEY_PAIR, LARGE, NETWORK_ID, OpenStack, PASSWORD, POOL_ID, PROJECT,
        REGION, SUBNET_ID, USER, VOLUME_TYPE, ZONE,
    },
    kit::server::{Fake, Fault, Shared, serve},
};
use crate::{
    load_balancer::{Balanced, Call, Change},
    simulation::{Demo, Simulation, Vm},
};

const CLUSTER: &str = "kubernetes.io-cluster-";
const ROLE: &str = "kubernetes.io-role-node";
const UID: &str = "machine.sapcloud.io-machine-uid";
const OWNER: &str = "machine.sapcloud.io-owner";
/// The calls that register and deregister a VM.
const CALLS: [&str; 2] = ["member.create", "member.delete"];

/// A cloud and the URL of its services.
pub struct World {
    pub openstack: Shared<OpenStack>,
    pub url: String,
}

impl World {
    /// Its servers have other IDs than those of other worlds.
    pub async fn new() -> Self {
        static FIRST: AtomicU32 = AtomicU32::new(0);
        let openstack = Fake::new(OpenStack::starting_at(FIRST.fetch_add(1 << 16, Ordering::Relaxed)));
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

#[async_trait]
impl Balanced for World {
    async fn balancer(&self) -> Value {
        json!({"openstackPool": {"id": POOL_ID, "subnetID": SUBNET_ID}})
    }

    async fn members(&self) -> BTreeSet<String> {
        let openstack = self.openstack.lock();
        openstack.cloud.octavia.members.values().filter_map(|member| Some(member.server()?.to_owned())).collect()
    }

    fn changes(&self) -> Vec<Change> {
        let changes = self.openstack.lock().cloud.octavia.changes.clone().into_iter();
        let changes = changes.map(|change| match change {
            Changed::Added(server) => Change::Registered(server),
            Changed::Removed(server) => Change::Deregistered(server),
            Changed::Deleted(server) => Change::Ended(server),
        });
        changes.collect()
    }

    fn silence(&self, call: Call, is_carried_out: bool) {
        let call = match call {
            Call::Register => CALLS[0],
            Call::Deregister => CALLS[1],
        };
        let fault = if is_carried_out { Fault::LostAnswer } else { Fault::TimeOut };
        self.openstack.lock().faults.push((call, fault, 1));
    }

    fn unanswered(&self) -> usize {
        let openstack = self.openstack.lock();
        openstack.faults.iter().filter(|(call, _, left)| CALLS.contains(call) && *left == 0).count()
    }
}
