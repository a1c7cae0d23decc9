//! The provider for Cluster API with the permissions of the chart. The test does what core does for one Machine.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::{
    cluster::{CHART, Cluster, play_apart},
    rights::{Life, Right, denied, granted, used},
    support::{control_plane, wait},
};

const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io/v1beta2";
const CORE: &str = "cluster.x-k8s.io/v1beta2";
const ACCOUNT: &str = "capmcm-manager";
const NAME: &str = "one";

/// Rights that the life of one Machine does not use, as verb and resource, and what does use them. The tests with Cluster API core
/// run with the same file of roles.
const UNUSED: [(&str, &str); 21] = [
    ("* machinedeployments", "pools: tests/clusterctl/pools.rs"),
    ("* machinedeployments/status", "pools"),
    ("* machinesets", "pools"),
    ("* machinesets/status", "pools"),
    ("* machinepools", "pools"),
    ("* mcmmachinepools", "pools"),
    ("* mcmmachinepools/status", "pools"),
    ("create mcmmachines", "Machines of pools"),
    ("delete mcmmachines", "Machines of pools"),
    ("delete machines.cluster.x-k8s.io", "Machines of pools"),
    ("update *", "finalizers: only OwnerReferencesPermissionEnforcement asks for them"),
    ("get *", "included in list"),
    ("patch events", "an event that repeats: src/runtime/events.rs"),
    ("delete machineclasses", "pools"),
    ("patch secrets", "credentials that a class names: tests/clusterctl"),
    ("patch mcmmachinetemplates", "scaling from zero: tests/clusterctl/topology.rs"),
    ("patch mcmmachinetemplates/status", "scaling from zero"),
    ("list leases", "a Machine Controller Manager in the namespace: tests/clusterctl/native_managers.rs"),
    ("watch leases", "a standby: tests/integration/standby.rs"),
    ("create tokenreviews", "readers of metrics: tests/clusterctl/diagnostics.rs"),
    ("create subjectaccessreviews", "readers of metrics"),
];

fn is_known((group, resource, verb): &Right) -> bool {
    let names = [resource.clone(), format!("{resource}.{group}"), "*".to_owned()];
    let matches = |known: &str| {
        let (of_verb, of_resource) = known.split_once(' ').unwrap();
        (of_verb == "*" || of_verb == verb) && names.iter().any(|name| name == of_resource)
    };
    UNUSED.iter().any(|(known, _)| matches(known))
}

fn owner(of: &Value) -> Value {
    json!([{
        "apiVersion": of["apiVersion"], "kind": of["kind"], "name": of["metadata"]["name"], "uid": of["metadata"]["uid"], "controller": true,
    }])
}

fn metadata(owners: &Value) -> Value {
    json!({"name": NAME, "labels": {"cluster.x-k8s.io/cluster-name": NAME}, "ownerReferences": owners})
}

/// The kinds of core. That of pools has no schema here.
async fn install_core(cluster: &Cluster) {
    control_plane::install(&cluster.control.client(), &mcm_capi::crd::stand_in()).await.unwrap();
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let pools = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "machinepools.cluster.x-k8s.io"},
        "spec": {
            "group": "cluster.x-k8s.io", "scope": "Namespaced",
            "names": {"kind": "MachinePool", "listKind": "MachinePoolList", "plural": "machinepools", "singular": "machinepool"},
            "versions": [{
                "name": "v1beta2", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema},
            }],
        },
    });
    cluster.kubectl(&["apply", "-f", "-"], &pools.to_string());
}

#[test]
fn the_life_of_a_machine_of_cluster_api_needs_no_more_than_the_rights_of_the_chart() {
    play_apart(async |cluster| {
        install_core(cluster).await;
        let system = cluster.namespace("capmcm").await;
        cluster.helm(&["install", "mcm", CHART, "-n", &system, "--set", "mode=capi-manager"]);
        wait::until("the kinds of the provider", async || {
            cluster.get("", "mcmmachines", "none");
            let crd = cluster.get("", "crd", "mcmmigrations.infrastructure.cluster.x-k8s.io")?;
            crd["status"]["conditions"]
                .as_array()?
                .iter()
                .any(|one| one["type"] == "Established" && one["status"] == "True")
                .then_some(())
        })
        .await;
        let namespace = cluster.namespace("machines").await;
        let life = Life::begin(cluster, &namespace).await;
        let _managers = cluster.start_deployment(&system, "mcm", &life.cloud).await;

        live(cluster, &life).await;

        let kubeconfig = cluster.folder.join(&system).join(format!("{ACCOUNT}.kubeconfig"));
        let requests = cluster.requests(&kubeconfig, &format!("system:serviceaccount:{system}:{ACCOUNT}")).await;
        assert!(requests.len() > 50, "{} recorded requests", requests.len());
        assert_eq!(denied(&requests), [""; 0]);
        let manifest = cluster.helm(&["get", "manifest", "mcm", "-n", &system]);
        let (granted, used) = (granted(&manifest), used(&requests));
        // The role system:basic-user lets each user ask for their own rights.
        let is_of_all = |(_, resource, _): &&Right| resource == "selfsubjectaccessreviews";
        let missing: Vec<&Right> = used.difference(&granted).filter(|right| !is_of_all(right)).collect();
        assert!(missing.is_empty(), "used without a rule of the chart: {missing:?}");
        let unused: BTreeSet<&Right> = granted.difference(&used).filter(|right| !is_known(right)).collect();
        assert!(unused.is_empty(), "of no use: {unused:?}");
    });
}

/// A Cluster and a Machine with its infrastructure, created and deleted.
async fn live(cluster: &Cluster, life: &Life) {
    let apply = async |object: Value| -> Value {
        life.apply(object.clone()).await;
        let kind = format!(
            "{}.{}",
            object["kind"].as_str().unwrap(),
            object["apiVersion"].as_str().unwrap().split('/').next().unwrap()
        );
        cluster.get(&life.namespace, &kind, NAME).unwrap()
    };
    let admin = std::fs::read_to_string(cluster.control.kubeconfig()).unwrap();
    for (purpose, value) in [("kubeconfig", admin.as_str()), ("bootstrap", "#cloud-config\n")] {
        let mut secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata(&json!([])), "stringData": {"value": value}});
        secret["metadata"]["name"] = format!("{NAME}-{purpose}").into();
        life.apply(secret).await;
    }
    let of_cluster = apply(json!({
        "apiVersion": CORE, "kind": "Cluster", "metadata": metadata(&json!([])),
        "spec": {
            "controlPlaneEndpoint": {"host": "127.0.0.1", "port": 6443},
            "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "MCMCluster", "name": NAME},
        },
    }))
    .await;
    apply(json!({
        "apiVersion": INFRASTRUCTURE, "kind": "MCMCluster", "metadata": metadata(&owner(&of_cluster)),
        "spec": {"failureDomains": [{"name": "simulated-a", "controlPlane": true}]},
    }))
    .await;
    let of_kind = |kind: &str| cluster.get(&life.namespace, kind, NAME);
    wait::until("the MCMCluster to be provisioned", async || {
        (of_kind("mcmcluster")?["status"]["initialization"]["provisioned"] == true).then_some(())
    })
    .await;
    let status =
        json!({"status": {"initialization": {"infrastructureProvisioned": true, "controlPlaneInitialized": true}}});
    let patch = ["patch", "cluster", NAME, "-n", &life.namespace, "--subresource=status", "--type=merge", "-p"];
    cluster.kubectl(&[&patch[..], &[&status.to_string()]].concat(), "");

    let reference = json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "MCMMachine", "name": NAME});
    let mut machine = json!({
        "apiVersion": CORE, "kind": "Machine", "metadata": metadata(&owner(&of_cluster)),
        "spec": {
            "clusterName": NAME, "version": "v1.33.0", "infrastructureRef": reference,
            "bootstrap": {"dataSecretName": format!("{NAME}-bootstrap")},
        },
    });
    machine["metadata"]["finalizers"] = json!(["machine.cluster.x-k8s.io"]);
    let machine = apply(machine).await;
    let capacity = json!({"cpu": "4", "gpu": "0", "memory": "16Gi"});
    let node = json!({"capacity": capacity, "instanceType": "small", "region": "simulated", "zone": "simulated-a"});
    apply(json!({
        "apiVersion": INFRASTRUCTURE, "kind": "MCMMachine", "metadata": metadata(&owner(&machine)),
        "spec": {"machineClass": {
            "provider": "simulated", "providerSpec": {"instanceType": "small", "zone": "simulated-a"}, "nodeTemplate": node,
        }},
    }))
    .await;
    wait::until("the MCMMachine to be provisioned", async || {
        (of_kind("mcmmachine")?["status"]["initialization"]["provisioned"] == true).then_some(())
    })
    .await;
    assert_eq!(life.cloud.count("/alive").await, 1);

    cluster.kubectl(&["delete", "machine.cluster.x-k8s.io", NAME, "-n", &life.namespace, "--wait=false"], "");
    wait::until("the MCMMachine to be deletable", async || {
        let conditions = of_kind("mcmmachine")?["status"]["conditions"].clone();
        conditions.as_array()?.iter().any(|one| one["type"] == "Deletable" && one["status"] == "True").then_some(())
    })
    .await;
    cluster.kubectl(&["delete", "mcmmachine", NAME, "-n", &life.namespace, "--timeout=60s"], "");
    assert_eq!(life.cloud.count("/alive").await, 0);
    let release = r#"{"metadata":{"finalizers":null}}"#;
    let words = ["patch", "machine.cluster.x-k8s.io", NAME, "-n", &life.namespace, "--type=merge", "-p", release];
    cluster.kubectl(&words, "");
    cluster.kubectl(&["delete", "mcmcluster", NAME, "-n", &life.namespace, "--timeout=60s"], "");
}
