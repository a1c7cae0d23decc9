//! Random edits, random order, random faults: the bounds hold after every action, and the final state matches the spec.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::drive::{Drive, Order, deployment, in_place, pick, recreate, rolling};
use crate::object::suffix::NameSuffixes;
use mcm_api::labels::CRITICAL_COMPONENTS_TAINT;

/// An external event.
#[derive(Clone, Debug)]
enum Push {
    Class(u8),
    Replicas(i32),
    Pause(bool),
    Mishap,
    /// Nothing but time: this many things happen.
    Pass(usize),
}

fn any_push() -> impl Strategy<Value = Push> {
    prop_oneof![
        2 => (0u8..3).prop_map(Push::Class),
        2 => (0i32..7).prop_map(Push::Replicas),
        1 => any::<bool>().prop_map(Push::Pause),
        2 => Just(Push::Mishap),
        5 => (1usize..12).prop_map(Push::Pass),
    ]
}

fn any_strategy() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => (0i32..4, 0i32..4).prop_map(|(surge, unavailable)| rolling(surge, unavailable)),
        1 => (0i32..=100, 0i32..=100).prop_map(|(surge, unavailable)| rolling(format!("{surge}%"), format!("{unavailable}%"))),
        2 => Just(recreate()),
        3 => (0i32..4, 0i32..4).prop_map(|(surge, unavailable)| in_place(surge, unavailable, "Auto")),
    ]
}

fn push(drive: &mut Drive, push: &Push, suffixes: &mut NameSuffixes) {
    match push {
        Push::Class(class) => drive.edit_class(&format!("v{class}")),
        Push::Replicas(replicas) => drive.edit(json!({ "replicas": replicas })),
        Push::Pause(paused) => drive.edit(json!({ "paused": paused })),
        Push::Mishap => {
            let mishaps = drive.world.mishaps();
            if let Some(mishap) = mishaps.get(pick(suffixes, mishaps.len())) {
                drive.let_happen(mishap);
            }
        }
        Push::Pass(count) => drive.run_for(*count),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn bounds_hold_and_the_spec_is_met(
        replicas in 0i32..7,
        strategy in any_strategy(),
        pushes in proptest::collection::vec(any_push(), 0..14),
        seed in any::<u64>(),
    ) {
        let mut drive = Drive::of(deployment(replicas, strategy));
        drive.order = Order::Random(NameSuffixes::seeded(seed));
        let mut suffixes = NameSuffixes::seeded(seed ^ 1);
        for pushed in &pushes {
            push(&mut drive, pushed, &mut suffixes);
        }
        drive.edit(json!({ "paused": false }));
        drive.run();

        let deployment = drive.deployment();
        let desired = deployment.spec.replicas;
        let status = deployment.status.clone().unwrap();
        prop_assert_eq!(
            (status.replicas, status.updated_replicas, status.available_replicas, status.unavailable_replicas),
            (desired, desired, desired, 0)
        );
        let progressing = status.conditions.iter().find(|condition| condition.type_ == "Progressing").unwrap();
        prop_assert_eq!(progressing.reason.as_str(), "NewMachineSetAvailable");
        prop_assert!(drive.world.nodes.all().all(|node| node.spec.taints.iter().all(|taint| taint.key == CRITICAL_COMPONENTS_TAINT) && !node.spec.unschedulable && node.labels().is_empty() && node.annotations().is_empty()));
    }
}
