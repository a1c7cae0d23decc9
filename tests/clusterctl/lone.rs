//! 4.3, 9.7: machines without a set leave core and return, beside a deployment. The cloud does not notice.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    adopt::Adoption,
    moves::{ids, journal_of, journal_so_far},
    scene::{KUBERNETES, Scene, name_of},
    world::{World, play},
};

const ALONE: usize = 5;

/// A Cluster with a machine of a deployment, and some of no set.
async fn with_lone_machines(world: &'static World, name: &str, alone: usize) -> Adoption {
    let scene = Scene::with_workers(world, name, 1).await;
    let text = scene.generate("fixed", 1);
    let mut objects = serde_yaml_ng::Deserializer::from_str(&text).map(|one| Value::deserialize(one).unwrap());
    let template = objects.find(|object| object["kind"] == "MCMMachineTemplate").unwrap();
    for number in 0..alone {
        let (name, labels) = (format!("{name}-alone-{number}"), json!({"cluster.x-k8s.io/cluster-name": name}));
        let metadata = json!({"name": name, "namespace": scene.namespace, "labels": labels});
        world.apply(&json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "MCMMachine", "metadata": metadata,
            "spec": template["spec"]["template"]["spec"],
        }));
        let reference = json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "MCMMachine", "name": name});
        world.apply(&json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": metadata,
            "spec": {
                "clusterName": scene.name, "version": KUBERNETES, "infrastructureRef": reference,
                "bootstrap": {"dataSecretName": format!("{}-bootstrap", scene.name)},
            },
        }));
    }
    scene.until("all Machines to run", async || scene.has_running(alone + 1)).await;
    Adoption::beside(scene).await
}

/// Native Machines that no set has.
fn free(scene: &Scene) -> Vec<String> {
    let all = scene.all("machines.machine.sapcloud.io");
    let is_free = |one: &&Value| one["metadata"]["ownerReferences"].is_null();
    all.iter().filter(is_free).map(|one| name_of(one).to_owned()).collect()
}

/// PA7: SIGKILL in every step and after the first write of every sort, there and back, with everything of the Cluster.
#[test]
fn machines_without_a_set_leave_core_and_return_and_the_cloud_does_not_notice() {
    play(async |world: &'static World| {
        let adoption = with_lone_machines(world, "single", ALONE).await;
        let scene = &adoption.scene;
        let (before, ids, from) = (adoption.essence().await, ids(scene).await, journal_so_far(scene));
        let of_core = adoption.names(&["machines.cluster.x-k8s.io", "mcmmachines"]);
        assert_eq!((ids.len(), of_core.len(), free(scene).len()), (ALONE + 1, 2 * (ALONE + 1), 0));

        let killed = adoption.apply_with_kills(&["--to", "native"]);
        let step = "detach the MCM Machine from its MCMMachine";
        assert!(killed.len() >= 16 && killed.iter().any(|place| place.contains(step)), "{killed:#?}");
        assert_eq!(adoption.essence().await, before, "after the way there");
        assert_eq!(adoption.names(&["machines.cluster.x-k8s.io", "mcmmachines"]), [""; 0]);
        assert_eq!(free(scene).len(), ALONE);
        let phases = scene.all("machines.machine.sapcloud.io");
        assert!(phases.iter().all(|one| one["status"]["currentStatus"]["phase"] == "Running"));
        adoption.found_no_orphans();

        let killed = adoption.apply_with_kills(&["--to", "capi"]);
        assert!(killed.len() >= 16, "{killed:#?}");
        assert_eq!(adoption.essence().await, before, "after the way back");
        assert_eq!(adoption.names(&["machines.cluster.x-k8s.io", "mcmmachines"]), of_core, "the same names");
        assert_eq!(free(scene), [""; 0]);
        adoption.found_no_orphans();
        assert_eq!(journal_of(scene, &from, &ids), [""; 0], "the cloud noticed");

        // Core is at work.
        scene.until("all Machines to run", async || scene.has_running(ALONE + 1)).await;
        scene.kubectl(&["delete", "machine.cluster.x-k8s.io", "single-alone-0", "--timeout=120s"]);
        assert_eq!(scene.vms().await.len(), ALONE);
    });
}

/// A machine is moved by its name, a migration of it is undone, and those of a control plane stay.
#[test]
fn one_machine_is_moved_by_its_name_and_no_other() {
    play(async |world: &'static World| {
        let adoption = with_lone_machines(world, "named", 2).await;
        let scene = &adoption.scene;
        let (before, one) = (adoption.essence().await, ["--machine", "named-alone-0"]);
        let plan = adoption.must(&[&["plan", "--from", "capi", "-o", "json"][..], &one].concat());
        let plan: Value = serde_json::from_str(&plan).unwrap();
        assert_eq!((&plan["plans"][0]["machine"], &plan["plans"][1]), (&json!("named-alone-0"), &Value::Null));

        let label = |change: &str| scene.kubectl(&["label", "machine.cluster.x-k8s.io", "named-alone-0", change]);
        label("cluster.x-k8s.io/control-plane=");
        let refused = adoption.run(&[&["apply", "--from", "capi"][..], &one].concat());
        let error = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && error.contains("machine: is a control plane"), "{error}");
        let all = adoption.must(&["plan", "--from", "capi"]);
        assert!(all.contains("machine named-alone-1") && !all.contains("machine named-alone-0"), "{all}");
        label("cluster.x-k8s.io/control-plane-");

        // Some steps before the last one that can be undone: a busy machine ends the program late.
        adoption.stop_at(&["--from", "capi", one[0], one[1]], "create the class of the MCM Machine, paused");
        let status = adoption.must(&["status"]);
        assert!(status.contains("machine named-alone-0") && status.contains("Forward"), "{status}");
        adoption.must(&[&["abort", "--timeout=600s"][..], &one].concat());
        assert_eq!(adoption.essence().await, before);
        assert_eq!(free(scene), [""; 0]);
        scene.until("all Machines to run", async || scene.has_running(3)).await;

        adoption.must(&[&["apply", "--from", "capi", "--timeout=600s"][..], &one].concat());
        assert_eq!((adoption.essence().await, free(scene)), (before, vec!["named-alone-0".to_owned()]));
        // The native controllers are at work.
        scene.kubectl(&["delete", "machines.machine.sapcloud.io", "named-alone-0", "--timeout=120s"]);
        assert_eq!(scene.vms().await.len(), 2);
        scene.kubectl(&["delete", "cluster", "named", "--timeout=600s"]);
        assert!(scene.vms().await.is_empty());
    });
}
