//! The driver: what the controllers know of the simulated cloud.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::PersistentVolumeSpec;

use super::{
    Cloud,
    client::{Client, InvalidAddress},
    messages::{CreateVm, Failure, PROVIDER_ID_PREFIX, Selector, VmList, VmView},
    spec::ProviderSpec,
};
use crate::{
    api::machine::MachineClass,
    driver::{Capabilities, Code, Driver, DriverError, MachineRequest, SecretData, Vm},
};

/// Name in `MachineClass.provider`.
pub const NAME: &str = "simulated";

/// The driver of a simulated cloud, in this process or in another.
#[derive(Debug)]
pub struct SimulatedDriver {
    cloud: Backend,
    /// The cluster of all VMs, if it is not the namespace.
    cluster: Option<String>,
}

#[derive(Debug)]
enum Backend {
    Embedded(Arc<Cloud>),
    Remote(Client),
}

impl SimulatedDriver {
    /// The driver of a cloud in this process.
    pub fn embedded(cloud: Arc<Cloud>) -> Self {
        Self { cloud: Backend::Embedded(cloud), cluster: None }
    }

    /// The driver of the cloud that serves at `http://host:port`, which need not be there yet.
    ///
    /// # Errors
    /// When that is not an address.
    pub fn remote(address: &str) -> Result<Self, InvalidAddress> {
        Ok(Self { cloud: Backend::Remote(Client::new(address)?), cluster: None })
    }

    /// Tags all VMs with `cluster`, and sees only those, instead of going by the namespace.
    #[must_use]
    pub fn with_cluster(self, cluster: impl Into<String>) -> Self {
        Self { cluster: Some(cluster.into()), ..self }
    }

    fn cluster(&self, namespace: &str) -> String {
        self.cluster.clone().unwrap_or_else(|| namespace.to_owned())
    }

    fn selector(&self, request: &MachineRequest) -> Result<Selector, DriverError> {
        let machine = request.machine.metadata.name.clone().unwrap_or_default();
        let provider_id = Some(request.machine.spec.provider_id.clone()).filter(|id| !id.is_empty());
        if let Some(foreign) = provider_id.as_ref().filter(|id| !id.starts_with(PROVIDER_ID_PREFIX)) {
            let message = format!(
                "machine {machine:?} has provider ID {foreign:?}, which is none of driver {NAME}: check its class"
            );
            return Err(DriverError::new(Code::InvalidArgument, message));
        }
        let cluster = Some(self.cluster(&namespace_of(request)));
        Ok(Selector { cluster, machine: Some(machine), provider_id })
    }
}

#[async_trait]
impl Driver for SimulatedDriver {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { initialize: true, list: true }
    }

    fn validate(&self, class: &MachineClass) -> Result<(), DriverError> {
        if !class.provider.is_empty() && !class.provider.trim().eq_ignore_ascii_case(NAME) {
            let message = format!("provider is {:?}, but this is driver {NAME}", class.provider);
            return Err(DriverError::new(Code::InvalidArgument, message));
        }
        spec_of(class).map(drop)
    }

    async fn create(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        self.validate(&request.class)?;
        let namespace = namespace_of(request);
        let create = CreateVm {
            machine_name: request.machine.metadata.name.clone().unwrap_or_default(),
            cluster: Some(self.cluster(&namespace)),
            namespace,
            token: request.machine.metadata.uid.clone().unwrap_or_default(),
            user_data_bytes: request.secret.0.get("userData").map_or(0, Vec::len),
            provider_spec: request.class.provider_spec.clone(),
        };
        if create.token.is_empty() {
            // Without it a repeated call would make a second VM.
            let message = format!("machine {:?} has no UID: it is not from an API server", create.machine_name);
            return Err(DriverError::new(Code::InvalidArgument, message));
        }
        Ok(self.cloud.create(&create).await?.into())
    }

    /// [`Code::Unimplemented`] if the class does not ask for initialization.
    async fn initialize(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        if !spec_of(&request.class)?.initialize {
            let message = "the class does not ask for initialization";
            return Err(DriverError::new(Code::Unimplemented, message));
        }
        let id = match request.machine.spec.provider_id.rsplit('/').next() {
            Some(id) if !id.is_empty() => id.to_owned(),
            _ => self.id_of(&self.selector(request)?).await?,
        };
        Ok(self.cloud.initialize(&id).await?.into())
    }

    async fn delete(&self, request: &MachineRequest) -> Result<Option<String>, DriverError> {
        self.cloud.delete(&self.selector(request)?).await?;
        Ok(None)
    }

    async fn status(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        Ok(self.cloud.status(&self.selector(request)?).await?.into())
    }

    /// Every VM of the cluster, which the classes of a namespace share.
    async fn list(&self, class: &MachineClass, _: &SecretData) -> Result<BTreeMap<String, String>, DriverError> {
        let namespace = class.metadata.namespace.as_deref().unwrap_or_default();
        let list = self.cloud.list(&self.cluster(namespace)).await?;
        Ok(list.items.into_iter().map(|vm| (vm.provider_id, vm.machine_name)).collect())
    }

    async fn volume_ids(&self, specs: &[PersistentVolumeSpec]) -> Result<Vec<String>, DriverError> {
        let handle = |spec: &PersistentVolumeSpec| spec.csi.as_ref().map(|csi| csi.volume_handle.clone());
        Ok(specs.iter().filter_map(handle).filter(|handle| !handle.is_empty()).collect())
    }
}

impl SimulatedDriver {
    /// ID of a VM that exists, initialized or not.
    async fn id_of(&self, selector: &Selector) -> Result<String, DriverError> {
        match self.cloud.status(selector).await {
            Ok(vm) => Ok(vm.id),
            Err(Failure { code: Code::Uninitialized, vm: Some(vm), .. }) => Ok(vm.id),
            Err(failure) => Err(failure.into()),
        }
    }
}

impl Backend {
    async fn create(&self, request: &CreateVm) -> Result<VmView, Failure> {
        match self {
            Self::Embedded(cloud) => cloud.create(request).await,
            Self::Remote(client) => client.create(request).await,
        }
    }

    async fn status(&self, selector: &Selector) -> Result<VmView, Failure> {
        match self {
            Self::Embedded(cloud) => cloud.status(selector).await,
            Self::Remote(client) => client.status(selector).await,
        }
    }

    async fn list(&self, cluster: &str) -> Result<VmList, Failure> {
        match self {
            Self::Embedded(cloud) => cloud.list(Some(cluster)).await,
            Self::Remote(client) => client.list(cluster).await,
        }
    }

    async fn initialize(&self, id: &str) -> Result<VmView, Failure> {
        match self {
            Self::Embedded(cloud) => cloud.initialize(id).await,
            Self::Remote(client) => client.initialize(id).await,
        }
    }

    async fn delete(&self, selector: &Selector) -> Result<(), Failure> {
        match self {
            Self::Embedded(cloud) => cloud.delete(selector).await,
            Self::Remote(client) => client.delete(selector).await,
        }
    }
}

fn namespace_of(request: &MachineRequest) -> String {
    request.machine.metadata.namespace.clone().unwrap_or_default()
}

fn spec_of(class: &MachineClass) -> Result<ProviderSpec, DriverError> {
    ProviderSpec::parse(&class.provider_spec)
        .map_err(|error| DriverError::new(Code::InvalidArgument, error.to_string()))
}
