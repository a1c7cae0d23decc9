//! The Node of a Machine, by evidence.
//!
//! The author of a Machine writes its labels, its `spec.providerID` and its class, and can name any Node of the target
//! cluster with them. So a Node is that of a Machine only by evidence that this author cannot write:
//!
//! | Evidence | Written by |
//! |---|---|
//! | the annotation [`labels::NODE_OF`] of the Node has the UID of the Machine | the machine controller, with its label |
//! | the driver found the VM of the Machine, and the Node has the ID of that VM | the cloud, and who made the Node |
//! | the same VM has the name of the Node, which has no ID to compare and joined after the Machine was created | the same |
//! | the label of the Node names the Machine, whose status shows that it has joined | an earlier manager, such as the reference |
//!
//! A Node that names another Machine is left to that Machine. Within one namespace the ID of the VM is stronger than the name:
//! a Machine whose VM is dead may have labelled the Node of its name.

use jiff::Timestamp;
use kube::ResourceExt;

use mcm_api::{
    labels::{self, CONTROL_PLANE_ROLES, MACHINE_NAME, NODE_FINALIZER, NOT_MANAGED},
    machine::{Machine, MachinePhase},
    node::Node,
    sharing::SharedText,
};
use mcm_driver::Vm;

/// The VM of a Machine as its driver reported it. Nothing in it is copied from the Machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReportedVm {
    pub provider_id: String,
    /// `spec.providerID` of its Node, if it differs.
    pub node_provider_id: Option<String>,
    /// Name of its Node.
    pub node_name: String,
}

impl ReportedVm {
    /// The parts of a driver's answer that identify the VM.
    pub fn from_vm(vm: &Vm) -> Self {
        let Vm { provider_id, node_provider_id, node_name, .. } = vm;
        Self {
            provider_id: provider_id.clone(),
            node_provider_id: node_provider_id.clone(),
            node_name: node_name.clone(),
        }
    }

    /// A Node with the ID is this VM; `None` if the IDs cannot be compared.
    fn compared_to(&self, node: &Node, machine: &str) -> Option<bool> {
        let names = [node.metadata.name.as_deref().unwrap_or_default(), self.node_name.as_str(), machine];
        let ids = self.node_provider_id.as_deref().into_iter().chain([self.provider_id.as_str()]);
        let answers: Vec<bool> = ids.filter_map(|id| is_one_vm(&node.spec.provider_id, id, &names)).collect();
        if answers.contains(&true) { Some(true) } else { answers.first().copied() }
    }
}

/// The last answer of the driver about the VM of a Machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum VmReport {
    /// The driver has not answered yet, or the answer is outdated.
    #[default]
    Pending,
    Found(ReportedVm),
    Missing,
    /// The driver cannot look VMs up.
    Unsupported,
}

/// The verdict on a Node and a Machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeClaim {
    Own,
    /// It certainly is not, for this reason.
    Foreign(String),
    /// There is no evidence yet, for this reason. The Node may be neither written nor counted as absent.
    Unproven(String),
}

impl NodeClaim {
    /// The claim of a Machine to a Node. `born`: when the Node was created, by the clock of the Machine's cluster.
    pub fn new(node: &Node, machine: &Machine, report: &VmReport, born: Option<Timestamp>) -> Self {
        NodeClaimant { node, machine, report, born }.claim()
    }

    /// The objects alone show that the Node is the Machine's.
    pub fn is_stored(node: &Node, machine: &Machine) -> bool {
        Self::new(node, machine, &VmReport::Pending, None) == Self::Own
    }
}

/// The Node names the Machine, and no other one. Enough for changes that a rollout reverts: a process without
/// the machine controller writes no [`labels::NODE_OF`], and the reference writes none.
pub fn is_named(node: &Node, machine: &Machine) -> bool {
    match NodeOwner::from_node(node) {
        Some(owner) => owner.is(machine) || owner.has_name_of(machine) && is_labelled_for(node, machine),
        None => is_labelled_for(node, machine),
    }
}

/// The value of [`labels::NODE_OF`] for the Node of a Machine; `None` if the Machine has no UID.
pub fn annotation_for(machine: &Machine) -> Option<String> {
    let uid = machine.metadata.uid.as_deref().filter(|uid| !uid.is_empty())?;
    Some(format!("{}/{}/{uid}", machine.namespace().unwrap_or_default(), machine.name_any()))
}

/// A value of [`labels::NODE_OF`] names the Machine. One that was moved or restored has another UID.
pub fn is_annotation_of(value: &str, machine: &Machine) -> bool {
    NodeOwner::read(value).has_name_of(machine)
}

/// The Machine in [`labels::NODE_OF`].
struct NodeOwner<'a> {
    namespace: &'a str,
    name: &'a str,
    uid: &'a str,
}

impl<'a> NodeOwner<'a> {
    /// `None` if there is no annotation. One that cannot be read names a Machine that does not exist.
    fn from_node(node: &'a Node) -> Option<Self> {
        node.annotations().get(labels::NODE_OF).map(|value| Self::read(value))
    }

    fn read(value: &'a str) -> Self {
        let mut parts = value.splitn(3, '/');
        let mut next = || parts.next().unwrap_or_default();
        Self { namespace: next(), name: next(), uid: next() }
    }

    fn is(&self, machine: &Machine) -> bool {
        !self.uid.is_empty() && machine.metadata.uid.as_deref() == Some(self.uid)
    }

    /// A Machine that was moved or restored has another UID.
    fn has_name_of(&self, machine: &Machine) -> bool {
        machine.metadata.name.as_deref() == Some(self.name) && self.is_beside(machine)
    }

    fn is_beside(&self, machine: &Machine) -> bool {
        machine.metadata.namespace.as_deref().unwrap_or_default() == self.namespace
    }
}

struct NodeClaimant<'a> {
    node: &'a Node,
    machine: &'a Machine,
    report: &'a VmReport,
    born: Option<Timestamp>,
}

impl NodeClaimant<'_> {
    fn claim(&self) -> NodeClaim {
        let owner = NodeOwner::from_node(self.node);
        if owner.as_ref().is_some_and(|owner| owner.is(self.machine)) {
            return NodeClaim::Own;
        }
        let is_of_vm = match self.report {
            VmReport::Found(vm) => vm.compared_to(self.node, &self.machine.name_any()),
            VmReport::Pending | VmReport::Missing | VmReport::Unsupported => None,
        };
        if is_of_vm == Some(false) {
            return NodeClaim::Foreign(format!("it has the provider ID {}", self.node.spec.provider_id));
        }
        if let Some(named) = self.named_machine(owner.as_ref(), is_of_vm == Some(true)) {
            return NodeClaim::Foreign(format!("it names machine {named}"));
        }
        let is_named = owner.is_some_and(|owner| owner.has_name_of(self.machine)) || self.is_labelled();
        if is_of_vm == Some(true) {
            return self.unless_control_plane(is_named);
        }
        if self.is_labelled() && has_joined(self.machine) && self.compared_to_spec() != Some(false) {
            return NodeClaim::Own;
        }
        match self.report {
            VmReport::Found(vm) => self.claim_by_name(vm, is_named),
            VmReport::Missing => NodeClaim::Foreign("the driver finds no VM of this machine".to_owned()),
            VmReport::Unsupported => self.claim_unreported(is_named),
            VmReport::Pending => {
                let text = "it does not name this machine, and the driver has not reported its VM yet";
                NodeClaim::Unproven(text.to_owned())
            }
        }
    }

    /// The other Machine that the Node names, unless that Machine has certainly lost it.
    fn named_machine(&self, owner: Option<&NodeOwner<'_>>, has_its_vm: bool) -> Option<String> {
        if is_given_up(self.node) {
            return None;
        }
        match owner {
            Some(owner) if owner.has_name_of(self.machine) => None,
            Some(owner) if owner.is_beside(self.machine) && has_its_vm => None,
            Some(owner) => Some(format!("{}/{}", owner.namespace, owner.name)),
            None => {
                let label = label_of(self.node)?;
                (label != self.machine.name_any() && !has_its_vm).then(|| label.to_owned())
            }
        }
    }

    /// It has the VM's ID. An ID that the author of the Machine copied from a Node of the control plane also leads to a VM.
    fn unless_control_plane(&self, is_named: bool) -> NodeClaim {
        if is_named || !is_control_plane(self.node) || self.is_younger() {
            return NodeClaim::Own;
        }
        NodeClaim::Foreign("it has a control-plane role, and was there before this machine".to_owned())
    }

    /// There is no ID to compare: the cloud controller manager has not set it, sets none, or sets one in another form.
    fn claim_by_name(&self, vm: &ReportedVm, is_named: bool) -> NodeClaim {
        let name = self.node.name_any();
        if vm.node_name.is_empty() {
            return self.claim_unreported(is_named);
        }
        if vm.node_name != name {
            let text = format!("the VM {} of this machine has the Node name {:?}", vm.provider_id, vm.node_name);
            return NodeClaim::Foreign(text);
        }
        if is_named || self.is_younger() && !is_control_plane(self.node) {
            return NodeClaim::Own;
        }
        if is_control_plane(self.node) {
            return NodeClaim::Foreign("it has a control-plane role, and no ID of the VM of this machine".to_owned());
        }
        let value = annotation_for(self.machine).unwrap_or_default();
        NodeClaim::Unproven(format!(
            "it was there before this machine, and no provider ID shows that it is the same VM; to give it to this machine: \
             kubectl annotate node {name} {}={value} --overwrite",
            labels::NODE_OF
        ))
    }

    /// The driver cannot report the VM, so what the cloud does not say is taken from the Machine.
    fn claim_unreported(&self, is_named: bool) -> NodeClaim {
        let may_be_its_vm = self.compared_to_spec() != Some(false);
        if may_be_its_vm && (is_named || self.is_younger() && !is_control_plane(self.node)) {
            return NodeClaim::Own;
        }
        NodeClaim::Foreign("it does not name this machine, and the driver cannot look up its VM".to_owned())
    }

    fn is_labelled(&self) -> bool {
        is_labelled_for(self.node, self.machine)
    }

    /// It joined after the Machine was created. Times are stored in whole seconds.
    fn is_younger(&self) -> bool {
        let created = self.machine.metadata.creation_timestamp.as_ref().map(|time| time.0.as_second());
        let born = self.born.map(|born| born.as_second());
        matches!((born, created), (Some(born), Some(created)) if born >= created)
    }

    fn compared_to_spec(&self) -> Option<bool> {
        let (node, machine) = (self.node.name_any(), self.machine.name_any());
        is_one_vm(&self.node.spec.provider_id, &self.machine.spec.provider_id, &[&node, &machine])
    }
}

/// The Machine in the label of a Node.
fn label_of(node: &Node) -> Option<&str> {
    node.labels().get(MACHINE_NAME).map(SharedText::as_str).filter(|name| !name.is_empty())
}

fn is_labelled_for(node: &Node, machine: &Machine) -> bool {
    label_of(node).is_some_and(|label| machine.metadata.name.as_deref() == Some(label))
}

/// No manager has its Machine: the mark was left standing, so the finalizer was removed.
fn is_given_up(node: &Node) -> bool {
    let is_held = node.metadata.finalizers.iter().flatten().any(|one| one == NODE_FINALIZER);
    node.annotations().contains_key(NOT_MANAGED) && !is_held
}

fn is_control_plane(node: &Node) -> bool {
    CONTROL_PLANE_ROLES.iter().any(|role| node.labels().contains_key(role))
}

/// A manager saw its Node. Only managers write statuses.
pub fn has_joined(machine: &Machine) -> bool {
    let has_had_node = matches!(
        machine.phase(),
        MachinePhase::Running
            | MachinePhase::Unknown
            | MachinePhase::InPlaceUpdating
            | MachinePhase::InPlaceUpdateSuccessful
            | MachinePhase::InPlaceUpdateFailed
    );
    let conditions = machine.status.iter().flat_map(|status| &status.conditions);
    has_had_node || conditions.into_iter().any(|condition| condition.type_ == "Ready")
}

/// The part of a provider ID that all its forms share, for look-ups: candidates are compared after that.
pub fn key_of(provider_id: &str) -> Option<String> {
    let last = provider_id.rsplit('/').next().unwrap_or(provider_id);
    (!last.is_empty()).then(|| last.to_ascii_lowercase())
}

/// A Node certainly has the VM that a Machine names.
pub fn has_named_vm(node: &Node, machine: &Machine) -> bool {
    NodeClaimant { node, machine, report: &VmReport::Pending, born: None }.compared_to_spec() == Some(true)
}

/// Two provider IDs belong to one VM; `None` if that is not certain. Components write the ID of one VM in several
/// forms, which may differ before the last slash. If the last part is one of the `names`, others may have it too.
fn is_one_vm(one: &str, other: &str, names: &[&str]) -> Option<bool> {
    fn parts(id: &str) -> Vec<&str> {
        let path = id.split_once("://").map_or(id, |(_, path)| path);
        path.split('/').filter(|part| !part.is_empty()).collect()
    }
    fn form(id: &str) -> (Option<String>, usize) {
        (id.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase()), id.split('/').count())
    }
    if one.is_empty() || other.is_empty() {
        return None;
    }
    let [a, b] = [parts(one), parts(other)];
    let is_same =
        |a: &[&str], b: &[&str]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.eq_ignore_ascii_case(b));
    let has_scheme_of_other = form(one).0 == form(other).0;
    if has_scheme_of_other && is_same(&a, &b) {
        return Some(true);
    }
    let (Some(last), Some(last_of_other)) = (a.last(), b.last()) else { return None };
    if !last.eq_ignore_ascii_case(last_of_other) {
        return (form(one) == form(other)).then_some(false);
    }
    let is_name = names.iter().any(|name| name.eq_ignore_ascii_case(last));
    match (is_name, has_scheme_of_other && a.len() == b.len()) {
        (false, _) => Some(true),
        (true, true) => Some(false),
        (true, false) => None,
    }
}

#[cfg(test)]
mod tests;
