//! When a failed driver call is retried.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::{
    memory::{CallFailure, VmCall},
    policy::{MachinePolicy, after},
};
use mcm_api::backoff::Backoff;
use mcm_driver::Code;

/// The reference's fixed periods; here they are upper bounds of an exponential back-off.
const SHORT: SignedDuration = SignedDuration::from_secs(5);
const MEDIUM: SignedDuration = SignedDuration::from_mins(3);
const LONG: SignedDuration = SignedDuration::from_mins(10);

/// The time of the next call: after its back-off, or at the time that the driver expects the cloud to be done; at once if
/// resources that it lacked may be available now.
pub(super) fn retry_at(call: VmCall, failure: &CallFailure, policy: &MachinePolicy, is_deleting: bool) -> Timestamp {
    if failure.count == 0 {
        return failure.at;
    }
    let delay = match failure.error.call_again_in {
        Some(pause) => SignedDuration::try_from(pause).unwrap_or(SHORT),
        None => delay(call, failure.error.code, failure.count, policy, is_deleting),
    };
    after(failure.at, delay)
}

/// How long to wait after the `count`-th failure in a row.
pub(super) fn delay(call: VmCall, code: Code, count: u32, policy: &MachinePolicy, is_deleting: bool) -> SignedDuration {
    let chosen = Some(policy.resource_exhausted_retry.as_signed()).filter(SignedDuration::is_positive).unwrap_or(LONG);
    let is_asked = matches!(call, VmCall::Create | VmCall::Status);
    let is_exhausted = code == Code::ResourceExhausted && is_asked && !is_deleting;
    let bound = if is_exhausted { chosen } else { bound(call, code) };
    let first = if bound == SHORT && !is_exhausted { Duration::from_secs(1) } else { Duration::from_secs(5) };
    Backoff::new(first, bound.unsigned_abs()).after(count)
}

fn bound(call: VmCall, code: Code) -> SignedDuration {
    match (call, code.is_transient()) {
        (_, true) | (VmCall::Initialize, false) => SHORT,
        (VmCall::Status | VmCall::Create, false) => MEDIUM,
        (VmCall::Delete, false) => LONG,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::memory::Memory;
    use mcm_api::GoDuration;
    use mcm_driver::DriverError;
    use rstest::rstest;

    /// Upper bounds by code: create, initialise, status while deleting, delete; in seconds.
    #[rstest]
    #[case(Code::Canceled, [180, 5, 180, 600])]
    #[case(Code::Unknown, [5, 5, 5, 5])]
    #[case(Code::InvalidArgument, [180, 5, 180, 600])]
    #[case(Code::DeadlineExceeded, [5, 5, 5, 5])]
    #[case(Code::NotFound, [180, 5, 180, 600])]
    #[case(Code::AlreadyExists, [180, 5, 180, 600])]
    #[case(Code::PermissionDenied, [180, 5, 180, 600])]
    #[case(Code::ResourceExhausted, [600, 5, 180, 600])]
    #[case(Code::FailedPrecondition, [180, 5, 180, 600])]
    #[case(Code::Aborted, [5, 5, 5, 5])]
    #[case(Code::OutOfRange, [180, 5, 180, 600])]
    #[case(Code::Unimplemented, [180, 5, 180, 600])]
    #[case(Code::Internal, [180, 5, 180, 600])]
    #[case(Code::Unavailable, [5, 5, 5, 5])]
    #[case(Code::DataLoss, [180, 5, 180, 600])]
    #[case(Code::Unauthenticated, [180, 5, 180, 600])]
    #[case(Code::Uninitialized, [180, 5, 180, 600])]
    fn the_reference_s_period_is_reached_and_not_exceeded(#[case] code: Code, #[case] bounds: [i64; 4]) {
        let policy = MachinePolicy::default();
        let calls =
            [(VmCall::Create, false), (VmCall::Initialize, false), (VmCall::Status, true), (VmCall::Delete, true)];
        for ((call, is_deleting), bound) in calls.into_iter().zip(bounds) {
            let delays: Vec<i64> = (1..40).map(|n| delay(call, code, n, &policy, is_deleting).as_secs()).collect();
            assert_eq!(delays.last(), Some(&bound), "{call:?}");
            assert!(delays.is_sorted() && delays.iter().all(|delay| *delay >= 1), "{call:?}: {delays:?}");
        }
    }

    #[rstest]
    #[case::as_chosen(30, &[5, 10, 20, 30, 30])]
    #[case::shorter_than_the_first_pause(1, &[1, 1])]
    #[case::zero_means_the_default(0, &[5, 10, 20, 40, 80, 160, 320, 600, 600])]
    fn a_stock_out_is_tried_again_after_growing_pauses_up_to_the_chosen_one(
        #[case] chosen: i64,
        #[case] expected: &[i64],
    ) {
        let policy =
            MachinePolicy { resource_exhausted_retry: GoDuration::from_secs(chosen), ..MachinePolicy::default() };
        for call in [VmCall::Create, VmCall::Status] {
            let pause = |count| delay(call, Code::ResourceExhausted, count, &policy, false).as_secs();
            let pauses: Vec<i64> = (1..).take(expected.len()).map(pause).collect();
            assert_eq!(pauses, expected, "{call:?}");
        }
    }

    #[test]
    fn a_creation_is_tried_at_once_when_resources_are_free_and_then_after_the_first_pause() {
        let (mut memory, policy) = (Memory::default(), MachinePolicy::default());
        let fail = |memory: &mut Memory, code| {
            memory.call_failed(VmCall::Create, DriverError::new(code, "because"), Timestamp::UNIX_EPOCH);
        };
        let due = |memory: &Memory| {
            retry_at(VmCall::Create, memory.failure_of(VmCall::Create).unwrap(), &policy, false).as_second()
        };
        assert!(!memory.resources_freed(), "nothing failed");
        (0..6).for_each(|_| fail(&mut memory, Code::ResourceExhausted));
        assert_eq!(due(&memory), 160);
        assert!(memory.resources_freed());
        assert_eq!(due(&memory), 0);
        assert!(!memory.resources_freed(), "it is tried already");
        fail(&mut memory, Code::ResourceExhausted);
        assert_eq!(due(&memory), 5);
        fail(&mut memory, Code::PermissionDenied);
        assert!(!memory.resources_freed(), "it lacks no resources");
    }

    #[test]
    fn transient_failures_are_tried_again_after_a_second() {
        let delays: Vec<i64> = (1..=5)
            .map(|count| delay(VmCall::Create, Code::Unavailable, count, &MachinePolicy::default(), false).as_secs())
            .collect();
        assert_eq!(delays, [1, 2, 4, 5, 5]);
    }
}
