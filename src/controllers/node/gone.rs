//! What is done for the Machine of a Node that is gone.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

use super::{Action, Policy, Snapshot};
use crate::{
    api::{
        labels,
        machine::{Machine, MachinePhase},
        node::Node,
    },
    controllers::machine::is_same_vm,
    plan::{Plan, WaitKind},
    safety::{
        meltdown::{Permit, PermitKey},
        trust::TargetTrust,
    },
};

/// How soon to look again where nothing tells when things change.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(5);

/// A Node whose end the watch has reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoneNode {
    pub name: String,
    /// ID of the VM behind it; empty if it did not say.
    pub provider_id: String,
    /// The Machine that it said it belongs to.
    pub machine: Option<String>,
    pub seen_at: Timestamp,
}

impl GoneNode {
    /// What is worth keeping of a Node that went.
    pub fn of(node: &Node, seen_at: Timestamp) -> Self {
        let machine = node.labels().get(labels::MACHINE_NAME).filter(|name| !name.is_empty());
        Self { name: node.name_any(), provider_id: node.spec.provider_id.clone(), machine: machine.cloned(), seen_at }
    }

    /// Whether it was the Node of a Machine that names it. One that is younger, or whose own Node has not joined yet, only
    /// has the name in common.
    fn was_of(&self, machine: &Machine) -> bool {
        let created = machine.metadata.creation_timestamp.as_ref().map(|time| time.0.as_second());
        if created.is_some_and(|created| created >= self.seen_at.as_second()) {
            return false;
        }
        match (&self.machine, self.provider_id.as_str(), machine.spec.provider_id.as_str()) {
            (Some(owner), ..) => *owner == machine.name_any(),
            (None, "", _) | (None, _, "") => matches!(machine.phase(), MachinePhase::Running | MachinePhase::Unknown),
            (None, of_node, of_machine) => is_same_vm(of_node, of_machine),
        }
    }
}

/// Only for an end that was seen: a Node that is not found may be one that was never seen, because it has not joined yet.
pub(super) fn plan(
    snapshot: &Snapshot,
    policy: &Policy,
    gone: &GoneNode,
    exists: Option<&Result<bool, String>>,
    permit: &Permit,
) -> Plan<Action> {
    let mut plan = Plan::default();
    let its: Vec<&Arc<Machine>> = snapshot
        .machines
        .iter()
        .filter(|machine| gone.was_of(machine) && machine.metadata.deletion_timestamp.is_none())
        .collect();
    let machine = match its.as_slice() {
        [] => {
            plan.then(Action::ForgetGoneNode, "no machine has lost its node");
            return plan;
        }
        [machine] => *machine,
        _ => {
            wait_for_one(&mut plan, &snapshot.machines);
            return plan;
        }
    };
    if is_certainly_gone(&mut plan, snapshot, exists) && is_permitted(&mut plan, snapshot, policy, machine, permit) {
        replace(&mut plan, machine, &gone.name, "was deleted");
    }
    plan
}

fn is_certainly_gone(plan: &mut Plan<Action>, snapshot: &Snapshot, exists: Option<&Result<bool, String>>) -> bool {
    let again = snapshot.now.checked_add(LOOK_AGAIN).ok();
    if let TargetTrust::Untrusted { since, reason } = &snapshot.target {
        let text = format!("the target cluster, which cannot be trusted since {since}: {reason}");
        plan.wait(WaitKind::NodesUnknown, text, again);
        return false;
    }
    match exists {
        Some(Ok(false)) => return true,
        Some(Ok(true)) => plan.then(Action::ForgetGoneNode, "a node of that name exists"),
        Some(Err(error)) => plan.wait(WaitKind::NodesUnknown, format!("the node to be readable: {error}"), again),
        None => plan.then(Action::GetNode, "a machine is not deleted for what one watch says"),
    };
    false
}

/// Without their finalizer many Nodes can go at once, for example with a backup that is restored.
fn is_permitted(
    plan: &mut Plan<Action>,
    snapshot: &Snapshot,
    policy: &Policy,
    machine: &Arc<Machine>,
    permit: &Permit,
) -> bool {
    let Some(key) = PermitKey::of(machine) else { return true };
    let again = snapshot.now.checked_add(LOOK_AGAIN).ok();
    match permit {
        Permit::NotAsked => {
            let machine = Arc::clone(machine);
            plan.then(Action::TakePermit { permit: key, machine }, "one machine of a deployment is replaced at a time");
        }
        Permit::Refused { by } => {
            plan.wait(WaitKind::ReplacementPermit, format!("its turn to be replaced: {by} is being judged"), again);
        }
        Permit::Held(others) => match others.blocked_by(policy.max_unhealthy_replacements) {
            None => return true,
            Some(blockers) => {
                let text = format!("its turn to be replaced: out of service in {key} are {blockers}");
                plan.wait(WaitKind::ReplacementPermit, text, again);
            }
        },
    }
    false
}

/// The finalizer of the Node falls in the course of the Machine's deletion.
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
    plan.wait(WaitKind::NodeClaim, format!("one machine to be left with the node of {}", names.join(", ")), None);
}
