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
mod fleet;
mod host;
mod options;
mod read_only;

use std::{net::SocketAddr, sync::Arc};

use anyhow::{Context, Result};

use build_info::BuildInfo;
use connect::Connection;
use host::{Fleet, Host};
use mcm_runtime::{
    activity::Activity,
    cell::Shared,
    cells,
    clock::{Clock, SteadyClock},
    descriptors, dumps,
    http::{Access, Endpoints, Readiness, Server, Serving},
    metrics::Metrics,
    separate::{SeparateRuntime, run_in},
    shutdown, trust,
};

pub(crate) use build_info::{VERSION, commit};
pub(crate) use built_in::{DriverSources, drivers_of_build};
#[cfg(test)]
pub(crate) use cell::settings;
#[cfg(feature = "remote")]
pub(crate) use driver_server::{DriverServerOptions, serve_drivers};
pub(crate) use mcm_runtime::cell::Unread;
pub(crate) use options::{
    CellOptions, Cells, Diagnostics, DriverChoice, ProcessOptions, ProviderOptions, SimulatedPlace, TargetKubeconfigs,
};
pub(crate) use read_only::{Leadership, Reach, ReadOnly};

/// Runs the controllers until a signal arrives or a Lease is lost.
///
/// # Errors
/// The clusters cannot be reached, the endpoints cannot be served, or a Lease is lost.
pub(crate) async fn serve(options: ProcessOptions) -> Result<()> {
    let stop = shutdown::on_signal().context("listen for signals")?;
    // Errors in a kubeconfig are reported before anything else starts.
    let connection = match &options.cells {
        Cells::One(cell) => match cell::reach(&options, cell, &stop).await? {
            Some(connection) => Some(connection),
            None => return Ok(()),
        },
        Cells::File(_) => None,
    };
    announcement::announce();
    dumps::forbid();
    let descriptors = descriptors::raise();
    let metrics = Metrics::new();
    let clock: Arc<dyn Clock> = Arc::new(SteadyClock::default());
    let caches = Arc::new(trust::Caches::default());
    metrics.attach(&caches);
    let readiness = match &options.cells {
        Cells::One(_) => Readiness::default(),
        Cells::File(_) => Readiness::of_cells(),
    };
    let followed = Arc::clone(&caches);
    readiness.ask(move || followed.problems());
    let cells = Arc::new(cells::Cells::default());
    metrics.attach(&cells);
    let build = Arc::new(BuildInfo);
    metrics.attach(&build);
    let (entropy, running) = (Arc::new(rand::random), Arc::clone(&cells));
    let shared = Shared { clock, metrics: metrics.clone(), caches, entropy, cells: running };
    let activity = Activity::default();
    let _recording = activity.record();
    let endpoints = Endpoints {
        metrics,
        activity,
        readiness: readiness.clone(),
        shutdown: stop.clone(),
        diagnostics: options.diagnostics == Diagnostics::Beside,
        cells,
        config: Arc::new(configz::configz(&options)),
        readers: options.readers,
        profiling: options.profiling,
    };
    let probes = SeparateRuntime::start("mcm-endpoints").context("start the thread of the endpoints")?;
    let elections = SeparateRuntime::start("mcm-elections").context("start the thread of the elections")?;
    let mut serving = vec![serve_at(options.listen, endpoints.clone(), &probes).await?];
    serving.extend(serve_diagnostics(&options, endpoints, connection.as_ref(), &probes).await?);
    let guards = Arc::new(drivers::guards(&shared.metrics));
    let fleet = matches!(options.cells, Cells::File(_)).then(|| Fleet::new(&readiness, &shared, descriptors));
    let elections = Arc::new(elections);
    let host = Host { options: Arc::new(options), shared, readiness, guards, elections, fleet };
    let outcome = match (&host.options.cells, &connection) {
        (Cells::One(cell), Some(connection)) => cell::run_connected(&host, cell, connection, &stop).await,
        (Cells::One(cell), None) => cell::run(&host, cell, &stop).await,
        (Cells::File(path), _) => fleet::run(&host, path, &stop).await,
    };
    stop.cancel();
    for server in serving {
        server.stop().await;
    }
    outcome
}

/// Serves plain HTTP in the runtime of the endpoints.
async fn serve_at(address: SocketAddr, endpoints: Endpoints, probes: &SeparateRuntime) -> Result<Serving> {
    let server = run_in(probes.handle(), Server::bind(address)).await?;
    Ok(probes.within(|| server.serve(endpoints)))
}

/// Serves metrics at a separate address, if one is configured.
async fn serve_diagnostics(
    options: &ProcessOptions,
    endpoints: Endpoints,
    connection: Option<&Connection>,
    probes: &SeparateRuntime,
) -> Result<Option<Serving>> {
    let endpoints = Endpoints { diagnostics: true, ..endpoints };
    match &options.diagnostics {
        Diagnostics::Beside => Ok(None),
        Diagnostics::At(address) => Ok(Some(serve_at(*address, endpoints, probes).await?)),
        Diagnostics::Secured(address, files) => {
            let connection =
                connection.context("serve diagnostics over TLS: there is no control cluster to authorize readers")?;
            let reviews = probes.within(|| clients::of_reviews(connection, options, &endpoints.metrics))?;
            let server = run_in(probes.handle(), Server::bind(*address)).await?;
            Ok(Some(probes.within(|| server.serve_secured(endpoints, files.clone(), Access::new(reviews)))?))
        }
    }
}
