//! Creations that take longer than the turn of a Machine.

use std::time::Duration;

use serde_json::Value;

use super::{
    creating::{CountingCloud, drivers_of},
    served::{machine, world},
};
use crate::{
    Settings,
    machine::KIND,
    testing::{Leading, settings, until},
};

#[tokio::test(start_paused = true)]
async fn a_vm_is_stored_before_its_machine_gives_its_slot_to_another_one() {
    let (wire, cloud) = (world(), CountingCloud::taking_with_late_lists(Duration::from_secs(12)));
    machine(&wire, "alone");
    let leading = Leading::start(&wire, &[KIND], &Settings { drivers: drivers_of(&cloud), ..settings() });
    until("the VM is stored", || {
        wire.get::<Value>("machines/alone").unwrap()["spec"]["providerID"] == "cloud:///alone"
    })
    .await;
    assert_eq!(cloud.calls(), 1);
    drop(leading);
}
