//! The findings of a live check.

use mcm_driver::{inspection::ResourcePresence, interface::Driver};
use rstest::rstest;
use serde_json::{Value, json};

use super::{
    World, class,
    fake::{SUBNET, ZONE},
    spec_with,
};

async fn findings(world: &World, changes: Value) -> Vec<(String, ResourcePresence, String)> {
    let found = world.driver.inspect(&class(spec_with(&changes)), &world.secret()).await.unwrap();
    found.into_iter().map(|one| (one.path, one.presence, one.text)).collect()
}

#[rstest]
#[case::small_disk(json!({"bootDiskSpec": {"autoDelete": true, "size": 4_194_304, "imageID": "fd8image"}}), "image fd8image needs a disk of 10737418240 bytes")]
#[case::other_zone(json!({"zoneID": "ru-central1-d"}), "disk type network-ssd is only in ru-central1-a, ru-central1-b")]
#[case::other_zone(json!({"zoneID": "ru-central1-d"}), "subnet e9bsubnet is in zone ru-central1-a")]
#[tokio::test]
async fn resources_that_do_not_fit_each_other_are_told(#[case] changes: Value, #[case] expected: &str) {
    let world = World::new().await;
    let found = findings(&world, changes).await;
    let is_told = |(_, presence, text): &(String, ResourcePresence, String)| {
        *presence == ResourcePresence::Missing && text.contains(expected)
    };
    assert!(found.iter().any(is_told), "{found:?} in {ZONE}");
}

#[tokio::test]
async fn used_up_addresses_are_told_before_a_vm_needs_one() {
    let world = World::new().await;
    let interface = json!({"subnetID": SUBNET, "assignPublicIPAddress": true, "publicIPAddresses": ["198.51.100.1"]});
    let found = findings(&world, json!({"networkInterfaceSpecs": [interface]})).await;
    let expected = "0 of 1 addresses are free, 0 are in the folder";
    assert_eq!(
        found.last().map(|(_, presence, text)| (*presence, text.as_str())),
        Some((ResourcePresence::Missing, expected))
    );
}
