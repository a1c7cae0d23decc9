//! A simulation as the cloud of the demo. Its objects are the samples of `templates`, changed as little as possible.

use std::sync::Arc;

use anyhow::Result;
use async_trait::async_trait;
use mcm::cli::demo::{Cloud, Vms};
use serde_json::{Value, json};

use crate::{
    ec2::{Ec2, IMAGE, PROFILE},
    metal_stack,
    objects::merge,
    simulation::{ENDPOINTS, Simulation},
    world::World,
};

/// The cluster in the tags of the samples.
pub const CLUSTER: &str = "example";
/// Replicas in the samples.
const REPLICAS: usize = 3;
const NAMESPACE: &str = r#"{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "demo"}}"#;

/// A sample of each kind.
struct Samples {
    secret: &'static str,
    class: &'static str,
    deployment: &'static str,
}

const AWS: Samples = Samples {
    secret: include_str!("../../../templates/aws/secret.yaml"),
    class: include_str!("../../../templates/aws/machine-class.yaml"),
    deployment: include_str!("../../../templates/aws/machine-deployment.yaml"),
};
const GCP: Samples = Samples {
    secret: include_str!("../../../templates/gcp/secret.yaml"),
    class: include_str!("../../../templates/gcp/machine-class.yaml"),
    deployment: include_str!("../../../templates/gcp/machine-deployment.yaml"),
};

const METAL_STACK: Samples = Samples {
    secret: include_str!("../../../templates/metal-stack/secret.yaml"),
    class: include_str!("../../../templates/metal-stack/machine-class.yaml"),
    deployment: include_str!("../../../templates/metal-stack/machine-deployment.yaml"),
};
/// `kubectl` shows the VMs of a fake without a client.
const KUBECTL: &str = "kubectl get mc -n demo -o custom-columns=NAME:.metadata.name,VM:.spec.providerID";

/// A simulation with its pool.
pub struct InCloud {
    cloud: Arc<dyn Simulation>,
    objects: String,
    hint: String,
}

impl InCloud {
    pub fn aws(ec2: Arc<Ec2>) -> Self {
        let interface = json!({"subnetID": ec2.subnet, "securityGroupIDs": [ec2.group]});
        let change = json!({
            "ami": IMAGE, "iam": {"name": PROFILE}, "keyName": null, "networkInterfaces": [interface],
        });
        let objects = AWS.changed(&ec2.secret(), &change, "machineType", ["m5.large", "m5.2xlarge"]);
        let hint = format!("AWS_ENDPOINT_URL={} aws ec2 describe-instances --region eu-west-1", ec2.url);
        Self { cloud: ec2, objects, hint }
    }

    pub fn gcp(gce: Arc<World>) -> Self {
        let objects = GCP.changed(&gce.secret(), &json!({}), "machineType", ["n2-standard-2", "n2-standard-8"]);
        Self { cloud: gce, objects, hint: KUBECTL.to_owned() }
    }

    pub fn metal_stack(metal: Arc<metal_stack::World>) -> Self {
        let spec = metal.spec(CLUSTER);
        let change = json!({"project": spec["project"], "network": spec["network"]});
        let objects = METAL_STACK.changed(&metal.secret(), &change, "size", metal_stack::World::SIZES);
        Self { cloud: metal, objects, hint: KUBECTL.to_owned() }
    }
}

impl Samples {
    /// The objects of the demo: `types` are the values of `field` in the classes `small` and `large`.
    fn changed(&self, credentials: &Value, spec: &Value, field: &str, types: [&str; 2]) -> String {
        let read = |text: &str| -> Value { serde_yaml_ng::from_str(text).unwrap() };
        let named = |name: &str| json!({"name": name, "namespace": "demo"});
        let mut secret = read(self.secret);
        let user_data = secret["stringData"]["userData"].clone();
        merge(&mut secret, json!({"metadata": named("pool"), "stringData": credentials}));
        secret["stringData"]["userData"] = user_data;
        let classes = ["small", "large"].into_iter().zip(types).map(|(name, machine_type)| {
            let mut class = read(self.class);
            merge(&mut class, json!({"metadata": named(name), "secretRef": named("pool"), "providerSpec": spec}));
            class["providerSpec"][field] = machine_type.into();
            class
        });
        let mut deployment = read(self.deployment);
        let template = json!({"spec": {"class": {"name": "small"}}});
        merge(&mut deployment, json!({"metadata": named("pool"), "spec": {"template": template}}));
        assert_eq!(deployment["spec"]["replicas"], REPLICAS);
        let objects = [secret].into_iter().chain(classes).chain([deployment]);
        let documents = objects.map(|object| format!("---\n{object}\n"));
        format!("{NAMESPACE}\n{}", documents.collect::<String>())
    }
}

#[async_trait]
impl Cloud for InCloud {
    fn replicas(&self) -> usize {
        REPLICAS
    }

    /// Orphans are deleted as early as possible.
    fn flags(&self) -> Vec<String> {
        ["--machine-safety-orphan-vms-period=1m", "--machine-safety-orphan-vms-minimum-age=1m", ENDPOINTS]
            .map(str::to_owned)
            .to_vec()
    }

    fn objects(&self) -> String {
        self.objects.clone()
    }

    fn hint(&self) -> String {
        self.hint.clone()
    }

    async fn create_by_hand(&self) -> Result<bool> {
        self.cloud.create("by-hand", CLUSTER).await;
        self.cloud.create("by-hand-elsewhere", "another").await;
        Ok(true)
    }

    async fn kill(&self, provider_id: &str) -> Result<()> {
        self.cloud.end(provider_id).await;
        Ok(())
    }

    async fn vms(&self) -> Result<Vms> {
        let (all, created) = (self.cloud.vms().await, self.cloud.created().await);
        let (own, foreign): (Vec<_>, Vec<_>) = all.into_iter().partition(|vm| vm.cluster == CLUSTER);
        Ok(Vms {
            created,
            alive: own.len() as u64,
            by_hand: own.into_iter().filter(|vm| !vm.has_uid).map(|vm| vm.machine).collect(),
            foreign: foreign.len() as u64,
        })
    }
}
