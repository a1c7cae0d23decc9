//! KubeVirt's own client for Go, as a user of the fake: it must not be written around our driver.

use std::process::Command;

use super::{
    World,
    fake::{NAMESPACE, TOKEN},
};
use crate::simulation::Simulation;

/// A program with that client.
const CLIENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clouds/kubevirt/client");

#[tokio::test(flavor = "multi_thread")]
async fn kubevirts_own_client_finds_in_the_fake_what_it_expects() {
    let world = World::new().await;
    let arguments = [&world.url, TOKEN, NAMESPACE].map(str::to_owned);
    let run = move || Command::new("go").args(["run", "."]).args(arguments).current_dir(CLIENT).output().unwrap();
    let output = tokio::task::spawn_blocking(run).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!((world.violations(), world.created().await, world.vms().await), (vec![], 2, vec![]));
}
