//! The life of an MCMMachinePool, as readable text.

use serde_json::json;

use super::world::World;
use crate::testing::world::deleted;
use mcm_api::patch;

fn say(world: &mut World, text: &str) {
    world.story.push_str(&format!("-- {text}\n"));
    world.pass();
}

#[test]
fn from_creation_to_deletion() {
    let mut world = World::new();
    world.nodes_unknown = Some("Secret ns/c-kubeconfig does not exist".to_owned());
    say(&mut world, "core took the object");
    world.nodes_unknown = None;
    say(&mut world, "the workload cluster is connected");
    world.catch_up();
    say(&mut world, "the MCM controllers have made the machines");
    world.set_pool(&json!({ "spec": { "replicas": 2 } }));
    say(&mut world, "core wants fewer machines");
    patch::apply(world.natives.get_mut("p-2").unwrap(), &deleted());
    say(&mut world, "a machine is being deleted");
    world.catch_up();
    say(&mut world, "it is gone");
    world.set_template(&json!({ "version": "v1.34.0" }));
    say(&mut world, "core wants another version");
    world.catch_up();
    say(&mut world, "the machines are replaced");
    world.set_cluster(&json!({ "spec": { "paused": true } }));
    world.delete();
    say(&mut world, "the Cluster is paused, and the object is deleted");
    world.set_cluster(&json!({ "spec": { "paused": false } }));
    say(&mut world, "the Cluster is unpaused");
    world.deployments.clear();
    world.natives.clear();
    say(&mut world, "the MCM objects are gone");
    insta::assert_snapshot!(world.story);
}
