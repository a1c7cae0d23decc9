//! The driver against the wire format of an API server.

#[path = "../../../../tests/clouds/kubevirt/fake.rs"]
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

use self::fake::{Kubernetes, NAMESPACE, REGION, TOKEN, ZONE};
use super::{KubevirtVms, NAME, Patience};

const CLUSTER: &str = "mcm.gardener.cloud/cluster";
const ROLE: &str = "mcm.gardener.cloud/role";
const UID_LABEL: &str = "machine.sapcloud.io/machine-uid";
const OWNER_LABEL: &str = "machine.sapcloud.io/owner";
/// The owner of the VMs.
const OWNER: &str = "team-a";

/// A cluster, its URL and its driver.
struct World {
    kubernetes: server::Shared<Kubernetes>,
    url: String,
    driver: CloudDriver<KubevirtVms>,
}

impl World {
    async fn new() -> Self {
        let kubernetes = server::Fake::new(Kubernetes::new());
        let url = server::serve(&kubernetes).await;
        Self { kubernetes, url, driver: driver(Duration::from_secs(20), unmeasured()) }
    }

    fn secret(&self) -> SecretData {
        self.secret_with(&json!({"token": TOKEN}))
    }

    fn secret_with(&self, user: &Value) -> SecretData {
        secret(&[("kubeconfig", &kubeconfig_of(&self.url, &json!({}), user))])
    }

    fn request_for(&self, name: &str, uid: &str, spec: Value) -> MachineRequest {
        kit::request(name, uid, class(spec), self.secret(), OWNER)
    }

    fn request(&self, name: &str) -> MachineRequest {
        self.request_for(name, &format!("uid-{name}"), spec())
    }

    /// Creates a VM that the driver did not create; returns its provider ID.
    fn put(&self, name: &str, labels: &Value) -> String {
        self.kubernetes.lock().cloud.put(name, labels);
        format!("kubevirt://{name}")
    }

    fn count(&self) -> usize {
        self.kubernetes.lock().cloud.alive().len()
    }

    fn secrets(&self) -> usize {
        self.kubernetes.lock().cloud.secrets.len()
    }

    fn calls(&self, name: &str) -> usize {
        self.kubernetes.lock().count(name)
    }

    fn fail(&self, call: &'static str, fault: server::Fault, times: usize) {
        self.kubernetes.lock().faults.push((call, fault, times));
    }

    /// Every request fits the OpenAPI document.
    fn assert_valid_requests(&self) {
        let kubernetes = self.kubernetes.lock();
        assert_eq!(kubernetes.cloud.violations, [""; 0]);
        assert_eq!(kubernetes.count("unknown"), 0);
    }
}

fn unmeasured() -> RequestReporter {
    RequestReporter::for_provider(NAME, &DriverGuards::unobserved().observer)
}

/// A driver whose attempts of a call end after that time.
fn driver(attempt: Duration, requests: RequestReporter) -> CloudDriver<KubevirtVms> {
    driver_that_settles(attempt, Duration::from_millis(400), requests)
}

/// The same; after a creation without an answer it sends no other for some time.
fn driver_that_settles(attempt: Duration, settles: Duration, requests: RequestReporter) -> CloudDriver<KubevirtVms> {
    let millis = Duration::from_millis;
    let limits = HttpLimits { attempt, call: attempt * 3, attempts: 2, pause: millis(1), slowest: 1000.0 };
    // The times of objects are whole seconds, so the age of a VM is up to a second too high.
    let pace = PollTiming { first: millis(2), longest: millis(5), total: millis(5000) };
    let patience = Patience { window: millis(2), settles, pace };
    CloudDriver(KubevirtVms::new(
        CloudAccess { limits, uses_proxy: false, secrets: kit::secret_policy() },
        patience,
        requests,
    ))
}

/// A class with the fields that a class needs.
pub(crate) fn spec() -> Value {
    json!({
        "region": REGION, "zone": ZONE, "resources": {"requests": {"cpu": "2", "memory": "4Gi"}},
        "rootVolume": {
            "pvc": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "20Gi"}}},
            "source": {"http": {"url": "https://images.example.com/a.img"}},
        },
        "tags": {CLUSTER: "shoot", ROLE: "node", "pool": "workers"},
    })
}

/// `spec` with some fields replaced; `null` removes one.
pub(crate) fn spec_with(changes: &Value) -> Value {
    kit::profile::changed(spec(), changes)
}

fn class(spec: Value) -> MachineClass {
    kit::class(NAME, spec)
}

/// A kubeconfig with further keys of its cluster and its user.
pub(crate) fn kubeconfig_of(server: &str, cluster: &Value, user: &Value) -> String {
    let mut cluster = cluster.clone();
    cluster["server"] = server.into();
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "vms",
        "clusters": [{"name": "outer", "cluster": cluster}],
        "users": [{"name": "mcm", "user": user}],
        "contexts": [{"name": "vms", "context": {"cluster": "outer", "user": "mcm", "namespace": NAMESPACE}}],
    })
    .to_string()
}
