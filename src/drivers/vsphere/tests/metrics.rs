//! The requests that the driver reports.

use std::{sync::Arc, time::Duration};

use mcm_driver::{
    DriverObserver,
    cloud::RequestReporter,
    interface::Driver,
    testing::{Recorder, server::Fault},
};

use super::{World, driver};
use crate::NAME;

#[tokio::test]
async fn each_attempt_of_a_request_is_counted_by_its_purpose() {
    let world = World::new().await;
    let recorder = Arc::new(Recorder::default());
    let observer: Arc<dyn DriverObserver> = Arc::<Recorder>::clone(&recorder);
    let driver = driver(Duration::from_secs(20), RequestReporter::for_provider(NAME, &observer));
    let request = world.request("a");
    driver.create(&request).await.unwrap();
    let counted = recorder.take(NAME);
    let of = |service: &str| counted.iter().find(|(name, ..)| *name == service).map(|(_, ok, failed)| (*ok, *failed));
    for service in ["clone_vm", "reconfigure_vm", "power_on_vm", "login", "service_content"] {
        assert_eq!(of(service), Some((1, 0)), "{counted:?}");
    }
    world.fail("look", Fault::Malformed, 1);
    driver.list(&request.class, &request.secret).await.unwrap();
    assert_eq!(recorder.take(NAME), [("find_by_inventory_path", 1, 0), ("retrieve_properties", 2, 0)]);
    driver.delete(&request).await.unwrap();
    let counted = recorder.take(NAME);
    assert!(counted.contains(&("destroy_vm", 1, 0)) && counted.contains(&("power_off_vm", 1, 0)), "{counted:?}");
}
