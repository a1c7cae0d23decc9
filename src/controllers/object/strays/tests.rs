use serde_json::json;

use super::*;
use mcm_api::machine::Machine;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn selector() -> Selector {
    Selector::parse(Some(&serde_json::from_value(json!({ "matchLabels": { "name": "web" } })).unwrap())).unwrap()
}

fn machine(index: usize, label: &str, owner: Option<&str>) -> Machine {
    let owners = owner
        .map(|uid| json!([{ "apiVersion": "v1", "kind": "MachineSet", "name": uid, "uid": uid, "controller": true }]));
    let meta = json!({
        "name": format!("m{index}"), "uid": format!("u{index}"), "labels": { "name": label }, "ownerReferences": owners,
    });
    serde_json::from_value(json!({ "metadata": meta, "spec": {} })).unwrap()
}

fn growth(memory: &StrayMemory, now: i64, objects: &[Machine]) -> (CreationGate, usize) {
    let find = |name: &str| objects.iter().find(|it| it.name_any() == name).cloned().map(Arc::new);
    let view = memory.view("set", &selector(), at(now), find);
    (view.growth, view.altered.len())
}

#[test]
fn an_object_belongs_to_its_owner_by_its_labels_and_its_controller() {
    let sent = machine(1, "web", Some("set"));
    let of = |stored: Machine| difference(&sent.metadata, &stored.metadata, "set", &selector());
    assert_eq!(of(machine(1, "web", Some("set"))), None);
    assert_eq!(of(machine(1, "web", None)), None, "it is adopted");
    let label = of(machine(1, "platform", Some("set")));
    assert_eq!(label.as_deref(), Some(r#"metadata.labels.name is "platform", "web" was written"#));
    let owner = of(machine(1, "web", Some("other"))).unwrap();
    assert!(owner.contains("MachineSet/other") && owner.contains("MachineSet/set"), "{owner}");
}

#[test]
fn after_an_altered_object_the_api_server_is_asked_ever_more_rarely() {
    let mut memory = StrayMemory::default();
    let stray = machine(1, "platform", Some("set"));
    memory.altered(&stray.metadata, "name is other".to_owned(), at(0));
    assert_eq!(growth(&memory, 0, &[stray]).1, 1, "it is deleted");
    let mut asked = Vec::new();
    for second in 0..600 {
        match growth(&memory, second, &[]) {
            (CreationGate::Tried { why }, 0) => {
                assert!(why.contains("name is other"), "{why}");
                memory.tried(Some("name is other".to_owned()), at(second));
                asked.push(second);
            }
            (CreationGate::Paused { until, .. }, 0) => assert!(at(second) < until),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(asked, [5, 15, 35, 75, 155, 315]);
    memory.tried(None, at(635));
    assert_eq!(growth(&memory, 635, &[]).0, CreationGate::Free, "the policy is gone");
}

#[test]
fn where_the_question_is_refused_one_object_is_created_after_each_pause() {
    let mut memory = StrayMemory::default();
    memory.altered(&machine(1, "platform", Some("set")).metadata, "x".to_owned(), at(0));
    memory.trial_refused();
    assert!(matches!(growth(&memory, 4, &[]).0, CreationGate::Paused { .. }));
    assert_eq!(growth(&memory, 5, &[]).0, CreationGate::Free);
    memory.altered(&machine(2, "platform", Some("set")).metadata, "x".to_owned(), at(5));
    assert!(matches!(growth(&memory, 14, &[]).0, CreationGate::Paused { .. }));
    assert_eq!(growth(&memory, 15, &[]).0, CreationGate::Free);
}

/// Another client changes the label of each new object a moment later.
#[test]
fn objects_that_change_hands_after_their_creation_are_replaced_ever_more_rarely() {
    let mut memory = StrayMemory::default();
    let mut objects: Vec<Machine> = Vec::new();
    for second in 0..600 {
        while growth(&memory, second, &objects).0 == CreationGate::Free && objects.len() < 100 {
            let new = machine(objects.len(), "platform", Some("set"));
            memory.created(&new.metadata, at(second));
            objects.push(new);
        }
    }
    assert!((6..=10).contains(&objects.len()), "{}", objects.len());
    let (CreationGate::Paused { why, .. }, _) = growth(&memory, 600, &objects) else { panic!() };
    assert!(why.contains("m0, m1, m2"), "{why}");
}

#[test]
fn objects_that_stay_or_are_deleted_pause_nothing() {
    let mut memory = StrayMemory::default();
    let objects: Vec<Machine> = (0..50).map(|index| machine(index, "web", Some("set"))).collect();
    objects.iter().for_each(|object| memory.created(&object.metadata, at(0)));
    assert_eq!(growth(&memory, 1, &objects).0, CreationGate::Free);
    assert_eq!(growth(&memory, 1, &[]).0, CreationGate::Free, "all were deleted");
}
