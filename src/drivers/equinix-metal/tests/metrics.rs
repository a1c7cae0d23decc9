//! The requests that the driver reports.

use std::{sync::Arc, time::Duration};

use mcm_driver::{Driver, DriverObserver, cloud::RequestReporter, testing::Recorder};

use super::{NAME, World, driver, server::Fault, with_id};

#[tokio::test]
async fn each_attempt_of_a_request_is_counted_by_its_purpose() {
    let world = World::new().await;
    let recorder = Arc::new(Recorder::default());
    let observer: Arc<dyn DriverObserver> = Arc::<Recorder>::clone(&recorder);
    let driver = driver(Duration::from_secs(20), RequestReporter::for_provider(NAME, &observer));
    let request = world.request("a");
    let vm = driver.create(&request).await.unwrap();
    assert_eq!(recorder.take(NAME), [("device_create", 1, 0), ("device_list", 1, 0)]);
    world.fail("device.list", Fault::Malformed, 1);
    driver.list(&request.class, &request.secret).await.unwrap();
    assert_eq!(recorder.take(NAME), [("device_list", 1, 1)]);
    driver.delete(&with_id(request, &vm.provider_id)).await.unwrap();
    assert_eq!(recorder.take(NAME), [("device_delete", 1, 0), ("device_get", 1, 0)]);
}
