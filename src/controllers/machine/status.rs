//! Builds Machine statuses, and decides whether a status is worth a write.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::NodeAddress;

use super::{conditions, progress::DeletionProgress};
use mcm_api::machine::{
    CurrentStatus, LastOperation, Machine, MachinePhase, MachineStatus, OperationState, OperationType,
};
use mcm_driver::Code;

pub(super) use super::conditions::stamp;

/// How long a similar failure is not written again.
const REPEAT_AFTER: SignedDuration = SignedDuration::from_mins(30);

/// Longest description, in bytes. Sets and deployments repeat the descriptions of many Machines, and an object has 1.5 MiB.
const LONGEST: usize = 4 << 10;
/// As much of it is kept at the end.
const TAIL: usize = 512;

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
        description: fitting(description.into()),
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

/// `new` contains more than `old`: anything but times and heartbeats changed. A repeated failure with a similar
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
        || DeletionProgress::of_text(&old.description) != DeletionProgress::of_text(&new.description)
        || !is_similar(&old.description, &new.description)
}

/// Two error texts differ only in details such as request IDs and times: in words with digits, and in less than a
/// quarter of the others. The limit is the reference's.
fn is_similar(a: &str, b: &str) -> bool {
    let is_detail = |word: Option<&str>| word.is_some_and(|word| word.bytes().any(|c| c.is_ascii_digit()));
    let (mut words, mut differ) = (0_usize, 0_usize);
    let (mut a, mut b) = (a.split_whitespace(), b.split_whitespace());
    loop {
        let (one, other) = (a.next(), b.next());
        if one.is_none() && other.is_none() {
            return differ * 4 < words.max(1);
        }
        words += 1;
        differ += usize::from(one != other && !(is_detail(one) && is_detail(other)));
    }
}

/// A description that fits into a status. The end stays, because it names the next step.
fn fitting(text: String) -> String {
    if text.len() <= LONGEST {
        return text;
    }
    let (head, tail) = (text.floor_char_boundary(LONGEST - TAIL), text.ceil_char_boundary(text.len() - TAIL));
    match (text.get(..head), text.get(tail..)) {
        (Some(head), Some(tail)) => format!("{head}… {tail}"),
        _ => text,
    }
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
    #[case::nothing("", "", true)]
    #[case::request_id("cannot create, request 0a1b", "cannot create, request ff12", true)]
    #[case::one_word_of_many("pod web-a is not evicted in time", "pod web-b is not evicted in time", true)]
    #[case::other_words("no such image", "not allowed here", false)]
    #[case::more_words("no such image", "no such image in this region of the cloud", false)]
    #[case::a_detail_and_a_word("request 1", "request denied", false)]
    fn texts_are_compared_by_words_without_details(#[case] a: &str, #[case] b: &str, #[case] expected: bool) {
        assert_eq!((is_similar(a, b), is_similar(b, a)), (expected, expected));
    }

    #[test]
    fn a_long_description_is_cut_in_the_middle() {
        let text = format!("begin {} {}", "ä".repeat(1 << 20), DeletionProgress::Drain.after("story. "));
        let cut = failed_operation(OperationType::Delete, None, text, at(0)).description;
        assert!(cut.len() < LONGEST + 10 && cut.starts_with("begin "), "{}", cut.len());
        assert_eq!(DeletionProgress::of_text(&cut), DeletionProgress::Drain);
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
        use super::super::progress::DeletionProgress::{DeleteNode, DeleteVm};
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
