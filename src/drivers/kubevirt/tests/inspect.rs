//! The findings of a live check.

use serde_json::{Value, json};

use super::{World, class, spec_with};
use mcm_driver::{inspection::ResourcePresence, interface::Driver};

async fn findings(world: &World, changes: Value) -> Vec<(String, ResourcePresence, String)> {
    let found = world.driver.inspect(&class(spec_with(&changes)), &world.secret()).await.unwrap();
    found.into_iter().map(|one| (one.path, one.presence, one.text)).collect()
}

#[tokio::test]
async fn missing_permissions_are_named() {
    let world = World::new().await;
    world.kubernetes.lock().cloud.denied = vec!["delete virtualmachines", "patch secrets"];
    let found = findings(&world, json!({})).await;
    let expected = "the credentials may not delete virtualmachines, patch secrets";
    assert!(found.contains(&("Secret".to_owned(), ResourcePresence::Missing, expected.to_owned())), "{found:?}");
}

#[tokio::test]
async fn a_class_that_kubevirt_refuses_is_reported_with_its_reason() {
    let world = World::new().await;
    let found = findings(&world, json!({"cpu": {"cores": "two"}})).await;
    let refused = found.iter().find(|(path, _, _)| path == "providerSpec").unwrap();
    assert_eq!(refused.1, ResourcePresence::Missing);
    assert!(refused.2.contains("cores is not of type"), "{}", refused.2);
}
