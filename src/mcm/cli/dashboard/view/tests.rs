use serde_json::json;

use super::*;
use mcm_insight::testing::{NOW, at, blocked_pool, machine, object, pool, preview};

fn view<'a>(facts: &'a NamespaceFacts, events: &'a [EventLine]) -> DashboardView<'a> {
    DashboardView::from_facts(facts, events, &[], None, None)
}

#[test]
fn a_bar_counts_machines_that_serve_and_not_those_of_the_status() {
    let none = json!({});
    let mut facts = pool(
        2,
        vec![
            machine("pool-84dff", "a", "small", "CrashLoopBackOff", &none),
            machine("pool-6d689", "b", "large", "Running", &none),
            machine("pool-6d689", "c", "large", "Terminating", &none),
        ],
    );
    facts.deployments.get_mut("pool").unwrap().status.as_mut().unwrap().updated_replicas = 2;
    let expected = MachineBar { wanted: 2, new: 0, starting: 1, old: 1, going: 1, available: 1 };
    assert_eq!(view(&facts, &[]).deployments[0].bar, expected);
}

/// The pool, and another deployment that waits for the end of its pause.
fn with_paused(mut facts: NamespaceFacts) -> NamespaceFacts {
    let (_, paused) =
        object(DEPLOYMENT, "a-paused", None, &json!({"spec": {"paused": true, "template": {}, "strategy": {}}}));
    facts.deployments.insert("a-paused".to_owned(), paused);
    let waits = [(WaitKind::Paused, "the end of the pause: spec.paused is true")];
    let paused = preview(DEPLOYMENT, "a-paused", &[], &waits);
    facts.previews.get_mut(DEPLOYMENT).unwrap().insert("a-paused".to_owned(), paused);
    facts
}

#[test]
fn a_drain_that_waits_is_shown_before_a_deliberate_pause() {
    let facts = with_paused(blocked_pool());
    let shown = view(&facts, &[]);
    let names: Vec<&str> = shown.deployments.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["pool", "a-paused"]);
    assert_eq!(shown.deployments[1].urgency, RowUrgency::Paused);
    assert_eq!(shown.chosen.unwrap().answer.object.name, "pool");
    let settled = with_paused(pool(1, vec![machine("pool-84dff", "a", "small", "Running", &json!({}))]));
    assert_eq!(view(&settled, &[]).deployments[0].name, "a-paused");
}

#[test]
fn machines_without_a_set_and_events_of_orphans_are_listed() {
    let mut facts = blocked_pool();
    let lone = json!({"metadata": {"ownerReferences": []}, "spec": {"providerID": "simulated:///lone"}});
    let (name, lone) = machine("lone", "a", "small", "Running", &lone);
    facts.machines.insert(name, lone);
    let line = |reason: &str| EventLine {
        first: at(NOW),
        last: at(NOW),
        kind: "MachineClass".to_owned(),
        namespace: "demo".to_owned(),
        name: "small".to_owned(),
        is_named_fully: false,
        reason: reason.to_owned(),
        message: "VM simulated:///x".to_owned(),
        is_warning: false,
        count: 1,
    };
    let events = [line("OrphanFound"), line("Joined"), line("OrphanKept")];
    let shown = view(&facts, &events);
    let names: Vec<&str> = shown.ownerless.iter().map(|one| one.object.name.as_str()).collect();
    assert_eq!(names, ["lone-a"]);
    let reasons: Vec<&str> = shown.orphans.iter().map(|line| line.reason.as_str()).collect();
    assert_eq!((reasons, shown.vms.as_str()), (vec!["OrphanKept", "OrphanFound"], "mcm vms -n demo"));
}
