//! A cluster of each flavour and of each ClusterClass on the stand-in of its cloud: three machines of a control plane, workers
//! and a pool in two zones, an upgrade over two minor versions as the documentation describes it, and a deletion that leaves
//! nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use kube::ResourceExt;
use rstest::rstest;
use serde_json::{Value, json};

use crate::{
    chained_upgrade::part,
    cloud_controller_manager::CloudControllerManager,
    flavours::{
        CloudZone, Joining, Kubelets, NodeRegistration, StandIn, assert_addons, other_provider, prepare, start,
    },
    other_provider::OtherProvider,
    passthrough::{reaches_api_server, until_all_are_members},
    replacement::MACHINES,
    scene::{Scene, condition, documents, name_of},
    static_pods::{StaticPods, add_etcd, with_external_etcd},
    support::wait,
    topology::has_pool_of,
    world::{World, play},
    zones::{MEMBERS, ZoneSpread},
};

const VERSIONS: [&str; 3] = ["v1.36.0", "v1.37.0", "v1.38.0"];
const WORKERS: usize = 1;
const CONTROL_PLANE: &str = "control plane";
const DEPLOYMENT: &str = "md-0";
const POOL: &str = "mp-0";
/// Longer than the machines of a control plane take to be replaced on a busy machine.
const LIMIT: Duration = Duration::from_secs(600);
const CLUSTERS: &str = "cluster";
const DEPLOYMENTS: &str = "machinedeployments.cluster.x-k8s.io";
const MACHINES_OF_CORE: &str = "machines.cluster.x-k8s.io";
const NATIVES: &str = "machines.machine.sapcloud.io";
/// Kinds whose objects are made for a cluster.
const MADE: [&str; 7] = [
    MACHINES_OF_CORE,
    "mcmcluster",
    "mcmmachine",
    "mcmmachinepool",
    "machinedeployments.machine.sapcloud.io",
    "machinesets.machine.sapcloud.io",
    NATIVES,
];

/// A cluster of a flavour, and its cloud.
struct ClusterLife {
    scene: Scene,
    flavour: &'static str,
    /// `None` for the simulated cloud, whose VMs register their Nodes.
    cloud: Option<Arc<dyn StandIn>>,
    zones: ZoneSpread,
    /// Images by the version of their kubelet.
    images: BTreeMap<&'static str, String>,
}

/// The versions of kubelets by the parts of a cluster, and those of its API servers.
#[derive(Debug, Default)]
struct VersionSurvey {
    kubelets: BTreeMap<&'static str, Vec<String>>,
    servers: BTreeSet<String>,
}

impl VersionSurvey {
    /// API servers span two minor versions at most, and kubelets of workers are never newer.
    fn assert_skew(&self) {
        let has = |version: &str| self.servers.contains(version);
        assert!(!(has(VERSIONS[0]) && has(VERSIONS[2])), "{self:?}");
        let Some(oldest) = self.servers.first() else { return };
        let mut workers = [DEPLOYMENT, POOL].into_iter().flat_map(|part| self.kubelets.get(part)).flatten();
        assert!(workers.all(|kubelet| kubelet <= oldest), "{self:?}");
    }

    /// All kubelets of a part have this version, and there are so many.
    fn has(&self, part: &str, count: usize, version: &str) -> bool {
        self.kubelets.get(part).is_some_and(|own| own.len() == count && own.iter().all(|one| one == version))
    }
}

impl ClusterLife {
    /// A namespace, and a cloud with two zones and an image for each version.
    async fn begin(world: &'static World, flavour: &'static str) -> Self {
        let cloud = match flavour.split('-').next() {
            Some(provider @ ("aws" | "gcp" | "openstack")) => Some(start(provider).await),
            _ => None,
        };
        let zones = match &cloud {
            Some(cloud) => ZoneSpread::start(cloud.as_ref(), 1).await,
            None => simulated_zones(),
        };
        let mut images = BTreeMap::new();
        for version in VERSIONS {
            let image = match &cloud {
                Some(cloud) => cloud.add_image(version).await,
                None => format!("kubelet-{version}"),
            };
            images.insert(version, image);
        }
        // Static pods go by the prefix of a Node, so no cluster has a name that begins that of another.
        let name = format!("{}-life", flavour.replace("topology", "class"));
        let scene = match has_manager(flavour) {
            true => Scene::with_separate_workload(world, &name).await,
            false => Scene::with_authority(world, &name).await,
        };
        add_etcd(&scene);
        if let Some(cloud) = &cloud {
            prepare(&scene, cloud.as_ref());
        }
        Self { scene, flavour, cloud, zones, images }
    }

    fn is_topology(&self) -> bool {
        self.flavour.ends_with("topology")
    }

    /// Another provider has the control plane.
    fn is_hybrid(&self) -> bool {
        self.flavour.ends_with("-hybrid")
    }

    /// The kubelets of a cloud. The passthrough load balancer of Google Cloud returns a member to itself.
    fn kubelets(&self) -> Option<Kubelets> {
        let cloud = self.cloud.as_ref()?;
        let registration =
            if has_manager(self.flavour) { NodeRegistration::External } else { NodeRegistration::Complete };
        let versions = self.images.iter().map(|(version, image)| (image.clone(), (*version).to_owned())).collect();
        let joins: fn(&BTreeSet<String>, &Joining<'_>) -> bool = match self.flavour {
            "gcp" | "gcp-topology" => reaches_api_server,
            _ => |_, _| true,
        };
        Some(Kubelets::start(&self.scene, Arc::clone(cloud), registration, versions, joins))
    }

    fn static_pods(&self) -> StaticPods {
        let own = self.scene.name.clone();
        StaticPods::run(&self.scene, move |node| {
            node.labels().get("cluster") == Some(&own) || node.name_any().starts_with(&format!("{own}-"))
        })
    }

    async fn other_provider(&self) -> Option<OtherProvider> {
        match &self.cloud {
            Some(cloud) if self.is_hybrid() => Some(other_provider(&self.scene, cloud).await),
            _ => None,
        }
    }

    /// Waits for the addons of a cloud, of which the cloud controller manager runs where there is one.
    async fn cloud_controller_manager(&self) -> Option<CloudControllerManager> {
        let cloud = self.cloud.as_ref()?;
        assert_addons(&self.scene).await;
        match has_manager(self.flavour) {
            true => Some(CloudControllerManager::start(&self.scene, cloud.as_ref()).await),
            false => None,
        }
    }

    async fn until<T>(&self, what: &str, ask: impl AsyncFnMut() -> Option<T>) -> T {
        wait::until_within(LIMIT, &format!("{what} of {}", self.scene.name), ask).await
    }
}

/// The node controllers of the cloud run, and write the provider IDs.
fn has_manager(flavour: &str) -> bool {
    flavour.starts_with("aws") || flavour.starts_with("gcp")
}

fn simulated_zones() -> ZoneSpread {
    let name = "simulated-b";
    let further = CloudZone { name: name.to_owned(), change: json!({"zone": name}), variable: json!({"name": name}) };
    ZoneSpread { first: "simulated-a".to_owned(), further: vec![further] }
}

/// Creation.
impl ClusterLife {
    fn create(&self) {
        let objects = json!({"apiVersion": "v1", "kind": "List", "items": self.objects()});
        self.scene.world.apply(&objects);
    }

    /// The flavour in two zones with a pool, for the first version.
    fn objects(&self) -> Vec<Value> {
        let mut variables = vec![
            ("CONTROL_PLANE_MACHINE_COUNT", MACHINES.to_string()),
            ("MCM_CONTROL_PLANE_CLASS", class_name(VERSIONS[0])),
            ("MCM_WORKER_CLASS", class_name(VERSIONS[0])),
        ];
        variables.extend(self.cloud.iter().flat_map(|cloud| cloud.variables()));
        let variables: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let flavour = if self.flavour == "default" { "" } else { self.flavour };
        let text = self.scene.generate_version(flavour, VERSIONS[0], WORKERS, &variables);
        let all = documents(&text).into_iter();
        let mut objects: Vec<Value> =
            all.map(|object| self.with_images(self.zones.spread(with_external_etcd(object)))).collect();
        if !self.is_topology() {
            let pool = self.zones.pool(&self.scene, &objects);
            objects.extend(pool.map(|object| self.with_network(object)));
        }
        if self.cloud.is_none() && !self.is_topology() {
            objects.extend(self.classes());
        }
        objects
    }

    /// An object of the flavour with the image of the first version; a topology has those of all versions.
    fn with_images(&self, mut object: Value) -> Value {
        match object["kind"].as_str().unwrap() {
            "Cluster" if self.is_topology() => {
                let variables = object["spec"]["topology"]["variables"].as_array_mut().unwrap();
                variables.retain(|variable| variable["name"] != "images");
                variables.push(json!({"name": "images", "value": self.images}));
            }
            "MCMMachineTemplate" | "AWSMachineTemplate" | "GCPMachineTemplate" if !self.is_topology() => {
                self.set_image(&mut object["spec"]["template"]["spec"], VERSIONS[0]);
            }
            "MCMCluster" if self.cloud.is_none() => {
                let overrides = VERSIONS.map(|version| (class_name(version), json!(in_second_zone(version))));
                let domains = object["spec"]["failureDomains"].as_array_mut().unwrap();
                let second = domains.iter_mut().find(|domain| domain["name"] == self.zones.workers()).unwrap();
                second["machineClassOverrides"] = Value::Object(overrides.into_iter().collect());
            }
            _ => {}
        }
        object
    }

    /// Lets the VMs that a template or a pool describes have the image of a version.
    fn set_image(&self, spec: &mut Value, version: &str) {
        let image = json!(self.images[version]);
        if let Some(class) = spec.get_mut("machineClass") {
            let path = self.cloud.as_ref().unwrap().image_path();
            *class["providerSpec"].pointer_mut(path).unwrap() = image;
        } else if let Some(class) = spec.get_mut("machineClassRef") {
            class["name"] = json!(class_name(version));
        } else if let Some(ami) = spec.get_mut("ami") {
            ami["id"] = image;
        } else {
            spec["image"] = image;
        }
    }

    /// A pool of the hybrid way names subnets and security groups itself.
    fn with_network(&self, mut object: Value) -> Value {
        if object["kind"] == "MCMMachinePool" && self.flavour == "aws-hybrid" {
            let variables: BTreeMap<&str, String> = self.cloud.iter().flat_map(|cloud| cloud.variables()).collect();
            let interface = json!({
                "subnetID": variables["AWS_SUBNET_ID"], "securityGroupIDs": [variables["AWS_SECURITY_GROUP_ID"]],
            });
            object["spec"]["machineClass"]["providerSpec"]["networkInterfaces"] = json!([interface]);
            let changes = self.zones.further.iter().map(|zone| (zone.name.clone(), zone.change.clone()));
            object["spec"]["zones"] = Value::Object(changes.collect());
        }
        object
    }

    /// The MachineClasses that the default template refers to: one for each version and zone.
    fn classes(&self) -> Vec<Value> {
        let class = |name: String, zone: &str, version: &str| {
            json!({
                "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass",
                "metadata": {"name": name, "namespace": self.scene.namespace},
                "provider": "simulated",
                "providerSpec": {"instanceType": "small", "zone": zone, "image": self.images[version]},
                "nodeTemplate": {
                    "capacity": {"cpu": "4", "gpu": "0", "memory": "16Gi"}, "architecture": "amd64",
                    "instanceType": "small", "region": "simulated", "zone": zone,
                },
            })
        };
        let of_version = |version: &str| {
            let second = class(in_second_zone(version), self.zones.workers(), version);
            [class(class_name(version), &self.zones.first, version), second]
        };
        VERSIONS.into_iter().flat_map(of_version).collect()
    }
}

/// The class of the default template for a version.
fn class_name(version: &str) -> String {
    format!("vm-{}", version.replace('.', "-"))
}

/// The same in the second zone.
fn in_second_zone(version: &str) -> String {
    format!("{}-b", class_name(version))
}

/// Observation.
impl ClusterLife {
    /// Waits until all parts have a version.
    async fn until_all_have(&self, version: &str) {
        self.until_part_has(CONTROL_PLANE, MACHINES, version).await;
        self.until_part_has(DEPLOYMENT, WORKERS, version).await;
        self.until_part_has(POOL, MEMBERS, version).await;
    }

    async fn until_part_has(&self, part: &'static str, count: usize, version: &str) {
        self.until(&format!("{version} of the {part}"), async || {
            let survey = self.look();
            survey.assert_skew();
            match part {
                POOL => has_pool_of(&self.scene, count).filter(|()| survey.has(part, count, version)),
                _ => self.are_running(part, count, version),
            }
        })
        .await;
    }

    /// The versions of API servers are those of the Machines, and those of kubelets are in the Nodes. Each Machine has the image
    /// of its version.
    fn look(&self) -> VersionSurvey {
        let nodes = self.scene.workload_reader().all("", "nodes", "");
        let nodes: BTreeMap<&str, &str> =
            nodes.iter().filter_map(|one| Some((name_of(one), kubelet_version(one)?))).collect();
        let kubelet = |node: &Value| nodes.get(node["name"].as_str()?).map(|version| (*version).to_owned());
        let mut survey = VersionSurvey::default();
        for machine in self.scene.all(MACHINES_OF_CORE) {
            let part = part(&self.scene, name_of(&machine));
            let Some(kubelet) = kubelet(&machine["status"]["nodeRef"]).filter(|_| part != POOL) else { continue };
            if part == CONTROL_PLANE {
                survey.servers.insert(machine["spec"]["version"].as_str().unwrap().to_owned());
            }
            assert_eq!(machine["spec"]["version"], kubelet, "{}", name_of(&machine));
            survey.kubelets.entry(part).or_default().push(kubelet);
        }
        for pool in self.scene.all("machinepool") {
            let nodes = pool["status"]["nodeRefs"].as_array().into_iter().flatten();
            survey.kubelets.entry(POOL).or_default().extend(nodes.filter_map(kubelet));
        }
        survey
    }

    /// The part has so many Machines, and all run with this version.
    fn are_running(&self, wanted: &str, count: usize, version: &str) -> Option<()> {
        let mut machines = self.scene.all(MACHINES_OF_CORE);
        machines.retain(|machine| part(&self.scene, name_of(machine)) == wanted);
        let is_running = |machine: &Value| {
            let is_alive = machine["metadata"]["deletionTimestamp"].is_null();
            is_alive && machine["status"]["phase"] == "Running" && machine["spec"]["version"] == version
        };
        (machines.len() == count && machines.iter().all(is_running)).then_some(())
    }

    /// The control plane of mcm and the pool are in both zones, and the workers in that of their deployment.
    fn assert_zones(&self) {
        let mut zones = BTreeMap::<&str, BTreeSet<String>>::new();
        for native in self.scene.all(NATIVES) {
            zones.entry(part(&self.scene, name_of(&native))).or_default().insert(self.zone_of(&native));
        }
        let (second, both) = (BTreeSet::from([self.zones.workers()]), self.zones.names());
        let mut expected: BTreeMap<&str, BTreeSet<&str>> = [(DEPLOYMENT, second), (POOL, both.clone())].into();
        if !self.is_hybrid() {
            expected.insert(CONTROL_PLANE, both);
        }
        let zones: BTreeMap<&str, BTreeSet<&str>> =
            zones.iter().map(|(part, zones)| (*part, zones.iter().map(String::as_str).collect())).collect();
        assert_eq!(zones, expected);
    }

    /// The zone that the cloud reports for a VM, or else that of its class.
    fn zone_of(&self, native: &Value) -> String {
        let class = || self.scene.get("machineclass", native["spec"]["class"]["name"].as_str().unwrap());
        let reported = native["metadata"]["annotations"]["machine.mcm/zone"].as_str().map(str::to_owned);
        reported.unwrap_or_else(|| class()["nodeTemplate"]["zone"].as_str().unwrap().to_owned())
    }

    /// The VMs of the control plane of mcm are in the load balancer of the cloud.
    async fn until_all_are_members(&self) {
        let balanced = self.cloud.as_ref().and_then(|cloud| cloud.balanced());
        if let Some(balanced) = balanced.filter(|_| !self.is_hybrid()) {
            until_all_are_members(&self.scene, balanced).await;
        }
    }

    /// Each upgrade replaced each machine once. A pool of a topology may replace machines of its surge again, because core changes
    /// its image before its version.
    async fn assert_each_was_replaced_once(&self) {
        let Some(cloud) = &self.cloud else { return };
        let fewest = (VERSIONS.len() * (MACHINES + WORKERS + MEMBERS)) as u64;
        let again = if self.is_topology() { (VERSIONS.len() - 1) * MEMBERS } else { 0 };
        let created = cloud.simulation().created().await;
        assert!((fewest..=fewest + again as u64).contains(&created), "{created} VMs, not {fewest}");
    }
}

fn kubelet_version(node: &Value) -> Option<&str> {
    node["status"]["nodeInfo"]["kubeletVersion"].as_str()
}

/// Upgrades, as docs/cluster-api/upgrade.md describes them.
impl ClusterLife {
    async fn upgrade(&self, version: &str) {
        if self.is_topology() {
            return self.upgrade_topology(version).await;
        }
        self.upgrade_control_plane(version);
        self.until_part_has(CONTROL_PLANE, MACHINES, version).await;
        self.upgrade_workers(version);
        self.until_part_has(DEPLOYMENT, WORKERS, version).await;
        self.upgrade_pool(version).await;
        self.until_all_have(version).await;
    }

    /// Core accepts a version once all machines have the one before.
    async fn upgrade_topology(&self, version: &str) {
        let change = json!({"spec": {"topology": {"version": version}}}).to_string();
        let (name, namespace) = (&self.scene.name, &self.scene.namespace);
        let words = ["patch", CLUSTERS, name, "-n", namespace, "--type=merge", "-p", &change];
        self.until("an accepted version", async || self.scene.world.try_kubectl(&words, "").ok()).await;
        self.until_all_have(version).await;
        self.until("the topology", async || {
            let cluster = self.scene.get(CLUSTERS, name);
            condition(&cluster, "TopologyReconciled").starts_with("True").then_some(())
        })
        .await;
    }

    /// Version and template in one patch.
    fn upgrade_control_plane(&self, version: &str) {
        let name = format!("{}-control-plane", self.scene.name);
        let plane = self.scene.get("kubeadmcontrolplane", &name);
        let reference = &plane["spec"]["machineTemplate"]["spec"]["infrastructureRef"];
        let template = self.next_template(reference, &name, version);
        let reference = json!({"spec": {"infrastructureRef": {"name": template}}});
        let change = json!({"spec": {"version": version, "machineTemplate": reference}});
        self.patch("kubeadmcontrolplane", &name, &change);
    }

    /// The same for the deployment.
    fn upgrade_workers(&self, version: &str) {
        let name = format!("{}-{DEPLOYMENT}", self.scene.name);
        let deployment = self.scene.get(DEPLOYMENTS, &name);
        let reference = &deployment["spec"]["template"]["spec"]["infrastructureRef"];
        let template = self.next_template(reference, &name, version);
        let spec = json!({"version": version, "infrastructureRef": {"name": template}});
        self.patch(DEPLOYMENTS, &name, &json!({"spec": {"template": {"spec": spec}}}));
    }

    /// Version and image of the pool while the Cluster is paused, so that one rollout has both.
    async fn upgrade_pool(&self, version: &str) {
        let name = format!("{}-{POOL}", self.scene.name);
        self.pause(true);
        let pool = self
            .until("the pause of the pool", async || {
                let pool = self.scene.get("mcmmachinepool", &name);
                (condition(&pool, "Paused") == "True Paused").then_some(pool)
            })
            .await;
        let mut spec = pool["spec"].clone();
        self.set_image(&mut spec, version);
        let classes = ["machineClass", "machineClassRef"].into_iter();
        let classes = classes.filter_map(|field| Some((field.to_owned(), spec.get(field)?.clone())));
        self.patch("mcmmachinepool", &name, &json!({"spec": Value::Object(classes.collect())}));
        self.patch("machinepool", &name, &json!({"spec": {"template": {"spec": {"version": version}}}}));
        self.pause(false);
    }

    /// Creates a template with the image of a version beside a former one; returns its name.
    fn next_template(&self, former: &Value, owner: &str, version: &str) -> String {
        let kind = former["kind"].as_str().unwrap().to_lowercase();
        let mut template = self.scene.get(&kind, former["name"].as_str().unwrap());
        let name = format!("{owner}-{}", version.replace('.', "-"));
        template["metadata"] = json!({"name": name, "namespace": self.scene.namespace});
        template.as_object_mut().unwrap().remove("status");
        self.set_image(&mut template["spec"]["template"]["spec"], version);
        self.scene.world.apply(&template);
        name
    }

    fn pause(&self, is_paused: bool) {
        self.patch(CLUSTERS, &self.scene.name, &json!({"spec": {"paused": is_paused}}));
    }

    fn patch(&self, kind: &str, name: &str, change: &Value) {
        self.scene.kubectl(&["patch", kind, name, "--type=merge", "-p", &change.to_string()]);
    }
}

/// Deletion.
impl ClusterLife {
    /// Deletes the Cluster. No VM, member, Node or object is left.
    async fn delete(&self, kubelets: Option<Kubelets>) {
        self.scene.kubectl(&["delete", CLUSTERS, &self.scene.name, "--timeout=600s"]);
        if let Some(cloud) = &self.cloud {
            let vms = cloud.simulation().vms().await;
            assert!(vms.iter().all(|vm| vm.cluster != self.scene.name), "{vms:?}");
            if let Some(balanced) = cloud.balanced() {
                assert_eq!(balanced.members().await, BTreeSet::new());
            }
            assert_eq!(cloud.leftovers(), [""; 0]);
            assert_eq!(cloud.simulation().violations(), [""; 0]);
        } else {
            assert!(self.scene.vms().await.is_empty());
        }
        match kubelets {
            Some(kubelets) => self.until("the end of all Nodes", async || kubelets.are_gone().await).await,
            None => self.until("the end of all Nodes", async || self.scene.nodes().is_empty().then_some(())).await,
        }
        for kind in MADE {
            self.until(&format!("the end of each {kind}"), async || self.scene.all(kind).is_empty().then_some(()))
                .await;
        }
        let given: BTreeSet<String> =
            VERSIONS.into_iter().flat_map(|version| [class_name(version), in_second_zone(version)]).collect();
        self.until("the end of its classes", async || {
            let classes = self.scene.all("machineclass");
            classes.iter().all(|class| given.contains(name_of(class))).then_some(())
        })
        .await;
    }
}

/// One flavour and one ClusterClass stand for the others where time is short. `chained_upgrade` has the ClusterClass of the
/// simulated cloud.
#[rstest]
#[case::default("default")]
#[ignore = "takes minutes: make test-flavours"]
#[case::topology("topology")]
#[ignore = "takes minutes: make test-flavours"]
#[case::aws("aws")]
#[ignore = "takes minutes: make test-flavours"]
#[case::aws_hybrid("aws-hybrid")]
#[ignore = "takes minutes: make test-flavours"]
#[case::aws_topology("aws-topology")]
#[ignore = "takes minutes: make test-flavours"]
#[case::gcp("gcp")]
#[ignore = "takes minutes: make test-flavours"]
#[case::gcp_hybrid("gcp-hybrid")]
#[case::gcp_topology("gcp-topology")]
#[ignore = "takes minutes: make test-flavours"]
#[case::openstack("openstack")]
#[ignore = "takes minutes: make test-flavours"]
#[case::openstack_topology("openstack-topology")]
fn a_cluster_is_created_in_two_zones_upgraded_over_two_versions_and_deleted(#[case] flavour: &'static str) {
    play(async |world: &'static World| {
        let life = ClusterLife::begin(world, flavour).await;
        let kubelets = life.kubelets();
        let (_pods, _other) = (life.static_pods(), life.other_provider().await);
        life.create();
        let mut manager = life.cloud_controller_manager().await;
        life.until_all_have(VERSIONS[0]).await;
        life.until_all_are_members().await;
        life.assert_zones();

        for version in &VERSIONS[1..] {
            life.upgrade(version).await;
        }
        life.until_all_are_members().await;
        life.assert_zones();
        life.assert_each_was_replaced_once().await;

        life.delete(kubelets).await;
        if let Some(manager) = &mut manager {
            manager.assert_sound();
        }
    });
}
