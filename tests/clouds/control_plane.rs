//! Machines of a control plane in the load balancer of a cloud: `mcm capi-manager` on an API server without Cluster API core,
//! in whose place the test creates and deletes objects.

use std::{path::PathBuf, sync::Arc};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, Patch, PatchParams},
    core::NamespaceResourceScope,
};
use mcm_conversion::types::{Cluster, MCMCluster, MCMMachine};
use rstest::rstest;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    load_balancer::{Balanced, Call},
    members::{Recorder, until_unanswered},
    simulation::ENDPOINTS,
    support::{
        control_plane::{ControlPlane, install},
        identity, logs, objects,
        program::{Program, free_port, mcm},
        wait,
    },
};

const MANIFESTS: [&str; 2] =
    [include_str!("../../config/cluster-api/namespace.yaml"), include_str!("../../config/cluster-api/rbac.yaml")];
const SYSTEM: &str = "capmcm-system";
const NAME: &str = "cp";
const CREDENTIALS: &str = "credentials";

/// A Cluster with an MCMCluster, and a manager.
struct Stage {
    client: Client,
    namespace: String,
    cloud: Arc<dyn Balanced>,
    manager: Program,
    health: String,
    folder: PathBuf,
    _control_plane: ControlPlane,
}

impl Stage {
    async fn start(cloud: Arc<dyn Balanced>) -> Self {
        let control_plane = ControlPlane::apart().await.unwrap().install().await.unwrap();
        let client = control_plane.client();
        install(&client, &mcm_capi::crd::crds()).await.unwrap();
        install(&client, &mcm_capi::crd::stand_in()).await.unwrap();
        install(&client, &[machine_pools()]).await.unwrap();
        for document in MANIFESTS.into_iter().flat_map(serde_yaml_ng::Deserializer::from_str) {
            objects::apply(&client, &Value::deserialize(document).unwrap()).await;
        }
        let folder = tempfile::Builder::new().prefix("control-plane-").tempdir().unwrap().keep();
        let admin = control_plane.kubeconfig().to_owned();
        let kubeconfig = identity::kubeconfig(&client, &admin, SYSTEM, "capmcm-manager", &folder).await;
        let address = format!("127.0.0.1:{}", free_port());
        let arguments = [
            "capi-manager".to_owned(),
            format!("--kubeconfig={}", kubeconfig.display()),
            ENDPOINTS.to_owned(),
            format!("--health-addr={address}"),
            format!("--diagnostics-address=127.0.0.1:{}", free_port()),
            "--v=3".to_owned(),
        ];
        let manager = Program::start(mcm(), arguments.to_vec(), folder.join("manager.log"));
        let health = format!("http://{address}/readyz");
        let namespace = control_plane.namespace("members").await;
        let stage = Self { client, namespace, cloud, manager, health, folder, _control_plane: control_plane };
        stage.create_cluster().await;
        stage
    }

    fn api<K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn apply(&self, mut object: Value) -> Value {
        object["metadata"]["namespace"] = self.namespace.clone().into();
        serde_json::to_value(objects::apply(&self.client, &object).await).unwrap()
    }

    /// A Cluster whose infrastructure is provisioned.
    async fn create_cluster(&self) {
        let mut secret = self.cloud.secret();
        secret.as_object_mut().unwrap().remove("userData");
        self.apply(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": CREDENTIALS}, "stringData": secret,
        }))
        .await;
        let reference = json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "MCMCluster", "name": NAME});
        let cluster = self
            .apply(json!({
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": NAME},
                "spec": {"infrastructureRef": reference},
            }))
            .await;
        self.apply(json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "MCMCluster",
            "metadata": {"name": NAME, "labels": labels(), "ownerReferences": [owner(&cluster)]},
            "spec": {
                "controlPlaneEndpoint": {"host": "api.example.com", "port": 6443},
                "controlPlaneLoadBalancer": self.cloud.balancer().await,
                "credentialsSecretRef": {"name": CREDENTIALS},
            },
        }))
        .await;
        let clusters = self.api::<MCMCluster>();
        wait::until("the MCMCluster to be provisioned", async || {
            let status = clusters.get(NAME).await.unwrap().status?;
            (status.initialization.provisioned == Some(true)).then_some(())
        })
        .await;
        let status = json!({"status": {"initialization": {"infrastructureProvisioned": true}}});
        self.api::<Cluster>().patch_status(NAME, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    }

    /// A machine of the control plane, as core and the kubeadm providers create it.
    async fn create(&self, name: &str) {
        self.apply(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"value": "#cloud-config\n"},
        }))
        .await;
        let reference = json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "MCMMachine", "name": name});
        let machine = self
            .apply(json!({
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
                "metadata": {"name": name, "labels": labels()},
                "spec": {
                    "clusterName": NAME, "bootstrap": {"dataSecretName": name}, "infrastructureRef": reference,
                },
            }))
            .await;
        let class = json!({"provider": self.cloud.provider(), "providerSpec": self.cloud.spec(NAME)});
        self.apply(json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "MCMMachine",
            "metadata": {"name": name, "labels": labels(), "ownerReferences": [owner(&machine)]},
            "spec": {"machineClass": class},
        }))
        .await;
    }

    async fn until_provisioned(&self, name: &str) {
        let machines = self.api::<MCMMachine>();
        self.until(&format!("{name} to be provisioned"), async || {
            let status = machines.get(name).await.unwrap().status?;
            (status.initialization.provisioned == Some(true)).then_some(())
        })
        .await;
    }

    /// Core has drained the Node.
    async fn delete(&self, name: &str) {
        self.api::<MCMMachine>().delete(name, &DeleteParams::default()).await.unwrap();
    }

    async fn until_gone(&self, name: &str) {
        let machines = self.api::<MCMMachine>();
        let what = format!("{name} to be gone");
        self.until(&what, async || machines.get_opt(name).await.unwrap().is_none().then_some(())).await;
    }

    /// The number of machines, which are those in the load balancer.
    async fn assert_balanced(&self, count: usize) {
        let (members, living) = (self.cloud.members().await, self.cloud.living().await);
        assert_eq!((&members, members.len()), (&living, count));
    }

    async fn until<T>(&self, what: &str, ask: impl AsyncFnMut() -> Option<T>) -> T {
        wait::until_within(crate::members::LIMIT, what, ask).await
    }

    async fn is_ready(&self) {
        let ready = async || reqwest::get(&self.health).await.ok()?.status().is_success().then_some(());
        self.until("the manager to be ready", ready).await;
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        for log in logs::of(&self.folder) {
            if std::thread::panicking() {
                logs::print_tail(&log);
            } else {
                logs::assert_sound(&log);
            }
        }
    }
}

fn labels() -> Value {
    json!({"cluster.x-k8s.io/cluster-name": NAME, "cluster.x-k8s.io/control-plane": ""})
}

fn owner(object: &Value) -> Value {
    json!({
        "apiVersion": object["apiVersion"], "kind": object["kind"], "name": object["metadata"]["name"],
        "uid": object["metadata"]["uid"], "controller": true,
    })
}

/// The manager watches MachinePools, which the stand-in for core does not serve.
fn machine_pools() -> CustomResourceDefinition {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = json!({"name": "v1beta2", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    let definition = json!({
        "metadata": {"name": "machinepools.cluster.x-k8s.io"},
        "spec": {
            "group": "cluster.x-k8s.io", "scope": "Namespaced", "versions": [version],
            "names": {"kind": "MachinePool", "plural": "machinepools", "singular": "machinepool"},
        },
    });
    serde_json::from_value(definition).unwrap()
}

async fn start(cloud: &str) -> Arc<dyn Balanced> {
    mcm_driver::tls::use_ring();
    match cloud {
        "aws" => Arc::new(crate::aws::Ec2::start().await),
        "openstack" => Arc::new(crate::openstack::World::new().await),
        _ => Arc::new(crate::gcp::World::new().await),
    }
}

/// A VM is registered before its machine is provisioned, and deregistered before it is deleted, also if the manager dies before
/// the call reaches the cloud, or before it gets the answer.
#[rstest]
#[case::aws("aws")]
#[case::gcp("gcp")]
#[case::openstack("openstack")]
#[tokio::test(flavor = "multi_thread")]
async fn the_members_are_the_living_machines_wherever_the_manager_is_killed(#[case] cloud: &str) {
    const MOMENTS: [(&str, bool); 2] = [("cp-1", false), ("cp-2", true)];
    let cloud = start(cloud).await;
    let mut stage = Stage::start(Arc::clone(&cloud)).await;
    let recorder = Recorder::start(stage.client.clone(), &stage.namespace, Arc::clone(&cloud), 1).await;
    stage.create("cp-0").await;
    stage.until_provisioned("cp-0").await;
    stage.assert_balanced(1).await;

    for (name, is_carried_out) in MOMENTS {
        until_unanswered(&*cloud, (Call::Register, is_carried_out), async || stage.create(name).await).await;
        stage.manager.restart_after_kill();
        stage.until_provisioned(name).await;
    }
    stage.assert_balanced(1 + MOMENTS.len()).await;
    for (name, is_carried_out) in MOMENTS {
        until_unanswered(&*cloud, (Call::Deregister, is_carried_out), async || stage.delete(name).await).await;
        stage.manager.restart_after_kill();
        stage.until_gone(name).await;
    }
    stage.assert_balanced(1).await;
    stage.is_ready().await;
    assert_eq!((cloud.created().await, cloud.unanswered()), (3, 2 * MOMENTS.len()));
    let seen = recorder.stop();
    assert!(seen.events > 10 && seen.fewest == Some(1), "{seen:?}");
    assert!(seen.faults.is_empty(), "{:#?}", seen.faults);
    assert_eq!(cloud.violations(), [""; 0]);
}
