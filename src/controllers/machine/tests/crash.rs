//! Any fault at any action: one VM while the Machine exists, none after it.

use rstest::rstest;
use serde_json::json;

use super::world::{Fault, World, pod, ready};
use mcm_api::machine::MachinePhase;

fn live_and_die(faults: &[(usize, Fault)], initializes: bool) -> World {
    let mut world = if initializes { World::new().can_initialize() } else { World::new() };
    world.secret.wants_token = initializes;
    world.faults = faults.to_vec();
    world.run_until(|world| world.phase() == MachinePhase::Running);
    assert_eq!(world.births, 1, "{faults:?}: {:?}", world.log);
    assert_eq!(world.machine().spec.provider_id, "cloud:///1");
    assert!(world.nodes.contains_key("n"));
    world.settle();
    world.pods = vec![pod("a"), pod("b")];
    world.delete();
    world.run_until(|world| world.machine.is_none());
    assert!(world.vms.is_empty() && world.nodes.is_empty() && world.pods.is_empty(), "{faults:?}: {:?}", world.log);
    assert_eq!(world.births, 1, "{faults:?}");
    assert!(is_refused(faults) || world.tokens.is_empty(), "{faults:?}: {:?}", world.log);
    world
}

/// A token whose deletion failed expires.
fn is_refused(faults: &[(usize, Fault)]) -> bool {
    faults.iter().any(|(_, fault)| *fault == Fault::Refused)
}

/// Any fault at any action, and another one at any later action.
#[rstest]
fn one_vm_while_it_lives_and_none_after(
    #[values(Fault::Crash, Fault::LostReply, Fault::Refused)] first: Fault,
    #[values(Fault::Crash, Fault::LostReply, Fault::Refused)] second: Fault,
    #[values(false, true)] initializes: bool,
) {
    let actions = live_and_die(&[], initializes).actions();
    assert!(actions > 15, "too few actions to prove anything");
    for one in 1..=actions {
        for other in one + 1..=actions + 5 {
            live_and_die(&[(one, first), (other, second)], initializes);
        }
    }
}

/// Deleted at any moment of its creation, with anything going wrong at any action.
#[rstest]
#[case::crash(Fault::Crash)]
#[case::lost_reply(Fault::LostReply)]
#[case::refused(Fault::Refused)]
fn a_creation_cut_short_leaves_no_vm(#[case] fault: Fault) {
    for cut in 0..8 {
        for nth in 1..=20 {
            let mut world = World::new();
            world.secret.wants_token = true;
            world.faults = vec![(cut, Fault::Crash)];
            if cut > 0 {
                world.run_until(|world| world.actions() >= cut);
            }
            world.faults = vec![(cut + nth, fault)];
            world.delete();
            world.run_until(|world| world.machine.is_none());
            assert!(world.vms.is_empty() && world.births <= 1, "cut {cut}, fault {nth}: {:?}", world.log);
            assert!(is_refused(&world.faults) || world.tokens.is_empty(), "cut {cut}, fault {nth}: {:?}", world.log);
        }
    }
}

#[test]
fn a_creation_takes_three_writes_after_birth() {
    let world = {
        let mut world = World::new();
        world.run_until(|world| world.phase() == MachinePhase::Running);
        world.settle();
        world
    };
    let expected = ["ReadSecret", "GetVmStatus", "CreateVm", "PatchMachine", "WriteStatus", "WriteStatus", "PatchNode"];
    assert_eq!(world.log, expected);
    assert_eq!(world.machine_writes, 3);
    assert_eq!(world.events, ["Created", "Joined"]);
}

#[test]
fn conditions_that_come_one_by_one_while_a_node_joins_cost_no_writes() {
    let mut world = World::new();
    world.run_until(|world| !world.nodes.is_empty());
    for status in ["Unknown", "False"] {
        world.set_conditions(json!([{ "type": "Ready", "status": status }]));
        world.settle();
        assert_eq!((world.phase(), world.machine_writes), (MachinePhase::Pending, 2));
    }
    world.set_conditions(ready());
    world.settle();
    assert_eq!((world.phase(), world.machine_writes), (MachinePhase::Running, 3));
}

#[test]
fn a_deletion_takes_one_write_without_pods_and_three_with_pods() {
    let mut world = World::running();
    world.delete();
    world.run_until(|world| world.machine.is_none());
    assert_eq!(world.machine_writes, 1, "{:?}", world.log);
    let mut world = World::running();
    world.pods = vec![pod("a")];
    world.delete();
    world.run_until(|world| world.machine.is_none());
    assert_eq!(world.machine_writes, 3, "{:?}", world.log);
    assert_eq!(world.descriptions(), ["Initiate node drain", "Drain successful. Initiate VM deletion"]);
    assert_eq!(world.events, ["Draining", "Drained", "Deleted"]);
}

#[test]
fn an_idle_machine_does_nothing_and_waits_for_nothing() {
    let mut world = World::running();
    world.sleep(3600);
    world.pass();
    assert_eq!((world.log.len(), world.wake_at), (0, None));
}
