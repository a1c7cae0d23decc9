//! A native manager beside the provider.

use serde_json::json;

use super::world::World;
use crate::object::gate::ManagerObstacle;

/// T26: a pool makes and changes nothing beside a Go MCM, which would take its machines for its own.
#[test]
fn t26_nothing_is_done_beside_a_native_manager() {
    let mut world = World::running();
    world.obstacle = Some(ManagerObstacle { on: "a Lease to expire".to_owned(), is_certain: true });
    world.set_pool(&json!({ "spec": { "replicas": 9 } }));
    assert_eq!(world.pass(), ["a Lease to expire"]);
    assert_eq!((world.condition("Ready").as_str(), world.log.len()), ("False MachineControllerManagerActive", 1));
    assert_eq!(world.deployments["p"]["spec"]["replicas"], 3);
    world.delete();
    world.pass();
    assert!(world.deployments["p"]["metadata"]["deletionTimestamp"].is_null());
    world.obstacle = None;
    world.pass();
    assert!(world.deployments["p"]["metadata"]["deletionTimestamp"].is_string());
}

/// T26: a deployment that is only shown may be that of the native manager.
#[test]
fn t26_a_deployment_of_a_native_manager_can_be_shown() {
    let mut world = World::running();
    world.obstacle = Some(ManagerObstacle { on: "a Lease to expire".to_owned(), is_certain: true });
    world.set_object(&json!({ "spec": { "machineClassRef": null, "machineDeploymentRef": { "name": "p" } } }));
    world.set_pool(&json!({ "metadata": { "annotations": { "cluster.x-k8s.io/replicas-managed-by": "mcm" } } }));
    world.pass();
    assert_eq!(world.condition("Ready"), "True Provisioned");
}
