//! One description of VMs for several zones: core spreads a control plane over them, and workers are in the zone of their
//! deployment.

use std::{collections::BTreeSet, sync::Arc};

use rstest::rstest;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    cloud_controller_manager::CloudControllerManager,
    flavours::{Kubelets, StandIn, VARIABLES, assert_addons, prepare},
    gcp,
    replacement::{MACHINES, StaticPods, add_etcd, with_external_etcd},
    scene::Scene,
    simulation::Simulation,
    world::{World, play},
};

const ZONES: [&str; MACHINES] = gcp::ZONES;
const WORKERS: usize = 1;

#[test]
fn a_control_plane_is_spread_over_the_zones_of_one_description() {
    play(async |world: &'static World| {
        let cloud = Arc::new(gcp::World::new().await);
        let scene = Scene::with_separate_workload(world, "zones").await;
        prepare(&scene, &*cloud);
        add_etcd(&scene);
        let kubelets = Kubelets::run_external(&scene, Arc::<gcp::World>::clone(&cloud));
        let _pods = StaticPods::run(&scene);

        let variables = cloud.variables();
        let mut variables: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let replicas = MACHINES.to_string();
        variables.push(("CONTROL_PLANE_MACHINE_COUNT", &replicas));
        for mut object in documents(&with_external_etcd(&scene.generate_with("gcp", WORKERS, &variables))) {
            match object["kind"].as_str().unwrap() {
                "MCMCluster" => {
                    let domains = ZONES.map(|zone| json!({"name": zone, "controlPlane": true}));
                    object["spec"]["failureDomains"] = json!(domains);
                    object["spec"].as_object_mut().unwrap().remove("controlPlaneLoadBalancer");
                }
                "MCMMachineTemplate" => {
                    let zones = ZONES[1..].iter().map(|zone| ((*zone).to_owned(), json!({"zone": zone})));
                    object["spec"]["template"]["spec"]["zones"] = Value::Object(zones.collect());
                }
                "MachineDeployment" => object["spec"]["template"]["spec"]["failureDomain"] = json!(ZONES[1]),
                _ => {}
            }
            world.apply(&object);
        }
        assert_addons(&scene).await;
        let mut manager = CloudControllerManager::start(&scene, &*cloud).await;
        scene.until("all machines to be Nodes", async || scene.has_running(MACHINES + WORKERS)).await;

        let nodes = scene.nodes();
        let control_plane = places(&scene.selected("mcmmachine", "cluster.x-k8s.io/control-plane"));
        assert_eq!(control_plane.iter().map(|(zone, _)| zone.as_str()).collect::<BTreeSet<_>>(), ZONES.into());
        let workers = places(&scene.selected("mcmmachine", "!cluster.x-k8s.io/control-plane"));
        assert!(workers.iter().all(|(zone, _)| zone == ZONES[1]) && workers.len() == WORKERS, "{workers:?}");
        for (zone, id) in control_plane.iter().chain(&workers) {
            assert!(id.contains(&format!("/{zone}/")), "the VM of zone {zone} has the ID {id}");
            let node = nodes.iter().find(|node| node["spec"]["providerID"] == *id).unwrap();
            assert_eq!(node["metadata"]["labels"]["topology.kubernetes.io/zone"], *zone);
        }
        assert_eq!(cloud.violations(), [""; 0]);

        scene.kubectl(&["delete", "cluster", &scene.name, "--timeout=170s"]);
        assert!(cloud.vms().await.is_empty());
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
        scene.kubectl(&["delete", "cluster", &scene.name, "--timeout=170s"]);
    });
}

fn documents(text: &str) -> Vec<Value> {
    let all = serde_yaml_ng::Deserializer::from_str(text).map(|one| Value::deserialize(one).unwrap());
    all.filter(|object| !object.is_null()).collect()
}
