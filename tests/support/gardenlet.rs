//! The part of gardenlet for the machines of a shoot: what it lays out in the namespace of the shoot in a seed.

use std::{
    fs,
    path::{Path, PathBuf},
};

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Namespace, Secret},
};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};

/// The label of the namespaces of shoots, and its value.
pub const ROLE: (&str, &str) = ("gardener.cloud/role", "shoot");
/// The Secret with the kubeconfig that all shoots of a seed have in common. Its name ends with a hash of the CA.
pub const KUBECONFIG: &str = "generic-token-kubeconfig-0a1b2c3d";
/// The file that this kubeconfig names.
pub const TOKEN_FILE: &str = "/var/run/secrets/gardener.cloud/shoot/generic-kubeconfig/token";
const DEPLOYMENT: &str = "machine-controller-manager";
const TOKEN: &str = "shoot-access-machine-controller-manager";
const MANAGER: &str = "gardenlet";

/// The namespace of a shoot in a seed.
pub struct ShootLayout {
    client: Client,
    namespace: String,
    /// A kubeconfig with the access to the cluster of the shoot.
    target: PathBuf,
}

impl ShootLayout {
    pub fn new(client: &Client, namespace: &str, target: &Path) -> Self {
        Self { client: client.clone(), namespace: namespace.to_owned(), target: target.to_owned() }
    }

    /// Sets labels of the namespace. Null removes a label.
    pub async fn label(&self, labels: Value) {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
        namespaces.patch(&self.namespace, &PatchParams::default(), &patch).await.unwrap();
    }

    /// The generic kubeconfig of the shoot, with another server if one is given.
    pub fn generic_kubeconfig(&self, server: Option<&str>) -> String {
        let mut kubeconfig = self.access();
        kubeconfig["users"][0]["user"] = json!({ "tokenFile": TOKEN_FILE });
        if let Some(server) = server {
            kubeconfig["clusters"][0]["cluster"]["server"] = json!(server);
        }
        kubeconfig.to_string()
    }

    /// Writes the Secrets with the current access to the cluster of the shoot.
    pub async fn write_access(&self) {
        let token = self.access()["users"][0]["user"]["token"].clone();
        self.write_secret(KUBECONFIG, json!({"kubeconfig": self.generic_kubeconfig(None)})).await;
        self.write_secret(TOKEN, json!({ "token": token })).await;
    }

    /// Writes a Secret.
    pub async fn write_secret(&self, name: &str, data: Value) {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data});
        secrets.patch(name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&secret)).await.unwrap();
    }

    /// Writes the Deployment with so many replicas: 0 switches the managers of the machines off.
    pub async fn scale_manager(&self, replicas: u32) {
        let labels = json!({"app": "kubernetes", "role": DEPLOYMENT});
        let source = |name: &str, item: &str| {
            let items = json!([{"key": item, "path": item}]);
            json!({"secret": {"name": name, "items": items, "optional": false}})
        };
        let volume = json!({
            "name": "kubeconfig",
            "projected": {"defaultMode": 420, "sources": [source(KUBECONFIG, "kubeconfig"), source(TOKEN, "token")]},
        });
        let container = json!({"name": DEPLOYMENT, "image": "registry.example/mcm"});
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": DEPLOYMENT, "namespace": self.namespace},
            "spec": {
                "replicas": replicas, "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container], "volumes": [volume]}},
            },
        });
        let params = PatchParams::apply(MANAGER).force();
        self.deployments().patch(DEPLOYMENT, &params, &Patch::Apply(&deployment)).await.unwrap();
    }

    /// Deletes the Deployment.
    pub async fn remove_manager(&self) {
        self.deployments().delete(DEPLOYMENT, &DeleteParams::background()).await.unwrap();
    }

    fn deployments(&self) -> Api<Deployment> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn access(&self) -> Value {
        serde_yaml_ng::from_str(&fs::read_to_string(&self.target).unwrap()).unwrap()
    }
}
