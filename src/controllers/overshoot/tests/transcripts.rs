//! Whole freezes as text.

use std::fmt::Write as _;

use serde_json::json;

use super::world::World;

/// One check: its steps and waits.
fn check(log: &mut String, world: &mut World) {
    let machines: Vec<String> = world.snapshot.sets.iter().map(|one| one.machines.to_string()).collect();
    writeln!(log, "check with {} machines", machines.join(" and ")).unwrap();
    world.events.clear();
    world.settle().iter().for_each(|reason| writeln!(log, "  {reason}").unwrap());
    world.events.iter().for_each(|(reason, set)| writeln!(log, "      event {reason} of {set}").unwrap());
    world.plan().waits.iter().for_each(|wait| writeln!(log, "      {wait}").unwrap());
    let marks = |(label, said): (bool, Option<(String, String)>)| {
        format!(
            "label {label}, condition {}",
            said.map_or("none".to_owned(), |(reason, text)| format!("{reason}: {text}"))
        )
    };
    writeln!(log, "    set: {}\n    deployment: {}", marks(world.marks_of_set("a")), marks(world.marks())).unwrap();
}

#[test]
fn a_big_scale_down() {
    let mut log = String::new();
    let mut world = World::new(6).deployed(json!({"spec": {"replicas": 6}}));
    check(&mut log, &mut world);
    log.push_str("user: replicas 2\n");
    world = world.deployed(json!({"spec": {"replicas": 2}}));
    for machines in [6, 5, 4, 2] {
        world.snapshot.sets[0].machines = machines;
        check(&mut log, &mut world);
        world.pass(60);
    }
    assert_story("a_big_scale_down", &log);
}

#[test]
fn unfrozen_by_a_user() {
    let mut log = String::new();
    let mut world = World::new(9);
    check(&mut log, &mut world);
    log.push_str("user: annotation unfreeze on the deployment\n");
    world = world.deployed(json!({"metadata": {"annotations": {"safety.machine.sapcloud.io/unfreeze": ""}}}));
    check(&mut log, &mut world);
    world.pass(60);
    log.push_str("a minute passes\n");
    check(&mut log, &mut world);
    assert_story("unfrozen_by_a_user", &log);
}

/// Compares with the file of this name.
fn assert_story(name: &str, story: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, story));
}
