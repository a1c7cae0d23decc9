//! A control plane of three machines on moto is replaced by the real controller of KubeadmControlPlanes, while our manager is
//! killed at each change of the load balancer.

use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use serde_json::json;

use crate::{
    aws::Ec2,
    flavours::{Kubelets, OnAws, StandIn, prepare},
    load_balancer::{Balanced, Call, Change},
    members::{Recorder, until_unanswered},
    scene::{Scene, documents},
    simulation::Simulation,
    static_pods::{StaticPods, add_etcd, with_external_etcd},
    world::{World, play},
};

pub const MACHINES: usize = 3;

/// The Nodes of a cluster whose kubelets are those of the flavours.
pub fn is_of(cluster: &str) -> impl Fn(&Node) -> bool + Send + Sync + 'static {
    let cluster = cluster.to_owned();
    move |node| node.labels().get("cluster") == Some(&cluster)
}

/// Another template, which replaces all machines.
pub fn replace_template(scene: &Scene, machine_type: &str) {
    let old = format!("{}-control-plane", scene.name);
    let mut template = scene.get("mcmmachinetemplate", &old);
    template["metadata"] = json!({"name": format!("{old}-2"), "namespace": scene.namespace});
    template.as_object_mut().unwrap().remove("status");
    template["spec"]["template"]["spec"]["machineClass"]["providerSpec"]["machineType"] = json!(machine_type);
    scene.world.apply(&template);
    let path = "/spec/machineTemplate/spec/infrastructureRef/name";
    let change = json!([{"op": "replace", "path": path, "value": format!("{old}-2")}]).to_string();
    scene.kubectl(&["patch", "kubeadmcontrolplane", &old, "--type=json", "-p", &change]);
}

/// Each machine is registered before another one leaves: the order of the controller.
fn assert_order(changes: &[Change]) {
    let is_registration = |change: &&Change| matches!(change, Change::Registered(_));
    let mut count = 0;
    for change in changes.iter().filter(|change| !matches!(change, Change::Ended(_))) {
        count = if is_registration(&change) { count + 1 } else { count - 1 };
        assert!((0..=MACHINES + 1).contains(&count), "{changes:?}");
    }
    assert_eq!(count, MACHINES, "{changes:?}");
}

/// Calls repeated after the death of the manager count once.
fn once(changes: Vec<Change>) -> Vec<Change> {
    let mut seen = Vec::new();
    for change in changes {
        if !seen.contains(&change) {
            seen.push(change);
        }
    }
    seen
}

#[test]
fn the_members_are_the_living_machines_while_a_control_plane_is_replaced_and_our_manager_is_killed() {
    play(async |world: &'static World| {
        let world = world.another().await;
        let cloud = Arc::new(OnAws::start().await);
        let scene = Scene::with_authority(world, "replaced").await;
        prepare(&scene, &*cloud);
        add_etcd(&scene);
        let _kubelets = Kubelets::run(&scene, Arc::<OnAws>::clone(&cloud));
        let _pods = StaticPods::run(&scene, is_of(&scene.name));
        let ec2 = Arc::clone(&cloud.ec2);
        let recorder =
            Recorder::start(world.management.client(), &scene.namespace, Arc::<Ec2>::clone(&ec2), MACHINES).await;

        let variables = cloud.variables();
        let mut variables: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let replicas = MACHINES.to_string();
        variables.push(("CONTROL_PLANE_MACHINE_COUNT", &replicas));
        for object in documents(&scene.generate_with("aws", 0, &variables)) {
            world.apply(&with_external_etcd(object));
        }
        scene.until("the control plane to run", async || scene.has_running(MACHINES)).await;
        let (before, old) = (ec2.members().await, scene.machines());
        assert_eq!((before.len(), &before), (MACHINES, &ec2.living().await));

        replace_template(&scene, "m5.xlarge");
        let kills = 2 * MACHINES;
        for (number, call) in [Call::Register, Call::Deregister].into_iter().cycle().take(kills).enumerate() {
            // In turn before and after the call is carried out.
            let is_carried_out = number / 2 % 2 == 0;
            until_unanswered(&*ec2, (call, is_carried_out), async || {}).await;
            world.kill_provider();
        }
        scene
            .until("all machines to be new", async || {
                let machines = scene.machines();
                machines.iter().all(|name| !old.contains(name)).then_some(())?;
                scene.has_running(MACHINES)
            })
            .await;

        let members = ec2.members().await;
        assert!(members.is_disjoint(&before), "{members:?}, before {before:?}");
        assert_eq!((members.len(), &members), (MACHINES, &ec2.living().await));
        assert_eq!((ec2.unanswered(), ec2.created().await), (kills, 2 * MACHINES as u64));
        assert_order(&once(ec2.changes()));
        let seen = recorder.stop();
        assert!(seen.faults.is_empty(), "{:#?}", seen.faults);
        assert_eq!(seen.fewest, Some(MACHINES), "another one is registered before one leaves");
        assert!(seen.events > 20, "{seen:?}");

        scene.kubectl(&["delete", "cluster", &scene.name, "--timeout=600s"]);
        assert_eq!((ec2.members().await, ec2.living().await), (BTreeSet::new(), BTreeSet::new()));
    });
}
