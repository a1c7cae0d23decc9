//! A cluster with simulated workers in a separate namespace.

use std::{
    collections::BTreeSet,
    path::Path,
    time::{Duration, Instant},
};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    reading::Reader,
    support::{control_plane::ControlPlane, identity, objects, wait},
    world::{VERSION, World},
};

/// The version that the simulated kubelets report; another one would never be up to date.
pub const KUBERNETES: &str = "v1.33.0";
/// Longer than anything takes on a busy machine; only a failure waits this long.
const LIMIT: Duration = Duration::from_secs(600);
/// How long nothing is written where all is idle. `IDLE_SECONDS` sets another time.
const QUIET: Duration = Duration::from_secs(10);

pub struct Scene {
    pub world: &'static World,
    pub namespace: String,
    /// Of the Cluster; the names of its Machines and Nodes begin with it.
    pub name: String,
    /// Where its Nodes are. Without it they are in the workload cluster that scenes share.
    separate: Option<SeparateWorkload>,
}

/// An API server with the Nodes of one cluster only.
struct SeparateWorkload {
    server: ControlPlane,
    reader: Reader,
}

impl Scene {
    /// A namespace for a cluster of this name, and the kubeconfig of its API server.
    pub async fn new(world: &'static World, name: &str) -> Self {
        Self::in_namespace(world, world.management.namespace(name).await, name)
    }

    /// A cluster of this name, of which nothing is created.
    pub fn bare(world: &'static World, namespace: String, name: &str) -> Self {
        Self { world, namespace, name: name.to_owned(), separate: None }
    }

    /// The same in a namespace that exists.
    pub fn in_namespace(world: &'static World, namespace: String, name: &str) -> Self {
        let scene = Self::bare(world, namespace, name);
        scene.add_secret("kubeconfig", &[("value", world.workload.kubeconfig())]);
        scene
    }

    /// A namespace for a cluster of this name, whose control plane kubeadm's controllers create.
    pub async fn with_authority(world: &'static World, name: &str) -> Self {
        let scene = Self::bare(world, world.management.namespace(name).await, name);
        scene.add_authority().await;
        scene
    }

    /// The same with an API server for this cluster only, because a program there changes all Nodes.
    pub async fn with_separate_workload(world: &'static World, name: &str) -> Self {
        let server = world.further_workload(name).await;
        let separate = SeparateWorkload { reader: Reader::new(server.client()), server };
        let namespace = world.management.namespace(name).await;
        let scene = Self { world, namespace, name: name.to_owned(), separate: Some(separate) };
        scene.add_authority().await;
        scene
    }

    /// The API server of its Nodes.
    pub fn workload(&self) -> &ControlPlane {
        self.separate.as_ref().map_or(&self.world.workload, |separate| &separate.server)
    }

    /// Objects of that API server.
    pub fn workload_reader(&self) -> &Reader {
        self.separate.as_ref().map_or(&self.world.nodes, |separate| &separate.reader)
    }

    /// The authority of the workload cluster, from which kubeadm's controllers make its kubeconfig, and an object that
    /// `kubeadm init` creates in it.
    pub async fn add_authority(&self) {
        let pki = self.workload().folder().join("pki");
        self.add_secret("ca", &[("tls.crt", &pki.join("ca.crt")), ("tls.key", &pki.join("ca.key"))]);
        let configuration = format!(
            "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: {KUBERNETES}\n"
        );
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kubeadm-config", "namespace": "kube-system"},
            "data": {"ClusterConfiguration": configuration},
        });
        objects::apply(&self.workload().client(), &object).await;
    }

    /// A Secret of the cluster, from files.
    pub fn add_secret(&self, purpose: &str, files: &[(&str, &Path)]) {
        let content = |file: &Path| json!(k8s_openapi::ByteString(std::fs::read(file).unwrap()));
        let data: serde_json::Map<String, Value> =
            files.iter().map(|(key, file)| ((*key).to_owned(), content(file))).collect();
        self.world.apply(&json!({
            "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
            "metadata": {
                "name": format!("{}-{purpose}", self.name), "namespace": self.namespace,
                "labels": {"cluster.x-k8s.io/cluster-name": self.name},
            },
            "data": data,
        }));
    }

    /// The same with the cluster of the flavour, which is Available.
    pub async fn with_workers(world: &'static World, name: &str, workers: usize) -> Self {
        Self::with_cluster(world, name, "fixed", workers).await
    }

    /// The same with a MachinePool.
    pub async fn with_pool(world: &'static World, name: &str, workers: usize) -> Self {
        Self::with_cluster(world, name, "fixed-pool", workers).await
    }

    async fn with_cluster(world: &'static World, name: &str, flavour: &str, workers: usize) -> Self {
        let scene = Self::new(world, name).await;
        let text = scene.generate(flavour, workers);
        world.kubectl_with(&["apply", "-f", "-"], &text);
        scene.initialize();
        scene.until("the Cluster to be Available", async || scene.is_available()).await;
        scene
    }

    /// The output of `clusterctl generate cluster`.
    pub fn generate(&self, flavour: &str, workers: usize) -> String {
        self.generate_with(flavour, workers, &[])
    }

    /// The same with variables of the flavour.
    pub fn generate_with(&self, flavour: &str, workers: usize, variables: &[(&str, &str)]) -> String {
        self.generate_version(flavour, KUBERNETES, workers, variables)
    }

    /// The same with a version of Kubernetes.
    pub fn generate_version(
        &self,
        flavour: &str,
        kubernetes: &str,
        workers: usize,
        variables: &[(&str, &str)],
    ) -> String {
        let (workers, version) = (workers.to_string(), format!("mcm:{VERSION}"));
        let words = [
            "generate",
            "cluster",
            &self.name,
            "--infrastructure",
            &version,
            "--flavor",
            flavour,
            "--target-namespace",
            &self.namespace,
            "--kubernetes-version",
            kubernetes,
            "--worker-machine-count",
            &workers,
        ];
        let endpoint = identity::server(self.workload().kubeconfig());
        let mut command = self.world.command(&words);
        command.env("CONTROL_PLANE_ENDPOINT_HOST", endpoint.ip().to_string());
        command.env("CONTROL_PLANE_ENDPOINT_PORT", endpoint.port().to_string());
        let output = command.envs(variables.iter().copied()).output().unwrap();
        assert!(output.status.success(), "clusterctl {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The control plane has no controller, so its status is written here.
    pub fn initialize(&self) {
        let status = json!({"status": {
            "initialization": {"controlPlaneInitialized": true}, "externalManagedControlPlane": true, "version": KUBERNETES,
        }});
        let patch = ["--subresource=status", "--type=merge", "-p"].map(str::to_owned);
        let words = [&["patch".to_owned(), format!("fixedcontrolplane/{}", self.name)][..], &patch].concat();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.kubectl(&[&words[..], &[&status.to_string()]].concat());
    }

    pub fn kubectl(&self, words: &[&str]) -> String {
        self.world.kubectl(&[words, &["-n", &self.namespace]].concat())
    }

    /// A required object.
    pub fn get(&self, kind: &str, name: &str) -> Value {
        self.find(kind, name).unwrap_or_else(|| panic!("{kind} {name} is missing in {}", self.namespace))
    }

    pub fn find(&self, kind: &str, name: &str) -> Option<Value> {
        self.world.reader.find(&self.namespace, kind, name)
    }

    /// All objects of a kind.
    pub fn all(&self, kind: &str) -> Vec<Value> {
        self.selected(kind, "")
    }

    /// Objects with these labels.
    pub fn selected(&self, kind: &str, selector: &str) -> Vec<Value> {
        self.world.reader.all(&self.namespace, kind, selector)
    }

    /// Names of all Machines of Cluster API that are not being deleted.
    pub fn machines(&self) -> Vec<String> {
        let all = self.all("machines.cluster.x-k8s.io");
        let alive = all.iter().filter(|machine| machine["metadata"]["deletionTimestamp"].is_null());
        alive.map(|machine| name_of(machine).to_owned()).collect()
    }

    /// VMs of this cluster: provider IDs by the name of the machine.
    pub async fn vms(&self) -> std::collections::BTreeMap<String, Vec<String>> {
        let prefix = format!("{}-", self.name);
        let all = self.world.cloud.provider_ids().await;
        all.into_iter().filter(|(machine, _)| machine.starts_with(&prefix)).collect()
    }

    pub fn is_available(&self) -> Option<()> {
        condition(&self.find("cluster", &self.name)?, "Available").starts_with("True").then_some(())
    }

    /// All Machines have Nodes, and there are so many.
    pub fn has_running(&self, count: usize) -> Option<()> {
        let all = self.all("machines.cluster.x-k8s.io");
        let is_running = |machine: &Value| {
            machine["status"]["phase"] == "Running" && machine["metadata"]["deletionTimestamp"].is_null()
        };
        (all.len() == count && all.iter().all(is_running)).then_some(())
    }

    /// The pool of the flavour has so many Nodes, and exactly their VMs, and core has seen its last change.
    pub fn has_pool_of(&self, count: usize) -> Option<()> {
        let pool = self.find("machinepool", &format!("{}-mp-0", self.name))?;
        let status = &pool["status"];
        let nodes = status["nodeRefs"].as_array().map_or(0, Vec::len);
        let ids = pool["spec"]["providerIDList"].as_array().map_or(0, Vec::len);
        let is_seen = status["observedGeneration"] == pool["metadata"]["generation"];
        let counts = status["replicas"] == count && nodes == count && ids == count;
        (status["phase"] == "Running" && is_seen && counts).then_some(())
    }

    /// Nodes of this cluster.
    pub fn nodes(&self) -> Vec<Value> {
        let prefix = format!("{}-", self.name);
        let all = self.workload_reader().all("", "nodes", "").into_iter();
        all.filter(|node| name_of(node).starts_with(&prefix)).collect()
    }

    pub fn node_names(&self) -> BTreeSet<String> {
        self.nodes().iter().map(|node| name_of(node).to_owned()).collect()
    }

    /// No object of these kinds is written for a while.
    pub async fn is_idle(&self, kinds: &[&str]) {
        let versions = || {
            let all = kinds.iter().flat_map(|kind| self.all(kind));
            all.map(|object| object["metadata"]["resourceVersion"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let quiet = std::env::var("IDLE_SECONDS").map_or(QUIET, |text| Duration::from_secs(text.parse().unwrap()));
        let mut last = versions();
        let mut quiet_since = Instant::now();
        wait::until_within(LIMIT + quiet, "nothing to be written for a while", async || {
            let now = versions();
            if now != last {
                (last, quiet_since) = (now, Instant::now());
            }
            (quiet_since.elapsed() >= quiet).then_some(())
        })
        .await;
    }

    pub async fn until<T>(&self, what: &str, ask: impl AsyncFnMut() -> Option<T>) -> T {
        wait::until_within(LIMIT, &format!("{what} in {}", self.namespace), ask).await
    }

    /// A MachineHealthCheck for the machines of the deployment of the flavour.
    pub fn health_check(&self, checks: &Value) {
        let deployment = format!("{}-md-0", self.name);
        self.world.apply(&json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineHealthCheck",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": {
                "clusterName": self.name,
                "selector": {"matchLabels": {"cluster.x-k8s.io/deployment-name": deployment}},
                "checks": checks,
            },
        }));
    }

    /// Scales the deployment of the flavour.
    pub fn scale(&self, replicas: usize) {
        let deployment = format!("machinedeployment.cluster.x-k8s.io/{}-md-0", self.name);
        self.kubectl(&["scale", &deployment, &format!("--replicas={replicas}")]);
    }
}

/// The objects in a text.
pub fn documents(text: &str) -> Vec<Value> {
    let all = serde_yaml_ng::Deserializer::from_str(text).map(|one| Value::deserialize(one).unwrap());
    all.filter(|object| !object.is_null()).collect()
}

pub fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

/// `False Creating`, for a condition.
pub fn condition(object: &Value, type_: &str) -> String {
    let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = all.into_iter().find(|condition| condition["type"] == type_);
    found.map_or_else(String::new, |found| {
        format!("{} {}", found["status"].as_str().unwrap(), found["reason"].as_str().unwrap_or_default())
    })
}
