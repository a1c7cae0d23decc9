//! Google's own client for Python, as a user of the fake: it must not be written around our driver.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use super::{
    fake::PROJECT,
    world::{SCRIPT, World, ZONE},
};

#[tokio::test(flavor = "multi_thread")]
async fn googles_own_client_finds_in_the_fake_what_it_expects() {
    let world = World::new().await;
    world.gce.lock().steps = 2;
    let (url, account) = (format!("{}/compute/v1/", world.url), world.account().to_string());
    let drive = move || {
        let mut command = Command::new(SCRIPT);
        command.args(["drive", &url, PROJECT, ZONE]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        process.stdin.take().unwrap().write_all(account.as_bytes()).unwrap();
        process.wait_with_output().unwrap()
    };
    let output = tokio::task::spawn_blocking(drive).await.unwrap();
    assert!(output.status.success());
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
    let expected = json!({
        "begun": "PROVISIONING",
        "repeated": true,
        "done": [null, null, null],
        "conflict": [409, "alreadyExists"],
        "unknown field": [400, "invalid"],
        "output only": [400, "invalid"],
        "pages": ["a", "b", "c"],
        "filter": ["a", "c"],
        "fields": {"items": [{"name": "a", "tags": {"items": ["a"]}}]},
        "instance": {"kind": "compute#instance", "name": "a", "status": "RUNNING", "tags": {"items": ["a"]}},
        "address": true,
        "going": "STOPPING",
        "gone": [null, null, null],
        "left": [],
        "absent": [404, "notFound"],
        "nothing to delete": [404, "notFound"],
    });
    assert_eq!(seen, expected);
    assert_eq!(world.gce.lock().bodies("token").len(), 1, "its token was accepted");
}
