//! The requests that the driver reports, and how many a VM costs.

use std::{sync::Arc, time::Duration};

use mcm_driver::{
    DriverObserver, MachineRequest,
    cloud::RequestReporter,
    interface::Driver,
    testing::{Recorder, server::Fault},
};

use super::{World, driver, with_id};
use crate::NAME;

#[tokio::test]
async fn each_attempt_of_a_request_is_counted_by_its_purpose() {
    let world = World::new().await;
    let recorder = Arc::new(Recorder::default());
    let observer: Arc<dyn DriverObserver> = Arc::<Recorder>::clone(&recorder);
    let driver = driver(Duration::from_secs(20), RequestReporter::for_provider(NAME, &observer));
    let request = world.request("a");
    driver.create(&request).await.unwrap();
    let expected = [
        ("endpoint_list", 1, 0),
        ("instance_create", 1, 0),
        ("instance_get", 1, 0),
        ("instance_list", 1, 0),
        ("operation_get", 2, 0),
        ("token_get", 1, 0),
    ];
    assert_eq!(recorder.take(NAME), expected);
    world.fail("instance.list", Fault::Malformed, 1);
    driver.list(&request.class, &request.secret).await.unwrap();
    assert_eq!(recorder.take(NAME), [("instance_list", 1, 1)]);
    driver.delete(&request).await.unwrap();
    assert_eq!(recorder.take(NAME), [("instance_delete", 1, 0), ("instance_list", 1, 0), ("operation_get", 2, 0)]);
}

/// The calls of a controller: status, creation and its pauses, then status and deletion.
#[tokio::test]
async fn the_life_of_a_vm_takes_few_calls() {
    let world = World::new().await;
    let request = MachineRequest { may_pause: true, ..world.request("a") };
    world.driver.status(&request).await.unwrap_err();
    world.driver.create(&request).await.unwrap_err();
    let vm = loop {
        match world.driver.status(&request).await {
            Ok(vm) => break vm,
            Err(error) => assert!(error.call_again_in.is_some(), "{error}"),
        }
    };
    let calls = || {
        ["token.create", "endpoint.list", "instance.list", "instance.get", "instance.create", "operation.get"]
            .map(|call| world.calls(call))
    };
    assert_eq!(calls(), [1, 1, 3, 0, 1, 2]);
    let known = with_id(request, &vm.provider_id);
    world.driver.status(&known).await.unwrap();
    while let Err(error) = world.driver.delete(&known).await {
        assert!(error.call_again_in.is_some(), "{error}");
    }
    assert_eq!((calls(), world.calls("instance.delete")), ([1, 1, 3, 2, 1, 4], 1));
}
