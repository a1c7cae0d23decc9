//! Each call of metal-api fails in each way: which code, how many machines, and the result of the next attempt.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::future::join_all;
use rstest::rstest;

use super::{
    CLUSTER, UID_TAG, World, code, driver, driver_that_settles,
    fake::{HMAC, MetalApi},
    server::{FakeCloud, Fault, Reply},
    unmeasured, with_id,
};
use crate::MetalStack;
use mcm_driver::cloud::CloudDriver;
use mcm_driver::{
    Code, DriverError, MachineRequest,
    interface::Driver,
    testing::matrix::{self, Case, During, Outcome, Row, UNKNOWN, look_up, usual, with_state},
};

/// A cloud with a driver whose calls end soon, and one that waits.
struct Matrix {
    world: World,
    failing: CloudDriver<MetalStack>,
}

impl matrix::Errors for Matrix {
    fn error(case: Case) -> Reply {
        let api = MetalApi::new(0);
        match case {
            Case::Throttle => api.error(422, "too many parallel machine allocations taking place, try again later"),
            Case::Auth => api.error(401, "wrong hmac"),
            Case::Denied => api.error(403, "you are not member in one of metal-edit"),
            Case::StockOut => api.error(422, "no machine available"),
            Case::Quota => api.error(422, "project quota for machines reached max:3"),
            _ => api.error(404, "NotFound no machine with id found"),
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
        vec![HMAC, "hunter2"]
    }
}

#[rstest]
#[case(During::Create, "machine.find", look_up(0))]
#[case(During::Create, "machine.allocate", usual(0, (UNKNOWN, 1), (Some(Code::NotFound), 0)))]
#[case(During::Status, "machine.find", look_up(1))]
#[case(During::StatusById, "machine.find", look_up(1))]
#[case(During::List, "machine.find", look_up(1))]
#[case(During::Delete, "machine.find", look_up(1))]
#[case(During::DeleteById, "machine.find", look_up(1))]
#[case(During::Delete, "machine.free", usual(1, (UNKNOWN, 0), (None, 1)))]
#[case(During::DeleteById, "machine.free", usual(1, (UNKNOWN, 0), (None, 1)))]
#[tokio::test]
async fn a_call_that_fails_has_its_code_and_the_next_attempt_succeeds(
    #[case] during: During,
    #[case] call: &'static str,
    #[case] outcomes: [Outcome; 10],
) {
    matrix::check::<Matrix>(&Row { during, call, outcomes }).await;
}

/// Only a deletion has something to do with two machines of one Machine.
#[tokio::test]
async fn each_call_has_its_answer_to_two_machines() {
    let world = World::new().await;
    for _ in 0..2 {
        world.put("a", &[CLUSTER, &format!("{UID_TAG}=uid-a")]);
    }
    let request = world.request("a");
    assert_eq!((code(world.driver.create(&request).await), world.count()), (Code::OutOfRange, 2));
    assert_eq!((code(world.driver.status(&request).await), world.count()), (Code::OutOfRange, 2));
    assert_eq!(world.driver.list(&request.class, &request.secret).await.unwrap().len(), 2);
    world.driver.delete(&request).await.unwrap();
    assert_eq!(world.count(), 0);
}

#[tokio::test]
async fn an_allocation_that_is_carried_out_after_its_time_out_is_not_made_twice() {
    let (mut world, minute) = (World::new().await, Duration::from_secs(60));
    let hasty = driver_that_settles(Duration::from_secs(1), minute, unmeasured());
    world.driver = driver_that_settles(minute, minute, unmeasured());
    world.fail("machine.allocate", Fault::Late(Duration::from_secs(5)), 1);
    let request = world.request("a");
    let error = hasty.create(&request).await.unwrap_err();
    assert_eq!((error.code, world.count()), (Code::DeadlineExceeded, 0));
    let request = with_state(request, error.last_known_state.as_deref());
    // The next process neither sends another request nor says that there is no machine.
    assert_eq!(code(world.driver.create(&request).await), Code::Unavailable);
    assert_eq!(code(world.driver.status(&request).await), Code::Unavailable);
    assert_eq!(code(world.driver.delete(&request).await), Code::Unavailable);
    let vm = create(&world.driver, &request).await;
    assert_eq!((world.count(), world.calls("machine.allocate")), (1, 1));
    assert_eq!(world.driver.status(&request).await.unwrap().provider_id, vm);
    world.driver.delete(&request).await.unwrap();
    assert_eq!(world.count(), 0);
}

#[tokio::test]
async fn an_allocation_that_was_carried_out_before_an_error_inside_of_the_cloud_is_not_made_twice() {
    let world = World::new().await;
    world.fail("machine.allocate", broken(), 1);
    let request = world.request("a");
    let error = world.driver.create(&request).await.unwrap_err();
    assert!(error.code == Code::Unavailable && error.message.contains("database"), "{error}");
    create(&world.driver, &with_state(request, error.last_known_state.as_deref())).await;
    assert_eq!((world.count(), world.calls("machine.allocate")), (1, 1));
}

/// metal-api did what it was asked for, and then broke.
fn broken() -> Fault {
    Fault::CarriedOut(MetalApi::new(0).error(500, "Internal cannot reach the database"))
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
    assert_eq!(world.calls("machine.allocate"), 0, "the status comes first");
    if is_sent {
        world.fail("machine.allocate", Fault::Late(second / 2), 1);
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
    assert_eq!((world.count(), world.calls("machine.allocate")), (1, 1));
}

#[tokio::test]
async fn an_unknown_outcome_pauses_the_calls_of_controllers() {
    let (world, minute) = (World::new().await, Duration::from_secs(60));
    let driver = driver_that_settles(minute, minute, unmeasured());
    world.fail("machine.allocate", Fault::Status(502), 9);
    let request = announced(&driver, world.request("a")).await;
    let error = driver.create(&request).await.unwrap_err();
    assert_eq!((error.code, error.call_again_in), (Code::Unavailable, None), "the failure is shown");
    let error = driver.create(&request).await.unwrap_err();
    assert!(error.call_again_in.is_some() && error.last_known_state.is_some(), "{error}");
    assert_eq!(world.calls("machine.allocate"), 1);
}

#[tokio::test]
async fn a_throttled_allocation_is_repeated_within_the_call() {
    let world = World::new().await;
    let busy = <Matrix as matrix::Errors>::error(Case::Throttle);
    world.fail("machine.allocate", Fault::Error(busy), 1);
    world.driver.create(&world.request("a")).await.unwrap();
    assert_eq!((world.count(), world.calls("machine.allocate")), (1, 2));
}

#[rstest]
#[case::lost(Fault::LostAnswer, Code::Unknown)]
#[case::broken(broken(), Code::Unavailable)]
#[tokio::test]
async fn a_machine_is_freed_once_whatever_the_answer(#[case] fault: Fault, #[case] expected: Code) {
    let world = World::new().await;
    let request = world.request("a");
    world.driver.create(&request).await.unwrap();
    world.fail("machine.free", fault, 1);
    assert_eq!(code(world.driver.delete(&request).await), expected);
    assert_eq!(world.calls("machine.free"), 1, "another Machine may have the server by now");
    world.driver.delete(&request).await.unwrap();
    assert_eq!(world.calls("machine.free"), 1);
}

#[tokio::test]
async fn a_locked_machine_is_not_freed() {
    let world = World::new().await;
    let request = world.request("a");
    world.driver.create(&request).await.unwrap();
    world.metal.lock().cloud.machines.values_mut().for_each(|machine| machine.is_locked = true);
    assert_eq!(code(world.driver.delete(&request).await), Code::FailedPrecondition);
}

#[rstest]
#[case::stock(0, None, 10, Code::ResourceExhausted)]
#[case::quota(5, Some(0), 10, Code::ResourceExhausted)]
#[case::addresses(5, None, 0, Code::ResourceExhausted)]
#[tokio::test]
async fn a_used_up_resource_lets_the_autoscaler_use_another_pool(
    #[case] machines: usize,
    #[case] quota: Option<usize>,
    #[case] addresses: usize,
    #[case] expected: Code,
) {
    for has_plain_errors in [false, true] {
        let world = World::with(machines).await;
        {
            let mut metal = world.metal.lock();
            let cloud = &mut metal.cloud;
            (cloud.quota, cloud.addresses, cloud.has_plain_errors) = (quota, addresses, has_plain_errors);
        }
        let error = world.driver.create(&world.request("a")).await.unwrap_err();
        assert_eq!((error.code, error.last_known_state), (expected, None), "{}", error.message);
        assert_eq!(world.calls("machine.allocate"), 1);
    }
}

/// A part of a list must not pass for all of it.
#[rstest]
#[case::id("id")]
#[case::allocation("allocation")]
#[case::partition("partition")]
#[tokio::test]
async fn a_list_with_an_entry_that_cannot_be_read_is_an_error(#[case] field: &str) {
    let world = World::new().await;
    let request = world.request("a");
    world.driver.create(&request).await.unwrap();
    let mut servers = {
        let mut metal = world.metal.lock();
        let find = metal.sent("machine.find")[0].clone();
        serde_json::from_str::<serde_json::Value>(&metal.cloud.answer(&find).body).unwrap()
    };
    servers[0].as_object_mut().unwrap().remove(field);
    world.fail("machine.find", Fault::Error(Reply { status: 200, body: servers.to_string() }), 9);
    assert_eq!(code(world.driver.list(&request.class, &request.secret).await), Code::Unknown);
    assert_eq!(code(world.driver.status(&request).await), Code::Unknown);
}

#[tokio::test]
async fn an_answer_without_end_is_given_up() {
    let world = World::new().await;
    world.fail("machine.find", Fault::Endless, 9);
    assert_eq!(code(world.driver.status(&world.request("a")).await), Code::Unavailable);
    assert_eq!(world.calls("machine.find"), 1);
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

#[tokio::test]
async fn two_hundred_machines_get_two_hundred_servers_although_every_tenth_answer_is_lost() {
    let world = World::with(300).await;
    world.metal.lock().lost_every = Some(("machine.allocate", 10));
    let requests: Vec<_> = (0..200).map(|number| world.request(&format!("m-{number}"))).collect();
    let mut ids = join_all(requests.iter().map(|request| create(&world.driver, request))).await;
    ids.sort();
    ids.dedup();
    assert_eq!((ids.len(), world.count(), world.calls("machine.allocate")), (200, 200, 200));
    assert!(world.calls("machine.find") < 100, "{} look-ups for 200 machines", world.calls("machine.find"));
    world.assert_valid_requests();
    // Deletions share look-ups in the same way.
    let before = world.calls("machine.find");
    let known = requests.iter().map(|request| world.driver.delete(request));
    let failed: Vec<DriverError> = join_all(known).await.into_iter().filter_map(Result::err).collect();
    assert_eq!((failed, world.count(), world.calls("machine.free")), (vec![], 0, 200));
    assert!(world.calls("machine.find") - before < 50);
}

#[tokio::test]
async fn a_call_that_is_dropped_does_not_lose_its_machine() {
    let world = World::new().await;
    let driver = Arc::new(driver(Duration::from_secs(20), unmeasured()));
    let request = world.request("a");
    world.fail("machine.allocate", Fault::Late(Duration::from_millis(100)), 1);
    let dropped = tokio::time::timeout(Duration::from_millis(50), driver.create(&request)).await;
    assert!(dropped.is_err());
    // A deletion waits for the request that is still under way.
    driver.delete(&request).await.unwrap();
    assert_eq!((world.count(), world.calls("machine.allocate"), world.calls("machine.free")), (0, 1, 1));
}

#[tokio::test]
async fn a_status_by_id_of_a_proxys_page_is_not_an_absence() {
    let world = World::new().await;
    let request = world.request("a");
    let vm = world.driver.create(&request).await.unwrap();
    world.fail("machine.find", Fault::Status(404), 9);
    assert_eq!(code(world.driver.status(&with_id(request, &vm.provider_id)).await), Code::Unknown);
}

/// A proxy that does not know a method answers so, and the controller would take it for a driver that cannot look.
#[rstest]
#[case::of_metal_api(Fault::Error(Reply { status: 501, body: r#"{"statuscode": 501, "message": "no"}"#.to_owned() }))]
#[case::of_a_proxy(Fault::Status(501))]
#[tokio::test]
async fn a_look_up_that_is_not_implemented_is_not_an_absence(#[case] fault: Fault) {
    let world = World::new().await;
    let request = world.request("a");
    let vm = world.driver.create(&request).await.unwrap();
    world.fail("machine.find", fault, 99);
    let known = with_id(request.clone(), &vm.provider_id);
    for request in [&request, &known] {
        assert_eq!(code(world.driver.status(request).await), Code::Internal);
        assert_eq!(code(world.driver.delete(request).await), Code::Internal);
    }
    assert_eq!(world.count(), 1);
}
