//! Alibaba Cloud's own client for Python, as a user of the fake: it must not be written around our driver.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use super::{
    World,
    fake::{GROUP, IMAGE, KEY_ID, KEY_PAIR, KEY_SECRET, REGION, SWITCH, TYPE, ZONE},
};

/// A program with that client.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/hack/clouds/alicloud");

#[tokio::test(flavor = "multi_thread")]
async fn alibaba_clouds_own_client_finds_in_the_fake_what_it_expects() {
    let world = World::new().await;
    let host = world.url.strip_prefix("http://").unwrap().to_owned();
    let drive = move || {
        let mut command = Command::new(SCRIPT);
        command.args(["drive", &host, REGION, ZONE, IMAGE, TYPE, SWITCH, GROUP, KEY_PAIR]);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        process.stdin.take().unwrap().write_all(format!("{KEY_ID} {KEY_SECRET}").as_bytes()).unwrap();
        process.wait_with_output().unwrap()
    };
    let output = tokio::task::spawn_blocking(drive).await.unwrap();
    assert!(output.status.success());
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
    let expected = json!({
        "new": "Pending",
        "repeated": true,
        "other parameters": [400, "IdempotentParameterMismatch"],
        "too early": [403, "IncorrectInstanceStatus"],
        "tags": {"kubernetes.io/cluster/theirs": "ä & b", "kubernetes.io/role/node": "1"},
        "address": true,
        "zone": ZONE,
        "by tags": ["vm-a", "vm-b", "vm-c"],
        "by other tags": [],
        "by name": ["vm-b"],
        "by wildcard": ["vm-a", "vm-b", "vm-c"],
        "by no name": [],
        "pages": 3,
        "dry run": [400, "DryRunOperation"],
        "wrong key": [400, "SignatureDoesNotMatch"],
        "no image": [404, "InvalidImageId.NotFound"],
        "no type": [403, "InvalidInstanceType.ValueNotSupported"],
        "tagged": ["kubernetes.io/cluster/theirs", "more"],
        "resources": [IMAGE, TYPE, ZONE, true, KEY_PAIR, [ZONE]],
        "not forced": [403, "IncorrectInstanceStatus"],
        "left": [],
        "nothing to delete": [404, "InvalidInstanceId.NotFound"],
    });
    assert_eq!(seen, expected);
    let ecs = world.ecs.lock();
    assert_eq!(ecs.cloud.violations, [""; 0]);
    assert_eq!((ecs.cloud.created, ecs.count("unknown")), (3, 0));
}
