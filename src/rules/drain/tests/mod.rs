mod pace;
mod volumes;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, LazyLock},
};

use rstest::rstest;

use super::{plan::DrainPlan, *};

pub(super) const NOW: i64 = 1_000;

pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

pub(super) fn pod(name: &str) -> PodFacts {
    PodFacts {
        pod: PodRef { namespace: "ns".to_owned(), name: name.to_owned(), uid: Arc::from(name) },
        labels: BTreeMap::new(),
        is_mirror: false,
        is_daemon: false,
        is_finished: false,
        terminating_since: None,
        grace: SignedDuration::from_secs(30),
        priority: 0,
        claims: Vec::new(),
    }
}

/// Evictions began with the last of so many calls.
pub(super) fn tried(name: &str, method: PodRemovalMethod, second: i64, count: u32, answer: DrainAnswer) -> PodAttempts {
    tried_since(name, method, second, count, answer, second)
}

fn tried_since(
    name: &str,
    method: PodRemovalMethod,
    second: i64,
    count: u32,
    answer: DrainAnswer,
    since: i64,
) -> PodAttempts {
    let attempt = DrainAttempt { method, at: at(second), count, answer, evicting_since: Some(at(since)) };
    PodAttempts::from([(Arc::from(name), attempt)])
}

pub(super) fn refused(is_misconfigured: bool) -> DrainAnswer {
    DrainAnswer::Refused(EvictionRefusal {
        message: "no".to_owned(),
        budget: Some("ns/b".to_owned()),
        version: Some("9".to_owned()),
        is_misconfigured,
        is_of_several: false,
    })
}

const HOURS: SignedDuration = SignedDuration::from_hours(2);

fn round<'a>(attempts: &'a PodAttempts, rounds: &'a DrainRounds) -> DrainRuleInput<'a> {
    round_with(attempts, rounds, &NO_VOLUMES)
}

static NO_VOLUMES: LazyLock<VolumeTracker> = LazyLock::new(VolumeTracker::default);
static NO_ALLOWANCES: BTreeMap<String, DisruptionAllowance> = BTreeMap::new();
static NONE_RELEASED: BTreeSet<Arc<str>> = BTreeSet::new();
static NOBODY: BTreeMap<Arc<str>, String> = BTreeMap::new();
const TIMEOUTS: VolumeTimeouts =
    VolumeTimeouts { detach: SignedDuration::from_secs(120), reattach: SignedDuration::from_secs(90) };

pub(super) fn round_with<'a>(
    attempts: &'a PodAttempts,
    rounds: &'a DrainRounds,
    volumes: &'a VolumeTracker,
) -> DrainRuleInput<'a> {
    DrainRuleInput {
        node: "n",
        mode: DrainMode::Normal,
        evict_for: HOURS,
        forced_from: Timestamp::MAX,
        attempts,
        rounds,
        volumes,
        unread: None,
        timeouts: TIMEOUTS,
        held: &NOBODY,
        allowances: &NO_ALLOWANCES,
        released: &NONE_RELEASED,
        now: at(NOW),
    }
}

fn normal(pods: &[PodFacts], attempts: &PodAttempts) -> DrainPlan {
    plan(pods, &round(attempts, &DrainRounds::default()))
}

fn methods(plan: &DrainPlan) -> Vec<PodRemovalMethod> {
    plan.calls.iter().map(|call| call.method).collect()
}

#[test]
fn no_pods_are_drained_pods() {
    let mut daemon = pod("d");
    daemon.is_daemon = true;
    assert!(normal(&[daemon], &PodAttempts::new()).is_done());
}

#[test]
fn all_pods_are_evicted_at_once_in_order() {
    let plan = normal(&[pod("b"), pod("a")], &PodAttempts::new());
    let names: Vec<&str> = plan.calls.iter().map(|call| call.pod.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(methods(&plan), [PodRemovalMethod::Evict, PodRemovalMethod::Evict]);
}

#[rstest]
#[case::first(1, 1)]
#[case::second(2, 2)]
#[case::third(3, 4)]
#[case::fifth(5, 16)]
#[case::sixth(6, 20)]
#[case::hundredth(100, 20)]
fn a_refused_eviction_is_tried_again_after_growing_time(#[case] count: u32, #[case] seconds: i64) {
    let attempts = |second| tried("a", PodRemovalMethod::Evict, second, count, refused(false));
    let early = normal(&[pod("a")], &attempts(NOW));
    assert_eq!((early.calls.len(), early.waits[0].until), (0, Some(at(NOW + seconds))));
    assert_eq!(early.waits[0].text, "pod ns/a: eviction refused by the disruption budget ns/b");
    assert_eq!(early.error(), None, "a budget that may yet let it go is no error");
    assert_eq!(early.refused_by, BTreeSet::from(["ns/b".to_owned()]), "but it is told");
    assert_eq!(normal(&[pod("a")], &attempts(NOW - seconds)).calls.len(), 1);
}

#[rstest]
#[case::it_allows_two("10", 2, &["a", "b"])]
#[case::it_allows_none("10", 0, &[])]
#[case::it_has_not_changed_since("9", 2, &[])]
#[case::it_is_an_older_one("8", 2, &[])]
fn as_many_refused_pods_as_their_budget_allows_now_are_evicted_without_a_pause(
    #[case] version: &str,
    #[case] disruptions: i32,
    #[case] expected: &[&str],
) {
    let (rounds, volumes) = (DrainRounds::default(), VolumeTracker::default());
    let attempts: PodAttempts =
        ["a", "b", "c"].iter().flat_map(|name| tried(name, PodRemovalMethod::Evict, NOW, 9, refused(false))).collect();
    let allowances =
        BTreeMap::from([("ns/b".to_owned(), DisruptionAllowance { version: version.to_owned(), disruptions })]);
    let round = DrainRuleInput { allowances: &allowances, ..round_with(&attempts, &rounds, &volumes) };
    let plan = plan(&[pod("c"), pod("b"), pod("a")], &round);
    let names: Vec<&str> = plan.calls.iter().map(|call| call.pod.name.as_str()).collect();
    assert_eq!(names, expected);
}

#[test]
fn a_pod_whose_budget_is_watched_is_evicted_again_after_20_s_at_the_latest() {
    let (rounds, volumes) = (DrainRounds::default(), VolumeTracker::default());
    let allowances =
        BTreeMap::from([("ns/b".to_owned(), DisruptionAllowance { version: "9".to_owned(), disruptions: 0 })]);
    let calls = |second| {
        let attempts = tried("a", PodRemovalMethod::Evict, second, 1, refused(false));
        let round = DrainRuleInput { allowances: &allowances, ..round_with(&attempts, &rounds, &volumes) };
        plan(&[pod("a")], &round).calls.len()
    };
    assert_eq!((calls(NOW - 19), calls(NOW - 20)), (0, 1));
}

#[rstest]
#[case::after_the_first_refusal(1, "9", 1, 1)]
#[case::after_the_third(3, "9", 2, 4)]
#[case::it_allowed_none(3, "9", 0, 20)]
#[case::a_version_that_is_still_to_come(3, "8", 2, 20)]
fn a_pod_whose_budget_allowed_it_when_it_was_read_after_the_refusal_waits_for_no_change(
    #[case] count: u32,
    #[case] version: &str,
    #[case] disruptions: i32,
    #[case] seconds: i64,
) {
    let (rounds, volumes) = (DrainRounds::default(), VolumeTracker::default());
    let allowances =
        BTreeMap::from([("ns/b".to_owned(), DisruptionAllowance { version: version.to_owned(), disruptions })]);
    let attempts = tried("a", PodRemovalMethod::Evict, NOW, count, refused(false));
    let round = DrainRuleInput { allowances: &allowances, ..round_with(&attempts, &rounds, &volumes) };
    assert_eq!(plan(&[pod("a")], &round).waits[0].until, Some(at(NOW + seconds)));
}

#[test]
fn refusals_are_reported_now_and_then() {
    let reported: Vec<u32> = (1..60)
        .filter(|count| {
            let attempts = tried("a", PodRemovalMethod::Evict, NOW - 20, *count, refused(false));
            normal(&[pod("a")], &attempts).calls[0].report.is_some()
        })
        .collect();
    assert_eq!(reported, [6, 21, 36, 51]);
}

#[rstest]
#[case::misconfigured(
    refused(true),
    "error while evicting pod \"a\": pod disruption budget ns/b is misconfigured and requires zero voluntary evictions"
)]
#[case::failed(DrainAnswer::Failed("boom".to_owned()), "error when evicting pod \"a\": boom scheduled on node n")]
fn what_is_wrong_is_told(#[case] answer: DrainAnswer, #[case] text: &str) {
    let plan = normal(&[pod("a")], &tried("a", PodRemovalMethod::Evict, NOW, 1, answer));
    assert_eq!(plan.error().as_deref(), Some(text));
    assert!(!plan.is_done());
}

#[test]
fn several_errors_are_one_text_without_repetitions() {
    let mut attempts = tried("a", PodRemovalMethod::Evict, NOW, 1, DrainAnswer::Failed("x".to_owned()));
    attempts.extend(tried("b", PodRemovalMethod::Evict, NOW, 1, DrainAnswer::Failed("y".to_owned())));
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
#[case::some_time_ago(NOW - 20, 2, None)]
#[case::long_ago(NOW - 59, 5, None)]
#[case::stuck(NOW - 60, 5, Some("error when waiting for pod \"a\"/n terminating: context deadline exceeded"))]
fn a_pod_that_was_told_to_go_is_awaited(#[case] since: i64, #[case] poll: i64, #[case] error: Option<&str>) {
    let plan = normal(&[pod("a")], &tried("a", PodRemovalMethod::Evict, since, 1, DrainAnswer::Accepted));
    assert_eq!((plan.calls.len(), plan.waits[0].until), (0, Some(at(NOW + poll))));
    assert_eq!(plan.waits[0].text, "pod ns/a to terminate");
    assert_eq!(plan.error().as_deref(), error);
}

#[test]
fn a_pod_that_terminates_already_is_not_evicted_again_after_a_restart() {
    let mut going = pod("a");
    going.terminating_since = Some(at(NOW - 10));
    let plan = normal(&[going], &PodAttempts::new());
    assert_eq!((plan.calls.len(), plan.waits.len()), (0, 1));
}

#[test]
fn a_finished_pod_is_evicted_once_and_never_awaited() {
    let mut finished = pod("a");
    finished.is_finished = true;
    assert_eq!(normal(std::slice::from_ref(&finished), &PodAttempts::new()).calls.len(), 1);
    assert!(normal(&[finished], &tried("a", PodRemovalMethod::Evict, NOW, 1, refused(true))).is_done());
}

#[rstest]
#[case::refused(tried_since("a", PodRemovalMethod::Evict, NOW - 20, 9, refused(false), NOW - 60))]
#[case::told_to_go(tried_since("a", PodRemovalMethod::Evict, NOW - 60, 1, DrainAnswer::Accepted, NOW - 60))]
fn when_evictions_are_over_pods_are_deleted_and_still_awaited(#[case] attempts: PodAttempts) {
    let rounds = DrainRounds::default();
    let over = |attempts| {
        plan(&[pod("a")], &DrainRuleInput { evict_for: SignedDuration::from_secs(60), ..round(attempts, &rounds) })
    };
    assert_eq!(methods(&over(&attempts)), [PodRemovalMethod::Delete]);
    let told = tried_since("a", PodRemovalMethod::Delete, NOW, 1, DrainAnswer::Accepted, NOW - 60);
    let after = over(&told);
    assert_eq!((after.calls.len(), after.waits.len(), after.is_done()), (0, 1, false));
}

#[test]
fn a_pod_keeps_the_grace_period_that_its_eviction_granted_although_evictions_are_over() {
    let (rounds, mut patient) = (DrainRounds::default(), pod("a"));
    patient.grace = SignedDuration::from_secs(600);
    let judged = |second| {
        let attempts = tried("a", PodRemovalMethod::Evict, second, 1, DrainAnswer::Accepted);
        methods(&plan(
            std::slice::from_ref(&patient),
            &DrainRuleInput { evict_for: SignedDuration::from_secs(200), ..round(&attempts, &rounds) },
        ))
    };
    assert_eq!(judged(NOW - 201), [], "evictions are over, the grace period is not");
    assert_eq!(judged(NOW - 629), [], "the kubelet has half a minute to say that the pod ended");
    assert_eq!(judged(NOW - 630), [PodRemovalMethod::Delete]);
}

#[rstest]
#[case::it_is_evicted_first(SignedDuration::from_secs(1), PodRemovalMethod::Evict)]
#[case::without_evictions(SignedDuration::ZERO, PodRemovalMethod::Delete)]
fn time_that_passed_before_the_first_eviction_does_not_count(
    #[case] evict_for: SignedDuration,
    #[case] method: PodRemovalMethod,
) {
    let (attempts, rounds) = (PodAttempts::new(), DrainRounds::default());
    assert_eq!(methods(&plan(&[pod("a")], &DrainRuleInput { evict_for, ..round(&attempts, &rounds) })), [method]);
}

#[test]
fn a_pod_that_another_client_deleted_long_ago_is_deleted_again() {
    let mut stuck = pod("a");
    stuck.terminating_since = Some(at(NOW - 60));
    assert_eq!(methods(&normal(&[stuck], &PodAttempts::new())), [PodRemovalMethod::Evict]);
}

#[rstest]
#[case::evictions_end(3, 100, 3)]
#[case::it_is_forced(100, 5, 5)]
fn no_wait_goes_beyond_the_next_deadline(#[case] evictions: i64, #[case] forced: i64, #[case] expected: i64) {
    let (attempts, rounds) =
        (tried_since("a", PodRemovalMethod::Evict, NOW, 9, refused(false), NOW - 60), DrainRounds::default());
    let (evict_for, forced_from) = (SignedDuration::from_secs(60 + evictions), at(NOW + forced));
    let plan = plan(&[pod("a")], &DrainRuleInput { evict_for, forced_from, ..round(&attempts, &rounds) });
    assert_eq!(plan.waits[0].until, Some(at(NOW + expected)));
}

#[test]
fn force_deletes_everything_once_and_goes_on_whatever_happens() {
    let rounds = DrainRounds::default();
    let force = |attempts: &PodAttempts| {
        plan(&[pod("a")], &DrainRuleInput { mode: DrainMode::Forced, ..round(attempts, &rounds) })
    };
    for evicted in [refused(true), DrainAnswer::Accepted, DrainAnswer::Failed("boom".to_owned())] {
        assert_eq!(methods(&force(&tried("a", PodRemovalMethod::Evict, NOW, 3, evicted))), [PodRemovalMethod::Delete]);
    }
    assert!(force(&tried("a", PodRemovalMethod::Delete, NOW, 1, DrainAnswer::Accepted)).is_done());
    let failed = force(&tried("a", PodRemovalMethod::Delete, NOW, 1, DrainAnswer::Failed("boom".to_owned())));
    assert!(failed.is_done());
    assert_eq!(failed.error().as_deref(), Some("error when deleting pod \"a\": boom"));
}

#[test]
fn pods_that_come_back_hold_a_drain_for_one_more_round() {
    let (mut rounds, attempts) = (DrainRounds::default(), PodAttempts::new());
    let judged = |rounds: &DrainRounds, names: &[&str]| {
        let pods: Vec<PodFacts> = names.iter().map(|name| pod(name)).collect();
        plan(&pods, &round(&attempts, rounds)).calls.into_iter().map(|call| call.pod.name).collect::<Vec<_>>()
    };
    let mut listed = |names: &[&str]| {
        rounds.listed(&names.iter().map(|name| pod(name)).collect::<Vec<_>>());
        judged(&rounds, names)
    };
    assert_eq!(listed(&["a", "b"]), ["a", "b"]);
    assert_eq!(listed(&["a", "c"]), ["a"], "c came to a cordoned Node");
    assert_eq!(listed(&["c", "d"]), ["c", "d"], "but gets its eviction");
    assert_eq!(listed(&["d", "e"]), ["d"]);
    assert_eq!(listed(&["e", "f"]), Vec::<String>::new(), "this would go on for ever");
    rounds.restart();
    rounds.listed(&[pod("e")]);
    assert_eq!(judged(&rounds, &["e"]), ["e"], "somebody uncordoned the Node");
}

#[test]
fn a_finished_pod_begins_no_round_and_ends_none() {
    let (mut rounds, mut job) = (DrainRounds::default(), pod("job"));
    job.is_finished = true;
    rounds.listed(&[job.clone(), pod("a")]);
    rounds.listed(&[job, pod("b")]);
    assert!(rounds.count(&pod("b")) && !rounds.count(&pod("c")));
}
