//! The requests that the driver reports.

use std::{sync::Arc, time::Duration};

use mcm_driver::{DriverObserver, cloud::RequestReporter, interface::Driver, testing::Recorder};

use super::{World, driver, server::Fault};
use crate::NAME;

#[tokio::test]
async fn each_attempt_of_a_request_is_counted_by_its_service() {
    let world = World::new().await;
    let recorder = Arc::new(Recorder::default());
    let observer: Arc<dyn DriverObserver> = Arc::<Recorder>::clone(&recorder);
    let driver = driver(Duration::from_secs(20), RequestReporter::for_provider(NAME, &observer));
    let request = world.request_with_parts("a");
    driver.create(&request).await.unwrap();
    assert_eq!(recorder.take(NAME), [("cinder", 3, 0), ("keystone", 1, 0), ("neutron", 5, 0), ("nova", 5, 0)]);
    world.fail("server.list", Fault::Malformed, 1);
    driver.list(&request.class, &request.secret).await.unwrap();
    assert_eq!(recorder.take(NAME), [("nova", 1, 1)]);
    driver.delete(&request).await.unwrap();
    assert_eq!(recorder.take(NAME), [("cinder", 2, 0), ("neutron", 2, 0), ("nova", 2, 1)]);
}
