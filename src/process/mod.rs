//! Assembles a process: clients, drivers, cells with their roles and Leases, endpoints, shutdown.

mod cell;
mod clients;
mod connect;
mod drivers;
mod fleet;
mod options;

use std::sync::Arc;

use anyhow::{Context, Result};
pub(crate) use options::{CellOptions, Cells, DriverChoice, ProcessOptions, TargetKubeconfigs};

use crate::driver::Guards;
use crate::runtime::{
    cell::Shared,
    clock::{Clock, SystemClock},
    http::{Endpoints, Readiness, Server},
    metrics::Metrics,
    shutdown, trust,
};

/// What all cells of a process share.
#[derive(Clone)]
struct Host {
    options: Arc<ProcessOptions>,
    shared: Shared,
    readiness: Readiness,
    guards: Arc<Guards>,
}

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
    let metrics = Metrics::new();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let caches = Arc::new(trust::Caches::default());
    metrics.attach(&caches);
    let readiness = Readiness::default();
    let followed = Arc::clone(&caches);
    readiness.ask(move || followed.problems());
    let shared = Shared { clock, metrics: metrics.clone(), caches, entropy: Arc::new(rand::random) };
    let server = Server::bind(options.listen).await?;
    let serving = server.serve(Endpoints {
        metrics,
        readiness: readiness.clone(),
        shutdown: stop.clone(),
        profiling: options.profiling,
    });
    let guards = Arc::new(drivers::guards(&shared.metrics));
    let host = Host { options: Arc::new(options), shared, readiness, guards };
    let outcome = match (&host.options.cells, &connection) {
        (Cells::One(cell), Some(connection)) => cell::run_connected(&host, cell, connection, &stop).await,
        (Cells::One(cell), None) => cell::run(&host, cell, &stop).await,
        (Cells::File(path), _) => fleet::run(&host, path, &stop).await,
    };
    stop.cancel();
    serving.stop().await;
    outcome
}
