//! Starts the controllers of the three running commands.

use std::{fs::File, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail};
use futures::future::select_all;
use jiff::SignedDuration;
use kube::{Client, Config};
use tokio_util::sync::CancellationToken;

use super::{
    connect::{Connection, connect},
    flags::{
        ControllerManagerOptions, DriverOptions, GenericOptions, LeaderElectionOptions, MachineControllerOptions,
        MachineOptions, RunOptions,
    },
};
use crate::{
    api::GoDuration,
    controllers::{
        machine, machine_deployment,
        manager::{Manager, Role, Setup},
        node,
    },
    driver::{
        Code, Deadline, Driver, Metered, Observer, Registry, TimeLimits,
        simulated::{Cloud, Control, SimulatedDriver, keep_nodes},
    },
    runtime::{
        client,
        clock::{Clock, SystemClock},
        events::Events,
        http::{Endpoints, Readiness, Server},
        kubeconfig::{Fallback, UserAgent},
        leader::{Candidacy, Election, Leadership, Timing, identity},
        limiter::Rate,
        metrics::Metrics,
        shutdown,
    },
};

/// How long events may hold up the end.
const LAST_EVENTS: Duration = Duration::from_secs(2);
/// Events must not compete with the work they tell of.
const EVENT_RATE: Rate = Rate { qps: 50.0, burst: 100 };
/// A Node without the finalizer that the Machine's own passes should have added gets it after this long.
const FINALIZER_GRACE: SignedDuration = SignedDuration::from_secs(30);

/// What differs between the three commands.
struct Assembly<'a> {
    agent: UserAgent,
    fallback: Fallback,
    roles: Vec<Role>,
    listen: std::net::SocketAddr,
    generic: &'a GenericOptions,
    machine: Option<&'a MachineOptions>,
    driver: Option<&'a DriverOptions>,
    annotate_nodes: bool,
    slots: usize,
}

/// All controllers in one process.
///
/// # Errors
/// When the clusters cannot be reached, the endpoints cannot be offered, or the lead is lost.
pub async fn run(options: RunOptions) -> Result<()> {
    serve(Assembly {
        agent: UserAgent::Mcm,
        fallback: Fallback::LocalKubeconfig,
        roles: vec![Role::Sets, Role::Machines],
        listen: options.listen(),
        generic: &options.generic,
        machine: Some(&options.machine),
        driver: Some(&options.driver),
        annotate_nodes: options.rollout.autoscaler_scaledown_annotation_during_rollout,
        slots: options.machine_workers(),
    })
    .await
}

/// The controllers of sets and deployments.
///
/// # Errors
/// As for [`run`].
pub async fn controller_manager(options: ControllerManagerOptions) -> Result<()> {
    serve(Assembly {
        agent: UserAgent::ControllerManager,
        fallback: Fallback::None,
        roles: vec![Role::Sets],
        listen: options.listen(),
        generic: &options.generic,
        machine: None,
        driver: None,
        annotate_nodes: options.rollout.autoscaler_scaledown_annotation_during_rollout,
        slots: options.concurrent_syncs,
    })
    .await
}

/// The controllers of machines and classes.
///
/// # Errors
/// As for [`run`].
pub async fn machine_controller(options: MachineControllerOptions) -> Result<()> {
    serve(Assembly {
        agent: UserAgent::MachineController,
        fallback: Fallback::None,
        roles: vec![Role::Machines],
        listen: options.listen(),
        generic: &options.generic,
        machine: Some(&options.machine),
        driver: Some(&options.driver),
        annotate_nodes: false,
        slots: options.concurrent_syncs,
    })
    .await
}

async fn serve(assembly: Assembly<'_>) -> Result<()> {
    let stop = shutdown::on_signal().context("listen for signals")?;
    let connection = connect(assembly.generic, assembly.fallback, assembly.agent).await?;
    let metrics = Metrics::new();
    let readiness = Readiness::default();
    let caches_ready = readiness.expect("caches");
    let server = Server::bind(assembly.listen).await?;
    let serving = server.serve(Endpoints {
        metrics: metrics.clone(),
        readiness: readiness.clone(),
        shutdown: stop.clone(),
        profiling: assembly.generic.profiling,
    });

    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let clients = Clients::new(&connection, &assembly, &metrics)?;
    let component = match assembly.roles.as_slice() {
        [Role::Machines] => "machine-controller",
        _ => "machine-controller-manager",
    };
    let events = Events::start(clients.events.clone(), component, Arc::clone(&clock), metrics.clone());
    let drivers = drivers(&assembly, &connection, clients.target.as_ref(), &metrics, &stop)?;
    let manager = Manager::new(setup(&assembly, &clients, drivers, &events, &clock, &metrics));
    tracing::info!(server = connection.control_info.git_version, namespace = assembly.generic.namespace, "connected");

    let outcome = tokio::select! {
        outcome = lead(&assembly, &manager, &clients.leases, &events, &clock, &readiness, &stop) => outcome,
        () = report_caches(&manager, &caches_ready, &stop) => Ok(()),
    };
    stop.cancel();
    events.flush(LAST_EVENTS).await;
    serving.stop().await;
    outcome
}

/// Never ends before `stop` has been cancelled and work has ended elsewhere.
async fn report_caches(manager: &Manager, ready: &crate::runtime::http::Part, stop: &CancellationToken) {
    ready.missing(manager.missing().join(", "));
    if stop.run_until_cancelled(manager.wait_synced()).await.is_some() {
        ready.ready();
    }
    std::future::pending().await
}

/// Plays each role for as long as its lease is ours.
async fn lead(
    assembly: &Assembly<'_>,
    manager: &Manager,
    leases: &Client,
    events: &Events,
    clock: &Arc<dyn Clock>,
    readiness: &Readiness,
    stop: &CancellationToken,
) -> Result<()> {
    let identity = identity();
    let roles = assembly.roles.iter().map(|role| {
        let identity = identity.clone();
        let part = readiness.expect(format!("lease {}", lease_name(*role)));
        Box::pin(async move {
            let options = &assembly.generic.leader_election;
            if !options.enabled {
                part.ready();
                manager.play(*role, stop.clone()).await;
                return Ok(());
            }
            let candidacy = candidacy(&assembly.generic.namespace, *role, identity, options);
            let election = Election::new(leases.clone(), candidacy, Arc::clone(clock))?;
            let election = election.telling(events.speaking_as(lease_name(*role))).reporting(part);
            match stop.run_until_cancelled(election.acquire()).await {
                Some(leadership) => play_while_leading(manager, *role, leadership, stop).await,
                None => Ok(()),
            }
        })
    });
    let mut roles: Vec<_> = roles.collect();
    let mut outcome = Ok(());
    while !roles.is_empty() {
        let (ended, _, rest) = select_all(roles).await;
        // Whichever role ends, ends the process.
        stop.cancel();
        outcome = outcome.and(ended);
        roles = rest;
    }
    outcome
}

async fn play_while_leading(
    manager: &Manager,
    role: Role,
    leadership: Leadership,
    stop: &CancellationToken,
) -> Result<()> {
    tokio::select! {
        () = manager.play(role, stop.clone()) => {
            leadership.release().await;
            Ok(())
        }
        () = leadership.lost() => bail!("lost the lease {}: another process works on", lease_name(role)),
    }
}

const fn lease_name(role: Role) -> &'static str {
    match role {
        Role::Sets => "machine-controller-manager",
        Role::Machines => "machine-controller",
    }
}

fn candidacy(namespace: &str, role: Role, identity: String, options: &LeaderElectionOptions) -> Candidacy {
    Candidacy {
        namespace: namespace.to_owned(),
        name: lease_name(role).to_owned(),
        identity,
        timing: Timing {
            lease_duration: options.lease_duration,
            renew_deadline: options.renew_deadline,
            retry_period: options.retry_period,
        },
    }
}

/// Clients with limits of their own, so that neither events nor leases wait for work.
struct Clients {
    control: Client,
    target: Option<Client>,
    events: Client,
    leases: Client,
}

impl Clients {
    fn new(connection: &Connection, assembly: &Assembly<'_>, metrics: &Metrics) -> Result<Self> {
        let generic = assembly.generic;
        let rate = Rate { qps: f64::from(generic.kube_api_qps), burst: generic.kube_api_burst };
        let agent = assembly.agent.as_str();
        let limited = |config: &Config, rate| client::client(config.clone(), agent, rate, metrics.requests());
        let clusters = &connection.clusters;
        Ok(Self {
            control: limited(&clusters.control, rate)?,
            target: clusters.target.as_ref().map(|config| limited(config, rate)).transpose()?,
            events: limited(&clusters.control, EVENT_RATE)?,
            leases: client::lease_client(
                clusters.control.clone(),
                UserAgent::LeaderElection.as_str(),
                metrics.requests(),
            )?,
        })
    }
}

fn setup(
    assembly: &Assembly<'_>,
    clients: &Clients,
    drivers: Registry,
    events: &Events,
    clock: &Arc<dyn Clock>,
    metrics: &Metrics,
) -> Setup {
    let creation_timeout = assembly.machine.map(|machine| machine.machine_creation_timeout);
    let creation_timeout = creation_timeout.map_or(machine::Policy::default().creation_timeout, GoDuration::from);
    Setup {
        namespace: assembly.generic.namespace.clone(),
        roles: assembly.roles.clone(),
        control: clients.control.clone(),
        target: clients.target.clone(),
        drivers,
        events: events.clone(),
        clock: Arc::clone(clock),
        metrics: metrics.clone(),
        machine_policy: assembly.machine.map(machine_policy).unwrap_or_default(),
        deployment_policy: machine_deployment::Policy {
            annotate_nodes: assembly.annotate_nodes,
            has_target: clients.target.is_some(),
        },
        node_policy: node::Policy { creation_timeout: creation_timeout.as_signed(), finalizer_grace: FINALIZER_GRACE },
        slots: assembly.slots,
    }
}

fn machine_policy(options: &MachineOptions) -> machine::Policy {
    machine::Policy {
        creation_timeout: options.machine_creation_timeout.into(),
        health_timeout: options.machine_health_timeout.into(),
        drain_timeout: options.machine_drain_timeout.into(),
        max_evict_retries: i32::try_from(options.machine_max_evict_retries).unwrap_or(i32::MAX),
        node_conditions: options.node_conditions.as_slice().to_vec(),
        resource_exhausted_retry: options.resource_exhausted_retry.into(),
        bootstrap_token_groups: options.bootstrap_token_auth_extra_groups.clone(),
        ..machine::Policy::default()
    }
}

/// The drivers that are built in, each with a time limit and measured.
fn drivers(
    assembly: &Assembly<'_>,
    connection: &Connection,
    target: Option<&Client>,
    metrics: &Metrics,
    stop: &CancellationToken,
) -> Result<Registry> {
    let Some(options) = assembly.driver else { return Ok(Registry::new([])) };
    let simulated = match &options.simulated_cloud {
        Some(address) => SimulatedDriver::remote(address.as_str())?,
        None => SimulatedDriver::embedded(embedded_cloud(assembly, connection, target, stop)),
    };
    let observer: Arc<dyn Observer> = Arc::new(Measured(metrics.clone()));
    let built_in: [Arc<dyn Driver>; 1] = [Arc::new(simulated)];
    let names: Vec<&str> = built_in.iter().map(|driver| driver.name()).collect();
    if let Some(provider) = &options.provider
        && !names.iter().any(|name| name.eq_ignore_ascii_case(provider))
    {
        bail!("--provider {provider} is not built in: use one of {}", names.join(", "));
    }
    Ok(Registry::new(built_in.into_iter().map(|driver| {
        let limited: Arc<dyn Driver> = Arc::new(Deadline::new(driver, TimeLimits::default()));
        let measured: Arc<dyn Driver> = Arc::new(Metered::new(limited, Arc::clone(&observer)));
        measured
    })))
}

struct Measured(Metrics);

impl Observer for Measured {
    fn observed(&self, provider: &str, operation: &'static str, duration: Duration, outcome: Result<(), Code>) {
        self.0.drivers().observed(provider, operation, duration, outcome.map_err(Code::as_str));
    }
}

/// A simulated cloud inside this process, whose VMs outlive it in a file where that can be had.
fn embedded_cloud(
    assembly: &Assembly<'_>,
    connection: &Connection,
    target: Option<&Client>,
    stop: &CancellationToken,
) -> Arc<Cloud> {
    let seed = rand::random();
    let kept = state_file(assembly, connection).and_then(|path| {
        std::fs::create_dir_all(path.parent()?).ok()?;
        // Two processes would each lose what the other writes.
        let lock = File::create(path.with_extension("lock")).ok()?;
        lock.try_lock().ok()?;
        let opened = Cloud::open(&path, seed, Control::default());
        let cloud =
            opened.inspect_err(|error| tracing::warn!(%error, "the state of the embedded cloud is lost")).ok()?;
        Some((cloud, lock))
    });
    let (cloud, lock) = match kept {
        Some((cloud, lock)) => (Arc::new(cloud), Some(lock)),
        None => {
            tracing::debug!("the embedded simulated cloud keeps its VMs in memory only");
            (Arc::new(Cloud::new(seed, Control::default())), None)
        }
    };
    let ended = stop.clone();
    tokio::spawn(async move {
        ended.cancelled().await;
        drop(lock);
    });
    if let Some(target) = target {
        tokio::spawn(keep_nodes(Arc::clone(&cloud), target.clone(), stop.clone()));
    }
    cloud
}

fn state_file(assembly: &Assembly<'_>, connection: &Connection) -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let state = state.or_else(|| std::env::home_dir().map(|home| home.join(".local/state")))?;
    let server: String = connection
        .clusters
        .control
        .cluster_url
        .to_string()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    Some(state.join("mcm").join(format!("{server}{}.journal", assembly.generic.namespace)))
}
