//! Calls that end while the cloud works, and the next ones, which continue.

use std::time::Duration;

use mcm_driver::{
    Code, DriverError, MachineRequest,
    interface::Driver,
    testing::{server::Fault, suite::with_state},
};

use super::{World, code, driver, unmeasured, with_id};

fn pausing(request: MachineRequest) -> MachineRequest {
    MachineRequest { may_pause: true, ..request }
}

/// Makes a call until it is over, as the controller does; returns how often it paused.
async fn until_over<T>(call: impl AsyncFn() -> Result<T, DriverError>) -> (usize, Result<T, DriverError>) {
    let mut pauses = 0;
    loop {
        match call().await {
            Err(DriverError { call_again_in: Some(_), .. }) => pauses += 1,
            other => return (pauses, other),
        }
    }
}

#[tokio::test]
async fn a_creation_ends_while_the_cloud_works_and_the_next_call_continues_it() {
    let world = World::new().await;
    world.yandex.lock().cloud.steps = 4;
    let request = pausing(world.request("a"));
    let paused = world.driver.create(&request).await.unwrap_err();
    assert_eq!((paused.code, paused.call_again_in.is_some()), (Code::Unavailable, true), "{paused}");
    assert_eq!(paused.last_known_state.as_deref(), Some("Creation by operation fhmop0 of request 0"));
    assert_eq!(world.calls("operation.get"), 0, "it does not wait");
    let (pauses, vm) = until_over(async || world.driver.create(&request).await).await;
    assert_eq!((pauses, vm.unwrap().last_known_state.unwrap().starts_with("Created yandex://")), (3, true));
    assert_eq!((world.count(), world.calls("instance.create")), (1, 1));
}

#[tokio::test]
async fn another_process_continues_a_creation() {
    let world = World::new().await;
    world.yandex.lock().cloud.steps = 4;
    world.yandex.lock().cloud.failing.push_back((8, "Not enough resources"));
    let paused = world.driver.create(&pausing(world.request("a"))).await.unwrap_err();
    let request = with_state(pausing(world.request("a")), paused.last_known_state.as_deref());
    let restarted = driver(Duration::from_secs(20), unmeasured());
    // Until the operation is done, nothing certain is known.
    for error in [restarted.status(&request).await.unwrap_err(), restarted.delete(&request).await.unwrap_err()] {
        assert_eq!((error.code, error.call_again_in.is_some()), (Code::Unavailable, true), "{error}");
    }
    let (_, failed) = until_over(async || restarted.create(&request).await).await;
    let failed = failed.unwrap_err();
    assert_eq!((failed.code, failed.last_known_state.as_deref()), (Code::ResourceExhausted, Some("Spent requests: 1")));
    assert_eq!(world.calls("instance.create"), 1);
}

#[tokio::test]
async fn a_creation_that_fails_meanwhile_says_why() {
    let world = World::new().await;
    world.yandex.lock().cloud.failing.push_back((8, "Not enough resources"));
    let request = pausing(world.request("a"));
    world.driver.create(&request).await.unwrap_err();
    let (_, status) = until_over(async || world.driver.status(&request).await).await;
    assert_eq!(code(status), Code::NotFound, "the controller creates it next");
    assert_eq!(code(world.driver.create(&request).await), Code::ResourceExhausted);
    assert_eq!((world.count(), world.calls("instance.create")), (0, 1), "no other request before that is stored");
}

#[tokio::test]
async fn a_status_while_a_vm_is_created_is_not_an_absence() {
    let world = World::new().await;
    world.yandex.lock().cloud.steps = 5;
    let request = pausing(world.request("a"));
    world.driver.create(&request).await.unwrap_err();
    let hidden = std::mem::take(&mut world.yandex.lock().cloud.instances);
    for error in [world.driver.status(&request).await.unwrap_err(), world.driver.delete(&request).await.unwrap_err()] {
        assert_eq!((error.code, error.call_again_in.is_some()), (Code::Unavailable, true), "{error}");
    }
    let error = world.driver.status(&world.request("a")).await.unwrap_err();
    assert_eq!(
        (error.code, error.call_again_in),
        (Code::Unavailable, None),
        "a caller that does not pause is not told to"
    );
    world.yandex.lock().cloud.instances.extend(hidden);
    let (_, deleted) = until_over(async || world.driver.delete(&request).await).await;
    deleted.unwrap();
    assert_eq!(world.count(), 0, "no VM is left behind");
}

/// Without the operation, the reason of its failure is lost, and the state of the instance decides.
#[tokio::test]
async fn an_instance_without_a_host_is_not_returned() {
    let world = World::new().await;
    {
        let mut yandex = world.yandex.lock();
        yandex.cloud.steps = 6;
        yandex.cloud.failing.push_back((8, "Not enough resources"));
    }
    world.driver.create(&pausing(world.request("a"))).await.unwrap_err();
    // A process without the state of the machine.
    let restarted = driver(Duration::from_secs(20), unmeasured());
    let request = pausing(world.request("a"));
    for error in [restarted.status(&request).await.unwrap_err(), restarted.create(&request).await.unwrap_err()] {
        assert_eq!((error.code, error.call_again_in.is_some()), (Code::Unavailable, true), "{error}");
    }
    let waiting = restarted.create(&world.request("a")).await.unwrap_err();
    assert_eq!(waiting.code, Code::Aborted, "{waiting}");
    restarted.create(&world.request("a")).await.unwrap();
    assert_eq!(world.count(), 1);
}

#[tokio::test]
async fn a_deletion_ends_while_the_cloud_works_and_the_next_call_continues_it() {
    let world = World::new().await;
    let request = pausing(world.request("a"));
    let id = world.put("a", &["kubernetes-io-cluster-shoot", "kubernetes-io-role-node"]);
    let known = with_id(request, &id);
    let (pauses, deleted) = until_over(async || world.driver.delete(&known).await).await;
    deleted.unwrap();
    assert_eq!((pauses, world.count()), (2, 0));
    let calls = ["instance.get", "instance.delete", "operation.get"].map(|call| world.calls(call));
    assert_eq!(calls, [1, 1, 2], "it is looked up once and deleted once");
}

#[tokio::test]
async fn a_deletion_that_another_process_began_is_waited_for() {
    let world = World::new().await;
    let id = world.put("a", &["kubernetes-io-cluster-shoot", "kubernetes-io-role-node"]);
    let known = with_id(world.request("a"), &id);
    world.driver.delete(&pausing(known.clone())).await.unwrap_err();
    driver(Duration::from_secs(20), unmeasured()).delete(&known).await.unwrap();
    assert_eq!((world.count(), world.calls("instance.delete")), (0, 1));
}

#[tokio::test]
async fn a_deletion_that_fails_is_sent_again() {
    let world = World::new().await;
    let id = world.put("a", &["kubernetes-io-cluster-shoot", "kubernetes-io-role-node"]);
    let known = pausing(with_id(world.request("a"), &id));
    world.driver.delete(&known).await.unwrap_err();
    {
        // The cloud lost the deletion.
        let mut yandex = world.yandex.lock();
        yandex.cloud.forget_operations();
        yandex.cloud.instances.values_mut().for_each(|instance| instance["status"] = "RUNNING".into());
    }
    let (_, lost) = until_over(async || world.driver.delete(&known).await).await;
    assert_eq!(code(lost), Code::Aborted);
    let (_, deleted) = until_over(async || world.driver.delete(&known).await).await;
    deleted.unwrap();
    assert_eq!((world.count(), world.calls("instance.delete")), (0, 2));
}

#[tokio::test]
async fn a_machine_whose_instance_is_being_deleted_waits_for_its_end() {
    let world = World::new().await;
    let id = world.put("a", &["kubernetes-io-cluster-shoot", "kubernetes-io-role-node"]);
    world.driver.delete(&pausing(with_id(world.request("a"), &id))).await.unwrap_err();
    // Deleted by hand, while its machine stays.
    let error = world.driver.create(&world.request("a")).await.unwrap_err();
    assert_eq!((error.code, world.count()), (Code::Aborted, 0), "{error}");
    let vm = world.driver.create(&world.request("a")).await.unwrap();
    assert_ne!(vm.provider_id, id);
}

#[tokio::test]
async fn a_look_that_fails_does_not_end_a_creation() {
    let world = World::new().await;
    let request = pausing(world.request("a"));
    world.driver.create(&request).await.unwrap_err();
    world.fail("operation.get", Fault::Status(503), 2);
    let error = world.driver.create(&request).await.unwrap_err();
    assert_eq!((error.code, error.call_again_in), (Code::Unavailable, None));
    let (_, vm) = until_over(async || world.driver.create(&request).await).await;
    vm.unwrap();
    assert_eq!(world.calls("instance.create"), 1);
}
