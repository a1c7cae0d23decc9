//! The driver against a simulator of vCenter.

mod client;
mod faults;
mod flows;
mod inspect;
mod profile;
mod requests;
mod secrets;
mod suite;
#[allow(dead_code, reason = "tests on a control plane use the rest")]
#[path = "../../../../tests/clouds/vsphere/vcenter.rs"]
mod vcenter;

use std::time::Duration;

use mcm_api::machine::MachineClass;
use mcm_driver::{
    MachineRequest, SecretData,
    cloud::{CloudAccess, CloudDriver, HttpLimits, PollTiming, RequestReporter},
    guard::DriverGuards,
    testing::{self as kit, code, secret, server::Fault, with_id},
};
use serde_json::{Value, json};

use self::vcenter::{Options, PASSWORD, USER, VCenter, Vm};
use super::{NAME, Patience, VsphereVms, user_data::ConsolePasswords};

const CLUSTER: (&str, &str) = ("mcm.gardener.cloud/cluster", "shoot");
const ROLE: (&str, &str) = ("mcm.gardener.cloud/role", "node");
const UID: &str = "machine.sapcloud.io/machine-uid";
const ID_FIELD: &str = "machine.sapcloud.io/provider-id";
const OWNER_FIELD: &str = "machine.sapcloud.io/owner";
/// The owner of the machines.
const OWNER: &str = "team-a";

/// A vCenter and its driver.
struct World {
    vcenter: VCenter,
    driver: CloudDriver<VsphereVms>,
    /// Prefix of the names of its VMs, where cases share a vCenter.
    case: String,
}

impl World {
    async fn new() -> Self {
        Self::with(Options::default()).await
    }

    async fn with(options: Options) -> Self {
        Self {
            vcenter: VCenter::start(options).await,
            driver: driver(Duration::from_secs(20), unmeasured()),
            case: String::new(),
        }
    }

    fn secret(&self) -> SecretData {
        secret(&[
            ("vsphereHost", &self.vcenter.host),
            ("vsphereUsername", USER),
            ("vspherePassword", PASSWORD),
            ("vsphereInsecureSSL", "true"),
        ])
    }

    fn request_for(&self, name: &str, uid: &str, spec: Value) -> MachineRequest {
        kit::request(name, uid, class(spec), self.secret(), OWNER)
    }

    fn request(&self, name: &str) -> MachineRequest {
        self.request_for(name, &format!("uid-{name}"), spec())
    }

    /// Creates a VM that the driver did not create; returns its provider ID.
    fn put(&self, name: &str, fields: &[(&str, &str)]) -> String {
        format!("vsphere://eu/{}", self.vcenter.create(name, fields, false))
    }

    fn vm(&self, name: &str) -> Vm {
        self.vcenter.vms().into_iter().find(|vm| vm.name == name).unwrap()
    }

    fn count(&self) -> usize {
        self.vcenter.vms().len()
    }

    fn calls(&self, name: &str) -> usize {
        self.vcenter.settings.lock().count(name)
    }

    /// How often each call was made since the last time.
    fn take_calls(&self) -> Vec<String> {
        let log = std::mem::take(&mut self.vcenter.settings.lock().log);
        log.into_iter().map(|(call, _)| call).filter(|call| call != "task").collect()
    }

    fn fail(&self, call: &'static str, fault: Fault, times: usize) {
        self.vcenter.settings.lock().faults.push((call, fault, times));
    }
}

fn unmeasured() -> RequestReporter {
    RequestReporter::for_provider(NAME, &DriverGuards::unobserved().observer)
}

/// A driver whose attempts of a call end after that time.
fn driver(attempt: Duration, requests: RequestReporter) -> CloudDriver<VsphereVms> {
    driver_that_settles(attempt, Duration::from_millis(400), requests)
}

/// The same; after a clone without an answer it sends no other for some time.
fn driver_that_settles(attempt: Duration, settles: Duration, requests: RequestReporter) -> CloudDriver<VsphereVms> {
    let millis = Duration::from_millis;
    let limits = HttpLimits { attempt, call: attempt * 3, attempts: 2, pause: millis(1), slowest: 1000.0 };
    let pace = PollTiming { first: millis(5), longest: millis(50), total: millis(20_000) };
    let patience = Patience { window: millis(2), settles, clone: pace, change: pace, destroy: pace, address: pace };
    let access = CloudAccess { limits, uses_proxy: false, secrets: kit::secret_policy() };
    CloudDriver(VsphereVms::new(access, ConsolePasswords::default(), patience, requests))
}

/// A class with the fields that a class needs.
fn spec() -> Value {
    json!({
        "region": "eu", "datacenter": "DC0", "datastore": "LocalDS_0", "resourcePool": "DC0_C0/Resources", "folder": "workers",
        "templateVM": "template", "network": "DC0_DVPG0",
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
