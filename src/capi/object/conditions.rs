//! Conditions in the form of the API conventions. A condition is written only if it changes.

use std::fmt;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use mcm_api::reasons::{EventReason, PauseReason, ProviderCondition};
use mcm_controllers::object::condition::{self, ConditionRefresh};
use mcm_rules::plan::Event;

/// A desired condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConditionVerdict {
    status: &'static str,
    pub reason: String,
    pub message: String,
}

const TRUE: &str = "True";
const FALSE: &str = "False";
const UNKNOWN: &str = "Unknown";

/// The longest message; the API server takes 32 KiB.
const LONGEST: usize = 1024;

impl ConditionVerdict {
    pub(crate) fn yes(reason: impl AsRef<str>) -> Self {
        Self::new(TRUE, reason, "")
    }

    pub(crate) fn no(reason: impl AsRef<str>, message: impl Into<String>) -> Self {
        Self::new(FALSE, reason, message)
    }

    pub(crate) fn unknown(reason: impl AsRef<str>, message: impl Into<String>) -> Self {
        Self::new(UNKNOWN, reason, message)
    }

    /// True or false, both with a message.
    pub(crate) fn whether(is_true: bool, reason: impl AsRef<str>, message: impl Into<String>) -> Self {
        Self::new(if is_true { TRUE } else { FALSE }, reason, message)
    }

    fn new(status: &'static str, reason: impl AsRef<str>, message: impl Into<String>) -> Self {
        Self { status, reason: reason.as_ref().to_owned(), message: message.into().chars().take(LONGEST).collect() }
    }

    pub(crate) fn is_true(&self) -> bool {
        self.status == TRUE
    }
}

/// Sets a condition. Its time is when its status last changed.
pub(crate) fn set(
    conditions: &mut Vec<Condition>,
    type_: impl AsRef<str>,
    desired: ConditionVerdict,
    generation: Option<i64>,
    now: Timestamp,
) {
    let (type_, ConditionVerdict { status, reason, message }) = (type_.as_ref(), desired);
    let desired = condition::DesiredCondition::new(status, &reason, message).refreshed(ConditionRefresh::OnMessage);
    condition::set(conditions, type_, Some(desired), now);
    if let Some(set) = condition::find_mut(conditions, type_) {
        set.observed_generation = generation;
    }
}

/// Sets the condition `Paused`; `on` is what a paused object waits for.
pub(crate) fn set_paused(conditions: &mut Vec<Condition>, on: Option<&str>, generation: Option<i64>, now: Timestamp) {
    let desired = match on {
        Some(on) => ConditionVerdict::whether(true, PauseReason::Paused, format!("Waiting for {on}")),
        None => ConditionVerdict::no(PauseReason::NotPaused, ""),
    };
    set(conditions, ProviderCondition::Paused, desired, generation, now);
}

/// Conditions as plans print them.
pub(crate) fn told(f: &mut fmt::Formatter<'_>, conditions: &[Condition]) -> fmt::Result {
    for condition in conditions {
        write!(f, "\n    {}={} {}", condition.type_, condition.status, condition.reason)?;
        if !condition.message.is_empty() {
            write!(f, ": {}", condition.message)?;
        }
    }
    Ok(())
}

/// Reasons for which `Ready` is not True during normal operation.
const PROGRESS: [EventReason; 12] = [
    EventReason::WaitingForOwner,
    EventReason::WaitingForCluster,
    EventReason::WaitingForMCMObjects,
    EventReason::WaitingForClusterInfrastructureReady,
    EventReason::WaitingForClusterNetwork,
    EventReason::WaitingForBootstrapData,
    EventReason::WaitingForControlPlaneEndpoint,
    EventReason::NotProvisioned,
    EventReason::Creating,
    EventReason::Registering,
    EventReason::RollingOut,
    EventReason::Deleting,
];

/// The event for another status or reason of `Ready`. The codes of clouds are in its text.
pub(crate) fn event(before: &[Condition], after: &[Condition]) -> Option<Event> {
    let ready =
        |all: &[Condition]| all.iter().find(|condition| condition.type_ == ProviderCondition::Ready.as_str()).cloned();
    let next = ready(after)?;
    if ready(before).is_some_and(|before| (before.status, before.reason) == (next.status.clone(), next.reason.clone()))
    {
        return None;
    }
    let known = EventReason::parse(&next.reason);
    let text = if next.message.is_empty() { format!("Ready is {}", next.status) } else { next.message };
    let text = if known.is_some() { text } else { format!("{}: {text}", next.reason) };
    let reason = known.unwrap_or(EventReason::Failed);
    let is_normal = next.status == TRUE || PROGRESS.contains(&reason);
    Some(if is_normal { Event::normal(reason, text) } else { Event::warning(reason, text) })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use rstest::rstest;

    use super::*;
    use mcm_api::reasons::ProviderReason;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// F2, F4: the same facts lead to the same conditions, at any time.
    #[test]
    fn a_condition_changes_only_if_what_it_says_does() {
        let mut conditions = Vec::new();
        set(&mut conditions, "Ready", ConditionVerdict::no("Creating", "a"), Some(1), at(10));
        let before = conditions.clone();
        set(&mut conditions, "Ready", ConditionVerdict::no("Creating", "a"), Some(1), at(20));
        assert_eq!(conditions, before);
        set(&mut conditions, "Ready", ConditionVerdict::no("Failed", "b"), Some(2), at(30));
        assert_eq!(conditions[0].last_transition_time, Time(at(10)), "the status is the same");
        assert_eq!((conditions[0].reason.as_str(), conditions[0].observed_generation), ("Failed", Some(2)));
        set(&mut conditions, "Ready", ConditionVerdict::yes("Provisioned"), Some(2), at(40));
        assert_eq!((conditions[0].last_transition_time.clone(), conditions[0].message.as_str()), (Time(at(40)), ""));
        assert_eq!(conditions.len(), 1);
    }

    /// One event for each change that a user would look for, with the reason of the condition.
    #[rstest]
    #[case::first(None, ConditionVerdict::no("Creating", "a"), Some((false, EventReason::Creating, "a")))]
    #[case::other_text(Some(ConditionVerdict::no("Creating", "a")), ConditionVerdict::no("Creating", "b"), None)]
    #[case::failure(Some(ConditionVerdict::no("Creating", "a")), ConditionVerdict::no("NameTaken", "b"), Some((true, EventReason::NameTaken, "b")))]
    #[case::code_of_a_cloud(None, ConditionVerdict::no("ResourceExhausted", "full"), Some((true, EventReason::Failed, "ResourceExhausted: full")))]
    #[case::left_alone(Some(ConditionVerdict::yes("Provisioned")), ConditionVerdict::unknown("WaitingForOwner", "b"), Some((false, EventReason::WaitingForOwner, "b")))]
    #[case::success(Some(ConditionVerdict::no("NameTaken", "b")), ConditionVerdict::yes("Provisioned"), Some((false, EventReason::Provisioned, "Ready is True")))]
    fn another_reason_of_ready_is_an_event(
        #[case] before: Option<ConditionVerdict>,
        #[case] next: ConditionVerdict,
        #[case] expected: Option<(bool, EventReason, &str)>,
    ) {
        let conditions = |desired: Option<ConditionVerdict>| {
            let mut all = Vec::new();
            desired.into_iter().for_each(|desired| set(&mut all, "Ready", desired, None, at(0)));
            all
        };
        let event = event(&conditions(before), &conditions(Some(next)));
        let said = event.as_ref().map(|event| (event.warning, event.reason, event.message.as_str()));
        assert_eq!(said, expected);
    }

    #[test]
    fn the_condition_ready_can_be_unknown() {
        let mut conditions = Vec::new();
        set(
            &mut conditions,
            "Ready",
            ConditionVerdict::unknown(ProviderReason::WaitingForOwner, "Waiting for it"),
            None,
            at(0),
        );
        assert_eq!((conditions[0].status.as_str(), conditions[0].reason.as_str()), ("Unknown", "WaitingForOwner"));
        let event = event(&[], &conditions).unwrap();
        assert_eq!((event.warning, event.reason), (false, EventReason::WaitingForOwner));
    }

    /// Z2.
    #[test]
    fn the_condition_paused_is_true_with_the_reason_paused_and_otherwise_false_with_not_paused() {
        let mut conditions = Vec::new();
        set_paused(&mut conditions, None, None, at(1));
        assert_eq!((conditions[0].status.as_str(), conditions[0].reason.as_str()), ("False", "NotPaused"));
        set_paused(&mut conditions, Some("Cluster c to be unpaused"), None, at(2));
        assert_eq!((conditions[0].status.as_str(), conditions[0].reason.as_str()), ("True", "Paused"));
        assert_eq!(conditions[0].message, "Waiting for Cluster c to be unpaused");
    }
}
