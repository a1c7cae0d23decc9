//! The findings of a live check.

use mcm_driver::{inspection::ResourcePresence, interface::Driver};
use rstest::rstest;
use serde_json::{Value, json};

use super::{
    World, class, fake,
    fake::{IMAGE_ID, NETWORK, SERVER_GROUP_ID},
    server::Fault,
    spec_with, spec_with_parts,
};

async fn findings(world: &World, spec: Value) -> Vec<String> {
    let found = world.driver.inspect(&class(spec), &world.secret()).await.unwrap();
    found.iter().map(|one| format!("{} {:?}: {}", one.path, one.presence, one.text)).collect()
}

#[tokio::test]
async fn everything_that_a_class_needs_is_looked_for() {
    let world = World::new().await;
    world.openstack.lock().cloud.quota = Some(10);
    let mut spec = spec_with_parts();
    spec["spec"]["serverGroupID"] = SERVER_GROUP_ID.into();
    let expected = [
        "Secret Present: the credentials are those of user machines in project team",
        "providerSpec.spec.imageName Present: image \"gardenlinux\" exists",
        "providerSpec.spec.flavorName Present: flavor \"m1.small\" exists",
        "providerSpec.spec.availabilityZone Present: zone \"nova\" is available",
        "providerSpec.spec.keyName Present: keypair \"operator\" exists",
        "providerSpec.spec.networkID Present: network \"00000000-0000-4000-8000-0000000000b1\" exists",
        "providerSpec.spec.subnetIDs Present: subnet \"00000000-0000-4000-8000-0000000000c1\" exists",
        "providerSpec.spec.securityGroups Present: security group \"shoot-group\" exists",
        "providerSpec.spec.serverGroupID Present: server group \"00000000-0000-4000-8000-0000000000e1\" exists",
        "providerSpec.spec.rootDiskType Present: volume type \"ssd\" exists",
        "providerSpec.spec.flavorName Present: the project has 0 of at most 10 servers",
    ];
    assert_eq!(findings(&world, spec).await, expected);
    assert_eq!(world.counts(), (0, 0, 0), "nothing was created");
    world.assert_valid_requests();
}

#[rstest]
#[case("image", json!({}), "providerSpec.spec.imageName Missing: there is no image \"gardenlinux\"")]
#[case("image", json!({"imageID": IMAGE_ID}), "providerSpec.spec.imageID Missing: there is no image \"00000000-0000-4000-8000-0000000000a1\"")]
#[case("m1.small", json!({}), "providerSpec.spec.flavorName Missing: there is no flavor \"m1.small\"")]
#[case("zone", json!({}), "providerSpec.spec.availabilityZone Missing: zone \"nova\" is not available")]
#[case("zone", json!({"availabilityZone": "other"}), "providerSpec.spec.availabilityZone Missing: there is no zone \"other\"")]
#[case("keypair", json!({}), "providerSpec.spec.keyName Missing: there is no keypair \"operator\"")]
#[case("network", json!({}), "providerSpec.spec.networkID Missing: there is no network \"00000000-0000-4000-8000-0000000000b1\"")]
#[case("network", json!({"networkID": null, "networks": [{"name": NETWORK}]}), "providerSpec.spec.networks Missing: there is no network \"shoot-network\"")]
#[case("group", json!({}), "providerSpec.spec.securityGroups Missing: there is no security group \"shoot-group\"")]
#[case("type", json!({"rootDiskSize": 1, "rootDiskType": "ssd"}), "providerSpec.spec.rootDiskType Missing: there is no volume type \"ssd\"")]
#[tokio::test]
async fn an_absent_resource_is_named(#[case] absent: &'static str, #[case] changes: Value, #[case] expected: &str) {
    let world = World::new().await;
    world.openstack.lock().cloud.absent.push(absent);
    let found = findings(&world, spec_with(&changes)).await;
    let missing: Vec<_> = found.into_iter().filter(|one| one.contains("Missing")).collect();
    assert_eq!(missing, [expected]);
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

#[tokio::test]
async fn wrong_credentials_are_all_that_is_reported() {
    let world = World::new().await;
    let mut secret = world.secret();
    secret.0.insert("password".to_owned(), b"another-password".to_vec());
    let found = world.driver.inspect(&class(spec_with(&json!({}))), &secret).await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].path.as_str(), found[0].presence), ("Secret", ResourcePresence::Missing));
    assert!(!found[0].text.contains("another-password"), "{}", found[0].text);
}
