//! Each call of OpenStack fails in each way: which code, how many servers, and the result of the next attempt.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::future::join_all;
use mcm_driver::{
    Code, DriverError, MachineRequest,
    interface::Driver,
    testing::matrix::{self, Case, During, Outcome, Row, UNKNOWN, look_up, usual, with_state},
};
use rstest::rstest;
use serde_json::Value;

use super::{
    CLUSTER, ROLE, UID, World, announced, code, driver, driver_that_settles,
    fake::{self, PASSWORD},
    server::{FakeCloud, Fault, Reply},
    spec, spec_with_parts, unmeasured,
};
use crate::OpenStackServers;
use mcm_driver::cloud::CloudDriver;

/// A cloud with a driver whose calls end soon, and one that waits.
struct Matrix {
    world: World,
    failing: CloudDriver<OpenStackServers>,
}

impl matrix::Errors for Matrix {
    fn error(case: Case) -> Reply {
        match case {
            Case::Throttle => fake::nova(429, "overLimit", "This request was rate-limited."),
            Case::Auth => fake::keystone(401, "The request you have made requires authentication."),
            Case::Denied => fake::nova(403, "forbidden", "Policy doesn't allow it to be performed."),
            Case::StockOut => {
                fake::neutron(409, "IpAddressGenerationFailure", "No more IP addresses available on network n.")
            }
            Case::Quota => fake::nova(
                403,
                "forbidden",
                "Quota exceeded for instances: Requested 1, but already used 3 of 3 instances",
            ),
            _ => fake::nova(404, "itemNotFound", "It could not be found."),
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
        self.world.request_with_parts("a")
    }

    fn fail(&self, call: Option<(&'static str, Fault)>) {
        let faults = call.map(|(name, fault)| (name, fault, 99));
        self.world.openstack.lock().faults = faults.into_iter().collect();
    }

    fn count(&self) -> usize {
        self.world.count()
    }

    fn secrets(&self) -> Vec<&'static str> {
        vec![PASSWORD, "hunter2"]
    }
}

/// Something before the server cannot be created.
const fn part() -> [Outcome; 10] {
    usual(0, (UNKNOWN, 0), (Some(Code::NotFound), 0))
}

#[rstest]
#[case(During::Create, "token.create", look_up(0))]
#[case(During::Create, "server.list", look_up(0))]
#[case(During::Create, "image.list", look_up(0))]
#[case(During::Create, "flavor.list", look_up(0))]
#[case(During::Create, "port.list", look_up(0))]
#[case(During::Create, "group.list", look_up(0))]
#[case(During::Create, "port.create", part())]
#[case(During::Create, "port.tag", part())]
#[case(During::Create, "volume.list", look_up(0))]
#[case(During::Create, "volume.create", part())]
#[case(During::Create, "server.create", usual(0, (UNKNOWN, 1), (Some(Code::NotFound), 0)))]
#[case(During::Create, "server.get", usual(1, (UNKNOWN, 1), (Some(Code::Aborted), 1)))]
#[case(During::Status, "token.create", look_up(1))]
#[case(During::Status, "server.list", look_up(1))]
#[case(During::Status, "port.list", look_up(1))]
#[case(During::StatusById, "token.create", look_up(1))]
#[case(During::StatusById, "server.get", usual(1, (UNKNOWN, 1), (Some(Code::NotFound), 1)))]
#[case(During::List, "token.create", look_up(1))]
#[case(During::List, "server.list", look_up(1))]
#[case(During::Delete, "token.create", look_up(1))]
#[case(During::Delete, "server.list", look_up(1))]
#[case(During::Delete, "server.delete", usual(1, (UNKNOWN, 0), (Some(Code::DeadlineExceeded), 1)))]
#[case(During::Delete, "port.list", look_up(0))]
#[case(During::Delete, "port.delete", usual(0, (UNKNOWN, 0), (None, 0)))]
#[case(During::Delete, "volume.list", look_up(0))]
#[case(During::Delete, "volume.delete", usual(0, (UNKNOWN, 0), (None, 0)))]
#[case(During::DeleteById, "server.get", usual(1, (UNKNOWN, 1), (Some(Code::DeadlineExceeded), 1)))]
#[case(During::DeleteById, "server.delete", usual(1, (UNKNOWN, 0), (Some(Code::DeadlineExceeded), 1)))]
#[tokio::test]
async fn a_call_that_fails_has_its_code_and_the_next_attempt_succeeds(
    #[case] during: During,
    #[case] call: &'static str,
    #[case] outcomes: [Outcome; 10],
) {
    matrix::check::<Matrix>(&Row { during, call, outcomes }).await;
}

/// Only a deletion has something to do with two servers of one Machine.
#[tokio::test]
async fn each_call_has_its_answer_to_two_servers() {
    let world = World::new().await;
    for _ in 0..2 {
        world.put("a", &[CLUSTER, ROLE, (UID, "uid-a")]);
    }
    let request = world.request("a");
    assert_eq!((code(world.driver.create(&request).await), world.count()), (Code::OutOfRange, 2));
    assert_eq!((code(world.driver.status(&request).await), world.count()), (Code::OutOfRange, 2));
    assert_eq!(world.driver.list(&request.class, &request.secret).await.unwrap().len(), 2);
    world.driver.delete(&request).await.unwrap();
    assert_eq!(world.count(), 0);
}

#[rstest]
#[case("server.create")]
#[case("port.create")]
#[case("volume.create")]
#[tokio::test]
async fn a_request_that_is_carried_out_after_its_time_out_is_not_made_twice(#[case] call: &'static str) {
    let (mut world, minute) = (World::new().await, Duration::from_secs(60));
    let hasty = driver_that_settles(Duration::from_secs(1), minute, unmeasured());
    world.driver = driver_that_settles(minute, Duration::from_secs(6), unmeasured());
    world.fail(call, Fault::Late(Duration::from_secs(4)), 1);
    let request = world.request_with_parts("a");
    let error = hasty.create(&request).await.unwrap_err();
    assert_eq!((error.code, world.count()), (Code::DeadlineExceeded, 0));
    let request = with_state(request, error.last_known_state.as_deref());
    // The next process neither sends another request nor says that there is no server.
    assert_eq!(code(world.driver.create(&request).await), Code::Unavailable);
    assert_eq!(code(world.driver.status(&request).await), Code::Unavailable);
    assert_eq!(code(world.driver.delete(&request).await), Code::Unavailable);
    create(&world.driver, &request).await;
    assert_eq!((world.counts(), world.calls(call)), ((1, 1, 1), 1));
    world.driver.delete(&request).await.unwrap();
    assert_eq!(world.counts(), (0, 0, 0));
}

/// A service may store a resource and then break.
#[rstest]
#[case("server.create")]
#[case("port.create")]
#[case("volume.create")]
#[tokio::test]
async fn a_request_that_was_carried_out_before_an_error_inside_of_the_cloud_is_not_made_twice(
    #[case] call: &'static str,
) {
    let world = World::new().await;
    world.fail(call, Fault::CarriedOut(fake::nova(500, "computeFault", "Unexpected API Error.")), 1);
    let request = world.request_with_parts("a");
    let error = world.driver.create(&request).await.unwrap_err();
    assert!(error.code == Code::Unavailable && error.message.contains("Unexpected API Error"), "{error}");
    create(&world.driver, &with_state(request, error.last_known_state.as_deref())).await;
    assert_eq!((world.counts(), world.calls(call)), ((1, 1, 1), 1));
}

/// A list may lack a new server for a moment.
#[tokio::test]
async fn one_empty_list_does_not_show_that_a_request_had_no_effect() {
    let world = World::new().await;
    let settles = Duration::from_millis(1);
    let (first, next) = [(); 2].map(|()| driver_that_settles(Duration::from_secs(20), settles, unmeasured())).into();
    world.openstack.lock().cloud.unlisted = 1;
    world.fail("server.create", Fault::LostAnswer, 1);
    let request = world.request("a");
    let error = first.create(&request).await.unwrap_err();
    assert_eq!(error.code, Code::Unknown);
    create(&next, &with_state(request, error.last_known_state.as_deref())).await;
    assert_eq!((world.count(), world.calls("server.create")), (1, 1));
}

#[tokio::test]
async fn an_unknown_outcome_pauses_the_calls_of_controllers() {
    let (world, minute) = (World::new().await, Duration::from_secs(60));
    let driver = driver_that_settles(minute, minute, unmeasured());
    world.fail("server.create", Fault::Status(502), 9);
    let request = announced(&driver, world.request("a")).await;
    let error = driver.create(&request).await.unwrap_err();
    assert_eq!((error.code, error.call_again_in), (Code::Unavailable, None), "the failure is shown");
    let error = driver.create(&request).await.unwrap_err();
    assert!(error.call_again_in.is_some() && error.last_known_state.is_some(), "{error}");
    assert_eq!(world.calls("server.create"), 1);
}

#[tokio::test]
async fn a_throttled_creation_is_repeated_within_the_call() {
    let world = World::new().await;
    let busy = <Matrix as matrix::Errors>::error(Case::Throttle);
    world.fail("server.create", Fault::Error(busy), 1);
    world.driver.create(&world.request("a")).await.unwrap();
    assert_eq!((world.count(), world.calls("server.create")), (1, 2));
}

/// A part of a list must not pass for all of it.
#[rstest]
#[case::id("id")]
#[case::name("name")]
#[case::status("status")]
#[case::metadata("metadata")]
#[tokio::test]
async fn a_list_with_an_entry_that_cannot_be_read_is_an_error(#[case] field: &str) {
    let world = World::new().await;
    let request = world.request("a");
    world.driver.create(&request).await.unwrap();
    let mut servers = {
        let mut openstack = world.openstack.lock();
        let list = openstack.sent("server.list")[0].clone();
        serde_json::from_str::<Value>(&openstack.cloud.answer(&list).body).unwrap()
    };
    servers["servers"][0].as_object_mut().unwrap().remove(field);
    world.fail("server.list", Fault::Error(Reply { status: 200, body: servers.to_string() }), 9);
    assert_eq!(code(world.driver.list(&request.class, &request.secret).await), Code::Unknown);
    assert_eq!(code(world.driver.status(&request).await), Code::Unknown);
}

#[tokio::test]
async fn an_answer_without_end_is_given_up() {
    let world = World::new().await;
    world.fail("server.list", Fault::Endless, 9);
    assert_eq!(code(world.driver.status(&world.request("a")).await), Code::Unavailable);
    assert_eq!(world.calls("server.list"), 1);
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
#[case::plain(spec(), "server.create")]
#[case::server(spec_with_parts(), "server.create")]
#[case::port(spec_with_parts(), "port.create")]
#[case::volume(spec_with_parts(), "volume.create")]
#[tokio::test]
async fn two_hundred_machines_get_two_hundred_servers_although_every_tenth_answer_is_lost(
    #[case] spec: Value,
    #[case] lost: &'static str,
) {
    let world = World::new().await;
    world.openstack.lock().lost_every = Some((lost, 10));
    let names: Vec<String> = (0..200).map(|number| format!("m-{number}")).collect();
    let requests: Vec<_> =
        names.iter().map(|name| world.request_for(name, &format!("uid-{name}"), spec.clone())).collect();
    let mut ids = join_all(requests.iter().map(|request| create(&world.driver, request))).await;
    ids.sort();
    ids.dedup();
    assert_eq!((ids.len(), world.count(), world.calls(lost)), (200, 200, 200));
    let parts = world.calls("port.create");
    assert_eq!(world.counts(), (200, parts, parts));
    let looks = world.calls("server.list");
    assert!(looks < 200, "{looks} lists for 200 machines");
    assert_eq!(world.calls("token.create"), 1);
    world.assert_valid_requests();
    // Deletions share look-ups in the same way.
    let deleted = requests.iter().map(|request| world.driver.delete(request));
    let failed: Vec<DriverError> = join_all(deleted).await.into_iter().filter_map(Result::err).collect();
    assert_eq!((failed, world.counts(), world.calls("server.delete")), (vec![], (0, 0, 0), 200));
}

#[tokio::test]
async fn a_call_that_is_dropped_does_not_lose_its_machine() {
    let world = World::new().await;
    let driver = Arc::new(driver(Duration::from_secs(20), unmeasured()));
    let request = world.request("a");
    world.fail("server.create", Fault::Late(Duration::from_millis(200)), 1);
    let dropped = tokio::time::timeout(Duration::from_millis(150), driver.create(&request)).await;
    assert!(dropped.is_err());
    // A deletion waits for the request that is still under way.
    driver.delete(&request).await.unwrap();
    assert_eq!((world.count(), world.calls("server.create"), world.calls("server.delete")), (0, 1, 1));
}
