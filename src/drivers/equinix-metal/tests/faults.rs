//! Each call of the API fails in each way: which code, how many devices, and the result of the next attempt.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::future::join_all;
use mcm_driver::{
    Code, Driver, DriverError, MachineRequest,
    testing::matrix::{self, Case, During, Outcome, Row, UNKNOWN, look_up, usual, with_state},
};
use rstest::rstest;
use serde_json::{Value, json};

use super::{
    CLUSTER, ROLE, UID_TAG, World, code, driver, driver_that_settles,
    fake::{MetalApi, PLAN, TOKEN},
    server::{FakeCloud, Fault, Reply},
    spec_with, unmeasured, with_id,
};
use crate::EquinixMetal;
use mcm_driver::cloud::CloudDriver;

/// A cloud with a driver whose calls end soon, and one that waits.
struct Matrix {
    world: World,
    failing: CloudDriver<EquinixMetal>,
}

impl matrix::Errors for Matrix {
    fn error(case: Case) -> Reply {
        let api = MetalApi::new(0);
        match case {
            Case::Throttle => api.error(429, "Too many requests"),
            Case::Auth => api.error(401, "Invalid authentication token"),
            Case::Denied => api.error(403, "You are not authorized to view this device"),
            Case::StockOut => {
                api.error(422, "The metro ny has no provisionable c3.small.x86 servers matching your criteria")
            }
            Case::Quota => api.error(422, "You have reached the maximum number of devices: 3"),
            _ => api.error(404, "Not found"),
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
        self.world.metal.lock().faults = faults.into_iter().collect();
    }

    fn count(&self) -> usize {
        self.world.count()
    }

    fn secrets(&self) -> Vec<&'static str> {
        vec![TOKEN, "hunter2"]
    }
}

/// A device that the API refuses to show is looked for in the list, and one that it says is absent is absent.
const fn get(hidden: Outcome, not_found: Outcome) -> [Outcome; 10] {
    let mut outcomes = usual(1, (UNKNOWN, 1), not_found);
    outcomes[6] = hidden;
    outcomes
}

#[rstest]
#[case(During::Create, "device.list", look_up(0))]
#[case(During::Create, "device.create", usual(0, (UNKNOWN, 1), (Some(Code::NotFound), 0)))]
#[case(During::Status, "device.list", look_up(1))]
#[case(During::StatusById, "device.get", get((None, 1), (Some(Code::NotFound), 1)))]
#[case(During::List, "device.list", look_up(1))]
#[case(During::Delete, "device.list", look_up(1))]
#[case(During::DeleteById, "device.get", get((None, 0), (None, 1)))]
#[case(During::Delete, "device.delete", usual(1, (UNKNOWN, 0), (None, 1)))]
#[case(During::DeleteById, "device.delete", usual(1, (UNKNOWN, 0), (None, 1)))]
#[tokio::test]
async fn a_call_that_fails_has_its_code_and_the_next_attempt_succeeds(
    #[case] during: During,
    #[case] call: &'static str,
    #[case] outcomes: [Outcome; 10],
) {
    matrix::check::<Matrix>(&Row { during, call, outcomes }).await;
}

/// Only a deletion has something to do with two devices of one Machine.
#[tokio::test]
async fn each_call_has_its_answer_to_two_devices() {
    let world = World::new().await;
    for _ in 0..2 {
        world.put("a", &[CLUSTER, ROLE, &format!("{UID_TAG}=uid-a")]);
    }
    let request = world.request("a");
    assert_eq!((code(world.driver.create(&request).await), world.count()), (Code::OutOfRange, 2));
    assert_eq!((code(world.driver.status(&request).await), world.count()), (Code::OutOfRange, 2));
    assert_eq!(world.driver.list(&request.class, &request.secret).await.unwrap().len(), 2);
    world.driver.delete(&request).await.unwrap();
    assert_eq!(world.count(), 0);
}

/// The API refuses to show a device that failed.
#[rstest]
#[case::and_exists(true)]
#[case::and_is_gone(false)]
#[tokio::test]
async fn a_device_that_is_not_shown_is_absent_only_if_the_list_lacks_it(#[case] exists: bool) {
    let world = World::new().await;
    let request = world.request("a");
    let vm = world.driver.create(&request).await.unwrap();
    {
        let mut metal = world.metal.lock();
        let id = metal.cloud.devices[0].id.clone();
        metal.cloud.hidden.insert(id.clone());
        if !exists {
            metal.cloud.take(&id);
        }
    }
    let known = with_id(request, &vm.provider_id);
    match world.driver.status(&known).await {
        Ok(found) => assert!(exists && found.provider_id == vm.provider_id),
        Err(error) => assert!(!exists && error.code == Code::NotFound, "{error}"),
    }
    world.driver.delete(&known).await.unwrap();
    assert_eq!((world.count(), world.calls("device.delete")), (0, usize::from(exists)));
}

#[tokio::test]
async fn a_token_without_permissions_says_nothing_about_devices() {
    let world = World::new().await;
    let request = world.request("a");
    let vm = world.driver.create(&request).await.unwrap();
    let denied = <Matrix as matrix::Errors>::error(Case::Denied);
    for call in ["device.get", "device.list"] {
        world.fail(call, Fault::Error(denied.clone()), 99);
    }
    let known = with_id(request, &vm.provider_id);
    assert_eq!(code(world.driver.status(&known).await), Code::PermissionDenied);
    assert_eq!((code(world.driver.delete(&known).await), world.count()), (Code::PermissionDenied, 1));
}

#[tokio::test]
async fn a_creation_that_is_carried_out_after_its_time_out_is_not_made_twice() {
    let (mut world, minute) = (World::new().await, Duration::from_secs(60));
    let hasty = driver_that_settles(Duration::from_secs(1), minute, unmeasured());
    world.driver = driver_that_settles(minute, minute, unmeasured());
    world.fail("device.create", Fault::Late(Duration::from_secs(5)), 1);
    let request = world.request("a");
    let error = hasty.create(&request).await.unwrap_err();
    assert_eq!((error.code, world.count()), (Code::DeadlineExceeded, 0));
    let request = with_state(request, error.last_known_state.as_deref());
    // The next process neither sends another request nor says that there is no device.
    assert_eq!(code(world.driver.create(&request).await), Code::Unavailable);
    assert_eq!(code(world.driver.status(&request).await), Code::Unavailable);
    assert_eq!(code(world.driver.delete(&request).await), Code::Unavailable);
    let id = create(&world.driver, &request).await;
    assert_eq!((world.count(), world.calls("device.create")), (1, 1));
    assert_eq!(world.driver.status(&request).await.unwrap().provider_id, id);
    world.driver.delete(&request).await.unwrap();
    assert_eq!(world.count(), 0);
}

/// The request of a controller for a creation that its driver has announced in the status of the Machine.
async fn announced(driver: &dyn Driver, request: MachineRequest) -> MachineRequest {
    let request = MachineRequest { may_pause: true, ..request };
    let error = driver.create(&request).await.unwrap_err();
    assert!(error.call_again_in.is_some() && error.code == Code::Unavailable, "{error}");
    with_state(request, error.last_known_state.as_deref())
}

/// A process is killed after its request, and another one takes over. The cloud would take two of one name.
#[rstest]
#[case::that_is_carried_out(true)]
#[case::that_was_never_sent(false)]
#[tokio::test]
async fn the_next_process_waits_for_a_request_that_was_announced(#[case] is_sent: bool) {
    let (world, second) = (World::new().await, Duration::from_secs(1));
    let first = driver_that_settles(60 * second, second, unmeasured());
    let request = announced(&first, world.request("a")).await;
    assert_eq!(world.calls("device.create"), 0, "the status comes first");
    if is_sent {
        world.fail("device.create", Fault::Late(second / 2), 1);
        let killed = tokio::time::timeout(second / 10, first.create(&request)).await;
        assert!(killed.is_err());
    }
    let other = driver_that_settles(60 * second, second, unmeasured());
    assert_eq!(code(other.status(&request).await), Code::Unavailable);
    let mut error = other.create(&request).await.unwrap_err();
    assert_eq!(
        error.last_known_state.as_deref(),
        Some(request.machine.status.as_ref().unwrap().last_known_state.as_str())
    );
    let mut request = request;
    loop {
        request = with_state(request, error.last_known_state.as_deref());
        error = match other.create(&request).await {
            Ok(_) => break,
            Err(error) => error,
        };
        assert!(error.call_again_in.is_some(), "{error}");
        tokio::task::yield_now().await;
    }
    assert_eq!((world.count(), world.calls("device.create")), (1, 1));
}

#[rstest]
#[case::of_the_api(Fault::Error(MetalApi::new(0).error(500, "Oh snap, something went wrong!")))]
#[case::of_a_proxy(Fault::Status(502))]
#[tokio::test]
async fn after_a_server_error_no_other_creation_is_sent(#[case] fault: Fault) {
    let (world, minute) = (World::new().await, Duration::from_secs(60));
    let driver = driver_that_settles(minute, minute, unmeasured());
    world.fail("device.create", fault, 9);
    let request = announced(&driver, world.request("a")).await;
    let error = driver.create(&request).await.unwrap_err();
    assert_eq!((error.code, error.call_again_in), (Code::Unavailable, None), "the failure is shown");
    let error = driver.create(&request).await.unwrap_err();
    assert!(error.call_again_in.is_some() && error.last_known_state.is_some(), "{error}");
    assert_eq!(world.calls("device.create"), 1);
}

/// The next order would be a second device.
#[rstest]
#[case::without_an_answer(Fault::LostAnswer, Code::Unknown, 1)]
#[case::throttled(Fault::Error(MetalApi::new(0).error(429, "Too many requests")), Code::Unavailable, 0)]
#[case::with_a_wrong_token(Fault::Error(MetalApi::new(0).error(401, "Invalid authentication token")), Code::Unauthenticated, 0)]
#[tokio::test]
async fn an_order_for_a_reservation_that_was_not_refused_is_the_last(
    #[case] fault: Fault,
    #[case] expected: Code,
    #[case] devices: usize,
) {
    let world = World::new().await;
    world.metal.lock().cloud.reservations = [("r-1".to_owned(), true), ("r-2".to_owned(), true)].into();
    world.fail("device.create", fault, 99);
    let request = world.request_for("a", "uid-a", spec_with(&json!({"reservationIDs": ["r-1", "r-2"]})));
    assert_eq!((code(world.driver.create(&request).await), world.count()), (expected, devices));
    for sent in world.metal.lock().sent("device.create") {
        let body: Value = serde_json::from_str(&sent.body).unwrap();
        assert_eq!(body["hardware_reservation_id"], "r-1");
    }
    world.metal.lock().faults.clear();
    create(&world.driver, &request).await;
    assert_eq!(world.count(), 1);
}

#[tokio::test]
async fn a_throttled_creation_is_repeated_within_the_call() {
    let world = World::new().await;
    let busy = <Matrix as matrix::Errors>::error(Case::Throttle);
    world.fail("device.create", Fault::Error(busy), 1);
    world.driver.create(&world.request("a")).await.unwrap();
    assert_eq!((world.count(), world.calls("device.create")), (1, 2));
}

#[tokio::test]
async fn a_device_is_deleted_once_whatever_the_answer() {
    let world = World::new().await;
    let request = world.request("a");
    world.driver.create(&request).await.unwrap();
    world.fail("device.delete", Fault::LostAnswer, 1);
    assert_eq!(code(world.driver.delete(&request).await), Code::Unknown);
    world.driver.delete(&request).await.unwrap();
    assert_eq!((world.count(), world.calls("device.delete")), (0, 1));
}

#[rstest]
#[case::stock(0, None)]
#[case::quota(5, Some(0))]
#[tokio::test]
async fn a_used_up_resource_lets_the_autoscaler_use_another_pool(#[case] servers: usize, #[case] quota: Option<usize>) {
    let world = World::with(servers).await;
    world.metal.lock().cloud.quota = quota;
    let error = world.driver.create(&world.request("a")).await.unwrap_err();
    assert_eq!((error.code, error.last_known_state), (Code::ResourceExhausted, None), "{}", error.message);
    assert_eq!(world.calls("device.create"), 1);
}

/// A part of a list must not pass for all of it.
#[rstest]
#[case::id("/devices/0/id")]
#[case::name("/devices/0/hostname")]
#[case::metro("/devices/0/metro")]
#[case::state("/devices/0/state")]
#[case::devices("/devices")]
#[case::pages("/meta")]
#[tokio::test]
async fn a_list_with_a_part_that_cannot_be_read_is_an_error(#[case] pointer: &str) {
    let world = World::new().await;
    let request = world.request("a");
    world.driver.create(&request).await.unwrap();
    let mut list = {
        let mut metal = world.metal.lock();
        let sent = metal.sent("device.list")[0].clone();
        serde_json::from_str::<Value>(&metal.cloud.answer(&sent).body).unwrap()
    };
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    list.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(field);
    world.fail("device.list", Fault::Error(Reply { status: 200, body: list.to_string() }), 9);
    assert_eq!(code(world.driver.list(&request.class, &request.secret).await), Code::Unknown);
    assert_eq!(code(world.driver.status(&request).await), Code::Unknown);
}

#[tokio::test]
async fn an_answer_without_end_is_given_up() {
    let world = World::new().await;
    world.fail("device.list", Fault::Endless, 9);
    assert_eq!(code(world.driver.status(&world.request("a")).await), Code::Unavailable);
    assert_eq!(world.calls("device.list"), 1);
}

/// Looks for the VM and repeats a creation as the controllers do, until it succeeds.
async fn create(driver: &dyn Driver, request: &MachineRequest) -> String {
    drop(driver.status(request).await);
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

#[rstest]
#[case::on_one_page(1000)]
#[case::on_several(64)]
#[tokio::test]
async fn two_hundred_machines_get_two_hundred_devices_although_every_tenth_answer_is_lost(#[case] largest_page: usize) {
    let world = World::with(300).await;
    {
        let mut metal = world.metal.lock();
        (metal.lost_every, metal.cloud.largest_page) = (Some(("device.create", 10)), largest_page);
    }
    let requests: Vec<_> = (0..200).map(|number| world.request(&format!("m-{number}"))).collect();
    let mut ids = join_all(requests.iter().map(|request| create(&world.driver, request))).await;
    ids.sort();
    ids.dedup();
    assert_eq!((ids.len(), world.count(), world.calls("device.create")), (200, 200, 200));
    if largest_page < 200 {
        return;
    }
    assert_eq!(world.metal.lock().cloud.free[PLAN], 100);
    assert!(world.calls("device.list") < 100, "{} look-ups for 200 machines", world.calls("device.list"));
    world.assert_valid_requests();
    // Deletions share look-ups in the same way.
    let before = world.calls("device.list");
    let known = requests.iter().map(|request| world.driver.delete(request));
    let failed: Vec<DriverError> = join_all(known).await.into_iter().filter_map(Result::err).collect();
    assert_eq!((failed, world.count(), world.calls("device.delete")), (vec![], 0, 200));
    assert!(world.calls("device.list") - before < 50);
}

#[tokio::test]
async fn a_call_that_is_dropped_does_not_lose_its_device() {
    let world = World::new().await;
    let driver = Arc::new(driver(Duration::from_secs(20), unmeasured()));
    let request = world.request("a");
    world.fail("device.create", Fault::Late(Duration::from_millis(100)), 1);
    let dropped = tokio::time::timeout(Duration::from_millis(50), driver.create(&request)).await;
    assert!(dropped.is_err());
    // A deletion waits for the request that is still under way.
    driver.delete(&request).await.unwrap();
    assert_eq!((world.count(), world.calls("device.create"), world.calls("device.delete")), (0, 1, 1));
}

#[tokio::test]
async fn a_status_by_id_of_a_proxys_page_is_not_an_absence() {
    let world = World::new().await;
    let request = world.request("a");
    let vm = world.driver.create(&request).await.unwrap();
    world.fail("device.get", Fault::Status(404), 9);
    assert_eq!(code(world.driver.status(&with_id(request, &vm.provider_id)).await), Code::Unknown);
}
