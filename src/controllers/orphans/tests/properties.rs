use proptest::prelude::*;
use serde_json::json;

use super::world::World;

#[derive(Clone, Debug)]
enum Happening {
    Vm(usize, String),
    VmEnds(usize),
    Machine(String, String, &'static str),
    MachineEnds(String),
    ListFails(bool),
    Uncertain(bool),
    Pass,
    Sleep(i64),
}

fn any_happening() -> impl Strategy<Value = Happening> {
    let name = || prop::sample::select(vec!["a", "b", "c"]).prop_map(str::to_owned);
    let id = prop_oneof![Just(String::new()), (0_usize..5).prop_map(|number| format!("cloud:///{number}"))];
    let phase = prop::sample::select(vec!["", "Pending", "Running", "CrashLoopBackOff", "Failed", "Terminating"]);
    prop_oneof![
        1 => (0_usize..5, name()).prop_map(|(number, name)| Happening::Vm(number, name)),
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
    /// Whatever happens: a VM that is deleted had no Machine in every list that was read for at least a period.
    #[test]
    fn no_vm_of_a_machine_is_ever_deleted(happenings in prop::collection::vec(any_happening(), 1..80)) {
        let mut world = World::new();
        let mut since = std::collections::BTreeMap::new();
        for happening in happenings {
            match happening {
                Happening::Vm(number, name) => world.vm(number, &name),
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
                        let orphans = before.vms.clone().into_iter().filter(|(id, name)| !is_claimed(id, name));
                        since = orphans.map(|vm| (vm.clone(), *since.get(&vm).unwrap_or(&before.now))).collect();
                    }
                    for id in &world.deleted[deleted..] {
                        prop_assert!(!is_blind);
                        let vm = (id.clone(), before.vms[id].clone());
                        let age = since.get(&vm).map(|since| before.now.duration_since(*since));
                        prop_assert!(age >= Some(jiff::SignedDuration::from_mins(15)), "{vm:?} was deleted after {age:?}");
                    }
                }
            }
        }
    }
}
