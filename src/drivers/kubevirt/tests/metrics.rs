//! The requests that the driver reports.

use std::{sync::Arc, time::Duration};

use super::{World, driver, kit::Recorder, server::Fault};
use crate::NAME;
use mcm_driver::{DriverObserver, cloud::RequestReporter, interface::Driver};

#[tokio::test]
async fn each_attempt_of_a_request_is_counted_by_its_purpose() {
    let world = World::new().await;
    let recorder = Arc::new(Recorder::default());
    let observer: Arc<dyn DriverObserver> = Arc::<Recorder>::clone(&recorder);
    let driver = driver(Duration::from_secs(20), RequestReporter::for_provider(NAME, &observer));
    let request = world.request("a");
    driver.create(&request).await.unwrap();
    let created = [
        ("secret_create", 1, 0),
        ("secret_patch", 1, 0),
        ("virtual_machine_create", 1, 0),
        ("virtual_machine_get", 1, 1),
    ];
    assert_eq!(recorder.take(NAME), created, "that there is no VM is an answer with an error");
    world.fail("vm.list", Fault::Malformed, 1);
    driver.list(&request.class, &request.secret).await.unwrap();
    assert_eq!(recorder.take(NAME), [("virtual_machine_list", 1, 1)]);
    driver.delete(&request).await.unwrap();
    assert_eq!(
        recorder.take(NAME),
        [("secret_get", 0, 1), ("virtual_machine_delete", 1, 0), ("virtual_machine_get", 1, 1)]
    );
}
