//! `mcm tree`, `rollout`, `events`, `top` and the verbs on a real control plane.

use std::{
    process::{Output, Stdio},
    time::{Duration, Instant},
};

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use mcm::api::labels;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Command,
    time::timeout,
};

use crate::{
    dashboard::Dashboard,
    support::{identity, objects, pods, program::mcm, wait, world::World},
};

/// Runs a command in the namespace of a world.
async fn run(world: &World, words: &[&str]) -> Output {
    let command = Command::new(mcm())
        .args(words)
        .args(["-n", &world.namespace, "--kubeconfig"])
        .arg(world.admin())
        .stdin(Stdio::null())
        .output();
    command.await.unwrap()
}

/// Its standard output; the command has an exit code.
async fn text(world: &World, words: &[&str], code: i32) -> String {
    let output = run(world, words).await;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{words:?}: {error}");
    if code == 0 { String::from_utf8(output.stdout).unwrap() } else { error }
}

async fn document(world: &World, words: &[&str]) -> Value {
    serde_json::from_str(&text(world, &[words, &["-o", "json"]].concat(), 0).await).unwrap()
}

/// A pod on the Node of the only machine, and a budget that never lets it go.
async fn protect(world: &World) -> String {
    let node = world.scene.now().names().into_iter().next().unwrap();
    pods::run(&world.target, &world.namespace, pods::pod("web", &node)).await;
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "strict", "namespace": world.namespace},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "web"}}},
    });
    objects::apply(&world.target, &budget).await;
    node
}

#[tokio::test]
async fn a_tree_is_shown_again_after_a_change() {
    let world = World::new("steer-watch").await;
    let _manager = world.run(&[]).await;
    world.pool(1, json!({})).await;
    world.settled(1, "small").await;
    let mut command = Command::new(mcm());
    command.args(["tree", "pool", "-w", "-n", &world.namespace, "--kubeconfig"]).arg(world.admin());
    let mut watch = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    for text in ["1 of 1 running", "2 of 2 running"] {
        let shown = async { while !lines.next_line().await.unwrap().unwrap().contains(text) {} };
        timeout(Duration::from_secs(60), shown).await.unwrap_or_else(|_| panic!("{text} was not shown"));
        world.scale(2).await;
    }
}

#[tokio::test]
async fn a_rollout_is_followed_to_its_end_paused_undone_and_restarted() {
    let world = World::new("steer").await;
    let _manager = world.run(&[]).await;
    world.pool(2, json!({})).await;
    let followed = text(&world, &["rollout", "status", "pool", "--timeout", "120s"], 0).await;
    assert!(followed.trim_end().ends_with("pool revision 1: 2 of 2 new, 2 available, 2 in total: done"), "{followed}");

    world.roll("large").await;
    let followed = text(&world, &["rollout", "status", "pool", "--timeout", "120s", "-o", "json"], 0).await;
    let last: Value = serde_json::from_str(followed.lines().last().unwrap()).unwrap();
    assert_eq!((&last["state"], &last["progress"]["revision"]), (&json!("Done"), &json!(2)), "{followed}");

    let history = document(&world, &["rollout", "history", "pool"]).await;
    let change = &history["revisions"][0]["changes"][0];
    assert_eq!(change, &json!({"path": "template.spec.class.name", "old": "small", "new": "large"}), "{history}");
    assert_ne!(history["revisions"][0]["by"], "", "{history}");

    let tried = text(&world, &["rollout", "pause", "pool", "--dry-run"], 0).await;
    assert!(tried.contains("nothing was changed"), "{tried}");
    let paused = text(&world, &["rollout", "pause", "pool"], 0).await;
    assert!(paused.contains(r#"kubectl patch machinedeployments.machine.sapcloud.io pool"#), "{paused}");
    let undone = text(&world, &["rollout", "undo", "pool"], 0).await;
    assert!(undone.contains("stays paused") && undone.contains("next: mcm rollout resume pool"), "{undone}");
    let unasked = text(&world, &["rollout", "resume", "pool"], 3).await;
    assert!(unasked.contains("--yes"), "{unasked}");
    let resumed = text(&world, &["rollout", "resume", "pool", "--yes"], 0).await;
    assert!(resumed.contains("plan: REPLACES 2 of 2 machines"), "{resumed}");
    world.settled(2, "small").await;

    let unasked = text(&world, &["rollout", "undo", "pool"], 3).await;
    assert!(unasked.contains("--yes"), "{unasked}");
    text(&world, &["rollout", "undo", "pool", "--yes"], 0).await;
    world.settled(2, "large").await;

    let before = world.scene.now().names();
    text(&world, &["rollout", "restart", "pool", "--yes"], 0).await;
    world.until("a rollout", |scene| scene.names().iter().all(|name| !before.contains(name))).await;
    text(&world, &["rollout", "status", "pool", "--timeout", "120s"], 0).await;
    let is_restarted = |machine: &mcm::api::machine::Machine| {
        machine.metadata.annotations.iter().flatten().any(|(key, _)| key == labels::RESTARTED_AT)
    };
    let all_restarted = world.scene.now().machines.values().all(is_restarted);
    assert!(all_restarted);

    let written = world.deployments().get("pool").await.unwrap().metadata.managed_fields.unwrap();
    assert!(written.iter().any(|entry| entry.manager.as_deref() == Some("mcm-cli")), "{written:?}");
    let events = text(&world, &["events", "--for", "pool", "-o", "json"], 0).await;
    let reasons: Vec<Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for reason in ["ScalingMachineSet", "SuccessfulCreate", "Joined", "Changed", "DeploymentRollback"] {
        assert!(reasons.iter().any(|line| line["reason"] == reason), "{reason} is not in {events}");
    }
}

/// The new class never joins, so only the former machines serve.
#[tokio::test]
async fn a_rollout_that_hangs_is_aborted_while_it_is_paused() {
    let world = World::new("steer-abort").await;
    let _manager = world.run(&[]).await;
    world.pool(2, json!({})).await;
    world.settled(2, "small").await;
    let none = text(&world, &["rollout", "abort", "pool"], 3).await;
    assert!(none.contains("has no former set to return to"), "{none}");
    let mut broken = objects::class("broken");
    broken["providerSpec"]["neverJoin"] = true.into();
    world.apply(broken).await;
    let before = world.scene.now().names();
    world.roll("broken").await;
    world.until("a machine that never joins", |scene| scene.names().len() == 3).await;
    text(&world, &["rollout", "pause", "pool"], 0).await;
    let tried = text(&world, &["rollout", "abort", "pool", "--dry-run"], 0).await;
    assert!(tried.contains("namespace ") && tried.contains("nothing was changed"), "{tried}");
    let unasked = text(&world, &["rollout", "abort", "pool"], 3).await;
    assert!(unasked.contains("--yes") && unasked.contains(&world.namespace), "{unasked}");
    let aborted = text(&world, &["rollout", "abort", "pool", "--yes"], 0).await;
    let words = ["returns MachineDeployment pool to revision 1", "and resumes it", "plan: ", "the same with kubectl"];
    assert!(words.iter().all(|word| aborted.contains(word)), "{aborted}");
    world.settled(2, "small").await;
    assert_eq!(world.scene.now().names(), before, "the machines that serve stay");
    assert!(!world.deployments().get("pool").await.unwrap().spec.paused);
}

#[tokio::test]
async fn a_deployment_and_a_set_without_one_are_scaled() {
    let world = World::new("steer-scale").await;
    let _manager = world.run(&[]).await;
    world.pool(2, json!({})).await;
    world.settled(2, "small").await;
    let other = text(&world, &["scale", "pool", "--replicas", "4", "--current-replicas", "3"], 3).await;
    assert!(other.contains("MachineDeployment pool has 2 replicas, and not 3"), "{other}");
    let scaled = text(&world, &["scale", "pool", "--replicas", "4", "--current-replicas", "2"], 0).await;
    assert!(scaled.contains("plan: SCALES 2 → 4"), "{scaled}");
    world.settled(4, "small").await;

    let unasked = text(&world, &["scale", "pool", "--replicas", "2"], 3).await;
    assert!(unasked.contains("scales MachineDeployment pool from 4 to 2 machines"), "{unasked}");
    let scaled = text(&world, &["scale", "pool", "--replicas", "2", "--yes"], 0).await;
    let deleted = scaled.lines().find_map(|line| line.strip_prefix("deletes: ")).unwrap_or_else(|| panic!("{scaled}"));
    let deleted: Vec<&str> = deleted.split(", ").collect();
    world.settled(2, "small").await;
    let left = world.scene.now().names();
    assert!(deleted.len() == 2 && deleted.iter().all(|name| !left.contains(*name)), "{deleted:?} of {left:?}");

    let template = json!({"metadata": {"labels": {"name": "alone"}}, "spec": {"class": {"kind": "MachineClass", "name": "small"}}});
    world
        .apply(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet", "metadata": {"name": "alone"},
            "spec": {"replicas": 0, "selector": {"matchLabels": {"name": "alone"}}, "template": template},
        }))
        .await;
    world.until("the set", |scene| scene.sets.contains_key("alone")).await;
    let scaled = text(&world, &["scale", "machineset/alone", "--replicas", "1"], 0).await;
    assert!(scaled.contains("plan: SCALES 0 → 1"), "{scaled}");
    let serves = |scene: &crate::support::scene::Scene| {
        scene.machines.iter().any(|(name, machine)| name.starts_with("alone-") && machine.is_available())
    };
    world.until("a machine of the set", serves).await;
}

/// Begins to replace a machine, and ends the command while it waits for another one, which never joins: as if its terminal were
/// closed. Returns that machine.
async fn interrupted_replacement(world: &World, machine: &str) -> String {
    let mut broken = objects::class("small");
    broken["providerSpec"]["neverJoin"] = true.into();
    world.apply(broken).await;
    let before = world.scene.now().names();
    let mut command = Command::new(mcm());
    command.args(["machine", "replace", machine, "--yes", "-n", &world.namespace, "--kubeconfig"]).arg(world.admin());
    let _command = command.stdout(Stdio::null()).kill_on_drop(true).spawn().unwrap();
    world.find("another machine", |scene| scene.names().into_iter().find(|name| !before.contains(name))).await
}

/// The first attempt ends while it waits for a machine that never joins, and the second continues.
#[tokio::test]
async fn a_machine_is_replaced_once_another_one_is_available() {
    let world = World::new("steer-replace").await;
    let _manager = world.run(&[]).await;
    world.pool(2, json!({})).await;
    world.settled(2, "small").await;
    let before = world.scene.now().names();
    let (replaced, kept) = (before.first().unwrap().clone(), before.last().unwrap().clone());
    let command = ["machine", "replace", replaced.as_str(), "--yes"];
    let tried = text(&world, &[&command[..], &["--dry-run"]].concat(), 0).await;
    assert!(tried.contains("creates another one first") && tried.contains("plan: SCALES 2 → 3"), "{tried}");

    let added = interrupted_replacement(&world, &replaced).await;
    {
        let scene = world.scene.now();
        assert!(before.iter().all(|name| scene.machines[name].is_available()), "nothing is deleted before");
        assert!(scene.machines[&replaced].metadata.annotations.as_ref().unwrap().contains_key(labels::REPLACEMENT));
    }

    world.apply(objects::class("small")).await;
    world.machines().delete(&added, &kube::api::DeleteParams::default()).await.unwrap();
    let done = text(&world, &command, 0).await;
    assert!(done.contains(&format!("which deletes {replaced}")) && done.contains("the same with kubectl"), "{done}");
    world.settled(2, "small").await;
    let names = world.scene.now().names();
    assert!(!names.contains(&replaced) && names.contains(&kept), "{replaced} of {before:?} is not replaced: {names:?}");
    let gone = text(&world, &command, 2).await;
    assert!(gone.contains("there is no"), "{gone}");
}

#[tokio::test]
async fn a_replacement_is_given_up() {
    let world = World::new("steer-stop").await;
    let _manager = world.run(&[]).await;
    world.pool(1, json!({})).await;
    world.settled(1, "small").await;
    let machine = world.scene.now().names().into_iter().next().unwrap();
    let none = text(&world, &["machine", "replace", &machine, "--stop", "--yes"], 3).await;
    assert!(none.contains("no replacement of Machine"), "{none}");
    interrupted_replacement(&world, &machine).await;
    let slow = text(&world, &["machine", "replace", &machine, "--yes", "--timeout", "1s"], 124).await;
    assert!(slow.contains("the same command continues") && slow.contains("--stop"), "{slow}");
    text(&world, &["machine", "replace", &machine, "--stop", "--yes"], 0).await;
    world.settled(1, "small").await;
    let kept = &world.scene.now().machines[&machine];
    assert!(
        kept.is_available() && !kept.metadata.annotations.clone().unwrap_or_default().contains_key(labels::REPLACEMENT)
    );
}

/// The machine that was added serves, so a set would delete the oldest machine without a priority.
#[tokio::test]
async fn a_replacement_that_is_given_up_late_deletes_the_machine_that_was_added() {
    let world = World::new("steer-stop-late").await;
    let _manager = world.run(&[]).await;
    world.pool(2, json!({})).await;
    world.settled(2, "small").await;
    let before = world.scene.now().names();
    let oldest =
        world.scene.now().machines.values().min_by_key(|machine| machine.creation_timestamp()).unwrap().name_any();
    let added = interrupted_replacement(&world, &oldest).await;
    world.apply(objects::class("small")).await;
    world.machines().delete(&added, &kube::api::DeleteParams::default()).await.unwrap();
    world.settled(3, "small").await;
    let stopped = text(&world, &["machine", "replace", &oldest, "--stop", "--yes"], 0).await;
    assert!(stopped.contains("is deleted instead") && stopped.contains("it stays"), "{stopped}");
    world.settled(2, "small").await;
    assert_eq!(world.scene.now().names(), before);
}

#[tokio::test]
async fn a_machine_whose_drain_a_budget_never_allows_is_not_replaced() {
    let world = World::new("steer-replace-held").await;
    let _manager = world.run(&[]).await;
    world.pool(1, json!({})).await;
    world.settled(1, "small").await;
    let machine = protect(&world).await;
    let budgets: kube::Api<PodDisruptionBudget> = kube::Api::namespaced(world.target.clone(), &world.namespace);
    let status = json!({"status": {
        "observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1,
    }});
    budgets.patch_status("strict", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let refused = text(&world, &["machine", "replace", &machine, "--yes"], 3).await;
    assert!(refused.contains("it never allows an eviction") && refused.contains("(kills pods)"), "{refused}");
    assert_eq!(world.deployments().get("pool").await.unwrap().spec.replicas, 1, "nothing was written");
}

#[tokio::test]
async fn a_paused_deployment_with_a_waiting_template_is_scaled() {
    let world = World::new("steer-scale-paused").await;
    let _manager = world.run(&[]).await;
    world.pool(1, json!({})).await;
    world.settled(1, "small").await;
    text(&world, &["rollout", "pause", "pool"], 0).await;
    world.roll("large").await;
    text(&world, &["scale", "pool", "--replicas", "2", "--yes"], 0).await;
    world.until("two machines of the former template", |scene| scene.settled(2, "small")).await;
}

#[tokio::test]
async fn a_rollout_that_a_budget_blocks_ends_with_its_code_and_a_forced_drain_ends_it() {
    let world = World::new("steer-blocked").await;
    let _manager = world.run(&[]).await;
    world.pool(1, json!({})).await;
    world.settled(1, "small").await;
    let node = protect(&world).await;
    world.roll("large").await;
    let blocked =
        text(&world, &["rollout", "status", "pool", "--fail-when-blocked", "1s", "--timeout", "120s"], 3).await;
    assert!(blocked.contains("(--fail-when-blocked 1s)") && blocked.contains("hint: mcm why pool"), "{blocked}");
    let slow = text(&world, &["rollout", "status", "pool", "--timeout", "1s"], 124).await;
    assert!(slow.contains("is not done after 1s"), "{slow}");

    let tree = text(&world, &["tree", "pool"], 0).await;
    assert!(tree.contains("/web") && tree.contains("budget strict"), "{tree}");
    let tree = document(&world, &["tree", "pool"]).await;
    assert!(tree["notes"].as_array().unwrap().is_empty(), "{tree}");
    let top = text(&world, &["top"], 0).await;
    assert!(top.contains("pool") && top.contains("blocked"), "{top}");

    text(&world, &["drain", "force", &node, "--yes"], 0).await;
    world.settled(1, "large").await;
}

/// A user with the ClusterRoles `view` and `mcm-view`, in the namespace and in the whole cluster.
#[tokio::test]
async fn a_user_with_view_runs_every_reading_command() {
    let world = World::new("steer-view").await;
    let _manager = world.run(&[]).await;
    world.pool(1, json!({})).await;
    world.settled(1, "small").await;
    let commands: [&[&str]; 13] = [
        &["why"],
        &["why", "pool"],
        &["tree"],
        &["tree", "pool"],
        &["rollout", "status", "pool", "--timeout", "120s"],
        &["rollout", "history", "pool"],
        &["events", "--for", "pool"],
        &["top"],
        &["plan", "pool"],
        &["plan", "pool", "--set", "template.spec.class.name=large"],
        &["plan", "small", "--delete"],
        &["check"],
        &["check", "takeover"],
    ];
    for is_of_cluster in [false, true] {
        let viewer =
            identity::viewer(&world.client, world.admin(), &world.namespace, is_of_cluster, world.folder()).await;
        for words in commands {
            let run = Command::new(mcm())
                .args(words)
                .args(["-n", &world.namespace, "--kubeconfig"])
                .arg(&viewer)
                .stdin(Stdio::null())
                .output();
            let output = run.await.unwrap();
            let (said, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            // Without a right to see Nodes, the state of a machine is unknown. A check also reports that this user cannot be a
            // manager.
            let is_answered = match is_of_cluster && words[0] != "check" {
                true => output.status.code() == Some(0),
                false => matches!(output.status.code(), Some(0 | 3)),
            };
            assert!(is_answered, "{words:?}, in the cluster: {is_of_cluster}: {}:\n{said}\n{error}", output.status);
            // Without the Nodes, a rollout is not known to be done.
            let is_unknown = !is_of_cluster && error.contains("nodes could not be read");
            assert!(!said.is_empty() && (is_unknown || !error.contains("error:")), "{words:?}:\n{said}\n{error}");
            let marks: &[&str] = match (words, is_of_cluster) {
                (["plan", "pool", _, ..], _) => &["the API server was not asked", "Secrets may not be read"],
                (["plan", ..], _) => &["Secrets may not be read"],
                (["check", ..], _) => &["⊘ secrets", "⊘ kinds"],
                (["why"] | ["tree", ..], true) => &["secrets"],
                (["why"] | ["tree", ..], false) => &["secrets", "nodes"],
                _ => &[],
            };
            // Texts are wrapped.
            let words_of_answer = said.split_whitespace().collect::<Vec<_>>().join(" ");
            for mark in marks {
                assert!(
                    words_of_answer.contains(mark),
                    "{words:?}, in the cluster: {is_of_cluster}: {mark} is missing:\n{said}"
                );
            }
        }
        let dashboard = Dashboard::of(&world, &viewer).await;
        let page = dashboard.get("").await;
        assert_eq!(page.status(), 200);
        let page = page.text().await.unwrap();
        assert!(page.contains("pool") && page.contains("may not list secrets"), "{page}");
        assert_eq!(dashboard.get("api/why?object=pool").await.status(), 200);
    }
}

#[tokio::test]
async fn a_machine_is_preserved_and_one_whose_class_never_existed_is_forgotten() {
    let world = World::new("steer-verbs").await;
    let _manager = world.run(&[]).await;
    world.pool(1, json!({})).await;
    world.settled(1, "small").await;
    let machine = world.scene.now().names().into_iter().next().unwrap();
    text(&world, &["machine", "preserve", &machine], 0).await;
    world
        .until("the machine to be preserved", |scene| {
            let status = scene.machines[&machine].status.as_ref();
            status.is_some_and(|status| status.current_status.preserve_expiry_time.is_some())
        })
        .await;
    let refused = text(&world, &["machine", "forget", &machine], 3).await;
    assert!(refused.contains("is not being deleted"), "{refused}");
}

#[tokio::test]
async fn a_tree_of_200_machines_takes_less_than_a_second() {
    let world = World::undisturbed("steer-many").await;
    world.classes().await;
    world.apply(objects::deployment("pool", 0)).await;
    for number in 0..200 {
        world.apply(objects::machine(&format!("machine-{number:03}"))).await;
    }
    // The first run reads the program from disk.
    text(&world, &["tree"], 0).await;
    let begin = Instant::now();
    let tree = wait::until("the tree", async || {
        let tree = text(&world, &["tree", "--all"], 0).await;
        (tree.matches("Machine/machine-").count() == 200).then_some(tree)
    })
    .await;
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(90), "{took:?}: {tree}");
    println!("a tree of 200 machines took {took:?}");
}
