//! `mcm why` on a real control plane: each cause is found with one command, which writes nothing.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use mcm::api::{labels, machine::MachinePhase};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::support::{identity, objects, program::mcm, wait, world::World};

/// Shorter than a cache that is not filled is waited for.
const AT_ONCE: Duration = Duration::from_secs(18);

/// The answer for one object.
pub struct Why {
    pub code: i32,
    pub answer: Value,
}

impl Why {
    /// Kinds of its waits, the worst first.
    pub fn kinds(&self) -> Vec<String> {
        self.waits().map(|wait| wait["kind"].as_str().unwrap().to_owned()).collect()
    }

    /// Texts of its waits.
    pub fn text(&self) -> String {
        self.waits().map(|wait| wait["text"].as_str().unwrap()).collect::<Vec<_>>().join("; ")
    }

    fn waits(&self) -> impl Iterator<Item = &Value> {
        self.answer["waits"].as_array().unwrap().iter()
    }
}

/// Runs `mcm why OBJECT -o json` as the administrator.
pub async fn ask(world: &World, object: &str) -> Why {
    let (code, document) = why(world, world.admin(), &[object]).await;
    Why { code, answer: document["objects"][0].clone() }
}

/// Runs `mcm why … -o json` with a kubeconfig; its exit code and document.
pub async fn why(world: &World, kubeconfig: &Path, words: &[&str]) -> (i32, Value) {
    let mut command = Command::new(mcm());
    command.arg("why").args(words).args(["-n", &world.namespace, "-o", "json", "--kubeconfig"]).arg(kubeconfig);
    let output = command.output().await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    (output.status.code().unwrap(), serde_json::from_str(&text).unwrap())
}

/// Repeats the command until it has an exit code.
pub async fn until_code(world: &World, object: &str, code: i32) -> Why {
    wait::until(&format!("{object} to be answered with {code}"), async || {
        let why = ask(world, object).await;
        (why.code == code).then_some(why)
    })
    .await
}

#[tokio::test]
async fn a_missing_secret_is_named_and_once_it_is_there_the_pool_settles() {
    let world = World::new("why-secret").await;
    let _manager = world.run(&[]).await;
    for name in ["small", "large"] {
        world.apply(objects::class(name)).await;
    }
    world.apply(objects::deployment("pool", 1)).await;
    world.until("a machine", |scene| scene.machines.len() == 1).await;
    let pool = until_code(&world, "pool", 3).await;
    assert_eq!(pool.answer["verdict"], "Blocked");
    let machine = pool.answer["machines"][0]["object"]["name"].as_str().unwrap().to_owned();
    let why = ask(&world, &format!("machine/{machine}")).await;
    assert_eq!((why.code, why.kinds().first().map(String::as_str)), (3, Some("Secret")), "{}", why.answer);
    assert!(why.text().contains("pool"), "{}", why.answer);
    assert_eq!(why.answer["owners"][1]["name"], "pool");
    assert_eq!(why.answer["chain"]["up"][0], "MachineDeployment pool: spec.replicas is 1", "{}", why.answer);

    let mut watch = Command::new(mcm());
    watch.args(["why", "pool", "-w", "--until-settled", "-n", &world.namespace, "--kubeconfig"]).arg(world.admin());
    let watch = watch.stdout(std::process::Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    world.apply(objects::secret("pool")).await;
    world.settled(1, "small").await;
    let watched = tokio::time::timeout(wait::PATIENCE, watch.wait_with_output()).await.unwrap().unwrap();
    let text = String::from_utf8(watched.stdout).unwrap();
    assert_eq!(watched.status.code(), Some(0), "{text}");
    assert!(text.contains("is settled") && !text.contains('\x1b'), "{text}");
    let settled = until_code(&world, "pool", 0).await;
    assert_eq!((&settled.answer["verdict"], &settled.answer["machines"]), (&json!("Settled"), &json!([])));
}

#[tokio::test]
async fn a_class_of_an_unknown_provider_is_named() {
    let world = World::new("why-class").await;
    let _manager = world.run(&[]).await;
    world.apply(objects::secret("pool")).await;
    let mut class = objects::class("small");
    class["provider"] = "nonesuch".into();
    world.apply(class).await;
    world.apply(objects::deployment("pool", 1)).await;
    world.until("a machine", |scene| scene.machines.len() == 1).await;
    let pool = until_code(&world, "pool", 3).await;
    let machine = &pool.answer["machines"][0];
    assert_eq!(machine["waits"][0]["kind"], "Class", "{}", pool.answer);
    assert!(machine["waits"][0]["text"].as_str().unwrap().contains("nonesuch"), "{}", pool.answer);

    world.apply(objects::class("small")).await;
    world.settled(1, "small").await;
    until_code(&world, "pool", 0).await;
}

/// The memory of the manager has the start of a wait, its number of attempts, and the time of the next.
#[tokio::test]
async fn a_cloud_that_fails_is_named_with_the_next_attempt_of_the_manager() {
    let world = World::new("why-cloud").await;
    let manager = world.run(&[]).await;
    let fault = json!({"operation": "create", "code": "Internal", "message": "no host has room", "count": 1000});
    world.cloud.control(json!({"faults": [fault]})).await;
    world.pool(1, json!({})).await;
    let machine = world.find("a machine", |scene| scene.machines.keys().next().cloned()).await;
    let words = [&format!("machine/{machine}"), "--manager", &manager.url];
    let (code, document) = wait::until("the manager to remember the wait", async || {
        let (code, document) = why(&world, world.admin(), &words).await;
        let is_remembered = document["objects"][0]["waits"][0]["plans"].as_u64() >= Some(1);
        (code == 4 && is_remembered).then_some((code, document))
    })
    .await;
    let wait = &document["objects"][0]["waits"][0];
    assert_eq!((code, &wait["kind"]), (4, &json!("DriverRetry")), "{document}");
    assert!(wait["text"].as_str().unwrap().contains("no host has room"), "{document}");
    assert!(wait["since"].is_string() && wait["nextAttempt"].is_string(), "{document}");
    assert_eq!(document["asked"][0], format!("{}/", manager.url), "{document}");
    assert!(document["notes"].as_array().unwrap().is_empty(), "{document}");

    let (_, alone) = why(&world, world.admin(), &[words[0], "--manager", "http://127.0.0.1:1"]).await;
    assert_eq!(
        alone["objects"][0]["waits"][0]["kind"], "DriverRetry",
        "without it the object shows the failure: {alone}"
    );
    assert!(alone["notes"][0].as_str().unwrap().contains("was not asked"), "{alone}");
    let (status, metrics) = manager.get("/metrics").await;
    let series = r#"mcm_waiting{controller="machine",kind="DriverRetry"} 1"#;
    assert!(status == 200 && metrics.lines().any(|line| line == series), "{series} is not in\n{metrics}");

    world.cloud.control(json!({"faults": []})).await;
    world.settled(1, "small").await;
    until_code(&world, "pool", 0).await;
}

#[tokio::test]
async fn a_node_that_does_not_join_is_named_and_the_remedy_replaces_the_machine() {
    let world = World::new("why-join").await;
    let _manager = world.run(&[]).await;
    world.classes().await;
    let mut slow = objects::class("small");
    slow["providerSpec"]["bootLatency"] = "1h".into();
    world.apply(slow).await;
    world.apply(objects::deployment("pool", 1)).await;
    let machine = world.find("a machine", |scene| scene.machines.keys().next().cloned()).await;
    let why = wait::until("the machine to wait for its Node", async || {
        let why = ask(&world, &format!("machine/{machine}")).await;
        (why.kinds() == ["NodeJoin"]).then_some(why)
    })
    .await;
    let wait = &why.answer["waits"][0];
    assert_eq!(why.code, 4, "{}", why.answer);
    assert!(wait["nextAttempt"].is_string(), "the end of the creation timeout: {wait}");
    let remedy = format!(
        "kubectl delete machines.machine.sapcloud.io {machine} -n {} --kubeconfig {}",
        world.namespace,
        world.admin().display()
    );
    let is_offered = |one: &Value| one["text"] == remedy && one["danger"] == "ReplacesMachines";
    assert!(wait["remedies"].as_array().unwrap().iter().any(is_offered), "{wait}");

    world.apply(objects::class("small")).await;
    world.machines().delete(&machine, &kube::api::DeleteParams::default()).await.unwrap();
    world.settled(1, "small").await;
    until_code(&world, "pool", 0).await;
}

#[tokio::test]
async fn a_manager_that_is_gone_is_waited_for_first() {
    let world = World::new("why-gone").await;
    world.classes().await;
    for name in ["machine-controller-manager", "machine-controller"] {
        world
            .apply(json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
                "spec": {
                    "holderIdentity": "gone", "leaseDurationSeconds": 15,
                    "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:00.000000Z",
                },
            }))
            .await;
    }
    world.apply(objects::deployment("pool", 1)).await;
    let why = ask(&world, "pool").await;
    assert_eq!((why.code, why.kinds().first().map(String::as_str)), (3, Some("Manager")), "{}", why.answer);
    assert!(why.text().contains("gone renewed the Lease machine-controller-manager"), "{}", why.answer);
}

#[tokio::test]
async fn the_users_of_a_class_that_is_deleted_are_named() {
    let world = World::new("why-users").await;
    let _manager = world.run(&[]).await;
    world.pool(1, json!({})).await;
    world.settled(1, "small").await;
    world.class_api().delete("small", &kube::api::DeleteParams::default()).await.unwrap();
    let class = until_code(&world, "mcc/small", 3).await;
    assert!(class.kinds().contains(&"Users".to_owned()), "{}", class.answer);
    let machine = world.scene.now().names().into_iter().next().unwrap();
    assert!(class.text().contains(&machine), "{}", class.answer);

    world.remove_pool().await;
    wait::until("the class to be gone", async || {
        world.class_api().get_opt("small").await.unwrap().is_none().then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_frozen_set_is_named() {
    let world = World::new("why-frozen").await;
    // A count of machines would unfreeze it.
    let _manager = world.run(&["--machine-safety-overshooting-period=1h"]).await;
    world.pool(1, json!({})).await;
    world.settled(1, "small").await;
    let set = world.find("the set", |scene| scene.sets.keys().next().cloned()).await;
    let frozen = json!({"metadata": {"labels": {labels::FREEZE: "True"}}});
    let patch = kube::api::Patch::Merge(frozen);
    world.sets().patch(&set, &kube::api::PatchParams::default(), &patch).await.unwrap();
    world.scale(2).await;
    world.until("the set to be scaled", |scene| scene.sets[&set].spec.replicas == 2).await;
    let why = until_code(&world, &format!("machineset/{set}"), 3).await;
    assert_eq!(why.kinds(), ["ScaleUpBlocked"], "{}", why.answer);
}

#[tokio::test]
async fn without_a_manager_the_next_step_and_the_missing_manager_are_named() {
    let world = World::new("why-none").await;
    let mut manager = world.launch_run(&[]).ready().await;
    world.pool(1, json!({})).await;
    world.settled(1, "small").await;
    manager.program.kill();
    world.scale(2).await;
    let why = until_code(&world, "pool", 3).await;
    assert!(!why.answer["next"].as_array().unwrap().is_empty(), "{}", why.answer);
    assert_eq!(world.scene.now().count(MachinePhase::Running), 1);
}

#[tokio::test]
async fn an_unknown_object_is_refused_with_a_similar_name() {
    let world = World::new("why-unknown").await;
    world.classes().await;
    world.apply(objects::deployment("pool", 0)).await;
    let output = Command::new(mcm())
        .args(["why", "pol", "-n", &world.namespace, "--kubeconfig"])
        .arg(world.admin())
        .output()
        .await
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    let expected = format!("error: there is no pol in namespace {}\nhint: did you mean pool?\n", world.namespace);
    assert_eq!((output.status.code(), text), (Some(2), expected));
}

#[tokio::test]
async fn a_user_with_view_gets_answers_at_once_and_reads_what_he_may_not_see_in_a_note() {
    let world = World::new("why-view").await;
    let manager = world.run(&[]).await;
    world.pool(1, json!({})).await;
    world.settled(1, "small").await;
    for is_of_cluster in [false, true] {
        let viewer =
            identity::viewer(&world.client, world.admin(), &world.namespace, is_of_cluster, world.folder()).await;
        // A busy machine may delay a run.
        let (code, document) = wait::until("an answer at once", async || {
            let begun = Instant::now();
            let answer = why(&world, &viewer, &[]).await;
            (begun.elapsed() < AT_ONCE).then_some(answer)
        })
        .await;
        // Machines whose Nodes are not known may wait for anything.
        let expected = if is_of_cluster { 0 } else { 3 };
        assert_eq!((code, &document["objects"]), (expected, &json!([])), "{document}");
        let note = document["notes"][0].as_str().unwrap();
        assert!(note.contains("secrets (system:serviceaccount:") && note.contains(" may not list secrets)"), "{note}");
        assert_eq!(note.contains("nodes ("), !is_of_cluster, "{note}");
        let (code, document) = why(&world, &viewer, &["mcc/small"]).await;
        let class = &document["objects"][0];
        assert_eq!((code, &class["verdict"], &class["unread"]), (3, &json!("Unknown"), &json!(["secrets"])), "{class}");
        assert!(!class.to_string().contains("to be created"), "{class}");
    }
    drop(manager);
    let viewer = identity::viewer(&world.client, world.admin(), &world.namespace, false, world.folder()).await;
    world.scale(2).await;
    let (_, document) = why(&world, &viewer, &["pool"]).await;
    assert!(document["objects"][0]["next"].as_array().is_some_and(|next| !next.is_empty()), "{document}");
}
