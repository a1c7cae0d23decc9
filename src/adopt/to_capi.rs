//! From the native controllers to Cluster API: core manages a deployment, or a machine without a set, with mcm as its
//! infrastructure provider.
//!
//! ```text
//! before   native MachineDeployment ─▶ native MachineSet ───────────▶ native Machine ─▶ VM
//! after    MachineDeployment ─▶ MachineSet ─▶ Machine ─▶ MCMMachine ─▶ native Machine ─▶ VM
//! ```
//!
//! The native Machine stays, and with it the VM and the Node. Its controller changes: first to none, then to its
//! MCMMachine.

use serde_json::{Value, json};

use super::{
    Kind, Snapshot, UnstructuredObject,
    hold::above,
    object::replacing,
    start::made,
    step::{RemainingWork, detach, each, expect_paused, make, make_each, wait, want},
    swap::instance_of,
    to_native::before,
};
use mcm_api::{GoDuration, labels, machine::MachineConfiguration, patch};
use mcm_conversion::{
    self as conversion, ConversionOptions, ConversionResult,
    types::{MigrationSide, names},
};

/// A machine is replaced only by a health check of Cluster API.
const NO_LIMIT_HOURS: i64 = 876_000;

/// Creates the objects of core. Each is created with its owner, and its controller confirms the pause. So core has seen every
/// Machine before its set acts, and creates none.
pub fn describe(s: &Snapshot) -> RemainingWork {
    match (CoreSideObjects::from_snapshot(s), s.recorded_set(MigrationSide::MachineController)) {
        (Some(wanted), Some(set)) => make_all(s, &wanted, set.name()),
        _ => wait("the deployment to be convertible again, or mcm adopt abort"),
    }
}

/// Creates the described objects, with a set of this name.
pub fn make_all(s: &Snapshot, wanted: &CoreSideObjects, set_name: &str) -> RemainingWork {
    let todo = make_each(s, &[Kind::InfraTemplate, Kind::HealthCheck, Kind::Secret], &wanted.objects);
    let todo = todo.and(make(s, Kind::CapiDeployment, &wanted.deployment));
    let Some(deployment) = s.find(Kind::CapiDeployment, s.name()) else { return todo };
    let todo = todo.and(make(s, Kind::CapiSet, &wanted.set(set_name, s.recorded().count(), deployment)));
    let Some(set) = s.find(Kind::CapiSet, set_name) else { return todo };
    let machines = each(s.recorded(), |member| {
        let Some(node) = member.node else { return wait(format!("the Node of machine {}", member.name)) };
        let machine = make(s, Kind::CapiMachine, &wanted.machine(member.name, node, set));
        match s.find(Kind::CapiMachine, member.name) {
            Some(known) => machine.and(make(s, Kind::InfraMachine, &wanted.infra(member.name, node, known))),
            None => machine,
        }
    });
    todo.and(machines).and(expect_made_paused(s))
}

/// Creates Machine and MCMMachine for a native Machine without a set.
pub fn describe_lone(s: &Snapshot) -> RemainingWork {
    let ConversionResult { objects, refusals, .. } = converted(s);
    let of_kind = |wanted: Kind| objects.iter().find(|object| Kind::from_value(object) == Some(wanted)).cloned();
    let (Some(mut machine), Some(mut infra), true) =
        (of_kind(Kind::CapiMachine), of_kind(Kind::InfraMachine), refusals.is_empty())
    else {
        return wait("the MCM Machine to be convertible again, or mcm adopt abort");
    };
    let Some(node) = s.recorded().find_map(|member| member.node) else {
        return wait(format!("the Node of MCM Machine {}", s.name()));
    };
    machine.as_object_mut().map(|fields| fields.remove("status"));
    machine["spec"]["providerID"] = node.at("/spec/providerID");
    let todo = make_each(s, &[Kind::Secret], &objects).and(make(s, Kind::CapiMachine, &machine));
    let Some(machine) = s.lone_of(MigrationSide::ClusterApi) else { return todo };
    infra["metadata"]["labels"] = machine.at("/metadata/labels");
    infra["metadata"]["ownerReferences"] = machine.as_controller();
    infra["spec"]["providerID"] = node.at("/spec/providerID");
    todo.and(make(s, Kind::InfraMachine, &infra)).and(expect_made_paused(s))
}

/// Both controllers confirm the pause before the native Machines change their owner.
fn expect_made_paused(s: &Snapshot) -> RemainingWork {
    expect_paused(made(s, MigrationSide::ClusterApi).filter(|object| object.kind.is_paused_by_annotation()))
}

/// Undoes [`describe`] and [`describe_lone`], which created all these objects.
pub fn forget(s: &Snapshot) -> RemainingWork {
    detach(made(s, MigrationSide::ClusterApi).rev())
}

/// The native Machines get the fields of native Machines of MCMMachines, and record their former state.
pub fn hand_over(s: &Snapshot) -> RemainingWork {
    each(s.recorded(), |member| match (member.native, member.infra) {
        (Some(native), Some(infra)) if native.controller() == Some(infra.uid()) => RemainingWork::default(),
        (Some(native), Some(infra)) => want(native, &as_machine_of(infra, native, s)),
        _ => wait(format!("MCM Machine {} and its MCMMachine", member.name)),
    })
}

/// Removes the native objects above the Machines. Removes the finalizer of Nodes, because no controller would remove it any more
/// and core could not delete them.
pub fn remove(s: &Snapshot) -> RemainingWork {
    let nodes = s.recorded().filter_map(|member| member.node);
    detach(above(s, MigrationSide::MachineController)).and(each(nodes, |node| {
        let finalizers = node.at("/metadata/finalizers");
        let kept: Vec<&Value> =
            finalizers.as_array().into_iter().flatten().filter(|one| *one != labels::NODE_FINALIZER).collect();
        let metadata = json!({
            "finalizers": if kept.is_empty() { Value::Null } else { json!(kept) },
            "labels": { (labels::MACHINE_NAME): null },
            "annotations": {
                (labels::LAST_APPLIED_NODE_TEMPLATE): null, (labels::LAST_APPLIED_VIRTUAL_CAPACITY): null,
                (labels::NOT_MANAGED): null,
            },
        });
        want(node, &json!({ "metadata": metadata }))
    }))
}

/// The deployment, or the native Machine, as one of Cluster API.
pub fn converted(s: &Snapshot) -> ConversionResult {
    let root = match s.unit.is_lone() {
        true => s.find(Kind::Machine, s.name()).map(as_it_was),
        false => s.deployment_of(MigrationSide::MachineController).map(UnstructuredObject::as_written),
    };
    let Some(root) = root else { return ConversionResult::default() };
    let class = root.pointer(s.unit.path_of_machine()).and_then(|spec| spec["class"]["name"].as_str());
    let class = class.and_then(|name| s.find(Kind::Class, name));
    let secret = class.and_then(|class| s.find(Kind::Secret, class.text("/secretRef/name")));
    let mut written = s.written([class, secret].into_iter().flatten().map(UnstructuredObject::id));
    written.insert(0, root);
    let options =
        ConversionOptions { cluster: Some(s.cluster.clone()), now: Some(s.now), ..ConversionOptions::default() };
    conversion::to_capi(&written, &options)
}

/// The state of the native Machine before its MCMMachine took it over. Its generation is not part of it.
fn as_it_was(native: &UnstructuredObject) -> Value {
    let mut object = native.clone();
    let before = native.annotation(labels::BEFORE_MIGRATION).and_then(|text| serde_json::from_str::<Value>(text).ok());
    if let Some(before) = before {
        object.value["metadata"]["labels"] = before["metadata"]["labels"].clone();
        object.value["metadata"]["annotations"] = before["metadata"]["annotations"].clone();
        object.value["spec"] = before["spec"].clone();
    }
    let mut written = object.as_written();
    written["metadata"].as_object_mut().map(|fields| fields.remove("generation"));
    written
}

/// The objects for core.
pub struct CoreSideObjects {
    /// The label by which core distinguishes the sets of a deployment.
    pub hash: String,
    /// The deployment.
    pub deployment: Value,
    /// The MCMMachineTemplate of the deployment.
    pub template: Value,
    /// The whole conversion, with template, bootstrap Secret and health check.
    pub objects: Vec<Value>,
}

impl CoreSideObjects {
    fn from_snapshot(s: &Snapshot) -> Option<Self> {
        let ConversionResult { objects, refusals, .. } = converted(s);
        if !refusals.is_empty() {
            return None;
        }
        let hash = s.recorded_set(MigrationSide::MachineController)?.label(labels::TEMPLATE_HASH)?.to_owned();
        let of_kind = |wanted: Kind| objects.iter().find(|object| Kind::from_value(object) == Some(wanted)).cloned();
        let (mut deployment, template) = (of_kind(Kind::CapiDeployment)?, of_kind(Kind::InfraTemplate)?);
        deployment["metadata"]["labels"][names::CLUSTER_NAME] = json!(s.cluster);
        Some(Self { hash, deployment, template, objects })
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
            "metadata": {
                "name": name, "labels": labels, "annotations": template["metadata"]["annotations"],
                "ownerReferences": set.as_controller(),
            },
            "spec": spec,
        })
    }

    fn infra(&self, name: &str, node: &UnstructuredObject, machine: &UnstructuredObject) -> Value {
        let metadata = json!({
            "labels": machine.at("/metadata/labels"), "ownerReferences": machine.as_controller(),
            "annotations": self.template["spec"]["template"]["metadata"]["annotations"],
        });
        let mut made = json!({ "metadata": metadata });
        patch::apply(&mut made, &instance_of(&self.template, name, &node.at("/spec/providerID")));
        made
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
