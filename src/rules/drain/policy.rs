//! When a drain evicts, deletes and is forced; and how a Node is prepared before its pods are listed.

use jiff::{SignedDuration, Timestamp};

use mcm_api::{
    node::{Node, NodeCondition},
    reasons::NodeConditionType,
};

/// One eviction period of the reference, in which `maxEvictRetries` is counted.
const EVICTION_PERIOD: i64 = 20;
/// How long a Node must be broken before its drain is forced.
const BROKEN_FOR: SignedDuration = SignedDuration::from_mins(5);

/// Mode of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainMode {
    /// Evict, respect budgets and grace periods, wait for every pod.
    Normal,
    /// Delete all pods with grace period 0 and wait for nothing.
    Forced,
}

/// When one drain evicts, when it deletes, and when it is forced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainPolicy {
    /// How long a pod is evicted, from its first eviction, before it is deleted.
    pub evict_for: SignedDuration,
    /// From this time the drain is forced.
    pub deadline: Timestamp,
    /// From this time the Node counts as broken, so that its pods are not awaited; `None` if it is healthy.
    pub broken_from: Option<Timestamp>,
    /// The label `force-deletion` is set, or `force-drain` if the Machine stays.
    pub is_demanded: bool,
}

impl DrainPolicy {
    /// `maxEvictRetries` as a duration.
    pub fn evict_for(max_evict_retries: i32) -> SignedDuration {
        SignedDuration::from_secs(i64::from(max_evict_retries.max(0)) * EVICTION_PERIOD)
    }

    pub fn mode(&self, now: Timestamp) -> DrainMode {
        if self.forced_from().is_none_or(|from| now >= from) { DrainMode::Forced } else { DrainMode::Normal }
    }

    pub fn is_forced(&self, now: Timestamp) -> bool {
        self.mode(now) == DrainMode::Forced
    }

    /// From when the drain is forced; `None` if the label forces it now.
    pub fn forced_from(&self) -> Option<Timestamp> {
        let broken_from = self.broken_from.unwrap_or(Timestamp::MAX);
        (!self.is_demanded).then(|| self.deadline.min(broken_from))
    }

    /// The earlier of a time and the time at which the drain is forced.
    pub fn at_most(&self, time: Timestamp) -> Timestamp {
        self.forced_from().map_or(time, |from| time.min(from))
    }
}

/// The value of the label `force-deletion` is true for Go's `strconv.ParseBool`.
pub fn is_go_true(text: &str) -> bool {
    matches!(text, "1" | "t" | "T" | "TRUE" | "true" | "True")
}

/// From when a Node counts as broken: not ready or with a read-only filesystem for five minutes. `None` if it is
/// healthy.
pub fn broken_from(conditions: &[NodeCondition]) -> Option<Timestamp> {
    conditions
        .iter()
        .filter(|condition| match condition.type_.as_str() {
            "Ready" => condition.status != "True",
            "ReadonlyFilesystem" => condition.status != "False",
            _ => false,
        })
        .filter_map(|condition| Timestamp::from(condition.last_transition_time?).checked_add(BROKEN_FOR).ok())
        .min()
}

/// A step that prepares a Node before its pods are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainPreparation {
    /// Set the condition `Terminating`, which other controllers read.
    Announce,
    /// Set `spec.unschedulable`.
    Cordon,
}

/// The preparations that a Node still needs, in order.
pub fn preparations(node: &Node) -> impl Iterator<Item = DrainPreparation> {
    let type_ = NodeConditionType::Terminating.as_str();
    let is_announced = node.status.conditions.iter().any(|it| it.type_ == type_ && it.status == "True");
    let announce = (!is_announced).then_some(DrainPreparation::Announce);
    let cordon = (!node.spec.unschedulable).then_some(DrainPreparation::Cordon);
    announce.into_iter().chain(cordon)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn condition((type_, status): (&str, &str), since: Option<i64>) -> NodeCondition {
        NodeCondition {
            type_: type_.into(),
            status: status.into(),
            last_transition_time: since.map(|second| Timestamp::from_second(second).unwrap().into()),
            ..NodeCondition::default()
        }
    }

    #[rstest]
    #[case::not_ready(("Ready", "Unknown"), true)]
    #[case::ready(("Ready", "True"), false)]
    #[case::read_only(("ReadonlyFilesystem", "True"), true)]
    #[case::writable(("ReadonlyFilesystem", "False"), false)]
    #[case::other(("DiskPressure", "True"), false)]
    fn broken_after_five_minutes(#[case] one: (&str, &str), #[case] expected: bool) {
        assert_eq!(broken_from(&[condition(one, None)]), None, "since when is not known");
        let from = broken_from(&[condition(one, Some(0))]);
        assert_eq!(from.map(Timestamp::as_second), expected.then_some(300));
    }

    #[test]
    fn of_two_broken_conditions_the_earlier_one_counts() {
        let list = [condition(("Ready", "False"), Some(100)), condition(("ReadonlyFilesystem", "True"), Some(40))];
        assert_eq!(broken_from(&list).map(Timestamp::as_second), Some(340));
    }

    #[test]
    fn retries_become_a_time() {
        assert_eq!(DrainPolicy::evict_for(3).as_secs(), 60);
        assert_eq!(DrainPolicy::evict_for(-1).as_secs(), 0);
    }
}
