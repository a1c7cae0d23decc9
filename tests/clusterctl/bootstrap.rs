//! Bootstrap data of the real kubeadm bootstrap provider reaches VMs of both clouds byte for byte, and can be read
//! there.

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::STANDARD};
use parking_lot::Mutex;
use roxmltree::Document;
use serde_json::{Value, json};

use crate::{
    aws::Ec2,
    gcp::fake::{EMAIL, Gce, PRIVATE_KEY, PROJECT, Shared, serve},
    scene::{KUBERNETES, Scene, name_of},
    simulation::Simulation,
    world::{World, play},
};

const ZONE: &str = "europe-west1-b";
const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";
const BOOTSTRAP: &str = "bootstrap.cluster.x-k8s.io";

/// Both clouds, whose VMs never become Nodes.
struct Clouds {
    ec2: Ec2,
    gce: Shared,
    gce_url: String,
}

impl Clouds {
    async fn start() -> Self {
        let gce: Shared = Arc::new(Mutex::new(Gce::new(None)));
        Self { ec2: Ec2::start().await, gce_url: serve(&gce).await, gce }
    }

    /// The content of a MachineClass.
    fn class(&self, provider: &str) -> Value {
        let spec = match provider {
            "AWS" => self.ec2.spec("kubeadm"),
            _ => json!({
                "region": "europe-west1", "zone": ZONE, "machineType": "n2-standard-2",
                "disks": [{"boot": true, "sizeGb": 50, "type": "pd-ssd", "image": "projects/os/global/images/os-1"}],
                "networkInterfaces": [{"subnetwork": "nodes"}],
                "scheduling": {"automaticRestart": true, "onHostMaintenance": "MIGRATE"},
                "tags": ["kubernetes-io-cluster-kubeadm", "kubernetes-io-role-node"],
            }),
        };
        let template = json!({
            "capacity": {"cpu": "2", "gpu": "0", "memory": "8Gi"}, "instanceType": "m", "region": "r", "zone": "z",
        });
        json!({
            "provider": provider, "providerSpec": spec, "nodeTemplate": template,
            "credentialsSecretRef": {"name": provider.to_lowercase()},
        })
    }

    fn credentials(&self, provider: &str) -> Value {
        if provider == "AWS" {
            return self.ec2.secret();
        }
        let account = json!({
            "type": "service_account", "project_id": PROJECT, "client_email": EMAIL, "private_key_id": "key-1",
            "private_key": PRIVATE_KEY, "token_uri": format!("{}/token", self.gce_url),
        });
        json!({"serviceAccountJSON": account.to_string(), "endpointURL": format!("{}/compute/v1", self.gce_url)})
    }

    /// The user data of the VM of a machine, where cloud-init and Ignition find them.
    async fn user_data(&self, provider: &str, machine: &str) -> Option<Vec<u8>> {
        match provider {
            "AWS" => user_data_of_ec2(&self.ec2, machine).await,
            _ => user_data_of_gce(&self.gce, machine),
        }
    }
}

pub async fn user_data_of_ec2(ec2: &Ec2, machine: &str) -> Option<Vec<u8>> {
    let vm = ec2.vms().await.into_iter().find(|vm| vm.machine == machine)?;
    let id = vm.provider_id.rsplit('/').next()?;
    let words = [
        ("Action", "DescribeInstanceAttribute"),
        ("Version", "2016-11-15"),
        ("InstanceId", id),
        ("Attribute", "userData"),
    ];
    let answer = ec2.proxy.ask(&words).await;
    let document = Document::parse(&answer).unwrap();
    let value = document.descendants().find(|node| node.has_tag_name("value"))?.text()?;
    STANDARD.decode(value.trim()).ok()
}

pub fn user_data_of_gce(gce: &Shared, machine: &str) -> Option<Vec<u8>> {
    let gce = gce.lock();
    let vm = gce.vms.get(&(ZONE.to_owned(), machine.to_owned()))?;
    let items = vm.resource["metadata"]["items"].as_array()?;
    let item = items.iter().find(|item| item["key"] == "user-data")?;
    Some(item["value"].as_str()?.as_bytes().to_vec())
}

/// A set of one machine with bootstrap data in a format.
fn workers(scene: &Scene, name: &str, class: &Value, format: &str) {
    let metadata = json!({"name": name, "namespace": scene.namespace});
    let reference = |group: &str, kind: &str| json!({"apiGroup": group, "kind": kind, "name": name});
    scene.world.apply(&json!({
        "apiVersion": format!("{INFRASTRUCTURE}/v1beta2"), "kind": "MCMMachineTemplate", "metadata": metadata,
        "spec": {"template": {"spec": {"machineClass": class}}},
    }));
    scene.world.apply(&json!({
        "apiVersion": format!("{BOOTSTRAP}/v1beta2"), "kind": "KubeadmConfigTemplate", "metadata": metadata,
        "spec": {"template": {"spec": {
            "format": format, "joinConfiguration": {"nodeRegistration": {"name": "{{ ds.meta_data.local_hostname }}"}},
        }}},
    }));
    scene.world.apply(&json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment", "metadata": metadata,
        "spec": {
            "clusterName": scene.name, "replicas": 1, "selector": {"matchLabels": {}},
            "template": {"spec": {
                "clusterName": scene.name, "version": KUBERNETES,
                "bootstrap": {"configRef": reference(BOOTSTRAP, "KubeadmConfigTemplate")},
                "infrastructureRef": reference(INFRASTRUCTURE, "MCMMachineTemplate"),
            }},
        },
    }));
}

/// The Machine of a deployment, and the bootstrap data that the provider of kubeadm wrote for it.
fn bootstrap_data(scene: &Scene, deployment: &str) -> Option<(String, Vec<u8>)> {
    let selector = format!("cluster.x-k8s.io/deployment-name={deployment}");
    let machine = scene.selected("machines.cluster.x-k8s.io", &selector).into_iter().next()?;
    let secret = scene.find("secret", machine["spec"]["bootstrap"]["dataSecretName"].as_str()?)?;
    let value: k8s_openapi::ByteString = serde_json::from_value(secret["data"]["value"].clone()).unwrap();
    Some((name_of(&machine).to_owned(), value.0))
}

#[test]
fn bootstrap_data_of_kubeadm_reach_the_vms_of_both_clouds() {
    play(async |world: &'static World| {
        let clouds = Clouds::start().await;
        let scene = Scene::with_workers(world, "kubeadm", 0).await;
        let pki = world.workload.folder().join("pki");
        scene.add_secret("ca", &[("tls.crt", &pki.join("ca.crt")), ("tls.key", &pki.join("ca.key"))]);
        for provider in ["AWS", "GCP"] {
            world.apply(&json!({
                "apiVersion": "v1", "kind": "Secret",
                "metadata": {"name": provider.to_lowercase(), "namespace": scene.namespace},
                "stringData": clouds.credentials(provider),
            }));
            for (format, beginning) in
                [("cloud-config", "## template: jinja\n#cloud-config"), ("ignition", "{\"ignition\"")]
            {
                let name = format!("kubeadm-{}-{format}", provider.to_lowercase());
                workers(&scene, &name, &clouds.class(provider), format);
                let what = format!("bootstrap data of {name}");
                let (machine, written) = scene.until(&what, async || bootstrap_data(&scene, &name)).await;
                assert!(written.starts_with(beginning.as_bytes()), "{what}");
                let what = format!("the VM of {machine}");
                let read = scene.until(&what, async || clouds.user_data(provider, &machine).await).await;
                assert!(read == written, "the VM of {machine} has other user data");
            }
        }
    });
}
