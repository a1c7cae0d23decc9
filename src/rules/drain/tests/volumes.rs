//! Pods with volumes: their order, and which volumes are awaited after they are terminated.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use rstest::rstest;

use super::{
    super::{plan::DrainPlan, *},
    NOW, at, pod, refused, round_with, tried,
};

const TIMED_OUT: &str = "timeout while waiting for PVs to detach from node";

/// A pod of a priority with claims; a name that ends with `*` is that of an ephemeral one. Its grace period is 30 s.
fn with(name: &str, priority: i32, claims: &[&str]) -> PodFacts {
    let claim =
        |name: &&str| PodVolumeClaim { name: name.trim_end_matches('*').to_owned(), is_ephemeral: name.ends_with('*') };
    PodFacts { priority, claims: claims.iter().map(claim).collect(), ..pod(name) }
}

/// Every claim leads to the volume of the same name with the ID `id-<name>`; those called `odd…` cannot be followed.
fn known(pods: &[PodFacts]) -> VolumeTracker {
    let mut volumes = VolumeTracker::default();
    for claim in volumes.unread(pods) {
        let name = claim.name.clone();
        let facts = match name.strip_prefix("odd") {
            Some(_) => ClaimFacts::Ignored {
                reason: "of an unknown kind".to_owned(),
                volume: Some(TrackedVolume { id: format!("id-{name}").into(), name: name.into() }),
            },
            None => ClaimFacts::Volume(TrackedVolume { id: format!("id-{name}").into(), name: name.into() }),
        };
        volumes.read(claim, facts);
    }
    volumes
}

fn attached(here: &[&str], elsewhere: &[&str]) -> AttachmentState {
    AttachmentState {
        on_node: here.iter().map(|name| format!("kubernetes.io/csi/driver^id-{name}")).collect(),
        here: Some(BTreeSet::new()),
        elsewhere: elsewhere.iter().map(|name| Arc::from(*name)).collect(),
    }
}

/// The wait for a volume that no pod uses.
fn left(name: &str) -> String {
    format!("volumes kubernetes.io/csi/driver^id-{name}, which no pod uses, to be detached from node n")
}

fn planned(pods: &[PodFacts], volumes: &VolumeTracker, attempts: &PodAttempts, now: i64) -> DrainPlan {
    plan(pods, &DrainRuleInput { now: at(now), ..round_with(attempts, &DrainRounds::default(), volumes) })
}

fn called(plan: &DrainPlan) -> Vec<&str> {
    plan.calls.iter().map(|call| call.pod.name.as_str()).collect()
}

fn waits(plan: &DrainPlan) -> Vec<&str> {
    plan.waits.iter().map(|wait| wait.text.as_str()).collect()
}

fn first_calls(pods: &[PodFacts]) -> Vec<String> {
    let plan = planned(pods, &known(pods), &PodAttempts::new(), NOW);
    called(&plan).into_iter().map(str::to_owned).collect()
}

#[rstest]
#[case::nothing_shared(vec![with("a", 0, &["x"]), with("b", 0, &["y"])], &["a", "b"])]
#[case::higher_priority_first(vec![with("a", 0, &["x"]), with("b", 7, &["y"])], &["b"])]
#[case::one_of_those_that_share(vec![with("a", 0, &["x"]), with("b", 0, &["x", "y"]), with("c", 0, &["z"])], &["a", "c"])]
#[case::who_waits_keeps_its_place(vec![with("a", 0, &["x"]), with("b", 0, &["x", "y"]), with("c", 0, &["y"])], &["a"])]
#[case::pods_without_volumes_have_no_turn(vec![with("a", 0, &["x"]), with("b", 7, &["y"]), with("c", 0, &[])], &["b", "c"])]
#[case::nor_have_those_that_cannot_be_followed(vec![with("a", 0, &["odd"]), with("b", 7, &["y"])], &["a", "b"])]
#[case::one_claim_twice_is_not_shared(vec![with("a", 0, &["x", "x"])], &["a"])]
#[case::ephemeral_volumes_count(vec![with("a", 0, &["x*"]), with("b", 7, &["y*"])], &["b"])]
#[case::the_limit(
    vec![with("a", 0, &["1"]), with("b", 0, &["2", "3"]), with("c", 0, &["4", "5", "6"]), with("d", 0, &["7", "8"])],
    &["a", "b", "d"]
)]
#[case::many_volumes_of_one_pod(vec![with("a", 0, &["1", "2", "3", "4", "5", "6"]), with("b", 0, &["7"])], &["a"])]
fn the_order_of_pods_with_volumes(#[case] pods: Vec<PodFacts>, #[case] expected: &[&str]) {
    assert_eq!(first_calls(&pods), expected);
}

#[rstest]
#[case::daemon(PodFacts { is_daemon: true, ..with("a", 7, &["x"]) })]
#[case::mirror(PodFacts { is_mirror: true, ..with("a", 7, &["x"]) })]
#[case::finished(PodFacts { is_finished: true, ..with("a", 7, &["x"]) })]
#[case::terminating_when_the_drain_began(PodFacts { terminating_since: Some(at(NOW)), ..with("a", 7, &["x"]) })]
fn a_pod_that_is_not_evicted_delays_no_other(#[case] first: PodFacts) {
    assert!(first_calls(&[first, with("b", 0, &["x"])]).contains(&"b".to_owned()));
}

#[test]
fn a_waiting_caller_gets_the_reason() {
    let pods = [with("a", 3, &["x"]), with("b", 3, &["x"]), with("c", 0, &["z"])];
    let plan = planned(&pods, &known(&pods), &PodAttempts::new(), NOW);
    let expected = [
        "pod ns/b to be evicted: pod ns/a shares volume x with it",
        "pod ns/c to be evicted: pod ns/a has a higher priority",
    ];
    assert_eq!(waits(&plan), expected);
    assert_eq!(plan.error(), None);
}

#[test]
fn a_refused_pod_delays_no_other_and_waits_for_moving_volumes() {
    let pods = [with("a", 7, &["x"]), with("b", 0, &["x"])];
    let mut volumes = known(&pods);
    let attempts = tried("a", PodRemovalMethod::Evict, NOW, 1, refused(false));
    assert_eq!(called(&planned(&pods, &volumes, &attempts, NOW)), ["b"]);
    volumes.told_to_go(&pods[1], at(NOW));
    let plan = planned(&pods[..1], &volumes, &attempts, NOW + 1);
    assert_eq!(called(&plan), Vec::<&str>::new());
    assert_eq!(waits(&plan)[0], "pod ns/a to be evicted: pod ns/b shares volume x with it");
    volumes.seen(&pods[..1], &attached(&[], &["x"]), at(NOW + 2));
    assert_eq!(called(&planned(&pods[..1], &volumes, &attempts, NOW + 2)), ["a"]);
}

#[test]
fn a_pod_that_cannot_be_followed_is_awaited_all_the_same() {
    let mut ending = with("a", 0, &["odd"]);
    ending.terminating_since = Some(at(NOW));
    let plan = planned(std::slice::from_ref(&ending), &known(&[ending.clone()]), &PodAttempts::new(), NOW);
    assert_eq!(waits(&plan), ["pod ns/a to terminate"]);
}

/// Evicted at `NOW`, with a grace period of 30 s and 120 s to detach.
#[rstest]
#[case::detached_and_attached(&[], &["x"], 1, &[], None)]
#[case::not_detached(&["x"], &[], 1, &["volumes x of pod ns/a to be detached from node n"], None)]
#[case::still_here_although_elsewhere(&["x"], &["x"], 1, &["volumes x of pod ns/a to be detached from node n"], None)]
#[case::not_attached(&[], &[], 1, &["volumes x of pod ns/a to be attached to another node"], None)]
#[case::a_longer_id_is_another_volume(&["x2"], &["x"], 1, &["volumes kubernetes.io/csi/driver^id-x2, which no pod uses, to be detached from node n"], None)]
#[case::almost_too_late(&["x"], &[], 149, &["volumes x of pod ns/a to be detached from node n"], None)]
#[case::too_late(&["x"], &[], 150, &["volumes x of pod ns/a, which were not detached from node n in time"], Some(TIMED_OUT))]
#[case::told_for_some_seconds(&["x"], &[], 154, &["volumes x of pod ns/a, which were not detached from node n in time"], Some(TIMED_OUT))]
#[case::given_up(&["x"], &[], 155, &[], None)]
#[case::given_up_before_it_was_detached(&[], &[], 156, &[], None)]
fn volumes_are_awaited_after_their_pod(
    #[case] here: &[&str],
    #[case] elsewhere: &[&str],
    #[case] second: i64,
    #[case] expected: &[&str],
    #[case] error: Option<&str>,
) {
    let gone = with("a", 0, &["x"]);
    let mut volumes = known(std::slice::from_ref(&gone));
    volumes.told_to_go(&gone, at(NOW));
    volumes.seen(&[], &attached(here, elsewhere), at(NOW + second));
    let plan = planned(&[], &volumes, &PodAttempts::new(), NOW + second);
    assert_eq!(waits(&plan), expected);
    assert_eq!(plan.error().as_deref(), error);
    assert_eq!(plan.is_done(), expected.is_empty());
}

#[rstest]
#[case::in_time(90, false)]
#[case::too_late(91, true)]
fn reattachment_is_awaited_from_the_detachment_on(#[case] second: i64, #[case] is_done: bool) {
    let gone = with("a", 0, &["x"]);
    let mut volumes = known(std::slice::from_ref(&gone));
    volumes.told_to_go(&gone, at(NOW - 10));
    volumes.seen(&[], &attached(&[], &[]), at(NOW + 1));
    let plan = planned(&[], &volumes, &PodAttempts::new(), NOW + second);
    assert_eq!(plan.is_done(), is_done);
    assert_eq!(plan.error(), None, "that it is not attached anywhere is no error");
}

#[test]
fn the_next_pod_is_evicted_when_the_volumes_of_the_previous_one_have_arrived_or_timed_out() {
    let pods = [with("a", 7, &["x"]), with("b", 0, &["y"])];
    let mut volumes = known(&pods);
    volumes.told_to_go(&pods[0], at(NOW));
    let left = &pods[1..];
    let mut at_second = |second, here: &[&str], elsewhere: &[&str]| {
        volumes.seen(left, &attached(here, elsewhere), at(NOW + second));
        called(&planned(left, &volumes, &PodAttempts::new(), NOW + second)).len()
    };
    assert_eq!(at_second(5, &["x", "y"], &[]), 0, "it is attached");
    assert_eq!(at_second(6, &["y"], &[]), 0, "it is attached nowhere");
    assert_eq!(at_second(7, &["y"], &["x"]), 1);
    let mut stuck = known(&pods);
    stuck.told_to_go(&pods[0], at(NOW));
    stuck.seen(left, &attached(&["x", "y"], &[]), at(NOW + 150));
    assert_eq!(called(&planned(left, &stuck, &PodAttempts::new(), NOW + 150)), ["b"]);
}

#[rstest]
#[case::another_pod(false)]
#[case::a_pod_that_stays(true)]
fn a_shared_volume_is_awaited_with_the_last_of_its_pods(#[case] is_daemon: bool) {
    let (gone, mut other) = (with("a", 0, &["x"]), with("b", 0, &["x"]));
    other.is_daemon = is_daemon;
    let mut volumes = known(&[gone.clone(), other.clone()]);
    volumes.told_to_go(&gone, at(NOW));
    volumes.seen(std::slice::from_ref(&other), &attached(&["x"], &[]), at(NOW + 1));
    let plan = planned(std::slice::from_ref(&other), &volumes, &PodAttempts::new(), NOW + 1);
    assert_eq!(plan.is_done(), is_daemon, "{:?}", plan.waits);
    if !is_daemon {
        assert_eq!(called(&plan), ["b"]);
        volumes.told_to_go(&other, at(NOW + 1));
        volumes.seen(&[], &attached(&["x"], &[]), at(NOW + 2));
        assert!(!planned(&[], &volumes, &PodAttempts::new(), NOW + 2).is_done(), "now it has to be detached");
    }
}

#[test]
fn an_ephemeral_volume_is_deleted_with_its_pod_and_not_attached_again() {
    let gone = with("a", 0, &["x*"]);
    let mut volumes = known(std::slice::from_ref(&gone));
    volumes.told_to_go(&gone, at(NOW));
    volumes.seen(&[], &attached(&["x"], &[]), at(NOW + 1));
    assert!(!planned(&[], &volumes, &PodAttempts::new(), NOW + 1).is_done());
    volumes.seen(&[], &attached(&[], &[]), at(NOW + 2));
    assert!(planned(&[], &volumes, &PodAttempts::new(), NOW + 2).is_done());
}

#[test]
fn volumes_of_pods_deleted_by_other_clients_are_also_awaited() {
    let mut ending = with("a", 0, &["x"]);
    ending.terminating_since = Some(at(NOW - 5));
    let mut volumes = known(std::slice::from_ref(&ending));
    volumes.seen(std::slice::from_ref(&ending), &attached(&["x"], &[]), at(NOW));
    volumes.seen(&[], &attached(&["x"], &[]), at(NOW + 1));
    let plan = planned(&[], &volumes, &PodAttempts::new(), NOW + 1);
    assert_eq!(waits(&plan), ["volumes x of pod ns/a to be detached from node n"]);
}

#[test]
fn pods_whose_volumes_could_not_be_read_wait_and_no_others() {
    let pods = [with("a", 0, &["x"]), with("b", 0, &[])];
    let (volumes, attempts, rounds) = (VolumeTracker::default(), PodAttempts::new(), DrainRounds::default());
    let round =
        DrainRuleInput { unread: Some("cannot list claim x: timeout"), ..round_with(&attempts, &rounds, &volumes) };
    let plan = plan(&pods, &round);
    assert_eq!(called(&plan), ["b"]);
    assert_eq!(waits(&plan), ["the volumes of pod ns/a: cannot list claim x: timeout"]);
    assert_eq!(plan.error().as_deref(), Some("cannot list claim x: timeout"));
}

#[test]
fn the_volumes_of_a_pod_that_vanished_are_awaited_as_well() {
    let pods = [with("a", 0, &["x"])];
    let mut volumes = known(&pods);
    volumes.seen(&pods, &attached(&["x"], &[]), at(NOW));
    volumes.seen(&[], &attached(&["x"], &[]), at(NOW + 1));
    let plan = planned(&[], &volumes, &PodAttempts::new(), NOW + 1);
    assert_eq!(waits(&plan), ["volumes x of pod ns/a to be detached from node n"]);
    let mut finished = pods[0].clone();
    finished.is_finished = true;
    let mut volumes = known(&pods);
    volumes.seen(&[finished], &attached(&["x"], &[]), at(NOW));
    volumes.seen(&[], &attached(&["x"], &[]), at(NOW + 1));
    assert_eq!(waits(&planned(&[], &volumes, &PodAttempts::new(), NOW + 1)), [left("x")], "it is on no move");
}

#[test]
fn a_forced_drain_waits_for_no_volume_and_has_no_order() {
    let pods = [with("a", 7, &["x"]), with("b", 0, &["y"])];
    let gone = with("c", 0, &["z"]);
    let mut volumes = known(&[pods[0].clone(), pods[1].clone(), gone.clone()]);
    volumes.told_to_go(&gone, at(NOW));
    let (attempts, rounds) = (PodAttempts::new(), DrainRounds::default());
    let plan = plan(&pods, &DrainRuleInput { mode: DrainMode::Forced, ..round_with(&attempts, &rounds, &volumes) });
    assert_eq!((called(&plan), plan.waits.len()), (vec!["a", "b"], 0));
}

/// The reference never ends here.
#[test]
fn without_evictions_pods_with_volumes_are_deleted_in_their_order() {
    let pods = [with("a", 0, &["x"]), with("b", 7, &["y"])];
    let (attempts, rounds, mut volumes) = (PodAttempts::new(), DrainRounds::default(), known(&pods));
    let evict_for = DrainPolicy::evict_for(-1);
    let first = plan(&pods, &DrainRuleInput { evict_for, ..round_with(&attempts, &rounds, &volumes) });
    assert_eq!((called(&first), first.calls[0].method), (vec!["b"], PodRemovalMethod::Delete));
    volumes.told_to_go(&pods[1], at(NOW));
    volumes.seen(&pods[..1], &attached(&[], &["y"]), at(NOW));
    let second = plan(&pods[..1], &DrainRuleInput { evict_for, ..round_with(&attempts, &rounds, &volumes) });
    assert_eq!((called(&second), second.calls[0].method), (vec!["a"], PodRemovalMethod::Delete));
}

#[test]
fn no_wait_for_volumes_goes_beyond_the_deadline() {
    let pods = [with("a", 7, &["x"]), with("b", 0, &["y"])];
    let mut volumes = known(&pods);
    volumes.told_to_go(&pods[0], at(NOW));
    let (attempts, rounds) = (PodAttempts::new(), DrainRounds::default());
    let round = DrainRuleInput { forced_from: at(NOW + 2), ..round_with(&attempts, &rounds, &volumes) };
    let plan = plan(&pods[1..], &round);
    assert_eq!(plan.waits.iter().map(|wait| wait.until).collect::<BTreeSet<_>>(), [Some(at(NOW + 2))].into());
    assert_eq!(plan.waits.len(), 2);
}

#[test]
fn volumes_that_are_not_followed_have_a_reason() {
    let mut daemon = with("d", 0, &["odd-2"]);
    daemon.is_daemon = true;
    let pods = [with("a", 0, &["odd-1", "x"]), daemon];
    let reasons: BTreeMap<String, String> =
        known(&pods).ignored(&pods).into_iter().map(|(claim, why)| (claim.to_string(), why.to_owned())).collect();
    assert_eq!(reasons, [("ns/odd-1".to_owned(), "of an unknown kind".to_owned())].into());
}

/// Seen at `NOW` without a pod.
#[rstest]
#[case::nothing_is_attached(&[], &[], 0, &[], None)]
#[case::by_the_node(&["x"], &[], 1, &["volumes kubernetes.io/csi/driver^id-x, which no pod uses, to be detached from node n"], None)]
#[case::by_a_volume_attachment(&[], &["pv"], 1, &["volumes pv, which no pod uses, to be detached from node n"], None)]
#[case::by_both(&["x"], &["pv"], 1, &["volumes pv, which no pod uses, to be detached from node n"], None)]
#[case::almost_too_late(&[], &["pv"], 119, &["volumes pv, which no pod uses, to be detached from node n"], None)]
#[case::too_late(&[], &["pv"], 120, &["volumes pv, which were not detached from node n in time"], Some(TIMED_OUT))]
#[case::given_up(&[], &["pv"], 125, &[], None)]
fn volumes_are_awaited_whoever_evicted_their_pods(
    #[case] on_node: &[&str],
    #[case] here: &[&str],
    #[case] second: i64,
    #[case] expected: &[&str],
    #[case] error: Option<&str>,
) {
    let mut volumes = VolumeTracker::default();
    for since in [0, second] {
        volumes.seen(&[], &with_objects(attached(on_node, &[]), here), at(NOW + since));
    }
    let plan = planned(&[], &volumes, &PodAttempts::new(), NOW + second);
    assert_eq!((waits(&plan), plan.error().as_deref()), (expected.to_vec(), error));
    assert_eq!(volumes.still_attached(&[]).is_empty(), on_node.is_empty() && here.is_empty());
}

fn with_objects(attachments: AttachmentState, here: &[&str]) -> AttachmentState {
    AttachmentState { here: Some(here.iter().map(|name| Arc::from(*name)).collect()), ..attachments }
}

#[rstest]
#[case::of_a_daemon_set(|pod: &mut PodFacts| pod.is_daemon = true)]
#[case::of_a_file_on_the_node(|pod: &mut PodFacts| pod.is_mirror = true)]
#[case::with_a_volume_that_the_driver_does_not_know(|pod: &mut PodFacts| {
    pod.is_daemon = true;
    pod.claims[0].name = "odd".to_owned();
})]
fn volumes_of_pods_that_stay_are_not_awaited(#[case] change: fn(&mut PodFacts)) {
    let mut stays = with("a", 0, &["x"]);
    change(&mut stays);
    let name = stays.claims[0].name.clone();
    let (pods, attachments) = ([stays], with_objects(attached(&[&name], &[]), &[&name]));
    let mut volumes = known(&pods);
    volumes.seen(&pods, &attachments, at(NOW));
    assert!(planned(&pods, &volumes, &PodAttempts::new(), NOW).is_done());
    let mut read_later = VolumeTracker::default();
    read_later.seen(&pods, &attachments, at(NOW));
    assert!(!planned(&pods, &read_later, &PodAttempts::new(), NOW).is_done());
    for claim in read_later.unread(&pods) {
        read_later.read(claim.clone(), volumes.claims[&claim].clone());
    }
    assert!(planned(&pods, &read_later, &PodAttempts::new(), NOW).is_done());
}

#[test]
fn a_volume_without_an_id_is_awaited_after_its_pod() {
    let pods = [with("a", 0, &["odd"])];
    let mut volumes = known(&pods);
    volumes.told_to_go(&pods[0], at(NOW));
    volumes.seen(&pods, &attached(&["odd"], &[]), at(NOW));
    volumes.seen(&[], &attached(&["odd"], &[]), at(NOW + 9));
    let plan = planned(&[], &volumes, &PodAttempts::new(), NOW + 9);
    assert_eq!(waits(&plan), [left("odd")]);
    volumes.seen(&[], &attached(&[], &[]), at(NOW + 10));
    assert!(planned(&[], &volumes, &PodAttempts::new(), NOW + 10).is_done());
}

#[test]
fn a_volume_attachment_that_is_left_keeps_a_volume_attached() {
    let gone = with("a", 0, &["x*"]);
    let mut volumes = known(std::slice::from_ref(&gone));
    volumes.told_to_go(&gone, at(NOW));
    volumes.seen(&[], &with_objects(attached(&[], &[]), &["x"]), at(NOW + 1));
    let plan = planned(&[], &volumes, &PodAttempts::new(), NOW + 1);
    assert_eq!(waits(&plan), ["volumes x of pod ns/a to be detached from node n"]);
}

#[test]
fn volumes_that_were_given_up_with_their_pod_are_not_awaited_again() {
    let gone = with("a", 0, &["x"]);
    let mut volumes = known(std::slice::from_ref(&gone));
    volumes.told_to_go(&gone, at(NOW));
    volumes.seen(&[], &with_objects(attached(&["x"], &[]), &["x"]), at(NOW + 155));
    assert!(planned(&[], &volumes, &PodAttempts::new(), NOW + 155).is_done());
}

#[test]
fn volume_attachments_that_cannot_be_listed_are_awaited_for_a_limited_time() {
    let mut volumes = VolumeTracker::default();
    let unknown = AttachmentState { here: None, ..attached(&[], &[]) };
    volumes.seen(&[], &unknown, at(NOW));
    let plan = planned(&[], &volumes, &PodAttempts::new(), NOW + 1);
    assert_eq!(waits(&plan), ["the VolumeAttachments of node n to become readable"]);
    assert!(planned(&[], &volumes, &PodAttempts::new(), NOW + 120).is_done());
    volumes.seen(&[], &attached(&[], &[]), at(NOW + 2));
    assert!(planned(&[], &volumes, &PodAttempts::new(), NOW + 2).is_done());
}

#[test]
fn a_forced_drain_waits_for_no_volume_that_is_left() {
    let mut volumes = VolumeTracker::default();
    volumes.seen(&[], &attached(&["x"], &[]), at(NOW));
    let (attempts, rounds) = (PodAttempts::new(), DrainRounds::default());
    let round = round_with(&attempts, &rounds, &volumes);
    assert!(plan(&[], &DrainRuleInput { mode: DrainMode::Forced, ..round }).is_done());
    let plan = plan(&[], &DrainRuleInput { forced_from: at(NOW + 2), ..round });
    assert_eq!(plan.waits[0].until, Some(at(NOW + 2)));
}
