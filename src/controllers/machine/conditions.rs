//! Node conditions: which Nodes are healthy, and which changes are stored.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::{api::core::v1::NodeCondition, apimachinery::pkg::apis::meta::v1::Time};

use super::memory::NeverMet;
use crate::{
    api::reasons::{MachineConditionType, NodeConditionType, VmReason},
    controllers::object::{
        condition::{self, Condition, Refresh, paused_because},
        time::whole_seconds,
    },
    plan::Hold,
};

/// Healthy: the list is not empty, `Ready` is True or absent, and every watched condition is False or absent.
pub(super) fn is_healthy(conditions: &[NodeCondition], watched: &[String]) -> bool {
    !conditions.is_empty() && conditions.iter().all(|condition| is_good(condition, watched))
}

fn is_good(condition: &NodeCondition, watched: &[String]) -> bool {
    (condition.type_ != "Ready" || condition.status == "True")
        && (condition.status == "False" || !watched.contains(&condition.type_))
}

/// A condition was added, was removed or changed its status. Heartbeats do not count. For `InPlaceUpdate` the reason
/// counts too.
pub(super) fn differ(old: &[NodeCondition], new: &[NodeCondition]) -> bool {
    old.len() != new.len()
        || new.iter().any(|condition| {
            !old.iter().any(|other| {
                other.type_ == condition.type_
                    && other.status == condition.status
                    && (condition.type_ != NodeConditionType::InPlaceUpdate.as_str()
                        || other.reason == condition.reason)
            })
        })
}

/// Sets the condition that names the disruption budgets which can never allow an eviction, or removes it if there are
/// none.
pub(super) fn set_drain_blocked(conditions: &mut Vec<NodeCondition>, budgets: &NeverMet<'_>, now: Timestamp) {
    let names = |budgets: &BTreeSet<&str>| budgets.iter().copied().collect::<Vec<_>>().join(", ");
    let single = (!budgets.single.is_empty()).then(|| {
        format!(
            "pod disruption budget {} allows no eviction although all its pods are healthy: lower minAvailable, raise \
             maxUnavailable, or add replicas",
            names(&budgets.single)
        )
    });
    let several = (!budgets.several.is_empty()).then(|| {
        let names = names(&budgets.several);
        format!("a pod that several disruption budgets select is never evicted: {names}; let one of them select it")
    });
    let texts: Vec<String> = single.into_iter().chain(several).collect();
    let desired = (!texts.is_empty()).then(|| Condition::new("True", "DisruptionBudgetNeverMet", texts.join("; ")));
    show(conditions, MachineConditionType::DrainBlocked, desired, now);
}

/// Sets the condition that confirms a hold, or removes it. True if it changed.
pub(super) fn set_paused(conditions: &mut Vec<NodeCondition>, hold: Option<&Hold>, now: Timestamp) -> bool {
    let desired = hold.map(|hold| Condition::is_true(paused_because(hold), format!("waiting for {}", hold.on)));
    show(conditions, MachineConditionType::Paused, desired, now)
}

/// Sets the condition about refused parts of the Node, or removes it if the message is empty. True if it changed.
pub(super) fn set_node_refused(conditions: &mut Vec<NodeCondition>, message: &str, now: Timestamp) -> bool {
    let desired = (!message.is_empty()).then(|| Condition::new("False", "Refused", message));
    show(conditions, MachineConditionType::NodeInSync, desired, now)
}

/// Sets the condition that shows that the VM does not run, or removes it. True if it changed.
pub(super) fn set_vm_problem(
    conditions: &mut Vec<NodeCondition>,
    problem: Option<(VmReason, &str)>,
    now: Timestamp,
) -> bool {
    let desired = problem.map(|(reason, message)| Condition::new("False", reason.as_str(), message));
    show(conditions, MachineConditionType::VmAvailable, desired, now)
}

/// Sets a condition, or removes it. True if it changed.
fn show(
    conditions: &mut Vec<NodeCondition>,
    type_: MachineConditionType,
    desired: Option<Condition>,
    now: Timestamp,
) -> bool {
    let before = condition::find(conditions, type_).cloned();
    condition::set(conditions, type_, desired.map(|desired| desired.refreshed(Refresh::OnMessage)), now);
    condition::find(conditions, type_) != before.as_ref()
}

/// The condition of [`set_node_refused`].
pub(super) fn node_refused(conditions: &[NodeCondition]) -> Option<&NodeCondition> {
    condition::find(conditions, MachineConditionType::NodeInSync)
}

/// Stores the conditions of the Node, if they changed, and keeps that of [`set_node_refused`].
pub(super) fn take_over(stored: &mut Vec<NodeCondition>, of_node: &[NodeCondition]) {
    let current: Vec<NodeCondition> = of_node.iter().chain(node_refused(stored)).cloned().collect();
    if differ(stored, &current) {
        *stored = current;
    }
}

/// A time as it is stored: whole seconds.
pub(super) fn stamp(now: Timestamp) -> Time {
    Time(whole_seconds(now))
}

/// The condition of [`set_drain_blocked`].
pub(super) fn drain_blocked(conditions: &[NodeCondition]) -> Option<&NodeCondition> {
    condition::find(conditions, MachineConditionType::DrainBlocked)
}

/// The conditions as text: abnormal ones with their reason, the others in short.
pub(super) fn describe(conditions: &[NodeCondition], watched: &[String]) -> String {
    let texts: Vec<String> = conditions
        .iter()
        .map(|condition| {
            let text = format!("{}={}", condition.type_, condition.status);
            match condition.reason.as_deref() {
                Some(reason) if !is_good(condition, watched) => format!("{text} ({reason})"),
                _ => text,
            }
        })
        .collect();
    format!("[{}]", texts.join(", "))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn conditions(list: &[(&str, &str)]) -> Vec<NodeCondition> {
        list.iter()
            .map(|(type_, status)| NodeCondition {
                type_: (*type_).to_owned(),
                status: (*status).to_owned(),
                reason: Some("Because".to_owned()),
                ..NodeCondition::default()
            })
            .collect()
    }

    fn watched() -> Vec<String> {
        vec!["DiskPressure".to_owned()]
    }

    #[rstest]
    #[case::ready(&[("Ready", "True")], true)]
    #[case::not_ready(&[("Ready", "False")], false)]
    #[case::ready_unknown(&[("Ready", "Unknown")], false)]
    #[case::no_conditions(&[], false)]
    #[case::without_ready_but_others(&[("DiskPressure", "False")], true)]
    #[case::watched_true(&[("Ready", "True"), ("DiskPressure", "True")], false)]
    #[case::watched_unknown_counts_as_bad(&[("Ready", "True"), ("DiskPressure", "Unknown")], false)]
    #[case::not_watched(&[("Ready", "True"), ("MemoryPressure", "True")], true)]
    fn healthy(#[case] list: &[(&str, &str)], #[case] expected: bool) {
        assert_eq!(is_healthy(&conditions(list), &watched()), expected);
    }

    #[test]
    fn heartbeats_and_texts_are_no_change_but_statuses_are() {
        let old = conditions(&[("Ready", "True"), ("InPlaceUpdate", "True")]);
        let mut new = old.clone();
        new.reverse();
        new[1].message = Some("posted".to_owned());
        new[1].reason = Some("Other".to_owned());
        new[1].last_heartbeat_time = Some(Timestamp::UNIX_EPOCH.into());
        assert!(!differ(&old, &new));
        let mut status = old.clone();
        status[0].status = "False".to_owned();
        let mut reason = old.clone();
        reason[1].reason = Some("SelectedForUpdate".to_owned());
        assert!(differ(&old, &status) && differ(&old, &reason) && differ(&old, &old[..1]));
    }

    #[test]
    fn the_description_explains_only_what_is_wrong() {
        let list = conditions(&[("Ready", "True"), ("DiskPressure", "True")]);
        assert_eq!(describe(&list, &watched()), "[Ready=True, DiskPressure=True (Because)]");
    }
}
