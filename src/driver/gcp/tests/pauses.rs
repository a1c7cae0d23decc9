//! Calls that end while Google works, and the next ones, which continue.

use super::{World, code};
use crate::driver::{Code, DriverError, MachineRequest, interface::Driver};

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

fn calls(world: &World) -> Vec<&'static str> {
    world.gce.lock().sent.iter().map(|sent| sent.call).collect()
}

#[tokio::test]
async fn a_creation_ends_while_google_works_and_the_next_call_continues_it() {
    let world = World::new().await;
    let request = pausing(world.request("a"));
    let paused = world.driver.create(&request).await.unwrap_err();
    assert_eq!((paused.code, paused.call_again_in.is_some()), (Code::Unavailable, true), "{paused}");
    assert_eq!(calls(&world), ["token", "instances.list", "instances.insert"], "it does not wait");
    let (pauses, vm) = until_over(async || world.driver.create(&request).await).await;
    assert_eq!((pauses, vm.unwrap().last_known_state.unwrap().starts_with("Created ")), (1, true));
    assert_eq!(calls(&world)[3..], ["zoneOperations.get", "zoneOperations.get", "instances.list"]);
    assert_eq!(world.inserts_and_vms(), (1, 1));
}

#[tokio::test]
async fn a_creation_that_fails_meanwhile_says_why() {
    let world = World::new().await;
    world.gce.lock().failing.push_back(vec!["ZONE_RESOURCE_POOL_EXHAUSTED"]);
    let request = pausing(world.request("a"));
    let (pauses, failed) = until_over(async || world.driver.create(&request).await).await;
    let failed = failed.unwrap_err();
    assert!(pauses > 0);
    assert_eq!((failed.code, failed.last_known_state.as_deref()), (Code::ResourceExhausted, Some("Spent requests: 1")));
    assert_eq!(world.inserts_and_vms(), (1, 0), "no other request before the machine has stored that");
    world.driver.create(&world.request("b")).await.expect("another machine has requests of its own");
}

#[tokio::test]
async fn a_machine_whose_vm_is_being_created_is_not_deleted_before_it_is_there() {
    let world = World::new().await;
    world.gce.lock().steps = 5;
    let request = pausing(world.request("a"));
    world.driver.create(&request).await.unwrap_err();
    world.gce.lock().vms.values_mut().for_each(|vm| vm.hidden = usize::MAX);
    let early = [world.driver.status(&request).await.unwrap_err(), world.driver.delete(&request).await.unwrap_err()];
    for error in early {
        assert_eq!((error.code, error.call_again_in.is_some()), (Code::Unavailable, true), "{error}");
    }
    let error = world.driver.status(&world.request("a")).await.unwrap_err();
    assert_eq!((error.code, error.call_again_in), (Code::Unavailable, None), "who may not pause is not told to");
    world.gce.lock().vms.values_mut().for_each(|vm| vm.hidden = 0);
    let (_, deleted) = until_over(async || world.driver.delete(&request).await).await;
    deleted.unwrap();
    assert_eq!(world.count(), 0, "no VM is left behind");
}

#[tokio::test]
async fn a_deletion_ends_while_google_works_and_the_next_call_continues_it() {
    let world = World::new().await;
    world.put("a", "RUNNING");
    let request = pausing(world.request("a"));
    let (pauses, deleted) = until_over(async || world.driver.delete(&request).await).await;
    deleted.unwrap();
    assert_eq!((pauses, world.count()), (2, 0));
    let expected = ["token", "instances.list", "instances.delete", "zoneOperations.get", "zoneOperations.get"];
    assert_eq!(calls(&world), expected, "it is deleted once");
}

#[tokio::test]
async fn a_creation_whose_call_was_dropped_is_continued_and_says_why_it_failed() {
    let world = World::new().await;
    {
        let mut gce = world.gce.lock();
        gce.steps = 50;
        gce.failing.push_back(vec!["QUOTA_EXCEEDED"]);
    }
    let (request, is_begun) = (world.request("a"), async || {
        while world.gce.lock().inserts == 0 || calls(&world).last() != Some(&"zoneOperations.get") {
            tokio::task::yield_now().await;
        }
    });
    tokio::select! {
        biased;
        result = world.driver.create(&request) => panic!("{result:?}"),
        () = is_begun() => {}
    }
    assert_eq!(code(world.driver.create(&request).await), Code::ResourceExhausted);
    assert_eq!(world.gce.lock().inserts, 1);
}
