//! The findings of a live check.

use mcm_driver::{Driver, inspection::ResourcePresence};
use rstest::rstest;
use serde_json::{Value, json};

use super::{World, class, spec_with};

async fn findings(world: &World, changes: &[(&str, Value)]) -> Vec<(String, ResourcePresence, String)> {
    let found = world.driver.inspect(&class(spec_with(changes)), &world.secret()).await.unwrap();
    found.into_iter().map(|one| (one.path, one.presence, one.text)).collect()
}

#[rstest]
#[case::zone(&[("properties.zone", json!(3))], None, None, "size Standard_D2s_v5 is not offered in zone 3 of westeurope")]
#[case::restriction(&[], Some("NotAvailableForSubscription"), None, "the subscription cannot have size Standard_D2s_v5 there: NotAvailableForSubscription")]
#[case::quota(&[], None, Some(0), "quota cores is used up: 0 of 0 cores")]
#[tokio::test]
async fn a_stock_out_is_told_before_a_vm_is_needed(
    #[case] changes: &[(&str, Value)],
    #[case] restriction: Option<&'static str>,
    #[case] quota: Option<usize>,
    #[case] expected: &str,
) {
    let world = World::new().await;
    {
        let mut arm = world.arm.lock();
        (arm.cloud.restriction, arm.cloud.quota) = (restriction, quota);
    }
    let found = findings(&world, changes).await;
    assert!(
        found.iter().any(|(_, presence, text)| *presence == ResourcePresence::Missing && text == expected),
        "{found:?}"
    );
}
