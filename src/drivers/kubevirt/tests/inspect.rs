//! The findings of a live check.

use rstest::rstest;
use serde_json::{Value, json};

use super::{World, class, spec_with};
use mcm_driver::{inspection::ResourcePresence, interface::Driver};

async fn findings(world: &World, changes: Value) -> Vec<(String, ResourcePresence, String)> {
    let found = world.driver.inspect(&class(spec_with(&changes)), &world.secret()).await.unwrap();
    found.into_iter().map(|one| (one.path, one.presence, one.text)).collect()
}

/// A class that refers to an object of each kind.
fn references() -> Value {
    let claim = json!({"resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "fast"});
    json!({
        "rootVolume": {"pvc": claim},
        "additionalVolumes": [
            {"name": "a", "dataVolume": {"pvc": claim}},
            {"name": "b", "volumeSource": {"persistentVolumeClaim": {"claimName": "data"}}},
            {"name": "c", "volumeSource": {"configMap": {"name": "settings"}}},
            {"name": "d", "volumeSource": {"secret": {"secretName": "key"}}},
        ],
        "networks": [{"name": "other/net"}],
    })
}

#[tokio::test]
async fn everything_that_a_class_needs_is_looked_for() {
    let world = World::new().await;
    let found = findings(&world, references()).await;
    let texts: Vec<String> =
        found.iter().map(|(path, presence, text)| format!("{path} {presence:?}: {text}")).collect();
    let login = format!("Secret Present: namespace vms of {}/ has VirtualMachines", world.url);
    let expected = [
        login.as_str(),
        "Secret Present: the credentials have all permissions that mcm needs",
        "providerSpec Present: KubeVirt accepts a VM of the class",
        "providerSpec.region Present: there are Nodes with topology.kubernetes.io/region=region-1",
        "providerSpec.zone Present: there are Nodes with topology.kubernetes.io/zone=zone-1",
        "providerSpec.rootVolume.pvc.storageClassName Present: StorageClass fast exists",
        "providerSpec.additionalVolumes[0].dataVolume.pvc.storageClassName Present: StorageClass fast exists",
        "providerSpec.additionalVolumes[1].volumeSource Present: PersistentVolumeClaim data exists",
        "providerSpec.additionalVolumes[2].volumeSource Present: ConfigMap settings exists",
        "providerSpec.additionalVolumes[3].volumeSource Present: Secret key exists",
        "providerSpec.networks[0].name Present: NetworkAttachmentDefinition net exists",
    ];
    assert_eq!(texts, expected);
    assert_eq!((world.count(), world.secrets()), (0, 0), "nothing was created");
    world.assert_valid_requests();
}

#[rstest]
#[case("storageclasses", "there is no StorageClass fast", 2)]
#[case("persistentvolumeclaims", "there is no PersistentVolumeClaim data", 1)]
#[case("configmaps", "there is no ConfigMap settings", 1)]
#[case("secrets", "there is no Secret key", 1)]
#[case("network-attachment-definitions", "there is no NetworkAttachmentDefinition net", 1)]
#[case("nodes", "there is no Node with topology.kubernetes.io/zone=zone-1", 2)]
#[tokio::test]
async fn an_absent_object_is_named(#[case] kind: &'static str, #[case] expected: &str, #[case] count: usize) {
    let world = World::new().await;
    world.kubernetes.lock().cloud.absent.push(kind);
    let found = findings(&world, references()).await;
    let missing: Vec<_> = found.iter().filter(|(_, presence, _)| *presence == ResourcePresence::Missing).collect();
    assert!(missing.len() == count && missing.iter().any(|(_, _, text)| text == expected), "{missing:?}");
}

#[tokio::test]
async fn missing_permissions_are_named() {
    let world = World::new().await;
    world.kubernetes.lock().cloud.denied = vec!["delete virtualmachines", "patch secrets"];
    let found = findings(&world, json!({})).await;
    let expected = "the credentials may not delete virtualmachines, patch secrets";
    assert!(found.contains(&("Secret".to_owned(), ResourcePresence::Missing, expected.to_owned())), "{found:?}");
}

#[tokio::test]
async fn a_class_that_kubevirt_refuses_is_reported_with_its_reason() {
    let world = World::new().await;
    let found = findings(&world, json!({"cpu": {"cores": "two"}})).await;
    let refused = found.iter().find(|(path, _, _)| path == "providerSpec").unwrap();
    assert_eq!(refused.1, ResourcePresence::Missing);
    assert!(refused.2.contains("cores is not of type"), "{}", refused.2);
}

#[tokio::test]
async fn wrong_credentials_are_all_that_is_reported() {
    let world = World::new().await;
    let secret = world.secret_with(&json!({"token": "another-token"}));
    let found = world.driver.inspect(&class(spec_with(&json!({}))), &secret).await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].path.as_str(), found[0].presence), ("Secret", ResourcePresence::Missing));
    assert!(!found[0].text.contains("another-token"), "{}", found[0].text);
}
