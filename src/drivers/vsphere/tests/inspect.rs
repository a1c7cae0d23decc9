//! The findings of a live check.

use mcm_driver::{inspection::ResourcePresence, interface::Driver};
use rstest::rstest;
use serde_json::{Value, json};

use super::{World, class, spec_with};

async fn findings(world: &World, changes: Value) -> Vec<(String, ResourcePresence, String)> {
    let found = world.driver.inspect(&class(spec_with(&changes)), &world.secret()).await.unwrap();
    found.into_iter().map(|one| (one.path, one.presence, one.text)).collect()
}

#[rstest]
#[case(json!({"systemDisk": {"size": 1}}), "cannot be made smaller")]
#[case(json!({"customization": "none"}), "there is no customization none")]
#[tokio::test]
async fn objects_that_do_not_fit_each_other_are_reported(#[case] changes: Value, #[case] expected: &str) {
    let world = World::new().await;
    let found = findings(&world, changes).await;
    let missing: Vec<_> = found.iter().filter(|(_, presence, _)| *presence == ResourcePresence::Missing).collect();
    assert!(missing.len() == 1 && missing[0].2.contains(expected), "{missing:?}");
}
