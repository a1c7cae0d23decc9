//! The findings of a live check.

use serde_json::{Value, json};

use super::{World, class, spec_with};
use mcm_driver::{inspection::ResourcePresence, interface::Driver};

async fn findings(world: &World, changes: Value) -> Vec<(String, ResourcePresence, String)> {
    let found = world.driver.inspect(&class(spec_with(&changes)), &world.secret()).await.unwrap();
    found.into_iter().map(|one| (one.path, one.presence, one.text)).collect()
}

/// A class that refers to an object of each kind.
fn references() -> Value {
    let claim = json!({"resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "fast"});
    json!({
        "rootVolume": {"pvc": claim},
        "additionalVolumes": [
            {"name": "a", "dataVolume": {"pvc": claim}},
            {"name": "b", "volumeSource": {"persistentVolumeClaim": {"claimName": "data"}}},
            {"name": "c", "volumeSource": {"configMap": {"name": "settings"}}},
            {"name": "d", "volumeSource": {"secret": {"secretName": "key"}}},
        ],
        "networks": [{"name": "other/net"}],
    })
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
