//! The drivers of a process: those in this build, and drivers in other processes.

use std::sync::Arc;

#[cfg(feature = "simulated")]
use crate::simulated_cloud::driver as simulated;
use crate::simulated_cloud::{CloudApi, InvalidAddress};
use mcm_driver::{DriverEnvironment, DriverGuards, OpenError, SecretPolicy};
#[cfg(feature = "remote")]
use mcm_driver_host::remote::DriverEndpoint;
use mcm_driver_host::{DriverCatalogue, ExtraDrivers, clouds_of_build};
#[cfg(feature = "simulated")]
use {mcm_driver::DriverObserver, mcm_driver_host::BuiltIn};

/// Makes the client of a simulated cloud, or an embedded one.
pub(crate) type SimulatedCloud<'a> = dyn Fn() -> Result<Arc<dyn CloudApi>, InvalidAddress> + Sync + 'a;

/// Where the drivers of a process come from.
pub(crate) struct DriverSources<'a> {
    /// The simulated cloud, in the process or beside it; `None` leaves its driver out. Only its driver needs it.
    #[cfg_attr(not(feature = "simulated"), expect(dead_code, reason = "only the simulated driver needs it"))]
    pub simulated_cloud: Option<&'a SimulatedCloud<'a>>,
    /// Restricts the Secrets of classes.
    pub secrets: &'a SecretPolicy,
    /// Drivers in other processes. They replace built-in ones of the same name.
    #[cfg(feature = "remote")]
    pub remote: &'a [DriverEndpoint],
}

impl DriverSources<'_> {
    /// Opens all drivers, or only that of `provider`.
    ///
    /// # Errors
    /// No driver has the name `provider`, or a driver cannot be opened.
    pub(crate) fn open(&self, provider: Option<&str>, guards: &DriverGuards) -> Result<DriverCatalogue, OpenError> {
        #[cfg(feature = "simulated")]
        let open = self
            .simulated_cloud
            .map(|cloud| move |_: &DriverEnvironment<'_>, _: &Arc<dyn DriverObserver>| simulated::open(cloud()));
        #[cfg(feature = "simulated")]
        let built_in: Vec<BuiltIn<'_>> = open.iter().map(|open| BuiltIn { provider: simulated::NAME, open }).collect();
        let others = ExtraDrivers {
            #[cfg(feature = "simulated")]
            built_in: &built_in,
            #[cfg(not(feature = "simulated"))]
            built_in: &[],
            #[cfg(feature = "remote")]
            remote: self.remote,
        };
        DriverCatalogue::open(others, &DriverEnvironment { secrets: self.secrets }, provider, guards)
    }
}

/// Names of the drivers in this build, and of missing ones.
pub(crate) fn drivers_of_build() -> (Vec<&'static str>, Vec<&'static str>) {
    let (clouds, left_out) = clouds_of_build();
    let others: &[&str] = &[
        #[cfg(feature = "simulated")]
        simulated::NAME,
    ];
    (clouds.into_iter().chain(others.iter().copied()).collect(), left_out)
}

#[cfg(feature = "simulated")]
#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::simulated_cloud::{CloudSimulator, SimulationSettings};

    /// Opens the drivers, with the simulated cloud or without, and describes what a class gets.
    fn served(is_asked_for: bool, provider: Option<&str>) -> Result<String, String> {
        let cloud = || Ok(Arc::new(CloudSimulator::new(0, SimulationSettings::default())) as Arc<dyn CloudApi>);
        let sources = DriverSources {
            simulated_cloud: is_asked_for.then_some(&cloud as &SimulatedCloud<'_>),
            secrets: &SecretPolicy::default(),
            #[cfg(feature = "remote")]
            remote: &[],
        };
        let catalogue = sources.open(None, &DriverGuards::unobserved()).map_err(|error| error.to_string())?;
        let class =
            json!({ "metadata": { "name": "c" }, "provider": provider.unwrap_or_default(), "providerSpec": {} });
        let class = serde_json::from_value(class).map_err(|error| error.to_string())?;
        let driver = catalogue.get(&class);
        driver.map(|driver| driver.name().to_owned()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_simulated_cloud_is_served_only_where_a_flag_asks_for_it() {
        assert_eq!(served(true, Some("simulated")), Ok("simulated".to_owned()));
        for provider in ["simulated", "Simulated"] {
            let refused = served(false, Some(provider)).unwrap_err();
            assert!(refused.contains("does not serve") && refused.contains("--simulated-cloud=embedded"), "{refused}");
        }
    }

    #[test]
    fn a_class_without_a_provider_does_not_get_it_unasked() {
        assert_ne!(served(false, None), Ok("simulated".to_owned()));
    }
}
