//! moto or another simulation of EC2 with a network, behind its proxy.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
};

use async_trait::async_trait;
use roxmltree::{Document, Node};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::{
    proxy::{Fault, Proxy},
    server::Server,
};
use crate::{
    load_balancer::{Balanced, Call, Change},
    simulation::{Demo, Simulation, Vm},
};

const REGION: &str = "eu-west-1";
/// VMs per page: tests with a hundred VMs have two.
const PAGE: &str = "75";
const VERSION: (&str, &str) = ("Version", "2016-11-15");
const BALANCING: &str = "elasticloadbalancing";
const VERSION_OF_BALANCING: (&str, &str) = ("Version", "2015-12-01");
const CLUSTER: &str = "kubernetes.io/cluster/";
const ROLE: &str = "kubernetes.io/role/node";
const UID: &str = "machine.sapcloud.io/machine-uid";
const OWNER: &str = "machine.sapcloud.io/owner";
/// Each has separate addresses: a VM's address is the name of its Node, and tests share a target cluster.
static SUBNETS: AtomicU8 = AtomicU8::new(0);
/// An image that moto has from the start.
pub const IMAGE: &str = "ami-12c6146b";
/// The instance profile.
pub const PROFILE: &str = "node";

/// EC2.
pub struct Ec2 {
    pub proxy: Arc<Proxy>,
    pub url: String,
    pub subnet: String,
    pub group: String,
    vpc: String,
    target_group: OnceCell<String>,
    _server: Server,
}

impl Ec2 {
    /// moto.
    pub async fn start() -> Self {
        Self::on(Server::start("moto").await).await
    }

    pub async fn on(server: Server) -> Self {
        let (proxy, url) = Proxy::start(&server.url).await;
        let vpcs = proxy.ask(&[("Action", "DescribeVpcs"), VERSION]).await;
        let groups = proxy.ask(&[("Action", "DescribeSecurityGroups"), VERSION]).await;
        let (vpc, group) = (between(&vpcs, "vpcId"), between(&groups, "groupId"));
        let subnet = create_subnet(&proxy, &vpc, None).await;
        let profile =
            [("Action", "CreateInstanceProfile"), ("Version", "2010-05-08"), ("InstanceProfileName", PROFILE)];
        proxy.ask_service("iam", &profile).await;
        Self { proxy, url, subnet, group, vpc, target_group: OnceCell::new(), _server: server }
    }

    /// The ID of another subnet, in a zone.
    pub async fn add_subnet(&self, zone: &str) -> String {
        create_subnet(&self.proxy, &self.vpc, Some(zone)).await
    }

    /// The ID of a copy of the image, with a name.
    pub async fn copy_image(&self, name: &str) -> String {
        let params =
            [("Action", "CopyImage"), VERSION, ("SourceImageId", IMAGE), ("SourceRegion", REGION), ("Name", name)];
        between(&self.proxy.ask(&params).await, "imageId")
    }

    /// The image of each VM, by its machine.
    pub async fn images(&self) -> BTreeMap<String, String> {
        let all = self.alive().await.into_iter();
        all.map(|one| (one.tags.get("Name").cloned().unwrap_or_default(), one.image)).collect()
    }

    /// Creates a VM with an image, as another infrastructure provider does. Without a role tag mcm does not list it.
    pub async fn create_with_image(&self, name: &str, cluster: &str, image: &str) {
        let cluster = format!("{CLUSTER}{cluster}");
        self.run_instance(image, &[("Name", name), (cluster.as_str(), "1")]).await;
    }

    /// Runs an instance with the tags that have a value.
    async fn run_instance(&self, image: &str, tags: &[(&str, &str)]) {
        let tags = tags.iter().filter(|(_, value)| !value.is_empty());
        let tags: Vec<(String, String)> = (1..)
            .zip(tags)
            .flat_map(|(index, (key, value))| {
                let path = format!("TagSpecification.1.Tag.{index}");
                [(format!("{path}.Key"), (*key).to_owned()), (format!("{path}.Value"), (*value).to_owned())]
            })
            .collect();
        let mut params = vec![
            ("Action", "RunInstances"),
            VERSION,
            ("ImageId", image),
            ("InstanceType", "m5.large"),
            ("MinCount", "1"),
            ("MaxCount", "1"),
            ("SubnetId", &self.subnet),
            ("TagSpecification.1.ResourceType", "instance"),
        ];
        params.extend(tags.iter().map(|(key, value)| (key.as_str(), value.as_str())));
        let answer = self.proxy.ask(&params).await;
        assert!(answer.contains("<instanceId>"), "{answer}");
    }

    /// The ARN of the target group of a control plane, which a user creates.
    pub async fn target_group(&self) -> &str {
        let create = async || {
            let params = [
                ("Action", "CreateTargetGroup"),
                VERSION_OF_BALANCING,
                ("Name", "control-plane"),
                ("Protocol", "TCP"),
                ("Port", "6443"),
                ("VpcId", &self.vpc),
                ("TargetType", "instance"),
            ];
            between(&self.proxy.ask_service(BALANCING, &params).await, "TargetGroupArn")
        };
        self.target_group.get_or_init(create).await
    }

    async fn alive(&self) -> Vec<Instance> {
        let mut all = self.instances().await;
        all.retain(|one| !["shutting-down", "terminated"].contains(&one.state.as_str()));
        all
    }

    /// In all states, as the simulation itself shows them.
    async fn instances(&self) -> Vec<Instance> {
        let (mut found, mut page) = (Vec::new(), None::<String>);
        loop {
            let mut params = vec![("Action", "DescribeInstances"), VERSION, ("MaxResults", PAGE)];
            params.extend(page.as_deref().map(|page| ("NextToken", page)));
            let answer = self.proxy.ask(&params).await;
            let document = Document::parse(&answer).unwrap();
            let sets = document.descendants().filter(|node| node.has_tag_name("instancesSet"));
            found.extend(sets.flat_map(|set| set.children().filter(Node::is_element)).map(Instance::of));
            page = Some(text(document.root_element(), "nextToken")).filter(|next| !next.is_empty());
            if page.is_none() {
                return found;
            }
        }
    }
}

/// Creates a subnet in a zone, or in the first one; returns its ID.
async fn create_subnet(proxy: &Proxy, vpc: &str, zone: Option<&str>) -> String {
    let block = format!("172.31.{}.0/22", 64 + 4 * SUBNETS.fetch_add(1, Ordering::Relaxed));
    let mut params = vec![("Action", "CreateSubnet"), VERSION, ("VpcId", vpc), ("CidrBlock", block.as_str())];
    params.extend(zone.map(|zone| ("AvailabilityZone", zone)));
    between(&proxy.ask(&params).await, "subnetId")
}

#[async_trait]
impl Simulation for Ec2 {
    fn provider(&self) -> &'static str {
        "AWS"
    }

    fn about(&self) -> String {
        format!("AWS is moto, behind a proxy at {}", self.url)
    }

    fn demo(&self, _: &str) -> Demo {
        let interface = json!({"subnetID": self.subnet, "securityGroupIDs": [self.group]});
        let spec = json!({
            "ami": IMAGE, "iam": {"name": PROFILE}, "keyName": null, "networkInterfaces": [interface],
        });
        Demo { spec, field: "machineType", values: ["m5.large", "m5.2xlarge"] }
    }

    fn hint(&self) -> String {
        format!("AWS_ENDPOINT_URL={} aws ec2 describe-instances --region {REGION}", self.url)
    }

    fn spec(&self, cluster: &str) -> Value {
        json!({
            "ami": IMAGE, "region": REGION, "machineType": "m5.large", "iam": {"name": PROFILE},
            "blockDevices": [{"ebs": {"volumeType": "gp3", "volumeSize": 50}}],
            "networkInterfaces": [{"subnetID": self.subnet, "securityGroupIDs": [self.group]}],
            "srcAndDstChecksEnabled": false,
            "tags": {format!("{CLUSTER}{cluster}"): "1", ROLE: "1"},
        })
    }

    fn secret(&self) -> Value {
        json!({
            "accessKeyID": "AKIDEXAMPLE", "secretAccessKey": "top-secret-key", "userData": "hunter2-hunter2",
            "endpointURL": self.url,
        })
    }

    async fn vms(&self) -> Vec<Vm> {
        self.alive().await.into_iter().map(Vm::from).collect()
    }

    async fn created(&self) -> u64 {
        self.instances().await.len() as u64
    }

    async fn create_for(&self, name: &str, cluster: &str, owner: &str) {
        let cluster = format!("{CLUSTER}{cluster}");
        let tags = [("Name", name), (cluster.as_str(), "1"), (ROLE, "1"), (OWNER, owner)];
        self.run_instance(IMAGE, &tags).await;
    }

    async fn end(&self, provider_id: &str) {
        let id = provider_id.rsplit('/').next().unwrap();
        self.proxy.ask(&[("Action", "TerminateInstances"), VERSION, ("InstanceId.1", id)]).await;
    }
}

#[async_trait]
impl Balanced for Ec2 {
    async fn balancer(&self) -> Value {
        json!({"awsTargetGroup": {"arn": self.target_group().await}})
    }

    async fn members(&self) -> BTreeSet<String> {
        let arn = self.target_group().await;
        let params = [("Action", "DescribeTargetHealth"), VERSION_OF_BALANCING, ("TargetGroupArn", arn)];
        let answer = self.proxy.ask_service(BALANCING, &params).await;
        let document = Document::parse(&answer).unwrap();
        let targets = document.descendants().filter(|node| node.has_tag_name("Target"));
        targets.map(|target| text(target, "Id")).collect()
    }

    fn changes(&self) -> Vec<Change> {
        self.proxy.settings.lock().changes.clone()
    }

    fn silence(&self, call: Call, is_carried_out: bool) {
        let action = match call {
            Call::Register => "RegisterTargets",
            Call::Deregister => "DeregisterTargets",
        };
        self.proxy.fail(action, if is_carried_out { Fault::Unanswered } else { Fault::Timeout }, 1);
    }

    fn unanswered(&self) -> usize {
        self.proxy.settings.lock().unanswered
    }
}

struct Instance {
    id: String,
    image: String,
    state: String,
    dns_name: String,
    tags: BTreeMap<String, String>,
}

impl Instance {
    fn of(node: Node<'_, '_>) -> Self {
        let tags = child(node, "tagSet")
            .into_iter()
            .flat_map(|set| set.children().filter(Node::is_element).collect::<Vec<_>>());
        Self {
            id: text(node, "instanceId"),
            image: text(node, "imageId"),
            state: child(node, "instanceState").map(|state| text(state, "name")).unwrap_or_default(),
            dns_name: text(node, "privateDnsName"),
            tags: tags.map(|tag| (text(tag, "key"), text(tag, "value"))).collect(),
        }
    }
}

impl From<Instance> for Vm {
    fn from(instance: Instance) -> Self {
        let cluster = instance.tags.keys().find_map(|key| key.strip_prefix(CLUSTER));
        Self {
            provider_id: format!("aws:///{REGION}/{}", instance.id),
            machine: instance.tags.get("Name").cloned().unwrap_or_default(),
            is_running: instance.state == "running",
            cluster: cluster.unwrap_or_default().to_owned(),
            has_uid: instance.tags.contains_key(UID),
            owner: instance.tags.get(OWNER).cloned().unwrap_or_default(),
            node: instance.dns_name,
        }
    }
}

fn child<'a, 'input>(node: Node<'a, 'input>, name: &str) -> Option<Node<'a, 'input>> {
    node.children().find(|child| child.has_tag_name(name))
}

fn text(node: Node<'_, '_>, name: &str) -> String {
    child(node, name).and_then(|child| child.text()).unwrap_or_default().to_owned()
}

fn between(text: &str, tag: &str) -> String {
    let found = text.split(&format!("<{tag}>")).nth(1).and_then(|rest| rest.split('<').next());
    found.unwrap_or_else(|| panic!("no {tag} in {text}")).to_owned()
}
