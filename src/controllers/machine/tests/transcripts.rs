//! The life of a Machine as text: every plan with its reasons, and the world after it.

use insta::assert_snapshot;
use serde_json::json;

use super::world::{World, at, pod, ready};
use crate::machine::VmCall;
use mcm_api::{labels, machine::MachinePhase};
use mcm_driver::{Code, DriverError};
use mcm_rules::{
    drain::EvictionRefusal,
    safety::trust::{TargetTrust, TrustInterruption},
};

#[test]
fn the_life_of_a_machine() {
    let mut world = World::new().can_initialize();
    world.secret.wants_token = true;
    world.run_until(|world| world.phase() == MachinePhase::Running);
    world.settle();
    world.story.push_str("--- its kubelet falls silent\n");
    world.sleep(600);
    world.set_conditions(json!([{ "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown" }]));
    world.settle();
    world.story.push_str("--- and speaks again\n");
    world.sleep(120);
    world.set_conditions(ready());
    world.settle();
    world.story.push_str("--- it is deleted\n");
    world.sleep(600);
    world.pods = vec![pod("db-0"), pod("web-1")];
    world.delete();
    world.run_until(|world| world.machine.is_none());
    assert_snapshot!(world.story);
}

#[test]
fn a_cloud_without_capacity() {
    let mut world = World::new();
    let message = "there are no VMs of this type left in this zone".to_owned();
    world.broken.insert(VmCall::Create, DriverError::new(Code::ResourceExhausted, message));
    world.run_until(|world| world.phase() == MachinePhase::Failed);
    world.settle();
    world.story.push_str("--- its set replaces it\n");
    world.delete();
    world.run_until(|world| world.machine.is_none());
    assert_snapshot!(world.story);
}

#[test]
fn credentials_that_the_cloud_refuses() {
    let mut world = World::new();
    let refused = DriverError::new(Code::Unauthenticated, "the access key is not valid".to_owned());
    world.broken.insert(VmCall::Status, refused.clone());
    world.broken.insert(VmCall::Create, refused);
    world.settle();
    world.sleep(120);
    world.settle();
    world.story.push_str("--- the Secret is corrected\n");
    world.broken.clear();
    world.memory.forget_failures();
    world.run_until(|world| world.phase() == MachinePhase::Running);
    assert_snapshot!(world.story);
}

#[test]
fn a_drain_with_a_stubborn_budget() {
    let mut world = World::running();
    world.story.clear();
    world.edit(|machine| machine.spec.configuration.drain_timeout = "3m".parse().ok());
    world.pods = vec![pod("db-0")];
    world.stubborn = Some(EvictionRefusal {
        message: "not now".to_owned(),
        budget: Some("ns/db".to_owned()),
        version: None,
        is_misconfigured: false,
        is_of_several: false,
    });
    world.delete();
    world.run_until(|world| world.machine.is_none());
    assert_snapshot!(world.story);
}

#[test]
fn a_drain_with_volumes() {
    let mut world = World::running();
    world.story.clear();
    world.attach_detach = (4, 2);
    world.add_pod_with_volumes("db-0", 100, &["data"]);
    world.add_pod_with_volumes("web-0", 0, &["shared"]);
    world.add_pod_with_volumes("web-1", 0, &["shared"]);
    world.pods.push(pod("plain"));
    world.delete();
    world.run_until(|world| world.machine.is_none());
    assert_snapshot!(world.story);
}

#[test]
fn a_target_api_server_that_is_away() {
    let mut world = World::new();
    world.boots = false;
    world.settle();
    world.story.push_str("--- the VM boots, and the API server of the target cluster does not answer\n");
    world.sleep(60);
    let since = world.now;
    world.trust = TargetTrust::Untrusted { since, reason: "its watches have been silent for 30 s".to_owned() };
    world.settle();
    world.story.push_str("--- the creation timeout passes\n");
    world.sleep(30 * 60);
    world.settle();
    world.story.push_str("--- the API server is back, and the Node has not registered yet\n");
    world.sleep(10);
    world.trust = TargetTrust::Trusted { after: Some(TrustInterruption { began: since, ended: world.now }) };
    world.settle();
    world.story.push_str("--- the Node registers\n");
    world.sleep(20);
    world.boots = true;
    world.run_until(|world| world.phase() == MachinePhase::Running);
    assert_snapshot!(world.story);
}

#[test]
fn a_preservation_from_its_annotation_to_its_end() {
    let mut world = World::running();
    world.story.clear();
    world.edit(|machine| machine.spec.configuration.machine_preserve_timeout = "1h".parse().ok());
    world.story.push_str("--- a user annotates the Node with when-failed\n");
    world.annotate_node(labels::PRESERVE, "when-failed");
    world.settle();
    world.story.push_str("--- its kubelet falls silent, and its pods know nothing of it\n");
    world.sleep(600);
    let mut daemon = pod("daemon");
    daemon.is_daemon = true;
    world.pods = vec![pod("db-0"), daemon];
    world.set_conditions(json!([{ "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown" }]));
    world.run_until(|world| world.story.contains("drained successfully"));
    world.story.push_str("--- the hour is over\n");
    world.now = world.machine().preserve_expiry().unwrap();
    world.settle();
    world.story.push_str("--- its set replaces it\n");
    world.boots = false;
    world.delete();
    world.run_until(|world| world.machine.is_none());
    assert!(world.now > at(600 + 600 + 3600));
    assert_snapshot!(world.story);
}
