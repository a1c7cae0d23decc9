//! Conditions of all kinds. A condition is written only if it changes.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition as MetaCondition, Time};

use super::{summary::LONGEST_TEXT, text::cut, time::whole_seconds};
use mcm_api::{
    machine::{MachineDeploymentCondition, MachineSetCondition},
    node::NodeCondition,
    reasons::{ConditionReason, ConditionType, EventReason},
};
use mcm_rules::plan::{self, Event, ReconcileHold, UndoneWrite};

/// A desired condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredCondition {
    pub status: String,
    pub reason: String,
    pub message: String,
    pub refresh: ConditionRefresh,
}

/// When a condition that already has the desired status and reason is written again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionRefresh {
    /// Never: the error text can differ at each attempt.
    Never,
    /// If the message differs.
    OnMessage,
    /// Always: its time is the time of the last progress.
    Always,
}

impl DesiredCondition {
    pub(crate) fn is_true(reason: ConditionReason, message: impl Into<String>) -> Self {
        Self::new("True", reason.as_str(), message)
    }

    pub(crate) fn is_false(reason: ConditionReason, message: impl Into<String>) -> Self {
        Self::new("False", reason.as_str(), message)
    }

    pub(crate) fn is_unknown(reason: ConditionReason, message: impl Into<String>) -> Self {
        Self::new("Unknown", reason.as_str(), message)
    }

    pub fn new(status: &str, reason: &str, message: impl Into<String>) -> Self {
        let (status, reason) = (status.to_owned(), reason.to_owned());
        Self { status, reason, message: message.into(), refresh: ConditionRefresh::Never }
    }

    pub fn refreshed(self, refresh: ConditionRefresh) -> Self {
        Self { refresh, ..self }
    }

    fn is_said_by(&self, stored: &ConditionView<'_>) -> bool {
        let same = stored.status == self.status && stored.reason == self.reason;
        same && match self.refresh {
            ConditionRefresh::Never => true,
            ConditionRefresh::OnMessage => stored.message == self.message,
            ConditionRefresh::Always => false,
        }
    }
}

/// The condition that confirms a hold.
pub(crate) fn paused(hold: Option<&ReconcileHold>) -> Option<DesiredCondition> {
    let hold = hold.filter(|hold| hold.is_confirmed)?;
    Some(DesiredCondition::is_true(paused_because(hold), format!("waiting for {}", hold.on)))
}

/// The reason and the event of a status write that changes the condition `InSync`.
pub struct ShownWrites {
    pub reason: String,
    pub event: Option<Event>,
}

/// Sets the condition `InSync` to `False` with the writes that are undone, or removes it; `None` if it stays.
pub fn show_undone<C: StoredCondition>(
    conditions: &mut Vec<C>,
    undone: &[UndoneWrite],
    now: Timestamp,
) -> Option<ShownWrites> {
    let was_shown = find(conditions, ConditionType::InSync).is_some();
    let text = plan::text_of(undone).map(|text| format!("waiting for {text}"));
    let desired =
        text.as_ref().map(|text| DesiredCondition::is_false(ConditionReason::WriteUndone, cut(text, LONGEST_TEXT)));
    let is_set = set(conditions, ConditionType::InSync, desired, now);
    let reason = match text {
        Some(_) => "the condition shows which writes are undone",
        None => "no write is undone any more",
    };
    let event = text.filter(|_| is_set && !was_shown).map(|text| Event::warning(EventReason::WriteUndone, text));
    (is_set || was_shown && undone.is_empty()).then(|| ShownWrites { reason: reason.to_owned(), event })
}

/// The reason of the condition that confirms a hold.
pub(crate) const fn paused_because(hold: &ReconcileHold) -> ConditionReason {
    if hold.is_kept { ConditionReason::VmKept } else { ConditionReason::Migrating }
}

/// The condition type of a kind.
pub trait StoredCondition: Sized {
    fn view(&self) -> ConditionView<'_>;
    /// `since` is when the status last changed.
    fn build(type_: &str, desired: DesiredCondition, since: Time, now: Time) -> Self;
}

/// The parts of a stored condition. Absent texts are empty.
pub struct ConditionView<'a> {
    pub type_: &'a str,
    pub status: &'a str,
    pub reason: &'a str,
    pub message: &'a str,
    pub since: Option<Time>,
}

/// The condition of a type.
pub fn find<C: StoredCondition>(conditions: &[C], type_: impl AsRef<str>) -> Option<&C> {
    conditions.iter().find(|condition| condition.view().type_ == type_.as_ref())
}

/// The same, to be changed.
pub fn find_mut<C: StoredCondition>(conditions: &mut [C], type_: impl AsRef<str>) -> Option<&mut C> {
    conditions.iter_mut().find(|condition| condition.view().type_ == type_.as_ref())
}

/// Removes the condition of a type.
pub(crate) fn remove<C: StoredCondition>(conditions: &mut Vec<C>, type_: impl AsRef<str>) {
    conditions.retain(|condition| condition.view().type_ != type_.as_ref());
}

/// Sets the condition of a type, or removes it. True if it was set and is different from before.
pub fn set<C: StoredCondition>(
    conditions: &mut Vec<C>,
    type_: impl AsRef<str>,
    desired: Option<DesiredCondition>,
    now: Timestamp,
) -> bool {
    let Some(desired) = desired else {
        remove(conditions, type_);
        return false;
    };
    let now = Time(whole_seconds(now));
    let Some(current) = conditions.iter_mut().find(|condition| condition.view().type_ == type_.as_ref()) else {
        conditions.push(C::build(type_.as_ref(), desired, now.clone(), now));
        return true;
    };
    let before = current.view();
    if desired.is_said_by(&before) {
        return false;
    }
    let since = before.since.filter(|_| before.status == desired.status);
    *current = C::build(type_.as_ref(), desired, since.unwrap_or_else(|| now.clone()), now);
    true
}

macro_rules! stored {
    ($kind:ident, $now:ident, { $($more:tt)* }) => {
        impl StoredCondition for $kind {
            fn view(&self) -> ConditionView<'_> {
                ConditionView {
                    type_: &self.type_,
                    status: &self.status,
                    reason: &self.reason,
                    message: &self.message,
                    since: self.last_transition_time.clone(),
                }
            }
            fn build(type_: &str, desired: DesiredCondition, since: Time, $now: Time) -> Self {
                Self {
                    type_: type_.to_owned(),
                    status: desired.status,
                    last_transition_time: Some(since),
                    reason: desired.reason,
                    message: desired.message,
                    $($more)*
                }
            }
        }
    };
}
stored!(MachineSetCondition, _now, {});
stored!(MachineDeploymentCondition, now, { last_update_time: Some(now) });

impl StoredCondition for NodeCondition {
    fn view(&self) -> ConditionView<'_> {
        ConditionView {
            type_: &self.type_,
            status: &self.status,
            reason: self.reason.as_deref().unwrap_or_default(),
            message: self.message.as_deref().unwrap_or_default(),
            since: self.last_transition_time.map(Time::from),
        }
    }
    fn build(type_: &str, desired: DesiredCondition, since: Time, _now: Time) -> Self {
        Self {
            type_: type_.into(),
            status: desired.status.into(),
            last_transition_time: Some(since.into()),
            reason: Some(desired.reason.into()),
            message: Some(desired.message.into()),
            last_heartbeat_time: None,
        }
    }
}

impl StoredCondition for MetaCondition {
    fn view(&self) -> ConditionView<'_> {
        ConditionView {
            type_: &self.type_,
            status: &self.status,
            reason: &self.reason,
            message: &self.message,
            since: Some(self.last_transition_time.clone()),
        }
    }
    fn build(type_: &str, desired: DesiredCondition, since: Time, _now: Time) -> Self {
        Self {
            type_: type_.to_owned(),
            status: desired.status,
            reason: desired.reason,
            message: desired.message,
            last_transition_time: since,
            observed_generation: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mcm_api::reasons::ConditionType;

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
        let set =
            |conditions: &mut Vec<_>, desired, second| set(conditions, ConditionType::Progressing, desired, at(second));
        let updated = || DesiredCondition::is_true(ConditionReason::MachineSetUpdated, "some text");
        assert!(set(&mut conditions, Some(updated()), 1));
        assert_eq!(times(&conditions), (1, 1));
        let other_text = DesiredCondition { message: "other text".to_owned(), ..updated() };
        assert!(!set(&mut conditions, Some(other_text.clone()), 2), "same status and reason");
        assert_eq!((times(&conditions), conditions[0].message.as_str()), ((1, 1), "some text"));
        assert!(
            set(&mut conditions, Some(other_text.clone().refreshed(ConditionRefresh::OnMessage)), 3),
            "another message"
        );
        assert!(!set(&mut conditions, Some(other_text.refreshed(ConditionRefresh::OnMessage)), 4), "the same message");
        assert_eq!(times(&conditions), (3, 1));
        assert!(set(&mut conditions, Some(updated().refreshed(ConditionRefresh::Always)), 5));
        assert_eq!(times(&conditions), (5, 1), "confirmed");
        set(&mut conditions, Some(DesiredCondition::is_true(ConditionReason::NewMachineSetAvailable, "")), 6);
        assert_eq!(times(&conditions), (6, 1), "other reason, same status");
        set(&mut conditions, Some(DesiredCondition::is_false(ConditionReason::ProgressDeadlineExceeded, "")), 7);
        assert_eq!(times(&conditions), (7, 7), "other status");
        assert!(!set(&mut conditions, None, 8));
        assert!(conditions.is_empty());
    }

    #[test]
    fn times_are_whole_seconds_as_the_api_stores_them() {
        let mut conditions: Vec<MachineSetCondition> = Vec::new();
        let now = "2026-01-01T00:00:00.75Z".parse().unwrap();
        set(
            &mut conditions,
            ConditionType::Invalid,
            Some(DesiredCondition::is_true(ConditionReason::InvalidSpec, "")),
            now,
        );
        assert_eq!(conditions[0].last_transition_time.as_ref().unwrap().0.to_string(), "2026-01-01T00:00:00Z");
    }
}
