//! The findings of a live check.

use mcm_driver::{inspection::ResourcePresence, interface::Driver};
use rstest::rstest;
use serde_json::{Value, json};

use super::{World, class, spec_with};

async fn findings(world: &World, changes: Value) -> Vec<(String, ResourcePresence, String)> {
    let found = world.driver.inspect(&class(spec_with(&changes)), &world.secret()).await.unwrap();
    found.into_iter().map(|one| (one.path, one.presence, one.text)).collect()
}

#[tokio::test]
async fn everything_that_a_class_needs_is_looked_for() {
    let world = World::new().await;
    let changes = json!({"hostSystem": "DC0_H0", "computeCluster": "DC0_C0", "datastoreCluster": "DC0_POD0"});
    let found = findings(&world, changes).await;
    let paths: Vec<&str> = found.iter().map(|(path, ..)| path.as_str()).collect();
    let fields = [
        "folder",
        "templateVM",
        "datastore",
        "datastoreCluster",
        "computeCluster",
        "resourcePool",
        "hostSystem",
        "network",
    ];
    let expected: Vec<String> =
        ["Secret".to_owned()].into_iter().chain(fields.map(|field| format!("providerSpec.{field}"))).collect();
    assert_eq!(paths, expected);
    assert!(found.iter().all(|(_, presence, _)| *presence == ResourcePresence::Present), "{found:?}");
    assert!(found[0].2.contains("administrator@vsphere.local"), "{found:?}");
    assert_eq!(world.count(), 0, "nothing was created");
}

#[rstest]
#[case("datacenter", json!("DC9"), "there is no datacenter DC9")]
#[case("folder", json!("none"), "there is no folder none in datacenter DC0")]
#[case("templateVM", json!("none"), "there is no templateVM none in datacenter DC0")]
#[case("datastore", json!("none"), "there is no datastore none in datacenter DC0")]
#[case("resourcePool", json!("none"), "there is no resourcePool none in datacenter DC0")]
#[case("network", json!("none"), "there is no network none in datacenter DC0")]
#[tokio::test]
async fn an_absent_object_is_named(#[case] field: &str, #[case] value: Value, #[case] expected: &str) {
    let world = World::new().await;
    let found = findings(&world, json!({field: value})).await;
    let missing: Vec<_> = found.iter().filter(|(_, presence, _)| *presence != ResourcePresence::Present).collect();
    assert!(!missing.is_empty());
    assert!(
        missing.iter().any(|(_, presence, text)| *presence == ResourcePresence::Missing && text == expected),
        "{missing:?}"
    );
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

#[tokio::test]
async fn wrong_credentials_are_all_that_is_reported() {
    let world = World::new().await;
    let mut secret = world.secret();
    secret.0.insert("vspherePassword".to_owned(), b"another-password".to_vec());
    let found = world.driver.inspect(&class(spec_with(&json!({}))), &secret).await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].path.as_str(), found[0].presence), ("Secret", ResourcePresence::Missing));
    assert!(!found[0].text.contains("another-password"), "{}", found[0].text);
}
