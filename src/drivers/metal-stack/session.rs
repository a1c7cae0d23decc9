//! A class with access to its metal-api, and the look-ups of its machines.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use super::{
    calls::{Api, Asked, Seen},
    login::Login,
    names::IDS,
    server::Server,
    spec::{Scope, Spec},
};
use mcm_api::machine::Machine;
use mcm_driver::{
    Code, DriverError,
    cloud::{LookupCoalescer, MachineIdentity, created_for, is_word, known_as},
};

/// The machines that a look-up of several Machines finds.
type Found = Result<Arc<Seen>, DriverError>;

/// A cluster with a login.
pub(super) type Place = (Login, Scope);

/// Look-ups of machines in one place that wait at the same time share a request.
pub(super) type LookUps = LookupCoalescer<Place, Found>;

/// Look-ups that wait for others for `window`.
pub(super) fn look_ups(window: Duration) -> Arc<LookUps> {
    Arc::new(LookupCoalescer::new(window))
}

/// A class with access to its metal-api.
#[derive(Clone)]
pub(super) struct Session {
    pub spec: Spec,
    pub scope: Scope,
    pub login: Login,
    pub api: Api,
    pub look_ups: Arc<LookUps>,
}

impl Session {
    /// Where its machines are looked for.
    pub fn place(&self) -> Place {
        (self.login.clone(), self.scope.clone())
    }

    /// The allocated machines that were created for a Machine without a provider ID.
    pub async fn created_for(&self, wanted: MachineIdentity<'_>) -> Result<Vec<Server>, DriverError> {
        let seen = self.look(&Asked::Name(wanted.name.to_owned())).await?;
        let listed = seen.servers.iter().filter(|server| !server.is_unlisted()).cloned();
        Ok(created_for(listed, wanted, &self.scope))
    }

    /// The allocated machine that the provider ID of a Machine names, if it is of the Machine. `None` also without a provider ID.
    pub async fn known(&self, machine: &Machine) -> Result<Option<Server>, DriverError> {
        let Some(id) = id_of(machine)? else { return Ok(None) };
        Ok(known_as(self.with_id(id).await?, MachineIdentity::from_machine(machine), &self.scope))
    }

    /// The machine with an ID, if it is allocated to the project of the class.
    async fn with_id(&self, id: &str) -> Result<Option<Server>, DriverError> {
        let asked = Asked::Id(id.to_owned());
        let seen = self.look(&asked).await?;
        let is_it = |server: &&Server| server.id == id;
        match seen.servers.iter().find(is_it) {
            Some(found) => Ok(Some(found.clone())),
            // Its tags may have been changed.
            None if seen.is_of_cluster => {
                let seen = self.api.look(&self.scope, &BTreeSet::from([asked.key()])).await?;
                Ok(seen.servers.into_iter().find(|server| server.id == id))
            }
            None => Ok(None),
        }
    }

    async fn look(&self, asked: &Asked) -> Result<Arc<Seen>, DriverError> {
        let (api, scope) = (self.api.clone(), self.scope.clone());
        let send = move |names| async move { api.look(&scope, &names).await.map(Arc::new) };
        self.look_ups.look_up(self.place(), asked.key(), send).await
    }
}

/// The ID of the machine in the provider ID of a Machine, if it has one.
fn id_of(machine: &Machine) -> Result<Option<&str>, DriverError> {
    let Some([id]) = IDS.of_machine(machine)? else { return Ok(None) };
    if !is_word(id) {
        let name = MachineIdentity::from_machine(machine).name;
        let message = format!("machine {name:?} has provider ID {:?}: check its class", machine.spec.provider_id);
        return Err(DriverError::new(Code::InvalidArgument, message));
    }
    Ok(Some(id))
}
