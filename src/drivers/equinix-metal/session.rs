//! A class with access to its API, and the look-ups of its devices.

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;
use mcm_api::machine::Machine;
use mcm_driver::{
    DriverError, Vm, VmsByProviderId,
    cloud::{CloudSession, MachineIdentity, VmLookups, VmQuery, created_for},
};

use crate::{
    calls::{Api, FoundDevices},
    device::Device,
    login::Login,
    names::device_of,
    spec::{Scope, Spec},
};

/// A project with a login.
pub(crate) type DevicePlace = (Login, String);

/// A class with access to its API.
#[derive(Clone)]
pub(crate) struct Session {
    pub spec: Spec,
    pub scope: Scope,
    pub login: Login,
    pub api: Api,
    pub look_ups: Arc<VmLookups<DevicePlace, FoundDevices>>,
}

impl Session {
    /// The devices that `choose` takes from a look-up. A device that a list of several pages does not contain, and a known one that the
    /// list for several look-ups lacks, is looked up alone.
    async fn look(
        &self,
        asked: VmQuery,
        choose: impl Fn(&FoundDevices) -> Vec<Device> + Send,
    ) -> Result<Vec<Device>, DriverError> {
        let (api, project) = (self.api.clone(), self.scope.project.clone());
        let send = move |asked| async move { api.look(&project, &asked).await.map(Arc::new) };
        let found = self.look_ups.look_up(self.place(), asked.clone(), send).await?;
        let chosen = choose(&found);
        let may_lack_it = found.is_paged || found.is_shared && matches!(asked, VmQuery::Id(_));
        if !chosen.is_empty() || !may_lack_it {
            return Ok(chosen);
        }
        Ok(choose(&self.api.look(&self.scope.project, &BTreeSet::from([asked])).await?))
    }
}

#[async_trait]
impl CloudSession for Session {
    type Vm = Device;
    type Place = DevicePlace;

    fn scope(&self) -> &Scope {
        &self.scope
    }

    fn place(&self) -> DevicePlace {
        (self.login.clone(), self.scope.project.clone())
    }

    async fn with_id(&self, machine: &Machine) -> Result<Vec<Device>, DriverError> {
        let Some(id) = device_of(machine)? else { return Ok(Vec::new()) };
        let with_id = |found: &FoundDevices| found.devices.iter().filter(|device| device.id == id).cloned().collect();
        self.look(VmQuery::Id(id.to_owned()), with_id).await
    }

    /// The devices of the class with the name of a Machine: a list of several pages that lacks them is not enough.
    async fn named(&self, machine: &Machine) -> Result<Vec<Device>, DriverError> {
        let wanted = MachineIdentity::from_machine(machine);
        let of_machine = |found: &FoundDevices| created_for(found.devices.iter().cloned(), wanted, &self.scope);
        self.look(VmQuery::Name(wanted.name.to_owned()), of_machine).await
    }

    async fn list(&self) -> Result<VmsByProviderId, DriverError> {
        Ok(self.listing(self.api.of_project(&self.scope.project).await?))
    }

    fn shown(&self, device: &Device) -> Vm {
        device.vm()
    }
}
