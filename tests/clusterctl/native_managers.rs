//! A Go Machine Controller Manager beside the provider.

use serde_json::{Value, json};

use crate::{
    scene::{Scene, condition},
    world::{World, play},
};

const LEASE: &str = "machine-controller";

/// Writes the Lease as its holder does; each renewal is another one.
fn hold(scene: &Scene, holder: &str, renewals: usize) {
    scene.world.apply(&json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": LEASE, "namespace": scene.namespace},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "leaseTransitions": renewals},
    }));
}

/// T26: the provider does nothing in a namespace whose Leases a Go MCM holds, until they expire. `mcm run` is no
/// obstacle.
#[test]
fn t26_the_provider_does_nothing_beside_a_go_mcm() {
    play(async |world: &'static World| {
        let scene = Scene::with_workers(world, "beside", 1).await;
        scene.until("the Machine to run", async || scene.has_running(1)).await;
        let are_refused = |count: usize| {
            let all = scene.all("mcmmachine");
            let is_refused = |object: &Value| condition(object, "Ready") == "False MachineControllerManagerActive";
            (all.len() == count && all.iter().all(is_refused)).then_some(())
        };
        let mut renewals = 0;
        let mut renew = || {
            renewals += 1;
            hold(&scene, "machine-controller-7d9c5b8f6-x2x9k", renewals);
        };
        scene
            .until("the provider to see the Lease", async || {
                renew();
                are_refused(1)
            })
            .await;
        scene.scale(2);
        scene
            .until("the second one to be refused", async || {
                renew();
                are_refused(2)
            })
            .await;
        let told = scene.all("mcmmachine")[0]["status"]["conditions"].to_string();
        assert!(told.contains("--replaces-machine-controller-manager"), "{told}");
        assert_eq!(scene.vms().await.len(), 1);
        // The Lease is no longer renewed.
        scene.until("two Machines", async || scene.has_running(2)).await;
        hold(&scene, "host_0123456789abcdef0123456789abcdef", 0);
        scene.scale(3);
        scene.until("three Machines", async || scene.has_running(3)).await;
        scene.kubectl(&["delete", "cluster", "beside", "--timeout=150s"]);
        assert!(scene.vms().await.is_empty());
    });
}
