//! From the native controllers to Cluster API: core manages the machines, with mcm as its infrastructure provider.
//!
//! ```text
//! before   native MachineDeployment ─▶ native MachineSet ───────────▶ native Machine ─▶ VM
//! after    MachineDeployment ─▶ MachineSet ─▶ Machine ─▶ MCMMachine ─▶ native Machine ─▶ VM
//! ```
//!
//! The native Machine stays, and with it the VM and the Node. Its controller changes: first to none, then to its
//! MCMMachine.

use serde_json::{Map, Value, json};

use super::{
    object::{Kind, UnstructuredObject, replacing},
    snapshot::{MachineObjects, Snapshot},
    step::{RemainingWork, Step, detach, is_whole, pause_each, paused, resume, resume_each},
    to_native::{before, put_back},
};
use mcm_api::{GoDuration, labels, machine::MachineConfiguration};
pub use {
    mcm_conversion as conversion,
    mcm_conversion::{
        ConversionOptions, ConversionResult, ProviderRole,
        types::{MigrationSide, names},
    },
};

/// Steps until the authority is switched. Each can be undone.
pub const BEFORE: [Step; 3] = [
    Step { title: "pause the MCM objects", todo: pause_all, undo: Some(resume_all) },
    Step { title: "create the CAPI objects, paused", todo: describe, undo: Some(forget) },
    Step { title: "attach the MCM Machines to their MCMMachines", todo: hand_over, undo: Some(take_back) },
];

/// Steps after the switch.
pub const AFTER: [Step; 2] = [
    Step { title: "remove the MCM MachineDeployment and its MachineSets", todo: remove, undo: None },
    Step { title: "unpause the CAPI objects", todo: start, undo: None },
];

/// A machine is replaced only by a health check of Cluster API.
const NO_LIMIT_HOURS: i64 = 876_000;

/// Step 1. The native controllers confirm that each object is paused.
pub fn pause_all(s: &Snapshot) -> RemainingWork {
    pause_each(s, &[owners(s), natives(s)].concat())
}

pub fn resume_all(s: &Snapshot) -> RemainingWork {
    resume_each(&[natives(s), owners(s)].concat())
}

/// Step 2. Each object is created with its owner, and its controller confirms the pause. So core has seen every Machine
/// before its set acts, and creates none.
fn describe(s: &Snapshot) -> RemainingWork {
    if let (Some(wanted), Some(set)) =
        (CoreSideObjects::from_snapshot(s), s.recorded_set(MigrationSide::MachineController))
    {
        return make(s, &wanted, set.name());
    }
    let mut todo = RemainingWork::default();
    todo.expect(false, "the deployment to be convertible again, or mcm adopt abort");
    todo
}

/// Creates the described objects, with a set of this name.
pub fn make(s: &Snapshot, wanted: &CoreSideObjects, set_name: &str) -> RemainingWork {
    let mut todo = RemainingWork::default();
    for (kind, object) in &wanted.others {
        todo.make(s, *kind, &paused(*kind, object.clone(), s));
    }
    todo.make(s, Kind::CapiDeployment, &paused(Kind::CapiDeployment, wanted.deployment.clone(), s));
    let Some(deployment) = s.find(Kind::CapiDeployment, s.name()) else { return todo };
    let members: Vec<MachineObjects<'_>> = s.recorded().collect();
    todo.make(s, Kind::CapiSet, &paused(Kind::CapiSet, wanted.set(set_name, members.len(), deployment), s));
    let Some(set) = s.find(Kind::CapiSet, set_name) else { return todo };
    for member in &members {
        let Some(node) = member.node else {
            todo.expect(false, format!("the Node of machine {}", member.name));
            continue;
        };
        let machine = wanted.machine(member.name, node, set);
        todo.make(s, Kind::CapiMachine, &paused(Kind::CapiMachine, machine, s));
        let Some(machine) = s.find(Kind::CapiMachine, member.name) else { continue };
        let infra = wanted.infra(member.name, node, machine);
        todo.make(s, Kind::InfraMachine, &paused(Kind::InfraMachine, infra, s));
    }
    let made = s.objects.values().filter(|object| is_made(s, object));
    todo.expect_paused(made.filter(|object| object.kind.is_paused_by_annotation()));
    todo
}

/// Undoes step 2, which created all these objects.
pub fn forget(s: &Snapshot) -> RemainingWork {
    let mut todo = RemainingWork::default();
    let mut made: Vec<&UnstructuredObject> = s.objects.values().filter(|object| is_made(s, object)).collect();
    // From the leaves to the root.
    made.sort_by_key(|object| std::cmp::Reverse(object.kind));
    detach(&mut todo, made);
    todo
}

/// Step 3. The native Machine gets the fields of the native Machine of an MCMMachine, and records its former state.
pub fn hand_over(s: &Snapshot) -> RemainingWork {
    let mut todo = RemainingWork::default();
    for member in s.recorded() {
        let (Some(native), Some(infra)) = (member.native, member.infra) else {
            todo.expect(false, format!("MCM Machine {} and its MCMMachine", member.name));
            continue;
        };
        if native.controller() != Some(infra.uid()) {
            todo.want(native, &as_machine_of(infra, native, s));
        }
    }
    todo
}

pub fn take_back(s: &Snapshot) -> RemainingWork {
    let mut todo = RemainingWork::default();
    s.recorded().filter_map(|member| member.native).for_each(|native| put_back(&mut todo, native));
    todo
}

/// Last but one. Removes the finalizer of Nodes, because no controller would remove it any more and core could not
/// delete them.
pub fn remove(s: &Snapshot) -> RemainingWork {
    let mut todo = RemainingWork::default();
    detach(&mut todo, owners(s));
    for node in s.recorded().filter_map(|member| member.node) {
        let finalizers = node.at("/metadata/finalizers");
        let kept: Vec<Value> =
            finalizers.as_array().into_iter().flatten().filter(|one| *one != labels::NODE_FINALIZER).cloned().collect();
        todo.want(
            node,
            &json!({ "metadata": {
                "finalizers": if kept.is_empty() { Value::Null } else { json!(kept) },
                "labels": { (labels::MACHINE_NAME): null },
                "annotations": {
                    (labels::LAST_APPLIED_NODE_TEMPLATE): null, (labels::LAST_APPLIED_VIRTUAL_CAPACITY): null,
                    (labels::NOT_MANAGED): null,
                },
            }}),
        );
    }
    todo
}

/// Last: resumes from the machines up to the deployment, each after its dependents.
pub fn start(s: &Snapshot) -> RemainingWork {
    start_infrastructure(s).then(|| start_core(s))
}

/// MCMMachines and native Machines. One whose Node is lost may not be ready again, or deleted meanwhile.
pub fn start_infrastructure(s: &Snapshot) -> RemainingWork {
    let mut todo = RemainingWork::default();
    for member in s.recorded() {
        let mut patch = member.native.map(resume).unwrap_or_default();
        patch["metadata"]["annotations"][labels::BEFORE_MIGRATION] = Value::Null;
        member.native.into_iter().for_each(|native| todo.want(native, &patch));
        member.infra.into_iter().for_each(|infra| todo.want(infra, &resume(infra)));
        let is_provisioned = |infra: &UnstructuredObject| !infra.is_paused() && infra.condition("Ready") == "True";
        let text = format!("MCMMachine {} to be ready", member.name);
        match (member.node, member.infra) {
            (Some(_), infra) => todo.expect(infra.is_some_and(is_provisioned), text),
            (None, infra) => todo.expect_resumed(infra),
        }
    }
    todo
}

/// Machines, sets and deployment, and the other objects that this migration created.
pub fn start_core(s: &Snapshot) -> RemainingWork {
    let surviving = s.surviving();
    let works = if knows_health(s) { "availableReplicas" } else { "replicas" };
    let todo = start_machines(s).then(|| {
        let mut todo = RemainingWork::default();
        let sets = s.sets_of(MigrationSide::ClusterApi);
        sets.iter().for_each(|set| todo.want(set, &resume(set)));
        let counts =
            |set: &&UnstructuredObject| !set.is_paused() && set.number(&format!("/status/{works}")) >= surviving;
        todo.expect(sets.iter().any(counts), "all machines of the MachineSet to be available");
        todo
    });
    todo.then(|| {
        let mut todo = RemainingWork::default();
        resume_made(&mut todo, s);
        let is_whole = |one: &UnstructuredObject| is_whole(one, ["replicas", "upToDateReplicas", works], surviving);
        let deployment = s.deployment_of(MigrationSide::ClusterApi);
        todo.expect(deployment.is_some_and(is_whole), "all machines of the MachineDeployment to be available");
        todo
    })
}

/// Machines of Cluster API. One whose Node is lost will not have another.
pub fn start_machines(s: &Snapshot) -> RemainingWork {
    let mut todo = RemainingWork::default();
    for member in s.recorded() {
        member.machine.into_iter().for_each(|machine| todo.want(machine, &resume(machine)));
        let Some(node) = member.node else {
            todo.expect_resumed(member.machine);
            continue;
        };
        let runs = |one: &UnstructuredObject| !one.is_paused() && node.name() == one.text("/status/nodeRef/name");
        todo.expect(member.machine.is_some_and(runs), format!("Machine {} to have its Node", member.name));
    }
    todo
}

/// Objects that this migration created beside the machines.
pub fn resume_made(todo: &mut RemainingWork, s: &Snapshot) {
    let made = s.objects.values().filter(|object| is_made(s, object));
    made.for_each(|object| todo.want(object, &resume(object)));
}

/// Core observes the health of Nodes once the control plane is initialized. In a Cluster without a control plane it
/// never counts a machine as available; then the Node reference of each machine has to suffice.
fn knows_health(s: &Snapshot) -> bool {
    s.find(Kind::Cluster, &s.cluster).is_some_and(|cluster| cluster.condition("ControlPlaneInitialized") == "True")
}

/// The native objects above the Machines, from the leaves to the root.
fn owners(s: &Snapshot) -> Vec<&UnstructuredObject> {
    let mut sets = s.sets_of(MigrationSide::MachineController);
    let detached = |set: &&UnstructuredObject| set.is_of_migration(s.name()) && set.controller().is_none();
    sets.extend(s.all(Kind::Set).filter(detached));
    sets.extend(s.deployment_of(MigrationSide::MachineController));
    sets
}

/// The native Machines, with any owner.
fn natives(s: &Snapshot) -> Vec<&UnstructuredObject> {
    let members = s.members_of(MigrationSide::MachineController).into_iter().filter_map(|member| member.native);
    let held = s.all(Kind::Machine).filter(|native| native.is_of_migration(s.name()));
    let mut seen = std::collections::BTreeSet::new();
    members.chain(held).filter(|native| seen.insert(native.name())).collect()
}

/// This migration created the object on the side of Cluster API.
pub fn is_made(s: &Snapshot, object: &UnstructuredObject) -> bool {
    let is_of_capi = !matches!(
        object.kind,
        Kind::Cluster
            | Kind::Migration
            | Kind::Deployment
            | Kind::Set
            | Kind::Machine
            | Kind::Class
            | Kind::Node
            | Kind::MachinePool
            | Kind::Other(_, ProviderRole::Pool)
    );
    is_of_capi && object.is_of_migration(s.name())
}

/// The deployment as one of Cluster API.
pub fn converted(s: &Snapshot) -> ConversionResult {
    let Some(deployment) = s.deployment_of(MigrationSide::MachineController) else {
        return ConversionResult::default();
    };
    let class = s.find(Kind::Class, deployment.text("/spec/template/spec/class/name"));
    let secret = class.and_then(|class| s.find(Kind::Secret, class.text("/secretRef/name")));
    let written = s.written([Some(deployment), class, secret].into_iter().flatten().map(UnstructuredObject::id));
    let options =
        ConversionOptions { cluster: Some(s.cluster.clone()), now: Some(s.now), ..ConversionOptions::default() };
    conversion::to_capi(&written, &options)
}

/// The objects for core.
pub struct CoreSideObjects {
    /// The label by which core distinguishes the sets of a deployment.
    pub hash: String,
    /// The deployment.
    pub deployment: Value,
    /// The MCMMachineTemplate of the deployment.
    pub template: Value,
    /// Template, bootstrap Secret and health check, if they do not exist yet.
    pub others: Vec<(Kind, Value)>,
}

impl CoreSideObjects {
    fn from_snapshot(s: &Snapshot) -> Option<Self> {
        let ConversionResult { objects, refusals, .. } = converted(s);
        if !refusals.is_empty() {
            return None;
        }
        let hash = s.recorded_set(MigrationSide::MachineController)?.label(labels::TEMPLATE_HASH)?.to_owned();
        let all = || objects.iter().filter_map(|object| Some((Kind::from_value(object)?, object)));
        let of_kind = |wanted: Kind| all().find(|(kind, _)| *kind == wanted).map(|(_, object)| object.clone());
        let mut deployment = of_kind(Kind::CapiDeployment)?;
        deployment["metadata"]["labels"][names::CLUSTER_NAME] = json!(s.cluster);
        let others = all().filter(|(kind, object)| {
            matches!(kind, Kind::InfraTemplate | Kind::HealthCheck | Kind::Secret) && s.is_to_be_made(*kind, object)
        });
        let others = others.map(|(kind, object)| (kind, object.clone())).collect();
        Some(Self { hash, deployment, template: of_kind(Kind::InfraTemplate)?, others })
    }

    /// Labels that core gives to all Machines of the set.
    fn labels(&self) -> Value {
        let spec = &self.deployment["spec"];
        let mut labels = spec["selector"]["matchLabels"].as_object().cloned().unwrap_or_default();
        labels.extend(spec["template"]["metadata"]["labels"].as_object().cloned().unwrap_or_default());
        labels.insert(names::CLUSTER_NAME.to_owned(), spec["clusterName"].clone());
        labels.insert(names::DEPLOYMENT_NAME.to_owned(), self.deployment["metadata"]["name"].clone());
        labels.insert(labels::TEMPLATE_HASH.to_owned(), json!(self.hash));
        labels.into()
    }

    /// A set that core accepts as created by the deployment.
    fn set(&self, name: &str, replicas: usize, deployment: &UnstructuredObject) -> Value {
        let mut spec = self.deployment["spec"].clone();
        let mut selector = spec["selector"].take();
        selector["matchLabels"][labels::TEMPLATE_HASH] = json!(self.hash);
        let mut template = spec["template"].take();
        template["metadata"]["labels"] = self.labels();
        json!({
            "apiVersion": Kind::CapiSet.api_version(), "kind": "MachineSet",
            "metadata": { "name": name, "labels": self.labels(), "ownerReferences": deployment.as_controller() },
            "spec": {
                "clusterName": spec["clusterName"], "replicas": replicas, "selector": selector, "template": template,
                "machineNaming": spec["machineNaming"], "deletion": spec["deletion"],
            },
        })
    }

    fn machine(&self, name: &str, node: &UnstructuredObject, set: &UnstructuredObject) -> Value {
        let template = &self.deployment["spec"]["template"];
        let mut labels = self.labels();
        labels[names::SET_NAME] = json!(set.name());
        let mut spec = template["spec"].clone();
        spec["providerID"] = node.at("/spec/providerID");
        spec["infrastructureRef"]["kind"] = json!("MCMMachine");
        spec["infrastructureRef"]["name"] = json!(name);
        json!({
            "apiVersion": Kind::CapiMachine.api_version(), "kind": "Machine",
            "metadata": {
                "name": name, "labels": labels, "annotations": template["metadata"]["annotations"],
                "ownerReferences": set.as_controller(),
            },
            "spec": spec,
        })
    }

    fn infra(&self, name: &str, node: &UnstructuredObject, machine: &UnstructuredObject) -> Value {
        let template = &self.template["spec"]["template"];
        let mut annotations = template["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
        let of_template = Map::from_iter([
            (format!("{}name", names::CLONED_FROM), self.template["metadata"]["name"].clone()),
            (format!("{}groupkind", names::CLONED_FROM), json!("MCMMachineTemplate.infrastructure.cluster.x-k8s.io")),
        ]);
        annotations.extend(of_template);
        let mut spec = template["spec"].clone();
        spec["providerID"] = node.at("/spec/providerID");
        json!({
            "apiVersion": Kind::InfraMachine.api_version(), "kind": "MCMMachine",
            "metadata": {
                "name": name, "labels": machine.at("/metadata/labels"), "annotations": annotations,
                "ownerReferences": machine.as_controller(),
            },
            "spec": spec,
        })
    }
}

/// A native Machine as that of an MCMMachine: core manages its life cycle. It keeps the name of its Node, so that the
/// native controllers do not touch that Node.
fn as_machine_of(infra: &UnstructuredObject, native: &UnstructuredObject, s: &Snapshot) -> Value {
    let configuration = MachineConfiguration {
        creation_timeout: Some(GoDuration::from_secs(NO_LIMIT_HOURS * 3600)),
        disable_health_timeout: Some(true),
        ..MachineConfiguration::default()
    };
    let mut spec = serde_json::to_value(configuration).unwrap_or_default();
    spec["class"] = native.at("/spec/class");
    spec["providerID"] = native.at("/spec/providerID");
    let keys = json!({ (labels::NODE): native.label(labels::NODE), (names::CLUSTER_NAME): s.cluster });
    json!({
        "metadata": {
            "ownerReferences": infra.as_controller(),
            "labels": replacing(&native.at("/metadata/labels"), &keys),
            "annotations": { (labels::BEFORE_MIGRATION): before(native) },
        },
        "spec": replacing(&native.at("/spec"), &spec),
    })
}
