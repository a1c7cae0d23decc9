//! Runs one cell, from its kubeconfigs to its Leases.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use kube::Client;
use tokio::time::sleep;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{
    clients::{self, CellClients},
    connect::{ConnectedClusters, connect},
    drivers::{self, DriverConfig},
    host::ProcessState,
    options::{CellOptions, ProcessOptions, TargetKubeconfigs},
};
use crate::api::machine::Machine;
use mcm_capi::{provider, stand_in};
use mcm_controllers::{KINDS, SETS, Settings, machine_deployment, node};
use mcm_driver_host::DriverCatalogue;
use mcm_runtime::{
    cache::CacheBounds,
    cell::{CellConfig, CellScope, ControllerCell, NamespaceRules, SharedCellState},
    engaged::{
        claims::{ClaimConfig, identity_of},
        switch::DeploymentSwitch,
    },
    events::EventRecorder,
    kubeconfig::{TargetKubeconfig, address},
    lead::lead,
    leader::{CLAIM, CLAIM_RENEWAL, LeaderElection, LeaseConfig, LeaseTiming, identity},
    members::standing::FleetStanding,
    panics::{self, PanicPlace},
    role::ControllerRole,
    shutdown,
    target::{CellTargets, NamespaceWatch, TargetAssignment, TargetConnector, TargetId},
};

/// Retry period for the kubeconfig of a target that cannot be used.
const TARGET_RETRY: Duration = Duration::from_secs(10);

/// Runs a cell until `stop`.
///
/// # Errors
/// Its clusters cannot be reached, or a Lease is lost.
pub(super) async fn run(host: &ProcessState, options: &CellOptions, stop: &CancellationToken) -> Result<()> {
    match reach(&host.options, options, stop).await? {
        Some(connection) => run_connected(host, options, &connection, stop).await,
        None => Ok(()),
    }
}

/// Connects to the clusters of a cell; `None` if it was stopped in the meantime.
///
/// # Errors
/// They cannot be reached.
pub(super) async fn reach(
    process: &ProcessOptions,
    options: &CellOptions,
    stop: &CancellationToken,
) -> Result<Option<ConnectedClusters>> {
    let same = match &options.targets {
        TargetKubeconfigs::Same(target) => target,
        TargetKubeconfigs::ByLabel { .. } => &TargetKubeconfig::None,
    };
    let connecting = connect(&options.control, same, process.fallback, process.agent);
    Ok(stop.run_until_cancelled(connecting).await.transpose()?)
}

/// Runs a connected cell until `stop`.
///
/// # Errors
/// A Lease is lost.
pub(super) async fn run_connected(
    host: &ProcessState,
    options: &CellOptions,
    connection: &ConnectedClusters,
    stop: &CancellationToken,
) -> Result<()> {
    let process = &host.options;
    // Tasks of this run end with it, and not with the cell, which may run again.
    let running = stop.child_token();
    let _ended = running.clone().drop_guard();
    let sharing = host.fleet.as_ref().map(|fleet| fleet.sharing(&options.name));
    let sharing = sharing.as_ref();
    let _registered = match &host.fleet {
        Some(fleet) => Some(fleet.register(options, &connection.clusters.control.config.cluster_url)?),
        None => None,
    };
    let (metrics, shared) = (&host.shared.metrics, &host.connections);
    let clients = CellClients::new(connection, process, sharing, metrics, &host.elections, shared)?;
    // Ages of objects are computed with the clock that stamped them.
    let host = &ProcessState {
        shared: SharedCellState { clock: Arc::new(clients.clock.clone()), ..host.shared.clone() },
        ..host.clone()
    };
    let component = match &process.provider {
        Some(_) => "capi-manager",
        None if process.roles.contains(&SETS) => "machine-controller-manager",
        None => "machine-controller",
    };
    let events = EventRecorder::start(
        clients.events.clone(),
        component,
        Arc::clone(&host.shared.clock),
        host.shared.metrics.clone(),
    );
    let drivers = match &process.drivers {
        Some(choice) => {
            let secrets = options.secret_policy(&choice.secrets);
            let options = DriverConfig {
                provider: choice.provider.as_deref(),
                simulated_cloud: choice.simulated_cloud.as_ref(),
                secrets: &secrets,
                control_server: &connection.clusters.control.config.cluster_url,
                namespace: &options.leases,
                #[cfg(feature = "remote")]
                remote: &choice.remote,
                target: clients.target.as_ref().map(|target| &target.requests),
            };
            drivers::open(&options, &host.guards, &running)?
        }
        None => DriverCatalogue::default(),
    };
    let provided = drivers.names().join(",");
    let cell = start(host, options, &clients, events.clone(), drivers);
    let _targets = connect_targets(host, options, &cell);
    let _namespaces = follow_namespaces(host, options, &cell, &clients.control);
    let Some(_on_demand) = stop.run_until_cancelled(connect_on_demand(host, options, &cell, &clients)).await else {
        return Ok(());
    };
    if let Some(fleet) = &host.fleet {
        fleet.census.started(&options.name).ready();
    }
    let server = &connection.control_info.git_version;
    tracing::info!(cell = options.name, server, scope = %options.scope, drivers = provided, "connected");

    let outcome =
        lead_all(host, options, &cell, &clients, &events, &connection.clusters.control.config.cluster_url, stop).await;
    events.flush(shutdown::EVENTS).await;
    outcome
}

fn start(
    host: &ProcessState,
    options: &CellOptions,
    clients: &CellClients,
    events: EventRecorder,
    drivers: DriverCatalogue,
) -> Arc<ControllerCell> {
    let assignment = match (&options.targets, &clients.target) {
        _ if host.options.provider.is_some() => TargetAssignment::Rule,
        (TargetKubeconfigs::ByLabel { .. }, _) => TargetAssignment::Namespace,
        (TargetKubeconfigs::Same(_), Some(_)) => TargetAssignment::One(TargetId::only()),
        (TargetKubeconfigs::Same(_), None) => TargetAssignment::None,
    };
    let targets = CellTargets::new(assignment, node::cache_for(&host.options.roles));
    targets.limit(CacheBounds::for_objects(host.options.max_nodes));
    if let Some(target) = clients.target.as_ref().filter(|_| !is_on_demand(host, options)) {
        targets.connect(&TargetId::only(), target);
    }
    let process = &host.options;
    let settings = settings(process, targets.exist(), drivers);
    let config = CellConfig {
        name: options.name.clone(),
        scope: options.scope.clone(),
        control: clients.control.clone(),
        targets,
        events,
        kinds: mcm_capi::kind_caches(),
        shared: host.shared.clone(),
    };
    match &process.provider {
        Some(options) if options.stand_in => {
            let settings =
                stand_in::Settings { watch_filter: options.watch_filter.clone(), concurrency: options.concurrency };
            ControllerCell::new(config, stand_in::KINDS, &process.roles, &settings)
        }
        Some(options) => {
            let (flags, metrics) = (Arc::clone(&host.options), host.shared.metrics.clone());
            let settings = provider::Settings {
                native: settings,
                watch_filter: options.watch_filter.clone(),
                concurrency: options.concurrency,
                replaces_native_manager: options.replaces_native_manager,
                connect: Arc::new(move |cluster| clients::of_target(cluster, &flags, None, &metrics)),
            };
            ControllerCell::new(config, provider::KINDS, &process.roles, &settings)
        }
        None => ControllerCell::with_rules(config, KINDS, &process.roles, &settings, &rules(host, options, clients)),
    }
}

/// What a cell needs beside its Leases: those of the namespaces that it serves, if they are others, and their Deployments.
fn rules(host: &ProcessState, options: &CellOptions, clients: &CellClients) -> NamespaceRules {
    let switch = options.has_switch.then(|| {
        let caches = &host.shared.caches;
        DeploymentSwitch::start(&clients.control, &options.scope, &control_label(options), caches)
    });
    host.shared.cells.add_identity(&identity_of(&options.leases));
    let is_own = options.scope == CellScope::Namespace(options.leases.clone());
    let claims = (host.options.leases.is_some() && !is_own).then(|| ClaimConfig {
        leases: clients.leases.clone(),
        runtime: Some(host.elections.handle().clone()),
        own: options.leases.clone(),
        clock: Arc::clone(&host.shared.clock),
    });
    NamespaceRules { switch, claims, member: member(host).cloned() }
}

/// The standing of this process among its replicas.
fn member(host: &ProcessState) -> Option<&Arc<FleetStanding>> {
    host.fleet.as_ref()?.member()
}

/// The name of the control cluster of a cell in `/readyz` and metrics.
fn control_label(options: &CellOptions) -> String {
    if options.name.is_empty() { "control".to_owned() } else { format!("{}/control", options.name) }
}

/// The settings of the controllers.
pub(crate) fn settings(process: &ProcessOptions, has_target: bool, drivers: DriverCatalogue) -> Settings {
    Settings {
        machine: process.machine.clone(),
        deployment: machine_deployment::DeploymentPolicy { has_target, ..process.deployment },
        overshoot: process.overshoot,
        node: process.node,
        orphans: process.orphans,
        probing: process.probing,
        drivers: Arc::new(drivers),
        slots: process.slots,
    }
}

/// The target of a control plane that was found is connected while there are Machines.
fn is_on_demand(host: &ProcessState, options: &CellOptions) -> bool {
    let is_found = matches!(options.targets, TargetKubeconfigs::Same(TargetKubeconfig::Found(_)));
    is_found && host.options.provider.is_none()
}

/// Connects the target with the first Machine, and disconnects it some minutes after the last. Returns when it is connected, if
/// there are Machines.
async fn connect_on_demand(
    host: &ProcessState,
    options: &CellOptions,
    cell: &ControllerCell,
    clients: &CellClients,
) -> Option<AbortOnDropHandle<()>> {
    let clients = clients.target.as_ref().filter(|_| is_on_demand(host, options))?;
    let connector = TargetConnector::begin(cell.targets(), clients, cell.cache::<Machine>()?).await;
    Some(panics::keep(PanicPlace::Task, "the target".to_owned(), move || Arc::clone(&connector).run()))
}

/// Follows the label of Namespaces that names their targets.
fn follow_namespaces(
    host: &ProcessState,
    options: &CellOptions,
    cell: &ControllerCell,
    control: &Client,
) -> Option<NamespaceWatch> {
    let TargetKubeconfigs::ByLabel { label, .. } = &options.targets else { return None };
    let cluster = control_label(options);
    Some(cell.targets().follow_namespaces(control, &options.scope, label, &cluster, &host.shared.caches))
}

/// Connects the targets that a label names. A target that cannot be reached, or an invalid kubeconfig, affects no
/// other.
fn connect_targets(host: &ProcessState, options: &CellOptions, cell: &ControllerCell) -> Vec<AbortOnDropHandle<()>> {
    let TargetKubeconfigs::ByLabel { paths, .. } = &options.targets else { return Vec::new() };
    let connect = |(name, path): (&String, &PathBuf)| {
        let id = TargetId::named(name);
        let (host, targets, cell, path) =
            (host.clone(), Arc::clone(cell.targets()), options.name.clone(), path.clone());
        panics::keep(PanicPlace::Task, format!("target {id}"), move || {
            connect_target(host.clone(), Arc::clone(&targets), cell.clone(), id.clone(), path.clone())
        })
    };
    paths.iter().map(connect).collect()
}

async fn connect_target(host: ProcessState, targets: Arc<CellTargets>, cell: String, id: TargetId, path: PathBuf) {
    let sharing = host.fleet.as_ref().map(|fleet| fleet.sharing(&cell));
    loop {
        match clients::target(&path, &host.options, sharing.as_ref(), &host.shared.metrics).await {
            Ok(clients) => return drop(targets.connect(&id, &clients)),
            Err(error) => tracing::warn!(cell, target = %id, error = format!("{error:#}"), "target not connected"),
        }
        sleep(TARGET_RETRY).await;
    }
}

fn part_of(options: &CellOptions, what: &str) -> String {
    if options.name.is_empty() { what.to_owned() } else { format!("cell {}: {what}", options.name) }
}

async fn lead_all(
    host: &ProcessState,
    options: &CellOptions,
    cell: &ControllerCell,
    clients: &CellClients,
    events: &EventRecorder,
    server: &http::Uri,
    stop: &CancellationToken,
) -> Result<()> {
    let member = member(host);
    let identity = member.map_or_else(identity, |member| member.identity.clone());
    host.shared.cells.add_identity(&identity);
    let server = &address(server);
    let candidates = host.options.roles.iter().map(|role| {
        let part = host.readiness.expect(part_of(options, &format!("lease {}", role.lease)));
        let Some(timing) = host.options.leases else {
            part.ready();
            return Ok((*role, None));
        };
        let timing = if member.is_some() { CLAIM } else { timing };
        let lease_config = lease_config(options, role, &identity, timing);
        let election = LeaderElection::new(clients.leases.clone(), lease_config, Arc::clone(&host.shared.clock))?
            .within(host.elections.handle().clone());
        let election = match member {
            Some(member) => election.renewing_every(CLAIM_RENEWAL).of_member(member),
            None => election,
        };
        Ok((
            *role,
            Some(
                election
                    .at(server.clone())
                    .showing(Arc::clone(cell.targets().freeze()))
                    .noticing(cell.foreign_flag(role))
                    .recording(events.with_component(role.lease))
                    .reporting(part),
            ),
        ))
    });
    let candidates: Vec<_> = candidates.collect::<Result<_>>().context("leader election")?;
    Ok(lead(cell, candidates, &|_| (), stop).await?)
}

fn lease_config(options: &CellOptions, role: &ControllerRole, identity: &str, timing: LeaseTiming) -> LeaseConfig {
    LeaseConfig {
        namespace: options.leases.clone(),
        name: role.lease.to_owned(),
        identity: identity.to_owned(),
        timing,
    }
}
