//! The findings of a live check.

use serde_json::{Value, json};

use super::{World, class, spec_with};
use mcm_driver::{inspection::ResourcePresence, interface::Driver};

async fn findings(world: &World, changes: Value) -> Vec<(String, ResourcePresence, String)> {
    let found = world.driver.inspect(&class(spec_with(&changes)), &world.secret()).await.unwrap();
    found.into_iter().map(|one| (one.path, one.presence, one.text)).collect()
}

#[tokio::test]
async fn a_stock_out_is_told_before_a_machine_is_needed() {
    let world = World::with(0).await;
    let found = findings(&world, json!({})).await;
    let expected = "no machine of size c1-xlarge-x86 is free in fra-equ01";
    assert_eq!(
        found.last().map(|(_, presence, text)| (*presence, text.as_str())),
        Some((ResourcePresence::Missing, expected))
    );
}
