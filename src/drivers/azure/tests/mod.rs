//! The driver against the wire format of Azure.

mod capacity;
#[path = "../../../../tests/clouds/azure/fake.rs"]
mod fake;
mod faults;
mod flows;
mod gardener;
mod inspect;
mod looks;
mod profile;
mod requests;
mod secrets;
mod suite;

use std::time::Duration;

use mcm_api::machine::MachineClass;
use mcm_driver::{
    DriverGuards, MachineRequest, SecretData,
    cloud::{CloudAccess, CloudDriver, HttpLimits, PollTiming, RequestReporter},
    testing::{self as kit, code, secret, server, with_id},
};
use serde_json::{Value, json};

use self::fake::{Arm, CLIENT, CLIENT_SECRET, GROUP, IMAGE, LOCATION, SIZE, SUBNET, SUBSCRIPTION, TENANT, VNET};
use super::{AzureVms, NAME};

const CLUSTER: &str = "kubernetes.io-cluster-shoot";
const ROLE: &str = "kubernetes.io-role-node";
const UID_TAG: &str = "machine.sapcloud.io-machine-uid";
const OWNER_TAG: &str = "machine.sapcloud.io-owner";
/// The owner of the machines.
const OWNER: &str = "team-a";

/// A cloud, its URL and its driver.
struct World {
    arm: server::Shared<Arm>,
    url: String,
    driver: CloudDriver<AzureVms>,
}

impl World {
    async fn new() -> Self {
        let arm = server::Fake::new(Arm::new());
        let url = server::serve(&arm).await;
        let driver = driver(Duration::from_secs(20), unmeasured());
        Self { arm, url, driver }
    }

    /// The values of a Secret with valid credentials.
    fn values(&self) -> Vec<(&str, &str)> {
        vec![
            ("tenantID", TENANT),
            ("clientID", CLIENT),
            ("subscriptionID", SUBSCRIPTION),
            ("clientSecret", CLIENT_SECRET),
            ("endpointURL", &self.url),
            ("authorityURL", &self.url),
        ]
    }

    fn secret(&self) -> SecretData {
        secret(&self.values())
    }

    fn request_for(&self, name: &str, uid: &str, spec: Value) -> MachineRequest {
        kit::request(name, uid, class(spec), self.secret(), OWNER)
    }

    fn request(&self, name: &str) -> MachineRequest {
        self.request_for(name, &format!("uid-{name}"), spec())
    }

    /// Creates a VM that the driver did not create; returns its provider ID.
    fn put(&self, name: &str, tags: &Value) -> String {
        self.arm.lock().cloud.put(name, tags);
        id_of(name)
    }

    fn count(&self) -> usize {
        self.arm.lock().cloud.vms().len()
    }

    /// VMs, network interfaces and disks.
    fn counts(&self) -> (usize, usize, usize) {
        let arm = self.arm.lock();
        (arm.cloud.vms().len(), arm.cloud.nics().len(), arm.cloud.disks().len())
    }

    fn calls(&self, name: &str) -> usize {
        self.arm.lock().count(name)
    }

    fn fail(&self, call: &'static str, fault: server::Fault, times: usize) {
        self.arm.lock().faults.push((call, fault, times));
    }

    /// Every request fits the definitions, and no existing VM was changed.
    fn assert_valid_requests(&self) {
        let arm = self.arm.lock();
        assert_eq!(arm.cloud.violations, [""; 0]);
        assert_eq!((arm.count("unknown"), arm.cloud.changed), (0, 0));
    }
}

fn unmeasured() -> RequestReporter {
    RequestReporter::for_provider(NAME, &DriverGuards::unobserved().observer)
}

/// A driver whose attempts of a call end after that time.
fn driver(attempt: Duration, requests: RequestReporter) -> CloudDriver<AzureVms> {
    let millis = Duration::from_millis;
    let limits = HttpLimits { attempt, call: attempt * 3, attempts: 2, pause: millis(1), slowest: 1000.0 };
    let pace = PollTiming { first: millis(2), longest: millis(5), total: millis(5000) };
    driver_of(limits, pace, requests)
}

fn driver_of(limits: HttpLimits, pace: PollTiming, requests: RequestReporter) -> CloudDriver<AzureVms> {
    CloudDriver(AzureVms::new(CloudAccess { limits, uses_proxy: false, secrets: kit::secret_policy() }, pace, requests))
}

/// A class with the fields that a class needs.
fn spec() -> Value {
    json!({
        "location": LOCATION, "resourceGroup": GROUP, "tags": {CLUSTER: "1", ROLE: "1", "pool": "workers"},
        "subnetInfo": {"vnetName": VNET, "subnetName": SUBNET},
        "properties": {
            "hardwareProfile": {"vmSize": SIZE},
            "osProfile": {
                "adminUsername": "core",
                "linuxConfiguration": {
                    "disablePasswordAuthentication": true,
                    "ssh": {"publicKeys": {"path": "/home/core/.ssh/authorized_keys", "keyData": "ssh-rsa AAAA"}},
                },
            },
            "storageProfile": {
                "imageReference": {"id": IMAGE},
                "osDisk": {"caching": "None", "diskSizeGB": 50, "createOption": "FromImage", "managedDisk": {"storageAccountType": "Premium_LRS"}},
            },
            "zone": 1,
        },
    })
}

/// `spec` with some values replaced, by their path; `null` removes one.
fn spec_with(changes: &[(&str, Value)]) -> Value {
    let mut spec = spec();
    for (path, value) in changes {
        let mut at = &mut spec;
        for part in path.split('.') {
            at = &mut at[part];
        }
        *at = value.clone();
    }
    spec
}

/// The tags of a class of another cluster.
fn of_cluster(cluster: &str) -> Value {
    json!({format!("kubernetes.io-cluster-{cluster}"): "1", ROLE: "1"})
}

fn class(spec: Value) -> MachineClass {
    kit::class(NAME, spec)
}

fn id_of(name: &str) -> String {
    format!("azure:///{LOCATION}/{name}")
}
