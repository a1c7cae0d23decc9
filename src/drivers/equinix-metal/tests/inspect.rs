//! The findings of a live check.

use mcm_driver::{Driver, inspection::ResourcePresence};
use serde_json::{Value, json};

use super::{World, class, fake::SSH_KEY, spec_with};

const RESERVATION: &str = "3f1f2b7e-9d0c-4f7a-8f0e-5b9a1c2d3e4f";

async fn findings(world: &World, changes: Value) -> Vec<(String, ResourcePresence, String)> {
    let found = world.driver.inspect(&class(spec_with(&changes)), &world.secret()).await.unwrap();
    found.into_iter().map(|one| (one.path, one.presence, one.text)).collect()
}

fn complete() -> Value {
    json!({"sshKeys": [SSH_KEY], "reservationIDs": [RESERVATION, "next-available"]})
}

async fn world_with_a_reservation(is_free: bool) -> World {
    let world = World::new().await;
    world.metal.lock().cloud.reservations = [(RESERVATION.to_owned(), is_free)].into();
    world
}

#[tokio::test]
async fn a_stock_out_and_a_used_reservation_are_found_before_a_device_is_needed() {
    let world = world_with_a_reservation(false).await;
    world.metal.lock().cloud.free.clear();
    let all = findings(&world, complete()).await;
    let missing: Vec<_> = all
        .into_iter()
        .filter(|(_, presence, _)| *presence == ResourcePresence::Missing)
        .map(|(_, _, text)| text)
        .collect();
    let used = format!("hardware reservation {RESERVATION} is in use");
    assert_eq!(missing, ["no server of plan c3.small.x86 is free in ny", &used]);
}
