//! A control plane of three machines on moto is replaced by the real controller of KubeadmControlPlanes, while our manager is
//! killed at each change of the load balancer.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::{
    aws::Ec2,
    flavours::{Kubelets, OnAws, StandIn, prepare},
    load_balancer::{Balanced, Call, Change},
    members::{Recorder, until_unanswered},
    scene::Scene,
    simulation::Simulation,
    world::{World, play},
};

pub const MACHINES: usize = 3;
/// Static pods of kubeadm, without which a machine of a control plane does not count as healthy.
const COMPONENTS: [&str; 3] = ["kube-apiserver", "kube-controller-manager", "kube-scheduler"];

/// The mirror pods that kubelets create for static pods: on each Node of a cluster, until it is gone.
pub struct StaticPods(JoinHandle<()>);

impl StaticPods {
    pub fn run(scene: &Scene) -> Self {
        let (client, own) = (scene.workload().client(), format!("cluster={}", scene.name));
        Self(tokio::spawn(async move {
            let mut period = tokio::time::interval(Duration::from_millis(500));
            let mut known = BTreeSet::new();
            loop {
                period.tick().await;
                let Ok(now) = nodes(&client, &own).await else { continue };
                for node in now.difference(&known) {
                    create_pods(&client, node).await;
                }
                for node in known.difference(&now) {
                    delete_pods(&client, node).await;
                }
                known = now;
            }
        }))
    }
}

impl Drop for StaticPods {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn nodes(client: &Client, own: &str) -> kube::Result<BTreeSet<String>> {
    let nodes: Api<Node> = Api::all(client.clone());
    Ok(nodes.list(&ListParams::default().labels(own)).await?.items.iter().map(ResourceExt::name_any).collect())
}

fn pods(client: &Client) -> Api<Pod> {
    Api::namespaced(client.clone(), "kube-system")
}

async fn create_pods(client: &Client, node: &str) {
    for component in COMPONENTS {
        let name = format!("{component}-{node}");
        let labels = json!({"tier": "control-plane", "component": component});
        let mirror = json!({"kubernetes.io/config.mirror": "simulated"});
        let pod = json!({
            "metadata": {"name": name, "labels": labels, "annotations": mirror},
            "spec": {"nodeName": node, "containers": [{"name": component, "image": "registry.invalid/component"}]},
        });
        pods(client).create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
        let ready = json!({"type": "Ready", "status": "True"});
        let status = json!({"status": {"phase": "Running", "conditions": [ready]}});
        pods(client).patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    }
}

async fn delete_pods(client: &Client, node: &str) {
    for component in COMPONENTS {
        pods(client).delete(&format!("{component}-{node}"), &DeleteParams::default().grace_period(0)).await.unwrap();
    }
}

/// The flavour with an external etcd, because the members of kubeadm's own one would have to answer. The dates of certificates,
/// which the controller would otherwise read from each API server, are given.
pub fn with_external_etcd(flavour: &str) -> String {
    const CONFIGURATION: &str = "    clusterConfiguration:\n";
    const TEMPLATE: &str = "  machineTemplate:\n";
    assert!(flavour.contains(CONFIGURATION) && flavour.contains(TEMPLATE), "{flavour}");
    let files = "caFile: /etcd/ca.crt, certFile: /etcd/client.crt, keyFile: /etcd/client.key";
    let etcd = format!("      etcd: {{external: {{endpoints: [\"https://etcd.example.com:2379\"], {files}}}}}\n");
    let expiry =
        "    metadata: {annotations: {machine.cluster.x-k8s.io/certificates-expiry: \"2099-01-01T00:00:00Z\"}}\n";
    flavour.replacen(CONFIGURATION, &format!("{CONFIGURATION}{etcd}"), 1).replacen(
        TEMPLATE,
        &format!("{TEMPLATE}{expiry}"),
        1,
    )
}

/// The certificates of that etcd.
pub fn add_etcd(scene: &Scene) {
    let pki = scene.workload().folder().join("pki");
    scene.add_secret("etcd", &[("tls.crt", &pki.join("ca.crt"))]);
    let client = [("tls.crt", pki.join("server.crt")), ("tls.key", pki.join("server.key"))];
    scene.add_secret("apiserver-etcd-client", &[(client[0].0, &client[0].1), (client[1].0, &client[1].1)]);
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
        let _pods = StaticPods::run(&scene);
        let ec2 = Arc::clone(&cloud.ec2);
        let recorder =
            Recorder::start(world.management.client(), &scene.namespace, Arc::<Ec2>::clone(&ec2), MACHINES).await;

        let variables = cloud.variables();
        let mut variables: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let replicas = MACHINES.to_string();
        variables.push(("CONTROL_PLANE_MACHINE_COUNT", &replicas));
        let text = with_external_etcd(&scene.generate_with("aws", 0, &variables));
        world.kubectl_with(&["apply", "-f", "-"], &text);
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

        scene.kubectl(&["delete", "cluster", &scene.name, "--timeout=170s"]);
        assert_eq!((ec2.members().await, ec2.living().await), (BTreeSet::new(), BTreeSet::new()));
    });
}
