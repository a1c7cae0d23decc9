//! The driver against EC2's wire format.

mod bootstrap;
mod bundle;
mod capacity;
mod conformance;
mod fake;
mod fake_secrets;
mod faults;
mod flows;
mod gardener;
mod images;
mod inspect;
mod metrics;
mod recorded;
mod requests;
mod suite;
mod target_groups;
mod templates;
mod user_data_store;

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use serde_json::{Value, json};

use self::fake::{Cloud, Shared, serve};
use super::{AwsCloud, NAME, Patience, accounts::Access};
use mcm_api::machine::MachineClass;
use mcm_driver::testing::{self, code, with_id};
use mcm_driver::{
    DriverObserver, MachineRequest, SecretData,
    cloud::{CloudDriver, HttpLimits, RequestReporter},
    guard::DriverGuards,
};

const REGION: &str = "eu-west-1";

/// A cloud and its driver.
async fn start() -> (Shared, CloudDriver<AwsCloud>) {
    let (cloud, url) = start_cloud().await;
    (cloud, driver(&url))
}

async fn start_cloud() -> (Shared, String) {
    let cloud: Shared = Arc::new(Mutex::new(Cloud::default()));
    let url = serve(&cloud).await;
    (cloud, url)
}

fn driver(url: &str) -> CloudDriver<AwsCloud> {
    driver_that_waits(url, Duration::from_secs(20))
}

/// A driver whose calls end after that time.
fn driver_that_waits(url: &str, attempt: Duration) -> CloudDriver<AwsCloud> {
    driver_with(url, attempt, DriverGuards::unobserved().observer)
}

/// A driver whose requests are observed.
fn observed_driver(url: &str, observer: Arc<dyn DriverObserver>) -> CloudDriver<AwsCloud> {
    driver_with(url, Duration::from_secs(20), observer)
}

fn limits(attempt: Duration) -> HttpLimits {
    HttpLimits { attempt, call: attempt * 3, attempts: 2, pause: Duration::from_millis(1), slowest: 1000.0 }
}

fn driver_with(url: &str, attempt: Duration, observer: Arc<dyn DriverObserver>) -> CloudDriver<AwsCloud> {
    driver_within(url, limits(attempt), observer)
}

fn driver_within(url: &str, limits: HttpLimits, observer: Arc<dyn DriverObserver>) -> CloudDriver<AwsCloud> {
    let requests = RequestReporter::for_provider(NAME, &observer);
    CloudDriver(AwsCloud::new(access(url, limits), PATIENCE, requests))
}

fn access(url: &str, limits: HttpLimits) -> Access {
    let url = || Some(url.to_owned());
    Access {
        endpoint: url(),
        sts_endpoint: url(),
        load_balancer_endpoint: url(),
        secrets_manager_endpoint: url(),
        limits,
        secrets: testing::secret_policy(),
        ..Access::default()
    }
}

const PATIENCE: Patience = Patience {
    window: Duration::from_millis(2),
    mismatch: Duration::from_millis(200),
    shutdown: Duration::from_millis(10),
    first: Duration::from_millis(2),
    longest: Duration::from_millis(10),
    total: Duration::from_millis(2000),
};

/// A class with the fields that a class needs.
fn spec() -> Value {
    json!({
        "ami": "ami-1", "region": REGION, "machineType": "m5.large", "iam": {"name": "node"},
        "blockDevices": [{"ebs": {"volumeType": "gp3", "volumeSize": 50}}],
        "networkInterfaces": [{"subnetID": "subnet-1", "securityGroupIDs": ["sg-1"]}],
        "tags": {"kubernetes.io/cluster/shoot": "1", "kubernetes.io/role/node": "1"},
    })
}

/// `spec` with some fields replaced; `null` removes one.
fn spec_with(changes: &Value) -> Value {
    let mut spec = spec();
    for (key, value) in changes.as_object().unwrap() {
        spec[key] = value.clone();
    }
    spec
}

fn class(spec: Value) -> MachineClass {
    testing::class("AWS", spec)
}

fn secret() -> SecretData {
    let data = [
        ("providerAccessKeyId", "AKIDEXAMPLE"),
        ("providerSecretAccessKey", "top-secret-key"),
        ("userData", "#!/bin/sh\necho hunter2-hunter2"),
    ];
    SecretData(data.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect())
}

/// Owner of the VMs.
const OWNER: &str = "team-a";

fn request_for(name: &str, uid: &str, spec: Value) -> MachineRequest {
    testing::request(name, uid, class(spec), secret(), OWNER)
}

fn request(name: &str) -> MachineRequest {
    request_for(name, &format!("uid-{name}"), spec())
}
