//! The flavours of clouds: one `clusterctl generate cluster` with the documented variables becomes machines with Nodes, on the
//! stand-in of each cloud.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{ConfigMap, Node},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use parking_lot::Mutex;
use rstest::rstest;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::{
    aws::{self, Ec2},
    bootstrap::{user_data_of_ec2, user_data_of_gce},
    cloud_controller_manager::{CloudControllerManager, ManagerHost, UNINITIALIZED},
    gcp,
    load_balancer::{Balanced, last},
    metadata::MetadataService,
    openstack,
    other_provider::{AWS, GCP, Kinds, Network, OtherProvider, Vms},
    scene::{KUBERNETES, Scene, condition, name_of},
    simulation::{Simulation, Vm},
    support::{identity, program::MCM},
    world::{VERSION, World, play},
};

const WORKERS: usize = 2;
pub const REGION: &str = "eu-west-1";
pub const GCP_ZONE: &str = "europe-west1-b";
const IMAGE: &str = "projects/os/global/images/os-1";

/// A further zone.
#[derive(Clone, Debug)]
pub struct CloudZone {
    pub name: String,
    /// The change of `providerSpec` in it.
    pub change: Value,
    /// Its entry in the variable `zones` of the ClusterClass.
    pub variable: Value,
}

/// A cloud that begins with one zone and one image.
#[async_trait]
pub trait StandIn: Send + Sync + 'static {
    fn simulation(&self) -> &dyn Simulation;

    /// The same with a load balancer for the API server.
    fn balanced(&self) -> Option<&dyn Balanced>;

    fn zone(&self) -> String;

    /// Adds a zone with this number, from 1.
    async fn add_zone(&self, number: usize) -> CloudZone;

    /// All zones with their subnets, where a subnet has one zone.
    fn subnets(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Adds an image with the kubelet of a version; returns the value of a class for it.
    async fn add_image(&self, version: &str) -> String;

    /// These values for all VMs, by their machines.
    async fn images(&self) -> BTreeMap<String, String>;

    /// Creates the VM of a machine of another infrastructure provider with an image, or else with the first one.
    async fn create_for_other(&self, _machine: &str, _cluster: &str, _image: Option<&str>) {
        panic!("no flavour of this cloud has machines of another provider");
    }

    /// The place of that value in `providerSpec`.
    fn image_path(&self) -> &'static str;

    /// All that it has for VMs, beside them.
    fn leftovers(&self) -> Vec<String> {
        Vec::new()
    }

    /// Variables of the flavours without a default, and variables whose value differs for the stand-in.
    fn variables(&self) -> Vec<(&'static str, String)>;

    /// The user data of the VM of a machine, where cloud-init reads them.
    async fn user_data(&self, machine: &str) -> Option<Vec<u8>>;

    /// The ID of a VM that the cloud controller manager writes on its Node.
    fn node_id(&self, vm: &Vm) -> String;

    /// The real cloud controller manager on a VM of the control plane, where there is one. Kubelets write the IDs otherwise.
    async fn manager_on(&self, _vm: &Vm) -> Option<ManagerHost> {
        None
    }
}

/// moto, the zone of its subnet, further ones with their subnets, and the target group of a load balancer.
pub struct OnAws {
    pub ec2: Arc<Ec2>,
    zone: String,
    further: Mutex<Vec<(String, String)>>,
    target_group: String,
}

impl OnAws {
    pub async fn start() -> Self {
        let ec2 = Arc::new(Ec2::start().await);
        let words = [("Action", "DescribeSubnets"), ("Version", "2016-11-15"), ("SubnetId.1", ec2.subnet.as_str())];
        let answer = ec2.proxy.ask(&words).await;
        let document = roxmltree::Document::parse(&answer).unwrap();
        let zone = document.descendants().find(|node| node.has_tag_name("availabilityZone"));
        let zone = zone.and_then(|node| node.text()).unwrap().to_owned();
        let target_group = ec2.target_group().await.to_owned();
        Self { ec2, zone, further: Mutex::default(), target_group }
    }

    /// The ID of an instance that the cloud controller manager writes on its Node.
    pub fn node_id_of(&self, instance: &str) -> String {
        format!("aws:///{}/{instance}", self.zone)
    }
}

#[async_trait]
impl StandIn for OnAws {
    fn simulation(&self) -> &dyn Simulation {
        &*self.ec2
    }

    fn balanced(&self) -> Option<&dyn Balanced> {
        Some(&*self.ec2)
    }

    fn zone(&self) -> String {
        self.zone.clone()
    }

    async fn add_zone(&self, number: usize) -> CloudZone {
        let others = ["a", "b", "c"].map(|letter| format!("{REGION}{letter}")).into_iter();
        let name = others.filter(|name| *name != self.zone).nth(number - 1).unwrap();
        let subnet = self.ec2.add_subnet(&name).await;
        self.further.lock().push((name.clone(), subnet.clone()));
        CloudZone {
            change: json!({"networkInterfaces": [{"subnetID": subnet}]}),
            variable: json!({"name": name, "subnetID": subnet}),
            name,
        }
    }

    fn subnets(&self) -> Vec<(String, String)> {
        let first = (self.zone.clone(), self.ec2.subnet.clone());
        [vec![first], self.further.lock().clone()].concat()
    }

    async fn add_image(&self, version: &str) -> String {
        self.ec2.copy_image(&format!("kubelet-{version}")).await
    }

    async fn images(&self) -> BTreeMap<String, String> {
        self.ec2.images().await
    }

    async fn create_for_other(&self, machine: &str, cluster: &str, image: Option<&str>) {
        self.ec2.create_with_image(machine, cluster, image.unwrap_or(aws::IMAGE)).await;
    }

    fn image_path(&self) -> &'static str {
        "/ami"
    }

    fn variables(&self) -> Vec<(&'static str, String)> {
        let all = [
            ("AWS_REGION", REGION),
            ("AWS_ZONE", &self.zone),
            ("AWS_AMI_ID", "ami-12c6146b"),
            ("AWS_SUBNET_ID", &self.ec2.subnet),
            ("AWS_SECURITY_GROUP_ID", &self.ec2.group),
            ("AWS_CONTROL_PLANE_TARGET_GROUP_ARN", &self.target_group),
            ("AWS_CONTROL_PLANE_INSTANCE_PROFILE", "node"),
            ("AWS_NODE_INSTANCE_PROFILE", "node"),
        ];
        all.map(|(name, value)| (name, value.to_owned())).to_vec()
    }

    async fn user_data(&self, machine: &str) -> Option<Vec<u8>> {
        user_data_of_ec2(&self.ec2, machine).await
    }

    fn node_id(&self, vm: &Vm) -> String {
        self.node_id_of(last(&vm.provider_id))
    }

    async fn manager_on(&self, vm: &Vm) -> Option<ManagerHost> {
        let metadata = MetadataService::of_instance(last(&vm.provider_id), &self.zone).await;
        let environment = [("AWS_EC2_METADATA_SERVICE_ENDPOINT", &metadata.url), ("AWS_ENDPOINT_URL", &self.ec2.url)];
        Some(ManagerHost {
            program: "aws-cloud-controller-manager",
            environment: environment.map(|(name, value)| (name.to_owned(), value.clone())).to_vec(),
            endpoint: String::new(),
            metadata,
        })
    }
}

#[async_trait]
impl StandIn for gcp::World {
    fn simulation(&self) -> &dyn Simulation {
        self
    }

    fn balanced(&self) -> Option<&dyn Balanced> {
        Some(self)
    }

    fn zone(&self) -> String {
        GCP_ZONE.to_owned()
    }

    async fn add_zone(&self, number: usize) -> CloudZone {
        let name = gcp::ZONES[number];
        CloudZone {
            name: name.to_owned(),
            change: json!({"zone": name}),
            variable: json!({"name": name, "controlPlaneInstanceGroup": gcp::GROUP}),
        }
    }

    async fn add_image(&self, version: &str) -> String {
        format!("projects/os/global/images/kubelet-{}", version.replace('.', "-"))
    }

    async fn images(&self) -> BTreeMap<String, String> {
        Self::images(self)
    }

    async fn create_for_other(&self, machine: &str, cluster: &str, image: Option<&str>) {
        self.create_with_image(machine, cluster, image.unwrap_or(IMAGE));
    }

    fn image_path(&self) -> &'static str {
        "/disks/0/image"
    }

    fn variables(&self) -> Vec<(&'static str, String)> {
        let all = [
            ("GCP_PROJECT", gcp::fake::PROJECT),
            ("GCP_REGION", "europe-west1"),
            ("GCP_ZONE", GCP_ZONE),
            ("GCP_SUBNETWORK", "nodes"),
            ("GCP_CONTROL_PLANE_INSTANCE_GROUP", gcp::GROUP),
            ("GCP_SERVICE_ACCOUNT", "nodes@my-project.iam.gserviceaccount.com"),
            ("IMAGE_ID", IMAGE),
        ];
        all.map(|(name, value)| (name, value.to_owned())).to_vec()
    }

    async fn user_data(&self, machine: &str) -> Option<Vec<u8>> {
        user_data_of_gce(&self.gce, machine)
    }

    fn node_id(&self, vm: &Vm) -> String {
        vm.provider_id.replacen("gce:///", "gce://", 1)
    }

    async fn manager_on(&self, vm: &Vm) -> Option<ManagerHost> {
        let zone = vm.provider_id.rsplit('/').nth(1).unwrap();
        let token = self.gce.lock().issue_token();
        let metadata = MetadataService::of_google(gcp::fake::PROJECT, zone, &vm.machine, &token).await;
        let host = metadata.url.trim_start_matches("http://").to_owned();
        Some(ManagerHost {
            program: "gce-cloud-controller-manager",
            environment: vec![("GCE_METADATA_HOST".to_owned(), host)],
            endpoint: format!("api-endpoint = {}/compute/v1/\n", self.url),
            metadata,
        })
    }
}

#[async_trait]
impl StandIn for openstack::World {
    fn simulation(&self) -> &dyn Simulation {
        self
    }

    fn balanced(&self) -> Option<&dyn Balanced> {
        Some(self)
    }

    fn zone(&self) -> String {
        "nova".to_owned()
    }

    async fn add_zone(&self, number: usize) -> CloudZone {
        let name = format!("az-{number}");
        self.openstack.lock().cloud.zones.push(name.clone());
        CloudZone { change: json!({"spec": {"availabilityZone": name}}), variable: json!({"name": name}), name }
    }

    async fn add_image(&self, version: &str) -> String {
        let name = format!("kubelet-{version}");
        let images = &mut self.openstack.lock().cloud.images;
        let id = format!("00000000-0000-4000-8000-{:012}", images.len());
        images.entry(name.clone()).or_insert(id);
        name
    }

    async fn images(&self) -> BTreeMap<String, String> {
        let openstack = self.openstack.lock();
        let cloud = &openstack.cloud;
        let name = |id: &str| cloud.images.iter().find(|(_, known)| *known == id).map(|(name, _)| name.clone());
        cloud.existing().iter().filter_map(|server| Some((server.name.clone(), name(&server.image)?))).collect()
    }

    fn image_path(&self) -> &'static str {
        "/spec/imageName"
    }

    fn leftovers(&self) -> Vec<String> {
        let openstack = self.openstack.lock();
        let ports = openstack.cloud.ports.values().map(|port| format!("port {}", port.name));
        ports.chain(openstack.cloud.volumes.values().map(|volume| format!("volume {}", volume.name))).collect()
    }

    fn variables(&self) -> Vec<(&'static str, String)> {
        let spec = &self.spec("")["spec"];
        let text = |field: &str| spec.pointer(field).and_then(Value::as_str).unwrap().to_owned();
        vec![
            ("OPENSTACK_IMAGE_NAME", text("/imageName")),
            ("OPENSTACK_CONTROL_PLANE_MACHINE_FLAVOR", text("/flavorName")),
            ("OPENSTACK_NODE_MACHINE_FLAVOR", text("/flavorName")),
            ("OPENSTACK_SSH_KEY_NAME", text("/keyName")),
            ("OPENSTACK_NETWORK_ID", text("/networkID")),
            ("OPENSTACK_SUBNET_ID", text("/subnetIDs/0")),
            ("OPENSTACK_SECURITY_GROUP", text("/securityGroups/0")),
            ("OPENSTACK_CONTROL_PLANE_POOL_ID", openstack::POOL_ID.to_owned()),
        ]
    }

    async fn user_data(&self, machine: &str) -> Option<Vec<u8>> {
        let openstack = self.openstack.lock();
        let server = openstack.cloud.existing().into_iter().find(|server| server.name == machine)?;
        Some(server.user_data.clone())
    }

    fn node_id(&self, vm: &Vm) -> String {
        format!("openstack:///{}", last(&vm.provider_id))
    }
}

/// A VM on which kubeadm runs, and the VMs that have joined.
pub struct Joining<'a> {
    pub vm: &'a Vm,
    pub others: Vec<&'a Vm>,
}

/// Simulated kubelets of a cluster: each VM becomes a Node, until it is gone.
pub struct Kubelets {
    nodes: Api<Node>,
    cluster: String,
    task: JoinHandle<()>,
}

/// How a kubelet registers its Node.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum NodeRegistration {
    /// Ready and with the ID of its VM, in place of a cloud controller manager.
    Complete,
    /// With `--cloud-provider=external`: it is not Ready until the cloud controller manager has initialized it.
    External,
}

impl Kubelets {
    /// In place of a cloud controller manager as well.
    pub fn run(scene: &Scene, cloud: Arc<dyn StandIn>) -> Self {
        Self::run_behind(scene, cloud, |_, _| true)
    }

    /// The same where kubeadm reaches the API server through a load balancer: a VM joins if the function returns true for its
    /// ID and the IDs that have joined.
    pub fn run_behind(
        scene: &Scene,
        cloud: Arc<dyn StandIn>,
        joins: impl Fn(&BTreeSet<String>, &Joining<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self::start(scene, cloud, NodeRegistration::Complete, BTreeMap::new(), joins)
    }

    /// Beside a cloud controller manager.
    pub fn run_external(scene: &Scene, cloud: Arc<dyn StandIn>) -> Self {
        Self::start(scene, cloud, NodeRegistration::External, BTreeMap::new(), |_, _| true)
    }

    /// The general case. Kubelets have the version of the image of their VM, if there are `versions` by images.
    pub fn start(
        scene: &Scene,
        cloud: Arc<dyn StandIn>,
        registration: NodeRegistration,
        versions: BTreeMap<String, String>,
        joins: impl Fn(&BTreeSet<String>, &Joining<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        let nodes: Api<Node> = Api::all(scene.workload().client());
        let (api, cluster) = (nodes.clone(), scene.name.clone());
        let task = tokio::spawn(async move {
            let mut period = tokio::time::interval(Duration::from_millis(500));
            let mut joined = BTreeSet::new();
            loop {
                period.tick().await;
                let mut vms = cloud.simulation().vms().await;
                vms.retain(|vm| vm.cluster == cluster && vm.is_running);
                let is_joining = vms.iter().any(|vm| !joined.contains(&vm.node));
                let members = match cloud.balanced().filter(|_| is_joining) {
                    Some(balanced) => balanced.members().await,
                    None => BTreeSet::new(),
                };
                let images = if versions.is_empty() { BTreeMap::new() } else { cloud.images().await };
                for vm in &vms {
                    let version = images.get(&vm.machine).and_then(|image| versions.get(image));
                    let version = version.map_or(KUBERNETES, String::as_str);
                    let others = vms.iter().filter(|other| joined.contains(&other.node));
                    let joining = Joining { vm, others: others.collect() };
                    if !joined.contains(&vm.node) && !joins(&members, &joining) {
                        continue;
                    }
                    match registration {
                        NodeRegistration::Complete => {
                            // It may exist already.
                            let node = node(&vm.node, &cluster, version, Some(&cloud.node_id(vm)));
                            api.create(&PostParams::default(), &node).await.ok();
                        }
                        NodeRegistration::External if joined.contains(&vm.node) => {}
                        // A kubelet registers once: a Node that another program deletes is missing.
                        NodeRegistration::External => {
                            let node = node(&vm.node, &cluster, version, None);
                            if api.create(&PostParams::default(), &node).await.is_err() {
                                continue;
                            }
                        }
                    }
                    joined.insert(vm.node.clone());
                }
                let gone = joined.iter().filter(|name| !vms.iter().any(|vm| vm.node == **name));
                match registration {
                    NodeRegistration::Complete => {
                        for gone in gone {
                            api.delete(gone, &DeleteParams::default()).await.ok();
                        }
                    }
                    NodeRegistration::External => {
                        let gone: BTreeSet<&str> = gone.map(String::as_str).collect();
                        show_readiness(&api, &cluster, &gone).await;
                    }
                }
            }
        });
        Self { nodes, cluster: scene.name.clone(), task }
    }

    pub async fn are_gone(&self) -> Option<()> {
        let own = ListParams::default().labels(&format!("cluster={}", self.cluster));
        self.nodes.list(&own).await.ok()?.items.is_empty().then_some(())
    }
}

impl Drop for Kubelets {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Initialized Nodes become Ready, and those whose kubelet is gone do not stay so.
async fn show_readiness(nodes: &Api<Node>, cluster: &str, gone: &BTreeSet<&str>) {
    let own = ListParams::default().labels(&format!("cluster={cluster}"));
    for node in nodes.list(&own).await.into_iter().flatten() {
        let (name, now) = (node.name_any(), readiness(&node));
        let expected = match () {
            () if gone.contains(name.as_str()) => "Unknown",
            () if is_initialized(&node) => "True",
            () => "False",
        };
        if now != expected {
            let ready = json!({"type": "Ready", "status": expected, "reason": "Simulated", "message": "simulated"});
            let status = json!({"status": {"conditions": [ready]}});
            nodes.patch_status(&name, &PatchParams::default(), &Patch::Strategic(status)).await.ok();
        }
    }
}

fn readiness(node: &Node) -> String {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut ready = conditions.filter(|condition| condition.type_ == "Ready").map(|condition| condition.status.clone());
    ready.next_back().unwrap_or_default()
}

fn is_initialized(node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    !taints.into_iter().any(|taint| taint.key == UNINITIALIZED)
}

/// A Node with the ID of its VM, or one that awaits a cloud controller manager.
fn node(name: &str, cluster: &str, version: &str, id: Option<&str>) -> Node {
    let ready = if id.is_some() { "True" } else { "False" };
    let all = [("Ready", ready), ("MemoryPressure", "False"), ("DiskPressure", "False"), ("PIDPressure", "False")];
    let conditions = all
        .map(|(type_, status)| json!({"type": type_, "status": status, "reason": "Simulated", "message": "simulated"}));
    let spec = match id {
        Some(id) => json!({"providerID": id}),
        None => json!({"taints": [{"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}]}),
    };
    let node = json!({
        "metadata": {"name": name, "labels": {"cluster": cluster}}, "spec": spec,
        "status": {"conditions": conditions, "nodeInfo": node_info(version)},
    });
    serde_json::from_value(node).unwrap()
}

fn node_info(version: &str) -> Value {
    let fields = [
        "machineID",
        "systemUUID",
        "bootID",
        "kernelVersion",
        "osImage",
        "containerRuntimeVersion",
        "kubeProxyVersion",
        "operatingSystem",
        "architecture",
    ];
    let mut all: serde_json::Map<String, Value> =
        fields.into_iter().map(|field| (field.to_owned(), json!("simulated"))).collect();
    all.insert("kubeletVersion".to_owned(), json!(version));
    all.into()
}

/// The VMs of the control plane, which the other provider makes in the same cloud.
struct OfOther {
    cloud: Arc<dyn StandIn>,
    cluster: String,
}

#[async_trait]
impl Vms for OfOther {
    async fn create(&self, machine: &DynamicObject) -> Option<String> {
        let name = machine.metadata.name.as_deref()?;
        let all = self.cloud.simulation().vms().await;
        if !all.iter().any(|vm| vm.machine == name) {
            self.cloud.create_for_other(name, &self.cluster, image_of(machine)).await;
        }
        let all = self.cloud.simulation().vms().await;
        all.iter().find(|vm| vm.machine == name).map(|vm| self.cloud.node_id(vm))
    }

    async fn delete(&self, id: &str) -> Option<()> {
        let all = self.cloud.simulation().vms().await;
        // An earlier attempt may have deleted it.
        if let Some(vm) = all.iter().find(|vm| self.cloud.node_id(vm) == id) {
            self.cloud.simulation().end(&vm.provider_id).await;
        }
        Some(())
    }
}

/// The image that an AWSMachine or a GCPMachine names.
fn image_of(machine: &DynamicObject) -> Option<&str> {
    let spec = &machine.data["spec"];
    spec["ami"]["id"].as_str().or_else(|| spec["image"].as_str())
}

/// The provider of a cloud, whose VMs the simulation of the cloud creates.
pub async fn other_provider(scene: &Scene, cloud: &Arc<dyn StandIn>) -> OtherProvider {
    let vms = Arc::new(OfOther { cloud: Arc::clone(cloud), cluster: scene.name.clone() });
    other_provider_with(scene, cloud.as_ref(), vms).await
}

/// The provider of a cloud with these VMs, and with the network of a cluster in all zones as it shows it.
pub async fn other_provider_with(scene: &Scene, cloud: &dyn StandIn, vms: Arc<dyn Vms>) -> OtherProvider {
    let endpoint = identity::server(scene.workload().kubeconfig());
    let endpoint = json!({"host": endpoint.ip().to_string(), "port": endpoint.port()});
    let (zone, subnets) = (cloud.zone(), cloud.subnets());
    let mut status = json!({"ready": true, "failureDomains": {(zone.as_str()): {"controlPlane": true}}});
    let mut spec = json!({"controlPlaneEndpoint": endpoint});
    let kinds: &Kinds = if cloud.simulation().provider() == "AWS" { &AWS } else { &GCP };
    if cloud.simulation().provider() == "AWS" {
        let variables = cloud.variables();
        let value = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.clone());
        let group = json!({"id": value("AWS_SECURITY_GROUP_ID"), "name": "node"});
        status["networkStatus"] = json!({"securityGroups": {"node": group, "lb": group}});
        let mut all =
            vec![json!({"id": "public", "resourceID": "subnet-0", "availabilityZone": zone, "isPublic": true})];
        for (zone, subnet) in subnets {
            status["failureDomains"][zone.as_str()] = json!({"controlPlane": true});
            all.push(json!({"id": format!("private-{zone}"), "resourceID": subnet, "availabilityZone": zone}));
        }
        spec["network"] = json!({"vpc": {"id": "vpc-1"}, "subnets": all});
    }
    OtherProvider::start_on(scene, kinds, vms, Some(Network { spec, status })).await
}

/// The objects that the documentation lets a user create once in a namespace: credentials, and the manifests of the addons.
pub fn prepare(scene: &Scene, cloud: &dyn StandIn) {
    let provider = cloud.simulation().provider().to_lowercase();
    let metadata = |name: String| json!({"name": name, "namespace": scene.namespace});
    let mut credentials = cloud.simulation().secret();
    credentials.as_object_mut().unwrap().remove("userData");
    scene.world.apply(&json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": metadata(format!("{provider}-credentials")),
        "stringData": credentials,
    }));
    let manager = format!("{provider}-cloud-controller-manager");
    let released = scene.world.folder().join(format!("repository/infrastructure-mcm/{VERSION}/{manager}.yaml"));
    let in_workload = |kind: &str, name: String| {
        json!({
            "apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "kube-system"},
        })
        .to_string()
    };
    let network = in_workload("ConfigMap", format!("{}-cni", scene.name));
    for (addon, manifest) in [(manager, std::fs::read_to_string(released).unwrap()), ("cni".to_owned(), network)] {
        scene.world.apply(&json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(addon),
            "data": {"manifest.yaml": manifest},
        }));
    }
    if provider == "openstack" {
        scene.world.apply(&json!({
            "apiVersion": "v1", "kind": "Secret", "type": "addons.cluster.x-k8s.io/resource-set",
            "metadata": metadata("openstack-cloud-config".to_owned()),
            "stringData": {"manifest.yaml": in_workload("Secret", "cloud-config".to_owned())},
        }));
    }
}

/// The flavour with all documented variables.
fn generate(scene: &Scene, flavour: &str, cloud: &dyn StandIn) -> String {
    let variables = cloud.variables();
    let variables: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    scene.generate_with(flavour, WORKERS, &variables)
}

/// Each class is one that its driver accepts, and the cloud has its VM with the user data that kubeadm's provider wrote.
async fn assert_machines(scene: &Scene, cloud: &dyn StandIn, count: usize) {
    let machines = scene.all("mcmmachine");
    assert_eq!(machines.len(), count);
    for machine in &machines {
        let owner = scene.get("machines.cluster.x-k8s.io", name_of(machine));
        let secret = scene.get("secret", owner["spec"]["bootstrap"]["dataSecretName"].as_str().unwrap());
        let written: k8s_openapi::ByteString = serde_json::from_value(secret["data"]["value"].clone()).unwrap();
        let read = cloud.user_data(name_of(machine)).await;
        assert!(read.as_ref() == Some(&written.0), "the VM of {} has other user data", name_of(machine));
        let text = String::from_utf8(written.0).unwrap();
        assert!(text.starts_with("## template: jinja\n#cloud-config") && text.contains("cloud-provider"), "{text}");
        assert_eq!(machine["status"]["failureDomain"], cloud.zone());
        check(&scene.get("machineclass", name_of(machine)));
    }
    assert_eq!(cloud.simulation().violations(), [""; 0]);
}

/// `mcm class check` finds no error.
fn check(class: &Value) {
    let mut command = Command::new(MCM);
    command.args(["class", "check", "-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(class.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && !text.contains("warning"), "{text}");
}

/// The VMs of the control plane, and no other, are in the load balancer.
async fn assert_members(scene: &Scene, cloud: &dyn StandIn) {
    let Some(balanced) = cloud.balanced() else { return };
    let machines = scene.selected("mcmmachine", "cluster.x-k8s.io/control-plane");
    let ids = machines.iter().map(|machine| last(machine["spec"]["providerID"].as_str().unwrap()).to_owned());
    assert_eq!(balanced.members().await, ids.collect());
    assert!(machines.iter().all(|machine| condition(machine, "LoadBalancerRegistered") == "True Registered"));
}

/// The cloud controller manager wrote on each Node what mcm shows for its VM.
async fn assert_nodes(scene: &Scene, cloud: &dyn StandIn) {
    let nodes: Api<Node> = Api::all(scene.workload().client());
    let vms = cloud.simulation().vms().await;
    let own: Vec<&Vm> = vms.iter().filter(|vm| vm.cluster == scene.name).collect();
    assert_eq!(own.len(), 1 + WORKERS);
    for vm in own {
        let node = nodes.get(&vm.node).await.unwrap();
        assert!(is_initialized(&node), "{:?}", node.spec);
        let node = serde_json::to_value(node).unwrap();
        assert_eq!(node["spec"]["providerID"], cloud.node_id(vm));
        let labels = &node["metadata"]["labels"];
        assert_eq!(labels["topology.kubernetes.io/zone"], cloud.zone());
        // The other provider shows no more of its machines.
        let Some(machine) = scene.find("mcmmachine", &vm.machine) else { continue };
        assert_eq!(node["spec"]["providerID"], machine["spec"]["providerID"]);
        let class = scene.get("machineclass", &vm.machine);
        assert_eq!(labels["node.kubernetes.io/instance-type"], class["nodeTemplate"]["instanceType"]);
        assert_eq!(labels["topology.kubernetes.io/region"], class["nodeTemplate"]["region"]);
        let addresses = node["status"]["addresses"].as_array().unwrap();
        let mut shown = machine["status"]["addresses"].as_array().unwrap().clone();
        // Each cloud has other names among the addresses of a Node.
        shown.retain(|address| address["type"].as_str().unwrap().ends_with("IP"));
        assert!(!shown.is_empty() && shown.iter().all(|one| addresses.contains(one)), "{shown:?} of {addresses:?}");
    }
}

/// Core applies the cloud controller manager of the release and the manifest of the CNI plugin to the workload cluster.
pub async fn assert_addons(scene: &Scene) {
    let workload: Client = scene.workload().client();
    let all: Api<ConfigMap> = Api::namespaced(workload.clone(), "kube-system");
    let name = format!("{}-cni", scene.name);
    scene.until(&format!("the addon {name}"), async || all.get_opt(&name).await.ok()?).await;
    let applied = scene
        .until("all addons to be applied", async || {
            let binding = scene.get("clusterresourcesetbinding", &scene.name);
            let resources = binding["spec"]["bindings"][0]["resources"].as_array()?.clone();
            let is_applied = |resource: &Value| resource["applied"] == true;
            (resources.len() > 1 && resources.iter().all(is_applied)).then_some(resources)
        })
        .await;
    assert!(applied.iter().any(|one| one["name"].as_str().unwrap().ends_with("-cloud-controller-manager")));
    let managers: Api<DaemonSet> = Api::namespaced(workload, "kube-system");
    managers.get("cloud-controller-manager").await.unwrap();
}

/// The stand-in of a cloud.
pub async fn start(provider: &str) -> Arc<dyn StandIn> {
    match provider {
        "aws" => Arc::new(OnAws::start().await),
        "gcp" => Arc::new(gcp::World::new().await),
        _ => Arc::new(openstack::World::new().await),
    }
}

#[rstest]
#[case::aws("aws")]
#[case::aws_hybrid("aws-hybrid")]
#[case::gcp("gcp")]
#[case::gcp_hybrid("gcp-hybrid")]
#[case::openstack("openstack")]
#[case::aws_topology("aws-topology")]
#[case::gcp_topology("gcp-topology")]
#[case::openstack_topology("openstack-topology")]
fn every_machine_of_the_flavour_becomes_a_node(#[case] flavour: &str) {
    play(async |world: &'static World| {
        let (provider, is_hybrid) = (flavour.split('-').next().unwrap(), flavour.ends_with("-hybrid"));
        let cloud = start(provider).await;
        let (name, has_manager) = (flavour.replace("topology", "class"), provider != "openstack");
        let scene = match has_manager {
            true => Scene::with_separate_workload(world, &name).await,
            false => Scene::with_authority(world, &name).await,
        };
        prepare(&scene, cloud.as_ref());
        let other = if is_hybrid { Some(other_provider(&scene, &cloud).await) } else { None };
        let kubelets = match has_manager {
            true => Kubelets::run_external(&scene, Arc::clone(&cloud)),
            false => Kubelets::run(&scene, Arc::clone(&cloud)),
        };

        world.kubectl_with(&["apply", "-f", "-"], &generate(&scene, flavour, cloud.as_ref()));
        assert_addons(&scene).await;
        let mut manager = match has_manager {
            true => Some(CloudControllerManager::start(&scene, cloud.as_ref()).await),
            false => None,
        };
        scene.until("all machines to be Nodes", async || scene.has_running(1 + WORKERS)).await;

        let own = if is_hybrid { WORKERS } else { 1 + WORKERS };
        assert_machines(&scene, cloud.as_ref(), own).await;
        assert_members(&scene, cloud.as_ref()).await;
        if let Some(manager) = &mut manager {
            assert_nodes(&scene, cloud.as_ref()).await;
            manager.assert_sound();
        }
        let domains = &scene.get("cluster", &scene.name)["status"]["failureDomains"];
        assert_eq!(domains, &json!([{"name": cloud.zone(), "controlPlane": true}]));
        assert_eq!(other.as_ref().map_or(0, |other| other.deeds().len()), 1 + WORKERS - own);

        scene.kubectl(&["delete", "cluster", &scene.name, "--timeout=600s"]);
        assert!(cloud.simulation().vms().await.iter().all(|vm| vm.cluster != scene.name));
        assert_members(&scene, cloud.as_ref()).await;
        scene.until("the Nodes to be gone", async || kubelets.are_gone().await).await;
        if let Some(manager) = &mut manager {
            manager.assert_sound();
        }
    });
}

/// Values of all variables without a default, for objects of which no VM is made.
pub const VARIABLES: [(&str, &str); 15] = [
    ("AWS_REGION", REGION),
    ("AWS_ZONE", "eu-west-1a"),
    ("AWS_AMI_ID", "ami-1"),
    ("AWS_SUBNET_ID", "subnet-1"),
    ("AWS_SECURITY_GROUP_ID", "sg-1"),
    ("GCP_REGION", "europe-west1"),
    ("GCP_ZONE", GCP_ZONE),
    ("IMAGE_ID", IMAGE),
    ("OPENSTACK_IMAGE_NAME", "image"),
    ("OPENSTACK_CONTROL_PLANE_MACHINE_FLAVOR", "m1.medium"),
    ("OPENSTACK_NODE_MACHINE_FLAVOR", "m1.medium"),
    ("OPENSTACK_SSH_KEY_NAME", "operator"),
    ("OPENSTACK_NETWORK_ID", "00000000-0000-4000-8000-0000000000b1"),
    ("OPENSTACK_SUBNET_ID", "00000000-0000-4000-8000-0000000000c1"),
    ("OPENSTACK_SECURITY_GROUP", "group"),
];

/// Without the variable the MCMCluster is accepted, and names no load balancer.
#[rstest]
#[case::aws("aws")]
#[case::gcp("gcp")]
#[case::openstack("openstack")]
#[case::aws_topology("aws-topology")]
#[case::gcp_topology("gcp-topology")]
#[case::openstack_topology("openstack-topology")]
fn a_flavour_needs_no_load_balancer(#[case] flavour: &str) {
    play(async |world: &'static World| {
        let name = format!("{}-open", flavour.replace("topology", "class"));
        let scene = Scene::with_authority(world, &name).await;
        world.kubectl_with(&["apply", "-f", "-"], &scene.generate_with(flavour, WORKERS, &VARIABLES));
        let cluster = scene.until("its MCMCluster", async || scene.all("mcmcluster").pop()).await;
        let empty = match flavour {
            "aws" => json!({"awsTargetGroup": {"arn": ""}}),
            "gcp" => json!({"gcpInstanceGroups": [{"zone": GCP_ZONE, "name": ""}]}),
            "openstack" => json!({"openstackPool": {"id": "", "subnetID": "00000000-0000-4000-8000-0000000000c1"}}),
            _ => Value::Null,
        };
        assert_eq!(cluster["spec"]["controlPlaneLoadBalancer"], empty);
        scene.kubectl(&["delete", "cluster", &scene.name, "--timeout=600s"]);
    });
}

/// Without an image of the new version nothing is replaced; with it, control plane and image change together.
#[test]
fn an_upgrade_of_a_topology_needs_an_image_of_its_version() {
    const NEXT: &str = "v1.34.0";
    const NEXT_IMAGE: &str = "projects/os/global/images/os-2";
    play(async |world: &'static World| {
        let cloud = start("gcp").await;
        let scene = Scene::with_authority(world, "upgraded").await;
        prepare(&scene, cloud.as_ref());
        let _kubelets = Kubelets::run(&scene, Arc::clone(&cloud));
        world.kubectl_with(&["apply", "-f", "-"], &generate(&scene, "gcp-topology", cloud.as_ref()));
        scene.until("all machines to be Nodes", async || scene.has_running(1 + WORKERS)).await;
        let replace = |path: &str, value: Value| {
            let change = json!([{"op": "replace", "path": path, "value": value}]).to_string();
            scene.kubectl(&["patch", "cluster", &scene.name, "--type=json", "-p", &change]);
        };
        let template_of_control_plane = || {
            let planes = scene.all("kubeadmcontrolplane");
            let spec = &planes.first()?["spec"];
            let name = spec["machineTemplate"]["spec"]["infrastructureRef"]["name"].as_str()?;
            let class = &scene.find("mcmmachinetemplate", name)?["spec"]["template"]["spec"]["machineClass"];
            let image = class["providerSpec"]["disks"][0]["image"].as_str()?.to_owned();
            Some((spec["version"].as_str()?.to_owned(), image))
        };
        let before = (KUBERNETES.to_owned(), IMAGE.to_owned());
        assert_eq!(template_of_control_plane(), Some(before.clone()));

        replace("/spec/topology/version", json!(NEXT));
        scene
            .until("the Cluster to name the missing image", async || {
                let cluster = scene.get("cluster", &scene.name);
                let conditions = cluster["status"]["conditions"].as_array()?;
                let found = conditions.iter().find(|one| one["type"] == "TopologyReconciled")?;
                let message = found["message"].as_str()?;
                (found["status"] == "False" && message.contains("has no image of v1.34.0")).then_some(())
            })
            .await;
        assert_eq!(template_of_control_plane(), Some(before));

        let cluster = scene.get("cluster", &scene.name);
        let variables = cluster["spec"]["topology"]["variables"].as_array().unwrap();
        let place = variables.iter().position(|variable| variable["name"] == "images").unwrap();
        let images = json!({(KUBERNETES): IMAGE, (NEXT): NEXT_IMAGE});
        replace(&format!("/spec/topology/variables/{place}/value"), images);
        let next = (NEXT.to_owned(), NEXT_IMAGE.to_owned());
        scene
            .until("the control plane to have version and image", async || {
                (template_of_control_plane()? == next).then_some(())
            })
            .await;
        scene.kubectl(&["delete", "cluster", &scene.name, "--timeout=600s"]);
    });
}
