//! A cluster of the ClusterClass of a release, with a control plane by kubeadm.

use std::{collections::BTreeMap, process::Command};

use serde_json::{Value, json};

use crate::{
    other_provider::{self, AWS},
    scene::{KUBERNETES, Scene, condition, name_of},
    support::program::mcm,
    world::{World, play},
};

const WORKERS: usize = 2;
/// Kinds that core or mcm would write repeatedly if they disagreed.
const QUIET: [&str; 8] = [
    "cluster",
    "mcmcluster",
    "mcmmachinetemplate",
    "mcmmachine",
    "machinedeployments.cluster.x-k8s.io",
    "machinesets.cluster.x-k8s.io",
    "machines.machine.sapcloud.io",
    "machineclass",
];

/// The cluster that clusterctl makes of the class, once its machines are Nodes. Its control plane is an API server that runs
/// already; with its authority, kubeadm's controllers make the kubeconfig.
pub async fn with_topology(world: &'static World, name: &str) -> Scene {
    let scene = Scene::with_authority(world, name).await;
    let text = scene.generate("topology", WORKERS);
    assert!(text.contains("kind: ClusterClass"), "clusterctl adds the class: {text}");
    world.kubectl_with(&["apply", "-f", "-"], &text);
    scene.until("control plane and workers to be Nodes", async || scene.has_running(1 + WORKERS)).await;
    scene
}

/// Changes one field.
fn replace(scene: &Scene, object: [&str; 2], path: &str, value: &Value) {
    let change = json!([{"op": "replace", "path": path, "value": value}]).to_string();
    scene.kubectl(&["patch", object[0], object[1], "--type=json", "-p", &change]);
}

/// The VMs of the workers, and those of the control plane.
async fn vms(scene: &Scene) -> (BTreeMap<String, Vec<String>>, BTreeMap<String, Vec<String>>) {
    let prefix = format!("{}-md-0-", scene.name);
    scene.vms().await.into_iter().partition(|(machine, _)| machine.starts_with(&prefix))
}

/// All workers are other ones, and there were never fewer; the control plane stays.
async fn is_rolled(scene: &Scene, count: usize, change: impl FnOnce()) {
    let (workers_before, control_plane) = vms(scene).await;
    change();
    scene
        .until("all workers to be new", async || {
            let (workers, kept) = vms(scene).await;
            assert_eq!(kept, control_plane);
            assert!(workers.len() >= count, "surge 1, unavailable 0: {workers:?}");
            let are_new = workers.keys().all(|machine| !workers_before.contains_key(machine));
            (workers.len() == count && are_new).then_some(())
        })
        .await;
    scene.until("all Machines to run", async || scene.has_running(1 + count)).await;
}

/// `field` of the VMs that the workers are to be.
fn classes(scene: &Scene, field: &str) -> Vec<Value> {
    let prefix = format!("{}-md-0-", scene.name);
    let workers = scene.all("mcmmachine").into_iter().filter(|one| name_of(one).starts_with(&prefix));
    workers.map(|one| one["spec"]["machineClass"].pointer(field).cloned().unwrap_or_default()).collect()
}

/// K7, C8, C9, T4a: clusterctl adds the class. A change of the topology, or of the class, reaches the workers and nothing else;
/// for that core tries changes of our templates in dry runs, and the policy lets it.
#[test]
fn a_cluster_of_the_class_is_scaled_and_rolled_by_its_topology() {
    play(async |world: &'static World| {
        let scene = with_topology(world, "classy").await;
        let cluster = || scene.get("cluster", "classy");
        let endpoint = &cluster()["spec"]["controlPlaneEndpoint"];
        assert_eq!((&endpoint["host"], scene.all("mcmcluster").len()), (&json!("127.0.0.1"), 1));
        let described = world.must(&["describe", "cluster", "classy", "-n", &scene.namespace]);
        for object in ["KubeadmControlPlane", "MachineDeployment", "MCMCluster"] {
            assert!(described.contains(&format!("{object} {}/classy-", scene.namespace)), "{described}");
        }

        let workers = "/spec/topology/workers/machineDeployments/0/replicas";
        replace(&scene, ["cluster", "classy"], workers, &json!(WORKERS + 1));
        scene.until("one more worker", async || scene.has_running(2 + WORKERS)).await;
        replace(&scene, ["cluster", "classy"], workers, &json!(WORKERS));
        scene.until("one worker less", async || scene.has_running(1 + WORKERS)).await;
        scene.until("its VM to be gone", async || (vms(&scene).await.0.len() == WORKERS).then_some(())).await;

        is_rolled(&scene, WORKERS, || {
            replace(&scene, ["cluster", "classy"], "/spec/topology/variables/2/value", &json!("large"));
        })
        .await;
        assert_eq!(classes(&scene, "/providerSpec/instanceType"), vec![json!("large"); WORKERS]);
        assert_eq!(classes(&scene, "/nodeTemplate/instanceType"), vec![json!("large"); WORKERS]);

        // A template of the class is changed by another one.
        let path = "/spec/template/spec/machineClass/nodeTemplate/capacity/cpu";
        let change = json!([{"op": "replace", "path": path, "value": "8"}]).to_string();
        let words = ["patch", "mcmmachinetemplate", "simulated", "-n", &scene.namespace, "--type=json", "-p", &change];
        let refused = world.try_kubectl(&words, "").unwrap_err();
        assert!(refused.contains("create another template"), "{refused}");
        let mut template = scene.get("mcmmachinetemplate", "simulated");
        template["metadata"] = json!({"name": "more-cpu", "namespace": scene.namespace});
        template.as_object_mut().unwrap().remove("status");
        template["spec"]["template"]["spec"]["machineClass"]["nodeTemplate"]["capacity"]["cpu"] = json!("8");
        world.apply(&template);
        is_rolled(&scene, WORKERS, || {
            let path = "/spec/workers/machineDeployments/0/infrastructure/templateRef/name";
            replace(&scene, ["clusterclass", "simulated"], path, &json!("more-cpu"));
        })
        .await;
        assert_eq!(classes(&scene, "/nodeTemplate/capacity/cpu"), vec![json!("8"); WORKERS]);

        scene.is_idle(&QUIET).await;
        assert!(condition(&cluster(), "TopologyReconciled").starts_with("True"), "{}", cluster());

        scene.kubectl(&["delete", "cluster", "classy", "--timeout=600s"]);
        assert!(scene.vms().await.is_empty());
        for kind in ["mcmcluster", "mcmmachine", "machines.machine.sapcloud.io", "machineclass"] {
            scene.until("the rest to be gone", async || scene.all(kind).is_empty().then_some(())).await;
        }
        scene.kubectl(&["delete", "clusterclass", "simulated", "--timeout=600s"]);
    });
}

/// The MCMMachinePool of a Cluster with one pool.
fn pool_of(scene: &Scene) -> Option<Value> {
    scene.all("mcmmachinepool").into_iter().next()
}

/// The pool runs, has so many Nodes, and core has seen its last change.
pub fn has_pool_of(scene: &Scene, count: usize) -> Option<()> {
    let pools = scene.all("machinepool");
    let [pool] = pools.as_slice() else { return None };
    let status = &pool["status"];
    let nodes = status["nodeRefs"].as_array().map_or(0, Vec::len);
    let is_seen = status["observedGeneration"] == pool["metadata"]["generation"];
    (status["phase"] == "Running" && is_seen && status["replicas"] == count && nodes == count).then_some(())
}

/// C6: a pool of the class is made, scaled and rolled by the topology. The class of its old VMs is deleted, and core and mcm then
/// write nothing.
#[test]
fn a_pool_of_the_class_is_scaled_and_rolled_by_its_topology() {
    const POOL: usize = 2;
    play(async |world: &'static World| {
        let scene = with_topology(world, "pools").await;
        let pools = json!([{"class": "default-pool", "name": "mp-0", "replicas": POOL}]);
        let change = json!({"spec": {"topology": {"workers": {"machinePools": pools}}}}).to_string();
        scene.kubectl(&["patch", "cluster", "pools", "--type=merge", "-p", &change]);
        scene.until("the pool to have Nodes", async || has_pool_of(&scene, POOL)).await;

        let replicas = "/spec/topology/workers/machinePools/0/replicas";
        replace(&scene, ["cluster", "pools"], replicas, &json!(POOL + 1));
        scene.until("one more Node", async || has_pool_of(&scene, POOL + 1)).await;

        let of_pool = async || {
            let mut all = scene.vms().await;
            all.retain(|machine, _| machine.starts_with("pools-mp-0-"));
            all
        };
        let old = of_pool().await;
        assert_eq!(old.len(), POOL + 1);
        replace(&scene, ["cluster", "pools"], "/spec/topology/variables/2/value", &json!("large"));
        scene
            .until("the VMs of the pool to be new", async || {
                let now = of_pool().await;
                assert!(now.len() > POOL, "surge 1, unavailable 0: {now:?}");
                (now.len() == POOL + 1 && now.keys().all(|machine| !old.contains_key(machine))).then_some(())
            })
            .await;
        scene.until("their Nodes", async || has_pool_of(&scene, POOL + 1)).await;
        scene.until("the workers", async || scene.has_running(1 + WORKERS)).await;
        let pool = pool_of(&scene).unwrap();
        let class = &pool["spec"]["machineClass"];
        assert_eq!(
            (&class["providerSpec"]["instanceType"], &class["nodeTemplate"]["instanceType"]),
            (&json!("large"), &json!("large"))
        );
        scene
            .until("the class of the old VMs to be deleted", async || {
                let classes = scene.all("machineclass");
                let of_pool = classes.iter().filter(|class| name_of(class).starts_with("pools-mp-0-"));
                (of_pool.count() == 1).then_some(())
            })
            .await;

        let kinds =
            ["machinepool", "mcmmachinepool", "mcmmachinepooltemplate", "machinedeployments.machine.sapcloud.io"];
        scene.is_idle(&[&QUIET[..], &kinds].concat()).await;
        let cluster = scene.get("cluster", "pools");
        assert!(condition(&cluster, "TopologyReconciled").starts_with("True"), "{cluster}");

        scene.kubectl(&["delete", "cluster", "pools", "--timeout=600s"]);
        assert!(scene.vms().await.is_empty());
        for kind in ["mcmmachinepool", "machineclass", "machinedeployments.machine.sapcloud.io"] {
            scene.until("the rest to be gone", async || scene.all(kind).is_empty().then_some(())).await;
        }
        scene.kubectl(&["delete", "clusterclass", "simulated", "--timeout=600s"]);
    });
}

/// A ClusterClass of Cluster API Provider AWS, and a Cluster of it.
fn of_aws(scene: &Scene) -> Vec<Value> {
    let infra = "infrastructure.cluster.x-k8s.io/v1beta2";
    let (control, bootstrap) = ("controlplane.cluster.x-k8s.io/v1beta2", "bootstrap.cluster.x-k8s.io/v1beta2");
    let object = |version: &str, kind: &str, name: &str, spec: Value| {
        let metadata = json!({"name": name, "namespace": scene.namespace});
        json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec})
    };
    let template = |version: &str, kind: &str, name: &str, spec: Value| {
        object(version, kind, name, json!({"template": {"spec": spec}}))
    };
    let to =
        |version: &str, kind: &str, name: &str| json!({"ref": {"apiVersion": version, "kind": kind, "name": name}});
    let mut control_plane = to(control, "KubeadmControlPlaneTemplate", "control-plane");
    control_plane["machineInfrastructure"] = to(infra, "AWSMachineTemplate", "control-plane");
    let definition = |kind: &str, resources: Value, field: &str, variable: &str| {
        let change =
            json!({"op": "add", "path": format!("/spec/template/spec/{field}"), "valueFrom": {"variable": variable}});
        let selector = json!({"apiVersion": infra, "kind": kind, "matchResources": resources});
        json!({"selector": selector, "jsonPatches": [change]})
    };
    let names = ["region", "key", "workerType", "store"];
    let texts =
        names.map(|name| json!({"name": name, "required": true, "schema": {"openAPIV3Schema": {"type": "string"}}}));
    let workers = json!({"machineDeploymentClass": {"names": ["default"]}});
    let both = json!({"controlPlane": true, "machineDeploymentClass": {"names": ["default"]}});
    let mut class = json!({
        "controlPlane": control_plane,
        "infrastructure": to(infra, "AWSClusterTemplate", "network"),
        "workers": {"machineDeployments": [{"class": "default", "template": {
            "bootstrap": to(bootstrap, "KubeadmConfigTemplate", "workers"),
            "infrastructure": to(infra, "AWSMachineTemplate", "workers"),
        }}]},
        "variables": texts,
        "patches": [
            {"name": "region", "definitions": [
                definition("AWSClusterTemplate", json!({"infrastructureCluster": true}), "region", "region"),
            ]},
            {"name": "workers", "definitions": [
                definition("AWSMachineTemplate", both, "sshKeyName", "key"),
                definition("AWSMachineTemplate", workers.clone(), "instanceType", "workerType"),
                definition("AWSMachineTemplate", workers.clone(), "rootVolume/size", "size"),
            ]},
            {"name": "store", "enabledIf": "{{ if .store }}true{{ end }}", "definitions": [
                definition("AWSMachineTemplate", workers, "cloudInit/secureSecretsBackend", "store"),
            ]},
        ],
    });
    let size = json!({"name": "size", "required": true, "schema": {"openAPIV3Schema": {"type": "integer"}}});
    class["variables"].as_array_mut().unwrap().push(size);
    let machine = json!({
        "instanceType": "replaced", "iamInstanceProfile": "nodes", "ami": {"id": "ami-1"}, "cloudInit": {},
        "rootVolume": {"size": 10, "type": "gp3"}, "additionalTags": {"team": "{{ a }}"},
    });
    let values = json!([
        {"name": "region", "value": "eu-west-1"}, {"name": "key", "value": "ops"}, {"name": "workerType", "value": "m5.xlarge"},
        {"name": "store", "value": "secrets-manager"}, {"name": "size", "value": 80},
    ]);
    let topology = json!({
        "classRef": {"name": "converted"}, "version": KUBERNETES, "controlPlane": {"replicas": 1}, "variables": values,
        "workers": {"machineDeployments": [{"class": "default", "name": "md-0", "replicas": 0}]},
    });
    let joined = json!({"joinConfiguration": {"nodeRegistration": {"name": "node"}}});
    vec![
        template(infra, "AWSClusterTemplate", "network", json!({})),
        template(infra, "AWSMachineTemplate", "control-plane", machine.clone()),
        template(infra, "AWSMachineTemplate", "workers", machine),
        template(control, "KubeadmControlPlaneTemplate", "control-plane", json!({"kubeadmConfigSpec": joined})),
        template(bootstrap, "KubeadmConfigTemplate", "workers", joined.clone()),
        object("cluster.x-k8s.io/v1beta1", "ClusterClass", "converted", class),
        object("cluster.x-k8s.io/v1beta2", "Cluster", &scene.name, json!({"topology": topology})),
    ]
}

/// Core applies the converted patches: the template of the workers has the values of the Cluster, and that of the control plane,
/// which stays with its provider, has its own.
#[test]
fn core_applies_the_patches_of_a_converted_class() {
    play(async |world: &'static World| {
        other_provider::install(world, &AWS).await;
        let scene = Scene::with_authority(world, "converted").await;
        let file = world.folder().join("class-of-aws.json");
        let list = json!({"apiVersion": "v1", "kind": "List", "items": of_aws(&scene)});
        std::fs::write(&file, list.to_string()).unwrap();
        let mut convert = Command::new(mcm());
        convert.args(["convert", "--to", "capi", "--credentials-secret", "cloud", "-f"]).arg(&file);
        let converted = convert.output().unwrap();
        assert!(converted.status.success(), "{}", String::from_utf8_lossy(&converted.stderr));
        world.kubectl_with(&["apply", "-f", "-"], &String::from_utf8(converted.stdout).unwrap());

        let owned = "topology.cluster.x-k8s.io/owned";
        let made = |kind: &str| scene.selected(kind, owned).into_iter().next();
        let workers = scene.until("the template of the workers", async || made("mcmmachinetemplate")).await;
        let class = &workers["spec"]["template"]["spec"]["machineClass"];
        let spec = &class["providerSpec"];
        assert_eq!(class["credentialsSecretRef"], json!({"name": "cloud"}));
        assert_eq!((&spec["region"], &spec["machineType"]), (&json!("eu-west-1"), &json!("m5.xlarge")));
        assert_eq!((&spec["keyName"], &spec["userDataStore"]), (&json!("ops"), &json!("SecretsManager")));
        assert_eq!(spec["blockDevices"][0]["ebs"]["volumeSize"], 80);
        assert_eq!(
            spec["tags"],
            json!({"kubernetes.io/cluster/converted": "owned", "kubernetes.io/role/node": "1", "team": "{{ a }}"})
        );
        let control_plane = scene.until("the template of the control plane", async || made("awsmachinetemplate")).await;
        let machine = &control_plane["spec"]["template"]["spec"];
        assert_eq!((&machine["sshKeyName"], &machine["instanceType"]), (&json!("ops"), &json!("replaced")));
        assert_eq!(scene.selected("awsmachinetemplate", owned).len(), 1, "the workers have none");

        scene.kubectl(&["delete", "cluster", "converted", "--timeout=600s"]);
        scene.kubectl(&["delete", "clusterclass", "converted", "--timeout=60s"]);
    });
}
