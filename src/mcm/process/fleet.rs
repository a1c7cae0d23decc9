//! Many cells in one process, started and stopped according to a file, or to the control planes that are found. Replicas of a fleet
//! share the control planes: each runs the cells that it serves, or is ready to serve.

mod folder;
mod planes;
mod seed;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use futures::future::{join_all, pending};
use rand::seq::SliceRandom;
use serde::Deserialize;
use tokio::{
    task::{JoinHandle, spawn_blocking},
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use self::{
    planes::{FoundCells, KnownPlanes, PlaneProblem},
    seed::{SeedFinder, SeedKind},
};
use super::{
    cell, clients,
    host::{FleetState, ProcessState},
    options::{CellOptions, CellSecrets, CellSource, FleetOptions, TargetKubeconfigs},
    plane_source::{PlaneSource, is_folder},
};
use crate::api::{
    backoff::Backoff,
    decode::{self, YamlLimits},
};
use mcm_runtime::{
    cell::CellScope,
    clock::SystemClock,
    files,
    kubeconfig::{ControlKubeconfig, ProcessClusters, TargetKubeconfig},
    leader::{FleetMembership, MembershipConfig},
    members::{
        FleetName,
        share::{ServedState, ShareFacts},
        standing::FleetStanding,
    },
    objects::chain,
    panics::{self, PanicPlace},
};

/// How often the file is read. Mounted files are replaced by a rename, which not every file watch notices.
const PERIOD: Duration = Duration::from_secs(2);
/// First and longest pause before a failed cell is restarted.
const RESTART: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
/// Pause between the starts of two cells. Replicas start them in random order, so that each gets a share of the Leases.
const SPREAD: Duration = Duration::from_millis(100);
/// The same for replicas of a fleet, which agree on their shares.
const SPREAD_OF_SHARE: Duration = Duration::from_millis(20);

/// Content of the cells file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct CellsFile {
    cells: Vec<CellEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct CellEntry {
    /// Names the cell in logs, metrics and `/readyz`.
    name: String,
    /// The control namespace; `*` for all of them.
    namespace: String,
    /// The namespace of the leases; the control namespace if not given.
    lease_namespace: Option<String>,
    /// Path of the kubeconfig of the control cluster; the cluster this pod runs in if not given.
    kubeconfig: Option<PathBuf>,
    /// Path of the kubeconfig of the target cluster, or `none`.
    target_kubeconfig: Option<String>,
    /// Several target clusters in its place.
    targets: Option<ByLabel>,
    /// Nothing is done in a namespace unless its Deployment `machine-controller-manager` has replicas.
    #[serde(default)]
    parked_by_deployment: bool,
    /// Namespaces of the cell whose classes may use the cloud credentials of the process; `*` for all.
    #[serde(default)]
    process_credentials_namespaces: Vec<String>,
    /// The folder with the token files that Secrets of the cell may name. If it has all namespaces, each has the folder of its
    /// name below it.
    credential_files_folder: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ByLabel {
    /// The label of a Namespace whose value names the target of all its Machines. Machines choose nothing: their authors would
    /// choose the cluster.
    label: String,
    /// Paths of kubeconfigs, by the value of the label.
    kubeconfigs: BTreeMap<String, PathBuf>,
}

/// Every namespace of the control cluster.
const ALL_NAMESPACES: &str = "*";
/// No target cluster.
const NO_TARGET: &str = "none";

impl TryFrom<CellEntry> for CellOptions {
    type Error = anyhow::Error;

    fn try_from(entry: CellEntry) -> Result<Self> {
        let CellEntry { name, namespace, lease_namespace, kubeconfig, target_kubeconfig, targets, .. } = entry;
        if name.is_empty() || namespace.is_empty() {
            bail!("name and namespace must not be empty");
        }
        let is_served = |one: &String| *one == namespace || namespace == ALL_NAMESPACES;
        if let Some(other) = entry.process_credentials_namespaces.iter().find(|one| !is_served(one)) {
            bail!("processCredentialsNamespaces lists {other:?}, and the cell serves namespace {namespace:?} only");
        }
        if entry.credential_files_folder.as_deref().is_some_and(|folder| !is_folder(folder)) {
            bail!("credentialFilesFolder must be the absolute path of a folder below /");
        }
        let secrets = CellSecrets {
            process_credentials: entry.process_credentials_namespaces,
            folder: entry.credential_files_folder,
        };
        let targets = match (target_kubeconfig.as_deref(), targets) {
            (Some(NO_TARGET), None) => TargetKubeconfigs::Same(TargetKubeconfig::None),
            (Some(path), None) if !path.is_empty() => TargetKubeconfigs::Same(TargetKubeconfig::Path(path.into())),
            (None, Some(ByLabel { label, kubeconfigs })) => TargetKubeconfigs::ByLabel { label, paths: kubeconfigs },
            _ => bail!("give either targetKubeconfig (a path or {NO_TARGET:?}) or targets"),
        };
        let (scope, leases) = match (namespace.as_str(), lease_namespace) {
            (ALL_NAMESPACES, None) => bail!("namespace {ALL_NAMESPACES:?} needs a leaseNamespace"),
            (ALL_NAMESPACES, Some(leases)) => (CellScope::All, leases),
            (_, leases) => (CellScope::Namespace(namespace.clone()), leases.unwrap_or(namespace)),
        };
        let control = kubeconfig.map_or(ControlKubeconfig::InCluster, ControlKubeconfig::Path);
        let has_switch = entry.parked_by_deployment;
        Ok(Self { name, scope, leases, control, targets, has_switch, secrets: Some(secrets) })
    }
}

/// Refuses a folder with token files that is in the folder of another cell, which could then name them.
fn check_folders(cells: &BTreeMap<String, CellOptions>) -> Result<()> {
    let folder = |cell: &CellOptions| cell.secrets.as_ref().and_then(|secrets| secrets.folder.clone());
    let folders: Vec<(&String, PathBuf)> =
        cells.iter().filter_map(|(name, cell)| Some((name, folder(cell)?))).collect();
    for (name, folder) in &folders {
        let is_in = |(other, above): &&(&String, PathBuf)| other != name && folder.starts_with(above);
        if let Some((other, above)) = folders.iter().find(is_in) {
            bail!(
                "cell {name:?} has the credentialFilesFolder {}, which is in that of cell {other:?}, {}: separate them",
                folder.display(),
                above.display()
            );
        }
    }
    Ok(())
}

/// Reads the cells of a file, by name.
fn parse(text: &str) -> Result<BTreeMap<String, CellOptions>> {
    let file: CellsFile = decode::yaml(text, YamlLimits::FILES)?;
    let mut cells = BTreeMap::new();
    for entry in file.cells {
        let name = entry.name.clone();
        let options = CellOptions::try_from(entry).with_context(|| format!("cell {name:?}"))?;
        if cells.insert(name.clone(), options).is_some() {
            bail!("cell {name:?} is listed twice: give each cell a unique name");
        }
    }
    check_folders(&cells)?;
    Ok(cells)
}

async fn read(path: &Path) -> Result<BTreeMap<String, CellOptions>> {
    let text = {
        let path = path.to_owned();
        spawn_blocking(move || files::read_text(&path, files::CONFIG)).await?
    };
    let text = text.with_context(|| format!("read cells from {}", path.display()))?;
    parse(&text).with_context(|| format!("parse cells of {}", path.display()))
}

/// Finds the cells to run.
enum CellFinder {
    File(PathBuf),
    Folder(PathBuf, KnownPlanes),
    Seed(SeedFinder, KnownPlanes),
}

impl CellFinder {
    /// Begins to watch the source.
    ///
    /// # Errors
    /// The control cluster of a fleet cannot be used, or refuses a list.
    async fn open(host: &ProcessState, source: &CellSource) -> Result<Self> {
        let FleetOptions { source, selector, control, .. } = match source {
            CellSource::One(_) => bail!("run cells: the process has one cell"),
            CellSource::File(path) => return Ok(Self::File(path.clone())),
            CellSource::Fleet(options) => options.clone(),
        };
        let known = KnownPlanes::new(control.clone(), source == PlaneSource::Gardener);
        let kind = match source {
            PlaneSource::Folder(folder) => return Ok(Self::Folder(folder, known)),
            PlaneSource::Gardener => SeedKind::Gardener,
            PlaneSource::ClusterApi => SeedKind::ClusterApi,
        };
        let clusters = ProcessClusters::load(&control, &TargetKubeconfig::None, host.options.fallback).await?;
        let (metrics, shared) = (&host.shared.metrics, &host.connections);
        let client = clients::of_discovery(&clusters.control, &host.options, metrics, shared)?;
        // Where the control cluster is on this host, target clusters may be as well.
        let is_local = is_loopback(clusters.control.config.cluster_url.host().unwrap_or_default());
        let finder = SeedFinder::start(&client, kind, selector, is_local, &host.shared.caches);
        finder.wait().await?;
        Ok(Self::Seed(finder, known))
    }

    /// The cells to run now.
    ///
    /// # Errors
    /// The source cannot be read at the moment, so all cells stay.
    async fn find(&mut self) -> Result<FoundCells> {
        match self {
            Self::File(path) => Ok(FoundCells { cells: read(path).await?, problems: BTreeMap::new() }),
            Self::Folder(folder, known) => Ok(known.follow(folder::planes(folder).await?)),
            Self::Seed(finder, known) => Ok(known.follow(finder.planes().await?)),
        }
    }

    /// A failure of the first look ends the process: the source is probably given wrongly.
    fn must_be_found(&self) -> bool {
        !matches!(self, Self::Seed(..))
    }

    /// Logs that there are no cells. A fleet may be installed before the first control plane has its labels.
    fn log_empty(&self, is_first: bool) {
        let source = self.name();
        match self {
            Self::Seed(finder, _) if is_first => {
                tracing::info!(source, labels = finder.labels(), "no control planes yet: nothing is reconciled");
            }
            _ => tracing::warn!(source, "no cells: nothing is reconciled"),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::File(_) => "cells file",
            Self::Folder(..) => "folder of control planes",
            Self::Seed(..) => "control planes of the cluster",
        }
    }
}

fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

struct RunningCell {
    options: CellOptions,
    stop: CancellationToken,
    task: JoinHandle<()>,
    /// It was stopped, and work in flight may not have ended yet.
    is_leaving: bool,
}

/// Runs the cells of a source until `stop` and applies its changes. A source that cannot be read later changes nothing.
///
/// # Errors
/// The source cannot be read at the start, there are too few file descriptors for a cell, or the other replicas have expelled this
/// process.
pub(super) async fn run(host: &ProcessState, source: &CellSource, stop: &CancellationToken) -> Result<()> {
    let Some(fleet) = &host.fleet else { bail!("run cells: the process has one cell") };
    fleet.check_room()?;
    let Some(finder) = stop.run_until_cancelled(CellFinder::open(host, source)).await else { return Ok(()) };
    let finder = finder?;
    let Some(membership) = join(host, fleet, source, stop).await? else {
        return if stop.is_cancelled() { Ok(()) } else { run_cells(host, fleet, finder, stop).await };
    };
    let standing = Arc::clone(membership.standing());
    fleet.joined(&standing);
    tokio::select! {
        biased;
        // A new process has fresh caches and a new name; the namespaces of this one are served by others.
        () = standing.expelled() => bail!(
            "the other replicas have expelled this process, because it did not renew the Lease {} for 15s; restart it",
            standing.lease
        ),
        ended = run_cells(host, fleet, finder, stop) => ended?,
    }
    membership.end().await;
    Ok(())
}

/// Joins the replicas that share the control planes; `None` if this process shares them with no other, or was stopped.
///
/// # Errors
/// The namespace of their Leases is not known, or the control cluster cannot be used.
async fn join(
    host: &ProcessState,
    fleet: &FleetState,
    source: &CellSource,
    stop: &CancellationToken,
) -> Result<Option<FleetMembership>> {
    let CellSource::Fleet(FleetOptions { control, name, namespace, .. }) = source else { return Ok(None) };
    if host.options.leases.is_none() {
        return Ok(None);
    }
    let Some(namespace) = namespace.clone() else {
        bail!(
            "join the replicas of the fleet: the namespace of their Leases is not known outside of a pod; give --fleet-namespace, or \
             --leader-elect=false if no other process serves these control planes"
        );
    };
    fleet.joins(name, &host.shared.metrics);
    let clusters = ProcessClusters::load(control, &TargetKubeconfig::None, host.options.fallback).await?;
    let config = MembershipConfig {
        leases: clients::of_membership(&clusters.control, &host.shared.metrics, &host.elections)?,
        runtime: Some(host.elections.handle().clone()),
        fleet: FleetName { namespace, name: name.clone() },
        clock: Arc::new(host.shared.metrics.requests().clock(&clusters.control.config.cluster_url)),
        wall: Arc::new(SystemClock),
        entropy: Arc::new(rand::random),
    };
    Ok(FleetMembership::join(config, host.readiness.expect("membership in the fleet"), stop).await)
}

async fn run_cells(
    host: &ProcessState,
    fleet: &FleetState,
    mut finder: CellFinder,
    stop: &CancellationToken,
) -> Result<()> {
    let (mut running, mut problems, mut complaint) = (BTreeMap::new(), BTreeMap::new(), None);
    // Cells of the last look; `None` before the first.
    let mut desired: Option<BTreeMap<String, CellOptions>> = None;
    loop {
        let Some(found) = stop.run_until_cancelled(finder.find()).await else { break };
        match found {
            Ok(found) => {
                report(fleet, &found, &problems);
                if found.cells.is_empty() && desired.as_ref().is_none_or(|cells| !cells.is_empty()) {
                    finder.log_empty(desired.is_none() && found.problems.is_empty());
                }
                (desired, problems, complaint) = (Some(found.cells), found.problems, None);
            }
            Err(error) if desired.is_none() && finder.must_be_found() => return Err(error),
            Err(error) => {
                let text = format!("{error:#}");
                if complaint.as_ref() != Some(&text) {
                    tracing::warn!(error = text, "{} cannot be used, keeping the current cells", finder.name());
                    complaint = Some(text);
                }
            }
        }
        if let Some(desired) = &desired {
            match fleet.member() {
                Some(member) => follow(host, fleet, &own_share(member, desired, &running), &mut running, stop).await,
                None => follow(host, fleet, desired, &mut running, stop).await,
            }
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            () = sleep(PERIOD) => {}
            () = fleet.cell_ended.notified() => {}
            () = changed(fleet.member()) => {}
        }
    }
    fleet.member().iter().for_each(|member| member.end());
    join_all(running.into_values().map(|cell: RunningCell| cell.task)).await;
    Ok(())
}

/// Waits until the share of this process may have changed.
async fn changed(member: Option<&Arc<FleetStanding>>) {
    match member {
        Some(member) => member.changed().await,
        None => pending().await,
    }
}

/// The cells of this process, of all that its replicas share.
fn own_share(
    member: &FleetStanding,
    found: &BTreeMap<String, CellOptions>,
    running: &BTreeMap<String, RunningCell>,
) -> BTreeMap<String, CellOptions> {
    let names: BTreeSet<String> = found.keys().cloned().collect();
    let state = |name: &str, cell: &RunningCell| match (cell.is_leaving, member.holds(name)) {
        (true, _) => ServedState::Leaves,
        (false, true) => ServedState::Holds,
        (false, false) => ServedState::Waits,
    };
    let served = running.iter().map(|(name, cell)| (name.clone(), state(name, cell))).collect();
    let plan = member.members(|members, open_since| {
        let is_asked_for = |lease: &str, namespace: &str| members.asks_for(lease, namespace);
        let live = members.live(open_since);
        ShareFacts { own: &member.lease, live: &live, is_asked_for: &is_asked_for, found: &names, served: &served }
            .plan()
    });
    for (name, to) in &plan.hand_over {
        tracing::info!(cell = name, to, "handing the control plane over to another replica");
    }
    let is_own = |(name, _): &(&String, &CellOptions)| plan.serve.contains(*name);
    found.iter().filter(is_own).map(|(name, options)| (name.clone(), options.clone())).collect()
}

/// Shows new problems of control planes in the log, in `/readyz` and in metrics, and takes back those that are solved.
fn report(fleet: &FleetState, found: &FoundCells, before: &BTreeMap<String, PlaneProblem>) {
    for (name, problem) in &found.problems {
        if before.get(name) != Some(problem) {
            let has_cell = found.cells.contains_key(name);
            tracing::warn!(cell = name, %problem, has_cell, "control plane cannot be used as it was found");
        }
        fleet.census.unusable(name, &problem.to_string());
    }
    for name in before.keys().filter(|name| !found.problems.contains_key(*name)) {
        fleet.census.usable(name);
        if !found.cells.contains_key(name) {
            fleet.census.ended(name);
        }
    }
}

/// Stops cells that were removed or changed, and starts new ones.
async fn follow(
    host: &ProcessState,
    fleet: &FleetState,
    desired: &BTreeMap<String, CellOptions>,
    running: &mut BTreeMap<String, RunningCell>,
    stop: &CancellationToken,
) {
    let is_over = |_: &String, cell: &mut RunningCell| cell.is_leaving && cell.task.is_finished();
    for (name, _) in running.extract_if(.., is_over) {
        fleet.census.ended(&name);
    }
    for (name, cell) in running.iter_mut().filter(|(name, cell)| desired.get(*name) != Some(&cell.options)) {
        if !cell.is_leaving {
            tracing::info!(cell = name, "cell stopped");
            cell.stop.cancel();
            cell.is_leaving = true;
        }
    }
    let mut missing: Vec<&String> = desired.keys().filter(|name| !running.contains_key(*name)).collect();
    missing.shuffle(&mut rand::rng());
    let room = fleet.most_cells.saturating_sub(running.len());
    let refused = missing.split_off(room.min(missing.len()));
    fleet.refuse(&refused);
    for name in missing {
        let options = desired[name].clone();
        tracing::info!(cell = name, scope = %options.scope, "cell started");
        fleet.census.started(name);
        let stop = stop.child_token();
        let task = {
            let (host, options, stop) = (host.clone(), options.clone(), stop.clone());
            let (census, ended) = (Arc::clone(&fleet.census), Arc::clone(&fleet.cell_ended));
            tokio::spawn(async move {
                let failed = |error: &str| census.failed(&options.name, error);
                keep_running(&options.name, &stop, failed, || cell::run(&host, &options, &stop)).await;
                ended.notify_one();
            })
        };
        let until = stop.clone();
        running.insert(name.clone(), RunningCell { options, stop, task, is_leaving: false });
        let spread = if fleet.member().is_some() { SPREAD_OF_SHARE } else { SPREAD };
        if until.run_until_cancelled(sleep(spread)).await.is_none() {
            return;
        }
    }
}

/// Runs a cell and restarts it after a failure or a panic. Other cells are not affected.
async fn keep_running<F>(name: &str, stop: &CancellationToken, failed: impl Fn(&str), run: impl Fn() -> F)
where
    F: Future<Output = Result<()>>,
{
    let mut pauses = RESTART.pauses();
    while !stop.is_cancelled() {
        let started = Instant::now();
        let what = || format!("cell {name}");
        let run = panics::of_cell(name.into(), panics::caught(PanicPlace::Cell, what, async { run().await })).await;
        let error = match run {
            Ok(Ok(())) => return,
            Ok(Err(error)) => chain(error.as_ref()),
            Err(panicked) => panicked.to_string(),
        };
        pauses.reset_after(started.elapsed());
        failed(&error);
        // Not all cells of a server that was away come back at the same moment.
        let jitter = if cfg!(test) { 0.0 } else { rand::random::<f64>() };
        let retry_in = pauses.advance().mul_f64(1.0 + 0.5 * jitter);
        tracing::warn!(cell = name, error, ?retry_in, "cell failed, restarting");
        if stop.run_until_cancelled(sleep(retry_in)).await.is_none() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use http::Uri;

    use super::*;
    use mcm_driver::SecretPolicy;
    use mcm_runtime::{cell::SharedCellState, http::ProcessReadiness};

    #[test]
    fn a_file_names_cells_with_their_namespaces_and_targets() {
        let text = "cells:\n- {name: a, namespace: shoot--a, kubeconfig: /c, targetKubeconfig: /t}\n\
                    - {name: b, namespace: shoot--b, targetKubeconfig: none}\n";
        let cells = parse(text).unwrap();
        assert_eq!(cells["a"].control, ControlKubeconfig::Path("/c".into()));
        assert_eq!(cells["a"].targets, TargetKubeconfigs::Same(TargetKubeconfig::Path("/t".into())));
        assert_eq!(cells["b"].control, ControlKubeconfig::InCluster);
        assert_eq!(cells["b"].targets, TargetKubeconfigs::Same(TargetKubeconfig::None));
        assert_eq!(cells["b"].scope, CellScope::Namespace("shoot--b".to_owned()));
        assert_eq!(cells["b"].leases, "shoot--b");
    }

    #[test]
    fn a_cell_may_have_all_namespaces_and_a_target_for_each_value_of_a_label() {
        let text = "cells:\n- name: a\n  namespace: '*'\n  leaseNamespace: mcm-system\n  \
                    targets: {label: cluster, kubeconfigs: {one: /one, two: /two}}\n";
        let cells = parse(text).unwrap();
        assert_eq!((&cells["a"].scope, cells["a"].leases.as_str()), (&CellScope::All, "mcm-system"));
        let paths = [("one".to_owned(), "/one".into()), ("two".to_owned(), "/two".into())].into();
        assert_eq!(cells["a"].targets, TargetKubeconfigs::ByLabel { label: "cluster".to_owned(), paths });
    }

    /// Two cells with a namespace and a token each, and one with all namespaces of another server.
    const TENANTS: &str = "cells:
- {name: a, namespace: team-a, targetKubeconfig: none, credentialFilesFolder: /wi/a, processCredentialsNamespaces: [team-a]}
- {name: b, namespace: team-b, targetKubeconfig: none, credentialFilesFolder: /wi/b}
- {name: c, namespace: team-a, kubeconfig: /other, targetKubeconfig: none}
- {name: all, namespace: '*', leaseNamespace: l, targetKubeconfig: none, credentialFilesFolder: /wi/all, processCredentialsNamespaces: [team-b]}
";

    fn class_in(namespace: &str) -> crate::api::machine::MachineClass {
        let class = serde_json::json!({ "metadata": { "name": "c", "namespace": namespace }, "providerSpec": {} });
        serde_json::from_value(class).unwrap()
    }

    /// The flags of a process with cells allow nothing of it.
    fn policy_of(cell: &str) -> SecretPolicy {
        let flags = SecretPolicy {
            process_credentials: vec![ALL_NAMESPACES.to_owned()],
            endpoints: vec!["ec2.example.com".parse().unwrap()],
            ..SecretPolicy::default()
        };
        parse(TENANTS).unwrap()[cell].secret_policy(&flags)
    }

    #[rstest::rstest]
    #[case("a", "team-a", &["/wi/a/token", "/wi/a/aws/token"])]
    #[case("b", "team-b", &["/wi/b/token"])]
    #[case("c", "team-a", &[])]
    #[case("all", "team-a", &["/wi/all/team-a/token"])]
    #[case("all", "team-b", &["/wi/all/team-b/token", "/wi/all/token"])]
    fn the_secrets_of_a_cell_name_its_token_files_and_no_others(
        #[case] cell: &str,
        #[case] namespace: &str,
        #[case] allowed: &[&str],
    ) {
        let policy = policy_of(cell);
        let policy = policy.for_class(&class_in(namespace));
        let files = [
            "/wi/a/token",
            "/wi/a/aws/token",
            "/wi/a/../b/token",
            "/wi/b/token",
            "/wi/token",
            "/wi/all/token",
            "/wi/all/team-a/token",
            "/wi/all/team-b/token",
            "/var/run/secrets/gardener.cloud/workload-identity/token",
        ];
        let found: Vec<&str> = files.into_iter().filter(|file| policy.check_file("file", file).is_ok()).collect();
        let mut allowed = allowed.to_vec();
        allowed.sort_by_key(|one| files.iter().position(|file| file == one));
        assert_eq!(found, allowed);
        assert!(policy.check_url("url", "https://ec2.example.com", &[]).is_ok(), "hosts are those of the process");
    }

    #[rstest::rstest]
    #[case("a", "team-a", true)]
    #[case("b", "team-b", false)]
    #[case::of_the_same_name_on_another_server("c", "team-a", false)]
    #[case("all", "team-a", false)]
    #[case("all", "team-b", true)]
    fn the_credentials_of_the_process_serve_the_namespaces_that_their_cell_lists(
        #[case] cell: &str,
        #[case] namespace: &str,
        #[case] is_allowed: bool,
    ) {
        let checked = policy_of(cell).check_process_credentials(&class_in(namespace), "KEYS");
        assert_eq!(checked.is_ok(), is_allowed, "{checked:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_cell_that_panics_is_restarted_ever_later_and_another_one_runs_on() {
        let (stop, starts, ticks) = (CancellationToken::new(), AtomicU32::new(0), AtomicU32::new(0));
        let poisoned = keep_running(
            "poisoned",
            &stop,
            |_| (),
            || async {
                starts.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
                assert!(stop.is_cancelled(), "a bug");
                Ok(())
            },
        );
        let healthy = keep_running(
            "healthy",
            &stop,
            |_| (),
            || async {
                while stop.run_until_cancelled(sleep(Duration::from_secs(1))).await.is_some() {
                    ticks.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            },
        );
        let end = async {
            sleep(Duration::from_millis(10_500)).await;
            stop.cancel();
        };
        tokio::join!(poisoned, healthy, end);
        assert_eq!(starts.load(Ordering::Relaxed), 4, "after 1, 2 and 4 s");
        assert_eq!(ticks.load(Ordering::Relaxed), 10);
        assert_eq!(
            (panics::counted(PanicPlace::Cell, "poisoned"), panics::counted(PanicPlace::Cell, "healthy")),
            (4, 0)
        );
    }

    fn fleet(descriptors: Option<u64>) -> (Arc<FleetState>, ProcessReadiness) {
        let shared = SharedCellState {
            clock: Arc::new(mcm_runtime::clock::SystemClock),
            metrics: mcm_runtime::metrics::MetricsRegistry::new(),
            caches: Arc::default(),
            entropy: Arc::new(rand::random),
            cells: Arc::default(),
        };
        let readiness = ProcessReadiness::of_cells();
        (FleetState::new(&readiness, &shared, descriptors), readiness)
    }

    #[test]
    fn two_cells_with_the_same_leases_are_refused_by_name_until_one_ends() {
        let (fleet, _) = fleet(None);
        let text = "cells:\n- {name: a, namespace: n, targetKubeconfig: none}\n- {name: b, namespace: n, targetKubeconfig: none}\n";
        let cells = parse(text).unwrap();
        let server = Uri::from_static("https://seed:6443");
        let first = fleet.register(&cells["a"], &server).unwrap();
        let error = fleet.register(&cells["b"], &server).err().unwrap().to_string();
        assert!(error.contains("cell a has the Leases of namespace n on https://seed:6443"), "{error}");
        assert!(fleet.register(&cells["b"], &Uri::from_static("https://other:6443")).is_ok());
        drop(first);
        assert!(fleet.register(&cells["b"], &server).is_ok());
    }

    #[rstest::rstest]
    #[case::all_before_one("all", "one", true)]
    #[case::one_before_all("one", "all", true)]
    #[case::two_with_all("all", "other", true)]
    #[case::the_same_with_other_leases("one", "same", true)]
    #[case::another_namespace("one", "two", false)]
    fn two_cells_that_serve_one_namespace_are_refused_until_one_ends(
        #[case] first: &str,
        #[case] second: &str,
        #[case] is_refused: bool,
    ) {
        let (fleet, _) = fleet(None);
        let cells = parse(
            "cells:\n- {name: all, namespace: '*', leaseNamespace: l, targetKubeconfig: none}\n\
             - {name: other, namespace: '*', leaseNamespace: m, targetKubeconfig: none}\n\
             - {name: one, namespace: a, targetKubeconfig: none}\n\
             - {name: same, namespace: a, leaseNamespace: k, targetKubeconfig: none}\n\
             - {name: two, namespace: b, targetKubeconfig: none}\n",
        )
        .unwrap();
        let server = Uri::from_static("https://seed:6443");
        let held = fleet.register(&cells[first], &server).unwrap();
        let refused = fleet.register(&cells[second], &server).err().map(|error| error.to_string());
        let names_it = |error: String| error.contains(&format!("cell {first} serves"));
        assert_eq!(refused.map(names_it), is_refused.then_some(true));
        assert!(fleet.register(&cells[second], &Uri::from_static("https://other:6443")).is_ok());
        drop(held);
        assert!(fleet.register(&cells[second], &server).is_ok());
    }

    #[test]
    fn a_control_plane_that_cannot_be_used_is_shown_until_it_can_be_or_is_gone() {
        let (fleet, readiness) = fleet(None);
        let with = |names: &[&str]| FoundCells {
            cells: BTreeMap::new(),
            problems: names.iter().map(|name| ((*name).to_owned(), PlaneProblem::NoVolume)).collect(),
        };
        report(&fleet, &with(&["a", "b"]), &BTreeMap::new());
        let missing = readiness.missing();
        assert!(missing.len() == 2 && missing[0].starts_with("cell a: found: the Deployment"), "{missing:?}");
        report(&fleet, &with(&["b"]), &with(&["a", "b"]).problems);
        assert_eq!(readiness.missing().len(), 1);
        report(&fleet, &with(&[]), &with(&["b"]).problems);
        assert!(readiness.missing().is_empty());
    }

    #[test]
    fn the_deployment_is_the_switch_only_where_the_file_says_so() {
        let cells = parse(
            "cells:\n- {name: a, namespace: n, targetKubeconfig: none, parkedByDeployment: true}\n\
             - {name: b, namespace: m, targetKubeconfig: none}\n",
        )
        .unwrap();
        assert_eq!((cells["a"].has_switch, cells["b"].has_switch), (true, false));
    }

    #[test]
    fn cells_without_file_descriptors_are_named() {
        let (fleet, readiness) = fleet(Some(1024));
        assert_eq!(fleet.most_cells, 38);
        let (a, b) = ("a".to_owned(), "b".to_owned());
        fleet.refuse(&[&b, &a]);
        assert!(
            readiness.missing()[0]
                .starts_with("cell a: run: not started: the limit of open files allows 38 cells; raise it")
        );
        fleet.refuse(&[&b]);
        assert_eq!(readiness.missing().len(), 1);
        fleet.refuse(&[]);
        assert!(readiness.missing().is_empty());
    }

    #[test]
    fn a_low_limit_of_open_files_allows_a_few_cells_and_one_that_allows_none_is_an_error() {
        let few = fleet(Some(256)).0;
        assert_eq!(few.most_cells, 6);
        few.check_room().unwrap();
        let error = fleet(Some(119)).0.check_room().unwrap_err().to_string();
        assert!(error.contains("allows no cell: raise it to 120 or more"), "{error}");
        fleet(Some(120)).0.check_room().unwrap();
        fleet(None).0.check_room().unwrap();
    }

    #[rstest::rstest]
    #[case::twice(
        "cells:\n- {name: a, namespace: n, targetKubeconfig: none}\n- {name: a, namespace: m, targetKubeconfig: none}\n",
        "listed twice"
    )]
    #[case::unknown_key("cells:\n- {name: a, namespace: n, targetKubeconfig: none, qps: 3}\n", "qps")]
    #[case::no_target("cells:\n- {name: a, namespace: n}\n", "targetKubeconfig")]
    #[case::all_without_leases("cells:\n- {name: a, namespace: '*', targetKubeconfig: none}\n", "leaseNamespace")]
    #[case::empty_namespace("cells:\n- {name: a, namespace: '', targetKubeconfig: none}\n", "must not be empty")]
    #[case::credentials_for_another(
        "cells:\n- {name: a, namespace: n, targetKubeconfig: none, processCredentialsNamespaces: [m]}\n",
        "serves namespace \"n\" only"
    )]
    #[case::folder_that_is_all(
        "cells:\n- {name: a, namespace: n, targetKubeconfig: none, credentialFilesFolder: /}\n",
        "credentialFilesFolder must be"
    )]
    #[case::folder_with_another_spelling(
        "cells:\n- {name: a, namespace: n, targetKubeconfig: none, credentialFilesFolder: /a/../b}\n",
        "credentialFilesFolder must be"
    )]
    #[case::folder_of_another(
        "cells:\n- {name: a, namespace: n, targetKubeconfig: none, credentialFilesFolder: /wi}\n\
         - {name: b, namespace: m, targetKubeconfig: none, credentialFilesFolder: /wi/b}\n",
        "which is in that of cell \"a\""
    )]
    fn a_file_that_is_wrong_is_refused_with_the_reason(#[case] text: &str, #[case] reason: &str) {
        let error = format!("{:#}", parse(text).unwrap_err());
        assert!(error.contains(reason), "{error}");
    }
}
