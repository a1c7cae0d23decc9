//! The simulated cloud as a service for several processes.

use anyhow::{Context, Result};
use clap::Args;

use super::flags::LogOptions;
use crate::{runtime::shutdown, simulated_cloud::CloudArgs};

/// Flags of `mcm simulated-cloud`.
#[derive(Args, Clone, Debug)]
pub struct SimulatedCloudOptions {
    /// The cloud.
    #[command(flatten)]
    pub cloud: CloudArgs,

    /// Logs.
    #[command(flatten)]
    pub log: LogOptions,
}

/// Serves until the process is told to stop.
///
/// # Errors
/// When it cannot listen, or its state file or kubeconfig cannot be used.
pub async fn run(options: SimulatedCloudOptions) -> Result<()> {
    let stop = shutdown::on_signal().context("listen for signals")?;
    options.cloud.run(stop).await?;
    Ok(())
}
