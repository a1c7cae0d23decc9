use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kube::core::ObjectMeta;

use super::{
    memory::Memory,
    policy::{MachinePolicy, after, created_at},
    views::{ClassView, MachineCallResults, NodeAnswer, NodeLookup, NodeRead, TargetNodeView},
};
use mcm_api::{labels, machine::Machine, node::Node};
use mcm_driver::Vm;
use mcm_rules::{
    plan::ReconcileHold,
    safety::{
        node_claim::{NodeClaim, VmReport},
        trust::TargetTrust,
    },
};

/// When to read a Node again after a failed read.
const READ_AGAIN: SignedDuration = SignedDuration::from_secs(5);
/// How often to check whether a target cluster is trusted again.
const TRUST_AGAIN: SignedDuration = SignedDuration::from_secs(30);
/// How long the driver's answer counts that there is no VM. For a Machine without evidence it is asked again after that.
const NO_VM_FOR: SignedDuration = SignedDuration::from_mins(3);

/// Other Machines that name the same Node.
#[derive(Clone, Debug, Default)]
pub struct RivalMachines {
    pub readable: Vec<Arc<Machine>>,
    /// Metadata of undecodable Machines: their VMs are unknown.
    pub unreadable: Vec<ObjectMeta>,
}

/// The input of a plan for a Machine.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub machine: Arc<Machine>,
    /// The Node that [`Snapshot::node_key`] names.
    pub node: TargetNodeView,
    pub rivals: RivalMachines,
    /// Another Node that may be the Machine's: it has the provider ID of its VM, or names the Machine as its own.
    pub other_node: Option<Arc<Node>>,
    /// The class that the Machine names.
    pub class: ClassView,
    /// A rollout in this cell annotates the Nodes of its set, so that the autoscaler leaves them alone.
    pub is_rolled_out: bool,
    /// Trust in the cache of the target cluster.
    pub target: TargetTrust,
    /// Results of the calls of this reconcile.
    pub learned: MachineCallResults,
    /// Facts from earlier reconciles.
    pub memory: Memory,
    /// Why nothing may be done now.
    pub hold: Option<ReconcileHold>,
    /// The time by the clock of the control cluster.
    pub now: Timestamp,
    /// How far the clock of the target cluster, which stamps Nodes, is ahead of that.
    pub target_ahead: SignedDuration,
    /// Settings from the flags.
    pub policy: Arc<MachinePolicy>,
}

impl Snapshot {
    pub fn new(
        machine: Arc<Machine>,
        class: ClassView,
        target: TargetTrust,
        learned: MachineCallResults,
        memory: Memory,
        now: Timestamp,
    ) -> Self {
        let learned = learned.at(memory.forgotten());
        let memory = memory.of_generation(machine.metadata.generation);
        Self {
            machine,
            node: TargetNodeView::Unknown,
            rivals: RivalMachines::default(),
            other_node: None,
            class,
            is_rolled_out: false,
            target,
            learned,
            memory,
            hold: None,
            now,
            target_ahead: SignedDuration::ZERO,
            policy: Arc::default(),
        }
    }

    /// How to look up the Node for `node`.
    pub fn node_key(&self) -> NodeLookup {
        let of_vm = self.learned.vm.vm().map(|vm| vm.node_name.as_str()).filter(|name| !name.is_empty());
        match self.machine.node_name().or(of_vm).or(self.memory.unlabelled_node()) {
            Some(name) => NodeLookup::Name(name.to_owned()),
            None => NodeLookup::OfMachine(self.name().to_owned()),
        }
    }

    /// Stores the Node as the cache has it: [`TargetNodeView::NoTarget`], `Unknown`, `Missing` or `Present`.
    pub fn with_node(mut self, cached: TargetNodeView, rivals: RivalMachines) -> Self {
        let is_trusted = matches!(self.target, TargetTrust::Trusted { .. });
        self.node = match (cached, self.node_read()) {
            (TargetNodeView::NoTarget, _) => TargetNodeView::NoTarget,
            (_, Some(NodeAnswer::Failed(_))) => TargetNodeView::Unknown,
            _ if !is_trusted => TargetNodeView::Unknown,
            (TargetNodeView::Missing, Some(NodeAnswer::Gone)) => TargetNodeView::Absent,
            // The cache rejects objects that are known to be deleted. The two contradict each other, so the state is
            // unknown.
            (TargetNodeView::Missing, Some(NodeAnswer::Found)) => TargetNodeView::Unknown,
            (cached, _) => cached,
        };
        self.rivals = rivals;
        self
    }

    /// Result of the live read of this Node in this reconcile, if there was one.
    pub(super) fn node_read(&self) -> Option<&NodeAnswer> {
        let key = self.node_key();
        self.learned.node_read.as_ref().filter(|read| read.key == key).map(|read| &read.answer)
    }

    /// The Node was read live in this reconcile, so the view is not from a stale cache.
    pub(super) fn is_node_certain(&self) -> bool {
        match self.node {
            TargetNodeView::Present(_) => self.node_read() == Some(&NodeAnswer::Found),
            TargetNodeView::Absent | TargetNodeView::NoTarget => true,
            TargetNodeView::Unknown | TargetNodeView::Missing => false,
        }
    }

    /// Text and time limit of a wait for an unknown Node.
    pub(super) fn unknown_node(&self) -> (String, Option<Timestamp>) {
        if let TargetTrust::Untrusted { since, reason } = &self.target {
            let text = format!("the target cluster, which is not trusted since {since:.0}: {reason}");
            return (text, Some(after(self.now, TRUST_AGAIN)));
        }
        let again = Some(after(self.now, READ_AGAIN));
        if let Some(why) = self.unproven() {
            let node = self.machine.node_name().unwrap_or_default();
            return (format!("evidence that Node {node} is that of this Machine: {why}"), None);
        }
        match &self.learned.node_read {
            Some(NodeRead { answer: NodeAnswer::Failed(error), .. }) => {
                (format!("the Node to become readable: {error}"), again)
            }
            Some(_) => ("the Node to appear in the cache".to_owned(), again),
            None => ("the cache of Nodes to be filled".to_owned(), None),
        }
    }

    /// A time of the target cluster by the clock of the control cluster.
    pub(super) fn by_control(&self, time: Timestamp) -> Timestamp {
        time.checked_sub(self.target_ahead).unwrap_or(time)
    }

    pub(super) fn name(&self) -> &str {
        self.machine.metadata.name.as_deref().unwrap_or_default()
    }

    pub(super) fn has_target(&self) -> bool {
        self.node != TargetNodeView::NoTarget
    }

    pub(super) fn is_deleting(&self) -> bool {
        self.machine.metadata.deletion_timestamp.is_some()
    }

    /// The Node, unless it belongs to another Machine or VM, or another Machine has a better claim. Only this one may
    /// be drained and deleted. Unknown without evidence that it is the Machine's.
    pub(super) fn own_node(&self) -> TargetNodeView {
        self.claimed_node(|node| self.is_foreign(node) || self.is_of_rival(node))
    }

    /// The Node, unless it belongs to another VM, or another Machine that names it has a better claim. It counts for
    /// the health of the Machine, and its label is restored if another client changed it.
    pub(super) fn serving_node(&self) -> TargetNodeView {
        self.claimed_node(|node| self.is_of_other_vm(node) || self.is_of_rival(node))
    }

    fn claimed_node(&self, is_of_another: impl Fn(&Node) -> bool) -> TargetNodeView {
        match &self.node {
            TargetNodeView::Present(node) => match self.claim(node) {
                NodeClaim::Own if !is_of_another(node) => self.node.clone(),
                NodeClaim::Own | NodeClaim::Foreign(_) => TargetNodeView::Absent,
                NodeClaim::Unproven(_) => TargetNodeView::Unknown,
            },
            view => view.clone(),
        }
    }

    /// The verdict on a Node as that of this Machine.
    pub(super) fn claim(&self, node: &Node) -> NodeClaim {
        let born = node.metadata.creation_timestamp.as_ref().map(|time| self.by_control(time.0));
        NodeClaim::new(node, &self.machine, self.report(), born)
    }

    /// The reason why it is not certain whether the Node that was found is that of this Machine; `None` if it is certain.
    pub(super) fn unproven(&self) -> Option<String> {
        let TargetNodeView::Present(node) = &self.node else { return None };
        match self.claim(node) {
            NodeClaim::Unproven(why) => Some(why),
            NodeClaim::Own | NodeClaim::Foreign(_) => None,
        }
    }

    /// The other Node, with evidence that it is that of this Machine.
    pub(super) fn own_other_node(&self) -> Option<&Arc<Node>> {
        self.other_node.as_ref().filter(|node| self.claim(node) == NodeClaim::Own)
    }

    /// The driver has to be asked about the other Node.
    pub(super) fn is_other_node_unproven(&self) -> bool {
        self.other_node.as_ref().is_some_and(|node| matches!(self.claim(node), NodeClaim::Unproven(_)))
    }

    /// The reason why the Node that was found is certainly not that of this Machine.
    pub(super) fn disproof(&self) -> Option<String> {
        let TargetNodeView::Present(node) = &self.node else { return None };
        match self.claim(node) {
            NodeClaim::Foreign(why) => Some(why),
            NodeClaim::Own | NodeClaim::Unproven(_) => None,
        }
    }

    /// The last report of the driver about the VM, unless it is outdated or about another VM than the Machine names now.
    fn report(&self) -> &VmReport {
        let is_current = match &self.memory.report {
            VmReport::Found(vm) => {
                let named = self.machine.spec.provider_id.as_str();
                named.is_empty() || !is_other_vm(named, &vm.provider_id)
            }
            VmReport::Missing => {
                let asked_at = self.memory.looked_at.unwrap_or(Timestamp::MIN);
                self.now <= after(asked_at, NO_VM_FOR)
            }
            VmReport::Pending | VmReport::Unsupported => true,
        };
        if is_current { &self.memory.report } else { &VmReport::Pending }
    }

    /// The VM has the name of a Node that still belongs to another VM.
    pub(super) fn is_node_of_another_vm(&self, vm: &Vm) -> bool {
        let TargetNodeView::Present(node) = &self.node else { return false };
        if node.metadata.name == self.machine.metadata.name {
            return false;
        }
        match node.spec.provider_id.as_str() {
            "" => {
                let born = node.metadata.creation_timestamp.as_ref();
                born.is_some_and(|time| self.by_control(time.0) < created_at(&self.machine))
            }
            id => !is_same_vm(id, &vm.provider_id),
        }
    }

    /// The label of the Node names another Machine.
    pub(super) fn is_mislabelled(&self, node: &Node) -> bool {
        labelled_for(node).is_some_and(|owner| owner != self.name())
    }

    /// Names of Nodes are reused, and the VM of this Machine may be dead. A label proves nothing against that: this Machine may
    /// have set it before the Node had a provider ID. A cloud that names Nodes like Machines does not reuse names.
    fn is_of_other_vm(&self, node: &Node) -> bool {
        let is_namesake = node.metadata.name == self.machine.metadata.name;
        !is_namesake && is_other_vm(&node.spec.provider_id, &self.machine.spec.provider_id)
    }

    /// The Node belongs to another VM, the label names another Machine, or there is no label and the provider
    /// ID differs. A label of another Machine does not count if this Machine has the Node's VM, and the other Machine
    /// has another VM or is deleted: a Machine whose VM is dead may have labelled the Node of its name.
    fn is_foreign(&self, node: &Node) -> bool {
        if self.is_of_other_vm(node) {
            return true;
        }
        let (of_node, of_machine) = (&node.spec.provider_id, &self.machine.spec.provider_id);
        let is_of_other = |machine: &Machine| {
            let id = &machine.spec.provider_id;
            !of_node.is_empty() && !id.is_empty() && !is_same_vm(of_node, id)
        };
        match labelled_for(node) {
            None => is_of_other(&self.machine),
            Some(owner) => {
                let is_named = |meta: &ObjectMeta| meta.name.as_deref() == Some(owner);
                let named = self.rivals.readable.iter().find(|rival| is_named(&rival.metadata));
                let is_gone = || !self.rivals.unreadable.iter().any(is_named);
                let has_other = named.map_or_else(is_gone, |named| is_of_other(named));
                owner != self.name() && !(has_other && is_same_vm(of_node, of_machine))
            }
        }
    }

    /// Two Machines can name one Node, because names of Nodes are reused and a deletion can be missed. The Node belongs
    /// to the Machine with its provider ID, else to the Machine in its label, else to the younger one.
    fn is_of_rival(&self, node: &Node) -> bool {
        let of_node = &node.spec.provider_id;
        let claim = |has_its_vm: bool, meta: &ObjectMeta| {
            let name = meta.name.clone().unwrap_or_default();
            (has_its_vm, labelled_for(node) == Some(&name), meta.creation_timestamp.as_ref().map(|time| time.0), name)
        };
        let of = |machine: &Machine| claim(is_same_vm(of_node, &machine.spec.provider_id), &machine.metadata);
        let own = of(&self.machine);
        let (has_its_vm, has_its_label) = (own.0, own.1);
        // A Node of another VM without the label of this Machine may belong to the Machine of that VM.
        let may_be_of_rival = !of_node.is_empty() && !has_its_vm && !has_its_label;
        let unreadable = self.rivals.unreadable.iter().map(|rival| claim(may_be_of_rival, rival));
        self.rivals.readable.iter().map(|rival| of(rival)).chain(unreadable).any(|rival| rival > own)
    }
}

fn labelled_for(node: &Node) -> Option<&str> {
    let owner = node.labels().get(labels::MACHINE_NAME)?.as_str();
    (!owner.is_empty()).then_some(owner)
}

/// Compares provider IDs. IDs of one VM may differ before the last slash.
pub(crate) fn is_same_vm(one: &str, other: &str) -> bool {
    let last = |id: &str| id.rsplit('/').next().unwrap_or(id).to_owned();
    !one.is_empty() && last(one) == last(other)
}

/// Two provider IDs certainly belong to two VMs: they differ in the last part, and not in their form. The
/// component that sets the ID of a Node may use another form.
fn is_other_vm(one: &str, other: &str) -> bool {
    fn form(id: &str) -> (Option<&str>, usize) {
        (id.split_once("://").map(|(scheme, _)| scheme), id.split('/').count())
    }
    !one.is_empty() && !other.is_empty() && form(one) == form(other) && !is_same_vm(one, other)
}
