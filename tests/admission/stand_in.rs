//! Objects that the CRDs and policies of the stand-in for core refuse, in a namespace that it serves and in others.

use kube::{
    Api, Client, Config,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
};
use rstest::rstest;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::support::{
    control_plane::{ControlPlane, install},
    objects, wait,
};

const MANIFESTS: [&str; 3] = [
    include_str!("../../config/stand-in/namespace.yaml"),
    include_str!("../../config/stand-in/rbac.yaml"),
    include_str!("../../config/stand-in/policies.yaml"),
];
const ACCOUNT: &str = "system:serviceaccount:mcm-stand-in:mcm-stand-in";

/// A namespace in an API server with CRDs and policies in force.
struct Place {
    somebody: Client,
    stand_in: Client,
    namespace: String,
}

impl Place {
    async fn new(is_served: bool) -> Self {
        static READY: OnceCell<()> = OnceCell::const_new();
        let control_plane = ControlPlane::shared().await;
        let mut config = Config::from_custom_kubeconfig(
            kube::config::Kubeconfig::read_from(control_plane.kubeconfig()).unwrap(),
            &kube::config::KubeConfigOptions::default(),
        )
        .await
        .unwrap();
        config.auth_info.impersonate = Some(ACCOUNT.to_owned());
        let place = async |prefix: &str, is_served: bool| {
            let labels: &[_] = if is_served { &[("machine.mcm/stand-in", "enabled")] } else { &[] };
            Self {
                somebody: control_plane.client(),
                stand_in: Client::try_from(config.clone()).unwrap(),
                namespace: control_plane.namespace_with(prefix, labels).await,
            }
        };
        READY.get_or_init(async || place("first", true).await.prepare().await).await;
        place("stand-in", is_served).await
    }

    async fn prepare(&self) {
        install(&self.somebody, &mcm_capi::crd::stand_in()).await.unwrap();
        install(&self.somebody, &mcm_capi::crd::crds()).await.unwrap();
        for text in MANIFESTS {
            for document in serde_yaml_ng::Deserializer::from_str(text) {
                objects::apply(&self.somebody, &Value::deserialize(document).unwrap()).await;
            }
        }
        // A policy takes effect a moment later.
        self.create(true, "Machine", mirror("Machine", "m")).await.unwrap();
        self.create(true, "MachineSet", mirror("MachineSet", "s")).await.unwrap();
        let change = json!({ "spec": { "version": "v2.0.0" } });
        let how = PatchParams { dry_run: true, ..PatchParams::default() };
        wait::until("the policies", async || {
            let mut doubled = mirror("Machine", "n");
            doubled["metadata"]["ownerReferences"] = json!([owner("MachineSet", true)]);
            let first = self.create(false, "Machine", doubled).await.err()?;
            let patch = Patch::Merge(change.clone());
            let second = self.api(&self.somebody, "Machine").patch("m", &how, &patch).await.err()?.to_string();
            let scale = Patch::Merge(json!({ "spec": { "replicas": 1 } }));
            let third = self.api(&self.somebody, "MachineSet").patch_scale("s", &how, &scale).await.err()?.to_string();
            let are_denied = [first, second, third].iter().all(|said| said.contains("mcm-stand-in"));
            are_denied.then_some(())
        })
        .await;
    }

    fn api(&self, client: &Client, kind: &str) -> Api<DynamicObject> {
        let group = if kind.starts_with("MCM") { "infrastructure.cluster.x-k8s.io" } else { "cluster.x-k8s.io" };
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1beta2", kind));
        Api::namespaced_with(client.clone(), &self.namespace, &kind)
    }

    async fn create(&self, by_stand_in: bool, kind: &str, object: Value) -> Result<(), String> {
        let client = if by_stand_in { &self.stand_in } else { &self.somebody };
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let made = self.api(client, kind).create(&PostParams::default(), &object).await;
        made.map(drop).map_err(|error| error.to_string())
    }

    async fn patch(&self, by_stand_in: bool, kind: &str, change: Value) -> Result<(), String> {
        let client = if by_stand_in { &self.stand_in } else { &self.somebody };
        let patch = Patch::Merge(change);
        let patched = self.api(client, kind).patch("one", &PatchParams::default(), &patch).await;
        patched.map(drop).map_err(|error| error.to_string())
    }
}

fn machine_spec() -> Value {
    json!({
        "clusterName": "c", "bootstrap": { "dataSecretName": "s" },
        "infrastructureRef": { "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "MCMMachine", "name": "m" },
    })
}

fn owner(kind: &str, is_controller: bool) -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": kind, "name": "o", "uid": "u", "controller": is_controller,
    })
}

/// An object as the stand-in creates it.
fn mirror(kind: &str, name: &str) -> Value {
    let spec = match kind {
        "Machine" => machine_spec(),
        "MCMMachine" => json!({ "machineClassRef": { "name": "k" } }),
        "MachineHealthCheck" => json!({ "clusterName": "c", "selector": { "matchLabels": { "a": "b" } } }),
        _ => json!({
            "clusterName": "c", "replicas": 1, "selector": {}, "template": { "spec": machine_spec() },
        }),
    };
    let group = if kind.starts_with("MCM") { "infrastructure.cluster.x-k8s.io" } else { "cluster.x-k8s.io" };
    json!({
        "apiVersion": format!("{group}/v1beta2"), "kind": kind, "spec": spec,
        "metadata": { "name": name, "annotations": { "machine.mcm/mirror": "", "cluster.x-k8s.io/paused": "" } },
    })
}

/// S3, T14: with core, a deployment gets no second set, and no machine a second VM.
#[rstest]
#[case::set("MachineSet", Some(owner("MachineDeployment", true)), true)]
#[case::machine("Machine", Some(owner("MachineSet", true)), true)]
#[case::infrastructure_of_a_set("MCMMachine", Some(owner("MachineSet", false)), true)]
#[case::set_of_a_user("MachineSet", None, false)]
#[case::machine_of_a_user("Machine", None, false)]
#[case::infrastructure_of_a_machine("MCMMachine", Some(owner("Machine", true)), false)]
#[tokio::test]
async fn s3_nobody_else_makes_machines_of_deployments(
    #[case] kind: &str,
    #[case] owner: Option<Value>,
    #[case] is_refused: bool,
    #[values(false, true)] is_served: bool,
) {
    let place = Place::new(is_served).await;
    let mut object = mirror(kind, "one");
    object["metadata"]["annotations"] = Value::Null;
    object["metadata"]["ownerReferences"] = owner.map_or(Value::Null, |owner| json!([owner]));
    match place.create(false, kind, object.clone()).await {
        Ok(()) => assert!(!(is_refused && is_served)),
        Err(said) => assert!(is_refused && is_served && said.contains("the stand-in of mcm creates"), "{said}"),
    }
    if is_refused && is_served && kind != "MCMMachine" {
        place.create(true, kind, object).await.unwrap();
    }
}

/// S4: only the stand-in changes shown fields; labels and other annotations are free.
#[rstest]
#[case::spec(json!({ "spec": { "clusterName": "d", "template": { "spec": { "clusterName": "d" } } } }), "clusterName is immutable")]
#[case::replicas(json!({ "spec": { "replicas": 9 } }), "change its MachineDeployment")]
#[case::mark(json!({ "metadata": { "annotations": { "machine.mcm/mirror": null } } }), "keep Cluster API core")]
#[case::pause(json!({ "metadata": { "annotations": { "cluster.x-k8s.io/paused": null } } }), "keep Cluster API core")]
#[case::choice(json!({ "metadata": { "annotations": { "cluster.x-k8s.io/delete-machine": "" } } }), "")]
#[tokio::test]
async fn s4_what_is_shown_is_changed_by_the_stand_in_only(#[case] change: Value, #[case] text: &str) {
    let place = Place::new(true).await;
    place.create(true, "MachineSet", mirror("MachineSet", "one")).await.unwrap();
    match place.patch(false, "MachineSet", change.clone()).await {
        Ok(()) => assert!(text.is_empty()),
        Err(said) => assert!(!text.is_empty() && said.contains(text), "{said}"),
    }
    if text.starts_with("change its") {
        place.patch(true, "MachineSet", change).await.unwrap();
    }
}

/// Objects that could never be served, or that core would refuse after it replaced the CRDs.
#[rstest]
#[case::no_cluster("MachineDeployment", json!({ "spec": { "clusterName": null } }), "spec.clusterName: Required value")]
#[case::two_clusters("MachineDeployment", json!({ "spec": { "clusterName": "d" } }), "write the same clusterName")]
#[case::long_name("MachineDeployment", json!({ "metadata": { "name": "m".repeat(64) } }), "choose a shorter one")]
#[case::negative("MachineDeployment", json!({ "spec": { "replicas": -1 } }), "greater than or equal to 0")]
#[case::order("MachineDeployment", json!({ "spec": { "deletion": { "order": "Tallest" } } }), "Unsupported value")]
#[case::group("Machine", json!({ "spec": { "infrastructureRef": { "apiGroup": "A b" } } }), "infrastructureRef.apiGroup")]
#[case::topology("Cluster", json!({ "spec": { "topology": { "version": "v1.33.0" } } }), "topology.classRef: Required")]
#[case::no_selector("MachineHealthCheck", json!({ "spec": { "selector": { "matchLabels": null } } }), "the selector is empty")]
#[case::no_time("MachineHealthCheck", json!({ "spec": { "checks": { "nodeStartupTimeoutSeconds": 10 } } }), "shorter than 30")]
#[case::computed(
    "MachineHealthCheck",
    json!({ "spec": { "checks": { "unhealthyMachineConditions": [{ "type": "Ready", "status": "False", "timeoutSeconds": 1 }] } } }),
    "Cluster API computes this condition"
)]
#[case::range(
    "MachineHealthCheck", json!({ "spec": { "remediation": { "triggerIf": { "unhealthyInRange": "1 to 2" } } } }), "unhealthyInRange"
)]
#[tokio::test]
async fn s5_the_kinds_accept_no_more_than_those_of_core(#[case] kind: &str, #[case] change: Value, #[case] text: &str) {
    let place = Place::new(false).await;
    let mut object = mirror(kind, "one");
    if kind == "Cluster" {
        object["spec"] = json!({ "paused": false });
    }
    objects::merge(&mut object, change);
    let said = place.create(false, kind, object).await.unwrap_err();
    assert!(said.contains(text), "{said}");
}

#[tokio::test]
async fn s9_a_health_check_of_core_is_accepted() {
    let mut check = mirror("MachineHealthCheck", "one");
    let condition = |type_: &str| json!([{ "type": type_, "status": "Unknown", "timeoutSeconds": 300 }]);
    check["spec"]["checks"] = json!({
        "nodeStartupTimeoutSeconds": 0, "unhealthyNodeConditions": condition("Ready"),
        "unhealthyMachineConditions": condition("example.com/Sane"),
    });
    check["spec"]["remediation"] = json!({
        "triggerIf": { "unhealthyLessThanOrEqualTo": "40%", "unhealthyInRange": "[1-2]" },
        "templateRef": { "apiVersion": "example.com/v1", "kind": "Repair", "name": "repair" },
    });
    let place = Place::new(false).await;
    place.create(false, "MachineHealthCheck", check).await.unwrap();
    let said = place.patch(false, "MachineHealthCheck", json!({ "spec": { "clusterName": "d" } })).await.unwrap_err();
    assert!(said.contains("clusterName is immutable"), "{said}");
}
