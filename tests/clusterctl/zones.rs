//! One description of VMs for several zones: core spreads a control plane over them, and workers are in the zone of their
//! deployment.

use std::{collections::BTreeSet, sync::Arc};

use rstest::rstest;
use serde_json::{Value, json};

use crate::{
    cloud_controller_manager::CloudControllerManager,
    flavours::{CloudZone, Kubelets, StandIn, VARIABLES, assert_addons, prepare, start},
    replacement::{MACHINES, is_of},
    scene::{Scene, documents},
    static_pods::{StaticPods, add_etcd, with_external_etcd},
    world::{World, play},
};

const WORKERS: usize = 1;
/// Machines of the pool, one in each of two zones.
pub const MEMBERS: usize = 2;

/// The zone of a flavour, and further ones.
pub struct ZoneSpread {
    pub first: String,
    pub further: Vec<CloudZone>,
}

impl ZoneSpread {
    /// The zone of a cloud, and so many further ones.
    pub async fn start(cloud: &dyn StandIn, count: usize) -> Self {
        let mut further = Vec::new();
        for number in 1..=count {
            further.push(cloud.add_zone(number).await);
        }
        Self { first: cloud.zone(), further }
    }

    pub fn names(&self) -> BTreeSet<&str> {
        self.further.iter().map(|zone| zone.name.as_str()).chain([self.first.as_str()]).collect()
    }

    /// The second zone, of the workers.
    pub fn workers(&self) -> &str {
        &self.further[0].name
    }

    /// The first two zones, of the pool.
    pub fn members(&self) -> [&str; MEMBERS] {
        [&self.first, self.workers()]
    }

    /// An object of a flavour, in all zones.
    pub fn spread(&self, mut object: Value) -> Value {
        match object["kind"].as_str().unwrap() {
            "Cluster" if !object["spec"]["topology"].is_null() => self.spread_topology(&mut object["spec"]["topology"]),
            "MCMCluster" => {
                let domains = self.names().into_iter().map(|zone| json!({"name": zone, "controlPlane": true}));
                object["spec"]["failureDomains"] = domains.collect();
                if let Some(groups) = object.pointer_mut("/spec/controlPlaneLoadBalancer/gcpInstanceGroups") {
                    let name = groups[0]["name"].clone();
                    *groups = self.names().into_iter().map(|zone| json!({"zone": zone, "name": name})).collect();
                }
            }
            "MCMMachineTemplate" if !object["spec"]["template"]["spec"]["machineClass"].is_null() => {
                let spec = &mut object["spec"]["template"]["spec"];
                let class = &spec["machineClass"];
                let is_open = class["provider"] == "AWS" && class["providerSpec"]["networkInterfaces"].is_null();
                let change = |zone: &CloudZone| if is_open { json!({}) } else { zone.change.clone() };
                let changes = self.further.iter().map(|zone| (zone.name.clone(), change(zone)));
                spec["zones"] = Value::Object(changes.collect());
            }
            "MachineDeployment" => object["spec"]["template"]["spec"]["failureDomain"] = json!(self.workers()),
            _ => {}
        }
        object
    }

    /// The same for a topology, which gets a pool.
    fn spread_topology(&self, topology: &mut Value) {
        let workers = &mut topology["workers"];
        workers["machineDeployments"][0]["failureDomain"] = json!(self.workers());
        workers["machinePools"] = json!([
            {"class": "default-pool", "name": "mp-0", "replicas": MEMBERS, "failureDomains": self.members()},
        ]);
        let further: Value = self.further.iter().map(|zone| zone.variable.clone()).collect();
        topology["variables"].as_array_mut().unwrap().push(json!({"name": "zones", "value": further}));
    }

    /// A pool in the first two zones, with the class and the kubeadm configuration of the workers. Its VMs are Machines of core.
    pub fn pool(&self, scene: &Scene, objects: &[Value]) -> [Value; 3] {
        let named = |kind: &str, name: &str| {
            objects.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name).unwrap()
        };
        let workers = named("MachineDeployment", &format!("{}-md-0", scene.name));
        let of_workers = |reference: &Value| {
            let template = named(reference["kind"].as_str().unwrap(), reference["name"].as_str().unwrap());
            (template["apiVersion"].clone(), template["spec"]["template"]["spec"].clone())
        };
        let machine = &workers["spec"]["template"]["spec"];
        let (infrastructure, mut class) = of_workers(&machine["infrastructureRef"]);
        let (bootstrap, configuration) = of_workers(&machine["bootstrap"]["configRef"]);
        let name = format!("{}-mp-0", scene.name);
        let reference = |kind: &str, api_version: &Value| {
            let group = api_version.as_str().unwrap().split('/').next().unwrap();
            json!({"apiGroup": group, "kind": kind, "name": name})
        };
        class["machinePoolMachines"] = json!("Enabled");
        let template = json!({
            "clusterName": scene.name, "version": machine["version"],
            "bootstrap": {"configRef": reference("KubeadmConfig", &bootstrap)},
            "infrastructureRef": reference("MCMMachinePool", &infrastructure),
        });
        let metadata = json!({"name": name, "namespace": scene.namespace});
        let object = |api_version: &Value, kind: &str, spec: Value| json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec});
        let pool = json!({
            "clusterName": scene.name, "replicas": MEMBERS, "failureDomains": self.members(), "template": {"spec": template},
        });
        [
            object(&bootstrap, "KubeadmConfig", configuration),
            object(&infrastructure, "MCMMachinePool", class),
            object(&workers["apiVersion"], "MachinePool", pool),
        ]
    }
}

/// Core spreads the control plane, the pool is in two zones, and the cloud controller manager of the cloud initializes all Nodes.
#[rstest]
#[case::aws("aws")]
#[case::gcp("gcp")]
fn a_control_plane_and_a_pool_are_spread_over_the_zones_of_one_description(#[case] flavour: &str) {
    play(async |world: &'static World| {
        let stand_in = start(flavour).await;
        let cloud = &*stand_in;
        let zoned = ZoneSpread::start(cloud, 2).await;
        let scene = Scene::with_separate_workload(world, &format!("{flavour}-zoned")).await;
        prepare(&scene, cloud);
        add_etcd(&scene);
        let kubelets = Kubelets::run_external(&scene, Arc::clone(&stand_in));
        let _pods = StaticPods::run(&scene, is_of(&scene.name));

        let variables = cloud.variables();
        let mut variables: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let replicas = MACHINES.to_string();
        variables.push(("CONTROL_PLANE_MACHINE_COUNT", &replicas));
        let all = documents(&scene.generate_with(flavour, WORKERS, &variables)).into_iter();
        let objects: Vec<Value> = all.map(|object| zoned.spread(with_external_etcd(object))).collect();
        for object in objects.iter().chain(&zoned.pool(&scene, &objects)) {
            world.apply(object);
        }
        assert_addons(&scene).await;
        let mut manager = CloudControllerManager::start(&scene, cloud).await;
        let all = MACHINES + WORKERS + MEMBERS;
        scene.until("all machines to be Nodes", async || scene.has_running(all)).await;
        scene.until("the pool to have its Nodes", async || scene.has_pool_of(MEMBERS)).await;

        let mut nodes = scene.workload_reader().all("", "nodes", "");
        nodes.retain(|node| node["metadata"]["labels"]["cluster"] == scene.name);
        let control_plane = places(&scene.selected("mcmmachine", "cluster.x-k8s.io/control-plane"));
        assert_eq!(control_plane.iter().map(|(zone, _)| zone.as_str()).collect::<BTreeSet<_>>(), zoned.names());
        let workers = places(&scene.selected("mcmmachine", "cluster.x-k8s.io/deployment-name"));
        assert!(workers.iter().all(|(zone, _)| zone == zoned.workers()) && workers.len() == WORKERS, "{workers:?}");
        let members = places(&scene.selected("mcmmachine", "cluster.x-k8s.io/pool-name"));
        let of_members: BTreeSet<&str> = members.iter().map(|(zone, _)| zone.as_str()).collect();
        assert_eq!((members.len(), of_members.len()), (MEMBERS, MEMBERS), "{members:?}");
        for (zone, id) in control_plane.iter().chain(&workers).chain(&members) {
            let node = nodes.iter().find(|node| node["spec"]["providerID"] == *id);
            let node = node.unwrap_or_else(|| panic!("no Node has the ID {id} of the VM in zone {zone}"));
            assert_eq!(node["metadata"]["labels"]["topology.kubernetes.io/zone"], *zone);
        }
        assert_eq!(cloud.simulation().violations(), [""; 0]);

        scene.kubectl(&["delete", "cluster", &scene.name, "--timeout=600s"]);
        assert!(cloud.simulation().vms().await.iter().all(|vm| vm.cluster != scene.name));
        scene.until("the Nodes to be gone", async || kubelets.are_gone().await).await;
        manager.assert_sound();
    });
}

/// Zones and IDs of VMs.
fn places(machines: &[Value]) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    machines.iter().map(|one| (text(&one["status"]["failureDomain"]), text(&one["spec"]["providerID"]))).collect()
}

/// Core applies the patches of the class: the zones are failure domains of the cluster, and changes of each template.
#[rstest]
#[case::aws(
    "aws-topology",
    json!([{"name": "eu-west-1b", "subnetID": "subnet-2"}]),
    json!({"eu-west-1b": {"networkInterfaces": [{"subnetID": "subnet-2"}]}})
)]
#[case::gcp("gcp-topology", json!([{"name": "europe-west1-c"}]), json!({"europe-west1-c": {"zone": "europe-west1-c"}}))]
#[case::openstack("openstack-topology", json!([{"name": "az-2"}]), json!({"az-2": {"spec": {"availabilityZone": "az-2"}}}))]
fn a_topology_has_the_zones_of_its_variable(#[case] flavour: &str, #[case] value: Value, #[case] expected: Value) {
    play(async |world: &'static World| {
        let scene = Scene::with_authority(world, &flavour.replace("topology", "zones")).await;
        for mut object in documents(&scene.generate_with(flavour, WORKERS, &VARIABLES)) {
            if object["kind"] == "Cluster" {
                let variables = object["spec"]["topology"]["variables"].as_array_mut().unwrap();
                variables.push(json!({"name": "zones", "value": value}));
            }
            world.apply(&object);
        }
        let templates = scene
            .until("both templates of the topology", async || {
                let mut templates = scene.all("mcmmachinetemplate");
                templates.retain(|template| {
                    !template["metadata"]["annotations"]["cluster.x-k8s.io/cloned-from-name"].is_null()
                });
                (templates.len() == 2).then_some(templates)
            })
            .await;
        for template in templates {
            assert_eq!(template["spec"]["template"]["spec"]["zones"], expected, "{template:#}");
        }
        let cluster = scene.all("mcmcluster").pop().unwrap();
        let domains = cluster["spec"]["failureDomains"].as_array().unwrap();
        let further = json!({"name": value[0]["name"], "controlPlane": true});
        assert_eq!((domains.len(), &domains[1]), (2, &further), "{cluster:#}");
        scene.kubectl(&["delete", "cluster", &scene.name, "--timeout=600s"]);
    });
}
