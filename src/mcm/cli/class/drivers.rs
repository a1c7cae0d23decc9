//! The drivers of the classes in files.

use std::sync::Arc;

use super::error::NotChecked;
#[cfg(feature = "remote")]
use crate::cli::flags::RemoteOptions;
use crate::{
    cli::flags::SecretOptions,
    process::DriverSources,
    simulated_cloud::{CloudApi, CloudSimulator, SimulationSettings},
};
use mcm_driver::DriverGuards;
use mcm_driver_host::DriverCatalogue;

/// The flags that choose the drivers of classes.
pub(super) struct DriverFlags<'a> {
    pub secrets: &'a SecretOptions,
    #[cfg(feature = "remote")]
    pub remote: &'a RemoteOptions,
}

impl DriverFlags<'_> {
    /// Opens them.
    ///
    /// # Errors
    /// Credentials would be sent in the clear, or a driver cannot be opened.
    pub fn open(&self) -> Result<DriverCatalogue, NotChecked> {
        #[cfg(feature = "remote")]
        let remote = self.remote.endpoints();
        #[cfg(feature = "remote")]
        if let Some(exposed) = remote.iter().find(|one| one.address.is_exposed() && !self.remote.driver_insecure) {
            return Err(NotChecked::Exposed(exposed.address.to_string()));
        }
        // Nothing is created in it.
        let simulated_cloud =
            || Ok(Arc::new(CloudSimulator::new(0, SimulationSettings::default())) as Arc<dyn CloudApi>);
        let sources = DriverSources {
            simulated_cloud: Some(&simulated_cloud),
            secrets: &self.secrets.policy(),
            #[cfg(feature = "remote")]
            remote: &remote,
        };
        sources.open(None, &DriverGuards::unobserved()).map_err(|error| NotChecked::Driver(error.to_string()))
    }
}
