//! The requests that the driver reports.

use std::{sync::Arc, time::Duration};

use super::{World, driver, server::Fault};
use crate::NAME;
use mcm_driver::{DriverObserver, cloud::RequestReporter, interface::Driver, testing::Recorder};

#[tokio::test]
async fn each_attempt_of_a_request_is_counted_by_its_purpose() {
    let world = World::new().await;
    let recorder = Arc::new(Recorder::default());
    let observer: Arc<dyn DriverObserver> = Arc::<Recorder>::clone(&recorder);
    let driver = driver(Duration::from_secs(20), RequestReporter::for_provider(NAME, &observer));
    let request = world.request("a");
    driver.create(&request).await.unwrap();
    assert_eq!(recorder.take(NAME), [("machine_allocate", 1, 0), ("machine_find", 1, 0)]);
    world.fail("machine.find", Fault::Malformed, 1);
    driver.list(&request.class, &request.secret).await.unwrap();
    assert_eq!(recorder.take(NAME), [("machine_find", 1, 1)]);
    driver.delete(&request).await.unwrap();
    assert_eq!(recorder.take(NAME), [("machine_find", 1, 0), ("machine_free", 1, 0)]);
}
