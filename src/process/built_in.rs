//! The drivers of a process: those in this build, and drivers in other processes.

use std::sync::Arc;

#[cfg(feature = "simulated")]
use crate::driver::BuiltIn;
#[cfg(feature = "remote")]
use crate::driver::remote::Endpoint;
#[cfg(feature = "simulated")]
use crate::simulated_cloud::driver as simulated;
use crate::{
    driver::{Catalogue, Environment, Guards, OpenError, Others, SecretPolicy, clouds_of_build},
    simulated_cloud::{CloudApi, InvalidAddress},
};

/// Makes the client of a simulated cloud, or an embedded one.
pub(crate) type SimulatedCloud<'a> = dyn Fn() -> Result<Arc<dyn CloudApi>, InvalidAddress> + Sync + 'a;

/// Where the drivers of a process come from.
pub(crate) struct DriverSources<'a> {
    /// The simulated cloud, in the process or beside it. Only its driver needs it.
    #[cfg_attr(not(feature = "simulated"), expect(dead_code, reason = "only the simulated driver needs it"))]
    pub simulated_cloud: &'a SimulatedCloud<'a>,
    /// Restricts the Secrets of classes.
    pub secrets: &'a SecretPolicy,
    /// Drivers in other processes. They replace built-in ones of the same name.
    #[cfg(feature = "remote")]
    pub remote: &'a [Endpoint],
}

impl DriverSources<'_> {
    /// Opens all drivers, or only the one of `provider`.
    ///
    /// # Errors
    /// There is none of `provider`, or a driver cannot be opened.
    pub(crate) fn open(&self, provider: Option<&str>, guards: &Guards) -> Result<Catalogue, OpenError> {
        let others = Others {
            built_in: &[
                #[cfg(feature = "simulated")]
                BuiltIn { provider: simulated::NAME, open: &|_, _| simulated::open((self.simulated_cloud)()) },
            ],
            #[cfg(feature = "remote")]
            remote: self.remote,
        };
        Catalogue::open(others, &Environment { secrets: self.secrets }, provider, guards)
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
