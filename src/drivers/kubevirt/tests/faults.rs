//! Each call of an API server fails in each way: which code, how many VMs, and the result of the next attempt.

use mcm_driver::testing::suite;

use rstest::rstest;
use serde_json::json;

use super::{
    CLUSTER, ROLE, World, code,
    fake::{Kubernetes, Start},
    server::{FakeCloud, Fault, Reply},
    with_id,
};
use mcm_driver::{
    Code,
    interface::Driver,
    testing::matrix::{self, Case, During, Outcome, Row, UNKNOWN, usual},
};

const NOT_FOUND: Option<Code> = Some(Code::NotFound);
const INVALID: Option<Code> = Some(Code::InvalidArgument);

/// Look-ups without an answer do not prove that a VM is absent. Only an answer of absence counts.
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
#[case(During::Create, "secret.create", usual(0, (UNKNOWN, 0), (INVALID, 0)))]
#[case(During::Create, "vm.create", usual(0, (UNKNOWN, 1), (INVALID, 0)))]
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
    matrix::check::<World>(&Row { during, call, outcomes }).await;
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
    world.fail("vm.create", Fault::Error(<World as suite::World>::error(Case::Quota)), 1);
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
    world.fail("vm.create", Fault::Error(<World as suite::World>::error(Case::Quota)), 1);
    let request = world.request("a");
    assert_eq!(code(world.driver.create(&request).await), Code::ResourceExhausted);
    assert_eq!(world.secrets(), 1);
    world.driver.delete(&request).await.unwrap();
    assert_eq!(world.secrets(), 0);
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
