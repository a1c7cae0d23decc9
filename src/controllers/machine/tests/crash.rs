//! Whatever goes wrong at whichever action: one VM while the Machine lives, none after it.

use rstest::rstest;

use super::world::{Fault, World, pod};
use crate::api::machine::MachinePhase;

fn live_and_die(fault: Option<(usize, Fault)>, initializes: bool) -> World {
    let mut world = if initializes { World::new().can_initialize() } else { World::new() };
    world.secret.wants_token = initializes;
    world.fault = fault;
    world.run_until(|world| world.phase() == MachinePhase::Running);
    assert_eq!(world.births, 1, "{fault:?}: {:?}", world.log);
    assert_eq!(world.machine().spec.provider_id, "cloud:///1");
    world.settle();
    world.pods = vec![pod("a"), pod("b")];
    world.delete();
    world.run_until(|world| world.machine.is_none());
    assert!(world.vms.is_empty() && world.nodes.is_empty() && world.pods.is_empty(), "{fault:?}: {:?}", world.log);
    assert_eq!(world.births, 1, "{fault:?}");
    world
}

#[rstest]
#[case::crash(Fault::Crash)]
#[case::lost_reply(Fault::LostReply)]
#[case::refused(Fault::Refused)]
fn one_vm_while_it_lives_and_none_after(#[case] fault: Fault) {
    for initializes in [false, true] {
        let actions = live_and_die(None, initializes).actions();
        assert!(actions > 15, "too few actions to prove anything");
        for nth in 1..=actions {
            live_and_die(Some((nth, fault)), initializes);
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
            world.fault = Some((cut, Fault::Crash));
            if cut > 0 {
                world.run_until(|world| world.actions() >= cut);
            }
            world.fault = Some((cut + nth, fault));
            world.delete();
            world.run_until(|world| world.machine.is_none());
            assert!(world.vms.is_empty() && world.births <= 1, "cut {cut}, fault {nth}: {:?}", world.log);
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
    let expected = [
        "ReadSecret",
        "AskVm",
        "CreateVm",
        "PatchMachine",
        "WriteStatus",
        "DeleteBootstrapToken",
        "WriteStatus",
        "PatchNode",
    ];
    let log: Vec<&str> = world.log.iter().map(String::as_str).filter(|name| *name != "DeleteBootstrapToken").collect();
    let expected: Vec<&str> = expected.into_iter().filter(|name| *name != "DeleteBootstrapToken").collect();
    assert_eq!(log, expected, "no token was wanted, so none is deleted");
    assert_eq!(world.machine_writes, 3);
    assert_eq!(world.events, ["Created", "Joined"]);
}

#[test]
fn a_deletion_takes_two_writes_without_pods_and_three_with_pods() {
    let mut world = World::running();
    world.delete();
    world.run_until(|world| world.machine.is_none());
    assert_eq!(world.machine_writes, 2, "{:?}", world.log);
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
