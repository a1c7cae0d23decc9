use std::sync::Arc;

use rstest::rstest;
use serde_json::{Value, json};

use super::*;

const NOW: i64 = 1_767_225_600;

fn machine(name: &str, phase: &str, annotations: Value) -> Arc<Machine> {
    let machine = json!({
        "metadata": {"name": name, "annotations": annotations}, "spec": {}, "status": {"currentStatus": {"phase": phase}},
    });
    Arc::new(serde_json::from_value(machine).unwrap())
}

fn set(replicas: i32, machines: Vec<Arc<Machine>>) -> SetView {
    let set = json!({"metadata": {"name": "set"}, "spec": {"replicas": replicas}});
    SetView {
        draft: ObjectDraft::new(Arc::new(serde_json::from_value(set).unwrap())),
        is_new: false,
        machines,
        unreadable: Vec::new(),
        in_flight: SetWritesInFlight::default(),
        marked: BTreeMap::new(),
        chosen: ChosenMachines::default(),
        counts: ReplicaCounts::default(),
        now: Timestamp::from_second(NOW).unwrap(),
    }
}

const PRIORITY: &str = "machinepriority.machine.sapcloud.io";
const MARK: &str = "machine.sapcloud.io/marked-for-deletion-time";

#[rstest]
#[case::unhealthy_goes_first(json!({}), json!({}), json!({}), 1)]
#[case::unless_the_healthy_one_has_a_lower_priority(json!({PRIORITY: "1"}), json!({}), json!({}), 0)]
#[case::or_the_unhealthy_one_a_priority_beyond_32_bits(json!({}), json!({PRIORITY: "99999999999"}), json!({}), 0)]
#[case::or_the_healthy_one_is_marked(json!({MARK: "2026-01-01T00:00:00Z"}), json!({}), json!({}), 0)]
#[case::both_are_marked_and_the_healthy_one_earlier(json!({MARK: "2025-01-01T00:00:00Z"}), json!({MARK: "2025-01-02T00:00:00Z"}), json!({}), 0)]
#[case::both_are_marked_and_the_unhealthy_one_earlier(json!({MARK: "2025-01-02T00:00:00Z"}), json!({MARK: "2025-01-01T00:00:00Z"}), json!({}), 1)]
#[case::the_unhealthy_one_is_preserved(json!({}), json!({}), json!({"preserveExpiryTime": "2026-01-02T00:00:00Z"}), 0)]
#[case::or_was(json!({}), json!({}), json!({"preserveExpiryTime": "2025-12-31T00:00:00Z"}), 1)]
#[case::the_unhealthy_one_is_being_updated_in_place(json!({}), json!({}), json!({"phase": "InPlaceUpdating"}), 0)]
fn only_a_machine_that_its_set_deletes_first_is_expendable(
    #[case] healthy: Value,
    #[case] unhealthy: Value,
    #[case] status: Value,
    #[case] expendable: i32,
) {
    let mut sick = serde_json::to_value(machine("z", "Failed", unhealthy)).unwrap();
    mcm_api::patch::apply(&mut sick, &json!({"status": {"currentStatus": status}}));
    let sick = Arc::new(serde_json::from_value(sick).unwrap());
    let counts = set(2, vec![machine("a", "Running", healthy), sick]).counted().counts;
    assert_eq!(counts, ReplicaCounts { replicas: 2, live: 2, available: 1, expendable, ..ReplicaCounts::default() });
}

#[test]
fn a_delete_in_flight_may_fail_or_succeed_and_a_create_counts_once() {
    let machines = ["a", "b", "c"].map(|name| machine(name, "Running", json!({}))).to_vec();
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    let mut set = set(3, machines);
    let unreadable = |name: &str, is_terminating| UnreadableMachine {
        name: name.to_owned(),
        set_uid: String::new(),
        is_terminating,
    };
    set.unreadable = vec![unreadable("u", false), unreadable("v", false), unreadable("goes", true)];
    set.in_flight = SetWritesInFlight { creates: names(&["c", "d", "u"]), deletes: names(&["b"]) };
    let expected = ReplicaCounts {
        replicas: 3,
        live: 3,
        deleting: 1,
        unreadable: 2,
        creating: 1,
        terminating: 1,
        available: 2,
        ..ReplicaCounts::default()
    };
    assert_eq!(set.counted().counts, expected);
}

#[test]
fn a_marked_available_machine_is_deleted_before_an_unavailable_one() {
    let machines = vec![machine("a", "Running", json!({})), machine("b", "Pending", json!({}))];
    let mut set = set(2, machines);
    assert_eq!(set.counts_by(Machine::is_available).expendable, 1);
    let marked = machine("a", "Running", json!({PRIORITY: "1", MARK: "2026-01-01T00:00:00Z"}));
    set.marked.insert("a".to_owned(), Machine::clone(&marked));
    assert_eq!(set.counts_by(Machine::is_available).expendable, 0);
}
