//! `mcm capi-manager` with the drivers of clouds. The test writes what Cluster API core and a bootstrap provider write.

#[cfg(all(feature = "aws", feature = "gcp"))]
mod tenants;
#[cfg(all(feature = "aws", feature = "gcp"))]
mod watch;

use std::path::PathBuf;

use futures::StreamExt;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams},
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    simulation::{ENDPOINTS, Simulation},
    support::{
        control_plane::{ControlPlane, install},
        identity, logs, objects,
        program::{Program, free_port, mcm},
        wait,
    },
};

const NAMESPACE: &str = "capmcm-system";
const CLUSTER: &str = "c";
/// Bootstrap data of all machines.
const BOOT: &str = "boot";
const RIGHTS: &str = include_str!("../../../config/cluster-api/rbac.yaml");
const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io/v1beta2";

/// A management cluster with the provider.
struct World {
    control_plane: ControlPlane,
    client: Client,
    folder: PathBuf,
    provider: Option<Program>,
}

impl World {
    async fn new(name: &str) -> Self {
        let control_plane = ControlPlane::apart().await.unwrap().install().await.unwrap();
        let client = control_plane.client();
        let folder = tempfile::Builder::new().prefix(&format!("{name}-")).tempdir().unwrap().keep();
        install(&client, &mcm_capi::crd::crds()).await.unwrap();
        // The kinds of core as far as they matter here.
        install(&client, &mcm_capi::crd::stand_in()).await.unwrap();
        install(&client, &[serde_json::from_value(machine_pools()).unwrap()]).await.unwrap();
        control_plane.ensure_namespace(NAMESPACE).await;
        for document in serde_yaml_ng::Deserializer::from_str(RIGHTS) {
            objects::apply(&client, &Value::deserialize(document).unwrap()).await;
        }
        Self { control_plane, client, folder, provider: None }
    }

    /// Starts the provider with its own rights and no more.
    async fn start(&mut self, flags: &[&str], environment: &[(&str, &str)]) {
        let admin = self.control_plane.kubeconfig();
        let kubeconfig = identity::kubeconfig(&self.client, admin, NAMESPACE, "capmcm-manager", &self.folder).await;
        let health = free_port();
        let mut arguments = vec![
            "capi-manager".to_owned(),
            format!("--kubeconfig={}", kubeconfig.display()),
            ENDPOINTS.to_owned(),
            "--kube-api-qps=1000".to_owned(),
            "--kube-api-burst=1000".to_owned(),
            format!("--health-addr=127.0.0.1:{health}"),
            format!("--diagnostics-address=127.0.0.1:{}", free_port()),
        ];
        arguments.extend(flags.iter().map(|&flag| flag.to_owned()));
        let mut environment: Vec<_> =
            environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        environment.push(("POD_NAMESPACE".to_owned(), NAMESPACE.to_owned()));
        let mut program = Program::start_in(environment, mcm(), arguments, self.folder.join("provider.log"));
        let url = format!("http://127.0.0.1:{health}/readyz");
        wait::until("the provider to be ready", async || {
            program.assert_runs();
            reqwest::get(&url).await.ok()?.status().is_success().then_some(())
        })
        .await;
        self.provider = Some(program);
    }

    /// A namespace with a Cluster that is provisioned, and bootstrap data.
    async fn tenant(&self, name: &str) {
        self.control_plane.ensure_namespace(name).await;
        let of = |kind: &str, api_version: &str, name: &str| json!({ "apiVersion": api_version, "kind": kind, "metadata": { "name": name } });
        let mut cluster = of("Cluster", "cluster.x-k8s.io/v1beta2", CLUSTER);
        cluster["spec"] = json!({
            "infrastructureRef": { "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "OtherCluster", "name": CLUSTER },
        });
        self.apply(name, cluster).await;
        let status = json!({ "status": { "initialization": { "infrastructureProvisioned": true } } });
        let clusters = self.api(name, "cluster.x-k8s.io/v1beta2", "Cluster");
        clusters.patch_status(CLUSTER, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
        let mut boot = of("Secret", "v1", BOOT);
        boot["stringData"] = json!({ "value": "#cloud-config\n" });
        self.apply(name, boot).await;
    }

    /// A class in a namespace, without Secrets.
    async fn class(&self, namespace: &str, name: &str, cloud: &dyn Simulation, change: Value) {
        let mut class = objects::class(name);
        class["provider"] = json!(cloud.provider());
        class["providerSpec"] = cloud.spec(namespace);
        class.as_object_mut().unwrap().remove("secretRef");
        objects::merge(&mut class, change);
        self.apply(namespace, class).await;
    }

    /// Credentials of a cloud.
    async fn credentials(&self, namespace: &str, name: &str, data: Value) {
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name }, "stringData": data });
        self.apply(namespace, secret).await;
    }

    /// A Machine and its MCMMachine, whose spec has these fields beside its class.
    async fn machine(&self, namespace: &str, name: &str, class: &str, spec: Value) {
        let labels = json!({ "cluster.x-k8s.io/cluster-name": CLUSTER });
        let metadata = json!({ "name": name, "labels": labels });
        let machine = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": metadata,
            "spec": {
                "clusterName": CLUSTER, "bootstrap": { "dataSecretName": BOOT },
                "infrastructureRef": { "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "MCMMachine", "name": name },
            },
        });
        let machine = self.apply(namespace, machine).await;
        let owner = json!([{
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": name, "controller": true,
            "uid": machine.metadata.uid,
        }]);
        let mut object = json!({
            "apiVersion": INFRASTRUCTURE, "kind": "MCMMachine",
            "metadata": { "name": name, "labels": labels, "ownerReferences": owner },
            "spec": { "machineClassRef": { "name": class } },
        });
        objects::merge(&mut object["spec"], spec);
        self.apply(namespace, object).await;
    }

    /// So many Machines `m-<number>`.
    async fn machines(&self, namespace: &str, count: usize, class: &str) {
        let all = (0..count).map(|number| async move {
            self.machine(namespace, &format!("m-{number}"), class, json!({})).await;
        });
        futures::stream::iter(all).buffer_unordered(20).collect::<Vec<_>>().await;
    }

    async fn apply(&self, namespace: &str, mut object: Value) -> DynamicObject {
        object["metadata"]["namespace"] = namespace.into();
        objects::apply(&self.client, &object).await
    }

    fn api(&self, namespace: &str, api_version: &str, kind: &str) -> Api<DynamicObject> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(self.client.clone(), namespace, &resource)
    }

    /// All MCMMachines of a namespace.
    async fn shown(&self, namespace: &str) -> Vec<Shown> {
        let all = self.api(namespace, INFRASTRUCTURE, "MCMMachine").list(&ListParams::default()).await.unwrap();
        all.items.iter().map(|object| Shown(serde_json::to_value(object).unwrap())).collect()
    }

    async fn find(&self, namespace: &str, name: &str) -> Shown {
        let object = self.api(namespace, INFRASTRUCTURE, "MCMMachine").get(name).await.unwrap();
        Shown(serde_json::to_value(&object).unwrap())
    }

    /// Reasons of the events of an object of a kind.
    async fn events(&self, namespace: &str, kind: &str, name: &str) -> Vec<String> {
        let fields = format!("involvedObject.kind={kind},involvedObject.name={name}");
        let all = self.api(namespace, "v1", "Event").list(&ListParams::default().fields(&fields)).await.unwrap();
        all.items.iter().filter_map(|event| Some(event.data.get("reason")?.as_str()?.to_owned())).collect()
    }
}

/// A kind that the stand-in does not serve, without a schema.
fn machine_pools() -> Value {
    let schema = json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "machinepools.cluster.x-k8s.io" },
        "spec": {
            "group": "cluster.x-k8s.io", "scope": "Namespaced",
            "names": { "kind": "MachinePool", "plural": "machinepools", "singular": "machinepool" },
            "versions": [{ "name": "v1beta2", "served": true, "storage": true, "schema": schema }],
        },
    })
}

/// An MCMMachine as the API server has it.
struct Shown(Value);

impl Shown {
    fn name(&self) -> &str {
        self.0["metadata"]["name"].as_str().unwrap()
    }

    /// Status, reason and message of a condition.
    fn condition(&self, type_: &str) -> Option<[&str; 3]> {
        let all = self.0["status"]["conditions"].as_array()?;
        let found = all.iter().find(|condition| condition["type"] == type_)?;
        Some(["status", "reason", "message"].map(|field| found[field].as_str().unwrap_or_default()))
    }

    fn is_ready(&self) -> bool {
        self.condition("Ready").is_some_and(|[status, ..]| status == "True")
    }

    /// `Ready` is False for this reason.
    fn lacks(&self, wanted: &str) -> bool {
        self.condition("Ready").is_some_and(|[status, reason, _]| (status, reason) == ("False", wanted))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        drop(self.provider.take());
        let logs = logs::of(&self.folder);
        if std::thread::panicking() {
            logs.iter().for_each(|log| logs::print_tail(log));
            return;
        }
        for log in logs {
            let text = logs::assert_sound(&log);
            let refused = text.lines().find(|line| line.contains("is forbidden"));
            assert!(refused.is_none(), "in {}: {refused:?}", log.display());
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
