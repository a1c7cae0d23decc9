//! 4.2: Cluster API without core, and the arrival of core.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::{
    adopt::{Adoption, bind, lines_of},
    moves::{ids, journal_of, journal_so_far, nodes},
    repository::with_user_data,
    scene::{KUBERNETES, Scene, condition, name_of},
    world::{VERSION, World, play},
};

const MACHINES: usize = 20;
const HANDED: usize = 5;
const SHOWN: [&str; 3] =
    ["machinedeployments.cluster.x-k8s.io", "machinesets.cluster.x-k8s.io", "machines.cluster.x-k8s.io"];
const OF_CORE: [&str; 3] = ["machinedeployments", "machinesets", "machines"];

/// The manifests that a release has for core, with user data.
fn manifests(scene: &Scene, machines: usize) -> String {
    let text = include_str!("../../templates/cluster-api/cluster-template-simulated.yaml");
    let values = [
        ("CLUSTER_NAME", scene.name.as_str()),
        ("NAMESPACE", &scene.namespace),
        ("KUBERNETES_VERSION", KUBERNETES),
        ("CONTROL_PLANE_ENDPOINT_HOST:=127.0.0.1", "127.0.0.1"),
        ("CONTROL_PLANE_ENDPOINT_PORT:=6443", "6443"),
        ("WORKER_MACHINE_COUNT:=1", &machines.to_string()),
    ];
    values.iter().fold(with_user_data(text), |text, (name, value)| text.replace(&format!("${{{name}}}"), value))
}

/// A namespace with the native controllers, and machines of a deployment.
async fn scene(world: &'static World, name: &str, machines: usize, is_served: bool) -> Scene {
    let scene = Scene::new(world, name).await;
    if is_served {
        world.kubectl(&["label", "namespace", &scene.namespace, "machine.mcm/stand-in=enabled"]);
    }
    world.start_natives(&scene.namespace).await;
    world.kubectl_with(&["apply", "-f", "-"], &manifests(&scene, machines));
    if is_served {
        scene.until("all Machines to run", async || scene.has_running(machines)).await;
    }
    scene
}

fn deployment(scene: &Scene) -> String {
    format!("machinedeployment.cluster.x-k8s.io/{}-md-0", scene.name)
}

/// The deployment as it is.
fn current(scene: &Scene) -> Value {
    scene.get("machinedeployment.cluster.x-k8s.io", &format!("{}-md-0", scene.name))
}

fn migration(scene: &Scene) -> Value {
    scene.get("mcmmigration", &format!("{}-md-0", scene.name))
}

/// The Machines show the Nodes, with their IDs.
fn assert_shows_nodes(scene: &Scene) {
    let nodes = scene.nodes();
    for machine in scene.all("machines.cluster.x-k8s.io") {
        let node = nodes.iter().find(|node| node["metadata"]["name"] == machine["status"]["nodeRef"]["name"]).unwrap();
        assert_eq!(machine["spec"]["providerID"], node["spec"]["providerID"]);
        for type_ in ["Ready", "Available", "InfrastructureReady", "NodeHealthy", "UpToDate"] {
            assert!(condition(&machine, type_).starts_with("True"), "{type_}: {machine:#}");
        }
    }
}

/// Core reads both annotations, the autoscaler the owners, the selector and the scale.
fn assert_is_linked(scene: &Scene) {
    let deployment = current(scene);
    let sets = scene.all("machinesets.cluster.x-k8s.io");
    let uids: Vec<&Value> = sets.iter().map(|set| &set["metadata"]["uid"]).collect();
    assert!(sets.iter().all(|set| set["metadata"]["ownerReferences"][0]["uid"] == deployment["metadata"]["uid"]));
    let machines = scene.all("machines.cluster.x-k8s.io");
    assert!(machines.iter().all(|machine| uids.contains(&&machine["metadata"]["ownerReferences"][0]["uid"])));
    let selector = deployment["status"]["selector"].as_str().unwrap();
    assert_eq!(scene.selected("machines.cluster.x-k8s.io", selector).len(), machines.len());
}

/// S1 to S7, T14, AU8: unmodified manifests of 20 machines, day 2, and then core arrives.
#[test]
fn machines_are_served_without_core_and_run_on_when_it_arrives() {
    play(async |world: &'static World| {
        let beside = world.bare_beside().await;
        let world = beside.0;
        world.start_stand_in().await;
        let unasked = scene(world, "unasked", 1, false).await;
        let scene = scene(world, "served", MACHINES, true).await;
        assert_shows_nodes(&scene);
        assert_is_linked(&scene);
        assert!(condition(&migration(&scene), "StandIn").starts_with("True Serving"));
        let alone = current(&unasked);
        assert!(alone["metadata"]["finalizers"].is_null() && alone["status"].is_null(), "S1: {alone:#}");
        scene.is_idle(&["machines.cluster.x-k8s.io", "machinesets.cluster.x-k8s.io", "mcmmigrations"]).await;

        scales(&scene).await;
        replaces(&scene).await;
        heals(&scene).await;
        rolls(&scene).await;
        refuses(&scene);
        core_arrives(&scene).await;
    });
}

/// S6: all created objects are deleted with the deployment.
#[test]
fn a_deployment_is_deleted_with_everything_that_was_made_for_it() {
    play(async |world: &'static World| {
        let beside = world.bare_beside().await;
        let world = beside.0;
        world.start_stand_in().await;
        let scene = scene(world, "ended", 2, true).await;
        scene.kubectl(&["delete", &deployment(&scene), "--timeout=120s"]);
        assert!(scene.vms().await.is_empty());
        for kind in ["machinesets.cluster.x-k8s.io", "machines.cluster.x-k8s.io", "mcmmigrations"] {
            scene.until("it to be gone", async || scene.all(kind).is_empty().then_some(())).await;
        }
        scene
            .until("class and copy to be gone", async || {
                let secrets = scene.selected("secrets", "machine.mcm/stand-in");
                (scene.all("machineclasses").is_empty() && secrets.is_empty()).then_some(())
            })
            .await;
    });
}

/// S8, 9.7: `mcm adopt --from stand-in`, killed in every step. The native side gets the machines alone, core is
/// installed, and then gets the machines. The VMs do not change. This Cluster has no control plane, without which core
/// counts no machine as available.
#[test]
fn machines_can_be_handed_over_to_core() {
    play(async |world: &'static World| {
        let beside = world.bare_beside().await;
        let world = beside.0;
        world.start_stand_in().await;
        let scene = Scene::new(world, "handed").await;
        world.kubectl(&["label", "namespace", &scene.namespace, "machine.mcm/stand-in=enabled"]);
        let adoption = Adoption::beside(scene).await;
        let scene = &adoption.scene;
        bind(scene, "mcm-adopt-hand-over");
        world.kubectl_with(&["apply", "-f", "-"], &manifests(scene, HANDED));
        scene.until("all Machines to run", async || scene.has_running(HANDED)).await;
        let (before, ids, from) = (adoption.essence().await, ids(scene).await, journal_so_far(scene));
        let plan = adoption.must(&["plan", "--from", "stand-in"]);
        assert!(plan.contains("every check passed") && asks_for_stand_in(scene), "{plan}");

        adoption.apply_with_kills(&["--from", "stand-in", "--to", "native"]);
        assert_eq!(adoption.essence().await, before, "while the MCM controllers have the machines alone");
        assert_eq!(adoption.names(&SHOWN), [""; 0]);
        assert!(scene.all("mcmmigrations").is_empty() && !asks_for_stand_in(scene));

        let mut command = adoption.command(&["apply", "--from", "stand-in", "--to", "capi", "--timeout=180s"]);
        let mut going_on = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = lines_of(&mut going_on);
        assert!(lines.any(|line| line.contains("waiting for Cluster API core")));
        world.install_core(&["--infrastructure", &format!("mcm:{VERSION}")]).await;
        world.start_provider().await;
        let ended = scene.until("the hand-over to end", async || going_on.try_wait().unwrap()).await;
        assert!(ended.success(), "{:#?}", lines.collect::<Vec<_>>());
        assert_eq!(adoption.essence().await, before, "while core has the machines");
        scene.until("all Machines to run", async || scene.has_running(HANDED)).await;
        assert!(scene.all("machinedeployments.machine.sapcloud.io").is_empty());
        assert_eq!(journal_of(scene, &from, &ids), [""; 0], "the cloud noticed");
        adoption.found_no_orphans();

        // Core is at work.
        scene.scale(HANDED + 1);
        scene.until("one more Machine", async || scene.has_running(HANDED + 1)).await;
    });
}

fn asks_for_stand_in(scene: &Scene) -> bool {
    let namespace = scene.world.reader.find("", "namespace", &scene.namespace).unwrap();
    namespace["metadata"]["labels"]["machine.mcm/stand-in"] == "enabled"
}

/// Section 6: the scale subresource, and the annotation that chooses a machine.
async fn scales(scene: &Scene) {
    scene.kubectl(&["scale", &deployment(scene), &format!("--replicas={}", MACHINES + 1)]);
    scene.until("one more Machine", async || scene.has_running(MACHINES + 1)).await;
    let chosen = scene.machines().into_iter().next().unwrap();
    let rest: Vec<String> = scene.machines().into_iter().filter(|name| *name != chosen).collect();
    scene.kubectl(&["annotate", "machine.cluster.x-k8s.io", &chosen, "cluster.x-k8s.io/delete-machine=yes"]);
    scene.kubectl(&["scale", &deployment(scene), &format!("--replicas={MACHINES}")]);
    scene.until("one Machine less", async || scene.has_running(MACHINES)).await;
    assert_eq!(scene.machines(), rest, "exactly the chosen one went");
}

/// S7.
async fn replaces(scene: &Scene) {
    let gone = scene.machines().into_iter().next().unwrap();
    scene.kubectl(&["delete", "machine.cluster.x-k8s.io", &gone, "--timeout=120s"]);
    assert!(!scene.vms().await.contains_key(&gone), "the Machine goes after its VM");
    scene.until("another Machine", async || scene.has_running(MACHINES)).await;
}

/// S9: the MCM controllers replace an unhealthy machine while there is a health check.
async fn heals(scene: &Scene) {
    let limit = async |wanted: Value| {
        let native = format!("{}-md-0", scene.name);
        let is_set = async || {
            let native = scene.get("machinedeployments.machine.sapcloud.io", &native);
            (native["spec"]["template"]["spec"]["healthTimeout"] == wanted).then_some(())
        };
        scene.until("the limit of the MCM deployment", is_set).await;
    };
    let condition = |status: &str| json!({"type": "Ready", "status": status, "timeoutSeconds": 3});
    scene.health_check(&json!({"unhealthyNodeConditions": [condition("False"), condition("Unknown")]}));
    limit(json!("3s")).await;
    let before = scene.machines();
    let dead = before[0].clone();
    scene.world.cloud.condition(&dead, "Ready", Some("False")).await;
    scene
        .until("another Machine in its place", async || {
            (!scene.machines().contains(&dead)).then_some(())?;
            scene.has_running(MACHINES)
        })
        .await;
    let kept = scene.machines().iter().filter(|name| before.contains(name)).count();
    assert_eq!((kept, scene.vms().await.len()), (MACHINES - 1, MACHINES));
    scene.kubectl(&["delete", "machinehealthcheck", &scene.name]);
    limit(Value::Null).await;
}

async fn rolls(scene: &Scene) {
    let before = scene.machines();
    let change = json!({"spec": {
        "rollout": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 10, "maxUnavailable": 0}}},
        "template": {"spec": {"version": "v1.33.1"}},
    }});
    scene.kubectl(&["patch", &deployment(scene), "--type=merge", "-p", &change.to_string()]);
    scene
        .until("the rollout to end", async || {
            let one = current(scene);
            let status = &one["status"];
            let counters = ["replicas", "upToDateReplicas", "availableReplicas"].map(|name| status[name].as_u64());
            let is_observed = status["observedGeneration"] == one["metadata"]["generation"];
            let is_whole = counters.iter().all(|count| *count == u64::try_from(MACHINES).ok());
            (is_observed && is_whole && scene.has_running(MACHINES).is_some()).then_some(())
        })
        .await;
    let after = scene.machines();
    assert!(after.iter().all(|name| !before.contains(name)), "all were replaced");
    assert!(scene.all("machines.cluster.x-k8s.io").iter().all(|one| one["spec"]["version"] == "v1.33.1"));
    scene
        .until("the old set not to be shown", async || {
            (scene.all("machinesets.cluster.x-k8s.io").len() == 1).then_some(())
        })
        .await;
    assert_is_linked(scene);
}

/// S3, S4: in any combination of running programs.
fn refuses(scene: &Scene) {
    let one = current(scene);
    let owner = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment", "name": name_of(&one),
        "uid": one["metadata"]["uid"], "controller": true,
    });
    let set = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineSet",
        "metadata": {"name": "doubled", "namespace": scene.namespace, "ownerReferences": [owner]},
        "spec": {"clusterName": scene.name, "selector": {}, "template": one["spec"]["template"]},
    });
    let said = scene.world.try_kubectl(&["create", "-f", "-"], &set.to_string()).unwrap_err();
    assert!(said.contains("the stand-in of mcm creates the machines"), "{said}");
    let set = name_of(&scene.all("machinesets.cluster.x-k8s.io")[0]).to_owned();
    let words = ["scale", "machineset.cluster.x-k8s.io", &set, "--replicas=9", "-n", &scene.namespace];
    let said = scene.world.try_kubectl(&words, "").unwrap_err();
    assert!(said.contains("scale its MachineDeployment"), "{said}");
}

/// S2, T14: no VM is created or deleted, and an object of ours has the reason.
async fn core_arrives(scene: &Scene) {
    let (vms, nodes_before, from) = (scene.vms().await, nodes(scene), journal_so_far(scene));
    let ids = ids(scene).await;
    scene.world.install_core(&[]).await;
    scene
        .until("the stand-in to step back", async || {
            let said = condition(&migration(scene), "StandIn");
            (said == "False CoreProviderPresent").then_some(())
        })
        .await;
    // Core is at work: it has the deployment, and would like to have more machines of it.
    scene
        .until("core to have the deployment", async || {
            let finalizers = current(scene)["metadata"]["finalizers"].clone();
            finalizers.as_array()?.iter().any(|one| one == "cluster.x-k8s.io/machinedeployment").then_some(())
        })
        .await;
    scene.kubectl(&["scale", &deployment(scene), &format!("--replicas={}", MACHINES + 5)]);
    // An object that vanishes in Cluster API causes no other deletion.
    let vanishing = scene.machines().into_iter().next().unwrap();
    scene.kubectl(&["delete", "machine.cluster.x-k8s.io", &vanishing, "--wait=false"]);
    let released = r#"{"metadata":{"finalizers":null}}"#;
    scene.kubectl(&["patch", "machine.cluster.x-k8s.io", &vanishing, "--type=merge", "-p", released]);
    scene
        .until("core to be refused to change the set", async || {
            let events = scene.all("events");
            let mut said = events.iter().filter_map(|event| event["message"].as_str());
            said.any(|text| text.contains("change its MachineDeployment")).then_some(())
        })
        .await;
    scene.is_idle(&["machines.machine.sapcloud.io", "machinesets.machine.sapcloud.io", "mcmmigrations"]).await;
    assert_eq!(scene.vms().await, vms);
    assert_eq!(nodes(scene), nodes_before);
    assert_eq!(journal_of(scene, &from, &ids), [""; 0], "the cloud noticed");
    for kind in OF_CORE {
        let all = scene.all(&format!("{kind}.machine.sapcloud.io"));
        assert!(all.iter().all(|one| one["metadata"]["deletionTimestamp"].is_null()), "{kind}");
    }
    let doubled = scene.all("mcmmachines");
    assert!(doubled.is_empty(), "{doubled:#?}");
}
