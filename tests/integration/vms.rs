//! `mcm vms`: the VMs of a namespace as its cloud lists them, with their machines and Nodes.

use std::path::Path;

use serde_json::{Value, json};
use tokio::process::Command;

use crate::support::{identity, program::mcm, world::World};

/// Exit code and standard output.
async fn vms(world: &World, kubeconfig: &Path, words: &[&str]) -> (i32, String) {
    let mut command = Command::new(mcm());
    command.args(["vms", "-n", &world.namespace, &world.cloud_flag(), "--kubeconfig"]).arg(kubeconfig).args(words);
    let output = command.output().await.unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(!said.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    (output.status.code().unwrap(), said)
}

#[tokio::test]
async fn vms_are_listed_with_their_machines_and_nodes_and_those_without_a_machine_are_marked() {
    let world = World::new("vms").await;
    let _manager = world.run(&[]).await;
    world.pool(2, json!({})).await;
    world.settled(2, "small").await;
    let machines: Vec<String> = world.scene.now().names().into_iter().collect();
    let ids = world.cloud.provider_ids().await;
    // The collector of orphans lists every 15 minutes, and deletes none that is younger than 10.
    let orphan = world.cloud.make_of(&world.namespace, "gone", &world.namespace).await;
    let double = world.cloud.make_of(&world.namespace, &machines[0], &world.namespace).await;
    let unmarked = world.cloud.make(&world.namespace, "of-others").await;
    world.cloud.make_of(&world.namespace, "theirs", "another-owner").await;

    let (code, said) = vms(&world, world.admin(), &["-o", "json"]).await;
    let answer: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((code, &answer["foreign"], &answer["notes"]), (0, &json!(1), &json!([])), "{said}");
    let all = answer["vms"].as_array().unwrap();
    let shown = |id: &Value| all.iter().find(|vm| vm["vm"] == *id).unwrap_or_else(|| panic!("{id} is missing: {said}"));
    for machine in &machines {
        let vm = shown(&json!(ids[machine][0]));
        let facts = ["machine", "node", "class", "standing", "phase"].map(|field| &vm[field]);
        assert_eq!(facts, [machine, machine, "small", "Owned", "Running"], "{vm}");
        assert!(vm["since"].is_string() && vm["owner"].is_string(), "{vm}");
    }
    for (vm, machine, standing) in
        [(&orphan, "gone", "Orphan"), (&double, machines[0].as_str(), "Double"), (&unmarked, "of-others", "Unmarked")]
    {
        let vm = shown(&vm["providerID"]);
        assert_eq!(["machine", "standing", "phase"].map(|field| &vm[field]), [machine, standing, ""], "{vm}");
    }
    assert_eq!(all.len(), 5, "{said}");

    let (code, text) = vms(&world, world.admin(), &[]).await;
    let line = |id: &Value| text.lines().find(|line| line.contains(id.as_str().unwrap())).unwrap_or_default();
    assert!(line(&orphan["providerID"]).contains("ORPHAN: no machine has it"), "{text}");
    assert!(line(&double["providerID"]).contains("DOUBLE: its machine has another VM"), "{text}");
    assert!(code == 0 && text.contains("note: 1 VM in the lists with the marker of another owner"), "{text}");
}

#[tokio::test]
async fn the_vms_of_a_class_whose_cloud_or_secret_cannot_be_read_are_unknown() {
    let world = World::new("vms-unknown").await;
    let _manager = world.run(&[]).await;
    world.pool(1, json!({})).await;
    world.settled(1, "small").await;
    let viewer = identity::viewer(&world.client, world.admin(), &world.namespace, true, world.folder()).await;
    let (code, text) = vms(&world, &viewer, &[]).await;
    assert!(code == 3 && text.contains("the VMs of class small are unknown"), "{code}: {text}");
    assert!(!text.contains("MISSING"), "{text}");

    let fault = json!({"operation": "list", "code": "Internal", "message": "no answer", "count": 1000});
    world.cloud.control(json!({"faults": [fault]})).await;
    let (code, text) = vms(&world, world.admin(), &[]).await;
    assert!(code == 3 && text.contains("the VMs of class small are unknown") && text.contains("no answer"), "{text}");
    assert!(text.contains("no VM is known"), "{text}");
    world.cloud.control(json!({})).await;
}
