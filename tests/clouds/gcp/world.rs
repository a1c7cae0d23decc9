//! The fake with Google's discovery document, as a cloud with one region.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::Command,
    sync::{Arc, LazyLock},
};

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::fake::{Changed, Document, EMAIL, Fault, Gce, PRIVATE_KEY, PROJECT, Shared, serve};
use crate::{
    load_balancer::{Balanced, Call, Change},
    simulation::{Demo, Simulation, Vm},
};

pub const ZONE: &str = "europe-west1-b";
/// All zones of its region.
pub const ZONES: [&str; 3] = [ZONE, "europe-west1-c", "europe-west1-d"];
/// The instance group of a control plane in each zone.
pub const GROUP: &str = "control-plane";
pub const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/hack/clouds/gce");
const CLUSTER: &str = "kubernetes-io-cluster-";
const ROLE: &str = "kubernetes-io-role-node";
const UID: &str = "machine-sapcloud-io-machine-uid";
const OWNER: &str = "machine-sapcloud-io-owner";

/// The document of the package of Google's client. Installing it may take a minute, once.
static DOCUMENT: LazyLock<Arc<Document>> = LazyLock::new(|| {
    let output = Command::new(SCRIPT).arg("document").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Arc::new(Document::read(Path::new(std::str::from_utf8(&output.stdout).unwrap().trim())))
});

/// A cloud and its URL.
pub struct World {
    pub gce: Shared,
    pub url: String,
}

impl World {
    pub async fn new() -> Self {
        let document = tokio::task::spawn_blocking(|| Arc::clone(&DOCUMENT)).await.unwrap();
        let gce: Shared = Arc::new(Mutex::new(Gce::new(Some(document))));
        // The driver polls every second or so.
        gce.lock().steps = 1;
        gce.lock().groups.extend(ZONES.map(|zone| ((zone.to_owned(), GROUP.to_owned()), BTreeSet::new())));
        let zones = ZONES.map(|zone| json!({"name": zone, "region": "regions/europe-west1", "status": "UP"}));
        let list = json!({"kind": "compute#zoneList", "items": zones});
        gce.lock().things.insert(format!("{PROJECT}/zones"), list);
        let url = serve(&gce).await;
        Self { gce, url }
    }

    /// A service account key as exported by Google's console.
    pub fn account(&self) -> Value {
        json!({
            "type": "service_account", "project_id": PROJECT, "client_email": EMAIL, "private_key_id": "key-1",
            "private_key": PRIVATE_KEY, "token_uri": format!("{}/token", self.url),
        })
    }

    /// The image of the boot disk of each VM, by its machine.
    pub fn images(&self) -> BTreeMap<String, String> {
        let gce = self.gce.lock();
        let image = |((_, name), vm): (&(String, String), &super::fake::Vm)| {
            let image = vm.resource["disks"][0]["initializeParams"]["sourceImage"].as_str()?;
            Some((name.clone(), image.to_owned()))
        };
        gce.vms.iter().filter_map(image).collect()
    }

    /// Creates a VM with an image, as another infrastructure provider does. Without a role tag mcm does not list it.
    pub fn create_with_image(&self, name: &str, cluster: &str, image: &str) {
        let mut gce = self.gce.lock();
        gce.put(ZONE, name, &[&format!("{CLUSTER}{cluster}")], &json!({}), "RUNNING");
        let vm = gce.vms.get_mut(&(ZONE.to_owned(), name.to_owned())).unwrap();
        vm.resource["disks"] = json!([{"boot": true, "initializeParams": {"sourceImage": image}}]);
    }

    pub fn count(&self) -> usize {
        self.gce.lock().vms.len()
    }
}

#[async_trait]
impl Simulation for World {
    fn provider(&self) -> &'static str {
        "GCP"
    }

    fn about(&self) -> String {
        let url = &self.url;
        format!("Google Cloud is a fake at {url}, which refuses what does not fit Google's discovery document")
    }

    fn demo(&self, _: &str) -> Demo {
        Demo { spec: json!({}), field: "machineType", values: ["n2-standard-2", "n2-standard-8"] }
    }

    fn violations(&self) -> Vec<String> {
        self.gce.lock().violations.clone()
    }

    fn spec(&self, cluster: &str) -> Value {
        json!({
            "region": "europe-west1", "zone": ZONE, "machineType": "n2-standard-2",
            "disks": [{"boot": true, "sizeGb": 50, "type": "pd-ssd", "image": "projects/os/global/images/os-1"}],
            "networkInterfaces": [{"subnetwork": "nodes"}],
            "scheduling": {"automaticRestart": true, "onHostMaintenance": "MIGRATE"},
            "tags": [format!("{CLUSTER}{cluster}"), ROLE],
        })
    }

    fn secret(&self) -> Value {
        json!({
            "serviceAccountJSON": self.account().to_string(), "userData": "hunter2-hunter2",
            "endpointURL": format!("{}/compute/v1", self.url),
        })
    }

    async fn vms(&self) -> Vec<Vm> {
        let gce = self.gce.lock();
        let vm = |((zone, name), vm): (&(String, String), &super::fake::Vm)| {
            let tags = vm.resource["tags"]["items"].as_array().into_iter().flatten().filter_map(Value::as_str);
            Vm {
                provider_id: format!("gce:///{PROJECT}/{zone}/{name}"),
                machine: name.clone(),
                node: name.clone(),
                is_running: vm.resource["status"] == "RUNNING",
                cluster: tags.filter_map(|tag| tag.strip_prefix(CLUSTER)).next().unwrap_or_default().to_owned(),
                has_uid: vm.resource["labels"][UID].is_string(),
                owner: vm.resource["labels"][OWNER].as_str().unwrap_or_default().to_owned(),
            }
        };
        gce.vms.iter().map(vm).collect()
    }

    async fn created(&self) -> u64 {
        self.gce.lock().added
    }

    async fn create_for(&self, name: &str, cluster: &str, owner: &str) {
        let labels = if owner.is_empty() { json!({}) } else { json!({ OWNER: owner }) };
        self.gce.lock().put(ZONE, name, &[&format!("{CLUSTER}{cluster}"), ROLE], &labels, "RUNNING");
    }

    async fn end(&self, provider_id: &str) {
        let name = provider_id.rsplit('/').next().unwrap();
        self.gce.lock().vms.remove(&(ZONE.to_owned(), name.to_owned()));
    }
}

#[async_trait]
impl Balanced for World {
    async fn balancer(&self) -> Value {
        json!({"gcpInstanceGroups": [{"zone": ZONE, "name": GROUP}]})
    }

    async fn members(&self) -> BTreeSet<String> {
        self.gce.lock().groups.values().flatten().cloned().collect()
    }

    fn changes(&self) -> Vec<Change> {
        let changes = self.gce.lock().changes.clone().into_iter();
        let changes = changes.map(|change| match change {
            Changed::Added(vm) => Change::Registered(vm),
            Changed::Removed(vm) => Change::Deregistered(vm),
            Changed::Deleted(vm) => Change::Ended(vm),
        });
        changes.collect()
    }

    fn silence(&self, call: Call, is_carried_out: bool) {
        let call = match call {
            Call::Register => "instanceGroups.addInstances",
            Call::Deregister => "instanceGroups.removeInstances",
        };
        let fault = if is_carried_out { Fault::Unanswered } else { Fault::Timeout };
        self.gce.lock().faults.push((call, fault, 1));
    }

    fn unanswered(&self) -> usize {
        self.gce.lock().unanswered
    }
}
