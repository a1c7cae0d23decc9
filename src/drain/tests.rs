use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use rstest::rstest;

use super::*;
use crate::drain::Refusal;

const NOW: i64 = 1_000;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn pod(name: &str) -> PodFacts {
    PodFacts {
        pod: PodRef { namespace: "ns".to_owned(), name: name.to_owned(), uid: Arc::from(name) },
        labels: BTreeMap::new(),
        is_mirror: false,
        is_daemon: false,
        is_finished: false,
        terminating_since: None,
        grace: SignedDuration::from_secs(30),
        claims: Vec::new(),
    }
}

fn tried(name: &str, method: Method, second: i64, count: u32, answer: Answer) -> Attempts {
    Attempts::from([(Arc::from(name), Attempt { method, at: at(second), count, answer })])
}

fn refused(is_misconfigured: bool) -> Answer {
    Answer::Refused(Refusal { message: "no".to_owned(), budget: Some("ns/b".to_owned()), is_misconfigured })
}

const LIMITS: Limits = Limits { evict_until: Timestamp::MAX, deadline: Timestamp::MAX };

fn normal(pods: &[PodFacts], attempts: &Attempts) -> DrainPlan {
    plan("n", pods, attempts, Mode::Normal, LIMITS, at(NOW))
}

#[test]
fn no_pods_are_drained_pods() {
    let mut daemon = pod("d");
    daemon.is_daemon = true;
    assert!(normal(&[daemon], &Attempts::new()).is_done());
}

#[test]
fn all_pods_are_evicted_at_once_in_order() {
    let plan = normal(&[pod("b"), pod("a")], &Attempts::new());
    let names: Vec<&str> = plan.calls.iter().map(|(_, pod, _)| pod.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert!(plan.calls.iter().all(|(method, ..)| *method == Method::Evict));
}

#[rstest]
#[case::first(1, 1)]
#[case::second(2, 2)]
#[case::third(3, 4)]
#[case::fifth(5, 16)]
#[case::sixth(6, 20)]
#[case::hundredth(100, 20)]
fn a_refused_eviction_is_tried_again_after_growing_time(#[case] count: u32, #[case] seconds: i64) {
    let attempts = |second| tried("a", Method::Evict, second, count, refused(false));
    let early = normal(&[pod("a")], &attempts(NOW));
    assert_eq!((early.calls.len(), early.waits[0].until), (0, Some(at(NOW + seconds))));
    assert_eq!(early.waits[0].on, "pod ns/a: eviction refused by the disruption budget ns/b");
    assert_eq!(early.error(), None, "a budget that may yet let it go is no error");
    assert_eq!(early.refused_by, BTreeSet::from(["ns/b".to_owned()]), "but it is told");
    assert_eq!(normal(&[pod("a")], &attempts(NOW - seconds)).calls.len(), 1);
}

#[test]
fn refusals_are_reported_now_and_then() {
    let reported: Vec<u32> = (1..60)
        .filter(|count| {
            let attempts = tried("a", Method::Evict, NOW - 20, *count, refused(false));
            normal(&[pod("a")], &attempts).calls[0].2.is_some()
        })
        .collect();
    assert_eq!(reported, [6, 21, 36, 51]);
}

#[rstest]
#[case::misconfigured(
    refused(true),
    "error while evicting pod \"a\": pod disruption budget ns/b is misconfigured and requires zero voluntary evictions"
)]
#[case::failed(Answer::Failed("boom".to_owned()), "error when evicting pod \"a\": boom scheduled on node n")]
fn what_is_wrong_is_told(#[case] answer: Answer, #[case] text: &str) {
    let plan = normal(&[pod("a")], &tried("a", Method::Evict, NOW, 1, answer));
    assert_eq!(plan.error().as_deref(), Some(text));
    assert!(!plan.is_done());
}

#[test]
fn several_errors_are_one_text_without_repetitions() {
    let mut attempts = tried("a", Method::Evict, NOW, 1, Answer::Failed("x".to_owned()));
    attempts.extend(tried("b", Method::Evict, NOW, 1, Answer::Failed("y".to_owned())));
    let (mut twin, a, b) = (pod("a"), pod("a"), pod("b"));
    twin.pod.namespace = "other".to_owned();
    let text = normal(&[a, twin, b], &attempts).error().unwrap();
    let (a, b) = (
        "error when evicting pod \"a\": x scheduled on node n",
        "error when evicting pod \"b\": y scheduled on node n",
    );
    assert_eq!(text, format!("[{a}, {b}]"));
}

#[rstest]
#[case::just_told(NOW, 1, None)]
#[case::some_time_ago(NOW - 6, 3, None)]
#[case::long_ago(NOW - 59, 5, None)]
#[case::stuck(NOW - 60, 5, Some("error when waiting for pod \"a\"/n terminating: context deadline exceeded"))]
fn a_pod_that_was_told_to_go_is_awaited(#[case] since: i64, #[case] poll: i64, #[case] error: Option<&str>) {
    let plan = normal(&[pod("a")], &tried("a", Method::Evict, since, 1, Answer::Accepted));
    assert_eq!((plan.calls.len(), plan.waits[0].until), (0, Some(at(NOW + poll))));
    assert_eq!(plan.waits[0].on, "pod ns/a to terminate");
    assert_eq!(plan.error().as_deref(), error);
}

#[test]
fn a_pod_that_terminates_already_is_not_evicted_again_after_a_restart() {
    let mut going = pod("a");
    going.terminating_since = Some(at(NOW - 10));
    let plan = normal(&[going], &Attempts::new());
    assert_eq!((plan.calls.len(), plan.waits.len()), (0, 1));
}

#[test]
fn a_finished_pod_is_evicted_once_and_never_awaited() {
    let mut finished = pod("a");
    finished.is_finished = true;
    assert_eq!(normal(std::slice::from_ref(&finished), &Attempts::new()).calls.len(), 1);
    assert!(normal(&[finished], &tried("a", Method::Evict, NOW, 1, refused(true))).is_done());
}

#[rstest]
#[case::refused(Attempts::new())]
#[case::told_to_go(tried("a", Method::Evict, NOW - 100, 1, Answer::Accepted))]
fn when_evictions_are_over_pods_are_deleted_and_still_awaited(#[case] attempts: Attempts) {
    let limits = Limits { evict_until: at(NOW), deadline: at(NOW + 7) };
    let over = plan("n", &[pod("a")], &attempts, Mode::Normal, limits, at(NOW));
    assert_eq!(over.calls.iter().map(|(method, ..)| *method).collect::<Vec<_>>(), [Method::Delete]);
    let told = tried("a", Method::Delete, NOW, 1, Answer::Accepted);
    let after = plan("n", &[pod("a")], &told, Mode::Normal, limits, at(NOW));
    assert_eq!((after.calls.len(), after.waits.len(), after.is_done()), (0, 1, false));
}

#[test]
fn no_wait_goes_beyond_the_next_deadline() {
    let limits = Limits { evict_until: at(NOW + 3), deadline: at(NOW + 100) };
    let attempts = tried("a", Method::Evict, NOW, 9, refused(false));
    assert_eq!(plan("n", &[pod("a")], &attempts, Mode::Normal, limits, at(NOW)).waits[0].until, Some(at(NOW + 3)));
}

#[test]
fn force_deletes_everything_once_and_goes_on_whatever_happens() {
    let force = |attempts: &Attempts| plan("n", &[pod("a")], attempts, Mode::Forced, LIMITS, at(NOW));
    let first = force(&tried("a", Method::Evict, NOW, 3, refused(true)));
    assert_eq!(first.calls[0].0, Method::Delete);
    assert!(force(&tried("a", Method::Delete, NOW, 1, Answer::Accepted)).is_done());
    let failed = force(&tried("a", Method::Delete, NOW, 1, Answer::Failed("boom".to_owned())));
    assert!(failed.is_done());
    assert_eq!(failed.error().as_deref(), Some("error when deleting pod \"a\": boom"));
}
