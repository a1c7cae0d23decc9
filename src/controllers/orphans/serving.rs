//! VMs without a Machine whose Nodes exist. Their pods are evicted before the VM is deleted, with all rules of a drain.
//!
//! A Machine is created for such a VM and deleted at once: the machine controller then cordons and drains the Node, honours
//! disruption budgets and timeouts, deletes the VM, and removes the finalizer of the Node. That happens only
//! - after no other manager removed the annotation `not-managed-by-mcm` from the Node, so none has its Machine;
//! - if the Node is ready, while the pool has its replicas without it; a pool whose VMs were lost keeps these meanwhile;
//! - for one VM of a pool at a time, with the replacement permit of its deployment; if the Node is ready, while few enough
//!   machines of the deployment are out of service.

use std::{collections::BTreeSet, sync::Arc};

use jiff::Timestamp;
use kube::ResourceExt;

use super::{
    Action,
    nodes::TargetNode,
    pass::{OrphanPass, SHORTEST_PERIOD, after, patience, period_of, probe},
};
use mcm_api::{
    labels,
    machine::{ClassSpec, Machine},
    reasons::EventReason,
    syntax,
};
use mcm_rules::{
    plan::{Event, Plan, Step, WaitKind},
    safety::{
        meltdown::{MeltdownGroup, PermitKey, ReplacementPermit},
        orphans::is_proven,
    },
};

/// The most waits of a plan.
const MOST_WAITS: usize = 10;

/// The next step for a VM, or the reason why nothing can be done yet.
enum ServingVmStep {
    Step(Box<Action>, String, Option<Event>),
    Wait(String, Timestamp),
}

/// A VM whose Node is to be drained.
enum DrainCandidate<'a> {
    /// It has no Machine.
    Vm { id: &'a str, node: &'a TargetNode },
    /// A Machine was created for it, and not deleted yet.
    Machine(&'a Arc<Machine>),
}

/// Plans the next step for one VM with a Node.
pub(super) fn plan(plan: &mut Plan<Action>, pass: &OrphanPass<'_>) {
    if pass.policy.is_dry_run {
        return;
    }
    let remade = pass.snapshot.machines.iter().filter(|machine| is_left(machine));
    let vms = pass.serving().map(|(id, node)| DrainCandidate::Vm { id, node });
    let mut waits = BTreeSet::new();
    for candidate in remade.map(DrainCandidate::Machine).chain(vms) {
        match next(pass, &candidate) {
            ServingVmStep::Step(action, reason, event) => {
                plan.steps.push(Step { action: *action, reason, event });
                return;
            }
            ServingVmStep::Wait(text, until) => {
                waits.insert((text, until));
            }
        }
    }
    for (text, until) in waits.into_iter().take(MOST_WAITS) {
        plan.wait(WaitKind::OrphanCheck, text, Some(until));
    }
}

/// The pool in the annotation of a Machine that was created for the VM of an orphan.
fn pool_in(machine: &Machine) -> Option<&str> {
    machine.metadata.annotations.as_ref()?.get(labels::ORPHAN).map(String::as_str)
}

/// A Machine was created for an orphan and not deleted, as after a crash.
fn is_left(machine: &Machine) -> bool {
    pool_in(machine).is_some() && machine.metadata.deletion_timestamp.is_none()
}

fn next(pass: &OrphanPass<'_>, candidate: &DrainCandidate<'_>) -> ServingVmStep {
    let learned = &pass.snapshot.learned;
    let soon = after(pass.snapshot.now, SHORTEST_PERIOD);
    if let DrainCandidate::Vm { id, node } = candidate
        && let Some(wait) = not_due(pass, id, node)
    {
        return wait;
    }
    let (name, node) = match candidate {
        DrainCandidate::Vm { id, node } => (pass.machine_of(id).to_owned(), Some(*node)),
        DrainCandidate::Machine(machine) => (machine.name_any(), node_of(pass, machine)),
    };
    let pools = match &learned.pools {
        None => return step(Action::ListPools, "a node is drained only while its pool can do without it"),
        Some(Err(error)) => return ServingVmStep::Wait(format!("the sets and deployments: {error}"), soon),
        Some(Ok(pools)) => pools,
    };
    let pool = match candidate {
        DrainCandidate::Vm { .. } => pools.of_machine(&name).map(|pool| pool.name.clone()).unwrap_or_default(),
        DrainCandidate::Machine(machine) => pool_in(machine).unwrap_or_default().to_owned(),
    };
    let namespace = pass.snapshot.class.metadata.namespace.as_deref();
    let is_of_pool = |one: &&Arc<Machine>| {
        one.metadata.namespace.as_deref() == namespace && one.name_any() != name && pool_in(one) == Some(pool.as_str())
    };
    if let Some(other) = pass.snapshot.all_machines.iter().find(is_of_pool) {
        return ServingVmStep::Wait(
            format!("the drain of the node of machine {}, which had no machine", other.name_any()),
            soon,
        );
    }
    let is_ready = node.is_some_and(TargetNode::is_ready);
    let lost: BTreeSet<String> = pass.snapshot.memory.without_vm.keys().cloned().collect();
    if is_ready && let Some(short) = pools.short_of(&name, &pass.snapshot.all_machines, &lost) {
        return ServingVmStep::Wait(format!("{short}; until then VMs without a machine serve them"), soon);
    }
    match learned.permits.get(&name) {
        None => {
            let group = MeltdownGroup::Deployment(pool);
            let permit = PermitKey { namespace: namespace.unwrap_or_default().to_owned(), group };
            return step(Action::TakePermit { permit, machine: name }, "few nodes of a pool are drained at a time");
        }
        Some(permit @ ReplacementPermit::Held(_)) => {
            if let Some(text) = permit.awaits(&pass.policy.unhealthy_replacements).filter(|_| is_ready) {
                return ServingVmStep::Wait(text, soon);
            }
        }
        Some(_) => {
            return ServingVmStep::Wait("a replacement permit: another machine of the pool has it".to_owned(), soon);
        }
    }
    match candidate {
        DrainCandidate::Machine(machine) => {
            let reason = "its node is drained and its VM deleted, because it is surplus";
            step(Action::DeleteMachine(Arc::clone(machine)), reason)
        }
        DrainCandidate::Vm { id, node } => create(pass, id, node, &pool),
    }
}

fn step(action: Action, reason: &str) -> ServingVmStep {
    ServingVmStep::Step(Box::new(action), reason.to_owned(), None)
}

/// The Node of a Machine that was created for it.
fn node_of<'a>(pass: &OrphanPass<'a>, machine: &Machine) -> Option<&'a TargetNode> {
    let name = machine.node_name()?;
    pass.snapshot.nodes.iter().find(|one| one.node.metadata.name.as_deref() == Some(name))
}

/// The reason why nothing is done about a VM yet, whatever the state of its pool.
fn not_due(pass: &OrphanPass<'_>, id: &str, node: &TargetNode) -> Option<ServingVmStep> {
    let (memory, now) = (&pass.snapshot.memory, pass.snapshot.now);
    let (vm, next_list) = (pass.describe(id), after(now, period_of(pass.policy)));
    let name = node.node.name_any();
    if let Some(holder) = pass.nodes.holder(node) {
        let text = format!("node {name} of VM {vm} to have no machine: machine {} names it", holder.name_any());
        return Some(ServingVmStep::Wait(text, next_list));
    }
    if !node.is_default {
        let text = format!("a machine for VM {vm}, made by hand: its node {name} is in cluster {}", node.target);
        return Some(ServingVmStep::Wait(text, next_list));
    }
    if !syntax::is_subdomain(pass.machine_of(id)) {
        let text = format!("VM {vm} to be deleted by hand: no machine can have this name");
        return Some(ServingVmStep::Wait(text, next_list));
    }
    if !node.is_marked() {
        let text = format!("node {name} of VM {vm} to be free: it has no annotation {}", labels::NOT_MANAGED);
        return Some(ServingVmStep::Wait(text, next_list));
    }
    let due = |since: Option<&Timestamp>, long| since.map_or(now, |since| after(*since, long));
    let began = pass.list.began_at;
    let seen = is_proven(&memory.serving, &vm, patience(pass.policy), began);
    let probed = is_proven(&memory.marked, &vm, probe(pass.policy), began);
    if seen && probed {
        return None;
    }
    let due = due(memory.serving.get(&vm), patience(pass.policy)).max(due(memory.marked.get(&vm), probe(pass.policy)));
    let text = format!("another manager to claim node {name} of VM {vm}");
    Some(ServingVmStep::Wait(text, due.max(after(now, SHORTEST_PERIOD)).min(next_list)))
}

/// Creates the Machine of a VM, after live reads of what the caches may lack.
fn create(pass: &OrphanPass<'_>, id: &str, node: &TargetNode, pool: &str) -> ServingVmStep {
    let learned = &pass.snapshot.learned;
    let (vm, name, soon) = (pass.describe(id), pass.machine_of(id), after(pass.snapshot.now, SHORTEST_PERIOD));
    match learned.machines.get(name) {
        None => return step(Action::GetMachine(name.to_owned()), "its machine may exist, and the cache lack it"),
        Some(Ok(false)) => {}
        Some(Ok(true)) => {
            let text = format!("VM {vm} to be deleted by hand: machine {name} has another VM");
            return ServingVmStep::Wait(text, after(pass.snapshot.now, period_of(pass.policy)));
        }
        Some(Err(error)) => return ServingVmStep::Wait(format!("machine {name} to become readable: {error}"), soon),
    }
    match learned.nodes.get(id) {
        None => {
            return step(Action::GetNode { id: id.to_owned(), node: node.clone() }, "the annotation may be removed");
        }
        Some(Ok(true)) => {}
        Some(Ok(false)) => return ServingVmStep::Wait(format!("node {} to stay as it is", node.node.name_any()), soon),
        Some(Err(error)) => return ServingVmStep::Wait(error.clone(), soon),
    }
    let pools = learned.pools.iter().flatten().next();
    let mut machine = machine_of(pass, id, node, pool);
    if let Some(of_pool) = pools.and_then(|pools| pools.of_machine(name)) {
        machine.spec.configuration = of_pool.configuration.clone();
    }
    if let Some(adopter) = pools.and_then(|pools| pools.adopter(&machine)) {
        let text = format!("VM {vm} to be deleted by hand: {adopter} would adopt its machine");
        return ServingVmStep::Wait(text, after(pass.snapshot.now, period_of(pass.policy)));
    }
    let node = node.node.name_any();
    let since = |sightings: &mcm_rules::safety::orphans::SightingTimes| sightings.get(&vm).copied().unwrap_or_default();
    let (orphan, marked) = (since(&pass.snapshot.memory.serving), since(&pass.snapshot.memory.marked));
    let reason =
        format!("no machine has VM {vm} since {orphan:.0}, and no manager claimed its node {node} since {marked:.0}");
    let text = format!("Draining node {node} of VM {vm}, which no machine has: the machine is created to be deleted");
    ServingVmStep::Step(
        Box::new(Action::CreateMachine(Box::new(machine))),
        reason,
        Some(Event::normal(EventReason::OrphanDraining, text)),
    )
}

/// The Machine of a VM. No set selects it, because it has no label of one.
fn machine_of(pass: &OrphanPass<'_>, id: &str, node: &TargetNode, pool: &str) -> Machine {
    let class = &pass.snapshot.class;
    let mut machine = Machine::default();
    machine.metadata.name = Some(pass.machine_of(id).to_owned());
    machine.metadata.namespace.clone_from(&class.metadata.namespace);
    machine.metadata.finalizers = Some(vec![labels::FINALIZER.to_owned()]);
    machine.metadata.annotations = Some([(labels::ORPHAN.to_owned(), pool.to_owned())].into());
    let node = node.node.name_any();
    // Otherwise the driver names the Node.
    if syntax::is_label_value(&node) {
        machine.metadata.labels = Some([(labels::NODE.to_owned(), node)].into());
    }
    machine.spec.class = ClassSpec { kind: "MachineClass".to_owned(), name: class.name_any(), ..ClassSpec::default() };
    machine.spec.provider_id = id.to_owned();
    machine
}
