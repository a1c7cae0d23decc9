//! The driver on the services of OpenStack themselves, with Nova's fake hypervisor. `hack/openstack` starts them.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use futures::future::join_all;
use mcm_api::load_balancer::{LoadBalancer, Pool};
use mcm_driver::{
    Code, MachineRequest, SecretData,
    cloud::{HttpLimits, PollTiming},
    conformance::{ConformanceOutcome, ConformanceSubject, run},
    inspection::ResourcePresence,
    interface::Driver,
    testing::secret_policy,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{CLUSTER, OWNER, ROLE, class, code, secret, store, unmeasured, with_id};
use crate::{OpenStackServers, Patience};
use mcm_driver::cloud::{CloudAccess, CloudDriver, CloudOperations};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../hack/openstack/openstack");
/// Machines that are created at the same time. The quota of a project is ten servers.
const MACHINES: usize = 8;

/// Names a file with the line that the program printed: its services are used, and none are started.
const RUNNING: &str = "OPENSTACK_SERVICES";

/// The services, until this is dropped.
struct Services {
    started: Option<(Child, TempDir)>,
    facts: Value,
}

impl Services {
    fn start() -> Self {
        if let Some(file) = std::env::var_os(RUNNING) {
            let facts = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
            return Self { started: None, facts };
        }
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(PROGRAM);
        command.arg("run").arg(folder.path().join("run")).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let facts = serde_json::from_str(&line).expect("the services start");
        Self { started: Some((child, folder)), facts }
    }

    fn fact(&self, name: &str) -> &str {
        self.facts[name].as_str().unwrap()
    }

    fn secret(&self) -> SecretData {
        let keys = ["authURL", "username", "password", "domainName", "tenantName"];
        secret(&keys.map(|key| (key, self.fact(key))))
    }

    fn spec(&self, changes: &Value) -> Value {
        let mut spec = json!({
            "imageName": "gardenlinux", "region": self.fact("region"), "availabilityZone": "nova", "flavorName": "m1.small",
            "keyName": "operator", "networkID": self.fact("networkID"), "podNetworkCIDRs": ["10.96.0.0/11", "fd00::/48"],
            "securityGroups": ["shoot-group"], "tags": {CLUSTER.0: CLUSTER.1, ROLE.0: ROLE.1, "pool": "workers"},
        });
        for (key, value) in changes.as_object().unwrap() {
            spec[key] = value.clone();
        }
        json!({
            "apiVersion": "openstack.machine.gardener.cloud/v1alpha1", "kind": "MachineProviderConfig", "spec": spec,
        })
    }

    /// A class with a port and a volume.
    fn spec_with_parts(&self) -> Value {
        self.spec(&json!({"subnetIDs": [self.fact("subnetID")], "rootDiskSize": 1, "rootDiskType": "ssd"}))
    }

    fn request(&self, name: &str, spec: Value) -> MachineRequest {
        let mut machine = mcm_api::machine::Machine::default();
        machine.metadata.name = Some(name.to_owned());
        machine.metadata.uid = Some(format!("uid-{name}"));
        MachineRequest {
            machine: Arc::new(machine),
            class: Arc::new(class(spec)),
            secret: self.secret(),
            owner: OWNER.to_owned(),
            may_pause: false,
        }
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        let Some((child, _)) = &mut self.started else { return };
        // A signal that can be handled: the services end with their parent.
        drop(Command::new("kill").arg(child.id().to_string()).status());
        drop(child.wait());
    }
}

fn driver() -> CloudDriver<OpenStackServers> {
    let (millis, seconds) = (Duration::from_millis, Duration::from_secs);
    let limits = HttpLimits { pause: millis(100), ..HttpLimits::default() };
    let pace = PollTiming { first: millis(300), longest: seconds(1), total: seconds(120) };
    let patience = Patience { window: millis(20), settles: seconds(20), pace, discard: pace, again: seconds(30) };
    CloudDriver(OpenStackServers::new(
        CloudAccess { limits, uses_proxy: false, secrets: secret_policy() },
        patience,
        unmeasured(),
    ))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the services of OpenStack, which take a minute to start: make test-openstack"]
async fn machines_live_on_the_real_services() {
    let services = Services::start();
    let driver = driver();
    for spec in [services.spec(&json!({})), services.spec_with_parts()] {
        the_suite_passes(&services, &driver, spec).await;
    }
    machines_are_created_together(&services, &driver).await;
    a_server_that_no_host_can_hold_is_reported(&services, &driver).await;
    credentials_are_checked(&services, &driver).await;
    everything_that_a_class_needs_is_there(&services, &driver).await;
    a_server_is_handed_over(&services, &driver).await;
    servers_are_members_of_a_pool(&services, &driver).await;
    let class = class(services.spec(&json!({})));
    assert_eq!(driver.list(&class, &services.secret()).await.unwrap().len(), 0, "nothing is left behind");
}

async fn the_suite_passes(services: &Services, driver: &dyn Driver, spec: Value) {
    let foreign = json!({"tags": {"kubernetes.io-cluster-other": "1", ROLE.0: "1"}});
    let subject = ConformanceSubject {
        driver,
        class: class(spec),
        invalid_class: Some(class(services.spec(&json!({"flavorName": 7})))),
        foreign_class: Some(class(services.spec(&foreign))),
        secret: services.secret(),
        volumes: Vec::new(),
        prefix: "conformance".to_owned(),
    };
    let report = run(&subject).await;
    assert_eq!(report.failed(), [""; 0], "\n{report}");
    let skipped = report.results.iter().filter(|one| one.outcome == ConformanceOutcome::Skipped).count();
    assert_eq!(skipped, 2, "initialization, and volumes, which need no cloud\n{report}");
}

/// Calls pause, as those of controllers do.
async fn machines_are_created_together(services: &Services, driver: &dyn Driver) {
    let one = async |number: usize| {
        let request = services.request(&format!("together-{number}"), services.spec_with_parts());
        let mut request = MachineRequest { may_pause: true, ..request };
        let vm = loop {
            match driver.create(&request).await {
                Ok(vm) => break vm,
                Err(error) => {
                    store(&mut request, &error);
                    tokio::time::sleep(error.call_again_in.expect(&error.message)).await;
                }
            }
        };
        assert_eq!((vm.node_name, vm.zone.as_deref()), (format!("together-{number}"), Some("nova")));
        assert!(vm.addresses.iter().any(|one| one.address.starts_with("10.250.")), "{:?}", vm.addresses);
        let known = with_id(request, &vm.provider_id);
        driver.status(&known).await.unwrap();
        (vm.provider_id, known)
    };
    let all = join_all((0..MACHINES).map(one)).await;
    let class = class(services.spec_with_parts());
    let listed = driver.list(&class, &services.secret()).await.unwrap();
    assert_eq!(listed.len(), MACHINES);
    assert!(all.iter().all(|(id, _)| listed[id].owner.as_deref() == Some(OWNER)));
    let gone = async |known: &MachineRequest| {
        while let Err(error) = driver.delete(known).await {
            tokio::time::sleep(error.call_again_in.expect(&error.message)).await;
        }
        assert_eq!(code(driver.status(known).await), Code::NotFound);
    };
    join_all(all.iter().map(|(_, known)| gone(known))).await;
}

/// Octavia takes one change of a load balancer at a time.
async fn servers_are_members_of_a_pool(services: &Services, driver: &CloudDriver<OpenStackServers>) {
    let pool = |subnet: Option<&str>| {
        let (id, subnet_id) = (services.fact("poolID").to_owned(), subnet.map(str::to_owned));
        LoadBalancer::OpenstackPool(Pool { id, subnet_id, ..Pool::default() })
    };
    let (first, second) = (pool(None), pool(Some(services.fact("subnetID"))));
    let settled = async |known: &MachineRequest, balancer: &LoadBalancer, is_member: bool| {
        loop {
            let answer = match is_member {
                true => driver.register(known, balancer).await,
                false => driver.deregister(known, balancer).await,
            };
            match answer {
                Err(error) => tokio::time::sleep(error.call_again_in.expect(&error.message)).await,
                Ok(()) => break,
            }
        }
    };
    // Another client's member is not counted.
    let members = async || {
        let session = driver.0.open_session(&class(services.spec(&json!({}))), &services.secret()).await.unwrap();
        let all = session.region.members(services.fact("poolID")).await.unwrap();
        let (others, own): (Vec<_>, Vec<_>) = all.iter().partition(|member| member.is_named("other"));
        assert_eq!(others.len(), 1);
        own.len()
    };
    let one = async |number: usize| {
        let request = services.request(&format!("member-{number}"), services.spec(&json!({})));
        let vm = driver.create(&request).await.unwrap();
        let known = MachineRequest { may_pause: true, ..with_id(request, &vm.provider_id) };
        settled(&known, &first, true).await;
        known
    };
    let all = join_all((0..3).map(one)).await;
    assert_eq!(members().await, all.len());
    // A field of the MCMCluster changes.
    let moved = async |known: &MachineRequest| {
        settled(known, &second, true).await;
        settled(known, &first, false).await;
    };
    join_all(all.iter().map(moved)).await;
    assert_eq!(members().await, all.len());
    // A member without its server is removed as well.
    let gone = async |known: &MachineRequest| {
        let known = MachineRequest { may_pause: false, ..known.clone() };
        driver.delete(&known).await.unwrap();
        driver.deregister(&known, &second).await.unwrap();
    };
    join_all(all.iter().map(gone)).await;
    assert_eq!(members().await, 0);
    let missing = LoadBalancer::OpenstackPool(Pool { id: services.fact("subnetID").to_owned(), ..Pool::default() });
    assert_eq!(code(driver.deregister(&all[0], &missing).await), Code::NotFound);
}

async fn a_server_that_no_host_can_hold_is_reported(services: &Services, driver: &dyn Driver) {
    let request = services.request("impossible", services.spec(&json!({"flavorName": "m1.impossible"})));
    let error = driver.create(&request).await.unwrap_err();
    assert_eq!(error.code, Code::ResourceExhausted, "{error}");
    assert_eq!(code(driver.status(&request).await), Code::NotFound, "the server is deleted");
    let missing = services.request("missing", services.spec(&json!({"imageName": "missing"})));
    assert_eq!(code(driver.create(&missing).await), Code::InvalidArgument);
    // More than the project may have.
    let spec = services.spec(&json!({"rootDiskSize": 5000, "rootDiskType": "ssd"}));
    let large = services.request("large", spec);
    let error = driver.create(&large).await.unwrap_err();
    assert_eq!(error.code, Code::ResourceExhausted, "{error}");
    driver.delete(&large).await.unwrap();
}

async fn credentials_are_checked(services: &Services, driver: &dyn Driver) {
    let request = services.request("a", services.spec(&json!({})));
    let mut wrong = request.clone();
    wrong.secret.0.insert("password".to_owned(), b"wrong-password".to_vec());
    assert_eq!(code(driver.status(&wrong).await), Code::Unauthenticated);
    let keys = ["authURL", "applicationCredentialID", "applicationCredentialSecret"];
    let application = secret(&keys.map(|key| (key, services.fact(key))));
    let request = MachineRequest { secret: application, ..request };
    assert_eq!(code(driver.status(&request).await), Code::NotFound);
}

async fn everything_that_a_class_needs_is_there(services: &Services, driver: &dyn Driver) {
    let findings = driver.inspect(&class(services.spec_with_parts()), &services.secret()).await.unwrap();
    assert!(findings.len() >= 9, "{findings:?}");
    assert!(findings.iter().all(|one| one.presence == ResourcePresence::Present), "{findings:?}");
    let spec = services.spec(&json!({"keyName": "missing", "availabilityZone": "missing", "flavorName": "missing"}));
    let findings = driver.inspect(&class(spec), &services.secret()).await.unwrap();
    let missing = findings.iter().filter(|one| one.presence == ResourcePresence::Missing);
    assert_eq!(missing.count(), 3, "{findings:?}");
}

async fn a_server_is_handed_over(services: &Services, driver: &dyn Driver) {
    let request = services.request("handed-over", services.spec(&json!({})));
    let vm = driver.create(&request).await.unwrap();
    let known = with_id(request, &vm.provider_id);
    for (is_listed, expected) in [(false, 0), (true, 1)] {
        driver.tag(&known, is_listed).await.unwrap();
        assert_eq!(driver.list(&known.class, &known.secret).await.unwrap().len(), expected);
    }
    driver.delete(&known).await.unwrap();
}
