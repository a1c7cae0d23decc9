use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use mcm_insight::{
    story::{DEPLOYMENT, MACHINE, NamespaceFacts},
    testing::{NOW, TERMINAL, at, blocked_pool, machine, of_machine_pool, pool, preview},
};
use mcm_rules::plan::WaitKind;

fn seen(facts: &NamespaceFacts) -> RolloutSnapshot {
    RolloutSnapshot::for_object(facts, &facts.subject(DEPLOYMENT, "pool")).unwrap()
}

fn running(count: usize) -> NamespaceFacts {
    pool(
        3,
        (0..count).map(|number| machine("pool-84dff", &number.to_string(), "small", "Running", &json!({}))).collect(),
    )
}

#[test]
fn a_rollout_is_done_when_all_machines_have_the_current_template_and_no_other_is_left() {
    assert_eq!(seen(&running(3)).state, RolloutState::Done);
    assert_eq!(seen(&running(2)).state, RolloutState::Rolling);
    assert_ne!(seen(&blocked_pool()).state, RolloutState::Done);
}

#[test]
fn a_rollout_of_a_machine_pool_ends() {
    assert_eq!(seen(&of_machine_pool(running(3))).state, RolloutState::Done);
    assert_eq!(report::word(&seen(&of_machine_pool(running(2))).state), "Waiting");
}

#[test]
fn a_status_of_an_earlier_spec_does_not_count() {
    let mut facts = running(3);
    facts.deployments.get_mut("pool").unwrap().metadata.generation = Some(3);
    assert_eq!(seen(&facts).state, RolloutState::Rolling);
}

#[rstest]
#[case::join(WaitKind::NodeJoin, "Rolling")]
#[case::cloud(WaitKind::CloudOperation, "Rolling")]
#[case::budget(WaitKind::Eviction, "Waiting")]
#[case::secret(WaitKind::Secret, "Blocked")]
#[case::failed_call(WaitKind::DriverRetry, "Waiting")]
fn a_rollout_is_held_up_by_what_does_not_belong_to_every_rollout(#[case] kind: WaitKind, #[case] expected: &str) {
    let mut facts = running(2);
    let plan = preview(MACHINE, "pool-84dff-0", &[], &[(kind, "something")]);
    facts.previews.get_mut(MACHINE).unwrap().insert("pool-84dff-0".to_owned(), plan);
    let state = seen(&facts).state;
    assert_eq!((report::word(&state), state.is_held_up()), (expected, expected != "Rolling"));
}

#[test]
fn a_missed_deadline_is_a_failure_and_a_pause_is_a_block() {
    let mut facts = blocked_pool();
    facts.deployments.get_mut("pool").unwrap().spec.paused = true;
    assert_eq!(seen(&facts).state, RolloutState::Blocked("it is paused".to_owned()));
    let status = facts.deployments.get_mut("pool").unwrap().status.as_mut().unwrap();
    (status.conditions[0].reason, status.conditions[0].message) =
        ("ProgressDeadlineExceeded".to_owned(), "too slow".to_owned());
    assert_eq!(seen(&facts).state, RolloutState::Failed("too slow".to_owned()));
}

#[test]
fn a_rollout_is_blocked_since_its_numbers_last_changed() {
    let mut watch = StallDetector::default();
    let blocked = seen(&blocked_pool());
    assert_eq!(watch.look(at(1), &blocked, None), Some(at(1)));
    assert_eq!(watch.look(at(5), &blocked, None), Some(at(1)));
    let mut moved = seen(&blocked_pool());
    moved.progress.going = 1;
    assert_eq!(watch.look(at(9), &moved, None), Some(at(9)));
    assert_eq!(watch.look(at(10), &seen(&running(3)), None), None);
}

#[test]
fn time_without_an_answer_of_the_api_server_does_not_count_as_blocked() {
    let mut watch = StallDetector::default();
    let blocked = seen(&blocked_pool());
    assert_eq!(watch.look(at(10), &blocked, None), Some(at(10)));
    assert_eq!(watch.look(at(16), &blocked, Some(at(14))), None);
    assert_eq!(watch.look(at(90), &blocked, Some(at(14))), None);
    assert_eq!(watch.look(at(94), &blocked, None), Some(at(90)), "four seconds before the silence count");
    assert_eq!(watch.look(at(96), &blocked, None), Some(at(90)));
    let mut silent_from_the_start = StallDetector::default();
    assert_eq!(silent_from_the_start.look(at(10), &blocked, Some(at(8))), None);
    assert_eq!(silent_from_the_start.look(at(20), &blocked, None), Some(at(20)));
}

#[test]
fn the_numbers_are_those_of_the_machines() {
    let progress = seen(&blocked_pool()).progress;
    let expected = json!({
        "name": "pool", "revision": 4, "classes": ["large", "small"], "wanted": 3, "new": 1, "starting": 0, "old": 1, "going": 2,
        "total": 4, "most": 4, "up": 2, "least": 2,
    });
    assert_eq!(serde_json::to_value::<&RolloutProgress>(&progress).unwrap(), expected as Value);
}

#[rstest]
#[case::narrow("80-columns", 80, true)]
#[case::wide("200-columns", 200, true)]
#[case::ascii("ascii", 80, false)]
fn a_terminal_shows_a_bar_and_the_machines_that_wait(#[case] name: &str, #[case] width: usize, #[case] unicode: bool) {
    let text =
        report::frame(TerminalLook { width, unicode, ..TERMINAL }, &seen(&blocked_pool()), Some(at(359)), at(NOW));
    assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
    assert!(unicode || text.is_ascii(), "{text}");
    insta::assert_snapshot!(name, text);
}

#[test]
fn a_pipe_gets_one_line() {
    let expected = "pool revision 4: 1 of 3 new, 2 available, 4 in total: blocked: pool-6d689-gmjqk waits for budget \
                    demo/strict to allow an eviction, which it never does: lower its minAvailable, raise its maxUnavailable, or add replicas";
    assert_eq!(report::line(&seen(&blocked_pool())), expected);
    assert_eq!(report::line(&seen(&running(3))), "pool revision 4: 3 of 3 new, 3 available, 3 in total: done");
}

#[test]
fn a_line_has_one_verb() {
    let mut facts = running(2);
    let plan = preview(MACHINE, "pool-84dff-0", &[], &[(WaitKind::DriverRetry, "the next attempt")]);
    facts.previews.get_mut(MACHINE).unwrap().insert("pool-84dff-0".to_owned(), plan);
    let line = report::line(&seen(&facts));
    assert!(line.ends_with(": pool-84dff-0 waits for the next attempt"), "{line}");
}

#[test]
fn a_line_whose_ages_alone_differ_is_the_same() {
    let line = |age: &str| format!("blocked: a manager, and none runs: mcm-0 renewed the Lease a {age} ago");
    assert_eq!(report::without_ages(&line("35s")), report::without_ages(&line("1m2s")));
    assert_ne!(report::without_ages("machine a waits"), report::without_ages("machine b waits"));
    let json = |age: &str| format!(r#"{{"reason":"renewed {age} ago","silentSince":null}}"#);
    assert_eq!(report::without_ages(&json("1s")), report::without_ages(&json("2s")));
    assert_eq!(report::without_ages("an ageing pool, agog"), "an ageing pool, agog");
}

#[test]
fn the_schema_is_published_and_a_status_fits_it() {
    use crate::cli::document::tests::{fits, published};

    published::<JsonDocument<RolloutStatus<'_>>>("rollout-status");
    for pool in [blocked_pool(), running(3)] {
        let seen = seen(&pool);
        let document =
            JsonDocument::new("RolloutStatus", at(1), RolloutStatus::from_snapshot(&seen, Some(at(0)), Some(at(1))));
        fits::<JsonDocument<RolloutStatus<'_>>>(&serde_json::to_value(document).unwrap());
    }
}
