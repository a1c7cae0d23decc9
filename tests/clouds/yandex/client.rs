//! Yandex Cloud's own client for Python, as a user of the fake: it must not be written around our driver.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use super::{
    World,
    fake::{FOLDER, IMAGE, SUBNET, ZONE},
};

/// A program with that client.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/hack/clouds/yandex");

#[tokio::test(flavor = "multi_thread")]
async fn yandex_clouds_own_client_finds_in_the_fake_what_it_expects() {
    let world = World::new().await;
    {
        let mut yandex = world.yandex.lock();
        yandex.cloud.steps = 3;
        yandex.cloud.addresses = vec![("198.51.100.1".to_owned(), true), ("198.51.100.2".to_owned(), false)];
        yandex.cloud.failing_names.push(("failing", 8, "Not enough resources"));
    }
    let arguments = [&world.url, FOLDER, ZONE, IMAGE, SUBNET].map(str::to_owned);
    let key = world.key();
    let drive = move || {
        let mut command = Command::new(SCRIPT);
        command.arg("drive").args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        process.stdin.take().unwrap().write_all(key.as_bytes()).unwrap();
        process.wait_with_output().unwrap()
    };
    let output = tokio::task::spawn_blocking(drive).await.unwrap();
    assert!(output.status.success());
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
    let expected = json!({
        "endpoints": ["compute", "iam", "operation", "resource-manager", "vpc"],
        "another key": "UNAUTHENTICATED",
        "nothing": 0,
        "begun": "PROVISIONING",
        "repeated": true,
        "made": [["a", "RUNNING"], ["b", "RUNNING"], ["c", "RUNNING"]],
        "same instance": true,
        "address": true,
        "conflict": "ALREADY_EXISTS",
        "no zone": "INVALID_ARGUMENT",
        "no image": "NOT_FOUND",
        "bad label": "INVALID_ARGUMENT",
        "failed": true,
        "pages": [["a", "b"], ["c"]],
        "filter": ["b"],
        "labels": {"kubernetes-io-cluster-python": "1", "team": "x"},
        "addresses": [["198.51.100.1", true], ["198.51.100.2", false]],
        "resources": ["ru-central1", 10_737_418_240_i64, true, "team", true],
        "twice": "FAILED_PRECONDITION",
        "left": 0,
        "absent": "NOT_FOUND",
        "nothing to delete": "NOT_FOUND",
    });
    assert_eq!(seen, expected);
    assert_eq!(world.yandex.lock().cloud.violations.len(), 2, "the request without a zone, and that with a bad label");
}
