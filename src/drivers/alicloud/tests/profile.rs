//! The data of Alibaba Cloud for the cases that every driver has.

use std::{collections::BTreeSet, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use mcm_api::machine::MachineClass;
use mcm_driver::{
    Driver, SecretData, SecretPolicy,
    cloud::RequestReporter,
    profile_suite,
    testing::{
        profile::{
            AbsentResource, ClassChanges, CloudProfile, ExpectedVm, PermittedCalls, RequestCounts, SecretCase, changed,
        },
        server::{Fault, Reply},
    },
};
use serde_json::{Value, json};

use super::{
    CLUSTER, ROLE, UID_TAG, World, class, driver,
    fake::{Ecs, GROUP, IMAGE, KEY_ID, KEY_SECRET, REGION, SWITCH, TYPE, ZONE},
    secret, spec_with,
};
use crate::login::Login;

impl CloudProfile for World {
    const NAME: &'static str = crate::NAME;
    const FOLDER: &'static str = "alicloud";
    const LIST: &'static str = "DescribeInstances";
    const COUNTS: RequestCounts = RequestCounts {
        create: &[("instance_create", 1, 0), ("instance_get", 2, 0)],
        list: &[("instance_get", 1, 1)],
        delete: &[("instance_delete", 1, 0), ("instance_get", 1, 0)],
        has_more: false,
    };
    const CSI: Option<&'static str> = Some("diskplugin.csi.alibabacloud.com");
    const IS_UNMARKED_LISTED: bool = false;

    fn observed(&self, requests: RequestReporter) -> Box<dyn Driver> {
        Box::new(driver(Duration::from_secs(20), requests))
    }

    fn class_with(&self, changes: &Value) -> MachineClass {
        class(spec_with(changes))
    }

    fn changes() -> ClassChanges {
        let other = "kubernetes.io/cluster/other";
        ClassChanges {
            invalid: json!({"imageID": 7}),
            spoilt: json!({"imageID": null, "instanceType": 7, "dataDisks": [{}]}),
            foreign: json!({"tags": {other: "1", ROLE.0: "1"}}),
            unmarked: json!({"tags": {}}),
            same_list: json!({"instanceType": "other", "zoneID": "cn-beijing-b"}),
            other_lists: vec![json!({"region": "cn-hangzhou"}), json!({"tags": {CLUSTER.0: "1", ROLE.0: "2"}})],
        }
    }

    fn slow(&self) {
        let cloud = &mut self.ecs.lock().cloud;
        (cloud.boots, cloud.hides, cloud.page) = (4, 3, 2);
    }

    fn storm(&self, faults: Vec<Fault>) {
        self.ecs.lock().storm = faults;
    }

    fn expected(&self) -> ExpectedVm {
        let addresses =
            ["InternalIP 10.0.0.0", "InternalIP 2408:4000::1", "ExternalIP 198.51.100.7", "Hostname iz2ze00000000z"];
        ExpectedVm {
            provider_id: "cn-beijing.i-2ze00000000".to_owned(),
            node_name: "iz2ze00000000z".to_owned(),
            zone: Some(ZONE.to_owned()),
            addresses: addresses.map(str::to_owned).into(),
            created: "ECS instance i-2ze00000000 created for machine m-1".to_owned(),
            deleted: Some("ECS instance i-2ze00000000 deleted for machine m-1".to_owned()),
            ..ExpectedVm::default()
        }
    }

    fn provider_ids(id: &str) -> Vec<(String, bool)> {
        let instance = id.strip_prefix("cn-beijing.").unwrap();
        vec![
            (id.to_owned(), true),
            (instance.to_owned(), true),
            (format!("cn-hangzhou.{instance}"), false),
            (format!("aws:///cn-beijing/{instance}"), false),
            (format!(r#"{id}","i-2ze00000001"#), false),
        ]
    }

    fn tags(&self) -> Value {
        json!(self.ecs.lock().cloud.alive()[0].tags)
    }

    fn released(&self) -> Value {
        json!({CLUSTER.0: CLUSTER.1, UID_TAG: "uid-m-1", "pool": "workers"})
    }

    fn user_data_of(&self, name: &str) -> Vec<u8> {
        let ecs = self.ecs.lock();
        let instance = ecs.cloud.alive().into_iter().find(|instance| instance.name == name).unwrap();
        STANDARD.decode(&instance.sent["UserData"]).unwrap()
    }

    fn needs_no_flag(data: &SecretData) -> bool {
        Login::from_secret(data, REGION, &SecretPolicy::default()).is_ok()
    }

    fn gardener_secret(&self) -> SecretData {
        secret(&[("accessKeyID", "LTAI4Fexample"), ("accessKeySecret", "hunter2")])
    }

    fn fit(class: &mut MachineClass) {
        let spec = &mut class.provider_spec;
        *spec = changed(
            spec.take(),
            &json!({
                "imageID": IMAGE, "instanceType": TYPE, "zoneID": ZONE, "vSwitchID": SWITCH, "securityGroupID": GROUP,
            }),
        );
    }

    fn needs() -> Value {
        json!({
            "keyPairName": "operators", "systemDisk": {"category": "cloud_essd", "size": 20},
            "dataDisks": [{"category": "cloud_efficiency", "size": 20}],
        })
    }

    fn findings(&self) -> Vec<String> {
        let expected = [
            "Secret Present: the access key may look VMs up in cn-beijing",
            "providerSpec.imageID Present: Ubuntu 24.04 64 bit",
            "providerSpec.instanceType Present: 2 CPUs, 8 GiB of memory",
            "providerSpec.instanceType Present: instance type ecs.g7.large is offered in zone cn-beijing-a",
            "providerSpec.systemDisk.category Present: disk category cloud_essd is offered in zone cn-beijing-a",
            "providerSpec.dataDisks[0].category Present: disk category cloud_efficiency is offered in zone cn-beijing-a",
            "providerSpec.vSwitchID Present: 1048576 addresses are left in vpc-2zeshoot",
            "providerSpec.securityGroupID Present: security group sg-2zeshoot exists",
            "providerSpec.keyPairName Present: key pair operators exists",
        ];
        expected.map(str::to_owned).into()
    }

    fn remove(&self, what: &'static str) {
        self.ecs.lock().cloud.absent.push(what);
    }

    fn absent_resources() -> Vec<AbsentResource> {
        let absent = |what, expected| (what, json!({}), vec![expected]);
        vec![
            absent("imageID", "providerSpec.imageID: there is no imageID m-2zeubuntu2404"),
            absent("instanceType", "providerSpec.instanceType: there is no instanceType ecs.g7.large"),
            absent("zoneID", "providerSpec.zoneID: there is no zoneID cn-beijing-a"),
            absent("vSwitchID", "providerSpec.vSwitchID: there is no vSwitchID vsw-2zeshoot"),
            absent("securityGroupID", "providerSpec.securityGroupID: there is no securityGroupID sg-2zeshoot"),
            absent("keyPairName", "providerSpec.keyPairName: there is no keyPairName operators"),
        ]
    }

    fn sent(&self) -> BTreeSet<String> {
        self.ecs.lock().log.iter().map(|(call, _)| (*call).to_owned()).collect()
    }

    fn permissions() -> &'static [PermittedCalls] {
        &[
            ("ecs:DeleteInstance", &["DeleteInstance"]),
            ("ecs:DescribeInstances", &["DescribeInstances"]),
            ("ecs:RunInstances", &["RunInstances"]),
            ("ecs:TagResources", &["TagResources"]),
            ("ecs:UntagResources", &["UntagResources"]),
            ("ecs:DescribeImages", &["DescribeImages"]),
            ("ecs:DescribeInstanceTypes", &["DescribeInstanceTypes"]),
            ("ecs:DescribeKeyPairs", &["DescribeKeyPairs"]),
            ("ecs:DescribeSecurityGroups", &["DescribeSecurityGroups"]),
            ("ecs:DescribeVSwitches", &["DescribeVSwitches"]),
            ("ecs:DescribeZones", &["DescribeZones"]),
        ]
    }

    fn wrong_secrets(&self) -> Vec<SecretData> {
        let key = |id, key| secret(&[("accessKeyID", id), ("accessKeySecret", key), ("endpointURL", &self.url)]);
        vec![key("LTAI-another-id", KEY_SECRET), key(KEY_ID, "another-secret")]
    }

    fn other_secrets(&self) -> Vec<SecretData> {
        vec![secret(&[("accessKeyID", KEY_ID), ("accessKeySecret", KEY_SECRET), ("endpointURL", &self.url)])]
    }

    fn secrets_elsewhere(&self) -> Vec<SecretData> {
        let url = "http://ecs.cn-beijing.aliyuncs.com";
        vec![secret(&[("accessKeyID", KEY_ID), ("accessKeySecret", KEY_SECRET), ("endpointURL", url)])]
    }

    fn secret_cases(&self) -> Vec<SecretCase> {
        let (id, key) = (("accessKeyID", "k"), ("accessKeySecret", "s"));
        vec![
            (secret(&[id, key]), &[], &[]),
            (secret(&[key]), &["neither alicloudAccessKeyID nor accessKeyID"], &[]),
            (secret(&[id, key, ("userData", "")]), &[], &["no userData"]),
        ]
    }

    fn secret_classes() -> Vec<Value> {
        vec![json!({}), json!({"region": null})]
    }

    fn refusal(&self, text: &str) -> Reply {
        Ecs::error(400, "InvalidParameter", text)
    }
}

profile_suite!(World);
