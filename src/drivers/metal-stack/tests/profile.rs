//! The data of metal-stack for the cases that every driver has.

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
    CLUSTER, UID_TAG, World, class, driver,
    fake::{HMAC, IMAGE, NETWORK, PARTITION, PROJECT, TOKEN},
    secret, spec_with,
};
use crate::login::Login;

impl CloudProfile for World {
    const NAME: &'static str = crate::NAME;
    const FOLDER: &'static str = "metal-stack";
    const LIST: &'static str = "machine.find";
    const COUNTS: RequestCounts = RequestCounts {
        create: &[("machine_allocate", 1, 0), ("machine_find", 1, 0)],
        list: &[("machine_find", 1, 1)],
        delete: &[("machine_find", 1, 0), ("machine_free", 1, 0)],
        has_more: false,
    };
    const CSI: Option<&'static str> = Some("csi.example.com");

    fn observed(&self, requests: RequestReporter) -> Box<dyn Driver> {
        Box::new(driver(Duration::from_secs(20), requests))
    }

    fn class_with(&self, changes: &Value) -> MachineClass {
        class(spec_with(changes))
    }

    fn changes() -> ClassChanges {
        ClassChanges {
            invalid: json!({"partition": 7}),
            spoilt: json!({"partition": null, "size": 7, "image": null, "network": ""}),
            foreign: json!({"tags": ["cluster.metal-stack.io/id=other"]}),
            unmarked: json!({"tags": []}),
            same_list: json!({"size": "other", "partition": "other"}),
            other_lists: vec![json!({"project": "other"})],
        }
    }

    fn slow(&self) {
        self.metal.lock().cloud.lingers = 3;
    }

    fn storm(&self, faults: Vec<Fault>) {
        self.metal.lock().storm = faults;
    }

    fn expected(&self) -> ExpectedVm {
        let provider_id = format!("metal:///{PARTITION}/00000000-0000-4000-8000-000000000000");
        ExpectedVm {
            created: format!("Created {provider_id}"),
            provider_id,
            node_name: "m-1".to_owned(),
            zone: Some(PARTITION.to_owned()),
            addresses: ["InternalIP 10.0.0.0", "ExternalIP 198.51.0.0", "Hostname m-1"].map(str::to_owned).into(),
            ..ExpectedVm::default()
        }
    }

    fn provider_ids(id: &str) -> Vec<(String, bool)> {
        let machine = id.rsplit('/').next().unwrap();
        let with = |prefix: &str, is_found| (format!("{prefix}{machine}"), is_found);
        vec![
            with("metal:///fra-equ01/", true),
            with("metal://fra-equ01/", true),
            with("metal://", true),
            with("aws:///eu-west-1/", false),
            ("metal:///fra-equ01/a%2Fb".to_owned(), false),
            ("metal:///fra-equ01/..".to_owned(), false),
            ("metal:///fra-equ01/".to_owned(), false),
        ]
    }

    fn tags(&self) -> Value {
        json!(self.metal.lock().cloud.allocations()[0].tags)
    }

    fn released(&self) -> Value {
        let uid = format!("{UID_TAG}=uid-m-1");
        json!([CLUSTER, "pool=workers", uid, "machine.metal-stack.io/rack=rack-0", "machine.sapcloud.io/unlisted=true"])
    }

    fn user_data_of(&self, name: &str) -> Vec<u8> {
        let metal = self.metal.lock();
        let mut all = metal.cloud.allocations().into_iter().filter_map(|machine| machine.allocation.as_ref());
        let allocation = all.find(|allocation| allocation["hostname"] == name).unwrap();
        allocation["user_data"].as_str().unwrap().into()
    }

    /// metal-api does not take white space around them.
    fn sent_user_data(data: &[u8]) -> &[u8] {
        data.trim_ascii()
    }

    fn gardener_secret(&self) -> SecretData {
        secret(&[("metalAPIURL", "https://api.metal.example.com/metal"), ("metalAPIHMac", "h"), ("metalAPIKey", "")])
    }

    fn fit(class: &mut MachineClass) {
        let places = json!({"image": IMAGE, "project": PROJECT, "network": NETWORK});
        class.provider_spec = changed(class.provider_spec.take(), &places);
    }

    fn findings(&self) -> Vec<String> {
        let expected = [
            "Secret Present: the credentials are those of metal-admin@metal-stack.io",
            "providerSpec.partition Present: partition fra-equ01 exists",
            "providerSpec.size Present: size c1-xlarge-x86 exists",
            "providerSpec.image Present: ubuntu-24.04.20261101",
            "providerSpec.project Present: project team exists",
            "providerSpec.network Present: 10.0.0.0/22",
            "providerSpec.size Present: 300 machines of size c1-xlarge-x86 are free in fra-equ01",
        ];
        expected.map(str::to_owned).into()
    }

    fn remove(&self, what: &'static str) {
        self.metal.lock().cloud.absent.push(what);
    }

    fn absent_resources() -> Vec<AbsentResource> {
        let absent = |what, expected| (what, json!({}), vec![expected]);
        vec![
            absent("partition", "providerSpec.partition: there is no partition fra-equ01"),
            absent("size", "providerSpec.size: there is no size c1-xlarge-x86"),
            absent("image", "providerSpec.image: there is no image ubuntu-24.04"),
            absent("project", "providerSpec.project: there is no project 00000000-0000-4000-8000-0000000000aa"),
            absent("network", "providerSpec.network: there is no network private-network"),
        ]
    }

    fn sent(&self) -> BTreeSet<String> {
        self.metal.lock().log.iter().map(|(call, _)| (*call).to_owned()).collect()
    }

    fn permissions() -> &'static [PermittedCalls] {
        &[
            (
                "viewer",
                &[
                    "machine.find",
                    "user.me",
                    "partition.get",
                    "partition.capacity",
                    "size.get",
                    "image.latest",
                    "project.get",
                    "network.get",
                ],
            ),
            ("editor", &["machine.allocate", "machine.free"]),
            ("admin", &["machine.update"]),
        ]
    }

    fn wrong_secrets(&self) -> Vec<SecretData> {
        let wrong = |key| secret(&[("metalAPIURL", self.url.as_str()), (key, "another-key")]);
        ["metalAPIKey", "metalAPIHMac"].map(wrong).into()
    }

    fn other_secrets(&self) -> Vec<SecretData> {
        vec![secret(&[("metalAPIURL", &self.url), ("metalAPIKey", TOKEN)])]
    }

    fn secrets_elsewhere(&self) -> Vec<SecretData> {
        vec![secret(&[("metalAPIURL", "http://metal.example.com/metal"), ("metalAPIHMac", HMAC)])]
    }

    fn secret_cases(&self) -> Vec<SecretCase> {
        let (url, key) = (("metalAPIURL", "https://api.example.com"), ("metalAPIKey", "t"));
        vec![
            (secret(&[url, key]), &[], &[]),
            (secret(&[url]), &["neither metalAPIKey nor metalAPIHMac"], &[]),
            (secret(&[url, key, ("userData", " ")]), &[], &["no userData"]),
        ]
    }

    fn refusal(&self, text: &str) -> Reply {
        self.metal.lock().cloud.error(400, text)
    }

    fn needs_no_flag(data: &SecretData) -> bool {
        Login::from_secret(data, &SecretPolicy::default()).is_ok()
    }
}

profile_suite!(World);
