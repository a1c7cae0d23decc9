//! The requests that the driver reports, and how many a VM costs.

use mcm_driver::{MachineRequest, interface::Driver};

use super::{World, with_id};

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
