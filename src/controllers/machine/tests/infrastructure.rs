//! Machines that have the VM of an object of Cluster API, and Machines that must not be touched.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::NodeAddress;
use rstest::rstest;
use serde_json::{Value, json};

use super::world::{World, at};
use crate::machine::{
    Action, Snapshot, plan,
    views::{DriverVmView, SecretView},
};
use mcm_api::{labels::BLOCK_MOVE, machine::MachinePhase};
use mcm_driver::{Code, DriverError, Vm};
use mcm_rules::plan::{ReconcileHold, WaitKind};

/// The Machine of an MCMMachine, without a target cluster.
fn of_cluster_api(spec: Value) -> World {
    let owner = json!([{
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "MCMMachine", "name": "m", "uid": "o",
        "controller": true,
    }]);
    let mut world = World::with_machine(json!({ "metadata": { "ownerReferences": owner }, "spec": spec }), Value::Null);
    world.has_target = false;
    world
}

/// Z3, Z4: neither creation nor deletion, whatever the phase.
#[rstest]
#[case::new(json!({}), Value::Null)]
#[case::available(json!({ "spec": { "providerID": "cloud:///7" } }), json!({ "currentStatus": { "phase": "Available" } }))]
#[case::without_finalizer(json!({ "metadata": { "finalizers": [] } }), Value::Null)]
#[case::deleting(json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }), Value::Null)]
fn a_machine_that_is_held_is_not_touched(#[case] machine: Value, #[case] status: Value) {
    let mut world = World::with_machine(machine, status);
    world.has_target = false;
    let mut snapshot = world.snapshot();
    snapshot.hold = Some("Cluster c to be unpaused".to_owned().into());
    let plan = plan(&snapshot, &world.policy);
    assert!(plan.steps.is_empty(), "{plan}");
    assert_eq!((plan.waits[0].kind, plan.waits[0].text.as_str()), (WaitKind::Hold, "Cluster c to be unpaused"));
}

/// 4.3: a migration continues only after the Machine confirmed the hold. Afterwards all traces of it are removed.
#[rstest]
#[case::new(json!({}), Value::Null)]
#[case::available(json!({ "spec": { "providerID": "cloud:///7" } }), json!({ "currentStatus": { "phase": "Available" } }))]
#[case::deleting(json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }), Value::Null)]
fn a_machine_that_is_moved_is_left_alone_and_says_so(#[case] machine: Value, #[case] status: Value) {
    let mut world = World::with_machine(machine, status);
    world.has_target = false;
    let mut snapshot = world.snapshot();
    let hold = ReconcileHold { is_confirmed: true, ..ReconcileHold::from("MCMMigration d to be complete".to_owned()) };
    snapshot.hold = Some(hold);
    let steps = plan(&snapshot, &world.policy).steps;
    let [Action::WriteStatus(status)] = &steps.iter().map(|step| step.action.clone()).collect::<Vec<_>>()[..] else {
        panic!("{steps:?}")
    };
    let [paused] = &status.conditions[..] else { panic!("{status:?}") };
    assert_eq!((paused.type_.as_str(), paused.status.as_str()), ("Paused", "True"));
    let mut moved = (*snapshot.machine).clone();
    moved.status = Some((**status).clone());
    snapshot.machine = moved.into();
    assert!(plan(&snapshot, &world.policy).steps.is_empty(), "it is said once");
    snapshot.hold = None;
    let steps = plan(&snapshot, &world.policy).steps;
    let Some(Action::WriteStatus(status)) = steps.first().map(|step| step.action.clone()) else { panic!("{steps:?}") };
    assert!(status.conditions.is_empty());
}

/// A call was in flight when a user paused the cluster: its result is not lost.
#[test]
fn the_id_of_a_vm_that_was_just_created_is_stored_while_the_machine_is_held() {
    let world = of_cluster_api(json!({}));
    let mut snapshot = world.snapshot();
    snapshot.hold = Some("Cluster c to be unpaused".to_owned().into());
    let vm = Vm { provider_id: "cloud:///7".to_owned(), node_name: "m".to_owned(), ..Vm::default() };
    snapshot.learned.vm = DriverVmView::Created(vm);
    let steps = plan(&snapshot, &world.policy).steps;
    let [Action::PatchMachine(patch)] = &steps.iter().map(|step| step.action.clone()).collect::<Vec<_>>()[..] else {
        panic!("{steps:?}")
    };
    assert_eq!(patch["spec"]["providerID"], "cloud:///7");
}

/// The Machine of an MCMMachine that blocks a move, in a Cluster that is paused, after the Secrets were read.
fn paused_in_the_making() -> (World, Snapshot) {
    let mut world = of_cluster_api(json!({}));
    let mark = [(BLOCK_MOVE.to_owned(), String::new())];
    world.machine.as_mut().unwrap().metadata.annotations = Some(mark.into());
    let mut snapshot = world.snapshot();
    snapshot.hold =
        Some(ReconcileHold { is_pause: true, ..ReconcileHold::from("Cluster c to be unpaused".to_owned()) });
    snapshot.learned.secret = SecretView::Read(world.secret.clone());
    (world, snapshot)
}

fn actions(snapshot: &Snapshot, world: &World) -> Vec<Action> {
    plan(snapshot, &world.policy).steps.into_iter().map(|step| step.action).collect()
}

/// MV6: while its cluster is paused, a VM that may be under creation is looked up, and none is created.
#[test]
fn mv6_a_machine_that_blocks_a_move_is_free_once_its_vm_is_known_or_known_not_to_exist() {
    let (world, mut snapshot) = paused_in_the_making();
    assert_eq!(actions(&snapshot, &world), [Action::GetVmStatus]);
    snapshot.learned.vm = DriverVmView::NotFound;
    let free = json!({ "metadata": { "annotations": { (BLOCK_MOVE): null } } });
    assert_eq!(actions(&snapshot, &world), [Action::PatchMachine(free)], "and no VM is created");
    let vm = Vm { provider_id: "cloud:///7".to_owned(), node_name: "m".to_owned(), ..Vm::default() };
    for found in [DriverVmView::Found(vm.clone()), DriverVmView::Created(vm)] {
        snapshot.learned.vm = found;
        let [Action::PatchMachine(patch)] = &actions(&snapshot, &world)[..] else { panic!("not one patch") };
        assert_eq!(patch["spec"]["providerID"], "cloud:///7");
        assert!(patch["metadata"]["annotations"].as_object().unwrap().contains_key(BLOCK_MOVE), "in the same write");
    }
}

/// MV6: the cloud is not asked about a Machine of another manager or a terminating one.
#[rstest]
#[case::moved_or_of_another(false, false)]
#[case::deleting(true, true)]
fn mv6_only_a_pause_of_its_cluster_leads_to_a_look(#[case] is_pause: bool, #[case] is_deleting: bool) {
    let (mut world, snapshot) = paused_in_the_making();
    if is_deleting {
        world.delete();
    }
    let snapshot = Snapshot { hold: Some(ReconcileHold { is_pause, ..snapshot.hold.unwrap() }), ..world.snapshot() };
    assert_eq!(actions(&snapshot, &world), []);
}

/// MV6: a Machine that was free during a pause blocks a move again before its VM is begun; others never do.
#[test]
fn mv6_no_vm_of_cluster_api_is_begun_without_the_mark() {
    let mut world = of_cluster_api(json!({}));
    world.pass();
    let is_marked_first = |world: &World| {
        let at = |what: &str| world.log.iter().position(|action| action == what).unwrap();
        at("PatchMachine") < at("CreateVm")
    };
    assert!(is_marked_first(&world), "{:?}", world.log);
    assert_eq!((world.births, world.machine().blocks_move()), (1, false));
    let mut other = World::with_machine(json!({}), Value::Null);
    other.pass();
    assert!(!is_marked_first(&other), "{:?}", other.log);
}

/// I15: the ID is a claim that has to be proven, and never leads to another VM.
#[test]
fn a_machine_of_cluster_api_with_an_id_waits_until_the_driver_finds_that_vm() {
    let mut world = of_cluster_api(json!({ "providerID": "cloud:///7" }));
    world.pass();
    let status = world.status();
    assert_eq!(
        (world.phase(), status.last_operation.error_code.as_str()),
        (MachinePhase::CrashLoopBackOff, "NotFound")
    );
    assert_eq!(world.births, 0);
    world.vms.insert("cloud:///7".to_owned(), ("m".to_owned(), at(0)));
    world.now = world.wake_at.unwrap();
    world.pass();
    assert_eq!((world.phase(), world.births), (MachinePhase::Available, 0));
}

fn vm_problem(world: &World) -> Option<(String, String)> {
    let condition = world.status().conditions.into_iter().find(|condition| condition.type_ == "VMAvailable")?;
    assert_eq!(condition.status, "False");
    Some((condition.reason.unwrap().to_string(), condition.message.unwrap().to_string()))
}

#[test]
fn a_vm_that_is_gone_shows_on_its_machine_and_gets_no_successor() {
    let mut world = of_cluster_api(json!({}));
    world.pass();
    let (id, vm) = world.vms.pop_first().unwrap();
    world.now = world.wake_at.unwrap();
    assert_eq!(world.now, at(300), "all Machines are looked at together");
    world.pass();
    assert_eq!(vm_problem(&world).unwrap(), ("VMNotFound".to_owned(), format!("VM {id} does not exist any more")));
    assert_eq!((world.phase(), world.births), (MachinePhase::Available, 1));
    assert_eq!(world.description(), "Created machine on cloud provider");
    world.log.clear();
    let began = world.now;
    while world.now.duration_since(began).as_hours() < 1 {
        world.now = world.wake_at.unwrap();
        world.pass();
    }
    let asked = world.log.iter().filter(|name| *name == "GetVmStatus").count();
    assert!((11..=13).contains(&asked) && world.births == 1, "{:?}", world.log);
    assert_eq!(world.events.iter().filter(|event| *event == "Unhealthy").count(), 1);
    world.vms.insert(id, vm);
    world.run_until(|world| vm_problem(world).is_none());
    assert!(world.events.contains(&"Recovered".to_owned()));
}

/// The answer of a driver without look-ups proves nothing about the VM.
#[rstest]
#[case::of_a_driver_without_look_ups(DriverError::new(Code::Unimplemented, "no look-ups"), None)]
#[case::gone(DriverError::new(Code::NotFound, "no VM"), Some("VM cloud:///7 does not exist any more"))]
#[case::preempted(
    DriverError {
        vm: Some(Box::new(Vm { halted: Some("terminated (Server.SpotInstanceTermination)".to_owned()), ..Vm::default() })),
        ..DriverError::new(Code::NotFound, "no VM")
    },
    Some("VM cloud:///7 does not exist any more: it is terminated (Server.SpotInstanceTermination)")
)]
fn a_vm_that_ended_is_shown_with_the_reason_of_the_cloud(#[case] answer: DriverError, #[case] text: Option<&str>) {
    let mut world = of_cluster_api(json!({ "providerID": "cloud:///7" }));
    world.vms.insert("cloud:///7".to_owned(), ("m".to_owned(), at(0)));
    world.pass();
    assert_eq!(world.phase(), MachinePhase::Available);
    let mut snapshot = world.snapshot();
    snapshot.vm_status(Err(answer));
    let shown = actions(&snapshot, &world).into_iter().map(|action| {
        let Action::WriteStatus(status) = action else { panic!("{action:?}") };
        let condition = status.conditions.iter().find(|condition| condition.type_ == "VMAvailable").unwrap();
        assert_eq!(condition.reason.as_deref(), Some("VMNotFound"));
        condition.message.clone().unwrap()
    });
    assert_eq!(shown.collect::<Vec<_>>(), text.into_iter().collect::<Vec<_>>());
}

/// All are checked at the same times. A check soon before such a time is repeated, one just before it is not.
#[rstest]
#[case::long_before(at(230), at(300))]
#[case::just_before(at(290), at(600))]
#[case::at_that_time(at(300), at(600))]
fn a_vm_is_checked_at_most_six_minutes_after_its_last_check(#[case] looked_at: Timestamp, #[case] next: Timestamp) {
    let mut world = of_cluster_api(json!({}));
    world.pass();
    let mut snapshot = world.snapshot();
    snapshot.memory.looked_at = Some(looked_at);
    snapshot.now = looked_at;
    let waits = plan(&snapshot, &world.policy).waits;
    assert_eq!((waits.len(), waits[0].kind, waits[0].until), (1, WaitKind::VmCheck, Some(next)));
}

#[test]
fn a_vm_that_was_stopped_and_its_new_addresses_show_on_its_machine() {
    let address = |address: &str| NodeAddress { type_: "ExternalIP".to_owned(), address: address.to_owned() };
    let shown = |world: &World, vm: Vm| {
        let mut snapshot = world.snapshot();
        snapshot.learned.vm = DriverVmView::Found(vm);
        match &actions(&snapshot, world)[..] {
            [Action::WriteStatus(status)] => Some((**status).clone()),
            [] => None,
            other => panic!("{other:?}"),
        }
    };
    let mut world = of_cluster_api(json!({}));
    world.pass();
    let vm = Vm { provider_id: world.machine().spec.provider_id.clone(), ..Vm::default() };
    assert_eq!(shown(&world, vm.clone()), None);
    let stopped = shown(&world, Vm { halted: Some("stopped".to_owned()), ..vm.clone() }).unwrap();
    assert_eq!(stopped.conditions[0].reason.as_deref(), Some("VMNotRunning"));
    assert!(stopped.conditions[0].message.as_ref().unwrap().ends_with("is not running: it is stopped"));
    for addresses in [vec![address("192.0.2.1")], vec![address("192.0.2.7")]] {
        let status = shown(&world, Vm { addresses: addresses.clone(), ..vm.clone() }).unwrap();
        let external = |it: &&NodeAddress| it.type_ == "ExternalIP";
        assert_eq!(status.addresses.iter().filter(external).cloned().collect::<Vec<_>>(), addresses);
        world.edit_status(|stored| *stored = status);
    }
}

/// 4.1: core drains, deletes the Node and decides about replacements.
#[test]
fn a_machine_of_cluster_api_gets_its_vm_and_loses_it_without_any_work_on_nodes() {
    let mut world = of_cluster_api(json!({}));
    world.pass();
    assert_eq!((world.phase(), world.births), (MachinePhase::Available, 1));
    assert!(world.machine().node_name().is_none());
    world.delete();
    world.run_until(|world| world.machine.is_none());
    assert!(world.vms.is_empty());
    assert!(!world.log.iter().any(|action| action.contains("Node") || action.contains("Pod")), "{:?}", world.log);
}

/// The zone of the VM and the ID of its Node are stored with its ID, for the provider. The Go programs do not know the
/// annotations, so no other Machine gets them.
#[rstest]
#[case::of_cluster_api(true, json!("zone-b"), json!("cloud://7"))]
#[case::native(false, Value::Null, Value::Null)]
fn zone_and_node_id_of_a_vm_are_noted_for_cluster_api(
    #[case] is_of_cluster_api: bool,
    #[case] zone: Value,
    #[case] node_id: Value,
) {
    let mut world =
        if is_of_cluster_api { of_cluster_api(json!({})) } else { World::with_machine(json!({}), Value::Null) };
    world.has_target = false;
    let mut snapshot = world.snapshot();
    snapshot.learned.secret = SecretView::Read(world.secret.clone());
    let vm = Vm {
        provider_id: "cloud:///7".to_owned(),
        node_name: "m".to_owned(),
        zone: Some("zone-b".to_owned()),
        node_provider_id: Some("cloud://7".to_owned()),
        ..Vm::default()
    };
    snapshot.learned.vm = DriverVmView::Found(vm);
    let [Action::PatchMachine(patch)] = &actions(&snapshot, &world)[..] else { panic!("not one patch") };
    let noted = &patch["metadata"]["annotations"];
    assert_eq!((&noted["machine.mcm/zone"], &noted["machine.mcm/node-provider-id"]), (&zone, &node_id));
    assert_eq!(patch["spec"]["providerID"], "cloud:///7");
}
