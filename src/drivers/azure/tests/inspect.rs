//! The findings of a live check.

use mcm_driver::{Driver, inspection::ResourcePresence};
use rstest::rstest;
use serde_json::{Value, json};

use super::{World, class, fake::URN, spec_with};

async fn findings(world: &World, changes: &[(&str, Value)]) -> Vec<(String, ResourcePresence, String)> {
    let found = world.driver.inspect(&class(spec_with(changes)), &world.secret()).await.unwrap();
    found.into_iter().map(|one| (one.path, one.presence, one.text)).collect()
}

fn marketplace() -> (&'static str, Value) {
    ("properties.storageProfile.imageReference", json!({"urn": URN}))
}

#[tokio::test]
async fn everything_that_a_class_needs_is_looked_for() {
    let world = World::new().await;
    let found = findings(&world, &[marketplace()]).await;
    let texts: Vec<String> =
        found.iter().map(|(path, presence, text)| format!("{path} {presence:?}: {text}")).collect();
    let expected = [
        "Secret Present: the credentials are those of application 33333333-0000-4000-8000-000000000003",
        "providerSpec.resourceGroup Present: resource group shoot--a--b exists",
        "providerSpec.subnetInfo Present: subnet nodes of vnet: 10.250.0.0/16",
        "providerSpec.properties.storageProfile.imageReference Present: the image exists; the first VM accepts the terms of plan greatest",
        "providerSpec.properties.hardwareProfile.vmSize Present: size Standard_D2s_v5 is offered in westeurope",
        "providerSpec.properties.hardwareProfile.vmSize Present: the quotas have room for 2 more cores",
    ];
    assert_eq!(texts, expected);
    assert_eq!(world.counts(), (0, 0, 0), "nothing was created");
    assert_eq!(world.calls("terms.put"), 0, "and no terms were accepted");
    world.assert_valid_requests();
}

#[rstest]
#[case("subnet", "providerSpec.subnetInfo", "there is no subnet nodes in virtual network vnet")]
#[case("image", "providerSpec.properties.storageProfile.imageReference", "there is no such image in westeurope")]
#[case("size", "providerSpec.properties.hardwareProfile.vmSize", "there is no size Standard_D2s_v5 in westeurope")]
#[tokio::test]
async fn an_absent_resource_is_named(#[case] absent: &'static str, #[case] path: &str, #[case] text: &str) {
    let world = World::new().await;
    world.arm.lock().cloud.absent.push(absent);
    let found = findings(&world, &[marketplace()]).await;
    let missing: Vec<_> = found.into_iter().filter(|(_, presence, _)| *presence == ResourcePresence::Missing).collect();
    assert_eq!(missing, [(path.to_owned(), ResourcePresence::Missing, text.to_owned())]);
}

#[tokio::test]
async fn an_absent_resource_group_is_named() {
    let world = World::new().await;
    world.arm.lock().cloud.absent.push("group");
    let found = findings(&world, &[]).await;
    let expected = (
        "providerSpec.resourceGroup".to_owned(),
        ResourcePresence::Missing,
        "there is no resource group shoot--a--b".to_owned(),
    );
    assert!(found.contains(&expected), "{found:?}");
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

#[tokio::test]
async fn wrong_credentials_are_all_that_is_reported() {
    let world = World::new().await;
    let mut secret = world.secret();
    secret.0.insert("clientSecret".to_owned(), b"another-secret".to_vec());
    let found = world.driver.inspect(&class(spec_with(&[])), &secret).await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].path.as_str(), found[0].presence), ("Secret", ResourcePresence::Missing));
    assert!(!found[0].text.contains("another-secret"), "{}", found[0].text);
}
