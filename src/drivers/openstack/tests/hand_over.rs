//! A process ends in the middle of a creation, and another one continues it.

use std::time::Duration;

use mcm_driver::{Code, MachineRequest, interface::Driver};
use rstest::rstest;
use serde_json::{Value, json};

use super::{
    World, announced, code, driver_that_settles,
    fake::{SUBNET_ID, VOLUME_TYPE},
    server::Fault,
    spec, spec_with, spec_with_parts, store, unmeasured,
};
use crate::OpenStackServers;
use mcm_driver::cloud::CloudDriver;

/// A process, which waits so long after a request with an unknown outcome.
fn process(settles: Duration) -> CloudDriver<OpenStackServers> {
    driver_that_settles(Duration::from_secs(20), settles, unmeasured())
}

fn with_port() -> Value {
    spec_with(&json!({"subnetIDs": [SUBNET_ID]}))
}

fn with_volume() -> Value {
    spec_with(&json!({"rootDiskSize": 50, "rootDiskType": VOLUME_TYPE}))
}

/// Repeats a creation as controllers do, until it succeeds.
async fn create(driver: &dyn Driver, mut request: MachineRequest) {
    while let Err(error) = driver.create(&request).await {
        assert!(error.code.is_transient(), "{error}");
        store(&mut request, &error);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The lists of Nova lack the server for longer than the next process waits.
#[rstest]
#[case::plain(spec())]
#[case::with_a_port(with_port())]
#[case::with_parts(spec_with_parts())]
#[tokio::test]
async fn the_next_process_finds_the_server_by_the_id_that_the_status_has(#[case] spec: Value) {
    let (world, settles) = (World::new().await, Duration::from_millis(400));
    {
        let cloud = &mut world.openstack.lock().cloud;
        (cloud.builds, cloud.unlisted) = (3, 1000);
    }
    let first = process(settles);
    let mut request = announced(&first, world.request_for("a", "uid-a", spec)).await;
    while world.calls("server.create") == 0 {
        let paused = first.create(&request).await.unwrap_err();
        assert!(paused.call_again_in.is_some(), "{paused}");
        store(&mut request, &paused);
    }
    let next = process(settles);
    let shown = next.status(&request).await.map_err(|error| error.code);
    assert!(matches!(shown, Ok(_) | Err(Code::Unavailable)), "it is no absence: {shown:?}");
    create(&next, request).await;
    assert_eq!((world.count(), world.calls("server.create")), (1, 1));
    assert!(world.calls("port.create") <= 1 && world.calls("volume.create") <= 1);
}

/// The first process ends between the request and the write of the ID.
#[rstest]
#[case::plain(spec())]
#[case::with_a_port(with_port())]
#[tokio::test]
async fn the_next_process_waits_if_the_status_has_no_id_yet(#[case] spec: Value) {
    let (world, settles) = (World::new().await, Duration::from_millis(500));
    world.openstack.lock().cloud.unlisted = 3;
    let first = process(settles);
    let request = announced(&first, world.request_for("a", "uid-a", spec)).await;
    first.create(&request).await.unwrap();
    let next = process(settles);
    assert_eq!(code(next.status(&request).await), Code::Unavailable, "it is no absence yet");
    create(&next, request).await;
    assert_eq!((world.count(), world.calls("server.create")), (1, 1));
    assert!(world.calls("port.create") <= 1);
}

/// The request that the first process sent takes longer than its end and the start of the next process.
#[tokio::test]
async fn the_next_process_waits_for_a_request_that_is_under_way() {
    let (world, settles) = (World::new().await, Duration::from_millis(1500));
    world.fail("server.create", Fault::Late(Duration::from_millis(500)), 1);
    let first = process(settles);
    let request = announced(&first, world.request("a")).await;
    let given_up = tokio::time::timeout(Duration::from_millis(50), first.create(&request)).await;
    assert!(given_up.is_err() && world.count() == 0);
    let next = process(settles);
    assert_eq!(code(next.delete(&request).await), Code::Unavailable, "a deletion waits as well");
    create(&next, request).await;
    assert_eq!((world.count(), world.calls("server.create")), (1, 1));
}

/// A caller that cannot pause stores nothing: a port or a volume of the Machine shows its server.
#[rstest]
#[case::port(with_port())]
#[case::volume(with_volume())]
#[tokio::test]
async fn a_part_that_a_server_has_leads_to_it(#[case] spec: Value) {
    let (world, settles) = (World::new().await, Duration::from_millis(1));
    world.openstack.lock().cloud.unlisted = 1000;
    let request = world.request_for("a", "uid-a", spec);
    let vm = process(settles).create(&request).await.unwrap();
    let next = process(settles);
    assert_eq!(code(next.status(&request).await), Code::NotFound);
    assert_eq!(next.create(&request).await.unwrap().provider_id, vm.provider_id);
    assert_eq!((world.count(), world.calls("server.create")), (1, 1));
    assert_eq!(world.calls("port.create") + world.calls("volume.create"), 1);
}
