//! A class with access to its ECS, and the look-ups of its VMs.

use std::{sync::Arc, time::Duration};

use mcm_api::machine::Machine;
use mcm_driver::{
    Code, DriverError,
    cloud::{CloudVm, LookupCoalescer, MachineIdentity, created_for, known_as},
};

use super::{
    calls::Api,
    instance::Instance,
    login::Login,
    names::id_of,
    spec::{Scope, Spec},
};

/// The VMs that a look-up of several Machines finds.
type Found = Result<Arc<Vec<Instance>>, DriverError>;

/// The VMs of a class with a login; without a class all of the login.
pub(crate) type Place = (Login, Option<Scope>);

/// Look-ups in one place that wait at the same time share requests: those by name for each class, those by ID for all.
pub(crate) type LookUps = LookupCoalescer<Place, Found>;

/// Look-ups that wait for others for `window`.
pub(crate) fn look_ups(window: Duration) -> Arc<LookUps> {
    Arc::new(LookupCoalescer::new(window))
}

/// A class with access to its ECS.
#[derive(Clone)]
pub(crate) struct Session {
    pub spec: Spec,
    pub scope: Scope,
    pub login: Login,
    pub api: Api,
    pub look_ups: Arc<LookUps>,
}

impl Session {
    /// Where its VMs are looked for.
    pub fn place(&self) -> Place {
        (self.login.clone(), Some(self.scope.clone()))
    }

    /// The VMs of a Machine: the VM with its provider ID or, without an ID, all that were created for it.
    pub async fn find(&self, machine: &Machine) -> Result<Vec<Instance>, DriverError> {
        let wanted = MachineIdentity::from_machine(machine);
        match id_of(machine, &self.scope.region)? {
            Some(id) => Ok(known_as(self.with_id(id).await?, wanted, &self.scope).into_iter().collect()),
            None => self.created_for(wanted).await,
        }
    }

    /// The VMs that were created for a Machine.
    pub async fn created_for(&self, wanted: MachineIdentity<'_>) -> Result<Vec<Instance>, DriverError> {
        let (api, scope) = (self.api.clone(), self.scope.clone());
        let send = move |names| async move { api.named(&names, &scope).await.map(Arc::new) };
        let found = self.look_ups.look_up(self.place(), wanted.name.to_owned(), send).await?;
        let named = found.iter().filter(|instance| instance.machine_name() == wanted.name);
        Ok(created_for(named.cloned(), wanted, &self.scope))
    }

    /// The VM with an ID, of any class.
    pub async fn with_id(&self, id: &str) -> Result<Option<Instance>, DriverError> {
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
