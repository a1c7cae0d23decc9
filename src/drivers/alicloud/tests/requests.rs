//! Recorded requests.

use std::collections::BTreeMap;

use mcm_driver::{Code, Driver};
use rstest::rstest;
use serde_json::{Value, json};

use super::{CLUSTER, ROLE, World, code, fake::pairs, spec_with, with_id};

/// Action and parameters of all requests so far.
fn recorded(world: &World) -> Vec<Value> {
    let mut ecs = world.ecs.lock();
    let log = std::mem::take(&mut ecs.log);
    let shown = |(_, request): (_, super::server::Request)| {
        let parameters: BTreeMap<String, String> = pairs(&request.query).into_iter().collect();
        json!([request.headers["x-acs-action"], parameters])
    };
    log.into_iter().map(shown).collect()
}

/// The parameters of the creation with a class.
async fn sent(changes: &Value) -> Value {
    let world = World::new().await;
    world.driver.create(&world.request_for("a1", "uid-a1", spec_with(changes))).await.unwrap();
    world.assert_valid_requests();
    recorded(&world)[1][1].clone()
}

#[tokio::test]
async fn a_plain_class_sends_this_and_nothing_else() {
    let world = World::new().await;
    let request = world.request("a1");
    assert_eq!(code(world.driver.status(&request).await), Code::NotFound);
    let vm = world.driver.create(&request).await.unwrap();
    let id = vm.provider_id.strip_prefix("cn-beijing.").unwrap();
    let by_name = json!(["DescribeInstances", {"RegionId": "cn-beijing", "InstanceName": "a1", "MaxResults": "100"}]);
    let ids = json!([id]).to_string();
    let by_id = json!(["DescribeInstances", {"RegionId": "cn-beijing", "InstanceIds": ids, "MaxResults": "100"}]);
    let order = json!(["RunInstances", {
        "RegionId": "cn-beijing", "ZoneId": "cn-beijing-a", "ImageId": "m-2zeubuntu2404", "InstanceType": "ecs.g7.large",
        "VSwitchId": "vsw-2zeshoot", "SecurityGroupId": "sg-2zeshoot", "InstanceName": "a1", "ClientToken": "uid-a1",
        "Tag.1.Key": "kubernetes.io/cluster/shoot", "Tag.1.Value": "1", "Tag.2.Key": "kubernetes.io/role/node", "Tag.2.Value": "1",
        "Tag.3.Key": "pool", "Tag.3.Value": "workers", "Tag.4.Key": "machine.sapcloud.io/machine-uid", "Tag.4.Value": "uid-a1",
        "Tag.5.Key": "machine.sapcloud.io/owner", "Tag.5.Value": "team-a", "UserData": "IyEvYmluL3NoCmh1bnRlcjItaHVudGVyMgo=",
    }]);
    assert_eq!(recorded(&world), [by_name, order, by_id.clone()]);
    let known = with_id(request, &vm.provider_id);
    world.driver.status(&known).await.unwrap();
    world.driver.delete(&known).await.unwrap();
    let delete = json!(["DeleteInstance", {"InstanceId": id, "Force": "true"}]);
    assert_eq!(recorded(&world), [by_id.clone(), by_id, delete]);
    world.driver.list(&known.class, &known.secret).await.unwrap();
    let of_class = json!(["DescribeInstances", {
        "RegionId": "cn-beijing", "MaxResults": "100", "Tag.1.Key": CLUSTER.0, "Tag.1.Value": CLUSTER.1, "Tag.2.Key": ROLE.0,
        "Tag.2.Value": ROLE.1,
    }]);
    assert_eq!(recorded(&world), [of_class]);
    world.assert_valid_requests();
}

#[tokio::test]
async fn each_field_of_a_class_is_sent() {
    let sent = sent(&json!({
        "privateIPAddress": "10.0.0.5", "systemDisk": {"category": "cloud_essd", "size": 50}, "instanceChargeType": "PostPaid",
        "internetChargeType": "PayByTraffic", "internetMaxBandwidthIn": 5, "internetMaxBandwidthOut": 0, "keyPairName": "operators",
        "spotStrategy": "SpotAsPriceGo", "IoOptimized": "optimized",
    }))
    .await;
    let expected = json!({
        "PrivateIpAddress": "10.0.0.5", "SystemDisk.Category": "cloud_essd", "SystemDisk.Size": "50", "InstanceChargeType": "PostPaid",
        "InternetChargeType": "PayByTraffic", "InternetMaxBandwidthIn": "5", "InternetMaxBandwidthOut": "0",
        "KeyPairName": "operators", "SpotStrategy": "SpotAsPriceGo", "IoOptimized": "optimized",
    });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(sent[name], *value, "{name}");
    }
}

#[tokio::test]
async fn data_disks_are_named_after_the_machine_and_deleted_with_it() {
    let sent = sent(&json!({"dataDisks": [
        {"name": "d", "category": "cloud_efficiency", "description": "a text", "encrypted": true, "size": 20},
        {"category": "cloud_essd", "size": 30, "deleteWithInstance": false},
        {"name": "local", "category": "ephemeral_ssd", "size": 40, "deleteWithInstance": false},
    ]}))
    .await;
    let disks: BTreeMap<&String, &Value> =
        sent.as_object().unwrap().iter().filter(|(name, _)| name.starts_with("DataDisk.")).collect();
    let expected = json!({
        "DataDisk.1.DiskName": "a1-d-data-disk", "DataDisk.1.Category": "cloud_efficiency", "DataDisk.1.Description": "a text",
        "DataDisk.1.Encrypted": "true", "DataDisk.1.Size": "20", "DataDisk.1.DeleteWithInstance": "true",
        "DataDisk.2.DiskName": "a1--data-disk", "DataDisk.2.Category": "cloud_essd", "DataDisk.2.Encrypted": "false",
        "DataDisk.2.Size": "30", "DataDisk.2.DeleteWithInstance": "false",
        "DataDisk.3.DiskName": "a1-local-data-disk", "DataDisk.3.Category": "ephemeral_ssd", "DataDisk.3.Encrypted": "false",
        "DataDisk.3.Size": "40",
    });
    assert_eq!(json!(disks), expected);
}

#[tokio::test]
async fn values_that_are_empty_are_left_out() {
    let sent = sent(&json!({
        "zoneID": "", "keyPairName": "", "privateIPAddress": "", "spotStrategy": "", "systemDisk": {"category": "", "size": 0},
    }))
    .await;
    let empty: Vec<_> = sent.as_object().unwrap().iter().filter(|(_, value)| *value == "").collect();
    assert_eq!(empty, []);
    for name in ["ZoneId", "KeyPairName", "PrivateIpAddress", "SpotStrategy", "SystemDisk.Size", "SystemDisk.Category"]
    {
        assert_eq!(sent[name], Value::Null, "{name}");
    }
}

#[tokio::test]
async fn classes_cannot_set_the_tags_of_mcm() {
    let forged = json!({CLUSTER.0: "1", ROLE.0: "1", "machine.sapcloud.io/machine-uid": "forged", "empty": ""});
    let sent = sent(&json!({"tags": forged})).await;
    let tags: Vec<(&str, &str)> = (1..=5)
        .map(|number| {
            let field = |field| sent[format!("Tag.{number}.{field}")].as_str().unwrap();
            (field("Key"), field("Value"))
        })
        .collect();
    let own = [("machine.sapcloud.io/machine-uid", "uid-a1"), ("machine.sapcloud.io/owner", "team-a")];
    assert_eq!(tags, [("empty", ""), CLUSTER, ROLE, own[0], own[1]]);
}

/// A pool with that many tags exists already, and scales.
#[rstest]
#[case::with_room(18, &["machine.sapcloud.io/machine-uid", "machine.sapcloud.io/owner"])]
#[case::for_the_uid(19, &["machine.sapcloud.io/machine-uid"])]
#[case::for_none(20, &[])]
#[tokio::test]
async fn a_class_with_many_tags_creates_vms_that_are_found_again(#[case] count: usize, #[case] own: &[&str]) {
    let world = World::new().await;
    let mut tags = json!({CLUSTER.0: "1", ROLE.0: "1"});
    for number in 2..count {
        tags[format!("tag-{number}")] = "x".into();
    }
    let request = world.request_for("a1", "uid-a1", spec_with(&json!({"tags": tags})));
    let vm = world.driver.create(&request).await.unwrap();
    assert_eq!(world.driver.status(&request).await.unwrap().provider_id, vm.provider_id);
    assert_eq!(world.driver.create(&request).await.unwrap().provider_id, vm.provider_id);
    let tags = world.ecs.lock().cloud.alive()[0].tags.clone();
    let found: Vec<&str> = tags.keys().map(String::as_str).filter(|key| key.starts_with("machine.")).collect();
    assert_eq!((found.as_slice(), tags.len()), (own, count + own.len()));
    assert!(world.driver.list(&request.class, &request.secret).await.unwrap().contains_key(&vm.provider_id));
    world.driver.delete(&request).await.unwrap();
    assert_eq!(world.count(), 0);
}

#[tokio::test]
async fn without_user_data_none_are_sent() {
    let world = World::new().await;
    let mut request = world.request("a1");
    request.secret.0.remove("userData");
    world.driver.create(&request).await.unwrap();
    assert_eq!(recorded(&world)[1][1]["UserData"], Value::Null);
}

#[tokio::test]
async fn each_attempt_of_a_request_is_signed_anew() {
    let world = World::new().await;
    world.fail("RunInstances", super::server::Fault::LostAnswer, 1);
    world.driver.create(&world.request("a1")).await.unwrap();
    let sent = world.ecs.lock().sent("RunInstances");
    let nonces: Vec<&String> = sent.iter().map(|request| &request.headers["x-acs-signature-nonce"]).collect();
    assert_eq!(nonces.len(), 2);
    assert_ne!(nonces[0], nonces[1]);
    assert_eq!(sent[0].query, sent[1].query, "with the same token");
    assert_eq!(world.count(), 1);
}
