//! Makes objects wait.

use std::sync::LazyLock;

use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use mcm::api::{labels, machine::MachinePhase};
use serde_json::{Value, json};

use super::Stage;
use crate::support::{attach_detach::AttachDetach, objects, pods, wait, world::World};

/// Classes, their Secrets, and the faults of the cloud.
pub async fn prepare(world: &World) {
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
    let pause = json!({
        "operation": "create", "machines": "w-cloud-operation", "callAgainIn": "1h", "message": "the VM is being created",
    });
    world.cloud.control(json!({"faults": [fault, pause]})).await;
}

/// Makes an object wait.
pub async fn provoke(stage: &Stage, kind: &str) {
    let world = &stage.world;
    match kind {
        "BootstrapToken" => machine(world, "w-bootstrap-token", "w-token", json!({})).await,
        "CacheUntrusted" => {
            world.apply(objects::secret("pool")).await;
            stage.cut_off().await;
            class(world, "w-cache-untrusted", json!({})).await;
        }
        "Class" => machine(world, "w-class", "w-nowhere", json!({})).await,
        "CloudOperation" => machine(world, "w-cloud-operation", "small", json!({})).await,
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
        "VmCheck" => {
            world.apply(objects::secret("pool")).await;
            class(world, "w-vm-check", json!({})).await;
            machine(world, "w-vm-check", "w-vm-check", json!({})).await;
        }
        "VmLookup" => lose_vm(world, "w-vm-lookup").await,
        "VolumeAttachment" => with_volumes(world, "w-volume-attachment", &["w-volume-attachment"]).await,
        "VolumeDetachment" => with_volumes(world, "w-volume-detachment", &["w-volume-detachment"]).await,
        "VolumeTurn" => {
            let pods = ["w-turn-0", "w-turn-1", "w-turn-2", "w-turn-3", "w-turn-4", "w-turn-5", "w-turn-6"];
            with_volumes(world, "w-volume-turn", &pods).await;
        }
        "WriteUndone" => set_timeouts(world, "w-write-undone").await,
        "VolumesUnknown" => with_volumes(world, "w-volumes-unknown", &["w-volumes-unknown"]).await,
        // Other cases make the same objects wait.
        "MachineCount" | "OrphanCheck" | "Rollout" => {}
        _ => panic!("{kind} is not provoked"),
    }
}

/// A creation timeout that passes during the test, but not before there is a VM.
static SOON: LazyLock<Value> = LazyLock::new(|| json!({"spec": {"creationTimeout": "20s"}}));

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

/// A policy sets the drain timeout of the machines of a deployment.
async fn set_timeouts(world: &World, name: &str) {
    let policy = format!("mcm-{name}-{}", world.namespace);
    let rule = json!({
        "apiGroups": ["machine.sapcloud.io"], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"],
        "resources": ["machines"],
    });
    let only = json!({"matchLabels": {"kubernetes.io/metadata.name": world.namespace}});
    let expression = "Object{spec: Object.spec{drainTimeout: \"7m0s\"}}";
    let meta = json!({"name": policy});
    for object in [
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy", "metadata": meta,
            "spec": {
                "failurePolicy": "Fail", "reinvocationPolicy": "Never",
                "matchConstraints": {"resourceRules": [rule], "namespaceSelector": only},
                "matchConditions": [{"name": "name", "expression": format!("object.metadata.name.startsWith('{name}')")}],
                "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}],
            },
        }),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
            "metadata": meta, "spec": {"policyName": policy},
        }),
    ] {
        objects::apply(&world.client, &object).await;
    }
    deployment(world, name, 1, "small", json!({})).await;
}

/// Two machines of a deployment become unhealthy. The replaced machine is not healthy for the rest of the test.
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
