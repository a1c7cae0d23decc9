//! Checks of the explanation of a wait, and of its remedies.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tokio::{process::Command, sync::Semaphore};

use super::kinds::{Case, NODE};
use crate::support::{
    control_plane::ControlPlane,
    program::mcm,
    wait,
    world::{Manager, World},
};

/// `mcm why` and `kubectl` that run at the same time.
static PROGRAMS: Semaphore = Semaphore::const_new(3);
/// A manager refuses many connections at the same time.
static QUESTIONS: Semaphore = Semaphore::const_new(2);

/// Programs that run the remedies.
pub struct Tools {
    path: String,
}

impl Tools {
    pub fn find() -> Self {
        let folders: [PathBuf; 2] =
            [ControlPlane::programs().unwrap(), mcm().parent().map(Path::to_path_buf).unwrap_or_default()];
        let own: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
        Self { path: format!("{}:{}", own.join(":"), std::env::var("PATH").unwrap_or_default()) }
    }

    /// Runs a command as a user types it. An editor changes nothing.
    async fn run(&self, world: &World, line: &str) {
        // An answer that is bad news is an answer.
        self.run_to(world, line, &[0, 3, 4]).await;
    }

    /// Runs a command that changes something. Commands of mcm ask on a terminal, and there is none.
    async fn cure(&self, world: &World, line: &str) {
        let consent = if line.starts_with("mcm ") { " --yes" } else { "" };
        self.run_to(world, &format!("{line}{consent}"), &[0]).await;
    }

    async fn run_to(&self, world: &World, line: &str, codes: &[i32]) {
        let _turn = PROGRAMS.acquire().await.unwrap();
        let output = Command::new("bash")
            .args(["-c", line])
            .env("PATH", &self.path)
            .env("KUBECONFIG", world.admin())
            .env("EDITOR", "true")
            .output()
            .await
            .unwrap();
        let (said, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let is_answered = output.status.code().is_some_and(|code| codes.contains(&code));
        assert!(is_answered, "{line} ended with {}:\n{said}\n{error}", output.status);
    }
}

/// The memory of the manager about the objects that wait.
async fn waiting(world: &World, manager: &Manager) -> Vec<Value> {
    let _turn = QUESTIONS.acquire().await.unwrap();
    let (status, text) = manager.get(&format!("/explain?namespace={}&limit=1000", world.namespace)).await;
    assert_eq!(status, 200, "{text}");
    serde_json::from_str::<Value>(&text).unwrap()["items"].as_array().unwrap().clone()
}

/// The name of the object of a case that has its wait. Lists of objects that wait leave Nodes out.
async fn subject_of(world: &World, manager: &Manager, case: &Case) -> Option<String> {
    let (kind, start) = case.object;
    if kind == NODE {
        return Some(start.to_owned());
    }
    let is_it = |item: &&Value| {
        item["object"]["kind"] == kind
            && item["object"]["name"].as_str().unwrap().starts_with(start)
            && item["waits"].as_array().unwrap().iter().any(|wait| wait["kind"] == case.kind)
    };
    let found = waiting(world, manager).await;
    found.iter().find(is_it).map(|item| item["object"]["name"].as_str().unwrap().to_owned())
}

/// Waits for the wait of a case, checks its explanation, and runs the remedies.
pub async fn check(world: &World, manager: &Manager, tools: &Tools, case: &Case) {
    let what = format!("{} of {} {} for {:?}", case.kind, case.object.0, case.object.1, case.says);
    if case.is_routine {
        return check_routine(world, manager, case, &what).await;
    }
    let (name, wait) = wait::until(&what, async || {
        let name = subject_of(world, manager, case).await?;
        let answer = why(world, manager, &format!("{}/{name}", case.object.0)).await?;
        let waits = answer["objects"][0]["waits"].as_array()?.clone();
        // A busy manager, which remembers the start, may execute steps meanwhile, or answer too late. Before it has seen a Node, it
        // may wait for something else of the same kind.
        let is_it = |wait: &Value| {
            let says = wait["text"].as_str().is_some_and(|text| text.contains(case.says));
            wait["kind"] == case.kind && wait["since"].is_string() && says
        };
        let wait = waits.into_iter().find(is_it)?;
        assert_eq!(answer["objects"][0]["object"]["name"], name, "{answer}");
        Some((name, wait))
    })
    .await;
    assert!(wait["meaning"].is_string(), "{what}: {wait}");
    assert_eq!(wait["nextAttempt"].is_string() || wait["forcedAt"].is_string(), case.has_until, "{what}: {wait}");
    let remedies = wait["remedies"].as_array().unwrap();
    assert!(!remedies.is_empty(), "{what}: {wait}");

    let commands = |is_safe: bool| {
        remedies.iter().filter_map(move |remedy| {
            let text = remedy["text"].as_str().unwrap();
            let is_command = text.starts_with("kubectl ") || text.starts_with("mcm ");
            (is_command && (remedy["danger"] == "Safe") == is_safe).then_some((text, &remedy["danger"]))
        })
    };
    for (line, _) in commands(true) {
        tools.run(world, line).await;
    }
    if let Some(effect) = case.cure {
        // Of several with one effect the last needs no other program, such as the controller of budgets.
        let cure = commands(false).rfind(|(_, danger)| *danger == effect);
        let (line, _) = cure.unwrap_or_else(|| panic!("{what} has no remedy that {effect}: {wait}"));
        tools.cure(world, line).await;
        wait::until(&format!("the end of {what}"), async || {
            let now = waiting(world, manager).await;
            let is_over = |item: &Value| {
                item["object"]["name"] != name.as_str()
                    || item["waits"].as_array().unwrap().iter().all(|wait| wait["kind"] != case.kind)
            };
            now.iter().all(is_over).then_some(())
        })
        .await;
    }
}

/// Waits for a routine wait of an object that may be settled. It has no remedy.
async fn check_routine(world: &World, manager: &Manager, case: &Case, what: &str) {
    let (kind, name) = case.object;
    let path = format!("/explain/{kind}/{}/{name}", world.namespace);
    let (object, wait) = wait::until(what, async || {
        let _turn = QUESTIONS.acquire().await.unwrap();
        let (status, text) = manager.get(&path).await;
        let answer: Value = (status == 200).then(|| serde_json::from_str(&text).unwrap())?;
        let wait = answer["waits"].as_array()?.iter().find(|wait| wait["kind"] == case.kind)?.clone();
        Some((answer["object"].clone(), wait))
    })
    .await;
    assert_eq!((&object["kind"], &object["name"]), (&json!(kind), &json!(name)), "{what}: {wait}");
    assert!(wait["text"].as_str().unwrap().contains(case.says), "{what}: {wait}");
    assert!(wait["since"].is_string(), "{what}: {wait}");
    assert_eq!(wait["nextAttempt"].is_string() || wait["forcedAt"].is_string(), case.has_until, "{what}: {wait}");
}

/// `None` if there is no such object, or the manager has not planned it yet.
async fn why(world: &World, manager: &Manager, object: &str) -> Option<Value> {
    let _turn = PROGRAMS.acquire().await.unwrap();
    let mut command = Command::new(mcm());
    command.args(["why", object, "-o", "json", "--manager", &manager.url, "-n", &world.namespace, "--kubeconfig"]);
    let output = command.arg(world.admin()).output().await.unwrap();
    if output.status.code() == Some(2) {
        return None;
    }
    let answer = serde_json::from_slice(&output.stdout);
    Some(answer.unwrap_or_else(|error| panic!("{object}: {error}: {}", String::from_utf8_lossy(&output.stderr))))
}
