//! metal-stack's own client for Go, as a user of the fake: it must not be written around our driver.

use std::process::Command;

use super::{
    World,
    fake::{HMAC, IMAGE, NETWORK, PARTITION, PROJECT, SIZE, TOKEN},
};

/// A program with that client.
const CLIENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clouds/metal_stack/client");

#[tokio::test(flavor = "multi_thread")]
async fn metal_stacks_own_client_finds_in_the_fake_what_it_expects() {
    let world = World::new().await;
    let arguments = [&world.url, TOKEN, HMAC, PARTITION, SIZE, IMAGE, PROJECT, NETWORK].map(str::to_owned);
    let run = move || Command::new("go").args(["run", "."]).args(arguments).current_dir(CLIENT).output().unwrap();
    let output = tokio::task::spawn_blocking(run).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metal = world.metal.lock();
    assert_eq!(metal.cloud.violations, [""; 0]);
    assert_eq!((metal.cloud.allocated, metal.cloud.allocations().len()), (2, 0));
}
