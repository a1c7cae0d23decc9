//! Assembles a process: clients, drivers, cells with their roles and Leases, endpoints, shutdown.

mod announcement;
mod build_info;
mod built_in;
mod cell;
mod census;
mod clients;
mod configz;
mod connect;
#[cfg(feature = "remote")]
mod driver_server;
mod drivers;
mod extension;
mod fleet;
mod host;
mod options;
mod plane_source;
mod presence;

use std::{net::SocketAddr, sync::Arc};

use anyhow::{Context, Result};

use build_info::BuildInfo;
use connect::ConnectedClusters;
use host::{FleetState, ProcessState};
use mcm_runtime::{
    activity::ControllerActivity,
    cell::SharedCellState,
    cells,
    clock::{SteadyClock, TimeSource},
    connections::ConnectionRegistry,
    descriptors, dumps,
    http::{AccessReviewer, EndpointServer, HttpEndpoints, ProcessReadiness, RunningServer},
    metrics::MetricsRegistry,
    separate::{SeparateRuntime, run_in},
    shutdown, trust,
};

pub(crate) use build_info::{VERSION, commit};
pub(crate) use built_in::{DriverSources, drivers_of_build};
pub(crate) use cell::settings;
#[cfg(feature = "remote")]
pub(crate) use driver_server::{DriverServerOptions, serve_drivers};
pub(crate) use extension::{ExtensionOptions, serve_extension};
pub(crate) use options::{
    CellOptions, CellSource, DriverChoice, FleetOptions, MetricsAddress, ProcessOptions, ProviderOptions,
    SimulatedPlace, TargetKubeconfigs,
};
pub(crate) use presence::serve_presence;

pub use plane_source::{NamespaceSelector, PlaneSource};

/// Runs the controllers until a signal arrives or a Lease is lost.
///
/// # Errors
/// The clusters cannot be reached, the endpoints cannot be served, or a Lease is lost.
pub(crate) async fn serve(options: ProcessOptions) -> Result<()> {
    let stop = shutdown::on_signal().context("listen for signals")?;
    // Errors in a kubeconfig are reported before anything else starts.
    let connection = match &options.cells {
        CellSource::One(cell) => match cell::reach(&options, cell, &stop).await? {
            Some(connection) => Some(connection),
            None => return Ok(()),
        },
        CellSource::File(_) | CellSource::Fleet(_) => None,
    };
    announcement::announce();
    dumps::forbid();
    let descriptors = descriptors::raise();
    let metrics = MetricsRegistry::with_series(options.exported_series());
    let clock: Arc<dyn TimeSource> = Arc::new(SteadyClock::default());
    let caches = Arc::new(trust::CacheRegistry::default());
    metrics.attach(&caches);
    let is_fleet = options.cells.is_fleet();
    let readiness = if is_fleet { ProcessReadiness::of_cells() } else { ProcessReadiness::default() };
    let followed = Arc::clone(&caches);
    readiness.ask(move || followed.problems());
    let cells = Arc::new(cells::CellRegistry::default());
    metrics.attach(&cells);
    let build = Arc::new(BuildInfo);
    metrics.attach(&build);
    let (entropy, running) = (Arc::new(rand::random), Arc::clone(&cells));
    let shared = SharedCellState { clock, metrics: metrics.clone(), caches, entropy, cells: running };
    let activity = ControllerActivity::default();
    let _recording = activity.record();
    let endpoints = HttpEndpoints {
        metrics,
        activity,
        readiness: readiness.clone(),
        shutdown: stop.clone(),
        diagnostics: options.diagnostics == MetricsAddress::Beside,
        cells,
        config: Arc::new(configz::configz(&options)),
        readers: options.readers,
        profiling: options.profiling,
    };
    let probes = SeparateRuntime::start("mcm-endpoints").context("start the thread of the endpoints")?;
    let elections = SeparateRuntime::start("mcm-elections").context("start the thread of the elections")?;
    let flag = if options.provider.is_some() { "serve probes (--health-addr)" } else { "serve (--address and --port)" };
    let mut serving = vec![serve_at(options.listen, endpoints.clone(), &probes).await.context(flag)?];
    serving.extend(serve_diagnostics(&options, endpoints, connection.as_ref(), &probes).await?);
    let guards = Arc::new(drivers::guards(&shared.metrics));
    let fleet = is_fleet.then(|| FleetState::new(&readiness, &shared, descriptors));
    let (elections, connections) = (Arc::new(elections), ConnectionRegistry::default());
    let host = ProcessState { options: Arc::new(options), shared, readiness, guards, elections, connections, fleet };
    let outcome = match (&host.options.cells, &connection) {
        (CellSource::One(cell), Some(connection)) => cell::run_connected(&host, cell, connection, &stop).await,
        (CellSource::One(cell), None) => cell::run(&host, cell, &stop).await,
        (source, _) => fleet::run(&host, source, &stop).await,
    };
    stop.cancel();
    for server in serving {
        server.stop().await;
    }
    outcome
}

/// Serves plain HTTP in the runtime of the endpoints.
async fn serve_at(address: SocketAddr, endpoints: HttpEndpoints, probes: &SeparateRuntime) -> Result<RunningServer> {
    let server = run_in(probes.handle(), EndpointServer::bind(address)).await?;
    Ok(probes.within(|| server.serve(endpoints)))
}

/// The context of an error of the server of metrics.
const DIAGNOSTICS_FLAG: &str = "serve metrics (--diagnostics-address)";

/// Serves metrics at a separate address, if one is configured.
async fn serve_diagnostics(
    options: &ProcessOptions,
    endpoints: HttpEndpoints,
    connection: Option<&ConnectedClusters>,
    probes: &SeparateRuntime,
) -> Result<Option<RunningServer>> {
    let endpoints = HttpEndpoints { diagnostics: true, ..endpoints };
    match &options.diagnostics {
        MetricsAddress::Beside => Ok(None),
        MetricsAddress::At(address) => Ok(Some(serve_at(*address, endpoints, probes).await.context(DIAGNOSTICS_FLAG)?)),
        MetricsAddress::Secured(address, files) => {
            let connection =
                connection.context("serve diagnostics over TLS: there is no control cluster to authorize readers")?;
            let reviews = probes.within(|| clients::of_reviews(connection, options, &endpoints.metrics))?;
            let server = run_in(probes.handle(), EndpointServer::bind(*address)).await.context(DIAGNOSTICS_FLAG)?;
            Ok(Some(probes.within(|| server.serve_secured(endpoints, files.clone(), AccessReviewer::new(reviews)))?))
        }
    }
}
