//! The driver against the wire format of ECS.

#[path = "../../../../tests/clouds/alicloud/fake.rs"]
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
    DriverGuards, MachineRequest, SecretData,
    cloud::{CloudAccess, CloudDriver, HttpLimits, PollTiming, RequestReporter},
    testing::{self as kit, code, secret, secret_policy, server, with_id},
};
use serde_json::{Value, json};

use self::fake::{Ecs, GROUP, IMAGE, KEY_ID, KEY_SECRET, REGION, SWITCH, TYPE, ZONE};
use super::{AlibabaCloud, NAME, Patience};

const CLUSTER: (&str, &str) = ("kubernetes.io/cluster/shoot", "1");
const ROLE: (&str, &str) = ("kubernetes.io/role/node", "1");
const UID_TAG: &str = "machine.sapcloud.io/machine-uid";
const OWNER_TAG: &str = "machine.sapcloud.io/owner";
/// The owner of the machines.
const OWNER: &str = "team-a";

/// A cloud, its URL and its driver.
struct World {
    ecs: server::Shared<Ecs>,
    url: String,
    driver: CloudDriver<AlibabaCloud>,
}

impl World {
    async fn new() -> Self {
        let ecs = server::Fake::new(Ecs::new());
        let url = server::serve(&ecs).await;
        let driver = driver(Duration::from_secs(20), unmeasured());
        Self { ecs, url, driver }
    }

    fn secret(&self) -> SecretData {
        secret(&[("alicloudAccessKeyID", KEY_ID), ("alicloudAccessKeySecret", KEY_SECRET), ("endpointURL", &self.url)])
    }

    fn request_for(&self, name: &str, uid: &str, spec: Value) -> MachineRequest {
        kit::request(name, uid, class(spec), self.secret(), OWNER)
    }

    fn request(&self, name: &str) -> MachineRequest {
        self.request_for(name, &format!("uid-{name}"), spec())
    }

    /// Creates a VM without the driver; returns its provider ID.
    fn put(&self, name: &str, tags: &[(&str, &str)]) -> String {
        format!("{REGION}.{}", self.ecs.lock().cloud.put(name, tags))
    }

    fn count(&self) -> usize {
        self.ecs.lock().cloud.alive().len()
    }

    fn calls(&self, name: &str) -> usize {
        self.ecs.lock().count(name)
    }

    fn fail(&self, call: &'static str, fault: server::Fault, times: usize) {
        self.ecs.lock().faults.push((call, fault, times));
    }

    /// Every request fits the description of the API.
    fn assert_valid_requests(&self) {
        let ecs = self.ecs.lock();
        assert_eq!(ecs.cloud.violations, [""; 0]);
        assert_eq!(ecs.count("unknown"), 0);
    }
}

fn unmeasured() -> RequestReporter {
    RequestReporter::for_provider(NAME, &DriverGuards::unobserved().observer)
}

/// A driver whose attempts of a call end after that time.
fn driver(attempt: Duration, requests: RequestReporter) -> CloudDriver<AlibabaCloud> {
    driver_that_waits(attempt, Duration::from_secs(60), requests)
}

/// The same; it gives a VM up that is not shown for so long.
fn driver_that_waits(attempt: Duration, lost: Duration, requests: RequestReporter) -> CloudDriver<AlibabaCloud> {
    let millis = Duration::from_millis;
    let limits = HttpLimits { attempt, call: attempt * 3, attempts: 3, pause: millis(1), slowest: 1000.0 };
    let pace = PollTiming { first: millis(2), longest: millis(10), total: millis(2000) };
    let access = CloudAccess { limits, uses_proxy: false, secrets: secret_policy() };
    CloudDriver(AlibabaCloud::new(access, Patience { window: millis(2), lost, pace }, requests))
}

/// A class of a VM in a VPC.
fn spec() -> Value {
    json!({
        "imageID": IMAGE, "instanceType": TYPE, "region": REGION, "zoneID": ZONE, "vSwitchID": SWITCH, "securityGroupID": GROUP,
        "tags": {CLUSTER.0: CLUSTER.1, ROLE.0: ROLE.1, "pool": "workers"},
    })
}

/// `spec` with some fields replaced; `null` removes one.
fn spec_with(changes: &Value) -> Value {
    kit::profile::changed(spec(), changes)
}

fn class(spec: Value) -> MachineClass {
    kit::class(NAME, spec)
}
