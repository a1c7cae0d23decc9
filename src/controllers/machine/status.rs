//! Builds Machine statuses, and decides whether a status is worth a write.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::NodeAddress;

pub(super) use super::conditions::stamp;
use super::{conditions, delete::progress::Progress};
use crate::{
    api::machine::{CurrentStatus, LastOperation, Machine, MachinePhase, MachineStatus, OperationState, OperationType},
    driver::Code,
};

/// How long a similar failure is not written again.
const REPEAT_AFTER: SignedDuration = SignedDuration::from_mins(30);

/// How many bytes of an error text are compared.
const COMPARED: usize = 1024;

/// The stored status; empty if none was written yet.
pub(super) fn stored(machine: &Machine) -> MachineStatus {
    machine.status.clone().unwrap_or_default()
}

/// An operation that did not fail.
pub(super) fn operation(
    type_: OperationType,
    state: OperationState,
    description: impl Into<String>,
    now: Timestamp,
) -> LastOperation {
    LastOperation {
        description: description.into(),
        error_code: String::new(),
        last_update_time: Some(stamp(now)),
        state: Some(state),
        type_: Some(type_),
    }
}

/// A failed operation, with the code of the driver's error.
pub(super) fn failed_operation(
    type_: OperationType,
    code: Option<Code>,
    description: impl Into<String>,
    now: Timestamp,
) -> LastOperation {
    LastOperation {
        error_code: code.map(|code| code.to_string()).unwrap_or_default(),
        ..operation(type_, OperationState::Failed, description, now)
    }
}

/// Sets the phase. The time is kept if the phase does not change.
pub(super) fn enter(status: &mut MachineStatus, phase: MachinePhase, timeout_active: bool, now: Timestamp) {
    let current = &status.current_status;
    let since = current.last_update_time.clone().filter(|_| current.phase == phase);
    status.current_status = CurrentStatus {
        phase,
        timeout_active,
        last_update_time: Some(since.unwrap_or_else(|| stamp(now))),
        preserve_expiry_time: current.preserve_expiry_time.clone(),
    };
}

/// Adds addresses and the host name to the stored ones, sorted.
pub(super) fn merge_addresses(status: &mut MachineStatus, seen: &[NodeAddress], node_name: &str) {
    let host = NodeAddress { type_: "Hostname".to_owned(), address: node_name.to_owned() };
    let all = &mut status.addresses;
    all.extend(seen.iter().cloned());
    if !node_name.is_empty() {
        all.push(host);
    }
    all.sort_by(|a, b| (&a.type_, &a.address).cmp(&(&b.type_, &b.address)));
    all.dedup();
}

/// Whether `new` contains more than `old`: anything but times and heartbeats changed. A repeated failure with a similar
/// text is written again after half an hour.
pub(super) fn is_news(old: &MachineStatus, new: &MachineStatus, now: Timestamp) -> bool {
    let facts = |status: &MachineStatus| {
        let (operation, current) = (&status.last_operation, &status.current_status);
        (
            (operation.type_.clone(), operation.state.clone(), operation.error_code.clone()),
            (current.phase.clone(), current.timeout_active, current.preserve_expiry_time.clone()),
            (status.last_known_state.clone(), status.addresses.clone()),
        )
    };
    facts(old) != facts(new)
        || conditions::differ(&old.conditions, &new.conditions)
        || is_new_text(&old.last_operation, &new.last_operation, now)
}

fn is_new_text(old: &LastOperation, new: &LastOperation, now: Timestamp) -> bool {
    if new.state != Some(OperationState::Failed) {
        return old.description != new.description;
    }
    if old.last_update_time == new.last_update_time && old.description == new.description {
        return false;
    }
    let told_at = old.last_update_time.as_ref().map_or(Timestamp::MIN, |time| time.0);
    now.duration_since(told_at) >= REPEAT_AFTER
        || Progress::of_text(&old.description) != Progress::of_text(&new.description)
        || !is_similar(&old.description, &new.description)
}

/// Whether two error texts differ only in details such as request IDs and times. The measure is the reference's: one
/// minus the edit distance over the mean length, with a limit of 0.75. Only the beginning of long texts is compared.
fn is_similar(a: &str, b: &str) -> bool {
    let start = |text: &str| text.bytes().take(COMPARED).collect::<Vec<u8>>();
    let (a, b) = (start(a), start(b));
    a == b || 8 * edit_distance(&a, &b) < a.len() + b.len()
}

fn edit_distance(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (y, cell) in b.iter().zip(row.iter_mut().skip(1)) {
            let here = (diagonal + usize::from(x != y)).min(left + 1).min(*cell + 1);
            diagonal = *cell;
            *cell = here;
            left = here;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use rstest::rstest;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn failure(text: &str, second: i64) -> MachineStatus {
        let last_operation = failed_operation(OperationType::Create, Some(Code::Internal), text, at(second));
        let mut status = MachineStatus { last_operation, ..MachineStatus::default() };
        enter(&mut status, MachinePhase::CrashLoopBackOff, false, at(0));
        status
    }

    #[rstest]
    #[case("", "", 0)]
    #[case("kitten", "sitting", 3)]
    #[case("abc", "", 3)]
    #[case("", "abc", 3)]
    #[case("flaw", "lawn", 2)]
    fn distance(#[case] a: &str, #[case] b: &str, #[case] expected: usize) {
        assert_eq!(edit_distance(a.as_bytes(), b.as_bytes()), expected);
    }

    #[rstest]
    #[case::same("no such image, request 12345", 60, false)]
    #[case::other_request_number("no such image, request 67890", 60, false)]
    #[case::other_error("not allowed to create instances", 60, true)]
    #[case::told_again_after_half_an_hour("no such image, request 12345", 1800, true)]
    fn a_repeated_failure_is_not_written_per_retry(#[case] text: &str, #[case] second: i64, #[case] expected: bool) {
        let old = failure("no such image, request 12345", 0);
        assert_eq!(is_news(&old, &failure(text, second), at(second)), expected);
    }

    #[test]
    fn code_state_phase_and_driver_state_are_news_even_with_the_same_text() {
        let old = failure("text", 0);
        let changes: [fn(&mut MachineStatus); 4] = [
            |status| status.last_operation.error_code = "ResourceExhausted".to_owned(),
            |status| status.last_operation.state = Some(OperationState::Processing),
            |status| status.current_status.phase = MachinePhase::Failed,
            |status| status.last_known_state = "resume here".to_owned(),
        ];
        for change in changes {
            let mut new = old.clone();
            change(&mut new);
            assert!(is_news(&old, &new, at(1)));
        }
        assert!(!is_news(&old, &old, at(9999)), "nothing to tell");
    }

    #[test]
    fn another_step_in_similar_words_and_the_end_of_preservation_are_news() {
        use super::super::delete::progress::Progress::{DeleteNode, DeleteVm};
        let story = "the same long story about what failed and why it will be tried again, word for word. ";
        let (old, new) = (failure(&DeleteVm.after(story), 0), failure(&DeleteNode.after(story), 60));
        assert!(is_news(&old, &new, at(60)), "a crash would go back to the former step");
        let mut preserved = old.clone();
        preserved.current_status.preserve_expiry_time = Some(Time(at(9)));
        assert!(is_news(&preserved, &old, at(1)));
    }

    #[test]
    fn the_time_of_a_phase_is_when_it_was_entered() {
        let mut status = failure("text", 0);
        enter(&mut status, MachinePhase::CrashLoopBackOff, false, at(50));
        assert_eq!(status.current_status.last_update_time, Some(Time(at(0))));
        enter(&mut status, MachinePhase::Failed, false, at(50));
        assert_eq!(status.current_status.last_update_time, Some(Time(at(50))));
    }

    #[test]
    fn addresses_only_grow_and_have_an_order() {
        let address = |type_: &str, address: &str| NodeAddress { type_: type_.to_owned(), address: address.to_owned() };
        let mut status =
            MachineStatus { addresses: vec![address("InternalIP", "10.0.0.2")], ..MachineStatus::default() };
        merge_addresses(&mut status, &[address("InternalIP", "10.0.0.1"), address("InternalIP", "10.0.0.2")], "n");
        let texts: Vec<&str> = status.addresses.iter().map(|address| address.address.as_str()).collect();
        assert_eq!(texts, ["n", "10.0.0.1", "10.0.0.2"]);
    }
}
