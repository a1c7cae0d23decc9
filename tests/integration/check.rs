//! `mcm check` and `mcm check takeover` on a real control plane, which they do not change.

use std::path::Path;

use kube::api::{Patch, PatchParams};
use mcm::api::labels;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::{
    bad_input,
    support::{
        control_plane::{self, ControlPlane},
        objects,
        program::mcm,
        secrets, wait,
        world::World,
    },
};

/// The answer of a check.
struct Checked {
    code: i32,
    document: Value,
}

impl Checked {
    /// Results and texts of a check, such as `kinds`.
    fn of(&self, check: &str) -> Vec<(String, String)> {
        let all = self.document["checks"].as_array().unwrap().iter().filter(|one| one["check"] == check);
        all.map(|one| (one["result"].as_str().unwrap().to_owned(), one["text"].as_str().unwrap().to_owned())).collect()
    }

    /// The only result of a check.
    fn result(&self, check: &str) -> String {
        let of = self.of(check);
        assert_eq!(of.len(), 1, "{check}: {}", self.document);
        of[0].0.clone()
    }
}

async fn check(world: &World, words: &[&str]) -> Checked {
    as_user(world, world.admin(), words).await
}

async fn as_user(world: &World, kubeconfig: &Path, words: &[&str]) -> Checked {
    let output = Command::new(mcm())
        .arg("check")
        .args(words)
        .args(["-n", &world.namespace, "-o", "json", "--kubeconfig"])
        .arg(kubeconfig)
        .output()
        .await
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!secrets::are_in(&text), "a planted secret is in the answer");
    Checked { code: output.status.code().unwrap(), document: serde_json::from_str(&text).unwrap() }
}

/// Short, so that the end of a manager is seen early.
const LEASES: [&str; 3] =
    ["--leader-elect-lease-duration=8s", "--leader-elect-renew-deadline=6s", "--leader-elect-retry-period=500ms"];

#[tokio::test]
async fn a_sound_installation_is_ready_until_its_manager_ends() {
    let world = World::new("check-good").await;
    let mut manager = world.launch_run(&LEASES).ready().await;
    world.pool(1, json!({})).await;
    world.settled(1, "small").await;
    let checked = check(&world, &["--service-account", "mcm", "--target-kubeconfig", "none"]).await;
    assert_eq!((checked.code, &checked.document["isReady"]), (0, &json!(true)), "{}", checked.document);
    for check in ["clusters", "kinds", "objects", "drivers", "classes", "secrets", "clocks", "waits"] {
        assert_eq!(checked.result(check), "Good", "{}", checked.document);
    }
    assert!(checked.of("leases").iter().all(|(result, _)| result == "Good"), "{}", checked.document);
    assert!(checked.of("permissions")[0].1.starts_with("mcm may do everything"));

    manager.program.kill();
    let checked = wait::until("the end of the manager to be a problem", async || {
        let checked = check(&world, &["--target-kubeconfig", "none"]).await;
        (checked.code == 3).then_some(checked)
    })
    .await;
    for (result, text) in checked.of("leases") {
        assert!(result == "Problem" && text.starts_with("no manager runs: "), "{}", checked.document);
    }
}

#[tokio::test]
async fn every_gap_of_an_installation_is_named() {
    let world = World::new("check-gaps").await;
    let mut class = objects::class("small");
    class["provider"] = "nonesuch".into();
    world.apply(class).await;
    world.apply(objects::class("large")).await;
    let checked = check(&world, &["--service-account", "nobody"]).await;
    assert_eq!(checked.code, 3, "{}", checked.document);
    assert!(checked.of("drivers")[0].1.contains("nonesuch"), "{}", checked.document);
    assert!(checked.of("secrets").iter().all(|(result, _)| result == "Problem"), "{}", checked.document);
    assert_eq!(checked.of("permissions")[0].0, "Problem");
    assert!(checked.of("leases").iter().all(|(_, text)| text.starts_with("there is no Lease")));
}

#[tokio::test]
async fn the_credentials_of_the_managers_suffice() {
    let world = World::new("check-pod").await;
    world.pool(0, json!({})).await;
    let identity = world.identity();
    let target = identity.target.to_str().unwrap();
    let checked = as_user(&world, &identity.control, &["--target-kubeconfig", target]).await;
    assert_eq!(checked.code, 0, "{}", checked.document);
    let permissions: Vec<String> = checked.of("permissions").into_iter().map(|(_, text)| text).collect();
    assert!(permissions[0].starts_with("mcm may do everything"), "{permissions:?}");
    // They are those of a namespace, so a note names the right to look for others with the same cluster tag.
    assert!(permissions[1].starts_with("mcm may not list machineclasses in all namespaces"), "{permissions:?}");
    assert!(permissions[2].starts_with("target may do everything that mcm does in the target"), "{permissions:?}");
    // They do not include the definitions of kinds.
    assert_eq!(checked.result("kinds"), "Unknown");
}

#[tokio::test]
async fn a_frozen_set_is_a_note() {
    let world = World::new("check-frozen").await;
    // A count of machines would unfreeze it.
    let _manager = world.run(&["--machine-safety-overshooting-period=1h"]).await;
    world.pool(1, json!({})).await;
    world.settled(1, "small").await;
    let set = world.find("the set", |scene| scene.sets.keys().next().cloned()).await;
    let patch = Patch::Merge(json!({"metadata": {"labels": {labels::FREEZE: "True"}}}));
    world.sets().patch(&set, &PatchParams::default(), &patch).await.unwrap();
    let checked = check(&world, &[]).await;
    assert_eq!((checked.code, checked.result("frozen").as_str()), (0, "Note"), "{}", checked.document);
    assert!(checked.of("frozen")[0].1.contains(&set));
}

#[tokio::test]
async fn an_unreadable_object_and_an_older_definition_are_named() {
    let control_plane = ControlPlane::apart().await.unwrap();
    let world = World::apart(&control_plane, "check-old").await;
    let mut older = bad_input::lax();
    for version in older.iter_mut().flat_map(|crd| &mut crd.spec.versions) {
        let schema = version.schema.as_mut().unwrap().open_api_v3_schema.as_mut().unwrap();
        let spec = schema.properties.as_mut().unwrap().get_mut("spec");
        let _ = spec.and_then(|spec| spec.properties.as_mut()).and_then(|all| all.remove("inPlaceUpdateTimeout"));
    }
    control_plane::install(&world.client, &older).await.unwrap();
    for object in bad_input::unreadable() {
        world.apply(object).await;
    }
    let checked = check(&world, &[]).await;
    assert_eq!(checked.code, 3);
    let named: Vec<String> = checked.of("objects").into_iter().map(|(_, text)| text).collect();
    for kind in ["Machine", "MachineSet", "MachineDeployment"] {
        let text = format!("{kind} stuck cannot be read: ");
        assert!(named.iter().any(|one| one.starts_with(&text) && one.contains("2 hours")), "{text}: {named:?}");
    }
    let kinds = checked.of("kinds");
    assert!(kinds[0].1.contains("Machine lacks fields of this version"), "{kinds:?}");

    // The same objects are a note of other commands, which go on.
    let output = Command::new(mcm())
        .args(["why", "-n", &world.namespace, "--kubeconfig"])
        .arg(world.admin())
        .output()
        .await
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("Machine stuck cannot be read"), "{text}{}", String::from_utf8_lossy(&output.stderr));
}

fn deployment(world: &World, flags: &[&str]) -> Value {
    let command = [&["./machine-controller-manager"], flags].concat();
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "machine-controller-manager", "namespace": world.namespace},
        "spec": {
            "replicas": 0, "selector": {"matchLabels": {"app": "mcm"}},
            "template": {
                "metadata": {"labels": {"app": "mcm"}},
                "spec": {
                    "serviceAccountName": "mcm", "terminationGracePeriodSeconds": 5,
                    "containers": [
                        {"name": "machine-controller-manager", "image": "example/machine-controller-manager:v1", "command": command},
                        {"name": "provider", "image": "example/machine-controller-manager-provider-x:v1", "args": flags},
                    ],
                },
            },
        },
    })
}

#[tokio::test]
async fn a_takeover_is_judged_by_the_deployment_of_the_go_programs() {
    let world = World::new("check-takeover").await;
    world.pool(0, json!({})).await;
    let flags = ["--control-kubeconfig=inClusterConfig", "--target-kubeconfig=/x", "--min-resync-period=12h"];
    objects::apply(&world.client, &deployment(&world, &flags)).await;
    let checked = check(&world, &["takeover", "--image", "example/mcm:v0.0.0"]).await;
    assert_eq!(checked.code, 0, "{}", checked.document);
    assert_eq!(checked.of("flags")[0].1, "6 of 6 known; 1 without effect: --min-resync-period");
    assert_eq!(checked.of("permissions")[0].0, "Good", "{}", checked.document);
    assert_eq!((checked.result("grace"), checked.result("command")), ("Note".into(), "Note".into()));
    let next = checked.document["checks"].as_array().unwrap().iter().find(|one| one["check"] == "image").unwrap();
    assert!(next["next"].as_str().unwrap().contains("provider=example/mcm:v0.0.0"), "{next}");

    objects::apply(&world.client, &deployment(&world, &["--nonesuch=1"])).await;
    let checked = check(&world, &["takeover"]).await;
    assert_eq!(checked.code, 3, "{}", checked.document);
    assert!(checked.of("flags")[0].1.contains("--nonesuch"), "{}", checked.document);
}
