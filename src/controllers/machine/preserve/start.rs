//! The beginning of a preservation, and the checks while it lasts.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;
use serde_json::{Value, json};

use super::{
    super::{
        Action, DrainReason, MachinePolicy, NodeWrite, Snapshot,
        drain_node::{self, NodeDrainProgress},
        policy::{after, created_at},
        status,
        steps::{is_refused, set},
    },
    condition::{PreservedCondition, tell},
};
use mcm_api::{
    labels,
    machine::{MachinePhase, PreserveMode},
    node::Node,
    reasons::EventReason,
};
use mcm_rules::{
    drain::DrainPolicy,
    plan::{Event, Plan, WaitKind},
};

const NO_SCHEDULE: &str = "NoSchedule";

/// Preserves the Machine until its time is over: the time first, then its Node.
pub(super) fn plan(
    plan: &mut Plan<Action>,
    snapshot: &Snapshot,
    policy: &MachinePolicy,
    node: Option<&Arc<Node>>,
    mode: PreserveMode,
) {
    let Some(expiry) = snapshot.machine.preserve_expiry() else {
        return begin(plan, snapshot, policy, mode);
    };
    if let Some(node) = node {
        keep(plan, snapshot, policy, node, (mode, expiry));
    }
    if plan.steps.is_empty() {
        let text = format!("the preservation to end, which {}={} asks for", labels::PRESERVE, mode.as_str());
        plan.wait(WaitKind::Preservation, text, Some(expiry));
    }
}

/// Stores until when the Machine is kept. The drain of a failed Machine has its whole time from now on.
fn begin(plan: &mut Plan<Action>, snapshot: &Snapshot, policy: &MachinePolicy, mode: PreserveMode) {
    let (machine, now) = (&snapshot.machine, snapshot.now);
    let timeout = policy.preserve_timeout_of(machine);
    let expiry = status::stamp(after(now, timeout.as_signed()));
    let mut next = status::stored(machine);
    next.current_status.preserve_expiry_time = Some(expiry.clone());
    if machine.phase() == MachinePhase::Failed {
        next.current_status.last_update_time = Some(status::stamp(now));
    }
    let reason = format!("{}={} asks for it; machinePreserveTimeout is {timeout}", labels::PRESERVE, mode.as_str());
    let event = Event::normal(EventReason::Preserved, format!("kept until {}", expiry.0));
    plan.then_recording(Action::WriteStatus(Box::new(next)), reason, event);
}

/// Protects the Node from the autoscaler; the Node of a failed Machine is tainted and drained. The condition is written
/// last.
fn keep(
    plan: &mut Plan<Action>,
    snapshot: &Snapshot,
    policy: &MachinePolicy,
    node: &Arc<Node>,
    asked: (PreserveMode, Timestamp),
) {
    let phase = snapshot.machine.phase();
    let is_failed = phase == MachinePhase::Failed;
    let told = PreservedCondition::from_node(node);
    if phase == MachinePhase::Running && is_tainted(node) {
        if !is_refused(plan, snapshot, NodeWrite::Preserve) {
            let mut patch = Value::Null;
            set(&mut patch, &["spec", "taints"], without_taint(node));
            let action = Action::PatchNode { node: Arc::clone(node), patch, purpose: NodeWrite::Preserve };
            plan.then(action, "its Machine runs again, so pods may run there");
        }
        return;
    }
    let has_to_drain = is_failed && told != PreservedCondition::Drained;
    if !has_to_drain
        && matches!((is_failed, &told), (true, PreservedCondition::Drained) | (false, PreservedCondition::Kept))
    {
        return;
    }
    let patch = guarded(node, has_to_drain, snapshot.now);
    if !patch.is_null() {
        if !is_refused(plan, snapshot, NodeWrite::Preserve) {
            let action = Action::PatchNode { node: Arc::clone(node), patch, purpose: NodeWrite::Preserve };
            let name = node.metadata.name.as_deref().unwrap_or_default();
            let event = Event::normal(
                EventReason::Draining,
                format!("draining Node {name}: its Machine failed and is preserved"),
            );
            match has_to_drain {
                true => plan.then_recording(
                    action,
                    "no new pods are scheduled to the Node of a failed, preserved Machine",
                    event,
                ),
                false => plan.then(action, "the autoscaler must not remove a preserved Node"),
            };
        }
        return;
    }
    if is_refused(plan, snapshot, NodeWrite::TellPreserved) || is_refused(plan, snapshot, NodeWrite::TellDrained) {
        return;
    }
    if !has_to_drain {
        return tell(plan, snapshot, node, &PreservedCondition::Kept, asked, None);
    }
    let rules = drain_rules(snapshot, policy);
    match drain_node::plan(plan, snapshot, policy, &rules, node) {
        NodeDrainProgress::Drained => tell(plan, snapshot, node, &PreservedCondition::Drained, asked, None),
        NodeDrainProgress::Blocked(error) if told != PreservedCondition::Undrained => {
            tell(plan, snapshot, node, &PreservedCondition::Undrained, asked, Some(&error));
        }
        NodeDrainProgress::Blocked(_) | NodeDrainProgress::Busy { .. } => {}
    }
}

/// The rules of the drain of a failed Machine's Node. It is tainted, not cordoned. Its time counts from when the Machine
/// failed, or was preserved afterwards.
pub(super) fn drain_rules(snapshot: &Snapshot, policy: &MachinePolicy) -> DrainPolicy {
    let machine = &snapshot.machine;
    let since = status::stored(machine).current_status.last_update_time;
    let since = since.map_or_else(|| created_at(machine), |time| time.0);
    drain_node::rules(snapshot, policy, since, labels::is_true(&**machine, DrainReason::Preservation.force_label()))
}

/// The patch to the annotations for the autoscaler and, before a drain, the taint. An existing annotation that keeps
/// the autoscaler away belongs to another client and is not changed.
fn guarded(node: &Node, with_taint: bool, now: Timestamp) -> Value {
    let mut patch = Value::Null;
    let disabled = node.annotations().get(labels::SCALE_DOWN_DISABLED);
    if disabled.is_none_or(|value| value != labels::SCALE_DOWN_IS_DISABLED) {
        for key in [labels::SCALE_DOWN_DISABLED, labels::SCALE_DOWN_DISABLED_BY_MCM] {
            set(&mut patch, &["metadata", "annotations", key], labels::SCALE_DOWN_IS_DISABLED);
        }
    }
    if with_taint && !is_tainted(node) {
        let taint = Taint {
            key: labels::PRESERVED_TAINT.to_owned(),
            effect: NO_SCHEDULE.to_owned(),
            time_added: Some(status::stamp(now)),
            value: None,
        };
        let taints: Vec<Taint> = node.spec.taints.iter().cloned().chain([taint]).collect();
        set(&mut patch, &["spec", "taints"], json!(taints));
    }
    patch
}

/// The patch that undoes [`guarded`], including the Node's annotation if that is requested.
pub(super) fn released(node: &Node, forgets: bool) -> Value {
    let mut patch = Value::Null;
    let annotations = node.annotations();
    if annotations.get(labels::SCALE_DOWN_DISABLED_BY_MCM).is_some_and(|value| value == labels::SCALE_DOWN_IS_DISABLED)
    {
        for key in [labels::SCALE_DOWN_DISABLED, labels::SCALE_DOWN_DISABLED_BY_MCM] {
            set(&mut patch, &["metadata", "annotations", key], Value::Null);
        }
    }
    if forgets && annotations.contains_key(labels::PRESERVE) {
        set(&mut patch, &["metadata", "annotations", labels::PRESERVE], Value::Null);
    }
    if is_tainted(node) {
        set(&mut patch, &["spec", "taints"], without_taint(node));
    }
    patch
}

fn is_ours(taint: &Taint) -> bool {
    taint.key == labels::PRESERVED_TAINT && taint.effect == NO_SCHEDULE
}

fn is_tainted(node: &Node) -> bool {
    node.spec.taints.iter().any(is_ours)
}

fn without_taint(node: &Node) -> Value {
    let left: Vec<&Taint> = node.spec.taints.iter().filter(|taint| !is_ours(taint)).collect();
    json!(left)
}
