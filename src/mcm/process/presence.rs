//! The process in the place of a manager whose namespace a fleet serves. It has no clients, so it manages nothing and takes no Lease.

use std::{net::SocketAddr, sync::Arc};

use anyhow::{Context, Result};
use tokio_util::sync::CancellationToken;

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
    let server = EndpointServer::bind(listen).await.context("serve (--address and --port)")?;
    serve_until(&stop, server, ControllerActivity::default()).await;
    Ok(())
}

/// Serves until the process is stopped.
async fn serve_until(stop: &CancellationToken, server: EndpointServer, activity: ControllerActivity) {
    let metrics = MetricsRegistry::new();
    let build = Arc::new(BuildInfo);
    metrics.attach(&build);
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
    let running = server.serve(endpoints);
    stop.cancelled().await;
    running.stop().await;
}

#[cfg(test)]
mod tests {
    use std::{net::Ipv4Addr, time::Duration};

    use futures::future;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
        time::{sleep, timeout},
    };

    use super::*;

    /// Longer than the test takes on a busy machine; only a failure waits this long.
    const PATIENCE: Duration = Duration::from_secs(20);
    /// A process without a sign of life for so long is unhealthy.
    const STALLED: Duration = Duration::from_secs(61);
    /// Between two probes.
    const PAUSE: Duration = Duration::from_millis(10);
    const OK: &str = "HTTP/1.1 200 ";

    /// The response to a request, with its head.
    async fn get(server: SocketAddr, path: &str) -> String {
        let mut connection = TcpStream::connect(server).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: presence\r\n\r\n");
        connection.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        connection.read_to_string(&mut response).await.unwrap();
        response
    }

    #[tokio::test]
    async fn a_presence_stays_healthy_and_serves_its_metrics_until_it_is_stopped() {
        let server = EndpointServer::bind((Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
        let (address, stop) = (server.address(), CancellationToken::new());
        let activity = ControllerActivity::silent_for(STALLED);
        assert!(activity.stalled().is_some());
        let probes = async {
            // The first sign of life may be later than the first probe.
            while !get(address, "/healthz").await.starts_with(OK) {
                sleep(PAUSE).await;
            }
            assert!(get(address, "/readyz").await.starts_with(OK));
            let metrics = get(address, "/metrics").await;
            assert!(metrics.contains("\nmcm_build_info{version="), "{metrics}");
            stop.cancel();
        };
        timeout(PATIENCE, future::join(serve_until(&stop, server, activity), probes)).await.unwrap();
    }
}
