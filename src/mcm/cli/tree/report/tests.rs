use std::sync::Arc;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::json;

use super::*;
use crate::{
    api::node::Node,
    cli::tree::branch::{self, NodeSurroundings},
};
use mcm_insight::{
    story::{DEPLOYMENT, NamespaceFacts, UndecodableObject},
    testing::{NOW, TERMINAL, at, blocked_pool, machine, of_machine_pool, pool, preview},
};
use mcm_rules::{drain::PodFacts, plan::WaitKind};

/// Three pods on a Node, which a budget keeps.
fn surroundings() -> NodeSurroundings {
    let node = "pool-6d689-gmjqk";
    let found: Node = serde_json::from_value(json!({
        "metadata": {"name": node}, "spec": {"unschedulable": true},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }))
    .unwrap();
    let pod = |name: &str| {
        let pod = json!({"metadata": {"name": name, "namespace": "demo", "labels": {"app": "web"}}});
        PodFacts::from_pod(&serde_json::from_value(pod).unwrap())
    };
    let budget: PodDisruptionBudget = serde_json::from_value(json!({
        "metadata": {"name": "strict", "namespace": "demo"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": 0, "expectedPods": 6, "currentHealthy": 6, "desiredHealthy": 6},
    }))
    .unwrap();
    NodeSurroundings {
        nodes: [(node.to_owned(), Arc::new(found))].into(),
        pods: [(node.to_owned(), ["web-6jt7p", "web-pnw8n", "web-vzd9w"].map(pod).into())].into(),
        budgets: vec![budget],
        unread: Vec::new(),
    }
}

fn tree(facts: &NamespaceFacts, look: TerminalLook, all: bool) -> String {
    let object = facts.subject(DEPLOYMENT, "pool");
    text(look, &[branch::object_tree(facts, &surroundings(), &object)], all, at(NOW))
}

#[test]
fn a_blocked_rollout_shows_the_pods_and_the_budget_in_its_way() {
    let text = tree(&blocked_pool(), TERMINAL, false);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    insta::assert_snapshot!("80-columns", text);
    insta::assert_snapshot!("200-columns", tree(&blocked_pool(), TerminalLook { width: 200, ..TERMINAL }, false));
}

#[test]
fn objects_that_cannot_be_decoded_are_rows_below_their_owners() {
    let mut facts = blocked_pool();
    let undecodable = |kind: &str, name: &str, owner: Option<&str>| UndecodableObject {
        kind: kind.to_owned(),
        name: name.to_owned(),
        owner: owner.map(str::to_owned),
        error: "spec.drainTimeout: \"2 hours\" is not a duration".to_owned(),
    };
    facts.unreadable = vec![
        undecodable(MACHINE, "garbled", Some("pool-84dff")),
        undecodable(MACHINE, "alone", Some("gone")),
        undecodable(DEPLOYMENT, "other", None),
    ];
    let around = surroundings();
    let branches: Vec<TreeBranch> =
        branch::roots(&facts).iter().map(|root| branch::object_tree(&facts, &around, root)).collect();
    let text = text(TerminalLook::PLAIN, &branches, true, at(NOW));
    let row = |name: &str| text.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{name}: {text}"));
    assert!(row("garbled").contains("─ ") && row("garbled").contains("spec.drainTimeout"), "{text}");
    for root in ["alone", "other"] {
        assert!(!row(root).contains("─ ") && row(root).contains("cannot be read"), "{text}");
    }
}

#[test]
fn in_a_pipe_no_text_is_cut_and_nothing_is_coloured() {
    let text = tree(&blocked_pool(), TerminalLook::PLAIN, false);
    assert!(!text.contains('…') && !text.contains('\x1b'), "{text}");
    insta::assert_snapshot!("pipe", text);
}

#[test]
fn with_ascii_all_characters_are_ascii() {
    let look = TerminalLook { unicode: false, ..TERMINAL };
    let text = tree(&blocked_pool(), look, false);
    assert!(text.is_ascii(), "{text}");
    assert!(text.contains("`- Machine"), "{text}");
}

#[test]
fn colours_repeat_what_marks_and_words_say() {
    let colourful = tree(&blocked_pool(), TerminalLook { colours: true, ..TERMINAL }, false);
    let plain =
        colourful.split('\x1b').map(|part| part.split_once('m').map_or(part, |(_, rest)| rest)).collect::<String>();
    assert!(plain.contains("Terminating"));
    assert_eq!(colourful.split('\x1b').next().unwrap().lines().count(), 2, "the head has no colour");
}

#[test]
fn a_machine_pool_whose_machines_run_is_not_blocked() {
    let none = json!({});
    let running = |number: usize| machine("pool-84dff", &number.to_string(), "small", "Running", &none);
    let text = tree(&of_machine_pool(pool(3, (0..3).map(running).collect())), TERMINAL, false);
    assert!(text.contains("3 of 3 running") && !text.contains("blocked"), "{text}");
}

#[test]
fn machines_that_are_alike_are_counted_and_few_that_wait_are_not() {
    let none = json!({});
    let mut machines: Vec<_> =
        (0..23).map(|number| machine("pool-84dff", &format!("{number:05}"), "small", "Running", &none)).collect();
    machines.push(mcm_insight::testing::blocked("pool-6d689", "gmjqk"));
    let facts = pool(23, machines);
    let text = tree(&facts, TERMINAL, false);
    assert!(text.contains("22 more Machines"), "{text}");
    assert!(text.contains("pool-6d689-gmjqk"), "{text}");
    assert_eq!(tree(&facts, TerminalLook { width: 200, ..TERMINAL }, true).matches("Machine/pool-84dff").count(), 23);
}

#[test]
fn machines_that_wait_for_one_cause_are_counted_with_their_zones() {
    let of = |number: usize| {
        let zone = if number < 30 { "eu-1a" } else { "eu-1b" };
        let more = json!({"spec": {"nodeTemplate": {"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}}}});
        machine("pool-84dff", &format!("{number:05}"), "small", "Unknown", &more)
    };
    let mut facts = pool(40, (0..40).map(of).collect());
    let waits = [(WaitKind::NodeHealth, "the Node to become healthy again: Ready=Unknown")];
    for (name, planned) in facts.previews.get_mut("Machine").unwrap() {
        *planned = preview("Machine", name, &[], &waits);
    }
    let text = tree(&facts, TerminalLook { width: 200, ..TERMINAL }, false);
    assert!(text.contains("39 more Machines"), "{text}");
    assert!(text.contains("the same (zones: eu-1a 29, eu-1b 10)"), "{text}");
    assert!(text.lines().count() < 10, "{text}");
    let all = tree(&facts, TerminalLook { width: 200, ..TERMINAL }, true);
    assert_eq!(all.matches("Machine/pool-84dff").count(), 40, "{all}");
}
