//! Each command that reads, for a user without the right to read a kind: docs/operations.md has the table. No command gives
//! an all-clear about what it could not read.

use std::{collections::BTreeMap, fs, path::Path, sync::Arc, time::Duration};

use anyhow::Result;
use serde_json::json;
use tempfile::TempDir;

use super::{
    super::{
        args::{self, McmCommand},
        check,
        demo::identities,
        events,
        exit::{CommandAnswer, CommandExit, ExitError},
        plan, rollout, top, tree, vms, why,
    },
    readers::ClusterState,
    stage::{NAMESPACE, PoolStage, play, pool},
};
use mcm_controllers::{MACHINES as MACHINES_ROLE, SETS as SETS_ROLE};
use mcm_driver::tls::use_ring;
use mcm_fake_api::{
    ATTACHMENTS, ApiCall, ApiVerb, BUDGETS, CLASSES, CallDelivery, DEPLOYMENTS, DeliveryOutcome, EVENTS, Kind, LEASES,
    MACHINES, NODES, NetworkModel, PODS, SECRETS, SETS,
    serve::{CertificateFiles, LoopbackPort, RunningServer},
};
use mcm_insight::error::{UnreadError, UsageError, error_line};

/// The page with the table.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/operations.md");
/// The columns of the table.
const KINDS: [&Kind; 11] =
    [&DEPLOYMENTS, &SETS, &MACHINES, &CLASSES, &NODES, &SECRETS, &LEASES, &PODS, &BUDGETS, &ATTACHMENTS, &EVENTS];
/// The rows.
const COMMANDS: [&str; 12] = [
    "mcm why",
    "mcm why pool",
    "mcm tree",
    "mcm tree pool",
    "mcm top",
    "mcm plan --fail-on blocked,unknown",
    "mcm plan pool --fail-on blocked,unknown",
    "mcm rollout status pool --timeout 2s",
    "mcm rollout history pool",
    "mcm vms",
    "mcm events",
    "mcm check",
];

/// An API server that refuses all reads of a kind.
struct WithoutRight(Option<&'static Kind>);

impl NetworkModel for WithoutRight {
    fn fate(&self, call: &ApiCall) -> CallDelivery {
        let is_read = matches!(call.verb, ApiVerb::Get | ApiVerb::List | ApiVerb::Watch);
        let outcome = match self.0 == Some(call.kind) && is_read {
            true => DeliveryOutcome::Refused(403),
            false => DeliveryOutcome::Answered,
        };
        CallDelivery { there: Duration::ZERO, back: Duration::ZERO, outcome }
    }
}

/// The objects on a port, and a kubeconfig for it, without the right to read a kind.
pub(super) async fn serve(folder: &Path, state: &ClusterState, kind: Option<&'static Kind>) -> (RunningServer, String) {
    let network: Arc<dyn NetworkModel> = Arc::new(WithoutRight(kind));
    let (server, _) = state.servers(&network);
    let port = LoopbackPort::bind().await.unwrap();
    let identity = identities::write_embedded(folder, port.number()).unwrap();
    let files = CertificateFiles { cert: identity.server, key: identity.server_key };
    (port.serve(&server, files, &identity.token).unwrap(), identity.kubeconfig.display().to_string())
}

/// Exit code, and everything that is printed.
pub(super) async fn run(line: &str, kubeconfig: &str) -> (u8, String) {
    let words = line.split(' ').chain(["-n", NAMESPACE, "--kubeconfig", kubeconfig]);
    let Ok((command, _)) = args::parse_call(words.map(Into::into)) else { panic!("{line} is invalid") };
    let answered: Result<CommandAnswer> = match command {
        McmCommand::Why(options) => why::run(options).await,
        McmCommand::Tree(options) => tree::run(options).await,
        McmCommand::Top(options) => top::run(options).await,
        McmCommand::Plan(options) => plan::run(*options).await,
        McmCommand::Rollout { command } => rollout::run(command).await,
        McmCommand::Vms(options) => vms::run(*options).await,
        McmCommand::Events(options) => events::run(options).await,
        McmCommand::Check(options) => check::run(options, args::go_flags).await,
        _ => panic!("{line} reads nothing"),
    };
    let error = match answered {
        Ok(CommandAnswer { text, exit }) => return (exit as u8, text),
        Err(error) => error,
    };
    let exit = if error.is::<UnreadError>() {
        CommandExit::No
    } else if error.is::<UsageError>() {
        CommandExit::Usage
    } else {
        error.downcast_ref::<ExitError>().map_or(CommandExit::Failed, |ended| ended.exit)
    };
    (exit as u8, error_line(&error))
}

/// A cell of the table: the exit code, and a mark if the text names the kind.
fn cell((exit, text): &(u8, String), kind: &Kind) -> String {
    let is_named = text.to_lowercase().contains(kind.plural);
    format!("{exit}{}", if is_named { " named" } else { "" })
}

#[test]
fn without_a_right_no_command_gives_an_all_clear() {
    use_ring();
    let state = play(async || {
        let stage = PoolStage::new(false);
        stage.start_manager();
        stage.control.create(&DEPLOYMENTS, pool(2)).unwrap();
        stage.settle().await;
        stage.control.create(&EVENTS, json!({ "metadata": { "name": "e", "namespace": NAMESPACE } })).unwrap();
        // The commands below take their time, by a clock that is not the manager's.
        for role in [SETS_ROLE, MACHINES_ROLE] {
            stage.patch(&LEASES, role.lease, &json!({ "spec": { "leaseDurationSeconds": 86_400 } }));
        }
        stage.state()
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut texts: BTreeMap<(&str, &str), String> = BTreeMap::new();
    let mut rows: Vec<String> = COMMANDS.iter().map(|line| format!("| `{line}` |")).collect();
    for kind in [None].into_iter().chain(KINDS.map(Some)) {
        let folder = TempDir::new().unwrap();
        let (_server, kubeconfig) = runtime.block_on(serve(folder.path(), &state, kind));
        for (line, row) in COMMANDS.into_iter().zip(&mut rows) {
            let answer = runtime.block_on(run(line, &kubeconfig));
            match kind {
                Some(kind) => row.push_str(&format!(" {} |", cell(&answer, kind))),
                None => row.push_str(&format!(" {} |", answer.0)),
            }
            texts.insert((line, kind.map_or("", |kind| kind.plural)), answer.1);
        }
    }
    let page = fs::read_to_string(PAGE).unwrap();
    let missing: Vec<&String> = rows.iter().filter(|row| !page.contains(row.as_str())).collect();
    let all: String = texts.iter().map(|((line, kind), text)| format!("--- {line} without {kind}\n{text}\n")).collect();
    assert!(missing.is_empty(), "{all}\ndocs/operations.md has none of these rows:\n{}", rows.join("\n"));
}
