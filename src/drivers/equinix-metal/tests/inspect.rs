//! The findings of a live check.

use mcm_driver::{Driver, inspection::ResourcePresence};
use rstest::rstest;
use serde_json::{Value, json};

use super::{
    World, class,
    fake::{SSH_KEY, SYSTEM},
    spec, spec_with,
};

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
async fn everything_that_a_class_needs_is_looked_for() {
    let world = world_with_a_reservation(true).await;
    let found = findings(&world, complete()).await;
    let texts: Vec<String> =
        found.iter().map(|(path, presence, text)| format!("{path} {presence:?}: {text}")).collect();
    let reservation = format!("providerSpec.reservationIDs[0] Present: hardware reservation {RESERVATION} exists");
    let expected = [
        "providerSpec.projectID Present: project team exists",
        "providerSpec.metro Present: New York",
        "providerSpec.machineType Present: plan c3.small.x86 exists",
        "providerSpec.OS Present: Ubuntu 22.04 LTS",
        "providerSpec.machineType Present: a server of plan c3.small.x86 is free in ny",
        "providerSpec.sshKeys[0] Present: key operators",
        &reservation,
    ];
    assert_eq!(texts, expected);
    assert_eq!((world.count(), world.calls("device.create")), (0, 0), "nothing was created");
    world.assert_valid_requests();
}

#[rstest]
#[case("project", "providerSpec.projectID", "there is no project 93125c2a")]
#[case("metro", "providerSpec.metro", "there is no metro ny")]
#[case("plan", "providerSpec.machineType", "there is no plan c3.small.x86")]
#[case("system", "providerSpec.OS", &format!("there is no operating system {SYSTEM}"))]
#[case("system on plan", "providerSpec.OS", "does not run on plan c3.small.x86")]
#[case("key", "providerSpec.sshKeys[0]", "there is no SSH key")]
#[case("reservation", "providerSpec.reservationIDs[0]", "there is no hardware reservation")]
#[tokio::test]
async fn an_absent_resource_is_named(#[case] absent: &'static str, #[case] path: &str, #[case] expected: &str) {
    let world = world_with_a_reservation(true).await;
    world.metal.lock().cloud.absent.push(absent);
    let all = findings(&world, complete()).await;
    let missing: Vec<_> = all.into_iter().filter(|(_, presence, _)| *presence == ResourcePresence::Missing).collect();
    assert!(
        matches!(missing.as_slice(), [(found, _, text)] if found == path && text.contains(expected)),
        "{missing:?}"
    );
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

#[tokio::test]
async fn a_wrong_token_is_all_that_is_reported() {
    let world = World::new().await;
    let mut secret = world.secret();
    secret.0.insert("apiToken".to_owned(), b"another-token".to_vec());
    let found = world.driver.inspect(&class(spec()), &secret).await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].path.as_str(), found[0].presence), ("Secret", ResourcePresence::Missing));
    assert!(!found[0].text.contains("another-token"), "{}", found[0].text);
}
