//! Each kind of wait on a real control plane: `mcm why` names the object, the start and the end of the wait, and remedies. Those
//! that are commands are run.

use std::{
    collections::BTreeSet,
    panic::AssertUnwindSafe,
    path::{Path, PathBuf},
    time::Duration,
};

use futures::{FutureExt, future::join_all};
use http::{Method, StatusCode};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use mcm::api::{labels, machine::MachinePhase};
use serde_json::{Value, json};
use tokio::{process::Command, sync::Semaphore};

use crate::support::{
    attach_detach::{AttachDetach, Latency},
    control_plane::ControlPlane,
    door::Call,
    objects, pods,
    program::mcm,
    wait,
    world::{Manager, World},
};

/// A kind of wait, and the object that this test makes wait.
struct Case {
    kind: &'static str,
    /// Kind of the object and the beginning of its name.
    object: (&'static str, &'static str),
    /// A part of the text of the wait.
    says: &'static str,
    /// Whether the wait has an end at a known time.
    has_until: bool,
    /// The effect of the remedy that ends the wait; none if only the cause of the wait can be removed.
    cure: Option<&'static str>,
}

const fn until(kind: &'static str, object: (&'static str, &'static str), says: &'static str) -> Case {
    Case { kind, object, says, has_until: true, cure: None }
}

const fn endless(kind: &'static str, object: (&'static str, &'static str), says: &'static str) -> Case {
    Case { kind, object, says, has_until: false, cure: None }
}

const fn cured(case: Case, effect: &'static str) -> Case {
    Case { cure: Some(effect), ..case }
}

const MACHINE: &str = "Machine";
const SET: &str = "MachineSet";
const DEPLOYMENT: &str = "MachineDeployment";
const CLASS: &str = "MachineClass";
const REPLACES: &str = "ReplacesMachines";
const KILLS_PODS: &str = "KillsPods";
const LOSES_DATA: &str = "LosesData";

/// Names begin with `w-`, because Nodes of other tests are in the same cluster.
const PRODUCED: [Case; 33] = [
    until("BootstrapToken", (MACHINE, "w-bootstrap-token"), "a bootstrap token: cannot create bootstrap token"),
    endless("Class", (MACHINE, "w-class"), "the MachineClass w-nowhere, which does not exist"),
    until("DriverRetry", (MACHINE, "w-driver-retry"), "no host has room"),
    cured(until("Eviction", (MACHINE, "w-eviction"), "disruption budget"), KILLS_PODS),
    endless("Finalizers", (MACHINE, "w-finalizers"), "example.com/keep"),
    endless("Hold", (MACHINE, "w-hold"), "MCMMigration m to be complete"),
    endless("InPlaceUpdate", (DEPLOYMENT, "w-in-place"), "select"),
    endless("MachineAvailability", (SET, "w-availability"), "1 of 1 machine to become available"),
    endless("MachineDeletion", (SET, "w-deletion"), "1 machine to be deleted before the set"),
    until("MachineWrite", (MACHINE, "w-machine-write"), "no ID in this test"),
    cured(until("NodeHealth", (MACHINE, "w-node-health"), "the Node to become healthy again"), REPLACES),
    cured(until("NodeJoin", (MACHINE, "w-node-join"), "Node w-node-join to join"), REPLACES),
    endless("NodeTemplate", (MACHINE, "w-node-template"), "example.com/bad"),
    until("NodeWrite", (MACHINE, "w-node-write"), "a write to the Node to succeed"),
    until("NodeWriteRefused", (MACHINE, "w-node-refused"), "a write to the Node to succeed"),
    until("NodesUnknown", (MACHINE, "w-nodes-unknown"), "the Node to become readable"),
    cured(endless("Paused", (DEPLOYMENT, "w-paused"), "spec.paused is true"), REPLACES),
    until("PodList", (MACHINE, "w-pod-list"), "the list of the pods of the Node"),
    cured(until("PodTermination", (MACHINE, "w-pod-termination"), "w-pod-termination to terminate"), KILLS_PODS),
    cured(until("Preservation", (MACHINE, "w-preservation"), "the preservation to end"), REPLACES),
    endless("Replacement", (MACHINE, "w-replacement"), "its set to replace it"),
    until("ReplacementPermit", (MACHINE, "w-permit"), ""),
    endless("Rollout", (DEPLOYMENT, "w-availability"), "available"),
    cured(endless("ScaleUpBlocked", (SET, "w-frozen"), "the set to be unfrozen"), REPLACES),
    endless("Secret", (MACHINE, "w-secret"), "w-nowhere, which does not exist"),
    endless("SpecCorrection", (CLASS, "w-spec-correction"), "providerSpec.zone: expected a non-empty string"),
    endless("Unsupported", (DEPLOYMENT, "w-unsupported"), "in-place updates need a target cluster"),
    endless("Users", (CLASS, "w-users"), "the machines that use the class to be deleted: w-users"),
    until("VmLookup", (MACHINE, "w-vm-lookup"), "the driver to find the VM"),
    cured(until("VolumeAttachment", (MACHINE, "w-volume-attachment"), "to be attached to another node"), KILLS_PODS),
    cured(until("VolumeDetachment", (MACHINE, "w-volume-detachment"), "to be detached from node"), LOSES_DATA),
    until("VolumeTurn", (MACHINE, "w-volume-turn"), "to be evicted"),
    until("VolumesUnknown", (MACHINE, "w-volumes-unknown"), "the volumes of pod"),
];

/// The other kinds, and why this test does not produce them.
const ELSEWHERE: [(&str, &str); 11] = [
    ("ApiServers", "A routine probe: an object that only waits for it is settled, and `why` does not show it."),
    ("CacheUntrusted", "The API server has to be silent for a minute, and `why` reads the same API server."),
    ("ClassUnknown", "A manager does not plan before its caches are filled: only the model test sees it."),
    ("CloudOperation", "The simulated cloud answers a call when its work is done: drivers of real clouds do not wait."),
    ("Infrastructure", "A wait of `mcm capi-manager`, which needs Cluster API core: tests/clusterctl."),
    ("MachineCount", "A routine count: an object that only waits for it is settled, and `why` does not show it."),
    (
        "NodeClaim",
        "A wait of a Node, which a manager plans by its target cluster: only its log and /explain/node show it.",
    ),
    ("OrphanCheck", "A routine check: an object that only waits for it is settled, and `why` does not show it."),
    ("Owner", "A wait of `mcm capi-manager`, which needs Cluster API core: tests/clusterctl."),
    ("Unreadable", "The definitions refuse such objects: `bad_input` installs others on a separate API server."),
    ("VmCheck", "A routine check: an object that only waits for it is settled, and `why` does not show it."),
];

#[test]
fn each_kind_of_wait_is_produced_or_has_a_reason() {
    let produced = PRODUCED.iter().map(|case| case.kind);
    let listed: Vec<&str> = produced.chain(ELSEWHERE.map(|(kind, _)| kind)).collect();
    let names: BTreeSet<&str> = listed.iter().copied().collect();
    assert_eq!(names.len(), listed.len(), "a kind is listed twice");
    let page = include_str!("../../docs/waits.md");
    let all: BTreeSet<&str> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    assert_eq!(names, all);
}

/// `mcm why` and `kubectl` that run at the same time.
static PROGRAMS: Semaphore = Semaphore::const_new(3);

#[tokio::test]
async fn each_kind_of_wait_is_named_and_its_commands_work() {
    let mut world = World::new("waits").await;
    world.may_be_refused = true;
    let door = world.door_to(ControlPlane::shared().await).await;
    door.refuse(refused);
    let manager = world.run(&[]).await;
    let without = World::patient("waits-no-target").await;
    let manager_without = run_without_target(&without).await;
    prepare(&world).await;
    let tools = Tools::find();
    let _volumes = AttachDetach::start(&world, SLOW, &["w-volume-detachment".to_owned()], "w-elsewhere");

    let of_all = PRODUCED.iter().map(async |case| {
        let (world, manager) =
            if case.kind == "Unsupported" { (&without, &manager_without) } else { (&world, &manager) };
        let tried = async {
            provoke(world, case.kind).await;
            check(world, manager, &tools, case).await;
        };
        // Each of the others is tried also after a failure.
        AssertUnwindSafe(tried).catch_unwind().await.err().map(|_| case.kind)
    });
    let failed: Vec<&str> = join_all(of_all).await.into_iter().flatten().collect();
    assert_eq!(failed, [""; 0], "kinds whose panics are above");
}

/// A volume is detached at once, and is not attached elsewhere while the test runs.
const SLOW: Latency =
    Latency { termination: Duration::ZERO, detach: Duration::ZERO, attach: Duration::from_secs(3600) };

/// The calls that the API server of the target cluster refuses.
fn refused(call: &Call) -> Option<StatusCode> {
    let Call { method, path, query, .. } = call;
    let is = |wanted: Method, start: &str| *method == wanted && path.starts_with(start);
    let names = |name: &str| query.contains(name);
    match path.as_str() {
        _ if is(Method::PATCH, "/api/v1/nodes/w-node-write") => Some(StatusCode::INTERNAL_SERVER_ERROR),
        _ if is(Method::PATCH, "/api/v1/nodes/w-node-refused") => Some(StatusCode::FORBIDDEN),
        _ if is(Method::GET, "/api/v1/nodes/w-nodes-unknown") => Some(StatusCode::FORBIDDEN),
        _ if is(Method::POST, "/api/v1/namespaces/kube-system/secrets") => Some(StatusCode::FORBIDDEN),
        "/api/v1/pods" if names("w-pod-list") => Some(StatusCode::FORBIDDEN),
        path if path.ends_with("/persistentvolumeclaims") && names("w-volumes-unknown") => Some(StatusCode::FORBIDDEN),
        _ => None,
    }
}

/// A manager without a target cluster.
async fn run_without_target(world: &World) -> Manager {
    let control = format!("--control-kubeconfig={}", world.identity().control.display());
    let namespace = format!("--namespace={}", world.namespace);
    let flags = [&control, &namespace, "--target-kubeconfig=none", "--leader-elect=false", &world.cloud_flag()];
    world.launch_bare("run", &flags).ready().await
}

/// Classes, their Secrets, and the faults of the cloud.
async fn prepare(world: &World) {
    let mut plain = objects::secret("pool");
    plain["stringData"]["userData"] = format!("# <<MACHINE_NAME>>\npassword: {}\n", objects::PLANTED).into();
    world.apply(plain).await;
    world.apply(objects::secret("token")).await;
    class(world, "small", json!({})).await;
    class(world, "w-never", json!({"providerSpec": {"neverJoin": true}})).await;
    class(world, "w-token", json!({"secretRef": {"name": "token"}})).await;
    class(world, "w-secretless", json!({"secretRef": {"name": "w-nowhere"}})).await;
    let fault =
        json!({"operation": "create", "machines": "w-driver-retry", "code": "Internal", "message": "no host has room"});
    world.cloud.control(json!({"faults": [fault]})).await;
}

/// Makes an object wait.
async fn provoke(world: &World, kind: &str) {
    match kind {
        "BootstrapToken" => machine(world, "w-bootstrap-token", "w-token", json!({})).await,
        "Class" => machine(world, "w-class", "w-nowhere", json!({})).await,
        "DriverRetry" => machine(world, "w-driver-retry", "small", json!({})).await,
        "Eviction" => {
            running(world, "w-eviction", json!({})).await;
            protected_pod(world, "w-eviction").await;
            delete(world, "w-eviction").await;
        }
        "Finalizers" => {
            running(world, "w-finalizers", json!({"metadata": {"finalizers": ["example.com/keep"]}})).await;
            delete(world, "w-finalizers").await;
        }
        "Hold" => {
            let migrated = json!({"metadata": {"annotations": {labels::MIGRATION: "m"}}});
            machine(world, "w-hold", "small", migrated).await;
        }
        "InPlaceUpdate" => update_in_place(world, "w-in-place").await,
        "MachineAvailability" => deployment(world, "w-availability", 1, "w-never", json!({})).await,
        "MachineDeletion" => delete_deployment(world, "w-deletion").await,
        "MachineWrite" => refuse_ids(world, "w-machine-write").await,
        "NodeHealth" => {
            running(world, "w-node-health", json!({})).await;
            world.cloud.condition("w-node-health", "KernelDeadlock", Some("True")).await;
        }
        "NodeJoin" => machine(world, "w-node-join", "w-never", json!({})).await,
        "NodeTemplate" => {
            let template = json!({"metadata": {"labels": {"example.com/bad": "no value!"}}});
            machine(world, "w-node-template", "small", json!({"spec": {"nodeTemplate": template}})).await;
        }
        "NodeWrite" => machine(world, "w-node-write", "small", json!({})).await,
        "NodeWriteRefused" => machine(world, "w-node-refused", "small", json!({})).await,
        "NodesUnknown" => machine(world, "w-nodes-unknown", "w-never", SOON.clone()).await,
        "Paused" => deployment(world, "w-paused", 1, "small", json!({"spec": {"paused": true}})).await,
        "PodList" => {
            running(world, "w-pod-list", json!({})).await;
            delete(world, "w-pod-list").await;
        }
        "PodTermination" => {
            running(world, "w-pod-termination", json!({})).await;
            let mut pod = pods::pod("w-pod-termination", "w-pod-termination");
            pod["spec"]["terminationGracePeriodSeconds"] = 3600.into();
            pods::run(&world.target, &world.namespace, pod).await;
            delete(world, "w-pod-termination").await;
        }
        "Preservation" => {
            running(world, "w-preservation", json!({"metadata": {"annotations": {labels::PRESERVE: "now"}}})).await;
        }
        "Replacement" => machine(world, "w-replacement", "w-never", SOON.clone()).await,
        "ReplacementPermit" => two_unhealthy(world, "w-permit").await,
        "ScaleUpBlocked" => freeze(world, "w-frozen").await,
        "Secret" => machine(world, "w-secret", "w-secretless", json!({})).await,
        "SpecCorrection" => class(world, "w-spec-correction", json!({"providerSpec": {"zone": 7}})).await,
        "Unsupported" => {
            let in_place = json!({"maxSurge": 0, "maxUnavailable": 1, "orchestrationType": "Auto"});
            let strategy = json!({"type": "InPlaceUpdate", "rollingUpdate": null, "inPlaceUpdate": in_place});
            deployment(world, "w-unsupported", 1, "small", json!({"spec": {"strategy": strategy}})).await;
        }
        "Users" => {
            class(world, "w-users", json!({})).await;
            machine(world, "w-users", "w-users", json!({})).await;
            phase(world, "w-users", MachinePhase::Running).await;
            world.class_api().delete("w-users", &DeleteParams::default()).await.unwrap();
        }
        "VmLookup" => lose_vm(world, "w-vm-lookup").await,
        "VolumeAttachment" => with_volumes(world, "w-volume-attachment", &["w-volume-attachment"]).await,
        "VolumeDetachment" => with_volumes(world, "w-volume-detachment", &["w-volume-detachment"]).await,
        "VolumeTurn" => {
            let pods = ["w-turn-0", "w-turn-1", "w-turn-2", "w-turn-3", "w-turn-4", "w-turn-5", "w-turn-6"];
            with_volumes(world, "w-volume-turn", &pods).await;
        }
        "VolumesUnknown" => with_volumes(world, "w-volumes-unknown", &["w-volumes-unknown"]).await,
        // Another case makes it wait.
        "Rollout" => {}
        _ => panic!("{kind} is not provoked"),
    }
}

/// A creation timeout that passes during the test, but not before there is a VM.
static SOON: std::sync::LazyLock<Value> = std::sync::LazyLock::new(|| json!({"spec": {"creationTimeout": "10s"}}));

async fn class(world: &World, name: &str, change: Value) {
    let mut class = objects::class(name);
    objects::merge(&mut class, change);
    world.apply(class).await;
}

async fn machine(world: &World, name: &str, class: &str, change: Value) {
    let mut machine = objects::machine(name);
    machine["spec"]["class"]["name"] = class.into();
    objects::merge(&mut machine, change);
    world.apply(machine).await;
}

/// A machine of a class without errors, which serves.
async fn running(world: &World, name: &str, change: Value) {
    machine(world, name, "small", change).await;
    phase(world, name, MachinePhase::Running).await;
}

async fn phase(world: &World, name: &str, wanted: MachinePhase) {
    world
        .until(&format!("machine {name} in phase {wanted:?}"), |scene| scene.phase(name) == Some(wanted.clone()))
        .await;
}

async fn delete(world: &World, name: &str) {
    world.machines().delete(name, &DeleteParams::default()).await.unwrap();
}

async fn deployment(world: &World, name: &str, replicas: u32, class: &str, change: Value) {
    let mut deployment = objects::deployment(name, replicas);
    deployment["spec"]["template"]["spec"]["class"]["name"] = class.into();
    objects::merge(&mut deployment, change);
    world.apply(deployment).await;
}

/// The machines of a deployment that serve, by name.
async fn serving(world: &World, deployment: &str, count: usize) -> Vec<String> {
    world
        .find(&format!("{count} machines of {deployment} that serve"), |scene| {
            let own = scene.machines.iter().filter(|(name, one)| name.starts_with(deployment) && one.is_available());
            let names: Vec<String> = own.map(|(name, _)| name.clone()).collect();
            (names.len() == count).then_some(names)
        })
        .await
}

/// A pod on a Node, and a budget that allows no disruption now.
async fn protected_pod(world: &World, name: &str) {
    let mut pod = pods::pod(name, name);
    pod["metadata"]["labels"]["app"] = name.into();
    pods::run(&world.target, &world.namespace, pod).await;
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": name}}},
    });
    world.apply(budget).await;
    let status = json!({"status": {
        "observedGeneration": 1, "disruptionsAllowed": 0, "disruptedPods": null,
        "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 1,
    }});
    let budgets: Api<k8s_openapi::api::policy::v1::PodDisruptionBudget> =
        Api::namespaced(world.target.clone(), &world.namespace);
    budgets.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

/// A deployment whose Nodes a user selects for the update in place, and has not selected yet.
async fn update_in_place(world: &World, name: &str) {
    let in_place = json!({"maxSurge": 0, "maxUnavailable": 1, "orchestrationType": "Manual"});
    let strategy = json!({"type": "InPlaceUpdate", "rollingUpdate": null, "inPlaceUpdate": in_place});
    deployment(world, name, 1, "small", json!({"spec": {"strategy": strategy}})).await;
    serving(world, name, 1).await;
    let version = json!({"spec": {"template": {"metadata": {"labels": {"version": "v2"}}}}});
    world.deployments().patch(name, &PatchParams::default(), &Patch::Merge(version)).await.unwrap();
}

/// A deployment that is deleted, with a machine that another controller keeps.
async fn delete_deployment(world: &World, name: &str) {
    deployment(world, name, 1, "small", json!({})).await;
    for machine in serving(world, name, 1).await {
        let kept = json!({"metadata": {"finalizers": [labels::FINALIZER, "example.com/keep"]}});
        world.machines().patch(&machine, &PatchParams::default(), &Patch::Merge(kept)).await.unwrap();
    }
    world.deployments().delete(name, &DeleteParams::background()).await.unwrap();
}

/// A policy refuses the ID of the VM of a machine. It is in force before there is a VM.
async fn refuse_ids(world: &World, name: &str) {
    let policy = format!("mcm-{}", world.namespace);
    let rule = json!({
        "apiGroups": ["machine.sapcloud.io"], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["machines"],
    });
    let only = json!({"matchLabels": {"kubernetes.io/metadata.name": world.namespace}});
    let expression =
        format!("object.metadata.name != '{name}' || !has(object.spec.providerID) || object.spec.providerID == ''");
    for object in [
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": policy},
            "spec": {
                "matchConstraints": {"resourceRules": [rule], "namespaceSelector": only},
                "validations": [{"expression": expression, "message": "no ID in this test"}],
            },
        }),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": policy},
            "spec": {"policyName": policy, "validationActions": ["Deny"]},
        }),
    ] {
        objects::apply(&world.client, &object).await;
    }
    machine(world, name, "w-later", json!({})).await;
    let tried = PatchParams { dry_run: true, ..PatchParams::default() };
    let with_id = Patch::Merge(json!({"spec": {"providerID": "some"}}));
    wait::until("the policy to be in force", async || {
        world.machines().patch(name, &tried, &with_id).await.is_err().then_some(())
    })
    .await;
    class(world, "w-later", json!({})).await;
}

/// Two machines of a deployment become unhealthy. The one that is replaced is not healthy for the rest of the test.
async fn two_unhealthy(world: &World, name: &str) {
    class(world, "w-permit", json!({})).await;
    let soon = json!({"spec": {"template": {"spec": {"healthTimeout": "1s"}}}});
    deployment(world, name, 2, "w-permit", soon).await;
    let machines = serving(world, name, 2).await;
    class(world, "w-permit", json!({"providerSpec": {"neverJoin": true}})).await;
    for machine in machines {
        world.cloud.condition(&machine, "KernelDeadlock", Some("True")).await;
    }
}

/// A set that a user froze and scaled up.
async fn freeze(world: &World, name: &str) {
    let template = json!({
        "metadata": {"labels": {"name": name}},
        "spec": {"class": {"kind": "MachineClass", "name": "small"}},
    });
    let set = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet", "metadata": {"name": name},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"name": name}}, "template": template},
    });
    world.apply(set).await;
    serving(world, name, 1).await;
    let frozen = json!({"metadata": {"labels": {labels::FREEZE: "True"}}, "spec": {"replicas": 2}});
    world.sets().patch(name, &PatchParams::default(), &Patch::Merge(frozen)).await.unwrap();
}

/// A machine that had a VM, of which nothing is left.
async fn lose_vm(world: &World, name: &str) {
    machine(world, name, "w-found", json!({})).await;
    let ran = json!({"status": {"currentStatus": {"phase": "Running"}}});
    world.machines().patch_status(name, &PatchParams::default(), &Patch::Merge(ran)).await.unwrap();
    class(world, "w-found", json!({})).await;
}

/// A machine that is deleted while pods with volumes are on its Node.
async fn with_volumes(world: &World, name: &str, pods: &[&str]) {
    running(world, name, json!({})).await;
    let pods: Vec<String> = pods.iter().map(|&pod| pod.to_owned()).collect();
    AttachDetach::pods(world, &pods, name).await;
    delete(world, name).await;
}

/// Programs that run the remedies.
struct Tools {
    path: String,
}

impl Tools {
    fn find() -> Self {
        let folders: [PathBuf; 2] =
            [ControlPlane::programs().unwrap(), mcm().parent().map(Path::to_path_buf).unwrap_or_default()];
        let own: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
        Self { path: format!("{}:{}", own.join(":"), std::env::var("PATH").unwrap_or_default()) }
    }

    /// Runs a command as a user types it. An editor changes nothing.
    async fn run(&self, world: &World, line: &str) {
        let _turn = PROGRAMS.acquire().await.unwrap();
        let output = Command::new("bash")
            .args(["-c", line])
            .env("PATH", &self.path)
            .env("KUBECONFIG", world.admin())
            .env("EDITOR", "true")
            .output()
            .await
            .unwrap();
        let (said, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        // An answer that is bad news is an answer.
        let is_answered = matches!(output.status.code(), Some(0 | 3 | 4));
        assert!(is_answered, "{line} ended with {}:\n{said}\n{error}", output.status);
    }
}

/// What the manager remembers of the objects that wait.
async fn waiting(world: &World, manager: &Manager) -> Vec<Value> {
    // A manager refuses many connections at the same time.
    static QUESTIONS: Semaphore = Semaphore::const_new(2);
    let _turn = QUESTIONS.acquire().await.unwrap();
    let (status, text) = manager.get(&format!("/explain?namespace={}&limit=1000", world.namespace)).await;
    assert_eq!(status, 200, "{text}");
    serde_json::from_str::<Value>(&text).unwrap()["items"].as_array().unwrap().clone()
}

/// The name of the object of a case that has its wait.
async fn subject_of(world: &World, manager: &Manager, case: &Case) -> Option<String> {
    let (kind, start) = case.object;
    let is_it = |item: &&Value| {
        item["object"]["kind"] == kind
            && item["object"]["name"].as_str().unwrap().starts_with(start)
            && item["waits"].as_array().unwrap().iter().any(|wait| wait["kind"] == case.kind)
    };
    let found = waiting(world, manager).await;
    found.iter().find(is_it).map(|item| item["object"]["name"].as_str().unwrap().to_owned())
}

/// Waits for the wait of a case, asks why, and runs the remedies.
async fn check(world: &World, manager: &Manager, tools: &Tools, case: &Case) {
    let what = format!("{} of {} {}", case.kind, case.object.0, case.object.1);
    let (name, wait) = wait::until(&what, async || {
        let name = subject_of(world, manager, case).await?;
        let answer = why(world, manager, &format!("{}/{name}", case.object.0)).await;
        // Steps may be executed between the two questions.
        let waits = answer["objects"][0]["waits"].as_array()?.clone();
        let wait = waits.into_iter().find(|wait| wait["kind"] == case.kind)?;
        assert_eq!(answer["objects"][0]["object"]["name"], name, "{answer}");
        Some((name, wait))
    })
    .await;
    assert!(wait["text"].as_str().unwrap().contains(case.says), "{what}: {wait}");
    assert!(wait["since"].is_string() && wait["meaning"].is_string(), "{what}: {wait}");
    assert_eq!(wait["until"].is_string(), case.has_until, "{what}: {wait}");
    let remedies = wait["remedies"].as_array().unwrap();
    assert!(!remedies.is_empty(), "{what}: {wait}");

    let commands = |is_safe: bool| {
        remedies.iter().filter_map(move |remedy| {
            let text = remedy["text"].as_str().unwrap();
            let is_command = text.starts_with("kubectl ") || text.starts_with("mcm ");
            (is_command && (remedy["danger"] == "Safe") == is_safe).then_some((text, &remedy["danger"]))
        })
    };
    for (line, _) in commands(true) {
        tools.run(world, line).await;
    }
    if let Some(effect) = case.cure {
        // Of several with one effect the last needs no other program, such as the controller of budgets.
        let cure = commands(false).rfind(|(_, danger)| *danger == effect);
        let (line, _) = cure.unwrap_or_else(|| panic!("{what} has no remedy that {effect}: {wait}"));
        tools.run(world, line).await;
        wait::until(&format!("the end of {what}"), async || {
            let now = waiting(world, manager).await;
            let is_over = |item: &Value| {
                item["object"]["name"] != name.as_str()
                    || item["waits"].as_array().unwrap().iter().all(|wait| wait["kind"] != case.kind)
            };
            now.iter().all(is_over).then_some(())
        })
        .await;
    }
}

async fn why(world: &World, manager: &Manager, object: &str) -> Value {
    let _turn = PROGRAMS.acquire().await.unwrap();
    let mut command = Command::new(mcm());
    command.args(["why", object, "-o", "json", "--manager", &manager.url, "-n", &world.namespace, "--kubeconfig"]);
    let output = command.arg(world.admin()).output().await.unwrap();
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{object}: {error}: {}", String::from_utf8_lossy(&output.stderr)))
}
