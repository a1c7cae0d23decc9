//! Objects that the CRDs and policies of the provider for Cluster API refuse.

use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams, Preconditions},
};
use rstest::rstest;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::support::{
    control_plane::{ControlPlane, install},
    objects, wait,
};

const POLICIES: &str = include_str!("../../config/cluster-api/policies.yaml");

/// A namespace in an API server with CRDs and policies in force.
struct Place {
    client: Client,
    namespace: String,
}

impl Place {
    async fn new() -> Self {
        static READY: OnceCell<()> = OnceCell::const_new();
        let control_plane = ControlPlane::shared().await;
        let client = control_plane.client();
        READY.get_or_init(async || Self::prepare(&client, &control_plane.namespace("policies").await).await).await;
        Self { client, namespace: control_plane.namespace("capi").await }
    }

    async fn prepare(client: &Client, namespace: &str) {
        install(client, &mcm_capi::crd::crds()).await.unwrap();
        for document in serde_yaml_ng::Deserializer::from_str(POLICIES) {
            objects::apply(client, &Value::deserialize(document).unwrap()).await;
        }
        // A policy takes effect a moment later.
        let place = Self { client: client.clone(), namespace: namespace.to_owned() };
        place.create("MCMMachineTemplate", "t", json!({ "template": { "spec": reference("a") } })).await.unwrap();
        place.create("MCMMachine", "m", reference("a")).await.unwrap();
        place.patch("MCMMachine", "m", json!({ "metadata": { "finalizers": [FINALIZER] } })).await.unwrap();
        wait::until("the policy about templates", async || {
            let change = json!({ "spec": { "template": { "spec": { "machineClassRef": { "name": "b" } } } } });
            place.try_patch("MCMMachineTemplate", "t", change, &dry_run()).await.err()
        })
        .await;
        wait::until("the policy about deletions", async || place.delete("MCMMachine", "m", true).await.err()).await;
        place.create_with("MCMMachinePool", json!({ "finalizers": [POOL_FINALIZER] }), reference("a")).await;
        wait::until("the policy about pools", async || place.delete("MCMMachinePool", "m", true).await.err()).await;
        place.create_with("Machine", controlled_by("MCMMachine"), native("Machine")).await;
        wait::until("the policy about MCM objects", async || place.delete("Machine", "m", true).await.err()).await;
        wait::until("the policy about Secrets", async || {
            let spec = with_secret("elsewhere");
            let created =
                place.create("MCMMachineTemplate", "elsewhere", json!({ "template": { "spec": spec } })).await;
            if created.is_ok() {
                place.delete("MCMMachineTemplate", "elsewhere", false).await.unwrap();
            }
            created.err()
        })
        .await;
        place.create("MCMMachine", "described", described("a")).await.unwrap();
        wait::until("the policy about descriptions", async || {
            let change = json!({ "spec": described("b") });
            place.try_patch("MCMMachine", "described", change, &dry_run()).await.err()
        })
        .await;
    }

    fn api(&self, kind: &str) -> Api<DynamicObject> {
        let kind = match kind.starts_with("MCM") {
            true => GroupVersionKind::gvk("infrastructure.cluster.x-k8s.io", "v1beta2", kind),
            false => GroupVersionKind::gvk("machine.sapcloud.io", "v1alpha1", kind),
        };
        Api::namespaced_with(self.client.clone(), &self.namespace, &ApiResource::from_gvk(&kind))
    }

    /// Creates an object `m` with more metadata.
    async fn create_with(&self, kind: &str, mut metadata: Value, spec: Value) {
        metadata["name"] = json!("m");
        let api_version = match kind.starts_with("MCM") {
            true => "infrastructure.cluster.x-k8s.io/v1beta2",
            false => "machine.sapcloud.io/v1alpha1",
        };
        let object = json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec });
        let object = serde_json::from_value(object).unwrap();
        self.api(kind).create(&PostParams::default(), &object).await.unwrap();
    }

    async fn create(&self, kind: &str, name: &str, spec: Value) -> Result<DynamicObject, String> {
        let object = json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": kind, "metadata": { "name": name }, "spec": spec,
        });
        let created = self.api(kind).create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await;
        created.map_err(|error| error.to_string())
    }

    async fn patch(&self, kind: &str, name: &str, change: Value) -> Result<DynamicObject, String> {
        self.try_patch(kind, name, change, &PatchParams::default()).await
    }

    async fn try_patch(
        &self,
        kind: &str,
        name: &str,
        change: Value,
        parameters: &PatchParams,
    ) -> Result<DynamicObject, String> {
        self.api(kind).patch(name, parameters, &Patch::Merge(change)).await.map_err(|error| error.to_string())
    }

    async fn delete(&self, kind: &str, name: &str, is_dry_run: bool) -> Result<(), String> {
        let parameters = DeleteParams { dry_run: is_dry_run, ..DeleteParams::default() };
        self.api(kind).delete(name, &parameters).await.map(drop).map_err(|error| error.to_string())
    }
}

const FINALIZER: &str = "mcmmachine.infrastructure.cluster.x-k8s.io";

const POOL_FINALIZER: &str = "mcmmachinepool.infrastructure.cluster.x-k8s.io";
const NATIVE_FINALIZER: &str = "machine.sapcloud.io/machine-controller-manager";

/// Metadata of a native object whose controller is an object of the provider.
fn controlled_by(kind: &str) -> Value {
    let api_version = "infrastructure.cluster.x-k8s.io/v1beta2";
    let owner = json!({ "apiVersion": api_version, "kind": kind, "name": "x", "uid": "u", "controller": true });
    json!({ "finalizers": [NATIVE_FINALIZER], "ownerReferences": [owner] })
}

/// Spec of a native object.
fn native(kind: &str) -> Value {
    let of_machine = json!({ "class": { "kind": "MachineClass", "name": "c" } });
    if kind == "Machine" {
        return of_machine;
    }
    let labels = json!({ "name": "p" });
    let template = json!({ "metadata": { "labels": labels }, "spec": of_machine });
    let mut spec = json!({ "replicas": 1, "selector": { "matchLabels": labels }, "template": template });
    if kind == "MachineDeployment" {
        spec["strategy"] = json!({ "type": "Recreate" });
    }
    spec
}

/// An MCMMachine that describes its VM.
fn described(size: &str) -> Value {
    json!({ "machineClass": { "provider": "simulated", "providerSpec": { "size": size } } })
}

/// The same with credentials from a namespace.
fn with_secret(namespace: &str) -> Value {
    let mut spec = described("a");
    spec["machineClass"]["credentialsSecretRef"] = json!({ "name": "cloud", "namespace": namespace });
    spec
}

fn reference(class: &str) -> Value {
    json!({ "machineClassRef": { "name": class } })
}

fn dry_run() -> PatchParams {
    PatchParams { dry_run: true, ..PatchParams::default() }
}

#[rstest]
#[case::no_class(json!({}), "either machineClassRef")]
#[case::two_classes(json!({ "machineClassRef": { "name": "a" }, "machineClass": { "providerSpec": {} } }), "either machineClassRef")]
#[case::class_without_a_name(json!({ "machineClassRef": {} }), "spec.machineClassRef.name: Required value")]
#[case::empty_id(json!({ "machineClassRef": { "name": "a" }, "providerID": "" }), "spec.providerID")]
#[case::taint_without_capacity(
    json!({ "machineClass": { "providerSpec": {}, "nodeTemplate": { "capacity": {}, "instanceType": "a", "region": "a", "zone": "a" } } }),
    "write cpu, gpu and memory"
)]
#[case::zones_of_a_named_class(json!({ "machineClassRef": { "name": "a" }, "zones": { "b": {} } }), "zones changes machineClass")]
#[case::zone_without_changes(json!({ "machineClass": { "providerSpec": {} }, "zones": { "b": "subnet-b" } }), "spec.zones.b: Invalid value")]
#[tokio::test]
async fn an_mcmmachine_that_could_never_work_is_refused(#[case] spec: Value, #[case] text: &str) {
    let place = Place::new().await;
    let said = place.create("MCMMachine", "m", spec.clone()).await.unwrap_err();
    assert!(said.contains(text), "{said}");
    let said = place.create("MCMMachineTemplate", "t", json!({ "template": { "spec": spec } })).await.unwrap_err();
    assert!(said.contains(text.trim_start_matches("spec.")), "{said}");
}

const POOL: &str = "4c1d7c0e-9c55-4d0a-9d5b-0c2f3a1b7e22";

/// A load balancer is of one cloud, and its parts have names.
#[rstest]
#[case::aws(json!({ "awsTargetGroup": { "arn": "arn:aws:elasticloadbalancing:eu-west-1:123456789012:targetgroup/cp/1" } }), None)]
#[case::gcp(json!({ "gcpInstanceGroups": [{ "zone": "a", "name": "cp" }, { "zone": "b", "name": "cp" }] }), None)]
#[case::openstack(json!({ "openstackPool": { "id": POOL } }), None)]
#[case::openstack_with_all(json!({ "openstackPool": { "id": POOL, "protocolPort": 443, "subnetID": POOL } }), None)]
#[case::simulated(json!({ "simulated": { "name": "cp" } }), None)]
#[case::aws_left_out(json!({ "awsTargetGroup": { "arn": "" } }), None)]
#[case::gcp_left_out(json!({ "gcpInstanceGroups": [{ "zone": "a", "name": "" }] }), None)]
#[case::openstack_left_out(json!({ "openstackPool": { "id": "" } }), None)]
#[case::name_of_a_pool(json!({ "openstackPool": { "id": "cp" } }), Some("openstackPool.id"))]
#[case::port_of_a_pool(json!({ "openstackPool": { "id": POOL, "protocolPort": 0 } }), Some("openstackPool.protocolPort"))]
#[case::none(json!({}), Some("write one of awsTargetGroup, gcpInstanceGroups, openstackPool and simulated"))]
#[case::two(
    json!({ "simulated": { "name": "cp" }, "gcpInstanceGroups": [{ "zone": "a", "name": "cp" }] }),
    Some("write one of awsTargetGroup, gcpInstanceGroups, openstackPool and simulated")
)]
#[case::of_another_service(json!({ "awsTargetGroup": { "arn": "arn:aws:iam::1:role/cp" } }), Some("awsTargetGroup.arn"))]
#[case::zone_twice(
    json!({ "gcpInstanceGroups": [{ "zone": "a", "name": "cp" }, { "zone": "a", "name": "other" }] }),
    Some("Duplicate value")
)]
#[case::no_name(json!({ "simulated": {} }), Some("simulated.name"))]
#[tokio::test]
async fn a_control_plane_has_one_kind_of_load_balancer(#[case] balancer: Value, #[case] text: Option<&str>) {
    let place = Place::new().await;
    let created = place.create("MCMCluster", "c", json!({ "controlPlaneLoadBalancer": balancer })).await;
    match (created, text) {
        (Ok(_), None) => {}
        (Err(said), Some(text)) => assert!(said.contains(text), "{said}"),
        (created, text) => panic!("{created:?}, not {text:?}"),
    }
}

/// I16: ID and class of a VM stay; an ID may be set once.
#[tokio::test]
async fn the_identity_of_a_vm_stays() {
    let place = Place::new().await;
    place.create("MCMMachine", "m", reference("a")).await.unwrap();
    place.patch("MCMMachine", "m", json!({ "spec": { "providerID": "x:///1" } })).await.unwrap();
    for (change, text) in [
        (json!({ "providerID": "x:///2" }), "the ID of a VM is immutable"),
        (reference("b"), "spec.machineClassRef is immutable"),
        (
            json!({ "machineClassRef": null, "machineClass": { "providerSpec": {} } }),
            "machineClassRef cannot take the place of machineClass",
        ),
    ] {
        let said = place.patch("MCMMachine", "m", json!({ "spec": change })).await.unwrap_err();
        assert!(said.contains(text), "{said}");
    }
    place.patch("MCMMachine", "m", json!({ "spec": { "creationTimeoutSeconds": 60 } })).await.unwrap();
}

/// T3a, T4a: neither an edit, nor a dry run, nor the annotation alone, but both together.
#[rstest]
#[case::machine("MCMMachineTemplate", reference("a"), json!({ "machineClassRef": { "name": "b" } }))]
#[case::pool("MCMMachinePoolTemplate", reference("a"), json!({ "machineClassRef": { "name": "b" } }))]
#[case::cluster("MCMClusterTemplate", json!({}), json!({ "failureDomains": [{ "name": "a" }] }))]
#[tokio::test]
async fn a_template_is_changed_only_in_a_dry_run_of_a_topology(
    #[case] kind: &str,
    #[case] spec: Value,
    #[case] changed: Value,
) {
    let place = Place::new().await;
    place.create(kind, "t", json!({ "template": { "spec": spec } })).await.unwrap();
    let change = json!({ "spec": { "template": { "spec": changed } } });
    let mut marked = change.clone();
    marked["metadata"] = json!({ "annotations": { "topology.cluster.x-k8s.io/dry-run": "" } });
    for (change, parameters) in
        [(&change, PatchParams::default()), (&change, dry_run()), (&marked, PatchParams::default())]
    {
        let said = place.try_patch(kind, "t", change.clone(), &parameters).await.unwrap_err();
        assert!(said.contains("create another template"), "{said}");
    }
    place.try_patch(kind, "t", marked, &dry_run()).await.unwrap();
    let labels = json!({ "metadata": { "labels": { "a": "b" } } });
    place.patch(kind, "t", labels).await.unwrap();
}

/// O6, T16.
#[rstest]
#[case::machine_lives(json!({}), json!({ "conditions": [{ "type": "Deletable", "status": "False" }] }), false)]
#[case::nothing_is_said(json!({}), Value::Null, false)]
#[case::machine_goes(json!({}), json!({ "conditions": [{ "type": "Deletable", "status": "True" }] }), true)]
#[case::paused(json!({}), json!({ "conditions": [{ "type": "Paused", "status": "True" }] }), true)]
#[case::no_vm(json!({ "finalizers": [] }), Value::Null, true)]
#[case::moved(json!({ "annotations": { "clusterctl.cluster.x-k8s.io/delete-for-move": "" } }), Value::Null, true)]
#[tokio::test]
async fn an_mcmmachine_is_deleted_only_after_its_machine(
    #[case] metadata: Value,
    #[case] mut status: Value,
    #[case] is_allowed: bool,
) {
    let place = Place::new().await;
    place.create("MCMMachine", "m", reference("a")).await.unwrap();
    let mut meta = json!({ "finalizers": [FINALIZER] });
    objects::merge(&mut meta, metadata);
    place.patch("MCMMachine", "m", json!({ "metadata": meta })).await.unwrap();
    if let Some(condition) = status.pointer_mut("/conditions/0") {
        objects::merge(
            condition,
            json!({ "reason": "A", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" }),
        );
        let change = Patch::Merge(json!({ "status": status }));
        place.api("MCMMachine").patch_status("m", &PatchParams::default(), &change).await.unwrap();
    }
    match place.delete("MCMMachine", "m", false).await {
        Ok(()) => assert!(is_allowed),
        Err(said) => assert!(!is_allowed && said.contains("delete the CAPI Machine"), "{said}"),
    }
}

/// A native object is deleted through its owner, which annotates it first.
#[rstest]
#[case::machine("Machine", controlled_by("MCMMachine"), json!({}), false)]
#[case::deployment("MachineDeployment", controlled_by("MCMMachinePool"), json!({}), false)]
#[case::released("Machine", controlled_by("MCMMachine"), json!({ "annotations": { "machine.mcm/delete-vm": "" } }), true)]
#[case::moved("Machine", controlled_by("MCMMachine"), json!({ "annotations": { "clusterctl.cluster.x-k8s.io/delete-for-move": "" } }), true)]
#[case::migrated("Machine", controlled_by("MCMMachine"), json!({ "annotations": { "machine.mcm/migration": "d" } }), true)]
#[case::no_vm("Machine", controlled_by("MCMMachine"), json!({ "finalizers": [] }), true)]
#[case::native("Machine", json!({ "finalizers": [NATIVE_FINALIZER] }), json!({}), true)]
#[case::native_deployment("MachineDeployment", json!({ "finalizers": [NATIVE_FINALIZER] }), json!({}), true)]
#[tokio::test]
async fn a_native_object_of_the_provider_is_not_deleted_directly(
    #[case] kind: &str,
    #[case] mut metadata: Value,
    #[case] change: Value,
    #[case] is_allowed: bool,
) {
    let place = Place::new().await;
    objects::merge(&mut metadata, change);
    place.create_with(kind, metadata, native(kind)).await;
    match place.delete(kind, "m", false).await {
        Ok(()) => assert!(is_allowed),
        Err(said) => {
            assert!(!is_allowed && said.contains("delete the CAPI Machine or MachinePool"), "{said}")
        }
    }
}

/// The garbage collector sends the UID as precondition, as controllers do.
#[tokio::test]
async fn the_garbage_collector_deletes_a_native_object_of_the_provider() {
    let place = Place::new().await;
    place.create_with("Machine", controlled_by("MCMMachine"), native("Machine")).await;
    let uid = place.api("Machine").get("m").await.unwrap().metadata.uid;
    let preconditions = Preconditions { uid, resource_version: None };
    let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    place.api("Machine").delete("m", &parameters).await.unwrap();
}

/// A pool is deleted through its MachinePool. A pool that only shows a deployment has no VMs.
#[rstest]
#[case::machine_pool_lives(reference("a"), "Deletable", "False", false)]
#[case::machine_pool_goes(reference("a"), "Deletable", "True", true)]
#[case::paused(reference("a"), "Paused", "True", true)]
#[case::shows_a_deployment(json!({ "machineDeploymentRef": { "name": "d" } }), "Deletable", "False", true)]
#[tokio::test]
async fn an_mcmmachinepool_is_deleted_only_after_its_machine_pool(
    #[case] spec: Value,
    #[case] type_: &str,
    #[case] status: &str,
    #[case] is_allowed: bool,
) {
    let place = Place::new().await;
    place.create_with("MCMMachinePool", json!({ "finalizers": [POOL_FINALIZER] }), spec).await;
    let condition = json!({
        "type": type_, "status": status, "reason": "A", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let change = Patch::Merge(json!({ "status": { "conditions": [condition] } }));
    place.api("MCMMachinePool").patch_status("m", &PatchParams::default(), &change).await.unwrap();
    match place.delete("MCMMachinePool", "m", false).await {
        Ok(()) => assert!(is_allowed),
        Err(said) => assert!(!is_allowed && said.contains("delete the MachinePool"), "{said}"),
    }
}

/// I16: the VM does not follow its description, so every part of the description is immutable.
#[rstest]
#[case::configuration(json!({ "providerSpec": { "size": "b" } }))]
#[case::credentials(json!({ "credentialsSecretRef": { "name": "s" } }))]
#[tokio::test]
async fn the_description_of_a_vm_stays(#[case] change: Value) {
    let place = Place::new().await;
    place.create("MCMMachine", "m", described("a")).await.unwrap();
    let said = place.patch("MCMMachine", "m", json!({ "spec": { "machineClass": change } })).await.unwrap_err();
    assert!(said.contains("spec.machineClass is immutable"), "{said}");
    place
        .patch("MCMMachine", "m", json!({ "spec": { "providerID": "x:///1", "creationTimeoutSeconds": 60 } }))
        .await
        .unwrap();
    place.patch("MCMMachine", "m", json!({ "metadata": { "labels": { "a": "b" } } })).await.unwrap();
}

/// Core marks the object in the same write. A control plane provider tries the change before.
#[rstest]
#[case::reference(reference("a"), reference("b"))]
#[case::description(described("a"), json!({ "machineClass": { "providerSpec": { "size": "b" } } }))]
#[tokio::test]
async fn the_description_of_a_vm_changes_only_in_an_update_in_place(#[case] spec: Value, #[case] change: Value) {
    const MARK: &str = "in-place-updates.internal.cluster.x-k8s.io/update-in-progress";
    let place = Place::new().await;
    place.create("MCMMachine", "m", spec).await.unwrap();
    let change = json!({ "spec": change });
    let mut marked = change.clone();
    marked["metadata"] = json!({ "annotations": { MARK: "" } });
    for parameters in [PatchParams::default(), dry_run()] {
        let said = place.try_patch("MCMMachine", "m", change.clone(), &parameters).await.unwrap_err();
        assert!(said.contains("is immutable"), "a worker: {said}");
    }
    let label = json!({ "metadata": { "labels": { "cluster.x-k8s.io/control-plane": "" } } });
    place.patch("MCMMachine", "m", label).await.unwrap();
    place.try_patch("MCMMachine", "m", change.clone(), &dry_run()).await.unwrap();
    let said = place.patch("MCMMachine", "m", change.clone()).await.unwrap_err();
    assert!(said.contains("is immutable"), "{said}");
    place.patch("MCMMachine", "m", marked).await.unwrap();
    let end = json!({ "metadata": { "annotations": { MARK: null } } });
    place.patch("MCMMachine", "m", end).await.unwrap();
}

/// Each machine of the template would claim the same VM.
#[rstest]
#[case::machine("MCMMachineTemplate", json!({ "providerID": "x:///1" }), "a template has no providerID")]
#[case::pool("MCMMachinePoolTemplate", json!({ "providerIDList": ["x:///1"] }), "a template has no providerIDList")]
#[tokio::test]
async fn a_template_names_no_vm(#[case] kind: &str, #[case] change: Value, #[case] text: &str) {
    let place = Place::new().await;
    let mut spec = reference("a");
    objects::merge(&mut spec, change);
    let said = place.create(kind, "t", json!({ "template": { "spec": spec } })).await.unwrap_err();
    assert!(said.contains(text), "{said}");
}

/// Core could not add its owner reference to such a template.
#[rstest]
#[case::no_template(json!({}))]
#[case::no_spec(json!({ "template": {} }))]
#[tokio::test]
async fn a_template_without_content_is_refused(
    #[values("MCMClusterTemplate", "MCMMachineTemplate", "MCMMachinePoolTemplate")] kind: &str,
    #[case] spec: Value,
) {
    let said = Place::new().await.create(kind, "t", spec).await.unwrap_err();
    assert!(said.contains("Required value"), "{said}");
}

#[rstest]
#[case::no_source("p", json!({}), "write one of machineClassRef")]
#[case::two_sources("p", json!({ "machineClassRef": { "name": "a" }, "machineDeploymentRef": { "name": "d" } }), "write one of machineClassRef")]
#[case::strange_choice("p", json!({ "machineClassRef": { "name": "a" }, "machinePoolMachines": "Yes" }), "write Enabled or Disabled")]
#[case::long_name(&"p".repeat(64), reference("a"), "choose a shorter one")]
#[tokio::test]
async fn a_pool_that_could_never_work_is_refused(#[case] name: &str, #[case] spec: Value, #[case] text: &str) {
    let place = Place::new().await;
    let said = place.create("MCMMachinePool", name, spec).await.unwrap_err();
    assert!(said.contains(text), "{said}");
}

/// The class of a pool may change, which is a rollout; the owner of its VMs, and the controller that drains them, may
/// not.
#[tokio::test]
async fn the_kind_of_a_pool_is_immutable() {
    let place = Place::new().await;
    place.create("MCMMachinePool", "p", reference("a")).await.unwrap();
    place.patch("MCMMachinePool", "p", json!({ "spec": reference("b") })).await.unwrap();
    for (change, text) in [
        (json!({ "machinePoolMachines": "Enabled" }), "machinePoolMachines is immutable"),
        (
            json!({ "machineClassRef": null, "machineDeploymentRef": { "name": "d" } }),
            "machineDeploymentRef is immutable",
        ),
    ] {
        let said = place.patch("MCMMachinePool", "p", json!({ "spec": change })).await.unwrap_err();
        assert!(said.contains(text), "{said}");
    }
}

/// Namespaces are tenants.
#[rstest]
#[case::machine("MCMMachine", false)]
#[case::machine_template("MCMMachineTemplate", true)]
#[case::pool("MCMMachinePool", false)]
#[case::pool_template("MCMMachinePoolTemplate", true)]
#[tokio::test]
async fn a_description_names_no_secret_of_another_namespace(#[case] kind: &str, #[case] is_template: bool) {
    let place = Place::new().await;
    let spec = |spec: Value| if is_template { json!({ "template": { "spec": spec } }) } else { spec };
    let said = place.create(kind, "x", spec(with_secret("other"))).await.unwrap_err();
    assert!(said.contains("names a Secret of another namespace"), "{said}");
    place.create(kind, "own", spec(with_secret(&place.namespace))).await.unwrap();
    let mut unnamed = described("a");
    unnamed["machineClass"]["credentialsSecretRef"] = json!({ "name": "cloud" });
    place.create(kind, "unnamed", spec(unnamed)).await.unwrap();
    place.patch(kind, "own", json!({ "metadata": { "labels": { "a": "b" } } })).await.unwrap();
    if kind == "MCMMachinePool" {
        let said = place.patch(kind, "own", json!({ "spec": with_secret("other") })).await.unwrap_err();
        assert!(said.contains("names a Secret of another namespace"), "{said}");
    }
}

/// References to other objects have no namespace: those of another one cannot be named.
#[rstest]
#[case::class_of_a_machine("MCMMachine", json!({ "machineClassRef": { "name": "a", "namespace": "other" } }), "/spec/machineClassRef")]
#[case::class_of_a_pool("MCMMachinePool", json!({ "machineClassRef": { "name": "a", "namespace": "other" } }), "/spec/machineClassRef")]
#[case::deployment_of_a_pool(
    "MCMMachinePool",
    json!({ "machineDeploymentRef": { "name": "a", "namespace": "other" } }),
    "/spec/machineDeploymentRef"
)]
#[case::credentials_of_a_cluster(
    "MCMCluster",
    json!({ "credentialsSecretRef": { "name": "a", "namespace": "other" } }),
    "/spec/credentialsSecretRef"
)]
#[tokio::test]
async fn a_reference_has_no_namespace(#[case] kind: &str, #[case] spec: Value, #[case] path: &str) {
    let place = Place::new().await;
    place.create(kind, "x", spec).await.unwrap();
    let stored = serde_json::to_value(place.api(kind).get("x").await.unwrap()).unwrap();
    assert_eq!(stored.pointer(path), Some(&json!({ "name": "a" })));
}
