//! The driver against the wire format of metal-api.

#[path = "../../../../tests/clouds/metal_stack/fake.rs"]
mod fake;
mod faults;
mod flows;
mod inspect;
mod profile;
mod requests;
mod secrets;
mod suite;

use std::time::Duration;

use serde_json::{Value, json};

use self::fake::{BASE, HMAC, IMAGE, MetalApi, NETWORK, PARTITION, PROJECT, SIZE};
use super::{MetalStack, NAME, Patience};
use mcm_api::machine::MachineClass;
use mcm_driver::{
    MachineRequest, SecretData,
    cloud::{CloudAccess, CloudDriver, HttpLimits, RequestReporter},
    guard::DriverGuards,
    testing::{self as kit, code, secret, server, with_id},
};

const CLUSTER: &str = "cluster.metal-stack.io/id=shoot";
const UID_TAG: &str = "machine.sapcloud.io/machine-uid";
const OWNER_TAG: &str = "machine.sapcloud.io/owner";
/// The owner of the machines.
const OWNER: &str = "team-a";
/// Machines of the fake.
const MACHINES: usize = 20;

/// A cloud, its URL and its driver.
struct World {
    metal: server::Shared<MetalApi>,
    url: String,
    driver: CloudDriver<MetalStack>,
}

impl World {
    async fn new() -> Self {
        Self::with(MACHINES).await
    }

    async fn with(machines: usize) -> Self {
        let metal = server::Fake::new(MetalApi::new(machines));
        let url = server::serve(&metal).await + BASE;
        let driver = driver(Duration::from_secs(20), unmeasured());
        Self { metal, url, driver }
    }

    fn secret(&self) -> SecretData {
        secret(&[("metalAPIURL", &self.url), ("metalAPIHMac", HMAC)])
    }

    fn request_for(&self, name: &str, uid: &str, spec: Value) -> MachineRequest {
        kit::request(name, uid, class(spec), self.secret(), OWNER)
    }

    fn request(&self, name: &str) -> MachineRequest {
        self.request_for(name, &format!("uid-{name}"), spec())
    }

    /// Allocates a machine that the driver did not create; returns its provider ID.
    fn put(&self, name: &str, tags: &[&str]) -> String {
        let id = self.metal.lock().cloud.put(name, "machine", tags);
        format!("metal:///{PARTITION}/{id}")
    }

    fn count(&self) -> usize {
        self.metal.lock().cloud.allocations().len()
    }

    fn calls(&self, name: &str) -> usize {
        self.metal.lock().count(name)
    }

    fn fail(&self, call: &'static str, fault: server::Fault, times: usize) {
        self.metal.lock().faults.push((call, fault, times));
    }

    /// Every request fits the Swagger document.
    fn assert_valid_requests(&self) {
        let metal = self.metal.lock();
        assert_eq!(metal.cloud.violations, [""; 0]);
        assert_eq!(metal.count("unknown"), 0);
    }
}

fn unmeasured() -> RequestReporter {
    RequestReporter::for_provider(NAME, &DriverGuards::unobserved().observer)
}

/// A driver whose attempts of a call end after that time.
fn driver(attempt: Duration, requests: RequestReporter) -> CloudDriver<MetalStack> {
    driver_that_settles(attempt, Duration::from_millis(400), requests)
}

/// The same; after an allocation without an answer it sends no other for some time.
fn driver_that_settles(attempt: Duration, settles: Duration, requests: RequestReporter) -> CloudDriver<MetalStack> {
    let millis = Duration::from_millis;
    let limits = HttpLimits { attempt, call: attempt * 3, attempts: 2, pause: millis(1), slowest: 1000.0 };
    let patience = Patience { window: millis(2), settles, pause: millis(5), total: millis(2000) };
    CloudDriver(MetalStack::new(
        CloudAccess { limits, uses_proxy: false, secrets: kit::secret_policy() },
        patience,
        requests,
    ))
}

/// A class with the fields that a class needs.
fn spec() -> Value {
    json!({
        "partition": PARTITION, "size": SIZE, "image": IMAGE, "project": PROJECT, "network": NETWORK,
        "tags": [CLUSTER, "pool=workers"],
    })
}

/// `spec` with some fields replaced; `null` removes one.
fn spec_with(changes: &Value) -> Value {
    kit::profile::changed(spec(), changes)
}

fn class(spec: Value) -> MachineClass {
    kit::class(NAME, spec)
}
