//! The life of an MCMMachine, as readable text.

use serde_json::json;

use super::world::World;

fn say(world: &mut World, text: &str) {
    world.story.push_str(&format!("-- {text}\n"));
    world.pass();
}

#[test]
fn from_creation_to_deletion() {
    let mut world = World::new();
    world.set_cluster(&json!({ "status": null }));
    say(&mut world, "core created the object");
    world.set_cluster(&json!({ "status": { "initialization": { "infrastructureProvisioned": true } } }));
    say(&mut world, "the infrastructure of the Cluster is provisioned");
    world.set_machine(&json!({ "spec": { "bootstrap": { "dataSecretName": "boot" } } }));
    say(&mut world, "the bootstrap data are there");
    world.failed("CrashLoopBackOff", "ResourceExhausted");
    say(&mut world, "the cloud is full");
    world.vm("simulated:///r/vm-1");
    say(&mut world, "the VM is there");
    world.set_cluster(&json!({ "spec": { "paused": true } }));
    world.delete();
    say(&mut world, "the Cluster is paused, and the object is deleted");
    world.set_cluster(&json!({ "spec": { "paused": false } }));
    say(&mut world, "the Cluster is unpaused");
    world.native = None;
    say(&mut world, "the MCM Machine is gone");
    insta::assert_snapshot!(world.story);
}
