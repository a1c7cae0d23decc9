use serde_json::{Value, json};

use super::*;
use mcm_insight::testing::{NOW, TERMINAL, at, blocked_pool};

fn event(kind: &str, name: &str, reason: &str, second: i64, more: &Value) -> Event {
    let mut value = json!({
        "metadata": {"name": "e", "namespace": "demo"},
        "involvedObject": {"kind": kind, "name": name},
        "reason": reason, "message": "a message", "type": "Normal", "firstTimestamp": at(second), "lastTimestamp": at(second),
    });
    value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(value).unwrap()
}

fn shown(object: &str, events: &[Event]) -> Vec<EventLine> {
    let facts = blocked_pool();
    let object = facts.find(object).unwrap();
    lines(&EventSubjects::for_object(&facts, Some(&object)), events)
}

#[test]
fn the_events_of_a_family_are_those_of_its_sets_machines_and_nodes_even_of_deleted_ones() {
    let none = json!({});
    let events = [
        event("MachineDeployment", "pool", "A", 1, &none),
        event("MachineSet", "pool-84dff", "B", 2, &none),
        event("MachineSet", "pool-fffff", "C", 3, &none),
        event("Machine", "pool-84dff-jpgkd", "D", 4, &none),
        event("Machine", "pool-84dff-zzzzz", "E", 5, &none),
        event("Node", "pool-6d689-gmjqk", "F", 6, &none),
        event("MachineDeployment", "other", "no", 7, &none),
        event("Machine", "pool-a-84dff-jpgkd", "no", 8, &none),
        event("Node", "another", "no", 9, &none),
    ];
    let mut reasons: Vec<String> = shown("pool", &events).into_iter().map(|line| line.reason).collect();
    reasons.sort();
    assert_eq!(reasons, ["A", "B", "C", "D", "E", "F"]);
    assert_eq!(shown("machine/pool-6d689-gmjqk", &events).len(), 1, "only its Node has an event");
}

#[test]
fn events_that_are_alike_are_one_line() {
    let events = [
        event("Machine", "pool-6d689-gmjqk", "DrainBlocked", 100, &json!({"count": 3, "type": "Warning"})),
        event("Machine", "pool-6d689-gmjqk", "DrainBlocked", 50, &json!({"count": 2, "type": "Warning"})),
        event(
            "Machine",
            "pool-6d689-gmjqk",
            "DrainBlocked",
            10,
            &json!({"firstTimestamp": null, "lastTimestamp": null, "eventTime": "1970-01-01T00:00:10.000000Z",
                    "series": {"count": 9, "lastObservedTime": "1970-01-01T00:03:20.000000Z"}}),
        ),
    ];
    let lines = shown("pool", &events);
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    assert_eq!((line.first, line.last, line.count, line.is_warning), (at(10), at(200), 14, true));
}

#[test]
fn events_of_one_second_are_in_the_order_of_the_life_of_a_machine() {
    let none = json!({});
    let reasons = ["Deleted", "Drained", "DrainBlocked", "Joined", "Created", "ScalingMachineSet"];
    let event = |reason: &&str| event("Machine", "pool-6d689-gmjqk", reason, 100, &none);
    let mut lines = shown("pool", &reasons.iter().map(event).collect::<Vec<_>>());
    lines.sort_by(EventLine::order);
    let ordered: Vec<&str> = lines.iter().map(|line| line.reason.as_str()).collect();
    assert_eq!(ordered, ["ScalingMachineSet", "Created", "Joined", "DrainBlocked", "Drained", "Deleted"]);
    lines[0].last = at(101);
    lines.sort_by(EventLine::order);
    assert_eq!(lines.last().unwrap().reason, "ScalingMachineSet", "the time is first");
}

#[test]
fn in_a_list_of_all_namespaces_a_name_has_its_namespace() {
    let more = json!({"involvedObject": {"kind": "Machine", "namespace": "demo", "name": "pool-6d689-gmjqk"}});
    let lines = shown("pool", &[event("Machine", "pool-6d689-gmjqk", "Joined", 100, &more)]);
    let all: Vec<EventLine> = lines.into_iter().map(EventLine::with_namespace_in_name).collect();
    assert_eq!(all[0].namespace, "demo");
    assert!(text(TerminalLook::PLAIN, &all, at(NOW)).contains(" demo/pool-6d689-gmjqk "));
}

#[test]
fn a_changed_template_is_in_the_list() {
    let facts = blocked_pool();
    let object = facts.find("pool").unwrap();
    let lines = changes(&facts, &EventSubjects::for_object(&facts, Some(&object)));
    let texts: Vec<&str> = lines.iter().map(|line| line.message.as_str()).collect();
    assert_eq!(texts, ["revision 4: template.spec.class.name large → small"]);
}

#[test]
fn a_terminal_gets_lines_that_fit_and_a_pipe_gets_all() {
    let message = "budget demo/strict allows no eviction although all its pods are healthy: lower minAvailable";
    let events = [
        event(
            "MachineDeployment",
            "pool",
            "ScalingMachineSet",
            550,
            &json!({"message": "Scaled up machine set pool-84dff to 1"}),
        ),
        event(
            "Machine",
            "pool-6d689-gmjqk",
            "DrainBlocked",
            553,
            &json!({"message": message, "type": "Warning", "count": 14}),
        ),
    ];
    let lines = shown("pool", &events);
    let narrow = text(TERMINAL, &lines, at(NOW));
    assert!(narrow.lines().all(|line| line.chars().count() <= 80), "{narrow}");
    insta::assert_snapshot!("80-columns", narrow);
    insta::assert_snapshot!("200-columns", text(TerminalLook { width: 200, ..TERMINAL }, &lines, at(NOW)));
    insta::assert_snapshot!("pipe", text(TerminalLook::PLAIN, &lines, at(NOW)));
    let ascii = text(TerminalLook { unicode: false, ..TERMINAL }, &lines, at(NOW));
    assert!(ascii.is_ascii(), "{ascii}");
    let printed = json_lines(&lines);
    assert_eq!(printed.lines().count(), 2);
    crate::cli::document::tests::published::<EventLine>("event");
    printed
        .lines()
        .for_each(|line| crate::cli::document::tests::fits::<EventLine>(&serde_json::from_str(line).unwrap()));
}
