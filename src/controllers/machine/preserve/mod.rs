//! Preservation: a Machine that is kept for a time, although it failed or the autoscaler could remove it.
//!
//! [`wish`] finds what the annotations of Machine and Node request, [`copy`] passes it to the set, [`start`] begins and keeps,
//! which moves the pods of a failed Machine elsewhere, [`end`] takes everything back. The state is stored in the
//! objects: the end in `currentStatus.preserveExpiryTime`, the drain in the text of the node condition `Preserved`.

mod condition;
mod copy;
mod end;
mod start;
mod wish;

use jiff::Timestamp;

pub(super) use copy::plan as copy;

use self::{
    end::PreservationEnd,
    wish::{PreservationNode, PreservationRequest},
};
use super::{Action, MachinePolicy, Snapshot, steps::is_node_certain};
use mcm_api::{
    labels,
    machine::{Machine, MachinePhase, PreserveMode},
};
use mcm_rules::plan::{Plan, WaitKind};

/// The stage of a preservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PreservationStage {
    /// It is not preserved and does not have to be.
    Idle,
    /// It is preserved, from now on or already.
    Keep(PreserveMode),
    End(PreservationEnd),
}

const EXPIRED: PreservationEnd = PreservationEnd { reason: "its preservation has expired", forgets: true };

/// Plans the next step of a preservation. Nothing is decided while it is not certain whether there is a Node, because
/// its annotation may have another value.
pub(super) fn plan(snapshot: &Snapshot, policy: &MachinePolicy) -> Plan<Action> {
    let mut plan = Plan::default();
    let (machine, now) = (&snapshot.machine, snapshot.now);
    let node = match PreservationNode::from_snapshot(snapshot) {
        PreservationNode::Going => return plan,
        PreservationNode::Unsure => {
            let any = machine.copied_preserve_mode().or_else(|| machine.preserve_mode());
            match (stage_of(machine, any, now), machine.preserve_expiry()) {
                (PreservationStage::Idle, _) => {}
                // It concerns only the Node, and that will be seen.
                (PreservationStage::Keep(mode), Some(_)) => start::plan(&mut plan, snapshot, policy, None, mode),
                (PreservationStage::Keep(_) | PreservationStage::End(_), _) => {
                    is_node_certain(&mut plan, snapshot, "the annotation of a Node decides about a preservation");
                }
            }
            return plan;
        }
        PreservationNode::NoNode => None,
        PreservationNode::Node(node) => Some(node),
    };
    let stage = match PreservationRequest::for_machine(machine, node.as_deref()) {
        PreservationRequest::Asked(mode) => stage_of(machine, mode, now),
        PreservationRequest::Misspelt(word) => {
            let key = labels::PRESERVE;
            let text = format!(
                "the annotation {key} of the Node to be corrected: {word:?} is none of now, when-failed, false"
            );
            plan.wait(WaitKind::SpecCorrection, text, machine.preserved_until(now));
            stage_by_own_annotation(machine, now)
        }
    };
    match stage {
        PreservationStage::Idle => {}
        PreservationStage::Keep(mode) => start::plan(&mut plan, snapshot, policy, node.as_ref(), mode),
        PreservationStage::End(end) => end::plan(&mut plan, snapshot, node.as_ref(), end),
    }
    plan
}

fn stage_of(machine: &Machine, mode: Option<PreserveMode>, now: Timestamp) -> PreservationStage {
    let expiry = machine.preserve_expiry();
    let is_failed = machine.phase() == MachinePhase::Failed;
    let is_expired = expiry.is_some_and(|expiry| expiry <= now);
    let not_asked = PreservationEnd {
        reason: if is_expired { EXPIRED.reason } else { "nothing asks for its preservation" },
        forgets: false,
    };
    let not_failed = PreservationEnd {
        reason: "the Machine has not failed, or runs again",
        forgets: mode == Some(PreserveMode::Auto),
    };
    match mode {
        None | Some(PreserveMode::Never) if expiry.is_some() => PreservationStage::End(not_asked),
        None | Some(PreserveMode::Never) => PreservationStage::Idle,
        Some(_) if is_expired => PreservationStage::End(EXPIRED),
        Some(PreserveMode::Now) => PreservationStage::Keep(PreserveMode::Now),
        Some(mode) if is_failed => PreservationStage::Keep(mode),
        Some(PreserveMode::WhenFailed) if expiry.is_none() => PreservationStage::Idle,
        Some(PreserveMode::WhenFailed | PreserveMode::Auto) => PreservationStage::End(not_failed),
    }
}

/// The stage while the annotation of the Node has no effect. A set keeps a failed Machine whose annotation requests it,
/// so its preservation has to begin and end.
fn stage_by_own_annotation(machine: &Machine, now: Timestamp) -> PreservationStage {
    let own = machine.preserve_mode().filter(|mode| *mode != PreserveMode::Never);
    match own {
        Some(mode) if machine.phase() == MachinePhase::Failed => stage_of(machine, Some(mode), now),
        _ if machine.preserve_expiry().is_some_and(|expiry| expiry <= now) => PreservationStage::End(EXPIRED),
        _ => PreservationStage::Idle,
    }
}

/// When the drain of a preserved Machine's Node is forced; `None` if it is forced now.
pub(super) fn forced_from(snapshot: &Snapshot, policy: &MachinePolicy) -> Option<Timestamp> {
    start::drain_rules(snapshot, policy).forced_from()
}
