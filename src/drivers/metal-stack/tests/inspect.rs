//! The findings of a live check.

use rstest::rstest;
use serde_json::{Value, json};

use super::{World, class, spec, spec_with};
use mcm_driver::{inspection::ResourcePresence, interface::Driver};

async fn findings(world: &World, changes: Value) -> Vec<(String, ResourcePresence, String)> {
    let found = world.driver.inspect(&class(spec_with(&changes)), &world.secret()).await.unwrap();
    found.into_iter().map(|one| (one.path, one.presence, one.text)).collect()
}

#[tokio::test]
async fn everything_that_a_class_needs_is_looked_for() {
    let world = World::new().await;
    let found = findings(&world, json!({})).await;
    let texts: Vec<String> =
        found.iter().map(|(path, presence, text)| format!("{path} {presence:?}: {text}")).collect();
    let expected = [
        "Secret Present: the credentials are those of metal-admin@metal-stack.io",
        "providerSpec.partition Present: partition fra-equ01 exists",
        "providerSpec.size Present: size c1-xlarge-x86 exists",
        "providerSpec.image Present: ubuntu-24.04.20261101",
        "providerSpec.project Present: project team exists",
        "providerSpec.network Present: 10.0.0.0/22",
        "providerSpec.size Present: 20 machines of size c1-xlarge-x86 are free in fra-equ01",
    ];
    assert_eq!(texts, expected);
    assert_eq!(world.count(), 0, "nothing was allocated");
    world.assert_valid_requests();
}

#[rstest]
#[case("partition")]
#[case("size")]
#[case("image")]
#[case("project")]
#[case("network")]
#[tokio::test]
async fn an_absent_resource_is_named(#[case] field: &'static str) {
    let world = World::new().await;
    world.metal.lock().cloud.absent.push(field);
    let missing: Vec<_> = findings(&world, json!({}))
        .await
        .into_iter()
        .filter(|(_, presence, _)| *presence == ResourcePresence::Missing)
        .collect();
    assert_eq!(missing.len(), 1, "{missing:?}");
    let expected = format!("there is no {field} {}", spec()[field].as_str().unwrap());
    assert_eq!(
        (missing[0].0.as_str(), missing[0].2.as_str()),
        (format!("providerSpec.{field}").as_str(), expected.as_str())
    );
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

#[tokio::test]
async fn wrong_credentials_are_all_that_is_reported() {
    let world = World::new().await;
    let mut secret = world.secret();
    secret.0.insert("metalAPIHMac".to_owned(), b"another-key".to_vec());
    let found = world.driver.inspect(&class(spec()), &secret).await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].path.as_str(), found[0].presence), ("Secret", ResourcePresence::Missing));
    assert!(!found[0].text.contains("another-key"), "{}", found[0].text);
}
