//! The driver against the wire format of OpenStack.

mod capacity;
#[path = "../../../../tests/clouds/openstack/fake.rs"]
mod fake;
mod faults;
mod flows;
mod hand_over;
mod inspect;
mod parts;
mod pools;
mod profile;
mod real;
mod requests;
#[path = "../../../../tests/clouds/openstack/schema.rs"]
mod schema;
mod secrets;
mod suite;

use std::time::Duration;

use mcm_api::machine::MachineClass;
use mcm_driver::{
    DriverError, MachineRequest, SecretData,
    cloud::{CloudAccess, CloudDriver, HttpLimits, PollTiming, RequestReporter},
    guard::DriverGuards,
    interface::Driver,
    testing::{self as kit, code, secret, secret_policy, server, with_id},
};
use serde_json::{Value, json};

use self::fake::{
    DOMAIN, FLAVOR, GROUP, IMAGE, KEY_PAIR, NETWORK_ID, OpenStack, PASSWORD, PROJECT, REGION, SUBNET_ID, USER,
    VOLUME_TYPE, ZONE,
};
use super::{NAME, OpenStackServers, Patience};

const CLUSTER: (&str, &str) = ("kubernetes.io-cluster-shoot", "1");
const ROLE: (&str, &str) = ("kubernetes.io-role-node", "1");
const UID: &str = "machine.sapcloud.io-machine-uid";
const OWNER_KEY: &str = "machine.sapcloud.io-owner";
/// The owner of the machines.
const OWNER: &str = "team-a";

/// A cloud with its driver.
struct World {
    openstack: server::Shared<OpenStack>,
    url: String,
    driver: CloudDriver<OpenStackServers>,
}

impl World {
    async fn new() -> Self {
        let openstack = server::Fake::new(OpenStack::new());
        let url = server::serve(&openstack).await;
        openstack.lock().cloud.url.clone_from(&url);
        let driver = driver(Duration::from_secs(20), unmeasured());
        Self { openstack, url, driver }
    }

    fn auth_url(&self) -> String {
        format!("{}/identity/v3", self.url)
    }

    fn secret(&self) -> SecretData {
        secret(&credentials(&self.auth_url()))
    }

    fn request_for(&self, name: &str, uid: &str, spec: Value) -> MachineRequest {
        kit::request(name, uid, class(spec), self.secret(), OWNER)
    }

    fn request(&self, name: &str) -> MachineRequest {
        self.request_for(name, &format!("uid-{name}"), spec())
    }

    /// The request of a class with a port and a volume.
    fn request_with_parts(&self, name: &str) -> MachineRequest {
        self.request_for(name, &format!("uid-{name}"), spec_with_parts())
    }

    /// Creates a server that the driver did not create; returns its provider ID.
    fn put(&self, name: &str, metadata: &[(&str, &str)]) -> String {
        let id = self.openstack.lock().cloud.put(name, metadata);
        format!("openstack:///{REGION}/{id}")
    }

    fn count(&self) -> usize {
        self.openstack.lock().cloud.existing().len()
    }

    /// Numbers of servers, of ports that mcm has to delete, and of volumes.
    fn counts(&self) -> (usize, usize, usize) {
        let openstack = self.openstack.lock();
        let cloud = &openstack.cloud;
        let ports = cloud.ports.values().filter(|port| !port.name.is_empty()).count();
        (cloud.existing().len(), ports, cloud.volumes.len())
    }

    fn calls(&self, name: &str) -> usize {
        self.openstack.lock().count(name)
    }

    fn fail(&self, call: &'static str, fault: server::Fault, times: usize) {
        self.openstack.lock().faults.push((call, fault, times));
    }

    /// Every request fits the schemas.
    fn assert_valid_requests(&self) {
        let openstack = self.openstack.lock();
        assert_eq!(openstack.cloud.violations, [""; 0]);
        assert_eq!(openstack.count("unknown"), 0);
    }
}

fn unmeasured() -> RequestReporter {
    RequestReporter::for_provider(NAME, &DriverGuards::unobserved().observer)
}

/// A driver whose attempts of a call end after that time.
fn driver(attempt: Duration, requests: RequestReporter) -> CloudDriver<OpenStackServers> {
    driver_that_settles(attempt, Duration::from_millis(400), requests)
}

/// The same; after a request without an answer it sends no other for some time.
fn driver_that_settles(
    attempt: Duration,
    settles: Duration,
    requests: RequestReporter,
) -> CloudDriver<OpenStackServers> {
    let millis = Duration::from_millis;
    let limits = HttpLimits { attempt, call: attempt * 3, attempts: 2, pause: millis(1), slowest: 1000.0 };
    let pace = PollTiming { first: millis(5), longest: millis(5), total: millis(3000) };
    let patience = Patience { window: millis(2), settles, pace, discard: pace, again: millis(30) };
    CloudDriver(OpenStackServers::new(
        CloudAccess { limits, uses_proxy: false, secrets: secret_policy() },
        patience,
        requests,
    ))
}

/// Stores the state of an error in the Machine, as controllers do.
fn store(request: &mut MachineRequest, error: &DriverError) {
    *request = mcm_driver::testing::suite::with_state(request.clone(), error.last_known_state.as_deref());
}

/// The request of a caller that may pause, after the driver has announced its creation.
async fn announced(driver: &dyn Driver, request: MachineRequest) -> MachineRequest {
    let mut request = MachineRequest { may_pause: true, ..request };
    let paused = driver.create(&request).await.unwrap_err();
    assert!(paused.call_again_in.is_some() && paused.last_known_state.is_some(), "{paused}");
    store(&mut request, &paused);
    request
}

/// A class with the fields that a class needs.
fn spec() -> Value {
    json!({
        "apiVersion": "openstack.machine.gardener.cloud/v1alpha1", "kind": "MachineProviderConfig",
        "spec": {
            "imageName": IMAGE, "region": REGION, "availabilityZone": ZONE, "flavorName": FLAVOR, "keyName": KEY_PAIR,
            "networkID": NETWORK_ID, "podNetworkCIDRs": ["10.96.0.0/11"], "securityGroups": [GROUP],
            "tags": {CLUSTER.0: CLUSTER.1, ROLE.0: ROLE.1, "pool": "workers"},
        },
    })
}

/// `spec` with some fields replaced; `null` removes one.
fn spec_with(changes: &Value) -> Value {
    let mut spec = spec();
    spec["spec"] = kit::profile::changed(spec["spec"].take(), changes);
    spec
}

/// A class that gets a port and a volume before its server.
fn spec_with_parts() -> Value {
    spec_with(&json!({"subnetIDs": [SUBNET_ID], "rootDiskSize": 50, "rootDiskType": VOLUME_TYPE}))
}

fn class(spec: Value) -> MachineClass {
    kit::class(NAME, spec)
}

fn credentials(auth_url: &str) -> [(&str, &str); 5] {
    [("authURL", auth_url), ("username", USER), ("password", PASSWORD), ("domainName", DOMAIN), ("tenantName", PROJECT)]
}
