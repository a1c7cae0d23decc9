//! The simulator as a cloud.

use async_trait::async_trait;
use serde_json::{Value, json};

use super::vcenter::{Options, PASSWORD, USER, VCenter};
use crate::simulation::{Demo, Simulation, Vm};

const CLUSTER: &str = "mcm.gardener.cloud/cluster";
const ROLE: &str = "mcm.gardener.cloud/role";
const UID: &str = "machine.sapcloud.io/machine-uid";
const OWNER: &str = "machine.sapcloud.io/owner";
const REGION: &str = "eu";
/// From which VMs are cloned.
const TEMPLATES: [&str; 2] = ["template", "template-plain"];

/// A vCenter.
pub struct World(VCenter);

impl World {
    pub async fn new() -> Self {
        Self(VCenter::start(Options::default()).await)
    }
}

#[async_trait]
impl Simulation for World {
    fn provider(&self) -> &'static str {
        "vsphere"
    }

    fn about(&self) -> String {
        format!("vSphere is govmomi's simulator of vCenter, behind a proxy at {}", self.0.host)
    }

    fn demo(&self, _: &str) -> Demo {
        let spec = json!({
            "datacenter": "DC0", "computeCluster": "DC0_C0", "datastoreCluster": "DC0_POD0", "folder": "workers",
            "network": "DC0_DVPG0",
        });
        Demo { spec, field: "templateVM", values: TEMPLATES }
    }

    fn spec(&self, cluster: &str) -> Value {
        json!({
            "region": REGION, "datacenter": "DC0", "datastore": "LocalDS_0", "resourcePool": "DC0_C0/Resources",
            "folder": "workers", "templateVM": TEMPLATES[0], "network": "DC0_DVPG0",
            "tags": {CLUSTER: cluster, ROLE: "node"},
        })
    }

    fn secret(&self) -> Value {
        json!({
            "vsphereHost": self.0.host, "vsphereUsername": USER, "vspherePassword": PASSWORD,
            "userData": "hunter2-hunter2",
        })
    }

    async fn vms(&self) -> Vec<Vm> {
        let vm = |vm: super::vcenter::Vm| {
            let field = |name: &str| vm.fields.get(name).cloned().unwrap_or_default();
            Vm {
                provider_id: format!("vsphere://{REGION}/{}", vm.uuid),
                machine: vm.name.clone(),
                node: vm.name.clone(),
                is_running: vm.power == "poweredOn",
                cluster: field(CLUSTER),
                has_uid: !field(UID).is_empty(),
                owner: field(OWNER),
            }
        };
        self.0.vms().into_iter().map(vm).collect()
    }

    async fn created(&self) -> u64 {
        self.0.created()
    }

    async fn create_for(&self, name: &str, cluster: &str, owner: &str) {
        let owner = (!owner.is_empty()).then_some((OWNER, owner));
        let fields: Vec<_> = [(CLUSTER, cluster), (ROLE, "node")].into_iter().chain(owner).collect();
        self.0.create(name, &fields, false);
    }

    async fn end(&self, provider_id: &str) {
        self.0.end(provider_id.rsplit('/').next().unwrap());
    }
}
