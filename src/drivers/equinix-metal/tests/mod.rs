//! The driver against the wire format of the API.

#[path = "../../../../tests/clouds/equinix_metal/fake.rs"]
mod fake;
mod faults;
mod flows;
mod inspect;
mod profile;
mod requests;
mod secrets;
mod suite;

use std::time::Duration;

use mcm_api::machine::MachineClass;
use mcm_driver::{
    MachineRequest, SecretData,
    cloud::{CloudAccess, CloudDriver, HttpLimits, PollTiming, RequestReporter},
    guard::DriverGuards,
    testing::{self as kit, code, secret, server, with_id},
};
use serde_json::{Value, json};

use self::fake::{BASE, METRO, MetalApi, PLAN, PROJECT, SYSTEM, TOKEN};
use super::{EquinixMetal, NAME, Patience};

const CLUSTER: &str = "kubernetes.io/cluster/shoot: 1";
const ROLE: &str = "kubernetes.io/role/node: 1";
const UID_TAG: &str = "machine.sapcloud.io/machine-uid";
const OWNER_TAG: &str = "machine.sapcloud.io/owner";
/// The owner of the devices.
const OWNER: &str = "team-a";
/// Servers of the fake.
const SERVERS: usize = 20;

/// A cloud, its URL and its driver.
struct World {
    metal: server::Shared<MetalApi>,
    url: String,
    driver: CloudDriver<EquinixMetal>,
}

impl World {
    async fn new() -> Self {
        Self::with(SERVERS).await
    }

    async fn with(servers: usize) -> Self {
        let metal = server::Fake::new(MetalApi::new(servers));
        let url = server::serve(&metal).await + BASE;
        let driver = driver(Duration::from_secs(20), unmeasured());
        Self { metal, url, driver }
    }

    fn secret(&self) -> SecretData {
        secret(&[("endpointURL", &self.url), ("apiToken", TOKEN)])
    }

    fn request_for(&self, name: &str, uid: &str, spec: Value) -> MachineRequest {
        kit::request(name, uid, class(spec), self.secret(), OWNER)
    }

    fn request(&self, name: &str) -> MachineRequest {
        self.request_for(name, &format!("uid-{name}"), spec())
    }

    /// Creates a device without the driver; returns its provider ID.
    fn put(&self, name: &str, tags: &[&str]) -> String {
        provider_id(&self.metal.lock().cloud.put(name, tags))
    }

    fn count(&self) -> usize {
        self.metal.lock().cloud.present().len()
    }

    fn calls(&self, name: &str) -> usize {
        self.metal.lock().count(name)
    }

    fn fail(&self, call: &'static str, fault: server::Fault, times: usize) {
        self.metal.lock().faults.push((call, fault, times));
    }

    /// Every request fits the OpenAPI document.
    fn assert_valid_requests(&self) {
        let metal = self.metal.lock();
        assert_eq!(metal.cloud.violations, [""; 0]);
        assert_eq!(metal.count("unknown"), 0);
    }
}

fn provider_id(device: &str) -> String {
    format!("equinixmetal://{METRO}/{device}")
}

fn unmeasured() -> RequestReporter {
    RequestReporter::for_provider(NAME, &DriverGuards::unobserved().observer)
}

/// A driver whose attempts of a call end after that time.
fn driver(attempt: Duration, requests: RequestReporter) -> CloudDriver<EquinixMetal> {
    driver_that_settles(attempt, Duration::from_millis(400), requests)
}

/// The same; after a creation without an answer it sends no other for some time.
fn driver_that_settles(attempt: Duration, settles: Duration, requests: RequestReporter) -> CloudDriver<EquinixMetal> {
    let millis = Duration::from_millis;
    let limits = HttpLimits { attempt, call: attempt * 3, attempts: 2, pause: millis(1), slowest: 1000.0 };
    let leaving = PollTiming { first: millis(5), longest: millis(5), total: millis(3000) };
    let patience = Patience { window: millis(2), settles, leaving };
    CloudDriver(EquinixMetal::new(
        CloudAccess { limits, uses_proxy: false, secrets: kit::secret_policy() },
        patience,
        requests,
    ))
}

/// A class with the fields that a class needs.
fn spec() -> Value {
    json!({
        "metro": METRO, "machineType": PLAN, "OS": SYSTEM, "projectID": PROJECT, "billingCycle": "hourly",
        "tags": [CLUSTER, ROLE, "pool: workers"],
    })
}

/// `spec` with some fields replaced; `null` removes one.
fn spec_with(changes: &Value) -> Value {
    kit::profile::changed(spec(), changes)
}

fn class(spec: Value) -> MachineClass {
    kit::class(NAME, spec)
}
