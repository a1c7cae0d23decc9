use rstest::rstest;

use super::*;
use mcm_insight::testing::{blocked, machine, pool};

const NAME: &str = "pool-84dff-a";
/// The record while another machine is created.
const CREATING: &str = "replicas=3,available=2,others=-b+-c";
/// The record once another machine is available.
const READY: &str = "replicas=3,available=2,others=-b+-c,ready";

/// Three machines of the current template, of which `pool-84dff-a` has a record, and some more in phases.
fn world(replicas: i32, record: &str, more: &[(&str, &str)]) -> NamespaceFacts {
    let annotations = if record.is_empty() { json!({}) } else { json!({ REPLACEMENT: record }) };
    let with_record = json!({ "metadata": { "annotations": annotations } });
    let running = |suffix: &str, more: &Value| machine("pool-84dff", suffix, "small", "Running", more);
    let mut machines = vec![running("a", &with_record), running("b", &json!({})), running("c", &json!({}))];
    machines.extend(more.iter().map(|(suffix, phase)| machine("pool-84dff", suffix, "small", phase, &json!({}))));
    pool(replicas, machines)
}

fn step(facts: &NamespaceFacts) -> ReplacementStep {
    next(facts, NAME, None).unwrap()
}

fn patch(step: ReplacementStep) -> ObjectPatch {
    match step {
        ReplacementStep::Write(patch)
        | ReplacementStep::Release(patch)
        | ReplacementStep::GiveUp { patch, .. }
        | ReplacementStep::Last(patch) => patch,
        other => panic!("{other:?}"),
    }
}

fn refusal(facts: &NamespaceFacts) -> String {
    let ended = next(facts, NAME, None).unwrap_err();
    format!("{} ({})", ended.message, ended.hint)
}

/// Each step of a replacement, from the objects that its predecessor leaves. A command that ends between two steps continues with the
/// next.
#[test]
fn a_machine_is_recorded_joined_by_another_one_chosen_and_released() {
    let mark = patch(step(&world(3, "", &[])));
    let annotations = json!({ REPLACEMENT: CREATING });
    assert_eq!(mark.patch, json!({ "metadata": { "annotations": annotations } }));
    assert_eq!((mark.object.kind.as_str(), mark.needs_consent), (MACHINE, true));
    assert_eq!(mark.planned.unwrap().name, "pool", "the plan is that of one machine more");
    insta::assert_snapshot!(mark.says, @"replaces Machine pool-84dff-a of MachineDeployment pool: creates another one first, and deletes pool-84dff-a once that is available");

    let grow = patch(step(&world(3, CREATING, &[])));
    assert_eq!((grow.object.kind.as_str(), grow.patch), (DEPLOYMENT, json!({ "spec": { "replicas": 4 } })));
    insta::assert_snapshot!(grow.says, @"MachineDeployment pool gets one machine more, 4 instead of 3");

    let ReplacementStep::Wait(wait) = step(&world(4, CREATING, &[])) else { panic!("it waits") };
    insta::assert_snapshot!(wait, @"another machine to become available (2 others of 3 are)");
    let ReplacementStep::Wait(wait) = step(&world(4, CREATING, &[("d", "Pending")])) else { panic!("it waits") };
    insta::assert_snapshot!(wait, @"pool-84dff-d (Pending) to become available (2 others of 3 are)");

    let choose = patch(step(&world(4, CREATING, &[("d", "Running")])));
    let annotations = json!({ REPLACEMENT: READY, PRIORITY: FIRST_PRIORITY });
    assert_eq!(choose.patch, json!({ "metadata": { "annotations": annotations } }));
    insta::assert_snapshot!(choose.says, @"pool-84dff-a is next to be deleted: 3 others are available");

    let last = step(&world(4, READY, &[("d", "Running")]));
    assert!(matches!(last, ReplacementStep::Release(_)), "{last:?}");
    let release = patch(last);
    assert_eq!(release.patch, json!({ "spec": { "replicas": 3 } }));
    insta::assert_snapshot!(release.says, @"MachineDeployment pool returns to 3 machines, which deletes pool-84dff-a");

    let released = step(&world(3, READY, &[("d", "Running")]));
    assert!(matches!(&released, ReplacementStep::Wait(text) if text.contains("to delete Machine")), "{released:?}");
}

#[rstest]
#[case::creating(CREATING, json!({ REPLACEMENT: "replicas=7,available=2,others=-b+-c" }))]
#[case::chosen(READY, json!({ REPLACEMENT: "replicas=7,available=2,others=-b+-c", PRIORITY: null }))]
#[case::unreadable("soon", json!({ REPLACEMENT: "replicas=7,available=2,others=-b+-c" }))]
fn a_number_that_another_client_wrote_is_the_one_to_return_to(#[case] record: &str, #[case] annotations: Value) {
    let again = patch(step(&world(7, record, &[])));
    assert_eq!(again.patch, json!({ "metadata": { "annotations": annotations } }));
}

/// The number of machines is as before only if the added machine is removed as well.
#[rstest]
#[case::one_too_many(4, Some(3))]
#[case::as_before(3, None)]
fn a_machine_that_left_meanwhile_leaves_the_number_of_before(#[case] replicas: i32, #[case] expected: Option<i32>) {
    let marked = world(4, CREATING, &[]);
    let begun = state_of(&marked, NAME).unwrap();
    let mut gone = world(replicas, "", &[("d", "Pending")]);
    gone.machines.remove(NAME);
    let of_gone = next(&gone, NAME, Some(&begun)).unwrap();
    let annotated = json!({ "metadata": { "annotations": { REPLACEMENT: CREATING } } });
    let leaving = pool(replicas, vec![machine("pool-84dff", "a", "small", "Terminating", &annotated)]);
    for step in [of_gone, next(&leaving, NAME, None).unwrap()] {
        match expected {
            Some(replicas) => assert_eq!(patch(step).patch, json!({ "spec": { "replicas": replicas } })),
            None => assert!(matches!(step, ReplacementStep::Done(_)), "{step:?}"),
        }
    }
    assert!(next(&gone, NAME, None).is_err(), "nothing is known of a machine that another process replaced");
}

/// Each step, from the objects that its predecessor leaves: only the machine that was added is deleted.
#[test]
fn a_replacement_is_given_up_with_the_machine_that_was_added() {
    let none = next_to_stop(&world(3, "", &[]), NAME).unwrap_err();
    assert_eq!(none.message, "no replacement of Machine pool-84dff-a is under way");

    let ready = world(4, READY, &[("d", "Running")]);
    let chosen = patch(next_to_stop(&ready, NAME).unwrap());
    assert_eq!((chosen.object.name.as_str(), chosen.needs_consent), ("pool-84dff-d", true));
    assert_eq!(chosen.patch, json!({ "metadata": { "annotations": { PRIORITY: FIRST_PRIORITY } } }));
    insta::assert_snapshot!(chosen.says, @"gives the replacement of Machine pool-84dff-a up: pool-84dff-d is deleted instead, and pool-84dff-a stays");

    let kept = patch(next_to_stop(&with_first(ready, "pool-84dff-d"), NAME).unwrap());
    assert_eq!(kept.patch, json!({ "metadata": { "annotations": { REPLACEMENT: CREATING, PRIORITY: null } } }));

    let grown = with_first(world(4, CREATING, &[("d", "Running")]), "pool-84dff-d");
    let shrink = next_to_stop(&grown, NAME).unwrap();
    assert!(
        matches!(&shrink, ReplacementStep::GiveUp { added: Some(added), .. } if added == "pool-84dff-d"),
        "{shrink:?}"
    );
    let shrink = patch(shrink);
    assert_eq!((&shrink.patch, shrink.needs_consent), (&json!({ "spec": { "replicas": 3 } }), true));
    insta::assert_snapshot!(shrink.says, @"MachineDeployment pool returns to 3 machines, which deletes pool-84dff-d");

    let last = next_to_stop(&world(3, CREATING, &[]), NAME).unwrap();
    assert!(matches!(last, ReplacementStep::Last(_)), "{last:?}");
    assert_eq!(patch(last).patch, json!({ "metadata": { "annotations": { REPLACEMENT: null } } }));
}

#[test]
fn without_an_added_machine_only_the_number_returns() {
    let step = next_to_stop(&world(4, CREATING, &[]), NAME).unwrap();
    assert!(matches!(step, ReplacementStep::GiveUp { added: None, .. }), "{step:?}");
    assert_eq!(patch(step).patch, json!({ "spec": { "replicas": 3 } }));
}

/// The set deletes by priority, and a preserved machine last.
#[rstest]
#[case::an_older_one_has_a_priority("pool-84dff-b", json!({ "metadata": { "annotations": { PRIORITY: "0" } } }), "-o yaml")]
#[case::the_added_one_is_preserved(
    "pool-84dff-d",
    json!({ "status": { "currentStatus": { "preserveExpiryTime": "1971-01-01T00:00:00Z" } } }),
    "mcm machine preserve pool-84dff-d -n demo --stop"
)]
fn a_replacement_is_not_given_up_if_another_machine_would_be_deleted(
    #[case] changed: &str,
    #[case] more: Value,
    #[case] hint: &str,
) {
    for record in [CREATING, READY] {
        let mut facts = world(4, record, &[("d", "Running")]);
        let (name, machine) = machine("pool-84dff", changed.rsplit('-').next().unwrap(), "small", "Running", &more);
        facts.machines.insert(name, machine);
        let refused = next_to_stop(&facts, NAME).unwrap_err();
        assert!(refused.message.contains("before pool-84dff-d"), "{}", refused.message);
        assert!(refused.message.contains("nothing was written") && refused.hint.contains(hint), "{}", refused.hint);
    }
}

/// It continues after `--stop` ended between any two steps.
#[test]
fn a_replacement_that_was_half_given_up_continues() {
    let half = with_first(world(4, CREATING, &[("d", "Running")]), "pool-84dff-d");
    let kept = patch(step(&half));
    assert_eq!(kept.object.name, "pool-84dff-d");
    assert_eq!(kept.patch, json!({ "metadata": { "annotations": { PRIORITY: null } } }));
    let choose = patch(step(&world(4, CREATING, &[("d", "Running")])));
    let annotations = json!({ REPLACEMENT: READY, PRIORITY: FIRST_PRIORITY });
    assert_eq!(choose.patch, json!({ "metadata": { "annotations": annotations } }), "it waits for no further machine");
}

/// The machine has the first priority.
fn with_first(mut facts: NamespaceFacts, name: &str) -> NamespaceFacts {
    let machine = facts.machines.get_mut(name).unwrap();
    machine.annotations_mut().insert(PRIORITY.to_owned(), FIRST_PRIORITY.to_owned());
    facts
}

fn paused(facts: &mut NamespaceFacts) {
    facts.deployments.get_mut("pool").unwrap().spec.paused = true;
}

fn in_place(facts: &mut NamespaceFacts) {
    facts.deployments.get_mut("pool").unwrap().spec.strategy =
        serde_json::from_value(json!({ "type": "InPlaceUpdate" })).unwrap();
}

fn frozen(facts: &mut NamespaceFacts) {
    facts.sets.get_mut("pool-84dff").unwrap().labels_mut().insert(labels::FREEZE.to_owned(), "True".to_owned());
}

fn preserved(facts: &mut NamespaceFacts) {
    let until = json!({ "status": { "currentStatus": { "preserveExpiryTime": "1971-01-01T00:00:00Z" } } });
    let (name, machine) = machine("pool-84dff", "a", "small", "Running", &until);
    facts.machines.insert(name, machine);
}

fn lone(facts: &mut NamespaceFacts) {
    facts.machines.get_mut(NAME).unwrap().metadata.owner_references = None;
}

fn provided(facts: &mut NamespaceFacts) {
    let owners = json!([{ "apiVersion": "v1", "kind": "MCMMachine", "name": "m", "uid": "u", "controller": true }]);
    facts.machines.get_mut(NAME).unwrap().metadata.owner_references = serde_json::from_value(owners).unwrap();
}

fn of_pool(facts: &mut NamespaceFacts) {
    let owners = json!([{ "apiVersion": "v1", "kind": "MCMMachinePool", "name": "p", "uid": "u", "controller": true }]);
    facts.deployments.get_mut("pool").unwrap().metadata.owner_references = serde_json::from_value(owners).unwrap();
}

fn rolling(facts: &mut NamespaceFacts) {
    let (name, machine) = machine("pool-6d689", "z", "large", "Running", &json!({}));
    facts.machines.insert(name, machine);
}

#[rstest]
#[case::paused(paused, "MachineDeployment pool is paused (mcm rollout resume pool -n demo)")]
#[case::in_place(
    in_place,
    "MachineDeployment pool has the strategy InPlaceUpdate, which keeps each machine and its disks"
)]
#[case::frozen(
    frozen,
    "MachineSet pool-84dff is frozen, so it creates no machine (mcm unfreeze machineset/pool-84dff -n demo)"
)]
#[case::preserved(
    preserved,
    "Machine pool-84dff-a is preserved, so its set deletes another one before it (mcm machine preserve"
)]
#[case::lone(lone, "no MachineSet controls Machine pool-84dff-a, so none replaces it")]
#[case::provided(provided, "MCMMachine m controls Machine pool-84dff-a, so no set replaces it")]
#[case::of_pool(of_pool, "MCMMachinePool p sets the replicas of MachineDeployment pool")]
#[case::rolling(rolling, "a rollout of MachineDeployment pool is under way, which replaces machines itself")]
fn a_machine_is_not_replaced_where_no_other_one_is_created(
    #[case] change: fn(&mut NamespaceFacts),
    #[case] expected: &str,
) {
    for record in ["", CREATING] {
        let mut facts = world(3, record, &[]);
        change(&mut facts);
        let refused = refusal(&facts);
        assert!(refused.starts_with(expected), "{record}: {refused}");
    }
}

#[test]
fn a_machine_that_is_deleted_already_is_not_replaced() {
    let facts = pool(1, vec![blocked("pool-84dff", "a")]);
    assert_eq!(refusal(&facts), "Machine pool-84dff-a is being deleted (mcm why machine/pool-84dff-a -n demo)");
}
