//! Equinix' own client for Go, as a user of the fake: it must not be written around our driver.

use std::process::Command;

use super::{
    World,
    fake::{METRO, PLAN, PROJECT, SYSTEM, TOKEN},
};

/// A program with that client.
const CLIENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clouds/equinix_metal/client");
const RESERVATION: &str = "3f1f2b7e-9d0c-4f7a-8f0e-5b9a1c2d3e4f";

#[tokio::test(flavor = "multi_thread")]
async fn equinix_own_client_finds_in_the_fake_what_it_expects() {
    let world = World::new().await;
    world.metal.lock().cloud.reservations = [(RESERVATION.to_owned(), true)].into();
    let arguments = [&world.url, TOKEN, PROJECT, METRO, PLAN, SYSTEM, RESERVATION].map(str::to_owned);
    let run = move || Command::new("go").args(["run", "."]).args(arguments).current_dir(CLIENT).output().unwrap();
    let output = tokio::task::spawn_blocking(run).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metal = world.metal.lock();
    assert_eq!(metal.cloud.violations, [""; 0]);
    assert_eq!((metal.cloud.created, metal.cloud.present().len()), (13, 0));
}
