//! Each call of an API server fails in each way: which code, how many VMs, and the result of the next attempt.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::future::join_all;
use rstest::rstest;
use serde_json::json;

use super::{
    CLUSTER, ROLE, TOKEN, World, code, driver, driver_that_settles,
    fake::{Kubernetes, Start},
    server::{FakeCloud, Fault, Reply},
    unmeasured, with_id,
};
use crate::KubevirtVms;
use mcm_driver::cloud::CloudDriver;
use mcm_driver::{
    Code, DriverError, MachineRequest,
    interface::Driver,
    testing::matrix::{self, Case, During, Outcome, Row, UNKNOWN, usual, with_state},
};

const NOT_FOUND: Option<Code> = Some(Code::NotFound);

/// A cloud with a driver whose calls end soon, and one that waits.
struct Matrix {
    world: World,
    failing: CloudDriver<KubevirtVms>,
}

impl matrix::Errors for Matrix {
    fn error(case: Case) -> Reply {
        let error = |status, reason, message| Kubernetes::error(status, reason, message, "virtualmachines", "a");
        match case {
            Case::Throttle => error(429, "TooManyRequests", "too many requests, please try again later"),
            Case::Auth => error(401, "Unauthorized", "Unauthorized"),
            Case::Denied => error(403, "Forbidden", "user mcm cannot do this in namespace vms"),
            Case::StockOut => error(403, "Forbidden", "virtualmachines a is forbidden: exceeded quota: cpu, used: 8"),
            Case::Quota => error(403, "Forbidden", "virtualmachines a is forbidden: exceeded quota: count, used: 3"),
            _ => error(404, "NotFound", "virtualmachines a not found"),
        }
    }
}

#[async_trait]
impl matrix::World for Matrix {
    async fn start(attempt: Duration) -> Self {
        Self { world: World::new().await, failing: driver(attempt, unmeasured()) }
    }

    fn driver(&self) -> &dyn Driver {
        &self.failing
    }

    fn patient_driver(&self) -> &dyn Driver {
        &self.world.driver
    }

    fn request(&self) -> MachineRequest {
        self.world.request("a")
    }

    fn fail(&self, call: Option<(&'static str, Fault)>) {
        let faults = call.map(|(name, fault)| (name, fault, 99));
        self.world.kubernetes.lock().faults = faults.into_iter().collect();
    }

    fn count(&self) -> usize {
        self.world.count()
    }

    fn secrets(&self) -> Vec<&'static str> {
        vec![TOKEN, "hunter2"]
    }
}

/// Look-ups without an answer say nothing about a VM. The answer that there is none counts.
const fn look_up(vms: usize, not_found: Option<Code>) -> [Outcome; 10] {
    usual(vms, (UNKNOWN, vms), (not_found, vms))
}

/// The failure is written to the log, because the VM is as it should be.
const TOLERATED: [Outcome; 10] = [(None, 1); 10];

/// The VM is deleted before. Credentials without this permission are those of the reference.
const fn after_the_vm() -> [Outcome; 10] {
    let mut outcomes = usual(0, (UNKNOWN, 0), (None, 0));
    outcomes[6] = (None, 0);
    outcomes
}

#[rstest]
#[case(During::Create, "vm.get", usual(0, (UNKNOWN, 0), (Some(Code::Aborted), 1)))]
#[case(During::Create, "secret.create", usual(0, (UNKNOWN, 0), (NOT_FOUND, 0)))]
#[case(During::Create, "vm.create", usual(0, (UNKNOWN, 1), (NOT_FOUND, 0)))]
#[case(During::Create, "secret.patch", TOLERATED)]
#[case(During::Status, "vm.get", look_up(1, NOT_FOUND))]
#[case(During::StatusById, "vm.get", look_up(1, NOT_FOUND))]
#[case(During::List, "vm.list", look_up(1, UNKNOWN))]
#[case(During::Delete, "vm.get", look_up(1, None))]
#[case(During::DeleteById, "vm.get", look_up(1, None))]
#[case(During::Delete, "vm.delete", usual(1, (UNKNOWN, 0), (Some(Code::DeadlineExceeded), 1)))]
#[case(During::DeleteById, "vm.delete", usual(1, (UNKNOWN, 0), (Some(Code::DeadlineExceeded), 1)))]
#[case(During::Delete, "secret.get", after_the_vm())]
#[case(During::DeleteById, "secret.get", after_the_vm())]
#[tokio::test]
async fn a_call_that_fails_has_its_code_and_the_next_attempt_succeeds(
    #[case] during: During,
    #[case] call: &'static str,
    #[case] outcomes: [Outcome; 10],
) {
    matrix::check::<Matrix>(&Row { during, call, outcomes }).await;
}

#[tokio::test]
async fn a_creation_that_is_carried_out_after_its_time_out_is_not_made_twice() {
    let (mut world, minute) = (World::new().await, Duration::from_secs(60));
    let hasty = driver_that_settles(Duration::from_secs(1), minute, unmeasured());
    world.driver = driver_that_settles(minute, minute, unmeasured());
    world.fail("vm.create", Fault::Late(Duration::from_secs(5)), 2);
    let request = world.request("a");
    let error = hasty.create(&request).await.unwrap_err();
    assert_eq!((error.code, world.count()), (Code::DeadlineExceeded, 0));
    let request = with_state(request, error.last_known_state.as_deref());
    // The next process neither sends another request nor reports that there is no VM.
    assert_eq!(code(world.driver.create(&request).await), Code::Unavailable);
    assert_eq!(code(world.driver.status(&request).await), Code::Unavailable);
    assert_eq!(code(world.driver.delete(&request).await), Code::Unavailable);
    let vm = create(&world.driver, &request).await;
    assert_eq!((world.count(), world.kubernetes.lock().cloud.created), (1, 1));
    assert_eq!(world.driver.status(&request).await.unwrap().provider_id, vm);
    world.driver.delete(&request).await.unwrap();
    assert_eq!((world.count(), world.secrets()), (0, 0));
}

#[tokio::test]
async fn a_creation_whose_answer_is_lost_is_repeated_within_the_call() {
    let world = World::new().await;
    for (call, sent) in [("secret.create", 2), ("vm.create", 2), ("secret.patch", 2)] {
        world.fail(call, Fault::LostAnswer, 1);
        let request = world.request(&format!("m-{}", call.replace('.', "-")));
        let before = world.calls(call);
        world.driver.create(&request).await.unwrap();
        assert_eq!(world.calls(call) - before, sent, "{call}");
    }
    assert_eq!((world.count(), world.secrets()), (3, 3));
    world.assert_valid_requests();
}

#[tokio::test]
async fn a_vm_is_deleted_with_its_secret_although_it_does_not_own_it() {
    let world = World::new().await;
    world.fail("secret.patch", Fault::Status(503), 9);
    let request = world.request("a");
    let vm = world.driver.create(&request).await.unwrap();
    assert_eq!(
        world.kubernetes.lock().cloud.secrets.values().next().unwrap()["metadata"]["ownerReferences"],
        json!(null)
    );
    world.driver.delete(&with_id(request, &vm.provider_id)).await.unwrap();
    assert_eq!((world.count(), world.secrets(), world.calls("secret.delete")), (0, 0, 1));
}

#[tokio::test]
async fn a_vm_without_a_secret_is_never_created() {
    let world = World::new().await;
    world.fail("secret.create", Fault::Status(503), 2);
    let request = world.request("a");
    assert_eq!(code(world.driver.create(&request).await), Code::Unavailable);
    assert_eq!((world.count(), world.calls("vm.create")), (0, 0));
    world.driver.create(&request).await.unwrap();
    world.assert_valid_requests();
}

#[tokio::test]
async fn the_user_data_of_the_last_attempt_count() {
    let world = World::new().await;
    world.fail("vm.create", Fault::Error(<Matrix as matrix::Errors>::error(Case::Quota)), 1);
    let request = world.request("a");
    assert_eq!(code(world.driver.create(&request).await), Code::ResourceExhausted);
    let mut renewed = request.clone();
    renewed.secret.0.insert("userData".to_owned(), b"with a new token".to_vec());
    world.driver.create(&renewed).await.unwrap();
    let kubernetes = world.kubernetes.lock();
    assert_eq!(kubernetes.cloud.secrets["userdata-a-uid-a"]["data"]["userdata"], "d2l0aCBhIG5ldyB0b2tlbg==");
    assert_eq!(kubernetes.cloud.secrets.len(), 1);
}

#[tokio::test]
async fn the_secret_of_a_vm_that_was_never_created_is_deleted_with_its_machine() {
    let world = World::new().await;
    world.fail("vm.create", Fault::Error(<Matrix as matrix::Errors>::error(Case::Quota)), 1);
    let request = world.request("a");
    assert_eq!(code(world.driver.create(&request).await), Code::ResourceExhausted);
    assert_eq!(world.secrets(), 1);
    world.driver.delete(&request).await.unwrap();
    assert_eq!(world.secrets(), 0);
}

#[tokio::test]
async fn a_throttled_creation_is_repeated_within_the_call() {
    let world = World::new().await;
    world.fail("vm.create", Fault::Error(<Matrix as matrix::Errors>::error(Case::Throttle)), 1);
    world.driver.create(&world.request("a")).await.unwrap();
    assert_eq!((world.count(), world.calls("vm.create")), (1, 2));
}

#[rstest]
#[case::no_room(
    "ErrorUnschedulable",
    "PodScheduled",
    "0/3 nodes are available: 3 Insufficient cpu.",
    Code::ResourceExhausted
)]
#[case::quota_of_pods("Starting", "Synchronized", "failed to create pod: exceeded quota: cpu", Code::ResourceExhausted)]
#[case::no_claim("ErrorPvcNotFound", "Synchronized", "PVC vms/a does not exist", Code::FailedPrecondition)]
#[case::no_import(
    "DataVolumeError",
    "DataVolumesReady",
    "Unable to connect to http data source",
    Code::FailedPrecondition
)]
#[case::no_image("ErrImagePull", "Synchronized", "failed to pull image", Code::FailedPrecondition)]
#[tokio::test]
async fn a_vm_that_cannot_start_is_a_failure_of_its_creation_with_the_reason(
    #[case] state: &'static str,
    #[case] kind: &'static str,
    #[case] message: &'static str,
    #[case] expected: Code,
) {
    let world = World::new().await;
    world.kubernetes.lock().cloud.start = Start::Never(state, kind, message);
    let request = world.request("a");
    for _ in 0..2 {
        let error = world.driver.create(&request).await.unwrap_err();
        assert_eq!((error.code, world.count()), (expected, 1));
        assert!(error.message.contains(state) && error.message.contains(message), "{error}");
        assert_eq!(code(world.driver.status(&request).await), expected);
    }
    // It starts later, or is deleted with its Machine.
    world.kubernetes.lock().cloud.start = Start::Now;
    world.driver.create(&request).await.unwrap();
    assert_eq!(world.calls("vm.create"), 1);
    world.driver.delete(&request).await.unwrap();
    assert_eq!(world.count(), 0);
}

#[tokio::test]
async fn a_full_cluster_lets_the_autoscaler_use_another_pool() {
    let world = World::new().await;
    world.kubernetes.lock().cloud.room = 1;
    world.driver.create(&world.request("a")).await.unwrap();
    assert_eq!(code(world.driver.create(&world.request("b")).await), Code::ResourceExhausted);
    world.driver.delete(&world.request("b")).await.unwrap();
    world.kubernetes.lock().cloud.quota = 1;
    assert_eq!(code(world.driver.create(&world.request("b")).await), Code::ResourceExhausted);
    assert_eq!(world.count(), 1);
}

#[rstest]
#[case::no_kubevirt("the server could not find the requested resource", "", "")]
#[case::no_namespace("namespaces vms not found", "namespaces", "vms")]
#[tokio::test]
async fn an_absent_api_is_not_an_absent_vm(#[case] message: &str, #[case] kind: &str, #[case] name: &str) {
    let world = World::new().await;
    let request = world.request("a");
    let vm = world.driver.create(&request).await.unwrap();
    world.fail("vm.get", Fault::Error(Kubernetes::error(404, "NotFound", message, kind, name)), 9);
    let known = with_id(request, &vm.provider_id);
    assert_eq!(code(world.driver.status(&known).await), Code::FailedPrecondition);
    assert_eq!(code(world.driver.delete(&known).await), Code::FailedPrecondition);
    assert_eq!(world.count(), 1);
}

#[tokio::test]
async fn the_page_of_a_proxy_is_not_an_absence() {
    let world = World::new().await;
    let request = world.request("a");
    let vm = world.driver.create(&request).await.unwrap();
    world.fail("vm.get", Fault::Status(404), 9);
    let known = with_id(request, &vm.provider_id);
    assert_eq!(code(world.driver.status(&known).await), Code::Unknown);
    assert_eq!(code(world.driver.delete(&known).await), Code::Unknown);
    assert_eq!(world.count(), 1);
}

/// A part of a list must not pass for all of it.
#[rstest]
#[case::uid("/items/0/metadata/uid")]
#[case::name("/items/0/metadata/name")]
#[case::metadata("/metadata")]
#[case::items("/items")]
#[tokio::test]
async fn a_list_with_an_entry_that_cannot_be_read_is_an_error(#[case] field: &str) {
    let world = World::new().await;
    let request = world.request("a");
    world.driver.create(&request).await.unwrap();
    world.driver.list(&request.class, &request.secret).await.unwrap();
    let mut list = {
        let mut kubernetes = world.kubernetes.lock();
        let sent = kubernetes.sent("vm.list")[0].clone();
        serde_json::from_str::<serde_json::Value>(&kubernetes.cloud.answer(&sent).body).unwrap()
    };
    let (parent, key) = field.rsplit_once('/').unwrap();
    list.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(key);
    world.fail("vm.list", Fault::Error(Reply { status: 200, body: list.to_string() }), 9);
    assert_eq!(code(world.driver.list(&request.class, &request.secret).await), Code::Unknown);
}

#[tokio::test]
async fn a_list_has_all_of_its_pages_or_is_an_error() {
    let world = World::new().await;
    for number in 0..7 {
        world.put(&format!("m-{number}"), &json!({CLUSTER: "shoot", ROLE: "node"}));
    }
    world.kubernetes.lock().cloud.page = 3;
    let request = world.request("a");
    let listed = world.driver.list(&request.class, &request.secret).await.unwrap();
    assert_eq!((listed.len(), world.calls("vm.list")), (7, 3));
    world.kubernetes.lock().cloud.has_expired = true;
    assert_eq!(code(world.driver.list(&request.class, &request.secret).await), Code::Aborted);
}

#[tokio::test]
async fn an_answer_without_end_is_given_up() {
    let world = World::new().await;
    world.fail("vm.get", Fault::Endless, 9);
    assert_eq!(code(world.driver.status(&world.request("a")).await), Code::Unavailable);
    assert_eq!(world.calls("vm.get"), 1);
}

/// Repeats a creation as the controller does, until it succeeds.
async fn create(driver: &dyn Driver, request: &MachineRequest) -> String {
    let mut request = request.clone();
    loop {
        let error = match driver.create(&request).await {
            Ok(vm) => return vm.provider_id,
            Err(error) => error,
        };
        assert!(error.code.is_transient(), "{error}");
        request = with_state(request, error.last_known_state.as_deref());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn two_hundred_machines_get_two_hundred_vms_although_every_tenth_answer_is_lost() {
    let world = World::new().await;
    world.kubernetes.lock().lost_every = Some(("vm.create", 10));
    let requests: Vec<_> = (0..200).map(|number| world.request(&format!("m-{number}"))).collect();
    let mut ids = join_all(requests.iter().map(|request| create(&world.driver, request))).await;
    ids.sort();
    ids.dedup();
    let created = world.kubernetes.lock().cloud.created;
    assert_eq!((ids.len(), world.count(), created, world.secrets()), (200, 200, 200, 200));
    // Each of the lost answers is looked for by name, and each look for all others is shared.
    assert!(
        world.calls("vm.get") + world.calls("vm.list") < 150,
        "{} {}",
        world.calls("vm.get"),
        world.calls("vm.list")
    );
    world.assert_valid_requests();
    let before = world.calls("vm.list") + world.calls("vm.get");
    let failed = join_all(requests.iter().map(|request| world.driver.delete(request))).await;
    let failed: Vec<DriverError> = failed.into_iter().filter_map(Result::err).collect();
    assert_eq!((failed, world.count(), world.secrets()), (vec![], 0, 0));
    assert!(world.calls("vm.list") + world.calls("vm.get") - before < 50, "deletions share look-ups in the same way");
    assert_eq!(world.calls("vm.delete"), 200);
}

#[tokio::test]
async fn a_call_that_is_dropped_does_not_lose_its_vm() {
    let world = World::new().await;
    let driver = Arc::new(driver(Duration::from_secs(20), unmeasured()));
    let request = world.request("a");
    world.fail("vm.create", Fault::Late(Duration::from_millis(100)), 1);
    let dropped = tokio::time::timeout(Duration::from_millis(50), driver.create(&request)).await;
    assert!(dropped.is_err());
    // A deletion waits for the request that is still under way.
    driver.delete(&request).await.unwrap();
    assert_eq!((world.count(), world.calls("vm.create"), world.calls("vm.delete"), world.secrets()), (0, 1, 1, 0));
}
