//! In-place updates of the real core, with our update extension and with one of another project that claims too much.

use std::net::SocketAddr;

use axum::{Json, Router, routing::post};
use k8s_openapi::ByteString;
use mcm_runtime::http::{CertificateFiles, EndpointServer};
use serde_json::{Value, json};
use tokio::{net::TcpStream, sync::OnceCell};

use crate::{
    scene::{KUBERNETES, Scene, condition, documents, name_of},
    support::{
        identity,
        program::{Program, free_port, mcm},
        wait,
    },
    world::{CERTIFICATE, KEY, NAMESPACE, VERSION, World, play_since},
};

const MACHINES: &str = "machines.cluster.x-k8s.io";
const NATIVES: &str = "machines.machine.sapcloud.io";
const MARK: &str = "in-place-updates.internal.cluster.x-k8s.io/update-in-progress";
/// The first minor version of core with updates in place.
const UPDATES: u64 = 12;
/// Label of the namespaces of an extension. Core allows one for each object.
const LABEL: &str = "test.invalid/updates";

/// A world whose core updates machines in place, with our update extension.
async fn updating(world: &World) -> &'static World {
    static UPDATING: OnceCell<World> = OnceCell::const_new();
    let start = || async {
        let world = world.with_gates(",RuntimeSDK=true,InPlaceUpdates=true").await;
        start_extension(&world).await;
        world
    };
    UPDATING.get_or_init(start).await
}

/// Our extension, of the release under test, with the rights of its ServiceAccount and no more.
async fn start_extension(world: &World) {
    let file = format!("repository/infrastructure-mcm/{VERSION}/in-place-components.yaml");
    let all = documents(&std::fs::read_to_string(world.folder().join(file)).unwrap());
    let (configs, others): (Vec<Value>, Vec<Value>) = all.into_iter().partition(|one| one["kind"] == "ExtensionConfig");
    others.iter().for_each(|object| world.apply(object));
    let (client, admin) = (world.management.client(), world.management.kubeconfig());
    let kubeconfig = identity::kubeconfig(&client, admin, NAMESPACE, "capmcm-extension", world.folder()).await;
    let (address, folder) = (SocketAddr::from(([127, 0, 0, 1], free_port())), world.certificates());
    let arguments = [
        "capi-extension".to_owned(),
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--address={address}"),
        format!("--tls-cert-file={}", folder.join(CERTIFICATE).display()),
        format!("--tls-private-key-file={}", folder.join(KEY).display()),
    ];
    let mut program = Program::start(mcm(), arguments.to_vec(), world.folder().join("extension.log"));
    wait::until("the extension to listen", async || {
        program.assert_runs();
        TcpStream::connect(address).await.ok()
    })
    .await;
    world.keep(program);
    let [config] = configs.try_into().unwrap();
    register(world, config, "mcm", address).await;
}

/// Registers an extension at an address, for the namespaces with its label, and waits until core has found it.
async fn register(world: &World, mut config: Value, label: &str, address: SocketAddr) {
    config["metadata"]["annotations"] = Value::Null;
    config["spec"] = json!({
        "clientConfig": {"url": format!("https://{address}"), "caBundle": world.authority()},
        "namespaceSelector": {"matchLabels": {LABEL: label}},
    });
    world.apply(&config);
    wait::until("core to discover the extension", async || {
        let config = world.reader.find("", "extensionconfigs.runtime.cluster.x-k8s.io", name_of(&config))?;
        condition(&config, "Discovered").starts_with("True").then_some(())
    })
    .await;
}

/// A cluster with two workers of kubeadm, whose class is `small`.
async fn with_workers(world: &'static World, name: &str, label: &str) -> Scene {
    let scene = Scene::with_workers(world, name, 0).await;
    scene.world.kubectl(&["label", "namespace", &scene.namespace, &format!("{LABEL}={label}")]);
    let pki = world.workload.folder().join("pki");
    scene.add_secret("ca", &[("tls.crt", &pki.join("ca.crt")), ("tls.key", &pki.join("ca.key"))]);
    for (class, type_, cpu) in [("small", "small", "1"), ("small-described", "small", "2"), ("large", "large", "2")] {
        world.apply(&json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass",
            "metadata": {"name": class, "namespace": scene.namespace},
            "provider": "simulated", "providerSpec": {"instanceType": type_, "zone": "simulated-a"},
            "nodeTemplate": {
                "capacity": {"cpu": cpu, "gpu": "0", "memory": "4Gi"}, "instanceType": type_, "region": "simulated",
                "zone": "simulated-a",
            },
        }));
        world.apply(&json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "MCMMachineTemplate",
            "metadata": {"name": class, "namespace": scene.namespace},
            "spec": {"template": {"spec": {"machineClassRef": {"name": class}}}},
        }));
    }
    let reference = |group: &str, kind: &str, name: &str| json!({"apiGroup": format!("{group}.cluster.x-k8s.io"), "kind": kind, "name": name});
    let metadata = json!({"name": deployment(&scene), "namespace": scene.namespace});
    world.apply(&json!({
        "apiVersion": "bootstrap.cluster.x-k8s.io/v1beta2", "kind": "KubeadmConfigTemplate", "metadata": metadata,
        "spec": {"template": {"spec": {"joinConfiguration": {"nodeRegistration": {"name": "node"}}}}},
    }));
    world.apply(&json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment", "metadata": metadata,
        "spec": {
            "clusterName": scene.name, "replicas": 2, "selector": {"matchLabels": {}},
            // Without it core creates a machine first, so that as many are available.
            "rollout": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}},
            "template": {"spec": {
                "clusterName": scene.name, "version": KUBERNETES,
                "bootstrap": {"configRef": reference("bootstrap", "KubeadmConfigTemplate", &deployment(&scene))},
                "infrastructureRef": reference("infrastructure", "MCMMachineTemplate", "small"),
            }},
        },
    }));
    scene.until("two Machines", async || scene.has_running(2)).await;
    scene
}

fn deployment(scene: &Scene) -> String {
    format!("{}-workers", scene.name)
}

fn change_template(scene: &Scene, template: &str) {
    let change = json!({"spec": {"template": {"spec": {"infrastructureRef": {"name": template}}}}}).to_string();
    let deployment = format!("machinedeployment.cluster.x-k8s.io/{}", deployment(scene));
    scene.kubectl(&["patch", &deployment, "--type=merge", "-p", &change]);
}

/// All Machines have this class in their objects, and core updates none of them.
fn are_updated(scene: &Scene, class: &str) -> Option<()> {
    scene.has_running(2)?;
    for machine in scene.machines() {
        let (owner, object) = (scene.find(MACHINES, &machine)?, scene.find("mcmmachine", &machine)?);
        let is_marked = [&owner, &object].into_iter().any(|one| !one["metadata"]["annotations"][MARK].is_null());
        let is_updated = !is_marked && condition(&owner, "Updating") == "False NotUpdating";
        (is_updated && object["spec"]["machineClassRef"]["name"] == class).then_some(())?;
    }
    Some(())
}

/// The classes of the VMs.
fn classes_of_vms(scene: &Scene) -> Vec<Value> {
    scene.all(NATIVES).iter().map(|native| native["spec"]["class"]["name"].clone()).collect()
}

#[test]
fn a_node_template_is_changed_in_place_and_another_vm_is_rolled_out() {
    play_since(UPDATES, async |world: &'static World| {
        let scene = with_workers(updating(world).await, "stays", "mcm").await;
        let (vms, machines) = (scene.vms().await, scene.machines());
        change_template(&scene, "small-described");
        scene.until("both to be updated", async || are_updated(&scene, "small-described")).await;
        assert_eq!((scene.vms().await, scene.machines()), (vms.clone(), machines));
        assert_eq!(classes_of_vms(&scene), ["small-described"; 2]);
        for object in scene.all("mcmmachine") {
            assert_eq!(condition(&object, "ClassResolved"), "True Resolved");
        }

        change_template(&scene, "large");
        scene
            .until("all VMs to be new", async || {
                let now = scene.vms().await;
                let is_new = now.len() == 2 && now.keys().all(|machine| !vms.contains_key(machine));
                is_new.then_some(())?;
                are_updated(&scene, "large")
            })
            .await;
        assert_eq!(classes_of_vms(&scene), ["large"; 2]);
    });
}

/// An extension that claims every change of the infrastructure, and says at once that it is done.
async fn start_other_extension(world: &World) -> SocketAddr {
    const VERSION: &str = "hooks.runtime.cluster.x-k8s.io/v1alpha1";
    let hooks = ["CanUpdateMachineSet", "UpdateMachine"];
    let handlers = hooks.map(|hook| json!({"name": "any", "requestHook": {"apiVersion": VERSION, "hook": hook}}));
    let handlers = handlers.map(|mut handler| {
        handler["name"] = handler["requestHook"]["hook"].as_str().unwrap().to_lowercase().into();
        handler
    });
    let discovery = json!({"status": "Success", "handlers": handlers});
    // Core names no content type.
    let can_update = async |request: String| {
        let request: Value = serde_json::from_str(&request).unwrap();
        let spec = &request["desired"]["infrastructureMachineTemplate"]["spec"]["template"]["spec"];
        let patch = json!([{"op": "replace", "path": "/spec/template/spec", "value": spec}]).to_string();
        let patch = json!({"patchType": "JSONPatch", "patch": ByteString(patch.into_bytes())});
        Json(json!({"status": "Success", "infrastructureMachineTemplatePatch": patch}))
    };
    let update = async || Json(json!({"status": "Success", "retryAfterSeconds": 0}));
    let router = Router::new()
        .route(&format!("/{VERSION}/discovery"), post(async move || Json(discovery)))
        .route(&format!("/{VERSION}/canupdatemachineset/canupdatemachineset"), post(can_update))
        .route(&format!("/{VERSION}/updatemachine/updatemachine"), post(update));
    let folder = world.certificates();
    let files = CertificateFiles { cert: folder.join(CERTIFICATE), key: folder.join(KEY) };
    let server = EndpointServer::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
    let address = server.address();
    // It serves as long as the runtime.
    drop(server.serve_requests(router, files).unwrap());
    address
}

#[test]
fn what_another_extension_claims_too_much_shows_on_the_machine_and_the_vm_stays() {
    play_since(UPDATES, async |world: &'static World| {
        let world = updating(world).await;
        let address = start_other_extension(world).await;
        let config = json!({
            "apiVersion": "runtime.cluster.x-k8s.io/v1beta2", "kind": "ExtensionConfig", "metadata": {"name": "other"},
        });
        register(world, config, "other", address).await;
        let scene = with_workers(world, "claimed", "other").await;
        let vms = scene.vms().await;
        change_template(&scene, "large");
        let is_refused = |object: &Value| condition(object, "ClassResolved") == "False NewVMRequired";
        scene
            .until("the condition of both, and the end of the update", async || {
                are_updated(&scene, "large")?;
                scene.all("mcmmachine").iter().all(is_refused).then_some(())
            })
            .await;
        assert_eq!((scene.vms().await, classes_of_vms(&scene)), (vms.clone(), vec![json!("small"), json!("small")]));
        for object in scene.all("mcmmachine") {
            let all = object["status"]["conditions"].as_array().unwrap();
            let message = all.iter().find(|one| one["type"] == "ClassResolved").unwrap()["message"].as_str().unwrap();
            assert!(message.contains("large") && message.contains("delete the Machine"), "{message}");
            assert_eq!(condition(&object, "Ready"), "True Provisioned", "the VM is as good as before");
        }

        let machines: Vec<String> = scene.machines();
        for machine in machines {
            scene.kubectl(&["delete", MACHINES, &machine, "--timeout=120s"]);
        }
        scene
            .until("VMs of their description", async || {
                are_updated(&scene, "large")?;
                (classes_of_vms(&scene) == ["large"; 2]).then_some(())
            })
            .await;
        assert!(scene.all("mcmmachine").iter().all(|object| condition(object, "ClassResolved") == "True Resolved"));
        assert!(scene.vms().await.keys().all(|machine| !vms.contains_key(machine)));
    });
}
