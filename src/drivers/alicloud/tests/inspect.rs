//! The findings of a live check.

use mcm_driver::{Driver, inspection::ResourcePresence};
use serde_json::{Value, json};

use super::{World, class, fake::Ecs, server::Fault, spec_with};

fn everything() -> Value {
    json!({
        "keyPairName": "operators", "systemDisk": {"category": "cloud_essd", "size": 20},
        "dataDisks": [{"category": "cloud_efficiency", "size": 20}],
    })
}

async fn findings(world: &World, changes: &Value) -> Vec<(String, ResourcePresence, String)> {
    let found = world.driver.inspect(&class(spec_with(changes)), &world.secret()).await.unwrap();
    found.into_iter().map(|one| (one.path, one.presence, one.text)).collect()
}

async fn missing(world: &World, changes: &Value) -> Vec<String> {
    let found = findings(world, changes).await.into_iter();
    let missing = found.filter(|(_, presence, _)| *presence == ResourcePresence::Missing);
    missing.map(|(path, _, text)| format!("{path}: {text}")).collect()
}

#[tokio::test]
async fn resources_that_do_not_fit_each_other_are_named() {
    let world = World::new().await;
    {
        let mut ecs = world.ecs.lock();
        ecs.cloud.absent = vec!["offer", "vpc"];
        ecs.cloud.addresses = 0;
    }
    let changes = json!({"zoneID": null, "systemDisk": {"size": 10, "category": "cloud_ssd"}});
    let expected = [
        "providerSpec.imageID: image m-2zeubuntu2404 has 20 GiB, and the system disk only 10 GiB",
        "providerSpec.instanceType: instance type ecs.g7.large is not offered in zone cn-beijing-a",
        "providerSpec.systemDisk.category: disk category cloud_ssd is not offered in zone cn-beijing-a",
        "providerSpec.vSwitchID: vSwitch vsw-2zeshoot has no address left",
        "providerSpec.securityGroupID: security group sg-2zeshoot is in vpc-other, and the vSwitch in vpc-2zeshoot",
    ];
    assert_eq!(missing(&world, &changes).await, expected);
    let elsewhere = missing(&world, &json!({"zoneID": "cn-beijing-b"})).await;
    assert!(elsewhere.contains(&"providerSpec.zoneID: there is no zoneID cn-beijing-b".to_owned()), "{elsewhere:?}");
    assert!(elsewhere.contains(&"providerSpec.vSwitchID: vSwitch vsw-2zeshoot is in zone cn-beijing-a".to_owned()));
}

#[tokio::test]
async fn a_permission_that_is_missing_leaves_a_resource_unknown() {
    let world = World::new().await;
    let denied = Ecs::error(403, "Forbidden.RAM", "User not authorized to operate on the specified resource");
    for action in ["DescribeInstances", "DescribeImages", "DescribeZones", "DescribeVSwitches"] {
        world.fail(action, Fault::Error(denied.clone()), 9);
    }
    let found = findings(&world, &everything()).await;
    let unknown: Vec<&str> = found
        .iter()
        .filter(|(_, presence, _)| *presence == ResourcePresence::Unknown)
        .map(|(path, ..)| path.as_str())
        .collect();
    assert_eq!(unknown, ["Secret", "providerSpec.imageID", "providerSpec.zoneID", "providerSpec.vSwitchID"]);
    assert!(found.iter().all(|(_, presence, _)| *presence != ResourcePresence::Missing), "{found:?}");
}
