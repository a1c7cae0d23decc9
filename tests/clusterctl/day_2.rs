//! 9.3: operations on a running cluster.

use serde_json::{Value, json};

use crate::{
    scene::{Scene, condition, name_of},
    world::{World, play, play_since},
};

#[test]
fn a_deployment_is_scaled_down_by_its_annotated_machine() {
    play(async |world: &'static World| {
        let scene = Scene::with_workers(world, "scaled", 2).await;
        scene.scale(3);
        scene.until("three Machines", async || scene.has_running(3)).await;
        let chosen = scene.machines().swap_remove(1);
        let machine = format!("machine.cluster.x-k8s.io/{chosen}");
        scene.kubectl(&["annotate", &machine, "cluster.x-k8s.io/delete-machine=yes"]);
        scene.scale(2);
        scene.until("two Machines", async || scene.has_running(2)).await;
        assert!(!scene.machines().contains(&chosen));
        scene.until("its VM to be gone", async || (!scene.vms().await.contains_key(&chosen)).then_some(())).await;
        assert!(scene.find("machines.machine.sapcloud.io", &chosen).is_none());
        let deployment = "machinedeployment.cluster.x-k8s.io/scaled-md-0";
        scene.kubectl(&["delete", deployment, "--cascade=foreground", "--timeout=120s"]);
        assert!(scene.machines().is_empty() && scene.vms().await.is_empty());
    });
}

/// T1a, T3a: a new template rolls, a changed one is refused.
#[test]
fn a_deployment_rolls_to_another_template() {
    play(async |world: &'static World| {
        let scene = Scene::with_workers(world, "rolled", 2).await;
        let before = scene.vms().await;
        let mut template = scene.get("mcmmachinetemplate", "rolled-md-0");
        let change = r#"{"spec":{"template":{"spec":{"machineClass":{"providerSpec":{"instanceType":"large"}}}}}}"#;
        let namespace = ["-n", &scene.namespace];
        let patch = ["patch", "mcmmachinetemplate", "rolled-md-0", "--type=merge", "-p", change];
        let refused = world.try_kubectl(&[&patch[..], &namespace].concat(), "").unwrap_err();
        assert!(refused.contains("create another template"), "{refused}");

        template["metadata"] = json!({"name": "rolled-md-1", "namespace": scene.namespace});
        template["spec"]["template"]["spec"]["machineClass"]["providerSpec"]["instanceType"] = json!("large");
        template.as_object_mut().unwrap().remove("status");
        world.apply(&template);
        let change = r#"{"spec":{"template":{"spec":{"infrastructureRef":{"name":"rolled-md-1"}}}}}"#;
        let (kind, name) = ("machinedeployment.cluster.x-k8s.io", "rolled-md-0");
        scene.kubectl(&["patch", kind, name, "--type=merge", "-p", change]);
        scene
            .until("all VMs to be new", async || {
                let (vms, ready) = (scene.vms().await, scene.get(kind, name)["status"]["readyReplicas"].clone());
                assert!(ready.as_i64().unwrap_or_default() >= 2, "surge 1, unavailable 0: {ready}");
                (vms.len() == 2 && vms.keys().all(|machine| !before.contains_key(machine))).then_some(())
            })
            .await;
    });
}

/// F3: a MachineHealthCheck replaces a dead machine, once, and no other controller does.
#[test]
fn a_dead_vm_is_replaced_once_by_a_health_check() {
    play(async |world: &'static World| {
        let scene = Scene::with_workers(world, "healed", 2).await;
        scene.until("two Machines", async || scene.has_running(2)).await;
        let created = world.cloud.count("/created").await;
        scene.health_check(&json!({
            "unhealthyNodeConditions": [{"type": "Ready", "status": "False", "timeoutSeconds": 3}],
        }));
        let dead = scene.machines().swap_remove(0);
        world.cloud.condition(&dead, "Ready", Some("False")).await;
        scene
            .until("another Machine in its place", async || {
                (!scene.machines().contains(&dead)).then_some(())?;
                scene.has_running(2)
            })
            .await;
        scene.until("its VM to be gone", async || (!scene.vms().await.contains_key(&dead)).then_some(())).await;
        let of_others = world.cloud.count("/created").await;
        assert!(of_others > created);
        assert_eq!(scene.vms().await.len(), 2);
    });
}

/// I2, I8, F3: VMs that were deleted or stopped show in their Machines although their Nodes are still there, and a
/// MachineHealthCheck replaces them. mcm does not.
#[test]
fn a_vm_that_ended_or_stopped_shows_in_its_machine_and_is_replaced_by_a_health_check() {
    // Health checks of earlier ones read no conditions of Machines.
    play_since(12, async |world: &'static World| {
        let scene = Scene::with_workers(world, "halted", 3).await;
        scene.until("three Machines", async || scene.has_running(3)).await;
        let [gone, stopped, alive] = scene.machines().try_into().unwrap();
        world.cloud.kill(&gone, "vanish").await;
        world.cloud.kill(&stopped, "stop").await;
        for (machine, reason) in [(&gone, "VMNotFound"), (&stopped, "VMNotRunning")] {
            scene
                .until("the end of the VM to show", async || {
                    let shown = scene.find("machine.cluster.x-k8s.io", machine)?;
                    (condition(&shown, "InfrastructureReady") == format!("False {reason}")).then_some(())
                })
                .await;
        }
        let before = scene.vms().await;
        assert_eq!(
            before.keys().collect::<Vec<_>>(),
            std::collections::BTreeSet::from([&alive, &stopped]).into_iter().collect::<Vec<_>>()
        );
        // Longer than a VM takes to be created.
        let checked = json!({"type": "InfrastructureReady", "status": "False", "timeoutSeconds": 20});
        scene.health_check(&json!({"unhealthyMachineConditions": [checked]}));
        scene
            .until("others in their place", async || {
                let machines = scene.machines();
                (!machines.contains(&gone) && !machines.contains(&stopped)).then_some(())?;
                scene.has_running(3)
            })
            .await;
        scene.until("the stopped VM to be deleted", async || (scene.vms().await.len() == 3).then_some(())).await;
        let vms = scene.vms().await;
        assert_eq!(vms.get(&alive), before.get(&alive));
        assert!(!vms.contains_key(&gone) && !vms.contains_key(&stopped));
    });
}

/// Z1, Z2, Z3, Z4: nothing happens to the VMs of a paused Cluster, and everything afterwards.
#[test]
fn a_paused_cluster_keeps_its_vms_until_it_is_unpaused() {
    play(async |world: &'static World| {
        let scene = Scene::with_workers(world, "paused", 2).await;
        scene.until("two Machines", async || scene.has_running(2)).await;
        let before = scene.vms().await;
        let pause = |is_paused: bool| {
            scene.kubectl(&[
                "patch",
                "cluster",
                "paused",
                "--type=merge",
                "-p",
                &json!({"spec": {"paused": is_paused}}).to_string(),
            ])
        };
        pause(true);
        let is_paused = |object: &Value| condition(object, "Paused") == "True Paused";
        scene
            .until("the condition Paused", async || {
                (scene.all("mcmmachine").iter().all(is_paused) && scene.all("mcmcluster").iter().all(is_paused))
                    .then_some(())
            })
            .await;
        let chosen = scene.machines().swap_remove(0);
        scene.kubectl(&["delete", &format!("machine.cluster.x-k8s.io/{chosen}"), "--wait=false"]);
        let native = format!("machines.machine.sapcloud.io/{chosen}");
        let refused = world.try_kubectl(&["delete", &native, "-n", &scene.namespace, "--wait=false"], "").unwrap_err();
        assert!(refused.contains("delete the CAPI Machine or MachinePool"), "{refused}");
        scene.scale(3);
        // Something that is not paused takes its whole course in the meantime.
        let other = Scene::with_workers(world, "unpaused", 1).await;
        other.until("a Machine of another cluster", async || other.has_running(1)).await;
        assert_eq!(scene.vms().await, before);
        pause(false);
        scene.until("the rest to happen", async || scene.has_running(3)).await;
        assert!(!scene.vms().await.contains_key(&chosen));
    });
}

/// O5: drained by core, then the VM, then the Node; and replaced.
#[test]
fn a_deleted_machine_loses_vm_and_node_and_is_replaced() {
    play(async |world: &'static World| {
        let scene = Scene::with_workers(world, "deleted", 2).await;
        scene.until("two Machines", async || scene.has_running(2)).await;
        let chosen = scene.machines().swap_remove(0);
        // O6, T16: the infrastructure alone may not be deleted, because then core would not drain.
        let words = ["delete", "mcmmachine", &chosen, "-n", &scene.namespace, "--wait=false"];
        let refused = world.try_kubectl(&words, "").unwrap_err();
        assert!(refused.contains("delete the CAPI Machine"), "{refused}");
        scene.kubectl(&["delete", &format!("machine.cluster.x-k8s.io/{chosen}"), "--timeout=120s"]);
        assert!(!scene.vms().await.contains_key(&chosen));
        assert!(world.nodes.find("", "node", &chosen).is_none());
        scene.until("another one", async || scene.has_running(2)).await;
    });
}

/// I17, O10: an object that is taken away by force is reported, and no VM takes its place. Its VM stays until the operator
/// releases it.
#[test]
fn an_object_that_was_removed_by_force_leaves_its_vm_and_is_not_made_again() {
    play(async |world: &'static World| {
        let scene = Scene::with_workers(world, "forced", 2).await;
        scene.until("the Machines to run", async || scene.has_running(2)).await;
        let before = scene.vms().await;
        let machines = scene.machines();
        let natives = "machines.machine.sapcloud.io";
        scene.kubectl(&["annotate", "cluster", "forced", "cluster.x-k8s.io/paused="]);
        let bare = r#"{"metadata":{"annotations":{"cluster.x-k8s.io/paused":""},"finalizers":[]}}"#;
        for machine in &machines {
            scene.kubectl(&["patch", "mcmmachine", machine, "--type=merge", "-p", bare]);
            scene.kubectl(&["delete", "mcmmachine", machine]);
        }
        scene.kubectl(&["annotate", "cluster", "forced", "cluster.x-k8s.io/paused-"]);
        for machine in &machines {
            // Core reconciles a Machine when it changes.
            scene.kubectl(&["annotate", "machine.cluster.x-k8s.io", machine, "example.com/looked-at="]);
            scene
                .until("core to report it", async || {
                    let machine = scene.find("machine.cluster.x-k8s.io", machine)?;
                    (condition(&machine, "InfrastructureReady") == "False Deleted"
                        || condition(&machine, "InfrastructureReady") == "False ObjectDeleted")
                        .then_some(())
                })
                .await;
            scene
                .until("the MCM Machine to say that it keeps the VM", async || {
                    let native = scene.find(natives, machine)?;
                    let conditions = native["status"]["conditions"].as_array()?.clone();
                    conditions.iter().any(|one| one["reason"] == "VMKept").then_some(())
                })
                .await;
        }
        assert_eq!(scene.vms().await, before);
        assert_eq!(scene.all("mcmmachine").iter().map(name_of).collect::<Vec<_>>(), [""; 0]);

        let [forgotten, deleted] = machines.as_slice() else { panic!("not two Machines: {machines:?}") };
        scene.kubectl(&["patch", natives, forgotten, "--type=merge", "-p", r#"{"metadata":{"finalizers":[]}}"#]);
        scene.kubectl(&["annotate", natives, deleted, "machine.mcm/delete-vm="]);
        scene.until("the MCM Machines to go", async || scene.all(natives).is_empty().then_some(())).await;
        let vms = scene.vms().await;
        assert_eq!(vms.keys().collect::<Vec<_>>(), [forgotten]);
        assert_eq!(vms.get(forgotten), before.get(forgotten));
    });
}

/// T6a: the autoscaler finds the size of a Node without typed numbers.
#[test]
fn a_template_without_a_node_template_shows_the_capacity_of_its_cloud() {
    play(async |world: &'static World| {
        let scene = Scene::new(world, "sized").await;
        let capacity = json!({"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "2"});
        let class = json!({"provider": "simulated", "providerSpec": {"instanceType": "large", "capacity": capacity}});
        world.apply(&json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "MCMMachineTemplate",
            "metadata": {"name": "sized", "namespace": scene.namespace},
            "spec": {"template": {"spec": {"machineClass": class}}},
        }));
        let status = scene
            .until("the status of the template", async || {
                let status = scene.get("mcmmachinetemplate", "sized")["status"].clone();
                status["capacity"].is_object().then_some(status)
            })
            .await;
        assert_eq!(status, json!({"capacity": capacity, "nodeInfo": {"architecture": "amd64"}}));
        scene.kubectl(&["delete", "mcmmachinetemplate", "sized"]);
    });
}
