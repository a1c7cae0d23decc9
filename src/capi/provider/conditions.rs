//! Conditions in the form of the API conventions. A condition is written only if it changes.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::reasons;
use crate::controllers::object::time::whole_seconds;

/// A desired condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::capi) struct Desired {
    pub is_true: bool,
    pub reason: String,
    pub message: String,
}

/// The longest message; the API server takes 32 KiB.
const LONGEST: usize = 1024;

impl Desired {
    pub(in crate::capi) fn yes(reason: &str) -> Self {
        Self { is_true: true, reason: reason.to_owned(), message: String::new() }
    }

    pub(in crate::capi) fn no(reason: &str, message: impl Into<String>) -> Self {
        Self { is_true: false, reason: reason.to_owned(), message: message.into().chars().take(LONGEST).collect() }
    }
}

/// Sets a condition. Its time is when its status last changed.
pub(in crate::capi) fn set(
    conditions: &mut Vec<Condition>,
    type_: &str,
    desired: Desired,
    generation: Option<i64>,
    now: Timestamp,
) {
    let status = if desired.is_true { "True" } else { "False" };
    let known = conditions.iter().position(|condition| condition.type_ == type_);
    let before = known.and_then(|at| conditions.get(at));
    let since = before.filter(|before| before.status == status).map(|before| before.last_transition_time.clone());
    let condition = Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: desired.reason,
        message: desired.message,
        observed_generation: generation,
        last_transition_time: since.unwrap_or_else(|| Time(whole_seconds(now))),
    };
    match known.and_then(|at| conditions.get_mut(at)) {
        Some(place) => *place = condition,
        None => conditions.push(condition),
    }
}

/// Sets the condition `Paused`; `on` is what a paused object waits for.
pub(in crate::capi) fn set_paused(
    conditions: &mut Vec<Condition>,
    on: Option<&str>,
    generation: Option<i64>,
    now: Timestamp,
) {
    let desired = match on {
        Some(on) => Desired { is_true: true, reason: reasons::PAUSED.to_owned(), message: format!("Waiting for {on}") },
        None => Desired::no(reasons::NOT_PAUSED, ""),
    };
    set(conditions, reasons::PAUSED, desired, generation, now);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// F2, F4: the same facts are the same conditions, at any time.
    #[test]
    fn a_condition_changes_only_if_what_it_says_does() {
        let mut conditions = Vec::new();
        set(&mut conditions, "Ready", Desired::no("Creating", "a"), Some(1), at(10));
        let before = conditions.clone();
        set(&mut conditions, "Ready", Desired::no("Creating", "a"), Some(1), at(20));
        assert_eq!(conditions, before);
        set(&mut conditions, "Ready", Desired::no("Failed", "b"), Some(2), at(30));
        assert_eq!(conditions[0].last_transition_time, Time(at(10)), "the status is the same");
        assert_eq!((conditions[0].reason.as_str(), conditions[0].observed_generation), ("Failed", Some(2)));
        set(&mut conditions, "Ready", Desired::yes("Provisioned"), Some(2), at(40));
        assert_eq!((conditions[0].last_transition_time.clone(), conditions[0].message.as_str()), (Time(at(40)), ""));
        assert_eq!(conditions.len(), 1);
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
