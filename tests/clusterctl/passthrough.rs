//! A control plane of three machines on Google Cloud, behind a passthrough load balancer, which returns the connections of a
//! member to that member, is created and replaced by the real controller of KubeadmControlPlanes.

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    flavours::{Joining, Kubelets, StandIn, prepare},
    gcp,
    load_balancer::{Balanced, last},
    replacement::{MACHINES, is_of, replace_template},
    scene::{Scene, condition, documents},
    static_pods::{StaticPods, add_etcd, with_external_etcd},
    world::{World, play},
};

const WORKERS: usize = 1;

/// kubeadm on the VM reaches an API server at the address of the load balancer.
pub fn reaches_api_server(members: &BTreeSet<String>, joining: &Joining<'_>) -> bool {
    let is_control_plane = |machine: &str| !["-md-0-", "-mp-0-"].iter().any(|part| machine.contains(part));
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
        let _pods = StaticPods::run(&scene, is_of(&scene.name));

        let variables = cloud.variables();
        let mut variables: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let replicas = MACHINES.to_string();
        variables.push(("CONTROL_PLANE_MACHINE_COUNT", &replicas));
        for object in documents(&scene.generate_with("gcp", WORKERS, &variables)) {
            world.apply(&with_external_etcd(object));
        }
        scene.until("all machines to run", async || scene.has_running(MACHINES + WORKERS)).await;
        let old = until_all_are_members(&scene, &*cloud).await;

        replace_template(&scene, "n2-standard-4");
        scene
            .until("all machines of the control plane to be new", async || {
                scene.has_running(MACHINES + WORKERS)?;
                cloud.members().await.is_disjoint(&old).then_some(())
            })
            .await;
        until_all_are_members(&scene, &*cloud).await;

        scene.kubectl(&["delete", "cluster", &scene.name, "--timeout=600s"]);
        assert!(cloud.members().await.is_empty() && cloud.living().await.is_empty());
    });
}

/// Waits until the VMs of the control plane, and no other, are members. Returns them.
pub async fn until_all_are_members(scene: &Scene, cloud: &dyn Balanced) -> BTreeSet<String> {
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
