//! A simulation as the cloud of the demo. Its objects are the samples of `templates`, changed as little as possible.

use std::{fs, path::Path, sync::Arc};

use anyhow::Result;
use async_trait::async_trait;
use mcm::cli::demo::{DemoCloud, DemoVms};
use serde_json::{Value, json};

use crate::{
    objects::merge,
    simulation::{Demo, ENDPOINTS, Simulation},
};

/// The cluster in the tags of the samples.
pub const CLUSTER: &str = "example";
/// Replicas in the samples.
const REPLICAS: usize = 3;
const NAMESPACE: &str = r#"{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "demo"}}"#;

/// A simulation with its pool.
pub struct InCloud {
    cloud: Arc<dyn Simulation>,
    objects: String,
}

impl InCloud {
    /// The samples in the folder `templates/<name>`, changed to fit a simulation.
    pub fn new(name: &str, cloud: Arc<dyn Simulation>) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("templates").join(name);
        let objects = objects(&folder, &*cloud);
        Self { cloud, objects }
    }
}

/// The objects of the demo, with the classes `small` and `large`.
fn objects(samples: &Path, cloud: &dyn Simulation) -> String {
    let read = |kind: &str| -> Value {
        let file = samples.join(format!("{kind}.yaml"));
        serde_yaml_ng::from_str(&fs::read_to_string(file).unwrap()).unwrap()
    };
    let named = |name: &str| json!({"name": name, "namespace": "demo"});
    let Demo { spec, field, values } = cloud.demo(CLUSTER);
    let mut secret = read("secret");
    let user_data = secret["stringData"]["userData"].clone();
    merge(&mut secret, json!({"metadata": named("pool")}));
    secret["stringData"] = cloud.secret();
    secret["stringData"]["userData"] = user_data;
    let classes = ["small", "large"].into_iter().zip(values).map(|(name, value)| {
        let mut class = read("machine-class");
        merge(&mut class, json!({"metadata": named(name), "secretRef": named("pool"), "providerSpec": spec}));
        *field.split('.').fold(&mut class["providerSpec"], |part, name| &mut part[name]) = value.into();
        class
    });
    let mut deployment = read("machine-deployment");
    let template = json!({"spec": {"class": {"name": "small"}}});
    merge(&mut deployment, json!({"metadata": named("pool"), "spec": {"template": template}}));
    assert_eq!(deployment["spec"]["replicas"], REPLICAS);
    let objects = [secret].into_iter().chain(classes).chain([deployment]);
    let documents = objects.map(|object| format!("---\n{object}\n"));
    format!("{NAMESPACE}\n{}", documents.collect::<String>())
}

#[async_trait]
impl DemoCloud for InCloud {
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
        self.cloud.hint()
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

    async fn vms(&self) -> Result<DemoVms> {
        let (all, created) = (self.cloud.vms().await, self.cloud.created().await);
        let (own, foreign): (Vec<_>, Vec<_>) = all.into_iter().partition(|vm| vm.cluster == CLUSTER);
        Ok(DemoVms {
            created,
            alive: own.len() as u64,
            by_hand: own.into_iter().filter(|vm| !vm.has_uid).map(|vm| vm.machine).collect(),
            foreign: foreign.len() as u64,
        })
    }
}
