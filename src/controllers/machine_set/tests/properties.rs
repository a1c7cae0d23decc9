//! Properties of plans for any population.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    super::plan,
    world::{World, after, annotated, merge, phase, preserved_until},
};
use mcm_api::{labels, machine::MachinePhase};

#[derive(Clone, Debug)]
struct Any {
    phase: MachinePhase,
    dying: bool,
    orphan: bool,
    priority: Option<i32>,
    marked: bool,
    preserved: Option<i64>,
}

fn any_machine() -> impl Strategy<Value = Any> {
    use MachinePhase::*;
    let phases = prop::sample::select(vec![
        New,
        Pending,
        Available,
        Running,
        Running,
        Unknown,
        Failed,
        CrashLoopBackOff,
        Terminating,
        InPlaceUpdating,
    ]);
    let preserved = prop::option::weighted(0.2, -100i64..100);
    (phases, prop::bool::weighted(0.2), prop::bool::weighted(0.2), prop::option::of(0..5), any::<bool>(), preserved)
        .prop_map(|(phase, dying, orphan, priority, marked, preserved)| Any {
            phase,
            dying,
            orphan,
            priority,
            marked,
            preserved,
        })
}

fn world_of(replicas: i32, population: &[Any]) -> World {
    let mut world = World::new(replicas).with(annotated(labels::LAST_SCALER_CHANGE, &after(0)));
    for (index, any) in population.iter().enumerate() {
        let mut patch = phase(any.phase.as_str());
        if any.dying {
            merge(&mut patch, json!({ "metadata": { "deletionTimestamp": after(-9) } }));
        }
        if any.orphan {
            patch["metadata"]["ownerReferences"] = Value::Null;
        }
        if let Some(priority) = any.priority {
            merge(&mut patch, annotated(labels::PRIORITY, &priority.to_string()));
        }
        if any.marked {
            merge(&mut patch, annotated(labels::MARKED_FOR_DELETION_TIME, &after(-1)));
        }
        if let Some(seconds) = any.preserved {
            merge(&mut patch, preserved_until(seconds));
        }
        world = world.machine(&format!("m{index:03}"), patch);
    }
    world
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_population_settles_at_the_desired_number_without_exceeding_it(
        population in prop::collection::vec(any_machine(), 0..25),
        replicas in 0i32..25,
        auto_preserve in 0i32..3,
        seed in any::<u64>(),
    ) {
        let mut world = world_of(replicas, &population)
            .with(json!({ "spec": { "autoPreserveFailedMachineMax": auto_preserve } }));
        world.seed = seed;
        let wanted = usize::try_from(replicas).unwrap();
        let before = world.active();
        world.settle();
        prop_assert_eq!(world.active(), wanted);
        prop_assert!(world.peak <= before.max(wanted), "{} of {wanted}", world.peak);
        let status = world.status();
        prop_assert_eq!(usize::try_from(status.replicas).unwrap(), world.machines.values().filter(|machine| {
            machine["metadata"]["ownerReferences"][0]["uid"] == "set-uid"
        }).count());

        world.finish_deletions();
        let (created, deleted) = (world.created.len(), world.deleted.len());
        world.settle();
        prop_assert_eq!((created, deleted), (world.created.len(), world.deleted.len()), "what is gone was not missed");
    }

    #[test]
    fn what_cannot_be_read_leads_to_no_machine_too_many_and_none_too_few(
        population in prop::collection::vec(any_machine(), 0..15),
        replicas in 0i32..15,
        unreadable in 1usize..5,
    ) {
        let mut world = world_of(replicas, &population);
        world.unreadable = (0..unreadable).map(|index| format!("u{index}")).collect();
        let wanted = usize::try_from(replicas).unwrap();
        let before = world.active() + unreadable;
        world.settle();
        prop_assert!(world.active() <= wanted && world.active() + unreadable >= wanted);
        prop_assert!(world.peak + unreadable <= before.max(wanted + unreadable));
        if !world.created.is_empty() {
            prop_assert_eq!(world.active() + unreadable, wanted, "nothing is created beyond what is surely missing");
        }
    }

    #[test]
    fn a_frozen_set_never_creates(population in prop::collection::vec(any_machine(), 0..15), replicas in 0i32..15) {
        let mut world = world_of(replicas, &population).with(json!({ "metadata": { "labels": { "freeze": "True" } } }));
        world.settle();
        prop_assert!(world.created.is_empty());
    }

    #[test]
    fn a_plan_does_not_depend_on_the_order_of_the_snapshot(
        population in prop::collection::vec(any_machine(), 0..15),
        replicas in 0i32..15,
    ) {
        let snapshot = world_of(replicas, &population).snapshot();
        let mut reversed = snapshot.clone();
        reversed.machines.reverse();
        prop_assert_eq!(plan(&snapshot), plan(&reversed));
    }
}
