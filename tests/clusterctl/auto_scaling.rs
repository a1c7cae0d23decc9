//! Pools of the provider for AWS on moto: its real kind, and a controller that keeps a real Auto Scaling group as the provider does.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams},
    core::GroupVersionKind,
};
use roxmltree::{Document, Node};
use serde_json::{Value, json};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::JoinHandle,
};

use crate::{
    aws::{Ec2, IMAGE},
    flavours::OnAws,
    scene::Scene,
    simulation::Simulation,
};

const FINALIZER: &str = "awsmachinepool.infrastructure.cluster.x-k8s.io";
const PAUSED: &str = "cluster.x-k8s.io/paused";

/// An Auto Scaling group, as AWS shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    pub min: u64,
    pub desired: u64,
    /// Its instances.
    pub members: BTreeSet<String>,
}

/// A call of Auto Scaling.
async fn call(ec2: &Ec2, action: &str, params: &[(&str, &str)]) -> String {
    let all: Vec<(&str, &str)> =
        [("Action", action), ("Version", "2011-01-01")].into_iter().chain(params.iter().copied()).collect();
    let answer = ec2.proxy.ask_service("autoscaling", &all).await;
    assert!(!answer.contains("<Error>"), "{action} {params:?}: {answer}");
    answer
}

/// The group with a name.
pub async fn group(ec2: &Ec2, name: &str) -> Option<Group> {
    let answer = call(ec2, "DescribeAutoScalingGroups", &[("AutoScalingGroupNames.member.1", name)]).await;
    let document = Document::parse(&answer).unwrap();
    let text = |tag: &str| document.descendants().find(|node| node.has_tag_name(tag)).and_then(|node| node.text());
    let number = |tag: &str| text(tag).and_then(|text| text.parse().ok());
    let instances = document.descendants().find(|node| node.has_tag_name("Instances"));
    let ids = instances.into_iter().flat_map(|all| all.descendants()).filter(|node| node.has_tag_name("InstanceId"));
    let members = ids.filter_map(|node: Node<'_, '_>| node.text().map(str::to_owned)).collect();
    Some(Group { min: number("MinSize")?, desired: number("DesiredCapacity")?, members })
}

/// The provider, as far as pools are concerned.
pub struct Pools {
    deeds: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Drop for Pools {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Pools {
    /// Starts it in the namespace of a scene.
    pub fn start(scene: &Scene, cloud: &Arc<OnAws>) -> Self {
        let deeds = Arc::new(Mutex::new(Vec::new()));
        let api = |group: &str, kind: &str, plural: &str| {
            let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1beta2", kind), plural);
            Api::namespaced_with(scene.world.management.client(), &scene.namespace, &resource)
        };
        let controller = Controller {
            machine_pools: api("cluster.x-k8s.io", "MachinePool", "machinepools"),
            pools: api("infrastructure.cluster.x-k8s.io", "AWSMachinePool", "awsmachinepools"),
            cloud: Arc::clone(cloud),
            cluster: scene.name.clone(),
            deeds: Arc::clone(&deeds),
        };
        let task = tokio::spawn(async move {
            let mut resync = tokio::time::interval(Duration::from_millis(200));
            loop {
                resync.tick().await;
                let Ok(all) = controller.pools.list(&ListParams::default()).await else { continue };
                for pool in all {
                    controller.reconcile(&pool).await;
                }
            }
        });
        Self { deeds, task }
    }

    /// Changes of groups, in order.
    pub fn deeds(&self) -> Vec<String> {
        self.deeds.lock().unwrap().clone()
    }
}

struct Controller {
    machine_pools: Api<DynamicObject>,
    pools: Api<DynamicObject>,
    cloud: Arc<OnAws>,
    cluster: String,
    deeds: Arc<Mutex<Vec<String>>>,
}

impl Controller {
    /// Owner, pause, deletion, group: in the order of the provider.
    async fn reconcile(&self, pool: &DynamicObject) -> Option<()> {
        let name = pool.name_any();
        let owner = pool.owner_references().iter().find(|owner| owner.kind == "MachinePool")?;
        let machine_pool = self.machine_pools.get_opt(&owner.name).await.ok()??;
        if pool.annotations().contains_key(PAUSED) {
            return None;
        }
        if pool.metadata.deletion_timestamp.is_some() {
            self.tell(format!("delete {name}"));
            call(&self.cloud.ec2, "DeleteAutoScalingGroup", &[("AutoScalingGroupName", &name)]).await;
            self.patch(&name, json!({"metadata": {"finalizers": null}})).await;
            return None;
        }
        if pool.finalizers().is_empty() {
            self.patch(&name, json!({"metadata": {"finalizers": [FINALIZER]}})).await;
        }
        machine_pool.data.pointer("/spec/template/spec/bootstrap/dataSecretName")?.as_str()?;
        let replicas = machine_pool.data["spec"]["replicas"].as_u64()?;
        let min = pool.data["spec"]["minSize"].as_u64()?;
        let Some(group) = group(&self.cloud.ec2, &name).await else {
            self.tell(format!("create {name} with {replicas}"));
            self.create(pool, replicas).await;
            return None;
        };
        if (group.min, group.desired) != (min, replicas) {
            self.tell(format!("resize {name} to {replicas}, at least {min}"));
            let (min, desired) = (min.to_string(), replicas.to_string());
            let params = [("AutoScalingGroupName", &*name), ("MinSize", &*min), ("DesiredCapacity", &*desired)];
            call(&self.cloud.ec2, "UpdateAutoScalingGroup", &params).await;
            return None;
        }
        let ids: Vec<String> = group.members.iter().map(|id| self.cloud.node_id_of(id)).collect();
        if pool.data["spec"]["providerIDList"] != json!(ids) {
            self.patch(&name, json!({"spec": {"providerIDList": ids}})).await;
        }
        let status = json!({"ready": true, "replicas": ids.len()});
        if pool.data["status"]["ready"] != true || pool.data["status"]["replicas"] != ids.len() {
            let change = Patch::Merge(json!({ "status": status }));
            self.pools.patch_status(&name, &PatchParams::default(), &change).await.ok();
        }
        None
    }

    async fn create(&self, pool: &DynamicObject, replicas: u64) {
        let (name, ec2) = (pool.name_any(), &self.cloud.ec2);
        let type_ = pool.data.pointer("/spec/awsLaunchTemplate/instanceType").and_then(Value::as_str).unwrap();
        let launch = [
            ("LaunchConfigurationName", &*name),
            ("ImageId", IMAGE),
            ("InstanceType", type_),
            ("SecurityGroups.member.1", &ec2.group),
        ];
        call(ec2, "CreateLaunchConfiguration", &launch).await;
        let size = |field: &str| pool.data["spec"][field].as_u64().unwrap().to_string();
        let (min, max, desired) = (size("minSize"), size("maxSize"), replicas.to_string());
        let of_cluster = format!("kubernetes.io/cluster/{}", self.cluster);
        let of_provider = format!("sigs.k8s.io/cluster-api-provider-aws/cluster/{}", self.cluster);
        let tags = [("Name", &*name), (&of_cluster, "owned"), (&of_provider, "owned")];
        let tags = (1..).zip(tags).flat_map(|(number, (key, value))| {
            let tag = |field: &str, value: &str| (format!("Tags.member.{number}.{field}"), value.to_owned());
            let of_group = [tag("ResourceId", &name), tag("ResourceType", "auto-scaling-group")];
            [tag("Key", key), tag("Value", value), tag("PropagateAtLaunch", "true")].into_iter().chain(of_group)
        });
        let tags: Vec<(String, String)> = tags.collect();
        let mut params = vec![
            ("AutoScalingGroupName", &*name),
            ("LaunchConfigurationName", &*name),
            ("MinSize", &*min),
            ("MaxSize", &*max),
            ("DesiredCapacity", &*desired),
            ("VPCZoneIdentifier", &*ec2.subnet),
        ];
        params.extend(tags.iter().map(|(key, value)| (key.as_str(), value.as_str())));
        call(ec2, "CreateAutoScalingGroup", &params).await;
    }

    fn tell(&self, deed: String) {
        self.deeds.lock().unwrap().push(deed);
    }

    async fn patch(&self, name: &str, change: Value) {
        self.pools.patch(name, &PatchParams::default(), &Patch::Merge(change)).await.ok();
    }
}

/// The user, who runs the commands that `mcm adopt` waits for, exactly as they are printed.
pub struct User {
    commands: UnboundedSender<String>,
    task: JoinHandle<()>,
}

impl Drop for User {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl User {
    pub fn start(ec2: &Arc<Ec2>) -> Self {
        let (commands, received) = unbounded_channel();
        Self { commands, task: tokio::spawn(obey(Arc::clone(ec2), received)) }
    }

    /// Reads a line of the output.
    pub fn reads(&self, line: &str) {
        let commands = line.split_once("; run: ").into_iter().flat_map(|(_, commands)| commands.split("; "));
        commands.for_each(|command| self.commands.send(command.to_owned()).unwrap());
    }
}

async fn obey(ec2: Arc<Ec2>, mut commands: UnboundedReceiver<String>) {
    while let Some(command) = commands.recv().await {
        run(&ec2, &command).await;
    }
}

/// A command of AWS as a call. Unlike moto, AWS refuses to detach an instance that is no member, and to attach one that is.
async fn run(ec2: &Ec2, command: &str) {
    let words: Vec<&str> = command.split(' ').collect();
    let [program, service, action, flags @ ..] = words.as_slice() else { panic!("{command}") };
    assert_eq!((*program, *service), ("aws", "autoscaling"), "{command}");
    let action: String = action.split('-').map(|word| word[..1].to_uppercase() + &word[1..]).collect();
    let mut params: Vec<(String, String)> = Vec::new();
    let (mut flag, mut number) = ("", 0);
    for word in flags {
        if let Some(next) = word.strip_prefix("--") {
            (flag, number) = (next, 0);
            if flag == "should-decrement-desired-capacity" {
                params.push(("ShouldDecrementDesiredCapacity".to_owned(), "true".to_owned()));
            }
            continue;
        }
        number += 1;
        let key = match flag {
            "region" => continue,
            "auto-scaling-group-name" => "AutoScalingGroupName".to_owned(),
            "min-size" => "MinSize".to_owned(),
            "scaling-processes" => format!("ScalingProcesses.member.{number}"),
            "instance-ids" => format!("InstanceIds.member.{number}"),
            other => panic!("{other} in {command}"),
        };
        params.push((key, (*word).to_owned()));
    }
    let name = params.iter().find(|(key, _)| key == "AutoScalingGroupName").unwrap().1.clone();
    let members = group(ec2, &name).await.unwrap().members;
    let mut ids = params.iter().filter(|(key, _)| key.starts_with("InstanceIds")).map(|(_, id)| id);
    let is_wrong = match action.as_str() {
        "DetachInstances" => ids.any(|id| !members.contains(id)),
        "AttachInstances" => ids.any(|id| members.contains(id)),
        _ => false,
    };
    if !is_wrong {
        let params: Vec<(&str, &str)> = params.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        call(ec2, &action, &params).await;
    }
}

/// IDs of the instances that run.
pub async fn running(ec2: &Ec2) -> BTreeSet<String> {
    let running = ec2.vms().await.into_iter().filter(|vm| vm.is_running);
    running.map(|vm| vm.provider_id.rsplit('/').next().unwrap().to_owned()).collect()
}
