//! Whole rollouts as text, each also in many other orders, which must end in the same place.

use serde_json::{Value, json};

use super::drive::{Drive, Order, deployment, in_place, recreate, rolling};
use crate::object::suffix::NameSuffixes;

/// The log of the story in the fixed order. Random orders must arrive at the same end state.
fn tell(replicas: i32, strategy: Value, story: impl Fn(&mut Drive)) -> String {
    let told = |order: Order| {
        let mut drive = Drive::settled(deployment(replicas, strategy.clone()));
        drive.order = order;
        story(&mut drive);
        drive.run();
        drive
    };
    let fixed = told(Order::Fixed);
    for seed in 0..30 {
        let random = told(Order::Random(NameSuffixes::seeded(seed)));
        assert_eq!(random.end_state(), fixed.end_state(), "seed {seed}\n{}", random.log);
    }
    format!("{}---\n{}", fixed.log, fixed.end_state())
}

/// Compares with the file of this name.
fn assert_story(name: &str, story: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, story));
}

#[test]
fn a_deployment_comes_to_life() {
    let mut drive = Drive::of(deployment(3, rolling(1, 0)));
    drive.run();
    assert_story("a_deployment_comes_to_life", &format!("{}---\n{}", drive.log, drive.end_state()));
}

#[test]
fn one_by_one_with_a_surge() {
    assert_story("one_by_one_with_a_surge", &tell(3, rolling(1, 0), |drive| drive.edit_class("v2")));
}

#[test]
fn one_by_one_without_a_surge() {
    assert_story("one_by_one_without_a_surge", &tell(3, rolling(0, 1), |drive| drive.edit_class("v2")));
}

#[test]
fn in_steps_of_a_share() {
    assert_story("in_steps_of_a_share", &tell(8, rolling("25%", "25%"), |drive| drive.edit_class("v2")));
}

#[test]
fn all_at_once_with_a_surge() {
    assert_story("all_at_once_with_a_surge", &tell(3, rolling("100%", 0), |drive| drive.edit_class("v2")));
}

#[test]
fn with_neither_a_surge_nor_an_unavailable_machine() {
    let name = "with_neither_a_surge_nor_an_unavailable_machine";
    assert_story(name, &tell(3, rolling(0, 0), |drive| drive.edit_class("v2")));
}

#[test]
fn all_at_once_with_recreate() {
    assert_story("all_at_once_with_recreate", &tell(3, recreate(), |drive| drive.edit_class("v2")));
}

#[test]
fn scaled_during_a_rollout() {
    assert_story(
        "scaled_during_a_rollout",
        &tell(3, rolling(1, 0), |drive| {
            drive.edit_class("v2");
            drive.run_for(3);
            drive.edit(json!({"replicas": 5}));
            drive.run_for(4);
            drive.edit(json!({"replicas": 2}));
        }),
    );
}

#[test]
fn paused_and_resumed_during_a_rollout() {
    assert_story(
        "paused_and_resumed_during_a_rollout",
        &tell(3, rolling(1, 0), |drive| {
            drive.edit_class("v2");
            drive.run_for(3);
            drive.edit(json!({"paused": true}));
            drive.run();
            drive.edit(json!({"paused": false}));
        }),
    );
}

#[test]
fn the_template_changes_back_during_a_rollout() {
    assert_story(
        "the_template_changes_back_during_a_rollout",
        &tell(3, rolling(1, 0), |drive| {
            drive.edit_class("v2");
            drive.run_for(6);
            drive.edit_class("v1");
        }),
    );
}

#[test]
fn a_third_template_during_a_rollout() {
    assert_story(
        "a_third_template_during_a_rollout",
        &tell(4, rolling(1, 1), |drive| {
            drive.edit_class("v2");
            drive.run_for(5);
            drive.edit_class("v3");
        }),
    );
}

#[test]
fn a_class_of_which_no_vm_can_be_made() {
    assert_story(
        "a_class_of_which_no_vm_can_be_made",
        &tell(4, rolling("25%", "25%"), |drive| {
            drive.world.unserved.insert("v2".to_owned());
            drive.edit_class("v2");
            drive.run();
            drive.edit_class("v3");
        }),
    );
}

#[test]
fn machines_chosen_by_the_autoscaler() {
    assert_story(
        "machines_chosen_by_the_autoscaler",
        &tell(4, rolling(1, 0), |drive| {
            let names = drive.machine_names();
            drive.scale_down(3, &[&names[2]]);
            drive.run();
            drive.edit_class("v2");
            drive.run_for(5);
            let of_both = drive.machine_names();
            drive.scale_down(1, &[&of_both[1], of_both.last().unwrap()]);
        }),
    );
}

#[test]
fn scaled_to_nothing_and_back() {
    assert_story(
        "scaled_to_nothing_and_back",
        &tell(2, rolling(1, 0), |drive| {
            drive.edit(json!({"replicas": 0}));
            drive.run();
            drive.edit(json!({"replicas": 1}));
        }),
    );
}

#[test]
fn rolled_back() {
    assert_story(
        "rolled_back",
        &tell(2, rolling(1, 0), |drive| {
            drive.edit_class("v2");
            drive.run();
            drive.edit(json!({"rollbackTo": {"revision": 0}}));
        }),
    );
}

#[test]
fn in_place_one_by_one() {
    assert_story("in_place_one_by_one", &tell(3, in_place(0, 1, "Auto"), |drive| drive.edit_version("v2")));
}

#[test]
fn in_place_with_a_surge() {
    assert_story("in_place_with_a_surge", &tell(3, in_place(1, 0, "Auto"), |drive| drive.edit_version("v2")));
}

#[test]
fn in_place_with_a_failing_node() {
    assert_story(
        "in_place_with_a_failing_node",
        &tell(3, in_place(0, 1, "Auto"), |drive| {
            let first = drive.machine_names()[0].clone();
            drive.world.stubborn.insert(first);
            drive.edit_version("v2");
        }),
    );
}

#[test]
fn in_place_by_hand_with_a_failing_node() {
    assert_story(
        "in_place_by_hand_with_a_failing_node",
        &tell(3, in_place(1, 0, "Manual"), |drive| {
            drive.edit_version("v2");
            drive.run();
            let names = drive.machine_names();
            drive.world.stubborn.insert(names[1].clone());
            drive.select(&names[1]);
            drive.run();
            drive.select(&names[0]);
            drive.select(&names[2]);
        }),
    );
}
