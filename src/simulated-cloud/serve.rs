//! The simulated cloud as a separate process.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use kube::Client;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{
    cloud::CloudSimulator, control::SimulationSettings, journal::JournalError, kubelet::keep_nodes, server::router,
};

/// Where the API listens unless told otherwise.
pub const DEFAULT_ADDRESS: &str = "127.0.0.1:10270";

/// How the simulated cloud runs.
#[derive(Clone, Default)]
pub struct ServeOptions {
    /// Where the API listens.
    pub address: Option<SocketAddr>,
    /// File that keeps the VMs.
    pub state_file: Option<PathBuf>,
    /// Cluster in which VMs register as Nodes.
    pub target: Option<Client>,
    /// Settings at the start.
    pub control: SimulationSettings,
    /// Seed of everything random; a new one if absent.
    pub seed: Option<u64>,
    /// Ends it.
    pub stop: CancellationToken,
}

/// The simulated cloud cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Its state file cannot be used.
    #[error(transparent)]
    State(#[from] JournalError),
    /// Its address cannot be had.
    #[error("cannot listen on {address}: choose another --address, or stop the process that uses it")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// The server broke off.
    #[error("the server at {address} failed")]
    Serve {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// Runs a simulated cloud with its HTTP API, and with Nodes if there is a target, until it is told to stop.
///
/// # Errors
/// When the state file or the address cannot be used, or the server breaks off.
pub async fn serve(options: ServeOptions) -> Result<(), ServeError> {
    let ServeOptions { address, state_file, target, control, seed, stop } = options;
    let address = address.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 10270)));
    let seed = seed.unwrap_or_else(rand::random);
    let cloud = match &state_file {
        Some(path) => CloudSimulator::open(path, seed, control)?,
        None => CloudSimulator::new(seed, control),
    };
    let cloud = Arc::new(cloud);
    let listener = TcpListener::bind(address).await.map_err(|source| ServeError::Listen { address, source })?;
    let vms = cloud.stats().alive;
    tracing::info!(%address, seed, vms, nodes = target.is_some(), "simulated cloud started");
    let kept = target.map(|client| tokio::spawn(keep_nodes(Arc::clone(&cloud), client, stop.clone())));
    // Running calls are cancelled: the operations they began are completed in time, even across a restart.
    let outcome = tokio::select! {
        outcome = axum::serve(listener, router(cloud)).into_future() => outcome,
        () = stop.cancelled() => Ok(()),
    };
    if let Some(kept) = kept {
        kept.abort();
    }
    outcome.map_err(|source| ServeError::Serve { address, source })
}
