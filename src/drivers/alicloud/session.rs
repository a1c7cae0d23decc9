//! A class with access to its ECS, and the look-ups of its VMs.

use std::sync::Arc;

use async_trait::async_trait;
use mcm_api::machine::Machine;
use mcm_driver::{
    Code, DriverError, Vm, VmsByProviderId,
    cloud::{CloudSession, CloudVm, LookupCoalescer, MachineIdentity},
};

use super::{
    calls::Api,
    instance::Instance,
    login::Login,
    names::id_of,
    spec::{Scope, Spec},
};

/// The VMs of a class with a login; without a class all of the login.
pub(crate) type ClassPlace = (Login, Option<Scope>);

/// Look-ups in one place that wait at the same time share requests: those by name for each class, those by ID for all.
pub(crate) type InstanceLookups = LookupCoalescer<ClassPlace, Result<Arc<Vec<Instance>>, DriverError>>;

/// A class with access to its ECS.
#[derive(Clone)]
pub(crate) struct Session {
    pub spec: Spec,
    pub scope: Scope,
    pub login: Login,
    pub api: Api,
    pub look_ups: Arc<InstanceLookups>,
}

impl Session {
    /// The VM with an ID, of any class.
    pub async fn instance(&self, id: &str) -> Result<Option<Instance>, DriverError> {
        let api = self.api.clone();
        let send = move |ids| async move { api.with_ids(&ids).await.map(Arc::new) };
        let found = match self.look_ups.look_up((self.login.clone(), None), id.to_owned(), send).await {
            // One ID that ECS refuses must not fail the others.
            Err(error) if error.code == Code::InvalidArgument => {
                Arc::new(self.api.with_ids(&[id.to_owned()].into()).await?)
            }
            found => found?,
        };
        Ok(found.iter().find(|instance| instance.id == id).cloned())
    }
}

#[async_trait]
impl CloudSession for Session {
    type Vm = Instance;
    type Place = ClassPlace;

    fn scope(&self) -> &Scope {
        &self.scope
    }

    fn place(&self) -> ClassPlace {
        (self.login.clone(), Some(self.scope.clone()))
    }

    async fn with_id(&self, machine: &Machine) -> Result<Vec<Instance>, DriverError> {
        let Some(id) = id_of(machine, &self.scope.region)? else { return Ok(Vec::new()) };
        Ok(self.instance(id).await?.into_iter().collect())
    }

    async fn named(&self, machine: &Machine) -> Result<Vec<Instance>, DriverError> {
        let name = MachineIdentity::from_machine(machine).name;
        let (api, scope) = (self.api.clone(), self.scope.clone());
        let send = move |names| async move { api.named(&names, &scope).await.map(Arc::new) };
        let found = self.look_ups.look_up(self.place(), name.to_owned(), send).await?;
        Ok(found.iter().filter(|instance| instance.machine_name() == name).cloned().collect())
    }

    async fn list(&self) -> Result<VmsByProviderId, DriverError> {
        Ok(self.listing(self.api.of_class(&self.scope).await?))
    }

    fn shown(&self, instance: &Instance) -> Vm {
        instance.vm(&self.scope.region)
    }
}
