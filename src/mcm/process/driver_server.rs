//! Serves the drivers of this program from a separate process.

use std::sync::Arc;

use anyhow::{Context, Result};

use super::{
    built_in::{DriverSources, SimulatedCloud},
    drivers,
    options::SimulatedPlace,
};
use crate::simulated_cloud::{CloudApi, CloudSimulator, SimulatedCloudClient, SimulationSettings};
use mcm_driver::SecretPolicy;
use mcm_driver_host::remote::{self, ListenOptions};
use mcm_runtime::{dumps, metrics::MetricsRegistry, shutdown};

/// The drivers to serve, and their addresses.
#[derive(Clone, Debug)]
pub(crate) struct DriverServerOptions {
    /// Only the driver of this provider.
    pub provider: Option<String>,
    /// The simulated cloud; its classes are not served if `None`.
    pub simulated_cloud: Option<SimulatedPlace>,
    /// Restricts the Secrets of classes.
    pub secrets: SecretPolicy,
    /// Where to listen.
    pub listen: ListenOptions,
}

/// Serves drivers until a signal arrives.
///
/// # Errors
/// The provider is not built in, or the address cannot be had.
pub(crate) async fn serve_drivers(options: DriverServerOptions) -> Result<()> {
    let stop = shutdown::on_signal().context("listen for signals")?;
    dumps::forbid();
    let simulated_cloud = || {
        Ok(match &options.simulated_cloud {
            Some(SimulatedPlace::Url(address)) => Arc::new(SimulatedCloudClient::new(address)?) as Arc<dyn CloudApi>,
            Some(SimulatedPlace::Embedded) | None => {
                Arc::new(CloudSimulator::new(rand::random(), SimulationSettings::default()))
            }
        })
    };
    let simulated_cloud = options.simulated_cloud.as_ref().map(|_| &simulated_cloud as &SimulatedCloud<'_>);
    let sources = DriverSources { simulated_cloud, secrets: &options.secrets, remote: &[] };
    let drivers = sources.open(options.provider.as_deref(), &drivers::guards(&MetricsRegistry::new()))?;
    let names = drivers.names().join(", ");
    let started = |address: &str| tracing::info!(address, drivers = names, "drivers served");
    remote::serve(&options.listen, drivers, started, &stop).await?;
    Ok(())
}
