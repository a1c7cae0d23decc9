//! 9.2: a cluster from the template.

use crate::{
    hybrid,
    scene::{Scene, condition, name_of},
    world::{VERSION, World, play},
};

/// K5, K6, K7: clusterctl and the API server accept the default template and the others.
#[test]
fn the_templates_list_their_variables_and_are_accepted() {
    play(async |world: &'static World| {
        let mcm = format!("mcm:{VERSION}");
        let listed = world.must(&["generate", "cluster", "demo", "--infrastructure", &mcm, "--list-variables"]);
        for variable in
            ["CONTROL_PLANE_MACHINE_COUNT", "KUBERNETES_VERSION", "WORKER_MACHINE_COUNT", "MCM_WORKER_CLASS"]
        {
            assert!(listed.contains(variable), "{listed}");
        }
        let scene = Scene::new(world, "accepted").await;
        let default = world.must(&[
            "generate",
            "cluster",
            "accepted",
            "--infrastructure",
            &mcm,
            "--target-namespace",
            &scene.namespace,
            "--kubernetes-version",
            "v1.36.0",
            "--control-plane-machine-count",
            "1",
            "--worker-machine-count",
            "3",
        ]);
        world.kubectl_with(&["apply", "--dry-run=server", "-f", "-"], &default);
        world.kubectl_with(&["apply", "--dry-run=server", "-f", "-"], &scene.generate("simulated", 3));
    });
}

/// C2, C4, C5, C6, I1, I2, I3, I4, I8, I20: from the template to Nodes.
#[test]
fn a_cluster_becomes_available_and_its_machines_are_nodes() {
    play(async |world: &'static World| {
        let scene = Scene::with_workers(world, "demo", 3).await;
        scene.until("all Machines to run", async || scene.has_running(3)).await;
        let cluster = scene.get("cluster", "demo");
        assert_eq!(cluster["status"]["initialization"]["infrastructureProvisioned"], true);
        assert_eq!(cluster["status"]["failureDomains"][0]["name"], "simulated-a");
        assert!(condition(&cluster, "InfrastructureReady").starts_with("True"));
        for machine in scene.all("machines.cluster.x-k8s.io") {
            let name = name_of(&machine);
            let object = scene.get("mcmmachine", name);
            let node = world.nodes.find("", "node", name).unwrap();
            let id = &node["spec"]["providerID"];
            assert_eq!((&object["spec"]["providerID"], &machine["spec"]["providerID"]), (id, id));
            assert_eq!(machine["status"]["nodeRef"]["name"], name);
            assert_eq!(machine["status"]["addresses"], object["status"]["addresses"]);
            assert!(condition(&machine, "InfrastructureReady").starts_with("True"));
            let owners = object["metadata"]["ownerReferences"].as_array().unwrap();
            assert!(owners.iter().any(|owner| owner["kind"] == "Machine" && owner["controller"] == true), "{owners:?}");
        }
        assert_eq!(scene.vms().await.len(), 3);
        let described =
            world.must(&["describe", "cluster", "demo", "-n", &scene.namespace, "--show-conditions", "all"]);
        assert!(described.contains(&format!("MCMCluster {}/demo", scene.namespace)), "{described}");
        let kubeconfig = world.must(&["get", "kubeconfig", "demo", "-n", &scene.namespace]);
        assert_eq!(kubeconfig.trim(), std::fs::read_to_string(world.workload.kubeconfig()).unwrap().trim());
        let listed = scene.kubectl(&["get", "cluster-api"]);
        assert!(listed.contains("mcmmachine.infrastructure.cluster.x-k8s.io/"), "{listed}");
        let template = scene.get("mcmmachinetemplate", "demo-md-0");
        assert_eq!(template["status"]["capacity"]["cpu"], "4", "9.5, T6a");
        assert_eq!(template["status"]["nodeInfo"]["architecture"], "amd64");
    });
}

/// O4, F4, 9.8: an idle cluster is not written, and metadata removed by hand is restored.
#[test]
fn an_idle_cluster_is_idle_and_heals() {
    play(async |world: &'static World| {
        let scene = Scene::with_workers(world, "idle", 1).await;
        scene.until("the Machine to run", async || scene.has_running(1)).await;
        scene.is_idle(&["mcmcluster", "mcmmachine", "mcmmachinetemplate", "machines.machine.sapcloud.io"]).await;
        let machines = scene.machines();
        let [machine] = machines.as_slice() else { panic!("not one Machine: {machines:?}") };
        let bare = r#"{"metadata":{"ownerReferences":[],"finalizers":[]}}"#;
        scene.kubectl(&["patch", "mcmmachine", machine, "--type=merge", "-p", bare]);
        scene
            .until("owner and finalizer to come back", async || {
                let meta = &scene.find("mcmmachine", machine)?["metadata"];
                let is_whole = meta["ownerReferences"][0]["kind"] == "Machine" && meta["finalizers"][0].is_string();
                is_whole.then_some(())
            })
            .await;
        assert_eq!(scene.vms().await.len(), 1);
    });
}

/// The control plane is of another provider; mcm has the workers.
#[test]
fn workers_join_the_control_plane_of_another_provider() {
    play(async |world: &'static World| {
        let scene = Scene::with_authority(world, "hybrid").await;
        let other = hybrid::create(&scene, 2).await;
        scene.until("all Machines to run", async || scene.has_running(3)).await;
        assert_eq!((other.deeds().len(), scene.all("awsmachine").len(), scene.all("mcmmachine").len()), (1, 1, 2));
        scene.kubectl(&["patch", "cluster", "hybrid", "--type=merge", "-p", r#"{"spec":{"paused":true}}"#]);
        let is_paused = |object: &serde_json::Value| condition(object, "Paused") == "True Paused";
        let are_paused = async || scene.all("mcmmachine").iter().all(is_paused).then_some(());
        scene.until("the provider to leave the machines alone", are_paused).await;
        scene.kubectl(&["patch", "cluster", "hybrid", "--type=merge", "-p", r#"{"spec":{"paused":false}}"#]);
        scene.kubectl(&["delete", "cluster", "hybrid", "--timeout=600s"]);
        assert!(scene.vms().await.is_empty());
    });
}
