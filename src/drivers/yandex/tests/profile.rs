//! The data of Yandex Cloud for the cases that every driver has.

use std::{collections::BTreeSet, time::Duration};

use mcm_api::machine::MachineClass;
use mcm_driver::{
    Driver, SecretData, SecretPolicy,
    cloud::RequestReporter,
    profile_suite,
    testing::{
        profile::{AbsentResource, ClassChanges, CloudProfile, ExpectedVm, PermittedCalls, RequestCounts, SecretCase},
        server::{Fault, Reply},
    },
};
use serde_json::{Value, json};

use super::{
    CLUSTER, ROLE, UID, World, class, driver,
    fake::{ACCOUNT, KEY_ID, PRIVATE_KEY, SUBNET, ZONE},
    provider_id, secret, spec_with,
};
use crate::login::Login;

/// A key of the service account.
fn key(id: &str) -> String {
    json!({"id": id, "service_account_id": ACCOUNT, "private_key": PRIVATE_KEY}).to_string()
}

impl CloudProfile for World {
    const NAME: &'static str = crate::NAME;
    const FOLDER: &'static str = "yandex";
    const LIST: &'static str = "instance.list";
    const COUNTS: RequestCounts = RequestCounts {
        create: &[
            ("endpoint_list", 1, 0),
            ("instance_create", 1, 0),
            ("instance_get", 1, 0),
            ("instance_list", 1, 0),
            ("operation_get", 2, 0),
            ("token_get", 1, 0),
        ],
        list: &[("instance_list", 1, 1)],
        delete: &[("instance_delete", 1, 0), ("instance_get", 1, 0), ("operation_get", 2, 0)],
        has_more: false,
    };
    const CSI: Option<&'static str> = Some("yandex.csi.flant.com");

    fn observed(&self, requests: RequestReporter) -> Box<dyn Driver> {
        Box::new(driver(Duration::from_secs(20), requests))
    }

    fn class_with(&self, changes: &Value) -> MachineClass {
        class(spec_with(changes))
    }

    fn changes() -> ClassChanges {
        ClassChanges {
            invalid: json!({"zoneID": 7}),
            spoilt: json!({"zoneID": null, "resourcesSpec": 7, "bootDiskSpec": null, "networkInterfaceSpecs": ""}),
            foreign: json!({"labels": {"kubernetes-io-cluster-other": "1", ROLE: "1"}}),
            unmarked: json!({"labels": {}}),
            same_list: json!({
                "zoneID": "other", "platformID": "other", "labels": {CLUSTER: "", "kubernetes-io-role-other": ""},
            }),
            other_lists: Vec::new(),
        }
    }

    fn slow(&self) {
        let cloud = &mut self.yandex.lock().cloud;
        (cloud.steps, cloud.page) = (25, 2);
    }

    fn storm(&self, faults: Vec<Fault>) {
        self.yandex.lock().storm = faults;
    }

    fn resources(&self) -> usize {
        self.yandex.lock().cloud.instances.len()
    }

    fn expected(&self) -> ExpectedVm {
        let addresses =
            ["InternalIP 10.0.0.0", "ExternalIP 198.51.0.0", "Hostname m-1", "InternalDNS m-1.ru-central1.internal"];
        ExpectedVm {
            provider_id: provider_id("fhm00000"),
            node_name: "m-1".to_owned(),
            zone: Some(ZONE.to_owned()),
            addresses: addresses.map(str::to_owned).into(),
            created: "Created yandex://ru-central1-a/fhm00000".to_owned(),
            ..ExpectedVm::default()
        }
    }

    fn provider_ids(id: &str) -> Vec<(String, bool)> {
        // The first of the others is of the cloud controller manager.
        let others = ["yandex://fhm00000", "aws:///eu-west-1/i-1", "yandex://ru-central1-a/.."];
        [(id, true)]
            .into_iter()
            .chain(others.map(|id| (id, false)))
            .map(|(id, is_found)| (id.to_owned(), is_found))
            .collect()
    }

    fn tags(&self) -> Value {
        self.yandex.lock().cloud.alive()[0]["labels"].clone()
    }

    fn released(&self) -> Value {
        json!({CLUSTER: "1", UID: "uid-m-1", "pool": "workers"})
    }

    fn user_data_of(&self, name: &str) -> Vec<u8> {
        let yandex = self.yandex.lock();
        let instance = yandex.cloud.alive().into_iter().find(|instance| instance["name"] == name).unwrap();
        yandex.cloud.metadata[instance["id"].as_str().unwrap()]["user-data"].as_str().unwrap().into()
    }

    fn template_secret(mut data: SecretData) -> SecretData {
        let mut key: Value = serde_json::from_slice(&data.0["serviceAccountJSON"]).unwrap();
        key["private_key"] = PRIVATE_KEY.into();
        data.0.insert("serviceAccountJSON".to_owned(), key.to_string().into_bytes());
        data
    }

    fn needs() -> Value {
        let addresses = ["198.51.100.1", "198.51.100.2", "198.51.100.3"];
        let interface = json!({"subnetID": SUBNET, "assignPublicIPAddress": true, "publicIPAddresses": addresses});
        json!({"networkInterfaceSpecs": [interface]})
    }

    fn furnish(&self) {
        self.yandex.lock().cloud.addresses =
            vec![("198.51.100.1".to_owned(), true), ("198.51.100.2".to_owned(), false)];
    }

    fn findings(&self) -> Vec<String> {
        let expected = [
            "Secret Present: service account ajeaccount sees folder team",
            "providerSpec.zoneID Present: zone ru-central1-a is up",
            "providerSpec.bootDiskSpec.imageID Present: image fd8image (ubuntu-2404) is ready",
            "providerSpec.bootDiskSpec.typeID Present: disk type network-ssd is in ru-central1-a",
            "providerSpec.networkInterfaceSpecs[0].subnetID Present: subnet e9bsubnet has 10.0.0.0/16",
            "providerSpec.networkInterfaceSpecs[0].publicIPAddresses Present: 1 of 3 addresses are free, 2 are in the folder",
        ];
        expected.map(str::to_owned).into()
    }

    fn remove(&self, what: &'static str) {
        self.yandex.lock().cloud.absent.push(what);
    }

    fn absent_resources() -> Vec<AbsentResource> {
        let absent = |what, expected| (what, json!({}), vec![expected]);
        vec![
            absent("zone", "providerSpec.zoneID: there is no zone ru-central1-a"),
            absent("image", "providerSpec.bootDiskSpec.imageID: there is no image fd8image"),
            absent("disk type", "providerSpec.bootDiskSpec.typeID: there is no disk type network-ssd"),
            absent("subnet", "providerSpec.networkInterfaceSpecs[0].subnetID: there is no subnet e9bsubnet"),
            absent("folder", "Secret: there is no folder b1gfolder"),
        ]
    }

    fn sent(&self) -> BTreeSet<String> {
        self.yandex.lock().log.iter().map(|(call, _)| (*call).to_owned()).collect()
    }

    fn permissions() -> &'static [PermittedCalls] {
        &[
            (
                "compute.editor",
                &[
                    "instance.list",
                    "instance.create",
                    "instance.get",
                    "instance.update",
                    "instance.delete",
                    "operation.get",
                    "zone.get",
                    "image.get",
                    "disk_type.get",
                ],
            ),
            ("vpc.user", &["address.list", "subnet.get"]),
            ("vpc.externalAddresses.user", &["instance.create"]),
            ("resource-manager.viewer", &["folder.get"]),
            ("", &["endpoint.list", "token.create"]),
        ]
    }

    fn wrong_secrets(&self) -> Vec<SecretData> {
        vec![secret(&[("endpointURL", &self.url), ("serviceAccountJSON", &key("ajeother"))])]
    }

    fn secrets_elsewhere(&self) -> Vec<SecretData> {
        vec![secret(&[("endpointURL", "http://api.example.com")])]
    }

    fn secret_cases(&self) -> Vec<SecretCase> {
        let no_pem = r#"{"id": "a", "service_account_id": "b", "private_key": "c"}"#;
        vec![
            (secret(&[]), &[], &[]),
            (secret(&[("serviceAccountJSON", "")]), &["no serviceAccountJSON"], &[]),
            (secret(&[("serviceAccountJSON", no_pem)]), &["no RSA key"], &[]),
            (secret(&[("folderID", "")]), &["no folderID"], &[]),
            (secret(&[("userData", " ")]), &[], &["userData are empty"]),
        ]
    }

    fn refusal(&self, text: &str) -> Reply {
        self.yandex.lock().cloud.error(3, text)
    }

    fn quoted() -> String {
        key(KEY_ID)
    }

    fn hidden() -> Vec<String> {
        vec![PRIVATE_KEY.lines().nth(3).unwrap().to_owned()]
    }

    fn needs_no_flag(data: &SecretData) -> bool {
        Login::from_secret(data, &SecretPolicy::default()).is_ok()
    }
}

profile_suite!(World);
