use std::{collections::BTreeMap, sync::Arc, time::Duration};

use rstest::rstest;
use serde_json::{Value, json};

use super::world::{Fault, World, at, node, ready, unready};
use crate::machine::{ClassView, MachineCallResults, Memory, Snapshot, VmCall, views::DriverVmView};
use mcm_api::machine::{Machine, MachinePhase, MachineSpec, OperationState, OperationType};
use mcm_driver::{Code, DriverError, Vm};
use mcm_rules::safety::trust::TargetTrust;

fn error(code: Code) -> DriverError {
    DriverError::new(code, "because")
}

fn broken(call: VmCall, error: DriverError) -> World {
    let mut world = World::new();
    world.broken.insert(call, error);
    world
}

#[rstest]
#[case(Code::ResourceExhausted, 5, "kept")]
#[case(Code::Unknown, 1, "kept")]
#[case(Code::DeadlineExceeded, 1, "kept")]
#[case(Code::Aborted, 1, "kept")]
#[case(Code::Unavailable, 1, "kept")]
#[case(Code::InvalidArgument, 5, "")]
#[case(Code::AlreadyExists, 5, "")]
#[case(Code::PermissionDenied, 5, "")]
#[case(Code::Internal, 5, "")]
#[case(Code::OutOfRange, 5, "")]
fn a_create_error_is_stored_in_one_pass(#[case] code: Code, #[case] retry: i64, #[case] state: &str) {
    let mut world = broken(VmCall::Create, error(code));
    world.edit_status(|status| status.last_known_state = "kept".to_owned());
    world.pass();
    let status = world.status();
    let operation = status.last_operation;
    assert_eq!(operation.error_code, code.as_str());
    assert_eq!((operation.type_, operation.state), (Some(OperationType::Create), Some(OperationState::Failed)));
    let text = format!("Cloud provider message - machine codes error: code = [{code}] message = [because]");
    assert_eq!(operation.description, text);
    assert_eq!(status.current_status.phase, MachinePhase::CrashLoopBackOff);
    assert_eq!(status.last_known_state, state);
    assert_eq!(world.wake_at, Some(at(10 + retry)));
    assert_eq!(world.events, ["CreateFailed"]);
}

#[test]
fn the_state_that_a_driver_hands_back_with_an_error_is_stored() {
    let failure = DriverError { last_known_state: Some("step 2".to_owned()), ..error(Code::Internal) };
    let mut world = broken(VmCall::Create, failure);
    world.pass();
    assert_eq!(world.status().last_known_state, "step 2");
}

#[test]
fn a_repeated_error_is_not_written_again_and_the_last_word_is_failed() {
    let mut world = broken(VmCall::Create, error(Code::Internal));
    world.run_until(|world| world.phase() == MachinePhase::Failed);
    assert_eq!(world.now.as_second(), at(20 * 60 + 1).as_second(), "exactly at the creation timeout, plus one tick");
    assert_eq!(world.machine_writes, 2, "CrashLoopBackOff and Failed: {:?}", world.log);
    let tries = world.log.iter().filter(|name| *name == "CreateVm").count();
    assert!((8..15).contains(&tries), "backed off: {tries}");
    world.broken.clear();
    world.sleep(3600);
    world.pass();
    assert_eq!(world.births, 0, "a failed Machine gets no VM");
}

#[test]
fn a_retry_succeeds_when_the_cloud_recovers() {
    let mut world = broken(VmCall::Create, error(Code::Unavailable));
    world.pass();
    world.broken.clear();
    world.run_until(|world| world.phase() == MachinePhase::Running);
    assert_eq!(world.births, 1);
    assert!(world.description().starts_with("Machine m successfully joined the cluster in "));
}

#[test]
fn a_creation_that_the_cloud_works_on_holds_no_slot_and_is_continued() {
    let paused = DriverError::not_done("creation of VM m is not done yet", Duration::from_secs(3));
    let mut world = broken(VmCall::Create, paused);
    world.pass();
    assert_eq!((world.machine_writes, world.phase()), (0, MachinePhase::New), "nothing failed: {:?}", world.log);
    assert_eq!(world.waits, ["the cloud: creation of VM m is not done yet"]);
    assert_eq!(world.wake_at, Some(at(13)), "the reconcile is over, and its slot is free");
    world.log.clear();
    world.sleep(3);
    world.broken.clear();
    world.pass();
    assert_eq!(world.log, ["ReadSecret", "CreateVm", "PatchMachine", "WriteStatus"], "no other look-up before");
    assert_eq!((world.events.as_slice(), world.births), (["Created".to_owned()].as_slice(), 1));
}

/// The next process must find it, whether this one ends before the driver continues or after that.
#[test]
fn the_state_that_a_driver_gives_for_a_pause_is_stored_before_the_driver_continues() {
    let state = "Creation with an unknown outcome at 2026-11-26T21:00:00.000Z";
    let paused = |state: &str| DriverError {
        last_known_state: Some(state.to_owned()),
        ..DriverError::not_done("the creation begins", Duration::from_secs(3))
    };
    let mut world = broken(VmCall::Create, paused(state));
    world.pass();
    assert_eq!((world.log.last().map(String::as_str), world.machine_writes), (Some("WriteStatus"), 1));
    let stored = |world: &World| world.machine().status.clone().unwrap_or_default().last_known_state;
    assert_eq!((stored(&world).as_str(), world.phase()), (state, MachinePhase::New), "nothing failed");
    world.broken.insert(VmCall::Create, paused("Created cloud:///1"));
    world.sleep(3);
    world.pass();
    assert_eq!((stored(&world).as_str(), world.machine_writes), ("Created cloud:///1", 2));
    world.sleep(3);
    world.pass();
    assert_eq!(world.machine_writes, 2, "the same state is written once");
}

#[test]
fn a_creation_that_fails_after_a_while_is_a_failure_and_its_vm_is_looked_for() {
    let mut world = broken(VmCall::Create, DriverError::not_done("not yet", Duration::from_secs(3)));
    world.pass();
    world.sleep(3);
    world.broken.insert(VmCall::Create, error(Code::ResourceExhausted));
    world.pass();
    assert_eq!(
        (world.phase(), world.events.as_slice()),
        (MachinePhase::CrashLoopBackOff, ["CreateFailed".to_owned()].as_slice())
    );
    world.broken.clear();
    world.log.clear();
    world.sleep(600);
    world.pass();
    assert_eq!(world.log[..3], ["ReadSecret", "GetVmStatus", "CreateVm"]);
}

#[test]
fn a_creation_that_the_cloud_never_ends_fails_at_the_creation_timeout() {
    let mut world = broken(VmCall::Create, DriverError::not_done("not yet", Duration::from_secs(5)));
    world.run_until(|world| world.phase() == MachinePhase::Failed);
    assert_eq!((world.now.as_second(), world.machine_writes), (at(20 * 60 + 1).as_second(), 1));
}

#[test]
fn an_error_of_the_question_never_leads_to_a_vm() {
    let mut world = broken(VmCall::Status, error(Code::Unauthenticated));
    world.run_until(|world| world.phase() == MachinePhase::Failed);
    assert!(world.births == 0 && !world.log.contains(&"CreateVm".to_owned()));
}

#[test]
fn an_initialization_error_is_stored_and_tried_again() {
    let mut world = World::new().can_initialize();
    world.broken.insert(VmCall::Initialize, error(Code::Internal));
    world.pass();
    assert_eq!(
        world.description(),
        "Provider error: machine codes error: code = [Internal] message = [because]. Initialize VM Instance"
    );
    assert_eq!(world.phase(), MachinePhase::CrashLoopBackOff);
    assert_eq!(world.machine().spec.provider_id, "cloud:///1", "stored before it");
    assert_eq!(world.wake_at, Some(at(11)));
}

#[test]
fn a_vm_that_a_crash_left_half_finished_is_finished_before_it_is_awaited() {
    let mut world = World::new().can_initialize();
    world.vms.insert("cloud:///7".to_owned(), ("n".to_owned(), at(9)));
    world.pass();
    assert_eq!(world.log, ["ReadSecret", "GetVmStatus", "PatchMachine", "InitializeVm", "WriteStatus"]);
    assert_eq!((world.is_initialized, world.phase()), (true, MachinePhase::Pending));
}

#[test]
fn unimplemented_initialization_is_success() {
    let mut world = World::new().can_initialize();
    world.broken.insert(VmCall::Initialize, error(Code::Unimplemented));
    world.pass();
    assert_eq!(
        (world.phase(), world.description().as_str()),
        (MachinePhase::Pending, "Creating machine on cloud provider")
    );
}

#[test]
fn a_vm_that_exists_is_adopted() {
    let mut world = World::new();
    world.vms.insert("cloud:///7".to_owned(), ("n".to_owned(), at(0)));
    world.pass();
    assert_eq!((world.births, world.machine().spec.provider_id.as_str()), (0, "cloud:///7"));
    assert_eq!(world.machine().node_name(), Some("n"));
    assert_eq!(world.phase(), MachinePhase::Pending);
    assert!(world.status().current_status.timeout_active);
}

#[rstest]
#[case::half_created(json!({}), "")]
#[case::linked(json!({ "metadata": { "labels": { "node": "n" } }, "spec": { "providerID": "cloud:///7" } }), "")]
#[case::pending_without_id(json!({ "metadata": { "labels": { "node": "n" } } }), "Pending")]
#[case::failed_once(json!({ "metadata": { "labels": { "node": "n" } }, "spec": { "providerID": "cloud:///7" } }), "CrashLoopBackOff")]
#[case::marked_by_mistake(json!({}), "Terminating")]
fn what_another_implementation_began_is_finished(#[case] patch: Value, #[case] phase: &str) {
    let mut world = World::with_machine(patch, json!({ "currentStatus": { "phase": phase } }));
    world.vms.insert("cloud:///7".to_owned(), ("n".to_owned(), at(0)));
    world.run_until(|world| world.phase() == MachinePhase::Running);
    assert_eq!((world.births, world.machine().spec.provider_id.as_str()), (0, "cloud:///7"));
    assert!(!world.log.contains(&"DeleteVm".to_owned()));
}

#[rstest]
#[case("Pending")]
#[case("Running")]
fn a_lost_label_is_found_again(#[case] phase: &str) {
    let patch = json!({ "spec": { "providerID": "cloud:///7" } });
    let mut world = World::with_machine(patch, json!({ "currentStatus": { "phase": phase } }));
    world.vms.insert("cloud:///7".to_owned(), ("n".to_owned(), at(0)));
    world.run_until(|world| world.machine().node_name() == Some("n") && world.phase() == MachinePhase::Running);
    assert_eq!(world.births, 0);
}

#[test]
fn a_vm_that_could_not_join_in_time_is_not_begun() {
    let mut world = World::new();
    world.sleep(20 * 60);
    world.pass();
    assert_eq!((world.births, world.phase()), (0, MachinePhase::Failed));
    assert_eq!(world.description(), "Machine m failed to join the cluster in 20m0s.");
}

#[rstest]
#[case("Running")]
#[case("Unknown")]
#[case("Failed")]
#[case("InPlaceUpdating")]
fn a_machine_that_had_a_vm_gets_no_second_one(#[case] phase: &str) {
    let mut world = World::with_machine(json!({}), json!({ "currentStatus": { "phase": phase } }));
    world.pass();
    assert!(world.births == 0 && world.machine_writes == 0, "{:?}", world.log);
    assert!(!world.waits.is_empty());
}

#[test]
fn a_node_that_serves_already_makes_pending_needless() {
    let mut world = World::new();
    world.vms.insert("cloud:///7".to_owned(), ("n".to_owned(), at(6)));
    let mut joined = node("n", ready());
    joined.spec.provider_id = "other-form/7".to_owned();
    world.nodes.insert("n".to_owned(), joined);
    world.pass();
    assert_eq!(world.phase(), MachinePhase::Running);
    assert_eq!(world.machine_writes, 2);
    assert_eq!(world.description(), "Machine m successfully joined the cluster in 10s");
    assert_eq!(world.status().conditions.len(), 2);
}

#[rstest]
#[case::node_older_than_the_machine("", at(-100), true)]
#[case::node_of_another_vm("cloud:///old", at(6), true)]
#[case::its_own("cloud:///1", at(6), false)]
#[case::its_own_not_named_yet("", at(6), false)]
fn a_node_of_an_earlier_vm_is_not_taken_over(
    #[case] provider_id: &str,
    #[case] born: jiff::Timestamp,
    #[case] is_stale: bool,
) {
    let mut world = World::new();
    let mut old = node("n", unready());
    old.spec.provider_id = provider_id.to_owned();
    old.metadata.creation_timestamp = Some(born.into());
    world.nodes.insert("n".to_owned(), old);
    world.pass();
    assert_eq!(world.machine().spec.provider_id, "cloud:///1", "stored before anything else");
    if is_stale {
        assert_eq!((world.phase(), world.description().as_str()), (MachinePhase::Failed, "VM using old node obj"));
        assert_eq!(world.machine().node_name(), None);
        assert!(world.vms.is_empty());
        world.delete();
        world.run_until(|world| world.machine.is_none());
        assert!(world.nodes.contains_key("n"), "the Node belongs to somebody else");
    } else {
        assert_eq!((world.phase(), world.machine().node_name()), (MachinePhase::Pending, Some("n")));
    }
}

#[rstest]
#[case::its_status_is_not_written(&[(6, Fault::Refused)])]
#[case::the_answer_of_the_cloud_is_lost_too(&[(5, Fault::LostReply), (6, Fault::Refused)])]
fn a_vm_that_was_deleted_for_the_node_of_another_is_not_waited_for(#[case] faults: &[(usize, Fault)]) {
    let mut world = World::new();
    let mut old = node("n", unready());
    old.spec.provider_id = "cloud:///old".to_owned();
    world.nodes.insert("n".to_owned(), old);
    world.faults = faults.to_vec();
    world.pass();
    assert_eq!((world.phase(), world.vms.is_empty()), (MachinePhase::New, true));
    world.memory.forget_failures();
    world.pass();
    assert_eq!((world.phase(), world.description().as_str()), (MachinePhase::Failed, "VM using old node obj"));
}

#[test]
fn without_target_a_machine_is_available_and_has_addresses() {
    let mut world = World::new();
    world.has_target = false;
    world.pass();
    let status = world.status();
    assert_eq!(status.current_status.phase, MachinePhase::Available);
    assert_eq!(status.last_operation.description, "Created machine on cloud provider");
    assert_eq!(status.last_operation.state, Some(OperationState::Successful));
    assert_eq!(status.addresses.len(), 1, "the host name");
    assert_eq!(world.machine().node_name(), None);
    assert_eq!(world.machine_writes, 2);
}

#[test]
fn a_hand_made_machine_gets_its_finalizer_before_its_vm() {
    let mut world = World::with_machine(json!({ "metadata": { "finalizers": null } }), Value::Null);
    world.pass();
    assert_eq!(world.log[..3], ["ReadSecret", "PatchMachine", "GetVmStatus"]);
    assert_eq!(world.machine_writes, 3);
}

#[rstest]
#[case::not_wanted(false, &["ReadSecret", "GetVmStatus", "CreateVm"])]
#[case::wanted(true, &["ReadSecret", "GetVmStatus", "EnsureBootstrapToken", "CreateVm"])]
fn a_token_is_made_only_if_the_user_data_asks_for_it(#[case] wanted: bool, #[case] expected: &[&str]) {
    let mut world = World::new();
    world.secret.wants_token = wanted;
    world.pass();
    assert_eq!(world.log.iter().take(expected.len()).collect::<Vec<_>>(), expected);
    world.run_until(|world| world.phase() == MachinePhase::Running);
    assert_eq!(world.log.contains(&"DeleteBootstrapToken".to_owned()), wanted);
}

type Change = fn(&mut World);

#[rstest]
#[case::class_missing(|world: &mut World| world.class = ClassView::Missing, "which does not exist", true)]
#[case::class_unknown(|world: &mut World| world.class = ClassView::Unknown, "to become readable", false)]
#[case::class_without_finalizer(|world: &mut World| change_class(world, json!({ "metadata": { "finalizers": null } })), "finalizer", false)]
#[case::class_incomplete(|world: &mut World| change_class(world, json!({ "nodeTemplate": { "capacity": { "cpu": "1" }, "instanceType": "", "region": "", "zone": "" } })), "nodeTemplate.capacity has no gpu", true)]
#[case::no_user_data(|world: &mut World| world.secret.has_user_data = false, "userData", true)]
#[case::no_class_named(|world: &mut World| world.edit(|machine| machine.spec.class.name.clear()), "spec.class.name", false)]
#[case::secret_missing(|world: &mut World| { world.secret.has_user_data = false; world.secret.missing = vec!["the Secret s".to_owned()]; }, "the Secret s", true)]
#[case::only_the_other_secret_has_user_data(|world: &mut World| world.secret.missing = vec!["the Secret s".to_owned()], "the Secret s", true)]
#[case::own_user_data_missing(|world: &mut World| { world.secret.has_user_data = false; world.secret.missing_user_data = Some("the Secret boot".to_owned()); }, "the Secret boot", true)]
fn what_is_not_ready_is_waited_for_by_name(#[case] change: Change, #[case] text: &str, #[case] is_for_a_person: bool) {
    let mut world = World::new();
    change(&mut world);
    world.pass();
    world.pass();
    assert_eq!((world.births, world.machine_writes), (0, usize::from(is_for_a_person)));
    assert!(world.waits.iter().any(|wait| wait.contains(text)), "{:?}", world.waits);
    assert_eq!((world.phase(), world.description().contains(text)), (MachinePhase::New, is_for_a_person));
    assert_eq!(world.events.len(), usize::from(is_for_a_person), "{:?}", world.events);
}

#[test]
fn no_driver_is_called_without_a_secret_that_the_class_names() {
    let mut world = World::new();
    world.secret.missing = vec!["the Secret ns/s, which does not exist".to_owned()];
    world.pass();
    assert_eq!(world.log, ["ReadSecret", "WriteStatus"]);
    assert_eq!(world.description(), "Waiting for the Secret ns/s, which does not exist");
    world.secret.missing.clear();
    world.run_until(|world| world.phase() == MachinePhase::Running);
}

/// An operator deletes the Secret of a Machine whose VM has been booted, or an adopted Machine never had one.
#[rstest]
#[case::its_id_is_stored(json!({ "spec": { "providerID": "cloud:///7" } }), false)]
#[case::it_is_found(json!({}), false)]
#[case::it_is_not_initialized(json!({ "spec": { "providerID": "cloud:///7" } }), true)]
fn a_vm_is_adopted_without_user_data(#[case] patch: Value, #[case] initializes: bool) {
    let mut world = World::with_machine(patch, Value::Null);
    world = if initializes { world.can_initialize() } else { world };
    world.vms.insert("cloud:///7".to_owned(), ("n".to_owned(), at(0)));
    world.secret.has_user_data = false;
    world.secret.missing_user_data = Some("the Secret ns/boot, which does not exist".to_owned());
    world.run_until(|world| world.phase() == MachinePhase::Running);
    assert_eq!((world.births, world.machine().spec.provider_id.as_str()), (0, "cloud:///7"));
    assert_eq!(world.is_initialized, initializes);
}

#[test]
fn a_machine_without_user_data_gets_no_vm_and_does_not_fail() {
    let mut world = World::new();
    world.secret.has_user_data = false;
    world.sleep(3600);
    world.pass();
    assert_eq!((world.births, world.phase()), (0, MachinePhase::New));
    assert_eq!(world.description(), "Waiting for the key userData in the Secrets of the class");
}

/// The VM of a creation that is under way is found, although its call cannot be repeated.
#[test]
fn a_creation_without_user_data_is_looked_up() {
    let mut world = broken(VmCall::Create, DriverError::not_done("not yet", Duration::from_secs(3)));
    world.pass();
    world.secret.has_user_data = false;
    world.vms.insert("cloud:///7".to_owned(), ("n".to_owned(), at(0)));
    world.sleep(3);
    world.pass();
    assert_eq!(world.machine().spec.provider_id, "cloud:///7");
}

#[rstest]
#[case::the_label(&["metadata.labels.node"], true)]
#[case::the_annotation(&["metadata.annotations"], true)]
#[case::the_id(&["spec.providerID"], false)]
fn a_refused_write_does_not_keep_the_id_from_being_stored(#[case] refused: &[&'static str], #[case] is_stored: bool) {
    let mut world = World::new();
    world.refused = refused.to_vec();
    world.pass();
    let id = if is_stored { "cloud:///1" } else { "" };
    assert_eq!((world.births, world.machine().spec.provider_id.as_str()), (1, id));
    assert!(
        world.description().contains("the API server to accept a write of the Machine: "),
        "{}",
        world.description()
    );
    assert!(world.events.contains(&"Waiting".to_owned()), "{:?}", world.events);
    world.run_until(|world| world.phase() == MachinePhase::Failed);
    assert_eq!(world.now.as_second(), at(20 * 60 + 1).as_second(), "exactly at the creation timeout, plus one tick");
    let tries = world.log.iter().filter(|name| *name == "PatchMachine").count();
    assert!(tries < 40, "{tries}");
    assert_eq!(world.births, 1);
    world.delete();
    world.refused.clear();
    world.run_until(|world| world.machine.is_none());
    assert!(world.vms.is_empty());
}

#[test]
fn a_machine_continues_once_its_refused_write_is_accepted() {
    let mut world = World::new();
    world.refused = vec!["metadata.labels.node"];
    world.pass();
    world.refused.clear();
    world.run_until(|world| world.phase() == MachinePhase::Running);
    assert_eq!((world.births, world.machine().node_name()), (1, Some("n")));
}

#[test]
fn a_node_name_that_no_label_can_hold_is_an_error_of_its_vm() {
    let mut world = World::new();
    world.node_name = "x".repeat(64);
    world.pass();
    assert_eq!(
        (world.phase(), world.machine().spec.provider_id.as_str()),
        (MachinePhase::CrashLoopBackOff, "cloud:///1")
    );
    assert!(world.description().contains("cannot be the value of the label node"), "{}", world.description());
    assert_eq!(world.machine().node_name(), None);
    world.run_until(|world| world.phase() == MachinePhase::Failed);
    assert_eq!((world.births, world.machine_writes), (1, 3), "{:?}", world.log);
}

#[rstest]
#[case::class(|world: &mut World| world.class = ClassView::Missing)]
#[case::secret(|world: &mut World| world.secret.missing = vec!["the Secret ns/s".to_owned()])]
fn a_machine_whose_class_or_secret_never_existed_can_be_deleted(#[case] change: Change) {
    let mut world = World::with_machine(json!({ "metadata": { "finalizers": null } }), Value::Null);
    change(&mut world);
    world.pass();
    world.pass();
    assert!(world.description().starts_with("Waiting for "), "{:?}", world.log);
    assert_eq!(world.machine().metadata.finalizers, None, "the API server deletes it at once");
    assert!(!world.log.contains(&"GetVmStatus".to_owned()), "no driver was called");
}

#[rstest]
#[case::with_an_id(json!({ "spec": { "providerID": "cloud:///7" } }), "")]
#[case::with_a_node(json!({ "metadata": { "labels": { "node": "n" } } }), "")]
#[case::that_failed_once(json!({}), "CrashLoopBackOff")]
#[case::that_ran(json!({}), "Running")]
fn a_machine_that_may_have_a_vm_has_the_finalizer_even_without_a_class(#[case] patch: Value, #[case] phase: &str) {
    let mut world = World::with_machine(patch, json!({ "currentStatus": { "phase": phase } }));
    world.edit(|machine| machine.metadata.finalizers = None);
    world.class = ClassView::Missing;
    world.pass();
    assert_eq!(world.machine().metadata.finalizers.as_deref(), Some(&[mcm_api::labels::FINALIZER.to_owned()][..]));
}

fn change_class(world: &mut World, patch: Value) {
    if let ClassView::Present { class, .. } = &mut world.class {
        let mut value = json!(**class);
        crate::testing::merge(&mut value, &patch);
        *class = Arc::new(serde_json::from_value(value).unwrap());
    }
}

#[test]
fn texts_of_errors_never_hold_what_secrets_hold() {
    let data = mcm_driver::SecretData(BTreeMap::from([("userData".to_owned(), b"hunter2".to_vec())]));
    let facts = crate::machine::SecretFacts::from_data(&data, Vec::new(), None);
    assert!(facts.has_user_data && !format!("{facts:?} {data:?}").contains("hunter2"));
}

#[test]
fn after_a_failed_create_the_vm_is_looked_for_before_the_next_one_even_in_the_same_pass() {
    let machine = Arc::new(Machine::new("m", MachineSpec::default()));
    let mut snapshot = Snapshot::new(
        machine,
        ClassView::Unknown,
        TargetTrust::default(),
        MachineCallResults::default(),
        Memory::default(),
        at(0),
    );
    snapshot.vm_status(Err(error(Code::NotFound)));
    assert_eq!(snapshot.learned.vm, DriverVmView::NotFound);
    snapshot.vm_created(Err(error(Code::DeadlineExceeded)));
    assert_eq!(snapshot.learned.vm, DriverVmView::NotAsked);
}

#[rstest]
#[case::made_by_a_set(json!({}), true)]
#[case::applied_by_a_person(json!({ "metadata": { "ownerReferences": null } }), false)]
fn managed_fields_are_dropped_only_for_machines_created_by_a_set(#[case] patch: Value, #[case] is_ended: bool) {
    let mut world = World::with_machine(patch, Value::Null);
    world.run_until(|world| !world.machine().spec.provider_id.is_empty());
    assert_eq!(world.machine().metadata.managed_fields.is_some(), is_ended);
}

#[test]
fn a_driver_that_cannot_look_vms_up_is_asked_to_create_one() {
    let mut world = broken(VmCall::Status, error(Code::Unimplemented));
    world.pass();
    assert_eq!((world.births, world.phase()), (1, MachinePhase::Pending));
}

#[rstest]
#[case::with_a_node_name(json!({ "labels": { "node": "n" } }), MachinePhase::Pending, "")]
#[case::without(json!({}), MachinePhase::CrashLoopBackOff, "NotFound")]
fn an_id_that_is_stored_is_trusted_if_the_node_can_be_told(
    #[case] metadata: Value,
    #[case] phase: MachinePhase,
    #[case] code: &str,
) {
    let stored = json!({ "metadata": metadata, "spec": { "providerID": "cloud:///7" } });
    let mut world = World::with_machine(stored, Value::Null);
    world.pass();
    assert_eq!((world.phase(), world.status().last_operation.error_code.as_str()), (phase, code));
    assert_eq!((world.births, world.machine().spec.provider_id.as_str()), (0, "cloud:///7"));
    assert!(world.wake_at.is_some());
}

fn fresh() -> Snapshot {
    let machine = Arc::new(Machine::new("m", MachineSpec::default()));
    let (learned, memory) = (MachineCallResults::default(), Memory::default());
    Snapshot::new(machine, ClassView::Unknown, TargetTrust::default(), learned, memory, at(0))
}

#[test]
fn a_vm_without_an_id_is_an_error_of_its_driver() {
    let mut snapshot = fresh();
    snapshot.vm_created(Ok(Vm { node_name: "n".to_owned(), ..Vm::default() }));
    assert_eq!(snapshot.learned.vm, DriverVmView::NotAsked, "it is looked up before anything else");
    let failure = snapshot.memory.failure_of(VmCall::Create).unwrap();
    assert_eq!(failure.error.code, Code::Internal);
}

#[test]
fn an_initialization_changes_neither_id_nor_node_name() {
    let mut snapshot = fresh();
    let known = Vm { provider_id: "cloud:///1".to_owned(), node_name: "n".to_owned(), ..Vm::default() };
    snapshot.vm_created(Ok(known.clone()));
    let other = Vm { provider_id: "cloud:///2".to_owned(), node_name: "o".to_owned(), ..Vm::default() };
    snapshot.vm_initialized(Ok(other));
    assert_eq!(snapshot.learned.vm, DriverVmView::Initialized(known));
}

#[test]
fn an_error_of_a_creation_ends_the_timeout_and_no_preservation() {
    let current = json!({ "phase": "Pending", "timeoutActive": true, "preserveExpiryTime": at(9999) });
    let asked = json!({ "metadata": { "annotations": { "node.machine.sapcloud.io/preserve": "now" } } });
    let mut world = World::with_machine(asked, json!({ "currentStatus": current }));
    world.broken.insert(VmCall::Create, error(Code::Internal));
    world.pass();
    let current = world.status().current_status;
    assert_eq!(current.phase, MachinePhase::CrashLoopBackOff);
    assert_eq!((current.timeout_active, current.preserve_expiry_time), (false, Some(at(9999).into())));
}
