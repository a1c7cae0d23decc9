//! Clouds that a command reads with the drivers of this process.

use std::sync::Arc;

#[cfg(feature = "remote")]
use anyhow::bail;
use anyhow::{Result, anyhow};
use async_trait::async_trait;
use kube::ResourceExt;

use crate::{
    api::machine::MachineClass,
    cli::flags::DriverOptions,
    process::{DriverSources, SimulatedPlace},
    simulated_cloud::{
        CloudApi, CloudCallError, CreateVm, ListedVms, SimulatedCloudClient, TagRequest, VmSelector, VmView,
    },
};
use mcm_controllers::machine;
use mcm_driver::{Code, DriverGuards, VmsByProviderId};
use mcm_driver_host::DriverCatalogue;
use mcm_runtime::{objects::chain, secrets::SecretCache};

/// The drivers that flags choose.
///
/// # Errors
/// The provider is not built in, or an address cannot be used.
pub(in crate::cli) fn open_drivers(options: &DriverOptions) -> Result<DriverCatalogue> {
    let simulated_cloud = || {
        Ok(match &options.simulated_cloud {
            Some(SimulatedPlace::Url(address)) => Arc::new(SimulatedCloudClient::new(address)?) as Arc<dyn CloudApi>,
            // One that is embedded is in the process of a manager.
            Some(SimulatedPlace::Embedded) | None => Arc::new(UnnamedCloud),
        })
    };
    #[cfg(feature = "remote")]
    let remote = options.remote.endpoints();
    #[cfg(feature = "remote")]
    if let Some(exposed) = remote.iter().find(|one| one.address.is_exposed() && !options.remote.driver_insecure) {
        bail!("credentials would be sent unencrypted to {}: use https://, or --driver-insecure", exposed.address);
    }
    let sources = DriverSources {
        simulated_cloud: Some(&simulated_cloud),
        secrets: &options.secrets.policy(),
        #[cfg(feature = "remote")]
        remote: &remote,
    };
    Ok(sources.open(options.provider.as_deref(), &DriverGuards::unobserved())?)
}

/// A simulated cloud whose address the call does not have. An empty one would prove that no VM exists.
#[derive(Debug)]
struct UnnamedCloud;

impl UnnamedCloud {
    fn refuse<T>() -> Result<T, CloudCallError> {
        let message = "the address of the simulated cloud is not given: pass --simulated-cloud=URL";
        Err(CloudCallError::new(Code::FailedPrecondition, message))
    }
}

#[async_trait]
impl CloudApi for UnnamedCloud {
    async fn create(&self, _: &CreateVm) -> Result<VmView, CloudCallError> {
        Self::refuse()
    }

    async fn initialize(&self, _: &str) -> Result<VmView, CloudCallError> {
        Self::refuse()
    }

    async fn tag(&self, _: &str, _: &TagRequest) -> Result<VmView, CloudCallError> {
        Self::refuse()
    }

    async fn delete(&self, _: &VmSelector) -> Result<(), CloudCallError> {
        Self::refuse()
    }

    async fn status(&self, _: &VmSelector) -> Result<VmView, CloudCallError> {
        Self::refuse()
    }

    async fn list(&self, _: &str) -> Result<ListedVms, CloudCallError> {
        Self::refuse()
    }

    async fn set_member(&self, _: &str, _: &str, _: bool) -> Result<(), CloudCallError> {
        Self::refuse()
    }
}

/// The VMs of a class, as its driver lists them with the credentials in its Secrets.
///
/// # Errors
/// This build has no driver for it, a Secret cannot be used, or the cloud does not answer.
pub(in crate::cli) async fn vms_of_class(
    drivers: &DriverCatalogue,
    class: &Arc<MachineClass>,
    secrets: &SecretCache,
) -> Result<VmsByProviderId> {
    let name = class.name_any();
    let driver = drivers.get(class)?;
    let merged = machine::secrets_of_class(class, secrets).await;
    let merged = merged.map_err(|error| anyhow!("the Secrets of class {name}: {}", chain(&error)))?;
    let secret = merged.complete().map_err(|missing| anyhow!("class {name} lacks {missing}"))?;
    let vms = driver.list(class, &secret).await;
    vms.map_err(|error| anyhow!("list the VMs of class {name}: {error}"))
}
