//! The flavour with the control plane of another provider and workers of mcm, on the simulated cloud.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    other_provider::{AWS, Network, OtherProvider, simulated},
    scene::Scene,
    support::identity,
};

const ZONE: &str = "simulated-a";

/// Creates the cluster of a scene that has its authority. The other provider runs until it is dropped.
pub async fn create(scene: &Scene, workers: usize) -> OtherProvider {
    let endpoint = identity::server(scene.workload().kubeconfig());
    let network = Network {
        spec: json!({"controlPlaneEndpoint": {"host": endpoint.ip().to_string(), "port": endpoint.port()}}),
        status: json!({"ready": true, "failureDomains": {ZONE: {"controlPlane": true}}}),
    };
    let other = OtherProvider::start_on(scene, &AWS, simulated(scene), Some(network)).await;
    let variables = [("AWS_REGION", "simulated"), ("AWS_ZONE", ZONE), ("AWS_AMI_ID", "ami-1")];
    let text = scene.generate_with("aws-hybrid", workers, &variables);
    for object in serde_yaml_ng::Deserializer::from_str(&text).map(|one| Value::deserialize(one).unwrap()) {
        // There are no addons.
        if object["kind"] != "ClusterResourceSet" {
            scene.world.apply(&on_simulated_cloud(object));
        }
    }
    other
}

/// An object of the flavour, with VMs of the simulated cloud in place of those of AWS.
fn on_simulated_cloud(mut object: Value) -> Value {
    if object["kind"] == "MCMMachineTemplate" {
        let class = &mut object["spec"]["template"]["spec"]["machineClass"];
        let (spec, template) = (json!({"instanceType": "small", "zone": ZONE}), class["nodeTemplate"].clone());
        *class = json!({"provider": "simulated", "providerSpec": spec, "nodeTemplate": template});
    }
    object
}
