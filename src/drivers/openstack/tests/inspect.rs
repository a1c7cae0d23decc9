//! The findings of a live check.

use mcm_driver::{inspection::ResourcePresence, interface::Driver};
use serde_json::{Value, json};

use super::{World, class, fake, server::Fault, spec_with};

async fn findings(world: &World, spec: Value) -> Vec<String> {
    let found = world.driver.inspect(&class(spec), &world.secret()).await.unwrap();
    found.iter().map(|one| format!("{} {:?}: {}", one.path, one.presence, one.text)).collect()
}

#[tokio::test]
async fn a_used_up_quota_is_told_before_a_server_is_needed() {
    let world = World::new().await;
    world.openstack.lock().cloud.quota = Some(0);
    let found = findings(&world, spec_with(&json!({}))).await;
    let expected = "providerSpec.spec.flavorName Missing: the project has 0 of at most 0 servers";
    assert_eq!(found.last().map(String::as_str), Some(expected));
}

#[tokio::test]
async fn what_cannot_be_looked_up_is_unknown() {
    let world = World::new().await;
    world.fail("zone.list", Fault::Error(fake::nova(403, "forbidden", "Policy doesn't allow it")), 9);
    let found = world.driver.inspect(&class(spec_with(&json!({}))), &world.secret()).await.unwrap();
    let unknown: Vec<_> = found.iter().filter(|one| one.presence == ResourcePresence::Unknown).collect();
    assert_eq!(unknown.len(), 1, "{found:?}");
    assert_eq!(unknown[0].path, "providerSpec.spec.availabilityZone");
}
