//! The judge of the tests with replicas finds those that act without a claim.

use jiff::{SignedDuration, Timestamp};
use rstest::rstest;
use serde_json::{Value, json};

use crate::support::fleet::{
    audit::{AuditedWrite, write_of},
    ownership::{ActPlace, CLAIMS, FleetAct, LeaseWrite, OwnershipRecord, OwnershipVerdict},
};

const PLANE: &str = "shoot--a";
const END: f64 = 100.0;

/// A time so many seconds after the start.
fn at(seconds: f64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_millis((seconds * 1000.0).round() as i64)
}

/// A replica writes a claim of [`PLANE`] within 0.2 s.
fn claim(seconds: f64, replica: &str, lease: &str, holder: &str) -> LeaseWrite {
    LeaseWrite {
        begun: at(seconds),
        ended: at(seconds + 0.2),
        replica: replica.to_owned(),
        namespace: PLANE.to_owned(),
        lease: lease.to_owned(),
        holder: holder.to_owned(),
        is_stored: true,
    }
}

fn act(seconds: f64, replica: &str, place: ActPlace) -> FleetAct {
    let (namespace, request) = (PLANE.to_owned(), "PATCH /".to_owned());
    FleetAct { at: at(seconds), replica: replica.to_owned(), namespace, place, request }
}

/// Replica a takes both claims after 1 s, and releases them after 10 s. Replica b takes them after 11 s.
fn handed_over() -> OwnershipRecord {
    let mut record = OwnershipRecord::default();
    for lease in CLAIMS {
        record.add_lease_write(claim(1.0, "a", lease, "host-a"));
        record.add_lease_write(claim(5.0, "a", lease, "host-a"));
        record.add_lease_write(claim(10.0, "a", lease, ""));
        record.add_lease_write(claim(11.0, "b", lease, "host-b"));
    }
    record
}

fn judged(mut record: OwnershipRecord, acts: &[FleetAct]) -> OwnershipVerdict {
    acts.iter().for_each(|act| record.add_act(act.clone()));
    record.judge_before(at(END))
}

#[rstest]
#[case::before_it_has_the_claims(act(0.5, "a", ActPlace::Control), false)]
#[case::with_the_claims(act(2.0, "a", ActPlace::Control), true)]
#[case::after_a_renewal(act(9.0, "a", ActPlace::Cloud), true)]
#[case::after_the_release(act(10.5, "a", ActPlace::Target), false)]
#[case::after_the_successor_began(act(12.0, "a", ActPlace::Cloud), false)]
#[case::of_the_successor_too_early(act(9.0, "b", ActPlace::Control), false)]
#[case::of_the_successor(act(12.0, "b", ActPlace::Cloud), true)]
#[case::in_another_namespace(FleetAct { namespace: "shoot--b".to_owned(), ..act(2.0, "a", ActPlace::Cloud) }, false)]
fn an_act_needs_a_claim_at_its_time(#[case] act: FleetAct, #[case] is_allowed: bool) {
    let verdict = judged(handed_over(), &[act]);
    assert_eq!(verdict.strangers.is_empty(), is_allowed, "{verdict:?}");
    assert_eq!(verdict.judged.values().sum::<usize>(), 1);
}

/// The claim of an expelled replica is taken, and not released before.
#[test]
fn a_claim_that_is_taken_ends_the_right_of_its_holder() {
    let mut record = OwnershipRecord::default();
    for lease in CLAIMS {
        record.add_lease_write(claim(1.0, "a", lease, "host-a"));
        record.add_lease_write(claim(20.0, "b", lease, "host-b"));
    }
    assert_eq!(record.holders(PLANE).into_iter().collect::<Vec<_>>(), ["b"]);
    let acts = [act(19.0, "a", ActPlace::Cloud), act(21.0, "a", ActPlace::Cloud), act(21.0, "b", ActPlace::Cloud)];
    assert_eq!(judged(record, &acts).strangers, [acts[1].clone()]);
}

#[test]
fn each_write_of_a_lease_counts() {
    assert_eq!(handed_over().lease_writes(), 4 * CLAIMS.len());
}

#[test]
fn machines_and_sets_may_have_different_owners() {
    let mut record = OwnershipRecord::default();
    record.add_lease_write(claim(1.0, "a", CLAIMS[0], "host-a"));
    record.add_lease_write(claim(1.0, "b", CLAIMS[1], "host-b"));
    let acts = [
        act(2.0, "a", ActPlace::Cloud),
        act(2.0, "a", ActPlace::Control),
        act(2.0, "b", ActPlace::Control),
        // The taint of a rollout.
        act(2.0, "b", ActPlace::Target),
        act(2.0, "b", ActPlace::Cloud),
        FleetAct { request: "DELETE /".to_owned(), ..act(2.0, "b", ActPlace::Target) },
    ];
    assert_eq!(judged(record, &acts).strangers, acts[4..]);
}

#[test]
fn a_write_without_a_response_may_have_been_stored() {
    let mut record = OwnershipRecord::default();
    for lease in CLAIMS {
        record.add_lease_write(claim(1.0, "a", lease, "host-a"));
        record.add_lease_write(LeaseWrite { is_stored: false, ..claim(10.0, "b", lease, "host-b") });
    }
    let acts = [act(12.0, "a", ActPlace::Cloud), act(12.0, "b", ActPlace::Cloud)];
    assert!(judged(record, &acts).strangers.is_empty());
}

/// The audit log has writes in the order in which they ended.
#[test]
fn a_release_that_is_recorded_after_the_claim_of_the_successor_does_not_end_it() {
    let mut record = OwnershipRecord::default();
    record.add_lease_write(claim(1.0, "a", CLAIMS[0], "host-a"));
    record.add_lease_write(claim(10.1, "b", CLAIMS[0], "host-b"));
    record.add_lease_write(LeaseWrite { ended: at(11.0), ..claim(10.0, "a", CLAIMS[0], "") });
    assert_eq!(record.holders(PLANE).into_iter().collect::<Vec<_>>(), ["b"]);
}

#[test]
fn a_request_that_was_stopped_on_its_way_is_not_counted_among_the_others() {
    let acts = [69.9, 70.5, 73.5, 74.5].map(|seconds| act(seconds, "a", ActPlace::Cloud));
    let mut record = handed_over();
    record.add_resumption("a", at(70.0), None);
    let verdict = judged(record, &acts);
    assert_eq!((&verdict.strangers[..], &verdict.resumed[..]), (&acts[..1], &acts[1..]), "the signal is being sent");
    let mut record = handed_over();
    record.add_resumption("a", at(70.0), Some(at(71.0)));
    let verdict = judged(record, &acts);
    assert_eq!(verdict.strangers, [acts[0].clone(), acts[3].clone()]);
    assert_eq!(verdict.resumed, acts[1..3]);
}

#[test]
fn the_time_without_a_holder_is_that_between_two_claims() {
    let gaps = handed_over().gaps_after(PLANE, at(2.0));
    assert_eq!(gaps, [SignedDuration::from_millis(800); 2]);
    assert!(handed_over().gaps_after(PLANE, at(20.0)).is_empty());
}

#[test]
fn a_membership_ends_when_another_replica_empties_it() {
    let mut record = OwnershipRecord::default();
    let of_member = |write| LeaseWrite { namespace: "mcm-system".to_owned(), ..write };
    record.add_lease_write(of_member(claim(1.0, "a", "mcm-fleet-one-00000001", "host-a")));
    assert!(record.holds_any("mcm-system", "a"));
    record.add_lease_write(of_member(claim(20.0, "b", "mcm-fleet-one-00000001", "")));
    assert!(!record.holds_any("mcm-system", "a"));
}

fn audited(resource: &str, namespace: &str, code: u16) -> Value {
    let group = if resource == "leases" { "coordination.k8s.io" } else { "machine.sapcloud.io" };
    json!({
        "kind": "Event", "apiVersion": "audit.k8s.io/v1", "stage": "ResponseComplete", "verb": "update",
        "user": {"username": "system:serviceaccount:mcm-system:replica-3"}, "requestURI": "/apis/x",
        "objectRef": {"resource": resource, "namespace": namespace, "name": "machine-controller", "apiGroup": group},
        "responseStatus": {"code": code}, "requestObject": {"spec": {"holderIdentity": "host-a"}},
        "requestReceivedTimestamp": "2026-01-01T00:00:00.000001Z", "stageTimestamp": "2026-01-01T00:00:00.000900Z",
    })
}

#[test]
fn the_audit_log_has_the_account_of_each_process() {
    let Some(AuditedWrite::Act(act)) = write_of(&audited("machines", PLANE, 409)) else { panic!("no act") };
    assert_eq!((act.replica.as_str(), act.namespace.as_str(), act.place), ("replica-3", PLANE, ActPlace::Control));
    for (code, is_stored) in [(200, true), (504, false)] {
        let Some(AuditedWrite::Lease(lease)) = write_of(&audited("leases", PLANE, code)) else { panic!("no lease") };
        assert_eq!((lease.holder.as_str(), lease.is_stored), ("host-a", is_stored));
    }
    assert!(write_of(&audited("leases", PLANE, 409)).is_none(), "it was refused");
    assert!(write_of(&audited("events", PLANE, 201)).is_none(), "each process writes events");
    assert!(write_of(&audited("machines", "", 201)).is_none());
}
