//! Node conditions: which Nodes are healthy, and which changes are stored.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::object::{
    condition::{self, ConditionRefresh, DesiredCondition, paused_because},
    time::whole_seconds,
};
use mcm_api::{
    node::NodeCondition,
    reasons::{MachineConditionType, NodeConditionType, VmReason},
    sharing::SharedText,
};
use mcm_rules::plan::ReconcileHold;

/// Disruption budgets that can never allow an eviction, as `namespace/name`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NeverMet<'a> {
    /// They allow no disruption although all their pods are healthy.
    pub single: BTreeSet<&'a str>,
    /// The budgets of pods that several budgets select.
    pub several: BTreeSet<&'a str>,
}

impl NeverMet<'_> {
    pub fn is_empty(&self) -> bool {
        self.single.is_empty() && self.several.is_empty()
    }
}

/// Healthy: the list is not empty, `Ready` is True or absent, and every watched condition is False or absent.
pub(super) fn is_healthy(conditions: &[NodeCondition], watched: &[String]) -> bool {
    !conditions.is_empty() && conditions.iter().all(|condition| is_good(condition, watched))
}

fn is_good(condition: &NodeCondition, watched: &[String]) -> bool {
    (condition.type_ != "Ready" || condition.status == "True")
        && (condition.status == "False" || !watched.iter().any(|watched| condition.type_ == *watched))
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
    let desired =
        (!texts.is_empty()).then(|| DesiredCondition::new("True", "DisruptionBudgetNeverMet", texts.join("; ")));
    show(conditions, MachineConditionType::DrainBlocked, desired, now);
}

/// Sets the condition that confirms a hold, or removes it. True if it changed.
pub(super) fn set_paused(conditions: &mut Vec<NodeCondition>, hold: Option<&ReconcileHold>, now: Timestamp) -> bool {
    let desired = hold.map(|hold| DesiredCondition::is_true(paused_because(hold), format!("waiting for {}", hold.on)));
    show(conditions, MachineConditionType::Paused, desired, now)
}

/// Sets the condition about refused parts of the Node, or removes it if the message is empty. True if it changed.
pub(super) fn set_node_refused(conditions: &mut Vec<NodeCondition>, message: &str, now: Timestamp) -> bool {
    let desired = (!message.is_empty()).then(|| DesiredCondition::new("False", "Refused", message));
    show(conditions, MachineConditionType::NodeInSync, desired, now)
}

/// Sets the condition that shows that the VM does not run, or removes it. True if it changed.
pub(super) fn set_vm_problem(
    conditions: &mut Vec<NodeCondition>,
    problem: Option<(VmReason, &str)>,
    now: Timestamp,
) -> bool {
    let desired = problem.map(|(reason, message)| DesiredCondition::new("False", reason.as_str(), message));
    show(conditions, MachineConditionType::VmAvailable, desired, now)
}

/// Sets a condition, or removes it. True if it changed.
fn show(
    conditions: &mut Vec<NodeCondition>,
    type_: MachineConditionType,
    desired: Option<DesiredCondition>,
    now: Timestamp,
) -> bool {
    let before = condition::find(conditions, type_).cloned();
    condition::set(conditions, type_, desired.map(|desired| desired.refreshed(ConditionRefresh::OnMessage)), now);
    condition::find(conditions, type_) != before.as_ref()
}

/// The condition of [`set_node_refused`].
pub(super) fn node_refused(conditions: &[NodeCondition]) -> Option<&NodeCondition> {
    condition::find(conditions, MachineConditionType::NodeInSync)
}

/// Stores the conditions of the Node, if they changed, and keeps that of [`set_node_refused`].
pub(super) fn take_over(stored: &mut Vec<NodeCondition>, of_node: &[NodeCondition], watched: &[String]) {
    let current: Vec<NodeCondition> = storable(of_node, watched).chain(node_refused(stored).cloned()).collect();
    if differ(stored, &current) {
        *stored = current;
    }
}

/// The part of a Node's conditions that its Machine shows: `Ready`, conditions that mcm writes, the watched ones, and a few others.
/// Programs on the Node write as many and as long ones as they like, and each write of the Machine contains all of them.
/// Types that only Machines have are left out.
pub(super) fn storable(of_node: &[NodeCondition], watched: &[String]) -> impl Iterator<Item = NodeCondition> {
    let rank = |condition: &NodeCondition| match condition.type_.as_str() {
        "Ready" => 0,
        type_ if NodeConditionType::parse(type_).is_some() => 1,
        type_ if watched.iter().any(|it| it == type_) => 2,
        _ => 3,
    };
    let is_of_node =
        |it: &NodeCondition| it.type_.len() <= LONGEST_TYPE && MachineConditionType::parse(&it.type_).is_none();
    let mut ranked: Vec<(u8, &str, usize, NodeCondition)> = (of_node.iter().enumerate())
        .filter(|(_, condition)| is_of_node(condition))
        .map(|(index, condition)| (rank(condition), condition.type_.as_str(), index, shortened(condition)))
        .collect();
    ranked.sort_by(|a, b| (a.0, a.1, a.2).cmp(&(b.0, b.1, b.2)));
    let (mut others, mut bytes) = (0, 0);
    ranked.retain(|(rank, _, _, condition)| {
        let size = size_of(condition);
        let fits = bytes + size <= MOST_BYTES && (*rank < 3 || others < OTHERS);
        if fits {
            bytes += size;
            others += usize::from(*rank == 3);
        }
        fits
    });
    ranked.sort_by_key(|(_, _, index, _)| *index);
    ranked.into_iter().map(|(_, _, _, condition)| condition)
}

fn shortened(condition: &NodeCondition) -> NodeCondition {
    let cut = |text: &SharedText, longest: usize| match text.len() <= longest {
        true => text.clone(),
        false => text.get(..text.floor_char_boundary(longest)).unwrap_or_default().into(),
    };
    NodeCondition {
        status: cut(&condition.status, LONGEST_STATUS),
        reason: condition.reason.as_ref().map(|reason| cut(reason, LONGEST_REASON)),
        message: condition.message.as_ref().map(|message| cut(message, LONGEST_MESSAGE)),
        ..condition.clone()
    }
}

/// About its size as JSON.
fn size_of(condition: &NodeCondition) -> usize {
    let text = |text: &Option<SharedText>| text.as_ref().map_or(0, |text| text.len());
    FRAME + condition.type_.len() + condition.status.len() + text(&condition.reason) + text(&condition.message)
}

/// Most conditions of a Node that are stored beside `Ready`, ours and the watched ones.
const OTHERS: usize = 20;
/// Longest parts of a stored condition, in bytes. A longer type is no qualified name.
const LONGEST_TYPE: usize = 316;
const LONGEST_STATUS: usize = 16;
const LONGEST_REASON: usize = 256;
const LONGEST_MESSAGE: usize = 1 << 10;
/// Names of the fields of a condition, and its times.
const FRAME: usize = 160;
/// Most bytes of all stored conditions of a Node.
const MOST_BYTES: usize = 14 << 10;
/// Shortest time between two writes of nothing but conditions of a Node.
const PAUSE: SignedDuration = SignedDuration::from_secs(10);
/// Most such writes in this time if a condition changed that mcm writes: rollouts read it.
const BURST: u32 = 10;

/// Writes of nothing but conditions of a Node: when their period began, and how many there were since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CopyPeriod {
    began: Timestamp,
    writes: u32,
}

impl CopyPeriod {
    /// The period after one more write.
    pub fn after_write(period: Option<Self>, now: Timestamp) -> Self {
        match period.filter(|period| now < period.end()) {
            Some(period) => Self { writes: period.writes.saturating_add(1), ..period },
            None => Self { began: now, writes: 1 },
        }
    }

    /// When the next write of nothing but these conditions is due, if that is later than now.
    pub fn puts_off(
        period: Option<Self>,
        old: &[NodeCondition],
        new: &[NodeCondition],
        now: Timestamp,
    ) -> Option<Timestamp> {
        let ours = |conditions: &[NodeCondition]| -> Vec<NodeCondition> {
            conditions.iter().filter(|it| NodeConditionType::parse(&it.type_).is_some()).cloned().collect()
        };
        let period = period.filter(|period| period.began <= now && now < period.end())?;
        let most = if differ(&ours(old), &ours(new)) { BURST } else { 1 };
        (period.writes >= most).then(|| period.end())
    }

    fn end(self) -> Timestamp {
        self.began.checked_add(PAUSE).unwrap_or(Timestamp::MAX)
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

/// The conditions for which a Node is not healthy, such as `Ready=Unknown (NodeStatusUnknown)`; empty if none is known.
pub(super) fn describe_bad(conditions: &[NodeCondition], watched: &[String]) -> String {
    let bad = conditions.iter().filter(|condition| !is_good(condition, watched));
    bad.map(|condition| described(condition, watched)).collect::<Vec<_>>().join(", ")
}

/// The conditions as text: abnormal ones with their reason, the others in short.
pub(super) fn describe(conditions: &[NodeCondition], watched: &[String]) -> String {
    let texts: Vec<String> = conditions.iter().map(|condition| described(condition, watched)).collect();
    format!("[{}]", texts.join(", "))
}

fn described(condition: &NodeCondition, watched: &[String]) -> String {
    let text = format!("{}={}", condition.type_, condition.status);
    match condition.reason.as_deref() {
        Some(reason) if !is_good(condition, watched) => format!("{text} ({reason})"),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn conditions(list: &[(&str, &str)]) -> Vec<NodeCondition> {
        list.iter()
            .map(|(type_, status)| NodeCondition {
                type_: (*type_).into(),
                status: (*status).into(),
                reason: Some("Because".into()),
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
        new[1].message = Some("posted".into());
        new[1].reason = Some("Other".into());
        new[1].last_heartbeat_time = Some(Timestamp::UNIX_EPOCH.into());
        assert!(!differ(&old, &new));
        let mut status = old.clone();
        status[0].status = "False".into();
        let mut reason = old.clone();
        reason[1].reason = Some("SelectedForUpdate".into());
        assert!(differ(&old, &status) && differ(&old, &reason) && differ(&old, &old[..1]));
    }

    #[test]
    fn the_description_explains_only_what_is_wrong() {
        let list = conditions(&[("Ready", "True"), ("DiskPressure", "True")]);
        assert_eq!(describe(&list, &watched()), "[Ready=True, DiskPressure=True (Because)]");
        assert_eq!(describe_bad(&list, &watched()), "DiskPressure=True (Because)");
        let list = conditions(&[("Ready", "Unknown"), ("DiskPressure", "False"), ("MemoryPressure", "True")]);
        assert_eq!(describe_bad(&list, &watched()), "Ready=Unknown (Because)");
    }
}
