//! Plans for a Node that was deleted: its Machine is replaced.

use std::sync::Arc;

use jiff::SignedDuration;
use kube::ResourceExt;

use super::{Action, GoneNode, NodePolicy, Snapshot};
use mcm_api::machine::Machine;
use mcm_rules::{
    plan::{Plan, WaitKind},
    safety::{meltdown::ReplacementPermit, trust::TargetTrust},
};

/// Polling period for changes that no watch reports.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(5);

/// Only for a deletion that the watch reported. A Node that is merely missing may not have joined yet.
pub(super) fn plan(
    snapshot: &Snapshot,
    policy: &NodePolicy,
    gone: &GoneNode,
    exists: Option<&Result<bool, String>>,
    permit: &ReplacementPermit,
) -> Plan<Action> {
    let mut plan = Plan::default();
    let its: Vec<&Arc<Machine>> = snapshot
        .machines
        .iter()
        .filter(|machine| gone.was_of(machine) && machine.metadata.deletion_timestamp.is_none())
        .collect();
    let machine = match its.as_slice() {
        [] => {
            plan.then(Action::ForgetGoneNode, "the node belonged to no machine");
            return plan;
        }
        [machine] => *machine,
        _ => {
            wait_for_one(&mut plan, &snapshot.machines);
            return plan;
        }
    };
    if is_trusted(&mut plan, snapshot)
        && may_be_permitted(&mut plan, snapshot, policy, machine, permit)
        && is_certainly_gone(&mut plan, snapshot, exists)
        && is_taken(&mut plan, policy, machine, permit)
    {
        replace(&mut plan, machine, &gone.name, "was deleted");
    }
    plan
}

fn is_trusted(plan: &mut Plan<Action>, snapshot: &Snapshot) -> bool {
    let TargetTrust::Untrusted { since, reason } = &snapshot.target else { return true };
    let text = format!("the target cluster, which is not trusted since {since:.0}: {reason}");
    plan.wait(WaitKind::NodesUnknown, text, snapshot.now.checked_add(LOOK_AGAIN).ok());
    false
}

fn is_certainly_gone(plan: &mut Plan<Action>, snapshot: &Snapshot, exists: Option<&Result<bool, String>>) -> bool {
    let again = snapshot.now.checked_add(LOOK_AGAIN).ok();
    match exists {
        Some(Ok(false)) => return true,
        Some(Ok(true)) => plan.then(Action::ForgetGoneNode, "a node of that name exists"),
        Some(Err(error)) => plan.wait(WaitKind::NodesUnknown, format!("the node to become readable: {error}"), again),
        None => plan.then(Action::GetNode, "the machine is deleted only after a live read of its node"),
    };
    false
}

/// Many Nodes without a finalizer can vanish at the same time, for example when etcd is restored from a backup.
///
/// The permit is read before the Node is read, and taken after that.
fn may_be_permitted(
    plan: &mut Plan<Action>,
    snapshot: &Snapshot,
    policy: &NodePolicy,
    machine: &Arc<Machine>,
    permit: &ReplacementPermit,
) -> bool {
    let permits = policy.unhealthy_replacements.permits_of(machine);
    if !permits.is_empty() && *permit == ReplacementPermit::NotAsked {
        let machine = Arc::clone(machine);
        plan.then(Action::LookAtPermit { permits, machine }, "few machines are replaced at a time");
        return false;
    }
    let awaited = permit.awaits(&policy.unhealthy_replacements);
    let is_permitted = awaited.is_none();
    if let Some(text) = awaited {
        plan.wait(WaitKind::ReplacementPermit, text, snapshot.now.checked_add(LOOK_AGAIN).ok());
    }
    is_permitted
}

fn is_taken(plan: &mut Plan<Action>, policy: &NodePolicy, machine: &Arc<Machine>, permit: &ReplacementPermit) -> bool {
    let is_free = *permit == ReplacementPermit::Free;
    if is_free {
        let permits = policy.unhealthy_replacements.permits_of(machine);
        let machine = Arc::clone(machine);
        plan.then(Action::TakePermit { permits, machine }, "the permit is free, and the node is gone");
    }
    !is_free
}

/// Deletes the Machine. The Machine's deletion removes the finalizer of the Node.
pub(super) fn replace(plan: &mut Plan<Action>, machine: &Arc<Machine>, node: &str, happened: &str) {
    let name = machine.name_any();
    if machine.metadata.deletion_timestamp.is_some() {
        plan.wait(WaitKind::MachineDeletion, format!("machine {name} to be deleted"), None);
    } else {
        let reason = format!("node {node} {happened}: replace machine {name}");
        plan.then(Action::DeleteMachine(machine.clone()), reason);
    }
}

pub(super) fn wait_for_one(plan: &mut Plan<Action>, machines: &[Arc<Machine>]) {
    let mut names: Vec<String> = machines.iter().map(|machine| machine.name_any()).collect();
    names.sort_unstable();
    plan.wait(
        WaitKind::NodeClaim,
        format!("all but one of the machines with the same node to be deleted: {}", names.join(", ")),
        None,
    );
}
