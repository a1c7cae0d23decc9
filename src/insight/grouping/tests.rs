use serde_json::json;

use super::*;
use crate::{
    report,
    terminal::TerminalLook,
    testing::{machine, pool, preview},
};
use mcm_rules::plan::WaitKind;

/// Machines whose Nodes are not healthy, each in one of two zones.
fn outage(count: usize, texts: impl Fn(usize, &str) -> String) -> NamespaceFacts {
    let zone = |number: usize| if number.is_multiple_of(3) { "eu-1b" } else { "eu-1a" };
    let of = |number: usize| {
        let more = json!({"spec": {"nodeTemplate": {"metadata": {"labels": {labels::ZONE: zone(number)}}}}});
        machine("pool-84dff", &format!("m{number:04}"), "small", "Unknown", &more)
    };
    let mut facts = pool(i32::try_from(count).unwrap(), (0..count).map(of).collect());
    let previews = facts.previews.get_mut(MACHINE).unwrap();
    for (number, (name, planned)) in previews.iter_mut().enumerate() {
        *planned = preview(MACHINE, name, &[], &[(WaitKind::NodeHealth, texts(number, name).as_str())]);
    }
    facts
}

#[test]
fn machines_with_one_cause_are_one_line_with_their_number_and_their_zones() {
    let facts = outage(12, |_, _| "the Node to become healthy again: Ready=Unknown (NodeStatusUnknown)".to_owned());
    let text = report::all(TerminalLook::PLAIN, &facts.all(), &facts, &[]);
    let line = text.lines().find(|line| line.starts_with("12 Machines: ")).unwrap_or_else(|| panic!("{text}"));
    assert!(line.starts_with("12 Machines: pool-84dff-m0000, pool-84dff-m0001, pool-84dff-m0002, …"), "{text}");
    let cause = "the Node to become healthy again: Ready=Unknown (NodeStatusUnknown) \
                 (all machines of the namespace; zones: eu-1a 8, eu-1b 4)";
    assert!(line.contains(cause), "{text}");
    assert_eq!(text.matches("pool-84dff-m").count(), 3, "{text}");
}

#[test]
fn each_cause_has_a_line_and_few_machines_have_one_each() {
    let facts = outage(13, |number, _| {
        let condition = if number < 10 { "Ready=Unknown" } else { "DiskPressure=True" };
        format!("the Node to become healthy again: {condition}")
    });
    let (all, text) = (facts.all(), report::all(TerminalLook::PLAIN, &facts.all(), &facts, &[]));
    let groups = by_cause(&all);
    let of_machines = groups.iter().filter(|group| group.members[0].object.kind == MACHINE);
    let sizes: Vec<usize> = of_machines.map(|group| group.members.len()).collect();
    assert_eq!(sizes, [10, 1, 1, 1], "{text}");
    assert!(text.contains("zones: eu-1a 6, eu-1b 4"), "{text}");
}

#[test]
fn words_that_differ_are_an_ellipsis() {
    let facts = outage(5, |number, name| format!("Node {name} to join: request {number}a7f after {number}0 s"));
    let all = facts.all();
    let groups = by_cause(&all);
    let of_machines = groups.iter().filter(|group| group.members[0].object.kind == MACHINE);
    let reasons: Vec<&str> = of_machines.map(|group| group.reason.as_str()).collect();
    assert_eq!(reasons, ["Node … to join: request … after … s"]);
}

/// A budget is the cause, although its name has a digit.
#[test]
fn drains_of_several_budgets_have_several_causes() {
    let names: CauseNames<'_> = ["pool-a"].into_iter().collect();
    let one = names.pattern("budget demo/web-1 to allow an eviction");
    assert_ne!(one, names.pattern("budget demo/web-2 to allow an eviction"));
    assert_eq!(names.pattern("pool-a waits for 3 of 5 machines"), names.pattern("pool-7 waits for 3 of 6 machines"));
}

#[test]
fn a_zone_whose_machines_all_wait_is_named() {
    let facts = outage(12, |number, _| {
        let cause = if number.is_multiple_of(3) { "Ready=Unknown" } else { "DiskPressure=True" };
        format!("the Node to become healthy again: {cause}")
    });
    let text = report::all(TerminalLook::PLAIN, &facts.all(), &facts, &[]);
    assert!(text.contains("Ready=Unknown (all machines of zone eu-1b)"), "{text}");
    assert!(text.contains("DiskPressure=True (all machines of zone eu-1a)"), "{text}");
}

/// `mcm why pool` names the cause of its machines once.
#[test]
fn the_machines_of_a_deployment_with_one_cause_are_one_line() {
    let facts = outage(40, |_, _| "the Node to become healthy again: Ready=Unknown".to_owned());
    let answer = facts.answer(&facts.find("pool").unwrap());
    let text = report::one(TerminalLook::PLAIN, &answer, None, &[], &facts);
    assert!(text.contains("40 Machines: pool-84dff-m0000, "), "{text}");
    assert!(!text.contains("more machines"), "{text}");
    assert_eq!(answer.machines.len(), 40, "programs get all");
}

/// The machines of the namespace are counted once, and not for each of 3,000 groups.
#[test]
fn the_places_of_many_groups_are_found_in_seconds() {
    let facts = outage(12_000, |_, _| "the Node to become healthy again: Ready=Unknown".to_owned());
    let machines: Vec<&Machine> = facts.machines.values().collect();
    let begun = std::time::Instant::now();
    let places: Vec<String> = machines.chunks(4).map(|group| facts.place_of(group.iter().copied())).collect();
    assert_eq!(places[0], "zones: eu-1a 2, eu-1b 2");
    assert!(begun.elapsed() < std::time::Duration::from_secs(10), "{:?}", begun.elapsed());
}
