//! VMs that are deleted, VMs that never are, and reports.

use std::time::Duration;

use jiff::SignedDuration;
use rstest::rstest;
use serde_json::json;

use super::{
    super::ForeignClasses,
    world::{World, running},
};
use mcm_api::reasons::EventReason;
use mcm_driver::ListedVm;
use mcm_rules::plan::WaitKind;

#[test]
fn a_vm_without_a_machine_is_deleted_when_it_is_seen_again_a_period_later() {
    let mut world = World::new();
    let reasons = world.pass();
    assert_eq!(
        reasons,
        [
            "VMs of the class are compared with the machines",
            "a VM without a machine that several classes list is handled once",
            "2 VMs: 1 without a machine, 0 that may belong to another machine; 0 machines without a VM"
        ]
    );
    assert_eq!(world.deleted, [""; 0]);
    world.sleep(14);
    world.pass();
    assert_eq!(world.deleted, [""; 0], "a pass in between, after the deletion of a machine");
    world.sleep(1);
    let reasons = world.pass();
    assert_eq!(world.deleted, ["cloud:///1"]);
    assert_eq!(
        reasons[3..],
        [
            "VM cloud:///1 is deleted only after a live read of its machine",
            "no machine has VM cloud:///1 (machine gone) since 2023-11-14T22:13:20Z"
        ]
    );
    let found = "VMs without a machine: cloud:///1 (machine gone); deleted if they still have none in 15 min";
    let deleted = "Deleted VM cloud:///1 (machine gone): no machine has it";
    assert_eq!(
        world.events,
        [(EventReason::OrphanFound, found.to_owned()), (EventReason::OrphanDeleted, deleted.to_owned())],
        "each once"
    );
    assert_eq!(world.last.requeue_at(), Some(world.now + SignedDuration::from_mins(15)));
}

#[rstest]
#[case::the_list_fails(|world: &mut World| world.list_fails = Some("Unavailable: no".to_owned()))]
#[case::a_machine_of_another_class_has_it(|world: &mut World| {
    world.add("other", &running("cloud:///1"));
    world.machines.get_mut("other").unwrap().spec.class.name = "another".to_owned();
})]
#[case::its_machine_has_no_phase_yet(|world: &mut World| world.add("gone", &json!({})))]
#[case::its_machine_is_created_again(|world: &mut World| {
    world.add("gone", &json!({"spec": {"providerID": "cloud:///7"}, "status": {"currentStatus": {"phase": "CrashLoopBackOff"}}}));
})]
#[case::its_machine_has_no_id_yet(|world: &mut World| {
    world.add("gone", &json!({"status": {"currentStatus": {"phase": "Pending"}}}));
})]
#[case::its_machine_is_being_deleted_without_an_id(|world: &mut World| {
    world.add("gone", &json!({"metadata": {"deletionTimestamp": "2023-11-14T22:00:00Z"}, "status": {"currentStatus": {"phase": "Terminating"}}}));
})]
#[case::its_machine_failed_before_it_had_an_id(|world: &mut World| {
    world.add("gone", &json!({"status": {"currentStatus": {"phase": "Failed"}}}));
})]
#[case::its_machine_has_an_id_that_no_vm_has(|world: &mut World| world.add("gone", &running("elsewhere:///1")))]
#[case::the_cache_is_not_trusted(|world: &mut World| world.uncertain = Some("machines: not trusted".to_owned()))]
#[case::only_the_api_server_knows_its_machine(|world: &mut World| world.not_cached.push("gone".to_owned()))]
#[case::its_machine_cannot_be_read(|world: &mut World| world.reads_fail = Some("timeout".to_owned()))]
#[case::the_driver_does_not_name_its_machine(|world: &mut World| world.vm(1, ""))]
#[case::dry_run(|world: &mut World| world.policy.is_dry_run = true)]
#[case::it_has_the_uid_of_another_namespace(|world: &mut World| {
    world.uid = Some(UID.to_owned());
    world.vm_of(1, "gone", Some(OTHER));
})]
#[case::it_has_the_name_of_another_namespace(|world: &mut World| world.vm_of(1, "gone", Some("capmcm-system")))]
#[case::it_has_a_uid_and_ours_is_unknown(|world: &mut World| world.vm_of(1, "gone", Some(UID)))]
#[case::it_has_no_marker_and_another_vm_that_of_others(|world: &mut World| {
    world.vm_of(1, "gone", None);
    world.vm_of(3, "theirs", Some("team-b"));
})]
#[case::it_has_no_marker_and_another_namespace_a_class_with_the_tag(|world: &mut World| {
    world.vm_of(1, "gone", None);
    world.others = ForeignClasses::Known(vec!["team-b/w".to_owned()]);
})]
#[case::it_has_no_marker_and_the_classes_of_others_may_not_be_listed(|world: &mut World| {
    world.vm_of(1, "gone", None);
    world.others = FORBIDDEN;
})]
#[case::it_has_no_marker_and_the_classes_of_others_cannot_be_read(|world: &mut World| {
    world.vm_of(1, "gone", None);
    world.others = ForeignClasses::Unknown("timeout".to_owned());
})]
fn no_vm_is_deleted(#[case] change: fn(&mut World)) {
    let mut world = World::new();
    world.run(15);
    assert_eq!(world.deleted, ["cloud:///1"], "otherwise it is");
    let mut world = World::new();
    change(&mut world);
    world.run(24 * 60);
    assert_eq!((world.deleted.as_slice(), world.attempts.len()), ([].as_slice(), 0));
    let mut late = World::new();
    late.pass();
    late.sleep(15);
    change(&mut late);
    late.run(24 * 60);
    assert_eq!((late.deleted.as_slice(), late.attempts.len()), ([].as_slice(), 0), "although it was seen before");
}

const UID: &str = "5c5b5f5e-7c66-4a9b-9b53-0f2b6f4e3c11";
const OTHER: &str = "0d6b39ae-45a5-4bd7-8f40-7a1f8f6d1f2e";

/// With the permissions of the Go programs.
const FORBIDDEN: ForeignClasses = ForeignClasses::Forbidden { has_own_tag: false };

/// VMs of the Go programs, and of older versions.
#[rstest]
#[case::no_other_has_the_tag(ForeignClasses::Known(Vec::new()), false)]
#[case::the_tag_is_the_technical_id_of_the_namespace(ForeignClasses::Forbidden { has_own_tag: true }, false)]
#[case::the_operator_vouches_for_it(FORBIDDEN, true)]
fn an_unmarked_vm_is_an_orphan_where_one_namespace_uses_the_tag(
    #[case] others: ForeignClasses,
    #[case] is_sole_user: bool,
) {
    let mut world = World::new();
    world.vm_of(1, "gone", None);
    world.vm_of(2, "there", None);
    world.others = others;
    world.policy.is_sole_user = is_sole_user;
    world.run(15);
    assert_eq!(world.deleted, ["cloud:///1"]);
}

/// The word of the operator does not outweigh what is seen.
#[rstest]
#[case::a_class(None, ForeignClasses::Known(vec!["team-b/w".to_owned()]))]
#[case::a_marker(Some("team-b"), FORBIDDEN)]
fn an_unmarked_vm_stays_beside_others_whatever_the_operator_vouches_for(
    #[case] marker: Option<&str>,
    #[case] others: ForeignClasses,
) {
    let mut world = World::new();
    world.policy.is_sole_user = true;
    world.vm_of(1, "gone", None);
    marker.iter().for_each(|marker| world.vm_of(3, "theirs", Some(marker)));
    world.others = others;
    world.run(24 * 60);
    assert_eq!(world.deleted, [""; 0]);
}

#[test]
fn the_right_that_is_missing_is_named_once() {
    let mut world = World::new();
    world.vm_of(1, "gone", None);
    world.others = FORBIDDEN;
    world.run(60);
    let kept = "VMs without a machine here and without an owner are kept, because this process cannot see whether others \
                use the cluster tag: cloud:///1 (machine gone). Grant the right to list \
                machineclasses.machine.sapcloud.io in all namespaces (config/rbac/classes.yaml), or set \
                --machine-safety-orphan-vms-sole-user if this namespace alone uses the tag";
    assert_eq!(world.events, [(EventReason::OrphanKept, kept.to_owned())]);
    let wait = &world.last.waits[0].text;
    assert!(wait.starts_with("the right to list machineclasses.machine.sapcloud.io in all namespaces"), "{wait}");
    world.others = ForeignClasses::Known(Vec::new());
    world.run(15);
    assert_eq!(world.deleted, ["cloud:///1"], "once it is granted");
}

#[test]
fn classes_of_others_are_listed_only_for_an_unmarked_vm_without_a_machine() {
    let mut world = World::new();
    world.vm_of(2, "there", None);
    world.run(60);
    assert_eq!((world.asked, world.deleted.as_slice()), (0, ["cloud:///1".to_owned()].as_slice()));
    world.vm_of(1, "gone", None);
    world.vm_of(3, "theirs", Some("team-b"));
    world.run(60);
    assert_eq!(world.asked, 0, "a marker of another owner says enough");
    world.vms.remove("cloud:///3");
    world.run(15);
    assert!(world.asked > 0);
}

/// Its creation was marked by its former owner, an object of Cluster API, whose VM was adopted.
#[test]
fn a_foreign_marker_on_the_vm_of_a_machine_says_nothing_about_others() {
    let mut world = World::new();
    world.vm_of(1, "gone", None);
    world.vm_of(2, "there", Some(OTHER));
    world.run(15);
    assert_eq!(world.deleted, ["cloud:///1"]);
}

#[rstest]
#[case::a_vm(
    |world: &mut World| world.vm_of(3, "theirs", Some("team-b")),
    "VM cloud:///3 (machine theirs) has the owner team-b"
)]
#[case::a_class(
    |world: &mut World| world.others = ForeignClasses::Known(vec!["team-b/w".to_owned()]),
    "MachineClass team-b/w has the same tag"
)]
fn unmarked_vms_that_may_be_of_others_are_reported_once(#[case] change: fn(&mut World), #[case] how: &str) {
    let mut world = World::new();
    world.vms.remove("cloud:///1");
    world.vm_of(4, "old", None);
    change(&mut world);
    world.run(60);
    let text = format!(
        "VMs without a machine here and without an owner are kept, because others use the cluster tag: cloud:///4 \
         (machine old); {how}. Give each namespace its own cluster tag, or delete those VMs that no namespace needs"
    );
    assert_eq!(world.events, [(EventReason::OrphanKept, text)]);
    let expected = format!("its own cluster tag, to decide about 1 VMs without a machine and a marker: {how}");
    assert_eq!((world.last.waits[0].kind, &world.last.waits[0].text), (WaitKind::OrphanCheck, &expected));
    assert_eq!(world.memory.left_alone.len(), 1);
    world.vm_of(5, "older", None);
    world.run(15);
    assert_eq!(world.events.len(), 2, "of each once");
    world.vm(6, "ours");
    world.run(30);
    assert_eq!(world.deleted, ["cloud:///6"], "what carries our marker is collected all the same");
}

#[test]
fn unreadable_classes_of_others_postpone_deletions_and_drop_nothing() {
    let mut world = World::new();
    world.vm_of(1, "gone", None);
    world.pass();
    let seen = world.memory.orphans.clone();
    world.sleep(15);
    world.others = ForeignClasses::Unknown("list MachineClasses: timeout".to_owned());
    world.pass();
    assert_eq!((&world.memory.orphans, world.deleted.len()), (&seen, 0));
    let expected =
        "the MachineClasses of other namespaces, to decide about 1 VMs without a marker: list MachineClasses: timeout";
    assert_eq!(world.last.waits[0].text, expected);
    assert_eq!(world.last.requeue_at(), Some(world.now + SignedDuration::from_mins(10)), "sooner than the period");
    world.others = ForeignClasses::Known(Vec::new());
    world.pass();
    assert_eq!(world.deleted, ["cloud:///1"]);
}

#[test]
fn a_machine_that_appears_in_between_restarts_the_time() {
    let mut world = World::new();
    world.pass();
    world.add("gone", &running("cloud:///1"));
    world.sleep(10);
    world.pass();
    world.machines.remove("gone");
    world.sleep(10);
    world.pass();
    world.sleep(14);
    world.pass();
    assert_eq!(world.deleted, [""; 0]);
    world.sleep(1);
    world.pass();
    assert_eq!(world.deleted, ["cloud:///1"]);
}

#[test]
fn a_second_vm_of_a_machine_is_deleted_and_the_one_with_its_id_stays() {
    let mut world = World::new();
    world.vms.clear();
    world.vm(1, "there");
    world.vm(2, "there");
    world.run(15);
    assert_eq!((world.deleted.as_slice(), world.vms.len()), (["cloud:///1".to_owned()].as_slice(), 1));
}

#[test]
fn a_failed_list_proves_nothing_and_drops_nothing() {
    let mut world = World::new();
    world.pass();
    let seen = world.memory.clone();
    world.sleep(15);
    world.list_fails = Some("Unavailable: no".to_owned());
    assert_eq!(world.pass().len(), 1);
    assert_eq!(world.memory, seen);
    assert_eq!(world.last.waits[0].kind, WaitKind::OrphanCheck);
    assert_eq!(world.last.requeue_at(), Some(world.now + SignedDuration::from_mins(10)), "sooner than the period");
    world.list_fails = None;
    world.pass();
    assert_eq!(world.deleted, ["cloud:///1"]);
}

#[test]
fn few_are_deleted_in_one_period() {
    let mut world = World::new();
    (10..30).for_each(|number| world.vm(number, &format!("gone-{number}")));
    world.pass();
    world.sleep(15);
    world.pass();
    assert_eq!(world.deleted.len(), 5);
    world.sleep(1);
    world.pass();
    assert_eq!(world.deleted.len(), 5, "also in a pass in between");
    world.sleep(14);
    world.pass();
    assert_eq!(world.deleted.len(), 10);
    assert!(world.events[0].1.contains("and 11 more"), "{:?}", world.events[0]);
}

#[test]
fn a_failed_deletion_is_retried_later_and_not_reported_as_done() {
    let mut world = World::new();
    world.deletions_fail = true;
    world.run(30);
    assert_eq!(world.attempts.len(), 2);
    assert!(world.events.iter().all(|(reason, _)| *reason == EventReason::OrphanFound), "{:?}", world.events);
    world.deletions_fail = false;
    world.pass();
    assert_eq!(world.deleted, ["cloud:///1"]);
}

#[rstest]
#[case::of_the_flag(Duration::from_mins(30), 30)]
#[case::no_vm_is_younger_than_that(Duration::from_mins(2), 10)]
#[case::at_least_a_minute_between_lists(Duration::ZERO, 10)]
fn the_period_is_that_of_the_flag(#[case] period: Duration, #[case] minutes: i64) {
    let mut world = World::new();
    world.policy.period = period;
    world.pass();
    let pause = SignedDuration::try_from(period).unwrap().max(SignedDuration::from_mins(1));
    assert_eq!(world.last.requeue_at(), Some(world.now + pause));
    world.sleep(minutes - 1);
    world.pass();
    assert_eq!(world.deleted, [""; 0]);
    world.sleep(1);
    world.pass();
    assert_eq!(world.deleted.len(), 1);
}

#[test]
fn a_machine_without_a_vm_is_reported_once_and_not_touched() {
    let mut world = World::new();
    world.vms.clear();
    world.add("new", &json!({"spec": {"providerID": "cloud:///5"}}));
    world.add("ends", &json!({"metadata": {"deletionTimestamp": "2023-11-14T22:00:00Z"}, "spec": {"providerID": "cloud:///6"}, "status": {"currentStatus": {"phase": "Terminating"}}}));
    world.pass();
    assert_eq!(world.reported, [""; 0], "one list proves nothing");
    world.sleep(15);
    world.run(60);
    assert_eq!(world.reported, ["there"]);
    world.vm(2, "there");
    world.pass();
    world.vms.clear();
    world.run(60);
    assert_eq!(world.reported, ["there", "there"], "it had its VM in between");
}

#[test]
fn a_vm_that_the_driver_cannot_identify_is_reported_once_and_concludes_nothing() {
    let mut world = World::new();
    world.vms.clear();
    world.vms.insert("cloud:///7".to_owned(), ListedVm::default());
    world.run(60);
    assert_eq!(world.reported, ["there"], "this one is certainly another");
    let text = "VMs without a valid provider ID or name of a machine: cloud:///7; they are kept: correct their names \
                in the cloud, or the driver";
    assert_eq!(world.events, [(EventReason::VmUnidentified, text.to_owned())]);

    let mut world = World::new();
    world.vms.clear();
    world.vms.insert(String::new(), ListedVm::default());
    world.run(60);
    assert_eq!(
        (world.reported.len(), world.events.len(), world.attempts.len()),
        (0, 1, 0),
        "it may be that of the machine"
    );
}

#[test]
fn a_driver_that_cannot_list_is_not_called() {
    let world = World::new();
    let mut snapshot = super::super::Snapshot {
        policy: world.policy,
        class: std::sync::Arc::default(),
        can_list: false,
        claims: Vec::new(),
        machines: Vec::new(),
        all_machines: Vec::new(),
        nodes: Vec::new(),
        recently_deleted: 0,
        uncertain: None,
        memory: Default::default(),
        learned: Default::default(),
        now: world.now,
    };
    let plan = |snapshot: &_| super::super::plan(snapshot, &world.policy);
    assert_eq!((plan(&snapshot).steps.len(), plan(&snapshot).waits.len()), (0, 0));
    snapshot.can_list = true;
    assert_eq!(plan(&snapshot).steps.len(), 1);
}

/// T9: between two infrastructure providers a VM is listed for the class and has no machine for a while.
#[test]
fn the_vms_of_a_class_that_a_migration_holds_are_not_even_listed() {
    let world = World::new();
    let meta = json!({"name": "c", "annotations": {"machine.mcm/migration": "d"}});
    let snapshot = super::super::Snapshot {
        policy: world.policy,
        class: std::sync::Arc::new(serde_json::from_value(json!({"metadata": meta, "providerSpec": {}})).unwrap()),
        can_list: true,
        claims: Vec::new(),
        machines: Vec::new(),
        all_machines: Vec::new(),
        nodes: Vec::new(),
        recently_deleted: 0,
        uncertain: None,
        memory: Default::default(),
        learned: Default::default(),
        now: world.now,
    };
    let plan = super::super::plan(&snapshot, &world.policy);
    assert_eq!((plan.steps.len(), plan.waits.len()), (0, 1));
    assert_eq!((plan.waits[0].kind, plan.waits[0].text.as_str()), (WaitKind::Hold, "MCMMigration d to be complete"));
    assert!(plan.waits[0].until.is_some(), "it looks again");
}

#[test]
fn a_provider_id_that_is_used_again_is_another_vm() {
    let mut world = World::new();
    world.pass();
    world.vm(1, "another");
    world.sleep(15);
    world.pass();
    assert_eq!(world.deleted, [""; 0]);
    world.sleep(15);
    world.pass();
    assert_eq!(world.deleted, ["cloud:///1"]);
}
