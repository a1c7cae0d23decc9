//! One large Cluster: a control plane machine, a MachineDeployment rolled by core, and a pool rolled by mcm.

use std::{collections::BTreeSet, time::Instant};

use serde_json::{Value, json};

use super::{LIMIT, count, print, recorder::Recorder, seconds};
use crate::{
    moves::apply_pool,
    scene::Scene,
    support::wait,
    world::{World, play},
};

/// Bounds of both rollouts, for as many machines.
struct Bounds {
    surge: usize,
    unavailable: usize,
}

/// P10: the bounds of the pool hold at every moment of its rollout, and every VM is replaced.
#[test]
fn a_large_pool_is_rolled_within_its_bounds() {
    play(async |world: &'static World| {
        let (workers, pool) = (count("workers", 50, 3), count("pool", 50, 5));
        let bounds = Bounds { surge: (pool / 5).max(1), unavailable: pool / 10 };
        let scene = Scene::with_workers(world, "large", 0).await;
        let mut rows = Vec::new();
        let mut row = |what: &str, machines: usize, since: Instant| {
            rows.push(vec![what.to_owned(), machines.to_string(), seconds(since)]);
        };

        let start = Instant::now();
        add_control_plane(&scene);
        scene.scale(workers);
        within("all Machines", async || scene.has_running(workers + 1)).await;
        row("control plane and MachineDeployment, until all have Nodes", workers + 1, start);

        let start = Instant::now();
        apply_pool(&scene, &scene.generate("fixed-pool", pool));
        within("the pool", async || scene.has_pool_of(pool)).await;
        row("MachinePool, until all have Nodes", pool, start);

        let recorder = Recorder::start(&scene).await;
        let before = names(&scene, "large-mp-0-").await;
        let start = Instant::now();
        roll_pool(&scene, &bounds);
        within("all VMs of the pool to be new", async || {
            let now = names(&scene, "large-mp-0-").await;
            (now.len() == pool && now.is_disjoint(&before)).then_some(())
        })
        .await;
        within("the pool", async || scene.has_pool_of(pool)).await;
        row("the pool is rolled by mcm", pool, start);
        let seen = recorder.stop();
        assert!(seen.most <= pool + bounds.surge, "maxSurge {}: {seen:?}", bounds.surge);
        assert!(seen.least_available >= pool - bounds.unavailable, "maxUnavailable {}: {seen:?}", bounds.unavailable);

        let before = names(&scene, "large-md-0-").await;
        let start = Instant::now();
        roll_deployment(&scene, &bounds);
        within("all VMs of the deployment to be new", async || {
            let now = names(&scene, "large-md-0-").await;
            (now.len() == workers && now.is_disjoint(&before)).then_some(())
        })
        .await;
        within("all Machines", async || scene.has_running(workers + 1)).await;
        row("the MachineDeployment is rolled by core, with the same bounds", workers, start);

        let start = Instant::now();
        scene.kubectl(&["delete", "machine.cluster.x-k8s.io/large-cp-0", "--timeout=600s"]);
        scene.kubectl(&["delete", "cluster", "large", "--timeout=600s"]);
        assert!(scene.vms().await.is_empty());
        row("the Cluster is deleted", workers + pool + 1, start);
        print("One Cluster", &["", "machines", "time"], rows);
        print(
            "Bounds of the pool while it was rolled",
            &["", "bound", "seen"],
            vec![
                vec![
                    "machines, at most".to_owned(),
                    format!("{} + {}", pool, bounds.surge),
                    format!("{} (with those that were being deleted {})", seen.most, seen.most_at_all),
                ],
                vec![
                    "available machines, at least".to_owned(),
                    format!("{} - {}", pool, bounds.unavailable),
                    seen.least_available.to_string(),
                ],
            ],
        );
    });
}

async fn within<T>(what: &str, ask: impl AsyncFnMut() -> Option<T>) -> T {
    wait::until_within(LIMIT, what, ask).await
}

/// Names of the machines with VMs.
async fn names(scene: &Scene, prefix: &str) -> BTreeSet<String> {
    scene.vms().await.into_keys().filter(|name| name.starts_with(prefix)).collect()
}

/// The control plane has no controller here, so its machine is created as a controller would.
fn add_control_plane(scene: &Scene) {
    let template = scene.get("mcmmachinetemplate", &format!("{}-md-0", scene.name));
    let name = format!("{}-cp-0", scene.name);
    let metadata = json!({
        "name": name, "namespace": scene.namespace,
        "labels": {"cluster.x-k8s.io/cluster-name": scene.name, "cluster.x-k8s.io/control-plane": ""},
    });
    let reference = json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "MCMMachine", "name": name});
    scene.world.apply(&json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "MCMMachine",
        "metadata": metadata, "spec": template["spec"]["template"]["spec"],
    }));
    scene.world.apply(&json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": metadata,
        "spec": {
            "clusterName": scene.name, "version": crate::scene::KUBERNETES, "infrastructureRef": reference,
            "bootstrap": {"dataSecretName": format!("{}-bootstrap", scene.name)},
        },
    }));
}

fn roll_pool(scene: &Scene, bounds: &Bounds) {
    let update = json!({"maxSurge": bounds.surge, "maxUnavailable": bounds.unavailable});
    let change = json!({"spec": {
        "machineClass": {"providerSpec": {"instanceType": "large"}},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": update},
    }});
    let pool = format!("{}-mp-0", scene.name);
    scene.kubectl(&["patch", "mcmmachinepool", &pool, "--type=merge", "-p", &change.to_string()]);
}

/// Another template of the same size, with the same bounds.
fn roll_deployment(scene: &Scene, bounds: &Bounds) {
    let name = format!("{}-md-0", scene.name);
    let mut template: Value = scene.get("mcmmachinetemplate", &name);
    let next = format!("{}-md-1", scene.name);
    template["metadata"] = json!({"name": next, "namespace": scene.namespace});
    template["spec"]["template"]["spec"]["machineClass"]["providerSpec"]["instanceType"] = json!("large");
    template.as_object_mut().unwrap().remove("status");
    scene.world.apply(&template);
    let update = json!({"maxSurge": bounds.surge, "maxUnavailable": bounds.unavailable});
    let change = json!({"spec": {
        "rollout": {"strategy": {"type": "RollingUpdate", "rollingUpdate": update}},
        "template": {"spec": {"infrastructureRef": {"name": next}}},
    }});
    let deployment = format!("machinedeployment.cluster.x-k8s.io/{name}");
    scene.kubectl(&["patch", &deployment, "--type=merge", "-p", &change.to_string()]);
}
