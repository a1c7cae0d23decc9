//! The driver against the wire format of Yandex Cloud.

#[path = "../../../../tests/clouds/yandex/fake.rs"]
pub(crate) mod fake;
mod faults;
mod flows;
mod inspect;
mod metrics;
mod pauses;
mod profile;
mod requests;
mod secrets;
mod suite;

use std::time::Duration;

use mcm_api::machine::MachineClass;
use mcm_driver::{
    DriverGuards, MachineRequest, SecretData,
    cloud::{CloudAccess, CloudDriver, HttpLimits, PollTiming, RequestReporter},
    testing::{self as kit, code, secret_policy, server, with_id},
};
use serde_json::{Value, json};

use self::fake::{ACCOUNT, DISK_TYPE, FOLDER, IMAGE, KEY_ID, PLATFORMS, PRIVATE_KEY, SUBNET, YandexApi, ZONE};
use super::{NAME, Patience, YandexCloud};

const CLUSTER: &str = "kubernetes-io-cluster-shoot";
const ROLE: &str = "kubernetes-io-role-node";
const UID: &str = "machine-sapcloud-io-machine-uid";
const OWNER_LABEL: &str = "machine-sapcloud-io-owner";
/// The owner of the VMs.
const OWNER: &str = "team-a";
const USER_DATA: &str = "#!/bin/sh\nhunter2-hunter2\n";

/// A cloud, its URL and its driver.
struct World {
    yandex: server::Shared<YandexApi>,
    url: String,
    driver: CloudDriver<YandexCloud>,
}

impl World {
    async fn new() -> Self {
        let yandex = server::Fake::new(YandexApi::new());
        let url = server::serve(&yandex).await;
        Self { yandex, url, driver: driver(Duration::from_secs(20), unmeasured()) }
    }

    fn secret(&self) -> SecretData {
        secret(&[("endpointURL", &self.url)])
    }

    fn request_for(&self, name: &str, uid: &str, spec: Value) -> MachineRequest {
        kit::request(name, uid, class(spec), self.secret(), OWNER)
    }

    fn request(&self, name: &str) -> MachineRequest {
        self.request_for(name, &format!("uid-{name}"), spec())
    }

    /// Creates an instance that the driver did not create; returns its provider ID.
    fn put(&self, name: &str, labels: &[&str]) -> String {
        provider_id(&self.yandex.lock().cloud.put(name, labels))
    }

    /// Instances that are not being deleted.
    fn count(&self) -> usize {
        self.yandex.lock().cloud.alive().len()
    }

    fn calls(&self, name: &str) -> usize {
        self.yandex.lock().count(name)
    }

    fn fail(&self, call: &'static str, fault: server::Fault, times: usize) {
        self.yandex.lock().faults.push((call, fault, times));
    }

    /// Every request fits the messages of the API.
    fn assert_valid_requests(&self) {
        let yandex = self.yandex.lock();
        assert_eq!(yandex.cloud.violations, [""; 0]);
        assert_eq!(yandex.count("unknown"), 0);
    }
}

fn provider_id(id: &str) -> String {
    format!("yandex://{ZONE}/{id}")
}

fn unmeasured() -> RequestReporter {
    RequestReporter::for_provider(NAME, &DriverGuards::unobserved().observer)
}

/// A driver whose attempts of a call end after that time.
fn driver(attempt: Duration, requests: RequestReporter) -> CloudDriver<YandexCloud> {
    driver_that_settles(attempt, Duration::from_millis(400), requests)
}

/// The same; after a request without an answer it sends no other for some time.
fn driver_that_settles(attempt: Duration, settles: Duration, requests: RequestReporter) -> CloudDriver<YandexCloud> {
    let millis = Duration::from_millis;
    let limits = HttpLimits { attempt, call: attempt * 3, attempts: 2, pause: millis(1), slowest: 1000.0 };
    let pace = PollTiming { first: millis(5), longest: millis(20), total: millis(20_000) };
    let patience = Patience { window: millis(2), settles, pace };
    CloudDriver(YandexCloud::new(
        CloudAccess { limits, uses_proxy: false, secrets: secret_policy() },
        patience,
        requests,
    ))
}

/// A class with the fields that a class needs.
fn spec() -> Value {
    json!({
        "labels": {CLUSTER: "1", ROLE: "1", "pool": "workers"}, "zoneID": ZONE, "platformID": PLATFORMS[0],
        "resourcesSpec": {"cores": 2, "memory": 4_294_967_296_i64},
        "bootDiskSpec": {"autoDelete": true, "typeID": DISK_TYPE, "size": 53_687_091_200_i64, "imageID": IMAGE},
        "networkInterfaceSpecs": [{"subnetID": SUBNET, "assignPublicIPAddress": true}],
    })
}

/// `spec` with some fields replaced; `null` removes one.
fn spec_with(changes: &Value) -> Value {
    kit::profile::changed(spec(), changes)
}

fn class(spec: Value) -> MachineClass {
    kit::class(NAME, spec)
}

/// A Secret with a key, a folder and user data, and other values.
fn secret(values: &[(&str, &str)]) -> SecretData {
    let key = json!({"id": KEY_ID, "service_account_id": ACCOUNT, "private_key": PRIVATE_KEY}).to_string();
    let usual = [("userData", USER_DATA), ("folderID", FOLDER), ("serviceAccountJSON", &key)];
    let all = usual.into_iter().chain(values.iter().copied());
    SecretData(all.map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec())).collect())
}
