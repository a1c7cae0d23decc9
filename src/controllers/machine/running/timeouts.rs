//! When a Machine that is Pending, Unknown or updated in place fails.

use jiff::{SignedDuration, Timestamp};

use super::{
    super::{
        Action, MachinePolicy, Snapshot, conditions,
        policy::{after, created_at},
        status,
        steps::is_node_certain,
    },
    marks::{late_text, mark_failed},
    renamed,
};
use mcm_api::{
    machine::{MachinePhase, MachineStatus, OperationType},
    reasons::EventReason,
};
use mcm_rules::{
    plan::{Event, Plan, WaitKind},
    safety::meltdown::ReplacementPermit,
};

/// How soon to request a permit again that was not granted.
const PERMIT_AGAIN: SignedDuration = SignedDuration::from_secs(5);
/// A Failed Machine loses its VM, and the cache may be stale.
const BEFORE_FAILING: &str = "a Machine becomes Failed only after a live read of its Node";

/// Marks a Machine Failed whose timeout has passed, or waits for the timeout. `next` is the status it has otherwise.
pub(super) fn check_timeout(plan: &mut Plan<Action>, snapshot: &Snapshot, policy: &MachinePolicy, next: MachineStatus) {
    match next.current_status.phase {
        MachinePhase::Pending => {
            let deadline = snapshot.target.put_off(policy.creation_deadline_of(&snapshot.machine));
            if snapshot.now < deadline {
                let node = snapshot.machine.node_name().unwrap_or_default();
                let other = snapshot.disproof().map(|why| format!("; the Node of that name is another one: {why}"));
                let text = format!(
                    "Node {node} to join and become healthy{}{}",
                    other.unwrap_or_default(),
                    renamed::remark(snapshot)
                );
                plan.wait(WaitKind::NodeJoin, text, Some(deadline));
            } else if is_node_certain(plan, snapshot, BEFORE_FAILING) {
                let text = late_text(snapshot, policy);
                mark_failed(plan, snapshot, next, text, "the creation timeout has passed");
            }
        }
        MachinePhase::Unknown => {
            let bad = conditions::describe_bad(&next.conditions, &policy.node_conditions_of(&snapshot.machine));
            let bad = if bad.is_empty() { bad } else { format!(": {bad}") };
            check_health_timeout(plan, snapshot, policy, next, &format!("the Node to become healthy again{bad}"));
        }
        MachinePhase::Failed if snapshot.machine.preserved_until(snapshot.now).is_none() => {
            plan.wait(WaitKind::Replacement, "its set to replace it, or its Node to become healthy", None);
        }
        MachinePhase::InPlaceUpdating => check_update_timeout(plan, snapshot, policy, next),
        MachinePhase::InPlaceUpdateFailed => {
            check_health_timeout(plan, snapshot, policy, next, "the in-place update of the Node to succeed");
        }
        MachinePhase::InPlaceUpdateSuccessful => {
            plan.wait(WaitKind::NodeHealth, "the Node to become healthy after its in-place update", None);
        }
        // A preservation has another time limit.
        _ => {}
    }
}

fn check_update_timeout(plan: &mut Plan<Action>, snapshot: &Snapshot, policy: &MachinePolicy, mut next: MachineStatus) {
    let timeout = policy.in_place_update_timeout_of(&snapshot.machine);
    let deadline = snapshot.target.put_off(after(phase_since(snapshot, &next), timeout.as_signed()));
    let (node, now) = (snapshot.machine.node_name().unwrap_or_default(), snapshot.now);
    if now < deadline {
        let text = format!("the agent on Node {node} to report the result of its in-place update");
        plan.wait(WaitKind::InPlaceUpdate, text, Some(deadline));
    } else if is_node_certain(plan, snapshot, "an in-place update fails only after a live read of its Node") {
        let text = format!("Machine {} failed to in-place update in {timeout}.", snapshot.name());
        next.last_operation = status::failed_operation(OperationType::InPlaceUpdate, None, text.clone(), now);
        status::enter(&mut next, MachinePhase::InPlaceUpdateFailed, true, now);
        let event = Event::warning(EventReason::InPlaceUpdateFailed, text);
        plan.then_recording(Action::WriteStatus(Box::new(next)), "the timeout of in-place updates has passed", event);
    }
}

/// Since when a Machine is in its phase.
fn phase_since(snapshot: &Snapshot, status: &MachineStatus) -> Timestamp {
    let since = status.current_status.last_update_time.as_ref().or(status.last_operation.last_update_time.as_ref());
    since.map_or_else(|| created_at(&snapshot.machine), |time| time.0)
}

/// `on` completes "waiting for".
fn check_health_timeout(
    plan: &mut Plan<Action>,
    snapshot: &Snapshot,
    policy: &MachinePolicy,
    next: MachineStatus,
    on: &str,
) {
    let Some(timeout) = policy.health_timeout_of(&snapshot.machine) else {
        plan.wait(WaitKind::NodeHealth, format!("{on}; spec.disableHealthTimeout is set"), None);
        return;
    };
    let deadline = snapshot.target.put_off(after(phase_since(snapshot, &next), timeout.as_signed()));
    if snapshot.now < deadline {
        plan.wait(WaitKind::NodeHealth, on, Some(deadline));
        return;
    }
    let permits = policy.unhealthy_replacements.permits_of(&snapshot.machine);
    let permit = &snapshot.learned.permit;
    if !permits.is_empty() && *permit == ReplacementPermit::NotAsked {
        plan.then(Action::LookAtPermit(permits), "few unhealthy Machines are replaced at a time");
        return;
    }
    if let Some(text) = permit.awaits(&policy.unhealthy_replacements) {
        plan.wait(WaitKind::ReplacementPermit, text, Some(after(snapshot.now, PERMIT_AGAIN)));
        return;
    }
    if !is_node_certain(plan, snapshot, BEFORE_FAILING) {
        return;
    }
    if *permit == ReplacementPermit::Free {
        plan.then(Action::TakePermit(permits), "the permit is free, and its Node was read");
        return;
    }
    let watched = policy.node_conditions_of(&snapshot.machine);
    let text = format!(
        "Machine {} health checks failing since last {timeout}. Updating machine phase to Failed. Node \
         Conditions: {}",
        snapshot.name(),
        conditions::describe(&next.conditions, &watched)
    );
    mark_failed(plan, snapshot, next, text, "the health timeout has passed");
}
