//! Metrics of the driver's requests.

use std::{sync::Arc, time::Duration};

use super::{World, fake::Fault, measured_driver};
use crate::NAME;
use mcm_driver::{DriverObserver, cloud::RequestReporter, interface::Driver, testing::Recorder};

#[tokio::test]
async fn each_attempt_of_a_request_counts_under_the_name_of_the_reference() {
    let world = World::new().await;
    let recorder = Arc::new(Recorder::default());
    let observer: Arc<dyn DriverObserver> = Arc::<Recorder>::clone(&recorder);
    let driver = measured_driver(&world.url, Duration::from_secs(20), RequestReporter::for_provider(NAME, &observer));
    let request = world.request("a");
    driver.status(&request).await.unwrap_err();
    assert_eq!(recorder.take(NAME), [("instance_list", 1, 0), ("token_get", 1, 0)]);
    driver.create(&request).await.unwrap();
    let creation = recorder.take(NAME);
    let services: Vec<_> = creation.iter().map(|(service, ..)| *service).collect();
    assert_eq!(services, ["instance_create", "instance_list", "operations_get"], "{creation:?}");
    world.gce.lock().faults = vec![("instances.list", Fault::Malformed, 1)];
    driver.list(&request.class, &request.secret).await.unwrap();
    assert_eq!(recorder.take(NAME), [("instance_list", 1, 1)]);
    driver.delete(&request).await.unwrap();
    let deletion = recorder.take(NAME);
    assert!(deletion.contains(&("instance_delete", 1, 0)), "{deletion:?}");
}
