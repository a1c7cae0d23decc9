//! A control plane of three machines on Google Cloud, behind a passthrough load balancer, which returns the connections of a
//! member to that member, is created and replaced by the real controller of KubeadmControlPlanes.

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    flavours::{Joining, Kubelets, StandIn, prepare},
    gcp,
    load_balancer::{Balanced, last},
    replacement::{MACHINES, StaticPods, add_etcd, replace_template, with_external_etcd},
    scene::{Scene, condition},
    world::{World, play},
};

const WORKERS: usize = 1;

/// kubeadm on the VM reaches an API server at the address of the load balancer.
fn reaches_api_server(members: &BTreeSet<String>, joining: &Joining<'_>) -> bool {
    let is_control_plane = |machine: &str| machine.contains("-control-plane-");
    let serving: BTreeSet<&str> = joining
        .others
        .iter()
        .filter(|other| is_control_plane(&other.machine))
        .map(|other| last(&other.provider_id))
        .collect();
    if members.contains(last(&joining.vm.provider_id)) {
        // Its API server runs only if kubeadm starts the cluster there.
        return serving.is_empty() && is_control_plane(&joining.vm.machine);
    }
    members.iter().any(|member| serving.contains(member.as_str()))
}

#[test]
fn a_control_plane_is_created_and_replaced_behind_a_load_balancer_that_returns_a_member_to_itself() {
    play(async |world: &'static World| {
        let cloud = Arc::new(gcp::World::new().await);
        let scene = Scene::with_authority(world, "passthrough").await;
        prepare(&scene, &*cloud);
        add_etcd(&scene);
        let _kubelets = Kubelets::run_behind(&scene, Arc::<gcp::World>::clone(&cloud), reaches_api_server);
        let _pods = StaticPods::run(&scene);

        let variables = cloud.variables();
        let mut variables: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let replicas = MACHINES.to_string();
        variables.push(("CONTROL_PLANE_MACHINE_COUNT", &replicas));
        let text = with_external_etcd(&scene.generate_with("gcp", WORKERS, &variables));
        world.kubectl_with(&["apply", "-f", "-"], &text);
        scene.until("all machines to run", async || scene.has_running(MACHINES + WORKERS)).await;
        let old = assert_all_are_members(&scene, &cloud).await;

        replace_template(&scene, "n2-standard-4");
        scene
            .until("all machines of the control plane to be new", async || {
                scene.has_running(MACHINES + WORKERS)?;
                cloud.members().await.is_disjoint(&old).then_some(())
            })
            .await;
        assert_all_are_members(&scene, &cloud).await;

        scene.kubectl(&["delete", "cluster", &scene.name, "--timeout=170s"]);
        assert!(cloud.members().await.is_empty() && cloud.living().await.is_empty());
    });
}

/// The VMs of the control plane, and no other, become members. Returns them.
async fn assert_all_are_members(scene: &Scene, cloud: &gcp::World) -> BTreeSet<String> {
    scene
        .until("the control plane to be in the load balancer", async || {
            let machines = scene.selected("mcmmachine", "cluster.x-k8s.io/control-plane");
            let is_registered = |machine| condition(machine, "LoadBalancerRegistered") == "True Registered";
            let ids = machines.iter().filter_map(|machine| machine["spec"]["providerID"].as_str());
            let ids: BTreeSet<String> = ids.map(|id| last(id).to_owned()).collect();
            let is_complete = machines.len() == MACHINES && machines.iter().all(is_registered);
            (is_complete && cloud.members().await == ids).then_some(ids)
        })
        .await
}
