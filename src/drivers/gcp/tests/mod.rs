//! The driver against the wire format of Compute Engine.

mod bootstrap;
mod capacity;
#[path = "../../../../tests/clouds/gcp/fake/mod.rs"]
mod fake;
mod faults;
mod flows;
mod inspect;
mod instance_groups;
mod pauses;
mod profile;
mod recorded;
mod requests;
mod secrets;
mod suite;

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use serde_json::{Value, json};

use self::fake::{EMAIL, Gce, PRIVATE_KEY, PROJECT, Shared, serve};
use super::{GcpCloud, NAME, Patience, access::Access};
use mcm_api::machine::MachineClass;
use mcm_driver::testing::{self, code, with_id};
use mcm_driver::{
    MachineRequest, SecretData,
    cloud::{CloudDriver, HttpLimits, PollTiming, RequestReporter},
    guard::DriverGuards,
};

const ZONE: &str = "europe-west1-b";
const CLUSTER: &str = "kubernetes-io-cluster-shoot";
const ROLE: &str = "kubernetes-io-role-node";
const UID_LABEL: &str = "machine-sapcloud-io-machine-uid";

const OWNER_LABEL: &str = "machine-sapcloud-io-owner";
/// Owner of the VMs.
const OWNER: &str = "team-a";

/// A cloud, its URL and its driver.
struct World {
    gce: Shared,
    url: String,
    driver: CloudDriver<GcpCloud>,
}

impl World {
    async fn new() -> Self {
        let gce: Shared = Arc::new(Mutex::new(Gce::new(None)));
        let url = serve(&gce).await;
        let driver = driver(&url, Duration::from_secs(20));
        Self { gce, url, driver }
    }

    fn secret(&self) -> SecretData {
        secret(&self.url)
    }

    fn request_for(&self, name: &str, uid: &str, spec: Value) -> MachineRequest {
        testing::request(name, uid, class(spec), self.secret(), OWNER)
    }

    fn request(&self, name: &str) -> MachineRequest {
        self.request_for(name, &format!("uid-{name}"), spec())
    }

    /// Puts a VM of the class into the cloud that the driver did not create.
    fn put(&self, name: &str, status: &str) {
        self.gce.lock().put(ZONE, name, &[CLUSTER, ROLE], &json!({}), status);
    }

    fn put_for(&self, name: &str, uid: &str) {
        self.gce.lock().put(ZONE, name, &[CLUSTER, ROLE], &json!({ UID_LABEL: uid }), "RUNNING");
    }

    fn inserts_and_vms(&self) -> (usize, usize) {
        let gce = self.gce.lock();
        (gce.inserts, gce.vms.len())
    }

    fn count(&self) -> usize {
        self.gce.lock().vms.len()
    }
}

fn unmeasured() -> RequestReporter {
    RequestReporter::for_provider(NAME, &DriverGuards::unobserved().observer)
}

/// A driver whose attempts of a call end after that time.
fn driver(url: &str, attempt: Duration) -> CloudDriver<GcpCloud> {
    measured_driver(url, attempt, unmeasured())
}

fn measured_driver(url: &str, attempt: Duration, requests: RequestReporter) -> CloudDriver<GcpCloud> {
    let millis = Duration::from_millis;
    let pace = PollTiming { first: millis(2), longest: millis(10), total: millis(6000) };
    CloudDriver(GcpCloud::new(access(url, attempt), Patience { window: millis(2), pace }, requests))
}

fn access(url: &str, attempt: Duration) -> Access {
    Access {
        compute: format!("{url}/compute/v1/"),
        sts: format!("{url}/v1/token"),
        iam: url.to_owned(),
        accounts: url.to_owned(),
        uses_proxy: false,
        limits: HttpLimits {
            attempt,
            call: attempt * 3,
            attempts: 2,
            pause: Duration::from_millis(1),
            slowest: 1000.0,
        },
        secrets: testing::secret_policy(),
    }
}

/// A class with the fields that a class needs.
fn spec() -> Value {
    json!({
        "region": "europe-west1", "zone": ZONE, "machineType": "n2-standard-2",
        "disks": [{"boot": true, "sizeGb": 50, "type": "pd-ssd", "image": "projects/os/global/images/os-1"}],
        "networkInterfaces": [{"subnetwork": "nodes"}],
        "scheduling": {"automaticRestart": true, "onHostMaintenance": "MIGRATE"},
        "tags": [CLUSTER, ROLE],
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
    testing::class(NAME, spec)
}

fn secret(url: &str) -> SecretData {
    let account = json!({
        "type": "service_account", "project_id": PROJECT, "client_email": EMAIL, "private_key_id": "key-1",
        "private_key": PRIVATE_KEY, "token_uri": format!("{url}/token"),
    });
    let account = account.to_string();
    let data = [("serviceAccountJSON", account.as_str()), ("userData", "#!/bin/sh\nhunter2-hunter2")];
    SecretData(data.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect())
}

fn with_state(mut request: MachineRequest, state: Option<String>) -> MachineRequest {
    let machine = Arc::make_mut(&mut request.machine);
    machine.status.get_or_insert_default().last_known_state = state.unwrap_or_default();
    request
}
