//! Setting conditions: nothing is written that says the same again.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::{
    machine::MachineDeploymentCondition,
    reasons::{ConditionReason, ConditionType},
};

/// What a condition says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reading {
    pub status: String,
    pub reason: String,
    pub message: String,
    /// Said anew, even if it is the same as before.
    pub confirmed: bool,
}

impl Reading {
    pub(super) fn is_true(reason: ConditionReason, message: impl Into<String>) -> Self {
        Self::new("True", reason, message)
    }

    pub(super) fn is_false(reason: ConditionReason, message: impl Into<String>) -> Self {
        Self::new("False", reason, message)
    }

    pub(super) fn is_unknown(reason: ConditionReason, message: impl Into<String>) -> Self {
        Self::new("Unknown", reason, message)
    }

    /// Updates the time even if nothing else differs.
    pub(super) fn confirmed(self) -> Self {
        Self { confirmed: true, ..self }
    }

    fn new(status: &str, reason: ConditionReason, message: impl Into<String>) -> Self {
        Self {
            status: status.to_owned(),
            reason: reason.as_str().to_owned(),
            message: message.into(),
            confirmed: false,
        }
    }
}

/// The condition of a type.
pub(super) fn find(
    conditions: &[MachineDeploymentCondition],
    type_: ConditionType,
) -> Option<&MachineDeploymentCondition> {
    conditions.iter().find(|condition| condition.type_ == type_.as_str())
}

/// Removes the condition of a type.
pub(super) fn remove(conditions: &mut Vec<MachineDeploymentCondition>, type_: ConditionType) {
    conditions.retain(|condition| condition.type_ != type_.as_str());
}

/// Sets a condition, unless it has this status and reason already. The time of transition is that of the status.
pub(super) fn set(
    conditions: &mut Vec<MachineDeploymentCondition>,
    type_: ConditionType,
    reading: Reading,
    now: Timestamp,
) {
    let Reading { status, reason, message, confirmed } = reading;
    let before = conditions.iter().position(|condition| condition.type_ == type_.as_str());
    let before = before.and_then(|index| conditions.get_mut(index));
    if let Some(before) = &before
        && before.status == status
        && before.reason == reason
        && !confirmed
    {
        return;
    }
    let kept = before.as_ref().filter(|before| before.status == status);
    let last_transition_time = kept.and_then(|before| before.last_transition_time.clone()).or(Some(Time(now)));
    let condition = MachineDeploymentCondition {
        type_: type_.as_str().to_owned(),
        status,
        last_update_time: Some(Time(now)),
        last_transition_time,
        reason,
        message,
    };
    match before {
        Some(before) => *before = condition,
        None => conditions.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn times(conditions: &[MachineDeploymentCondition]) -> (i64, i64) {
        let seconds = |time: &Option<Time>| time.as_ref().unwrap().0.as_second();
        (seconds(&conditions[0].last_update_time), seconds(&conditions[0].last_transition_time))
    }

    #[test]
    fn times_follow_status_and_reason() {
        let mut conditions = Vec::new();
        let type_ = ConditionType::Progressing;
        let updated = || Reading::is_true(ConditionReason::MachineSetUpdated, "some text");
        set(&mut conditions, type_, updated(), at(1));
        assert_eq!(times(&conditions), (1, 1));
        set(&mut conditions, type_, Reading { message: "other text".to_owned(), ..updated() }, at(2));
        assert_eq!(
            (times(&conditions), conditions[0].message.as_str()),
            ((1, 1), "some text"),
            "same status and reason"
        );
        set(&mut conditions, type_, updated().confirmed(), at(3));
        assert_eq!(times(&conditions), (3, 1), "confirmed");
        set(&mut conditions, type_, Reading::is_true(ConditionReason::NewMachineSetAvailable, ""), at(4));
        assert_eq!(times(&conditions), (4, 1), "other reason, same status");
        set(&mut conditions, type_, Reading::is_false(ConditionReason::ProgressDeadlineExceeded, ""), at(5));
        assert_eq!(times(&conditions), (5, 5), "other status");
        remove(&mut conditions, type_);
        assert!(conditions.is_empty());
    }
}
