//! The requests that the driver reports.

use std::{sync::Arc, time::Duration};

use mcm_driver::{Driver, DriverObserver, cloud::RequestReporter, testing::Recorder};

use super::{World, driver, server::Fault};
use crate::NAME;

#[tokio::test]
async fn each_attempt_of_a_request_is_counted_by_its_purpose() {
    let world = World::new().await;
    let recorder = Arc::new(Recorder::default());
    let observer: Arc<dyn DriverObserver> = Arc::<Recorder>::clone(&recorder);
    let driver = driver(Duration::from_secs(20), RequestReporter::for_provider(NAME, &observer));
    let request = world.request("a");
    driver.create(&request).await.unwrap();
    let created = [
        ("nic_create", 1, 0),
        ("nic_get", 0, 1),
        ("operation_get", 1, 0),
        ("subnet_get", 1, 0),
        ("token", 1, 0),
        ("virtual_machine_create", 1, 0),
        ("virtual_machine_get", 0, 1),
    ];
    assert_eq!(recorder.take(NAME), created);
    world.fail("graph.query", Fault::Malformed, 1);
    driver.list(&request.class, &request.secret).await.unwrap();
    assert_eq!(recorder.take(NAME), [("resource_graph_query", 1, 1)]);
    driver.delete(&request).await.unwrap();
    let deleted = [("operation_get", 1, 0), ("virtual_machine_delete", 1, 0), ("virtual_machine_get", 1, 0)];
    assert_eq!(recorder.take(NAME), deleted);
}
