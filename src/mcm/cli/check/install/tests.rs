use rstest::rstest;

use super::*;
use crate::cli::check::finding::{CheckLevel, exit};
use crate::cli::exit::CommandExit;
use mcm_insight::{
    manager::{ManagerFreeze, ManagerPark},
    testing::held_lease,
};
use mcm_runtime::engaged::switch::ParkCause;

fn server(skew: Option<i64>) -> ServerFacts {
    ServerFacts { version: "v1.36.3".to_owned(), skew: skew.map(SignedDuration::from_secs) }
}

#[rstest]
#[case::none(TargetReachability::None, CheckLevel::Good, "there is no target cluster")]
#[case::answers(TargetReachability::Answers(server(None)), CheckLevel::Good, "target cluster v1.36.3 answer")]
#[case::fails(TargetReachability::Fails("no route".to_owned()), CheckLevel::Problem, "the target cluster does not: no route")]
fn a_target_cluster_answers_or_is_a_problem(
    #[case] target: TargetReachability,
    #[case] level: CheckLevel,
    #[case] text: &str,
) {
    let finding = clusters(&server(None), &target);
    assert_eq!(finding.result, level);
    assert!(finding.text.contains(text), "{finding:?}");
}

#[rstest]
#[case(Some(3), Some(-3), CheckLevel::Good, "agree")]
#[case(None, None, CheckLevel::Good, "agree")]
#[case(Some(-90), None, CheckLevel::Note, "the clock of the control cluster is 1m30s behind that of this computer")]
#[case(None, Some(7200), CheckLevel::Note, "the clock of the target cluster is 2h ahead of that of this computer")]
fn a_clock_that_differs_is_named(
    #[case] control: Option<i64>,
    #[case] target: Option<i64>,
    #[case] level: CheckLevel,
    #[case] text: &str,
) {
    let finding = clocks(&server(control), &TargetReachability::Answers(server(target)));
    assert_eq!(finding.result, level);
    assert!(finding.text.contains(text), "{finding:?}");
}

#[test]
fn every_unreadable_object_is_named() {
    let unreadable = |name: &str| UndecodableObject {
        kind: "Machine".to_owned(),
        name: name.to_owned(),
        owner: None,
        error: "drainTimeout: 2 hours is no duration".to_owned(),
    };
    let kinds = [Kind { name: "machine", objects: Ok(3) }];
    let findings = objects(&kinds, &[unreadable("a"), unreadable("b")], "demo");
    assert_eq!(findings.len(), 2);
    assert_eq!(findings[0].next.as_deref(), Some("kubectl edit machines.machine.sapcloud.io a -n demo"));
    assert_eq!(findings[1].text, "Machine b cannot be read: drainTimeout: 2 hours is no duration");
    assert_eq!(exit(&findings), CommandExit::No);
}

#[test]
fn kinds_that_may_not_be_listed_are_open_questions() {
    let kinds =
        [Kind { name: "class", objects: Err("forbidden".to_owned()) }, Kind { name: "machine", objects: Ok(1) }];
    let findings = objects(&kinds, &[], "demo");
    assert_eq!(findings, [CheckFinding::unknown("objects", "classes not read: forbidden")]);
    assert_eq!(exit(&findings), CommandExit::No);
}

fn class(name: &str, driver: Result<(), String>, lines: Vec<ClassFinding>) -> InstalledClass {
    InstalledClass { name: name.to_owned(), provider: "AWS".to_owned(), driver, lines }
}

#[test]
fn a_class_without_a_driver_is_one_problem() {
    let line = ClassFinding::new(ClassFindingVerdict::Error, "provider", "not served");
    let all = [class("a", Ok(()), Vec::new()), class("b", Err("no driver for b".to_owned()), vec![line])];
    assert_eq!(drivers(&all, &[]), [CheckFinding::problem("drivers", "no driver for b")]);
    assert_eq!(classes(&all), [CheckFinding::good("classes", "1 of 1 valid")]);
}

#[test]
fn errors_of_a_class_are_problems_and_warnings_are_notes() {
    let lines = vec![
        ClassFinding::new(ClassFindingVerdict::Error, "providerSpec.ami", "is missing"),
        ClassFinding::new(ClassFindingVerdict::Warning, "x", "is unknown"),
    ];
    let findings = classes(&[class("a", Ok(()), lines)]);
    assert_eq!(findings.iter().map(|one| one.result).collect::<Vec<_>>(), [CheckLevel::Problem, CheckLevel::Note]);
    assert_eq!(findings[0].text, "no VM can be created from class a: providerSpec.ami is missing");
}

#[test]
fn a_secret_that_may_not_be_read_is_named_once() {
    let unread = || SecretPresence::Unread("forbidden".to_owned());
    assert_eq!(
        secrets(&[unread(), unread(), SecretPresence::There]),
        [CheckFinding::unknown("secrets", "not read: forbidden")]
    );
    let missing = secrets(&[SecretPresence::Missing("s".to_owned(), "c".to_owned())]);
    assert_eq!(missing[0].result, CheckLevel::Problem);
    assert_eq!(secrets(&[SecretPresence::There]), [CheckFinding::good("secrets", "1 of 1 there")]);
}

fn manager(renewed: i64) -> ManagerLease {
    held_lease("machine-controller", "machines", "mcm-0", Timestamp::from_second(renewed).unwrap())
}

fn frozen_manager() -> ManagerLease {
    let since = Timestamp::from_second(940).unwrap();
    ManagerLease { frozen: Some(ManagerFreeze { since, why: "connect: timeout".to_owned() }), ..manager(998) }
}

/// A stopped manager of a namespace with objects is a problem, and so is one whose target cluster is away. Before an
/// installation there are no objects, and without leader election there is no Lease.
#[rstest]
#[case::alive(manager(998), true, CheckLevel::Good)]
#[case::dead(manager(100), true, CheckLevel::Problem)]
#[case::dead_without_objects(manager(100), false, CheckLevel::Note)]
#[case::frozen(frozen_manager(), true, CheckLevel::Problem)]
#[case::no_lease(ManagerLease { exists: false, holder: String::new(), ..manager(998) }, true, CheckLevel::Note)]
fn objects_need_a_manager_that_acts(
    #[case] manager: ManagerLease,
    #[case] has_objects: bool,
    #[case] expected: CheckLevel,
) {
    let now = Timestamp::from_second(1000).unwrap();
    let findings = leases(&Ok(vec![manager]), has_objects, now);
    assert_eq!(findings.iter().map(|one| one.result).collect::<Vec<_>>(), [expected], "{findings:?}");
    assert_eq!(exit(&findings) == CommandExit::No, expected == CheckLevel::Problem);
    assert_eq!(findings[0].next.is_some(), expected == CheckLevel::Problem);
}

/// A hibernation parks a namespace, so it is no problem.
#[test]
fn the_manager_of_a_parked_namespace_waits_for_its_deployment() {
    let parked = Some(ManagerPark::new(ParkCause::NoReplicas, "demo"));
    for renewed in [998, 100] {
        let parked = ManagerLease { parked: parked.clone(), ..manager(renewed) };
        let findings = leases(&Ok(vec![parked]), true, Timestamp::from_second(1000).unwrap());
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(findings[0].result, CheckLevel::Note, "{findings:?}");
        assert!(findings[0].text.contains("with 0 the namespace is parked"), "{findings:?}");
        let next = "kubectl scale deployment machine-controller-manager -n demo --replicas=1";
        assert_eq!(findings[0].next.as_deref(), Some(next));
    }
}

/// A provider without leader election has no Lease, or holds a former one no more.
#[rstest]
#[case::not_found(None, CheckLevel::Good)]
#[case::alive(Some(manager(998)), CheckLevel::Good)]
#[case::dead(Some(manager(100)), CheckLevel::Note)]
fn the_provider_needs_no_lease_of_native_managers(
    #[case] provider: Option<ManagerLease>,
    #[case] expected: CheckLevel,
) {
    let finding = provider_lease(provider.as_ref(), Timestamp::from_second(1000).unwrap());
    assert_eq!((finding.check, finding.result), ("leases", expected), "{finding:?}");
    assert_eq!(finding.next.is_some(), expected == CheckLevel::Note, "{finding:?}");
    assert!(finding.text.contains("no Lease machine-controller*"), "{finding:?}");
}

#[test]
fn leases_that_may_not_be_read_are_open_questions() {
    let findings = leases(&Err("forbidden".to_owned()), true, Timestamp::UNIX_EPOCH);
    assert_eq!(findings, [CheckFinding::unknown("leases", "not read: forbidden")]);
}

#[test]
fn waits_are_notes_that_name_the_next_command() {
    let pool =
        SubjectRef { kind: "MachineDeployment".to_owned(), namespace: "demo".to_owned(), name: "pool".to_owned() };
    let finding = waits(&Ok(vec![pool]), "demo");
    assert_eq!(finding.text, "1 object waits for a user: MachineDeployment pool");
    assert_eq!(finding.next.as_deref(), Some("mcm why -n demo"));
    assert_eq!(frozen(&["a".to_owned()], "demo")[0].text, "1 set frozen, and creates no machine: a");
}
