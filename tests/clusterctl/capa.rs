//! Workers and a pool of a stock cluster of CAPA on moto move to mcm and back. Neither the cloud nor core notices, wherever the command dies.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use async_trait::async_trait;
use base64::{Engine, engine::general_purpose::STANDARD};
use kube::{ResourceExt, api::DynamicObject};
use serde_json::Value;

use crate::{
    adopt::Adoption,
    auto_scaling::{Group, Pools, User, group, running},
    aws::IMAGE,
    flavours::{Kubelets, OnAws, REGION, StandIn, other_provider_with, prepare},
    other_provider::{OtherProvider, Vms},
    scene::{KUBERNETES, Scene, name_of},
    simulation::{Simulation, Vm},
    world::{World, play},
};

const WORKERS: usize = 3;
const CLUSTER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clusterctl/capa.yaml");
const KEY: &str = "default";
const PROFILES: [&str; 2] =
    ["control-plane.cluster-api-provider-aws.sigs.k8s.io", "nodes.cluster-api-provider-aws.sigs.k8s.io"];
/// The migration to mcm, with values for the settings that a stock template leaves open.
const TO_MCM: [&str; 10] = [
    "--from",
    "other",
    "--to",
    "capi",
    "--credentials-secret",
    "aws-credentials",
    "--image",
    IMAGE,
    "--root-volume",
    "8:gp2",
];
const TO_CAPA: [&str; 4] = ["--from", "capi", "--to", "other"];

/// VMs as CAPA creates them: with its tags, and without any of mcm.
struct OfCapa {
    cloud: Arc<OnAws>,
    scene: Scene,
}

impl OfCapa {
    async fn find(&self, machine: &str) -> Option<Vm> {
        self.cloud.ec2.vms().await.into_iter().find(|vm| vm.machine == machine)
    }

    async fn run(&self, machine: &DynamicObject) {
        let (name, cluster) = (machine.name_any(), &self.scene.name);
        let is_control_plane = machine.labels().contains_key("cluster.x-k8s.io/control-plane");
        let role = if is_control_plane { "control-plane" } else { "node" };
        let tags = [
            ("Name".to_owned(), name.clone()),
            ("MachineName".to_owned(), format!("{}/{name}", self.scene.namespace)),
            (format!("kubernetes.io/cluster/{cluster}"), "owned".to_owned()),
            (format!("sigs.k8s.io/cluster-api-provider-aws/cluster/{cluster}"), "owned".to_owned()),
            ("sigs.k8s.io/cluster-api-provider-aws/role".to_owned(), role.to_owned()),
        ];
        let ec2 = &self.cloud.ec2;
        let spec = |field: &str| machine.data["spec"][field].as_str().unwrap_or_default().to_owned();
        let user_data = STANDARD.encode(format!("#cloud-config of {name}"));
        let mut params: Vec<(String, String)> = [
            ("Action", "RunInstances"),
            ("Version", "2016-11-15"),
            ("MinCount", "1"),
            ("MaxCount", "1"),
            ("ImageId", IMAGE),
            ("InstanceType", &spec("instanceType")),
            ("KeyName", &spec("sshKeyName")),
            ("IamInstanceProfile.Name", &spec("iamInstanceProfile")),
            ("SubnetId", &ec2.subnet),
            ("SecurityGroupId.1", &ec2.group),
            ("UserData", &user_data),
            ("TagSpecification.1.ResourceType", "instance"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .to_vec();
        for (number, (key, value)) in (1..).zip(tags) {
            params.push((format!("TagSpecification.1.Tag.{number}.Key"), key));
            params.push((format!("TagSpecification.1.Tag.{number}.Value"), value));
        }
        let params: Vec<(&str, &str)> = params.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let answer = ec2.proxy.ask(&params).await;
        assert!(answer.contains("<instanceId>"), "{answer}");
    }
}

#[async_trait]
impl Vms for OfCapa {
    async fn create(&self, machine: &DynamicObject) -> Option<String> {
        let name = machine.name_any();
        if self.find(&name).await.is_none() {
            self.run(machine).await;
        }
        self.find(&name).await.map(|vm| self.cloud.node_id(&vm))
    }

    async fn delete(&self, id: &str) -> Option<()> {
        self.cloud.ec2.end(id).await;
        Some(())
    }
}

/// The key and the instance profiles that CAPA expects in an account.
async fn prepare_account(cloud: &OnAws) {
    let proxy = &cloud.ec2.proxy;
    proxy.ask(&[("Action", "CreateKeyPair"), ("Version", "2016-11-15"), ("KeyName", KEY)]).await;
    for name in PROFILES {
        let profile = [("Action", "CreateInstanceProfile"), ("Version", "2010-05-08"), ("InstanceProfileName", name)];
        proxy.ask_service("iam", &profile).await;
    }
}

/// The output of `clusterctl generate cluster`.
fn generate(scene: &Scene) -> String {
    let workers = WORKERS.to_string();
    let words = ["generate", "cluster", &scene.name, "--from", CLUSTER, "--target-namespace", &scene.namespace];
    let counts = ["--control-plane-machine-count", "1", "--worker-machine-count", &workers];
    let version = ["--kubernetes-version", KUBERNETES];
    let mut command = scene.world.command(&[&words[..], &counts, &version].concat());
    let output = command.env("AWS_REGION", REGION).env("AWS_SSH_KEY_NAME", KEY).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// State that must not change: the number of instances ever created, the running ones, Nodes, and the objects of core.
#[derive(Debug, PartialEq)]
struct Essence {
    created: u64,
    running: BTreeMap<String, String>,
    nodes: BTreeMap<String, String>,
    of_core: BTreeMap<String, String>,
}

async fn essence(scene: &Scene, cloud: &OnAws) -> Essence {
    let uid = |one: &Value| one["metadata"]["uid"].as_str().unwrap().to_owned();
    let running = cloud.ec2.vms().await.into_iter().filter(|vm| vm.is_running);
    let kinds = ["machinedeployments", "machinesets", "machines"].map(|kind| format!("{kind}.cluster.x-k8s.io"));
    let of_core = kinds.iter().flat_map(|kind| scene.all(kind));
    let nodes = scene.workload_reader().all("", "nodes", &format!("cluster={}", scene.name));
    Essence {
        created: cloud.ec2.created().await,
        running: running.map(|vm| (vm.provider_id, vm.machine)).collect(),
        nodes: nodes.iter().map(|node| (name_of(node).to_owned(), uid(node))).collect(),
        of_core: of_core
            .map(|one| (format!("{} {}", one["kind"].as_str().unwrap(), name_of(&one)), uid(&one)))
            .collect(),
    }
}

/// The VM that is new since then.
async fn new_vm(cloud: &OnAws, before: &Essence) -> Vm {
    let mut all = cloud.ec2.vms().await;
    all.retain(|vm| !before.running.contains_key(&vm.provider_id));
    assert_eq!((all.len(), cloud.ec2.created().await), (1, before.created + 1));
    all.remove(0)
}

/// A cluster that is not applied yet, its account, and CAPA.
async fn stock(world: &'static World, name: &str) -> (Arc<OnAws>, Scene, OtherProvider) {
    let cloud = Arc::new(OnAws::start().await);
    prepare_account(&cloud).await;
    let scene = Scene::with_authority(world, name).await;
    prepare(&scene, cloud.as_ref());
    let in_scene = Scene::bare(world, scene.namespace.clone(), &scene.name);
    let vms = Arc::new(OfCapa { cloud: Arc::clone(&cloud), scene: in_scene });
    let capa = other_provider_with(&scene, cloud.as_ref(), vms).await;
    (cloud, scene, capa)
}

#[test]
fn workers_of_a_stock_cluster_of_capa_move_to_mcm_and_back() {
    play(async |world: &'static World| {
        let (cloud, scene, capa) = stock(world, "stock").await;
        let kubelets = Kubelets::run(&scene, Arc::<OnAws>::clone(&cloud));
        world.kubectl_with(&["apply", "-f", "-"], &generate(&scene));
        scene.until("all machines to be Nodes", async || scene.has_running(1 + WORKERS)).await;
        let adoption = Adoption::beside(scene).await;
        let scene = &adoption.scene;
        let calls = |action: &str| cloud.ec2.proxy.calls(action);
        let (before, deeds) = (essence(scene, &cloud).await, capa.deeds());
        assert_eq!((before.running.len(), before.nodes.len(), deeds.len()), (1 + WORKERS, 1 + WORKERS, 1 + WORKERS));

        let plan = adoption.run(&["plan", "--from", "other", "--to", "capi"]);
        let plan = String::from_utf8_lossy(&plan.stdout).into_owned();
        assert!(plan.contains("--image") && plan.contains("--root-volume"), "the template leaves them open: {plan}");
        let stays = "MachinePool stock-mp-0 stays: its instances are in the Auto Scaling group stock-mp-0";
        assert!(plan.contains(stays), "{plan}");
        let killed = adoption.apply_with_kills(&TO_MCM);
        assert!(killed.len() >= 12, "{killed:#?}");
        assert_eq!(essence(scene, &cloud).await, before, "after the way there");
        assert_eq!((calls("RunInstances"), calls("TerminateInstances"), capa.deeds()), (0, 0, deeds.clone()));
        assert_eq!((scene.all("awsmachines").len(), scene.all("mcmmachines").len()), (1, WORKERS));
        adoption.found_no_orphans();

        scene.scale(WORKERS + 1);
        scene.until("one more machine of mcm", async || scene.has_running(2 + WORKERS)).await;
        assert!(new_vm(&cloud, &before).await.has_uid);
        assert_eq!((calls("RunInstances"), capa.deeds()), (1, deeds.clone()));

        let before = essence(scene, &cloud).await;
        let killed = adoption.apply_with_kills(&TO_CAPA);
        assert!(killed.len() >= 12, "{killed:#?}");
        assert_eq!(essence(scene, &cloud).await, before, "after the way back");
        assert_eq!((calls("RunInstances"), calls("TerminateInstances"), capa.deeds()), (1, 0, deeds.clone()));
        assert_eq!((scene.all("awsmachines").len(), scene.all("mcmmachines").len()), (2 + WORKERS, 0));
        assert_eq!(adoption.names(&["machines.machine.sapcloud.io"]), [""; 0]);
        adoption.found_no_orphans();

        scene.scale(WORKERS + 2);
        scene.until("one more machine of CAPA", async || scene.has_running(3 + WORKERS)).await;
        assert!(!new_vm(&cloud, &before).await.has_uid);
        assert_eq!((calls("RunInstances"), capa.deeds().len()), (1, deeds.len() + 1));

        scene.kubectl(&["delete", "cluster", &scene.name, "--timeout=600s"]);
        assert!(cloud.ec2.vms().await.is_empty());
        scene.until("the Nodes to be gone", async || kubelets.are_gone().await).await;
    });
}

/// State of a pool that must not change: the number of instances ever created, the running ones, and Nodes.
#[derive(Debug, PartialEq)]
struct Fate {
    created: u64,
    running: BTreeSet<String>,
    nodes: BTreeMap<String, String>,
}

async fn fate(scene: &Scene, cloud: &OnAws) -> Fate {
    let Essence { created, nodes, .. } = essence(scene, cloud).await;
    Fate { created, running: running(&cloud.ec2).await, nodes }
}

/// An unpaused pool is left, whose group is empty.
fn is_empty(scene: &Scene, pool: &str) -> Option<()> {
    let machine_pool = scene.get("machinepool", pool);
    assert_eq!(scene.get("awsmachinepool", pool)["spec"]["minSize"], 0);
    assert!(machine_pool["metadata"]["annotations"]["cluster.x-k8s.io/paused"].is_null());
    (machine_pool["spec"]["replicas"] == 0 && machine_pool["status"]["nodeRefs"].is_null()).then_some(())
}

#[test]
fn a_pool_of_a_stock_cluster_of_capa_moves_to_mcm_and_back() {
    const MEMBERS: usize = 3;
    play(async |world: &'static World| {
        let (cloud, scene, capa) = stock(world, "grouped").await;
        let pools = Pools::start(&scene, &cloud);
        let kubelets = Kubelets::run(&scene, Arc::<OnAws>::clone(&cloud));
        world.kubectl_with(&["apply", "-f", "-"], &generate(&scene));
        let pool = "grouped-mp-0";
        let scale = |kind: &str, replicas: usize| {
            scene.kubectl(&["scale", &format!("{kind}.cluster.x-k8s.io/{pool}"), &format!("--replicas={replicas}")])
        };
        scale("machinepool", MEMBERS);
        scene.until("all machines to be Nodes", async || scene.has_running(1 + WORKERS)).await;
        scene.until("all VMs of the pool to be Nodes", async || scene.has_pool_of(MEMBERS)).await;
        let user = User::start(&cloud.ec2);
        let in_scene = Scene::bare(world, scene.namespace.clone(), &scene.name);
        let adoption = Adoption::beside(in_scene).await;
        let calls = |action: &str| cloud.ec2.proxy.calls(action);
        let (before, deeds) = (fate(&scene, &cloud).await, (capa.deeds(), pools.deeds()));
        assert_eq!((before.running.len(), before.nodes.len()), (1 + WORKERS + MEMBERS, 1 + WORKERS + MEMBERS));

        let answers = ["--subnet", &cloud.ec2.subnet, "--machine-pool", pool];
        let there = [&TO_MCM[..], &answers].concat();
        let plan = adoption.must(&[&["plan"], &there[..]].concat());
        assert!(plan.contains("by hand: aws autoscaling detach-instances --region eu-west-1"), "{plan}");
        let killed = adoption.apply_with_kills_before(&there, |line| user.reads(line));
        assert!(killed.len() >= 12, "{killed:#?}");
        assert_eq!(fate(&scene, &cloud).await, before, "after the way there");
        assert_eq!((calls("RunInstances"), calls("TerminateInstances")), (0, 0));
        assert_eq!((capa.deeds(), pools.deeds()), deeds);
        assert_eq!(group(&cloud.ec2, pool).await, Some(Group::default()), "the group started no successor");
        scene.until("core to see no Node of the pool", async || is_empty(&scene, pool)).await;
        assert_eq!(scene.all("mcmmachines").len(), MEMBERS);
        adoption.found_no_orphans();

        scale("machinedeployment", MEMBERS + 1);
        scene.until("one more machine of mcm", async || scene.has_running(2 + WORKERS + MEMBERS)).await;
        assert_eq!((calls("RunInstances"), pools.deeds()), (1, deeds.1.clone()));

        let before = fate(&scene, &cloud).await;
        let back = [&TO_CAPA[..], &["--machine-pool", pool]].concat();
        let killed = adoption.apply_with_kills_before(&back, |line| user.reads(line));
        assert!(killed.len() >= 10, "{killed:#?}");
        assert_eq!(fate(&scene, &cloud).await, before, "after the way back");
        assert_eq!((calls("RunInstances"), calls("TerminateInstances")), (1, 0));
        scene.until("the group to be resized", async || (pools.deeds() != deeds.1).then_some(())).await;
        scene.until("the pool to have its Nodes", async || scene.has_pool_of(MEMBERS + 1)).await;
        let resized = format!("resize {pool} to {}, at least 1", MEMBERS + 1);
        assert_eq!((capa.deeds(), pools.deeds()), (deeds.0.clone(), [&deeds.1[..], &[resized]].concat()));
        let kept = group(&cloud.ec2, pool).await.unwrap();
        assert_eq!((kept.desired, kept.members.len()), (4, MEMBERS + 1));
        assert_eq!(adoption.names(&["mcmmachines", "machines.machine.sapcloud.io"]), [""; 0]);
        assert!(scene.find("machinedeployment.cluster.x-k8s.io", pool).is_none());
        adoption.found_no_orphans();

        scale("machinepool", MEMBERS + 2);
        scene.until("one more VM of the group", async || scene.has_pool_of(MEMBERS + 2)).await;
        scene.kubectl(&["delete", "cluster", &scene.name, "--timeout=600s"]);
        assert!(cloud.ec2.vms().await.is_empty());
        scene.until("the Nodes to be gone", async || kubelets.are_gone().await).await;
    });
}
