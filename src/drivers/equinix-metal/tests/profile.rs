//! The data of Equinix Metal for the cases that every driver has.

use std::{collections::BTreeSet, time::Duration};

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
    fake::{METRO, PROJECT, SSH_KEY, SYSTEM, TOKEN},
    secret, spec_with,
};
use crate::login::Login;

const RESERVATION: &str = "3f1f2b7e-9d0c-4f7a-8f0e-5b9a1c2d3e4f";

impl CloudProfile for World {
    const NAME: &'static str = crate::NAME;
    const FOLDER: &'static str = "equinix-metal";
    const LIST: &'static str = "device.list";
    const COUNTS: RequestCounts = RequestCounts {
        create: &[("device_create", 1, 0), ("device_list", 1, 0)],
        list: &[("device_list", 1, 1)],
        delete: &[("device_delete", 1, 0), ("device_get", 1, 0)],
        has_more: false,
    };
    const CSI: Option<&'static str> = None;
    const WARNINGS: &'static [&'static str] = &["provider"];
    const GARDENER_WARNINGS: &'static [&'static str] = &["providerSpec.facilities", "providerSpec.metadata"];

    fn observed(&self, requests: RequestReporter) -> Box<dyn Driver> {
        Box::new(driver(Duration::from_secs(20), requests))
    }

    fn class_with(&self, changes: &Value) -> MachineClass {
        class(spec_with(changes))
    }

    fn changes() -> ClassChanges {
        let other = "kubernetes.io/cluster/other: 1";
        ClassChanges {
            invalid: json!({"metro": 7}),
            spoilt: json!({"metro": null, "machineType": 7, "OS": null, "billingCycle": ""}),
            foreign: json!({"tags": [other, ROLE]}),
            unmarked: json!({"tags": []}),
            same_list: json!({
                "machineType": "other", "metro": "da", "tags": [other, CLUSTER, ROLE, "kubernetes.io/role/a"],
            }),
            other_lists: vec![json!({"projectID": "other"})],
        }
    }

    fn slow(&self) {
        let cloud = &mut self.metal.lock().cloud;
        (cloud.lingers, cloud.largest_page) = (9, 2);
    }

    fn storm(&self, faults: Vec<Fault>) {
        self.metal.lock().storm = faults;
    }

    fn expected(&self) -> ExpectedVm {
        let provider_id = "equinixmetal://ny/00000000-2222-4000-8000-000000000000".to_owned();
        let addresses =
            ["InternalIP 10.99.0.0", "ExternalIP 147.75.0.0", "ExternalIP 2604:1380:4641::0", "Hostname m-1"];
        ExpectedVm {
            created: format!("Created {provider_id}"),
            provider_id,
            node_name: "m-1".to_owned(),
            zone: Some(METRO.to_owned()),
            addresses: addresses.map(str::to_owned).into(),
            ..ExpectedVm::default()
        }
    }

    fn provider_ids(id: &str) -> Vec<(String, bool)> {
        let device = id.rsplit('/').next().unwrap();
        let with = |prefix: &str, is_found| (format!("{prefix}{device}"), is_found);
        vec![
            with("equinixmetal://ny/", true),
            // Of the cloud controller manager, and from the time of Packet.
            with("equinixmetal://", true),
            with("packet:///ewr1/", true),
            with("aws:///eu-west-1/", false),
            ("equinixmetal://ny/a%2Fb".to_owned(), false),
            ("equinixmetal://ny/..".to_owned(), false),
            ("equinixmetal://ny/".to_owned(), false),
        ]
    }

    fn tags(&self) -> Value {
        json!(self.metal.lock().cloud.devices[0].tags)
    }

    fn released(&self) -> Value {
        json!([CLUSTER, "pool: workers", format!("{UID_TAG}=uid-m-1")])
    }

    fn user_data_of(&self, name: &str) -> Vec<u8> {
        let metal = self.metal.lock();
        let device = metal.cloud.present().into_iter().find(|device| device.hostname == name).unwrap();
        device.order["userdata"].as_str().unwrap().into()
    }

    fn gardener_secret(&self) -> SecretData {
        secret(&[("apiToken", "t"), ("projectID", "48277712-7f36-4c8b-9a55-6fb0b2f3b0c1")])
    }

    fn fit(class: &mut MachineClass) {
        let places = json!({
            "projectID": PROJECT, "OS": SYSTEM, "metro": METRO, "sshKeys": [SSH_KEY], "reservedDevicesOnly": false,
        });
        class.provider_spec = changed(class.provider_spec.take(), &places);
    }

    fn needs() -> Value {
        json!({"sshKeys": [SSH_KEY], "reservationIDs": [RESERVATION, "next-available"]})
    }

    fn furnish(&self) {
        self.metal.lock().cloud.reservations = [(RESERVATION.to_owned(), true)].into();
    }

    fn findings(&self) -> Vec<String> {
        let reservation = format!("providerSpec.reservationIDs[0] Present: hardware reservation {RESERVATION} exists");
        let expected = [
            "providerSpec.projectID Present: project team exists",
            "providerSpec.metro Present: New York",
            "providerSpec.machineType Present: plan c3.small.x86 exists",
            "providerSpec.OS Present: Ubuntu 22.04 LTS",
            "providerSpec.machineType Present: a server of plan c3.small.x86 is free in ny",
            "providerSpec.sshKeys[0] Present: key operators",
            &reservation,
        ];
        expected.map(str::to_owned).into()
    }

    fn remove(&self, what: &'static str) {
        self.metal.lock().cloud.absent.push(what);
    }

    fn absent_resources() -> Vec<AbsentResource> {
        let absent = |what, expected| (what, json!({}), vec![expected]);
        vec![
            absent("project", "providerSpec.projectID: there is no project 93125c2a-8b78-4d4f-a3c4-7367d6b7cca8"),
            absent("metro", "providerSpec.metro: there is no metro ny"),
            absent("plan", "providerSpec.machineType: there is no plan c3.small.x86"),
            absent("system", "providerSpec.OS: there is no operating system ubuntu_22_04"),
            absent(
                "system on plan",
                "providerSpec.OS: operating system ubuntu_22_04 does not run on plan c3.small.x86",
            ),
            absent("key", "providerSpec.sshKeys[0]: there is no SSH key 0a6b9d9c-5c2a-4c7e-9d0a-3b1f5e8c7d21"),
            absent(
                "reservation",
                "providerSpec.reservationIDs[0]: there is no hardware reservation 3f1f2b7e-9d0c-4f7a-8f0e-5b9a1c2d3e4f",
            ),
        ]
    }

    fn sent(&self) -> BTreeSet<String> {
        self.metal.lock().log.iter().map(|(call, _)| (*call).to_owned()).collect()
    }

    fn permissions() -> &'static [PermittedCalls] {
        &[
            ("DELETE /devices/ID", &["device.delete"]),
            ("GET /devices/ID", &["device.get"]),
            ("GET /hardware-reservations/ID", &["reservation.get"]),
            ("GET /locations/metros", &["metro.list"]),
            ("GET /operating-systems", &["system.list"]),
            ("GET /projects/ID", &["project.get"]),
            ("GET /projects/ID/devices", &["device.list"]),
            ("GET /projects/ID/plans", &["plan.list"]),
            ("GET /ssh-keys/ID", &["key.get"]),
            ("POST /capacity/metros", &["capacity.check"]),
            ("POST /projects/ID/devices", &["device.create"]),
            ("PUT /devices/ID", &["device.update"]),
        ]
    }

    fn wrong_secrets(&self) -> Vec<SecretData> {
        vec![secret(&[("endpointURL", &self.url), ("apiToken", "another-token")])]
    }

    fn other_secrets(&self) -> Vec<SecretData> {
        vec![secret(&[("endpointURL", &self.url), ("alternateApiToken", TOKEN)])]
    }

    fn secrets_elsewhere(&self) -> Vec<SecretData> {
        let elsewhere = |url| secret(&[("endpointURL", url), ("apiToken", TOKEN)]);
        ["http://metal.example.com/metal/v1", "https://metal.example.com/metal/v1"].map(elsewhere).into()
    }

    fn secret_cases(&self) -> Vec<SecretCase> {
        let (token, empty) = (("apiToken", "t"), ("userData", ""));
        vec![
            (secret(&[token]), &[], &[]),
            (secret(&[]), &["neither apiToken nor alternateApiToken"], &[]),
            (secret(&[token, empty]), &["no userData"], &[]),
            (secret(&[empty]), &["neither apiToken nor alternateApiToken", "no userData"], &[]),
        ]
    }

    fn refusal(&self, text: &str) -> Reply {
        self.metal.lock().cloud.error(422, text)
    }

    fn needs_no_flag(data: &SecretData) -> bool {
        Login::from_secret(data, &SecretPolicy::default()).is_ok()
    }
}

profile_suite!(World);
