use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::{
    ManagerRegistry,
    leases::{self, NativeManagerLease, TrackedLease},
};
use crate::object::gate::ManagerObstacle;
use mcm_runtime::poll::PollResult;

const GO: &str = "machine-controller-7d9c5b8f6-x2x9k";
const OURS: &str = "host_0123456789abcdef0123456789abcdef";

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn lease(holder: &str, version: &str) -> NativeManagerLease {
    NativeManagerLease {
        namespace: "ns".to_owned(),
        name: "machine-controller".to_owned(),
        holder: holder.to_owned(),
        version: version.to_owned(),
        validity: SignedDuration::from_secs(15),
    }
}

/// T26: renewals show that a Lease is held; without one it expires by our clock, regardless of its times.
#[test]
fn a_lease_is_held_until_it_was_not_renewed_for_as_long_as_it_is_valid() {
    let managers = ManagerRegistry::default();
    managers.heard(Ok(vec![lease(GO, "1")]), at(0));
    let Some(ManagerObstacle { on, is_certain: true }) = managers.namespace_obstacle("ns") else {
        panic!("a first sight may be a renewal")
    };
    assert!(on.contains(GO) && on.contains("--replaces-machine-controller-manager"), "{on}");
    assert_eq!(managers.namespace_obstacle("other"), None);
    managers.heard(Ok(vec![lease(GO, "2")]), at(15));
    assert!(managers.namespace_obstacle("ns").is_some(), "it was renewed");
    managers.heard(Ok(vec![lease(GO, "2")]), at(29));
    assert!(managers.namespace_obstacle("ns").is_some());
    managers.heard(Ok(vec![lease(GO, "2")]), at(30));
    assert_eq!(managers.namespace_obstacle("ns"), None);
    managers.heard(Ok(vec![lease(GO, "3")]), at(60));
    assert!(managers.namespace_obstacle("ns").is_some(), "it has come back");
    managers.heard(Ok(Vec::new()), at(61));
    assert_eq!(managers.namespace_obstacle("ns"), None);
}

/// `mcm run` leaves the machines of the provider alone, and a Lease that was released has no holder.
#[test]
fn a_lease_of_this_program_or_of_nobody_is_no_obstacle() {
    for holder in [OURS, ""] {
        let known = [TrackedLease { lease: lease(holder, "1"), since: at(0) }];
        assert_eq!(leases::held(&known, mcm_runtime::leader::is_own_form, at(1)).count(), 0, "{holder}");
    }
}

/// Unknown is not absent: nothing is done before the Leases were read. Later failures keep the last answer.
#[test]
fn nothing_is_done_before_the_leases_were_read() {
    let managers = ManagerRegistry::default();
    assert!(managers.namespace_obstacle("ns").is_some_and(|obstacle| !obstacle.is_certain));
    managers.heard(Err("no".to_owned()), at(0));
    assert!(
        managers.namespace_obstacle("ns").is_some_and(|obstacle| obstacle.is_certain && obstacle.on.contains("no"))
    );
    managers.heard(Ok(Vec::new()), at(1));
    managers.heard(Err("no".to_owned()), at(2));
    assert_eq!(managers.namespace_obstacle("ns"), None);
    managers.forget();
    assert!(managers.namespace_obstacle("ns").is_some());
    managers.ignore();
    assert_eq!(managers.namespace_obstacle("ns"), None);
}

/// A Lease that is not renewed is read again when it may have expired.
#[test]
fn the_answer_is_good_until_a_lease_may_have_expired() {
    let managers = ManagerRegistry::default();
    managers.heard(Err("no".to_owned()), at(0));
    assert_eq!(managers.poll_result(at(0)), PollResult::Failure);
    managers.heard(Ok(vec![lease(GO, "1")]), at(1));
    assert_eq!(managers.poll_result(at(1)), PollResult::AnswerFor(Duration::from_secs(15)));
    managers.heard(Ok(vec![lease(OURS, "1")]), at(2));
    assert_eq!(managers.poll_result(at(2)), PollResult::Answer);
}
