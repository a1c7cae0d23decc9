//! Machines that `mcm adopt --from orphans` creates from VMs and their Nodes, so that sets take them over.
//!
//! A new Machine has no phase, and a set with a surplus deletes such Machines first. So the Machine is created without the
//! labels of its set, and gets them once it is `Running`; then the set deletes Machines that lost their VMs instead.

use std::{collections::BTreeMap, sync::Arc};

use kube::ResourceExt;

use super::{ClassVms, TargetNode, claim_of, nodes::NodeIndex};
use crate::object::owner;
use mcm_api::{
    labels,
    machine::{Machine, MachinePhase, MachineSet},
    selector::Selector,
    syntax,
};
use mcm_rules::safety::orphans::{VmClaim, VmClassification, judge};

/// Annotation on a Machine that `mcm adopt --from orphans` created for a VM without one: the MachineSet that takes it over once it
/// is `Running`. The command writes, reads and removes it.
pub const ADOPTED_FOR: &str = "machine.mcm/adopted-for";

/// The state of a namespace.
#[derive(Clone, Debug, Default)]
pub struct NamespaceObjects {
    /// All Machines.
    pub machines: Vec<Arc<Machine>>,
    /// All sets.
    pub sets: Vec<MachineSet>,
    /// The Nodes of the target.
    pub nodes: Vec<TargetNode>,
}

/// A VM that has no Machine, or a Machine that does not have its set yet.
#[derive(Clone, Debug, PartialEq)]
pub struct AdoptionOffer {
    /// Provider ID of the VM.
    pub vm: String,
    /// Name of its Machine.
    pub machine: String,
    /// Its Node; empty if the VM has not joined.
    pub node: String,
    /// The set that takes the Machine over; empty without such a set.
    pub set: String,
    /// The next step, or the reason why nothing can be done.
    pub step: Result<OfferStep, String>,
}

/// The next step of an offer.
#[derive(Clone, Debug, PartialEq)]
pub enum OfferStep {
    /// Create this Machine.
    Create(Box<Machine>),
    /// Wait until it is `Running`.
    Wait,
    /// Give it the labels of its set.
    Join {
        /// The Machine as it was read.
        machine: Arc<Machine>,
        /// The labels.
        labels: BTreeMap<String, String>,
    },
}

/// Offers for the VMs of some classes, each with the list of its VMs.
pub fn offers(lists: &[ClassVms], stock: &NamespaceObjects) -> Vec<AdoptionOffer> {
    let claims: Vec<VmClaim> = stock.machines.iter().map(|machine| claim_of(machine)).collect();
    let index = NodeIndex::new(&stock.nodes, &stock.machines);
    let mut all: BTreeMap<String, AdoptionOffer> = BTreeMap::new();
    let mut room: BTreeMap<String, usize> =
        stock.sets.iter().map(|set| (set.name_any(), room_of(set, stock, lists))).collect();
    for machine in &stock.machines {
        if let Some(set) = adopted_for(machine) {
            let offer = of_machine(machine, set, stock);
            let left = room.entry(set.to_owned()).or_default();
            *left = left.saturating_sub(1);
            all.insert(offer.vm.clone(), offer);
        }
    }
    for list in lists {
        let verdicts = judge(&list.vms, &claims, &list.owner);
        let free = verdicts
            .into_iter()
            .filter(|(_, one)| matches!(one, VmClassification::Orphan | VmClassification::Unmarked));
        for (id, _) in free {
            let Some(vm) = list.vms.get(id).filter(|_| !all.contains_key(id)) else { continue };
            let node = index.of_vm(id, vm);
            let mut offer = AdoptionOffer {
                vm: id.to_owned(),
                machine: vm.machine.clone(),
                node: node.map(|one| one.node.name_any()).unwrap_or_default(),
                set: String::new(),
                step: Err("no Node has this VM: it may never have joined".to_owned()),
            };
            if let Some(node) = node {
                let set = set_of(&vm.machine, &stock.sets);
                offer.set = set.map(ResourceExt::name_any).unwrap_or_default();
                let holder = index.holder(node).map(ResourceExt::name_any);
                offer.step = create(&offer, holder, set, &mut room, stock, lists);
            }
            all.insert(id.to_owned(), offer);
        }
    }
    all.into_values().collect()
}

/// The set for which `mcm adopt` created a Machine, until the set has it.
fn adopted_for(machine: &Machine) -> Option<&str> {
    let set = machine.metadata.annotations.as_ref()?.get(ADOPTED_FOR)?;
    owner::controller_of(&machine.metadata).is_none().then_some(set.as_str())
}

/// The set with whose name the name of a Machine begins.
fn set_of<'a>(machine: &str, sets: &'a [MachineSet]) -> Option<&'a MachineSet> {
    let is_of = |set: &&MachineSet| machine.strip_prefix(&set.name_any()).is_some_and(|rest| rest.starts_with('-'));
    sets.iter().filter(is_of).max_by_key(|set| set.name_any().len())
}

fn of_machine(machine: &Arc<Machine>, set: &str, stock: &NamespaceObjects) -> AdoptionOffer {
    let found = stock.sets.iter().find(|one| one.name_any() == set);
    let step = match found {
        None => Err(format!("MachineSet {set} does not exist any more: delete the machine, or its annotation")),
        Some(_) if machine.is_terminating() => Err("the machine is being deleted".to_owned()),
        Some(_) if machine.phase() != MachinePhase::Running => Ok(OfferStep::Wait),
        Some(found) => {
            let labels = found.spec.template.metadata.labels.clone();
            Ok(OfferStep::Join { machine: Arc::clone(machine), labels })
        }
    };
    AdoptionOffer {
        vm: machine.spec.provider_id.clone(),
        machine: machine.name_any(),
        node: machine.node_name().unwrap_or_default().to_owned(),
        set: set.to_owned(),
        step,
    }
}

/// The Machines of a set.
fn members<'a>(set: &MachineSet, stock: &'a NamespaceObjects) -> impl Iterator<Item = &'a Arc<Machine>> {
    let uid = set.uid().unwrap_or_default();
    stock.machines.iter().filter(move |one| owner::is_controlled_by(&one.metadata, &uid) && !one.is_terminating())
}

fn has_vm(machine: &Machine, lists: &[ClassVms]) -> bool {
    lists.iter().any(|list| list.vms.contains_key(&machine.spec.provider_id))
}

/// How many replicas of a set have no VM that serves.
fn room_of(set: &MachineSet, stock: &NamespaceObjects, lists: &[ClassVms]) -> usize {
    let serves = |one: &&Arc<Machine>| one.phase() == MachinePhase::Running && has_vm(one, lists);
    let serving = members(set, stock).filter(serves).count();
    usize::try_from(set.spec.replicas).unwrap_or_default().saturating_sub(serving)
}

fn create(
    offer: &AdoptionOffer,
    holder: Option<String>,
    set: Option<&MachineSet>,
    room: &mut BTreeMap<String, usize>,
    stock: &NamespaceObjects,
    lists: &[ClassVms],
) -> Result<OfferStep, String> {
    if let Some(holder) = holder {
        return Err(format!("machine {holder} has the Node"));
    }
    if !syntax::is_subdomain(&offer.machine) || stock.machines.iter().any(|one| one.name_any() == offer.machine) {
        return Err(format!("no machine can have the name {:?}, or another one has it", offer.machine));
    }
    let Some(set) = set else {
        return Err("no MachineSet has a name with which that of the machine begins: restore it, or let the orphan collector drain \
                    the Node"
            .to_owned());
    };
    let template = &set.spec.template;
    let selects = Selector::parse(set.spec.selector.as_ref());
    if !selects.is_ok_and(|one| one.matches(Some(&template.metadata.labels))) {
        return Err(format!("MachineSet {} does not select the machines of its template", offer.set));
    }
    let is_wrong = |one: &&Arc<Machine>| one.phase() == MachinePhase::Running && !has_vm(one, lists);
    if let Some(wrong) = members(set, stock).find(is_wrong) {
        return Err(format!(
            "machine {} is Running, and its VM is not listed: wait until it is Unknown",
            wrong.name_any()
        ));
    }
    let left = room.entry(offer.set.clone()).or_default();
    if *left == 0 {
        return Err(format!("MachineSet {} has its {} replicas without it", offer.set, set.spec.replicas));
    }
    *left = left.saturating_sub(1);
    let mut machine = Machine::default();
    machine.metadata.name = Some(offer.machine.clone());
    machine.metadata.namespace.clone_from(&set.metadata.namespace);
    machine.metadata.finalizers = Some(vec![labels::FINALIZER.to_owned()]);
    let mut annotations = template.metadata.annotations.clone();
    annotations.insert(ADOPTED_FOR.to_owned(), offer.set.clone());
    machine.metadata.annotations = Some(annotations);
    machine.spec = template.spec.clone();
    machine.spec.provider_id.clone_from(&offer.vm);
    Ok(OfferStep::Create(Box::new(machine)))
}
