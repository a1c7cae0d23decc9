//! The process in the place of a manager whose namespace a fleet serves. It has no clients, so it manages nothing and takes no Lease.

use std::{net::SocketAddr, sync::Arc};

use anyhow::{Context, Result};

use super::{announcement, build_info::BuildInfo, configz};
use mcm_runtime::{
    activity::ControllerActivity,
    cells::CellRegistry,
    http::{DiagnosticReaders, EndpointServer, HttpEndpoints, ProcessReadiness},
    metrics::MetricsRegistry,
    shutdown,
};

/// Serves health, readiness and the metrics of this process until a signal arrives.
///
/// # Errors
/// The signal handlers cannot be installed, or the address cannot be bound.
pub(crate) async fn serve_presence(listen: SocketAddr) -> Result<()> {
    let stop = shutdown::on_signal().context("listen for signals")?;
    announcement::announce();
    let metrics = MetricsRegistry::new();
    let build = Arc::new(BuildInfo);
    metrics.attach(&build);
    let activity = ControllerActivity::default();
    let _recording = activity.record();
    let endpoints = HttpEndpoints {
        metrics,
        readiness: ProcessReadiness::default(),
        shutdown: stop.clone(),
        activity,
        diagnostics: true,
        cells: Arc::new(CellRegistry::default()),
        config: Arc::new(configz::without_controllers()),
        readers: DiagnosticReaders::Local,
        profiling: false,
    };
    let server = EndpointServer::bind(listen).await.context("serve (--address and --port)")?;
    let running = server.serve(endpoints);
    stop.cancelled().await;
    running.stop().await;
    Ok(())
}
