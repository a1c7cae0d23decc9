//! Evidence for Nodes: Machines that name Nodes of others, takeovers, Nodes of another name.

use rstest::rstest;
use serde_json::{Value, json};

use super::world::{UID, World, at, node, pod, ready, unready};
use crate::machine::VmCall;
use mcm_api::{labels, machine::MachinePhase, node::Node};
use mcm_driver::{Code, DriverError};

const ID: &str = "cloud:///theirs";

/// A Node that this Machine's namespace has nothing to do with.
fn stranger(change: &Value) -> Node {
    let mut value = json!(node("n", ready()));
    value["spec"]["providerID"] = json!(ID);
    value["metadata"]["creationTimestamp"] = json!(at(-100));
    crate::testing::merge(&mut value, change);
    serde_json::from_value(value).unwrap()
}

fn of_another(value: &str) -> Value {
    json!({ "metadata": { "annotations": { (labels::NODE_OF): value }, "labels": { (labels::MACHINE_NAME): "m" } } })
}

/// Tries all that its author writes, in every stage of its life.
#[rstest]
fn a_machine_that_names_the_node_of_another_neither_writes_nor_drains_nor_deletes_it(
    #[values(
        json!({}),
        of_another("demo/m/uid-of-theirs"),
        json!({ "metadata": { "labels": { (labels::MACHINE_NAME): "theirs" } } }),
        json!({ "metadata": { "labels": { "node-role.kubernetes.io/control-plane": "" } } }),
        json!({ "spec": { "providerID": null } }),
    )]
    of_node: Value,
    #[values(true, false)] has_label: bool,
    #[values(true, false)] has_id: bool,
    #[values(None, Some(Code::Unavailable))] failure: Option<Code>,
) {
    let label = has_label.then_some("n");
    let id = if has_id { ID } else { "" };
    let patch = json!({ "metadata": { "labels": { (labels::NODE): label } }, "spec": { "providerID": id } });
    let mut world = World::with_machine(patch, Value::Null);
    let theirs = stranger(&of_node);
    world.boots = false;
    world.node_name = "n".to_owned();
    world.nodes.insert("n".to_owned(), theirs.clone());
    world.pods = vec![pod("theirs")];
    if let Some(code) = failure {
        world.broken.insert(VmCall::Status, DriverError::new(code, "away"));
    }
    for _ in 0..30 {
        world.pass();
        assert_ne!(world.phase(), MachinePhase::Running);
        world.sleep(120);
    }
    assert_eq!(world.nodes["n"], theirs, "{:?}", world.log);
    world.broken.clear();
    world.delete();
    world.run_until(|world| world.machine.is_none());
    assert_eq!((&world.nodes["n"], world.pods.len()), (&theirs, 1), "{:?}", world.log);
}

/// The Machine runs, and its author writes another Node into it.
#[rstest]
#[case::of_another(of_another("demo/m/uid-of-theirs"))]
#[case::without_a_machine(json!({}))]
#[case::without_id(json!({ "spec": { "providerID": null } }))]
fn a_machine_that_runs_cannot_be_given_the_node_of_another(
    #[case] of_node: Value,
    #[values(true, false)] restart: bool,
) {
    let mut world = World::running();
    let mut theirs = stranger(&of_node);
    theirs.metadata.name = Some("x".to_owned());
    world.nodes.insert("x".to_owned(), theirs.clone());
    world.edit(|machine| {
        machine.metadata.labels.get_or_insert_default().insert(labels::NODE.to_owned(), "x".to_owned());
        machine.spec.provider_id = ID.to_owned();
    });
    world.vms.clear();
    world.boots = false;
    if restart {
        world.memory = Default::default();
    }
    for _ in 0..5 {
        world.pass();
        world.sleep(60);
    }
    world.delete();
    world.run_until(|world| world.machine.is_none());
    assert_eq!(world.nodes["x"], theirs, "{:?}", world.log);
}

/// The reference leaves labels on both sides, and a status.
#[rstest]
#[case::with_id("cloud:///1")]
#[case::without_id("")]
fn a_machine_of_the_reference_is_taken_over_without_a_call_of_the_cloud(#[case] id_of_node: &str) {
    let patch = json!({ "metadata": { "labels": { (labels::NODE): "n" } }, "spec": { "providerID": "cloud:///1" } });
    let status = json!({ "currentStatus": { "phase": "Running" }, "conditions": ready() });
    let mut world = World::with_machine(patch, status);
    let mut joined = node("n", ready());
    joined.spec.provider_id = id_of_node.to_owned();
    joined.labels_mut().insert(labels::MACHINE_NAME, "m");
    world.nodes.insert("n".to_owned(), joined);
    world.settle();
    assert_eq!(world.log, ["PatchNode"]);
    assert_eq!(*world.nodes["n"].annotations().get(labels::NODE_OF).unwrap(), format!("ns/m/{UID}"));
    world.memory = Default::default();
    world.settle();
    assert_eq!((world.phase(), world.log.len()), (MachinePhase::Running, 1), "the annotation is the evidence");
}

/// A VM that was created before a restart, and joins after it.
#[test]
fn after_a_restart_the_driver_is_asked_once_whose_node_it_is() {
    let mut world = World::new();
    world.boots = false;
    world.run_until(|world| world.phase() == MachinePhase::Pending);
    world.memory = Default::default();
    world.log.clear();
    world.boots = true;
    world.run_until(|world| world.phase() == MachinePhase::Running);
    world.settle();
    assert_eq!(world.log.iter().filter(|step| *step == "GetVmStatus").count(), 1, "{:?}", world.log);
    assert!(world.nodes["n"].annotations().contains_key(labels::NODE_OF));
}

/// An adopted Machine whose Node has no provider ID: nothing is lost, and a user can say whose it is.
#[test]
fn without_evidence_nothing_happens_to_vm_and_node_until_a_user_gives_it() {
    let patch = json!({ "metadata": { "labels": { (labels::NODE): "n" } }, "spec": { "providerID": "cloud:///1" } });
    let mut world = World::with_machine(patch, Value::Null);
    let old = stranger(&json!({ "spec": { "providerID": null } }));
    world.nodes.insert("n".to_owned(), old.clone());
    world.vms.insert("cloud:///1".to_owned(), ("n".to_owned(), at(-100)));
    for _ in 0..10 {
        world.pass();
        world.sleep(3600);
    }
    assert_eq!((world.vms.len(), &world.nodes["n"], world.phase()), (1, &old, MachinePhase::Pending));
    let text = format!("kubectl annotate node n {}=ns/m/{UID} --overwrite", labels::NODE_OF);
    assert!(world.waits.iter().any(|wait| wait.contains(&text)), "{:?}", world.waits);
    world.annotate_node(labels::NODE_OF, &format!("ns/m/{UID}"));
    world.pass();
    assert_eq!(world.phase(), MachinePhase::Running);
}

/// Windows cuts names, and some clouds append a domain.
#[rstest]
#[case::cut("winpool-long-na")]
#[case::with_domain("winpool-long-name.novalocal")]
fn a_vm_that_joins_under_another_name_keeps_its_machine(#[case] name: &str, #[values(true, false)] restart: bool) {
    let mut world = World::new();
    (world.boots, world.node_name) = (false, "winpool-long-name".to_owned());
    world.run_until(|world| world.phase() == MachinePhase::Pending);
    let mut joined = node(name, ready());
    joined.spec.provider_id = world.machine().spec.provider_id.clone();
    world.nodes.insert(name.to_owned(), joined);
    if restart {
        world.memory = Default::default();
    }
    world.run_until(|world| world.phase() == MachinePhase::Running);
    world.settle();
    assert_eq!(world.machine().node_name(), Some(name));
    assert!(
        world
            .story
            .contains(&format!("Node {name} has the VM of this machine, and another name than winpool-long-name"))
    );
    assert!(world.events.contains(&"NodeRenamed".to_owned()) && world.births == 1);
    world.delete();
    world.run_until(|world| world.machine.is_none());
    assert!(world.nodes.is_empty(), "no Node is left");
}

/// The old object may be left, not ready, or removed by the cloud controller manager.
#[rstest]
#[case::left(true)]
#[case::removed(false)]
fn a_node_that_its_cloud_renames_does_not_cost_the_vm(#[case] is_left: bool) {
    let mut world = World::running();
    world.boots = false;
    let mut renamed = node("n.new.domain", ready());
    renamed.spec.provider_id = world.machine().spec.provider_id.clone();
    world.nodes.insert("n.new.domain".to_owned(), renamed);
    if is_left {
        world.nodes.get_mut("n").unwrap().status.conditions = serde_json::from_value(unready()).unwrap();
    } else {
        world.nodes.remove("n");
    }
    for _ in 0..20 {
        world.pass();
        world.sleep(60);
    }
    assert_eq!((world.phase(), world.machine().node_name()), (MachinePhase::Running, Some("n.new.domain")));
    world.delete();
    world.run_until(|world| world.machine.is_none());
    assert!(world.nodes.is_empty(), "{:?}", world.nodes.keys());
}

/// A Node of another Machine with a similar ID, or one that another manager has.
#[test]
fn a_node_with_the_id_of_the_vm_is_not_taken_from_another_namespace() {
    let mut world = World::new();
    world.boots = false;
    world.pass();
    let mut theirs = stranger(&of_another("demo/x/u"));
    theirs.metadata.name = Some("x".to_owned());
    theirs.spec.provider_id = world.machine().spec.provider_id.clone();
    world.nodes.insert("x".to_owned(), theirs.clone());
    world.settle();
    assert_eq!((world.machine().node_name(), &world.nodes["x"]), (Some("n"), &theirs));
    assert!(
        world.waits.iter().any(|wait| wait.contains("Node x has the provider ID of this machine")),
        "{:?}",
        world.waits
    );
}

fn with_conditions(count: usize, length: usize, status: &str) -> Value {
    let mut all: Vec<Value> = (0..count)
        .map(|number| json!({ "type": format!("kubelet.example/c-{number}"), "status": "False", "message": "x".repeat(length) }))
        .collect();
    all[0]["status"] = json!(status);
    all.push(json!({ "type": "DiskPressure", "status": "False", "message": "y".repeat(length) }));
    all.push(json!({ "type": "Ready", "status": "True" }));
    json!(all)
}

#[rstest]
#[case::many(4_000, 300)]
#[case::long(2, 900_000)]
#[case::other_texts(19, 1_024)]
fn conditions_of_a_node_are_stored_in_small_number_and_size_and_rarely(#[case] count: usize, #[case] length: usize) {
    let mut world = World::running();
    for flip in 0..100 {
        world.set_conditions(with_conditions(count, length, if flip % 2 == 0 { "True" } else { "False" }));
        world.pass();
        if flip % 10 == 9 {
            world.sleep(1);
        }
    }
    assert!(world.machine_writes <= 2, "{}", world.machine_writes);
    let size = json!(world.machine()).to_string().len();
    assert!(size < 20 << 10, "{size}");
    let stored: Vec<String> = world.status().conditions.into_iter().map(|it| it.type_.to_string()).collect();
    assert!(stored.contains(&"Ready".to_owned()) && stored.contains(&"DiskPressure".to_owned()), "{stored:?}");
    world.sleep(10);
    world.pass();
    let first = world.status().conditions.into_iter().find(|it| it.type_ == "kubelet.example/c-0");
    assert_eq!(first.map(|it| it.status), Some("False".into()), "the last state is stored in the end");
}

/// A kubelet writes the condition by which the Machine's manager shows a hold.
#[test]
fn conditions_that_only_machines_have_are_not_copied_from_a_node() {
    let mut world = World::running();
    world.set_conditions(json!([{ "type": "Ready", "status": "True" }, { "type": "Paused", "status": "True" }]));
    world.sleep(60);
    world.pass();
    assert!(world.status().conditions.iter().all(|it| it.type_ != "Paused"));
}

#[rstest]
#[case::detached(Some("pv-1"), false)]
#[case::never_detached(None, true)]
fn volumes_of_a_node_whose_object_is_gone_are_awaited(#[case] detached: Option<&str>, #[case] is_late: bool) {
    let mut world = World::running();
    world.boots = false;
    world.nodes.clear();
    world.volume_attachments = Some(["pv-1".into()].into());
    world.delete();
    world.pass();
    assert_eq!(world.vms.len(), 1, "{:?}", world.log);
    assert!(world.waits.iter().any(|wait| wait.starts_with("volumes pv-1")), "{:?}", world.waits);
    let began = world.now;
    if let Some(name) = detached {
        world.volume_attachments.as_mut().unwrap().remove(name);
    }
    world.run_until(|world| world.machine.is_none());
    assert_eq!(world.now.duration_since(began).as_secs() >= 60, is_late, "{:?}", world.story);
}
