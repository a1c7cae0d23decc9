//! The findings of a live check.

use mcm_driver::{inspection::ResourcePresence, interface::Driver};
use rstest::rstest;
use serde_json::{Value, json};

use super::{
    World, class,
    fake::{SUBNET, ZONE},
    secret, spec, spec_with,
};

async fn findings(world: &World, changes: Value) -> Vec<(String, ResourcePresence, String)> {
    let found = world.driver.inspect(&class(spec_with(&changes)), &world.secret()).await.unwrap();
    found.into_iter().map(|one| (one.path, one.presence, one.text)).collect()
}

#[tokio::test]
async fn everything_that_a_class_needs_is_looked_for() {
    let world = World::new().await;
    world.yandex.lock().cloud.addresses = vec![("198.51.100.1".to_owned(), true), ("198.51.100.2".to_owned(), false)];
    let addresses = ["198.51.100.1", "198.51.100.2", "198.51.100.3"];
    let interface = json!({"subnetID": SUBNET, "assignPublicIPAddress": true, "publicIPAddresses": addresses});
    let found = findings(&world, json!({"networkInterfaceSpecs": [interface]})).await;
    let texts: Vec<String> =
        found.iter().map(|(path, presence, text)| format!("{path} {presence:?}: {text}")).collect();
    let expected = [
        "Secret Present: service account ajeaccount sees folder team",
        "providerSpec.zoneID Present: zone ru-central1-a is up",
        "providerSpec.bootDiskSpec.imageID Present: image fd8image (ubuntu-2404) is ready",
        "providerSpec.bootDiskSpec.typeID Present: disk type network-ssd is in ru-central1-a",
        "providerSpec.networkInterfaceSpecs[0].subnetID Present: subnet e9bsubnet has 10.0.0.0/16",
        "providerSpec.networkInterfaceSpecs[0].publicIPAddresses Present: 1 of 3 addresses are free, 2 are in the folder",
    ];
    assert_eq!(texts, expected);
    assert_eq!(world.count(), 0, "nothing was created");
    world.assert_valid_requests();
}

#[rstest]
#[case("zone", "providerSpec.zoneID", "there is no zone ru-central1-a")]
#[case("image", "providerSpec.bootDiskSpec.imageID", "there is no image fd8image")]
#[case("disk type", "providerSpec.bootDiskSpec.typeID", "there is no disk type network-ssd")]
#[case("subnet", "providerSpec.networkInterfaceSpecs[0].subnetID", "there is no subnet e9bsubnet")]
#[case("folder", "Secret", "there is no folder b1gfolder")]
#[tokio::test]
async fn an_absent_resource_is_named(#[case] kind: &'static str, #[case] field: &str, #[case] expected: &str) {
    let world = World::new().await;
    world.yandex.lock().cloud.absent.push(kind);
    let found = findings(&world, json!({})).await;
    let missing: Vec<_> = found.into_iter().filter(|(_, presence, _)| *presence == ResourcePresence::Missing).collect();
    assert_eq!(missing, [(field.to_owned(), ResourcePresence::Missing, expected.to_owned())]);
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

#[tokio::test]
async fn wrong_credentials_are_all_that_is_reported() {
    let world = World::new().await;
    let key = String::from_utf8(world.secret().0["serviceAccountJSON"].clone()).unwrap().replace("ajekey", "ajeother");
    let secret = secret(&[("endpointURL", &world.url), ("serviceAccountJSON", &key)]);
    let found = world.driver.inspect(&class(spec()), &secret).await.unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].path.as_str(), found[0].presence), ("Secret", ResourcePresence::Missing));
}
