//! Nothing secret is told: marker values are planted in Secrets and user data, and looked for in every log, object, event
//! and metric.

use std::{
    collections::BTreeSet,
    fs,
    sync::{Arc, Mutex, PoisonError},
};

use aho_corasick::AhoCorasick;
use futures::StreamExt;
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{ConfigMap, Event, Node, Pod, Secret},
};
use kube::{
    Api, Client, ResourceExt,
    api::ListParams,
    runtime::{WatchStreamExt, watcher},
};
use mcm::api::machine::{Machine, MachineClass, MachineDeployment, MachineSet};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::task::AbortHandle;

use crate::{
    meter,
    run::{Bound, Run},
    stage::Stage,
    support::{
        control_plane::ControlPlane,
        secrets::forms,
        world::{Manager, World},
    },
};

const TOKENS: &str = "kube-system";

/// Values that must not be found anywhere.
pub struct Markers {
    planted: Vec<String>,
    /// Secrets of the created bootstrap tokens.
    tokens: Arc<Mutex<BTreeSet<String>>>,
    watch: AbortHandle,
}

impl Markers {
    /// Three values, and all bootstrap tokens that are created from now on.
    pub fn new(target: Client) -> Self {
        let value = |what: &str| format!("{what}-{:016x}{:016x}", rand::random::<u64>(), rand::random::<u64>());
        let tokens = Arc::<Mutex<BTreeSet<String>>>::default();
        let watch = tokio::spawn(follow(target, Arc::clone(&tokens))).abort_handle();
        Self { planted: ["user-data", "password", "key"].map(value).to_vec(), tokens, watch }
    }

    /// The Secret of the classes: user data and credentials, with a marker in each.
    pub fn secret(&self, name: &str) -> Value {
        let [user_data, password, key] = &self.planted[..] else { panic!("there are three") };
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
            "stringData": {
                "userData": format!("#cloud-config\n# <<BOOTSTRAP_TOKEN>> <<MACHINE_NAME>>\npassword: {user_data}\n"),
                "password": password,
                "serviceaccount.json": json!({"private_key": key}).to_string(),
            },
        })
    }

    /// Every place where one of them is.
    pub async fn found(&self, world: &World, managers: &[&Manager]) -> Vec<String> {
        self.watch.abort();
        let mut needles: Vec<String> = self.planted.iter().flat_map(|value| forms(value)).collect();
        let tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner).clone();
        needles.extend(tokens.iter().flat_map(|token| forms(token)));
        // Thousands of tokens are searched for in hundreds of megabytes.
        let needles = AhoCorasick::new(needles).unwrap();
        let mut places = Vec::new();
        let mut search = |place: String, text: &str| {
            if needles.is_match(text) {
                places.push(place);
            }
        };
        for entry in fs::read_dir(world.folder()).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() && path.extension().is_none_or(|extension| extension != "kubeconfig") {
                search(path.display().to_string(), &String::from_utf8_lossy(&fs::read(&path).unwrap()));
            }
        }
        for (at, manager) in managers.iter().enumerate() {
            if let Some(metrics) = meter::metrics_of(manager).await {
                search(format!("metrics of manager {at}"), &metrics);
            }
        }
        for (cluster, client) in [("control", &world.client), ("target", &world.target)] {
            search(format!("events of {cluster}"), &all::<Event>(client).await);
            search(format!("machines of {cluster}"), &all::<Machine>(client).await);
            search(format!("sets of {cluster}"), &all::<MachineSet>(client).await);
            search(format!("deployments of {cluster}"), &all::<MachineDeployment>(client).await);
            search(format!("classes of {cluster}"), &all::<MachineClass>(client).await);
            search(format!("leases of {cluster}"), &all::<Lease>(client).await);
            search(format!("nodes of {cluster}"), &all::<Node>(client).await);
            search(format!("pods of {cluster}"), &all::<Pod>(client).await);
            search(format!("config maps of {cluster}"), &all::<ConfigMap>(client).await);
        }
        places
    }

    /// The number of values to search for.
    pub fn count(&self) -> usize {
        self.planted.len() + self.tokens.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl Drop for Markers {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

/// All objects of a kind, as text; empty for a cluster without the kind.
async fn all<K>(client: &Client) -> String
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let listed = Api::<K>::all(client.clone()).list(&ListParams::default()).await;
    listed.map(|list| serde_json::to_string(&list.items).unwrap()).unwrap_or_default()
}

async fn follow(target: Client, tokens: Arc<Mutex<BTreeSet<String>>>) {
    let secrets: Api<Secret> = Api::namespaced(target, TOKENS);
    let mut events = watcher(secrets, watcher::Config::default()).default_backoff().applied_objects().boxed();
    while let Some(event) = events.next().await {
        let Ok(secret) = event else { continue };
        if !secret.name_any().starts_with("bootstrap-token-") {
            continue;
        }
        let value = secret.data.and_then(|mut data| data.remove("token-secret"));
        let text = value.and_then(|value| String::from_utf8(value.0).ok());
        tokens.lock().unwrap_or_else(PoisonError::into_inner).extend(text);
    }
}

/// All that a machine can go through, with errors of the cloud, at the highest verbosity.
#[tokio::test]
async fn nothing_secret_is_in_logs_objects_events_or_metrics() {
    let run = Run::start("secrets");
    let machines = run.count("machines", 20, 5);
    let control = ControlPlane::shared().await;
    let stage = Stage::set(run, control, control, &[]).await;
    let manager = stage.world.run(&["--v=10"]).await;
    stage.cloud_errors("Unavailable", 0.3).await;
    stage.pool(machines, json!({})).await;
    stage.settled(machines, "small").await;
    stage.world.roll("large").await;
    stage.settled(machines, "large").await;
    stage.world.cloud.control(json!({})).await;
    // Errors about invalid input must not quote it: a Secret that is no longer complete, a class that is.
    stage
        .world
        .apply(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass", "metadata": {"name": "broken"},
            "provider": "simulated", "providerSpec": {"bootLatency": "soon"}, "secretRef": {"name": "pool"},
        }))
        .await;
    stage.world.remove_pool().await;
    stage.run.check("values looked for", crate::run::number(stage.markers.count()), "", Bound::AtLeast(4.0));
    stage.close(Some(2 * machines), &[&manager]).await;
}
