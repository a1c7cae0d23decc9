use proptest::prelude::*;
use serde_json::json;

use super::{super::ForeignClasses, world::World};

#[derive(Clone, Debug)]
enum Happening {
    Vm(usize, String, Option<&'static str>),
    Others(ForeignClasses),
    Uid(bool),
    VmEnds(usize),
    Machine(String, String, &'static str),
    MachineEnds(String),
    ListFails(bool),
    Uncertain(bool),
    Pass,
    Sleep(i64),
}

const UID: &str = "5c5b5f5e-7c66-4a9b-9b53-0f2b6f4e3c11";

fn any_marker() -> impl Strategy<Value = Option<&'static str>> {
    prop::sample::select(vec![Some("shoot"), Some("shoot"), Some(UID), None, None, Some("team-b")])
}

fn any_others() -> impl Strategy<Value = ForeignClasses> {
    let known = |names: &[&str]| ForeignClasses::Known(names.iter().map(|&name| name.to_owned()).collect());
    prop::sample::select(vec![
        known(&[]),
        known(&[]),
        known(&["team-b/w"]),
        ForeignClasses::Forbidden { has_own_tag: false },
        ForeignClasses::Forbidden { has_own_tag: true },
        ForeignClasses::Unknown("no".to_owned()),
    ])
}

fn any_happening() -> impl Strategy<Value = Happening> {
    let name = || prop::sample::select(vec!["a", "b", "c"]).prop_map(str::to_owned);
    let id = prop_oneof![Just(String::new()), (0_usize..5).prop_map(|number| format!("cloud:///{number}"))];
    let phase = prop::sample::select(vec!["", "Pending", "Running", "CrashLoopBackOff", "Failed", "Terminating"]);
    prop_oneof![
        1 => (0_usize..5, name(), any_marker()).prop_map(|(number, name, owner)| Happening::Vm(number, name, owner)),
        1 => any_others().prop_map(Happening::Others),
        1 => any::<bool>().prop_map(Happening::Uid),
        1 => (0_usize..5).prop_map(Happening::VmEnds),
        1 => (name(), id, phase).prop_map(|(name, id, phase)| Happening::Machine(name, id, phase)),
        1 => name().prop_map(Happening::MachineEnds),
        1 => any::<bool>().prop_map(Happening::ListFails),
        1 => any::<bool>().prop_map(Happening::Uncertain),
        4 => Just(Happening::Pass),
        4 => (1_i64..20).prop_map(Happening::Sleep),
    ]
}

proptest! {
    /// A deleted VM had no Machine in every list that was read for at least a period, and it is marked as ours, or not
    /// marked while it is certain that no others use the tag.
    #[test]
    fn no_vm_of_a_machine_or_of_others_is_ever_deleted(happenings in prop::collection::vec(any_happening(), 1..80)) {
        let mut world = World::new();
        let mut since = std::collections::BTreeMap::new();
        for happening in happenings {
            match happening {
                Happening::Vm(number, name, owner) => world.vm_of(number, &name, owner),
                Happening::Others(others) => world.others = others,
                Happening::Uid(is_known) => world.uid = is_known.then(|| UID.to_owned()),
                Happening::VmEnds(number) => drop(world.vms.remove(&format!("cloud:///{number}"))),
                Happening::Machine(name, id, phase) => {
                    world.add(&name, &json!({"spec": {"providerID": id}, "status": {"currentStatus": {"phase": phase}}}));
                }
                Happening::MachineEnds(name) => drop(world.machines.remove(&name)),
                Happening::ListFails(fails) => world.list_fails = fails.then(|| "no".to_owned()),
                Happening::Uncertain(uncertain) => world.uncertain = uncertain.then(|| "so".to_owned()),
                Happening::Sleep(minutes) => world.sleep(minutes),
                Happening::Pass => {
                    let (before, deleted) = (world.clone(), world.deleted.len());
                    let is_blind = before.list_fails.is_some() || before.uncertain.is_some();
                    world.pass();
                    let is_claimed = |id: &str, name: &str| before.machines.values().any(|machine| {
                        let has_none = machine.spec.provider_id.is_empty();
                        machine.spec.provider_id == id || (has_none && machine.metadata.name.as_deref() == Some(name))
                    });
                    if !is_blind {
                        let all = before.vms.iter().map(|(id, vm)| (id.clone(), vm.machine.clone()));
                        let orphans = all.filter(|(id, name)| !is_claimed(id, name));
                        since = orphans.map(|vm| (vm.clone(), *since.get(&vm).unwrap_or(&before.now))).collect();
                    }
                    let is_ours = |marker: &str| marker == "shoot" || Some(marker) == before.uid.as_deref();
                    let has_id = |id: &String| before.machines.values().any(|machine| machine.spec.provider_id == *id);
                    let is_shared = before.vms.iter().any(|(id, vm)| {
                        !has_id(id) && vm.owner.as_deref().is_some_and(|marker| !is_ours(marker))
                    });
                    let is_alone = !is_shared
                        && [ForeignClasses::Forbidden { has_own_tag: true }, ForeignClasses::Known(Vec::new())].contains(&before.others);
                    for id in &world.deleted[deleted..] {
                        prop_assert!(!is_blind);
                        let owner = before.vms[id].owner.as_deref();
                        prop_assert!(owner.map_or(is_alone, is_ours), "{id} of {owner:?} was deleted");
                        let vm = (id.clone(), before.vms[id].machine.clone());
                        let age = since.get(&vm).map(|since| before.now.duration_since(*since));
                        prop_assert!(age >= Some(jiff::SignedDuration::from_mins(15)), "{vm:?} was deleted after {age:?}");
                    }
                }
            }
        }
    }
}
