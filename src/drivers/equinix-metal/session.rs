//! A class with access to its API, and the look-ups of its devices.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use mcm_api::machine::Machine;
use mcm_driver::{
    DriverError,
    cloud::{LookupCoalescer, MachineIdentity, created_for, known_as},
};

use crate::{
    calls::{Api, Asked, Seen},
    device::Device,
    login::Login,
    names::device_of,
    spec::{Scope, Spec},
};

/// The devices that a look-up of several Machines finds.
type Found = Result<Arc<Seen>, DriverError>;

/// A project with a login.
pub(crate) type Place = (Login, String);
/// Look-ups of devices in one place that wait at the same time share a request.
pub(crate) type LookUps = LookupCoalescer<Place, Found>;

/// Look-ups that wait for others for `window`.
pub(crate) fn look_ups(window: Duration) -> Arc<LookUps> {
    Arc::new(LookupCoalescer::new(window))
}

/// A class with access to its API.
#[derive(Clone)]
pub(crate) struct Session {
    pub spec: Spec,
    pub scope: Scope,
    pub login: Login,
    pub api: Api,
    pub look_ups: Arc<LookUps>,
}

impl Session {
    /// Where its devices are looked for.
    pub fn place(&self) -> Place {
        (self.login.clone(), self.scope.project.clone())
    }

    /// The devices that were created for a Machine without a provider ID, also those that are leaving.
    pub async fn created_for(&self, wanted: MachineIdentity<'_>) -> Result<Vec<Device>, DriverError> {
        let of_machine = |seen: &Seen| created_for(seen.devices.iter().cloned(), wanted, &self.scope);
        self.look(&Asked::Name(wanted.name.to_owned()), of_machine).await
    }

    /// The device that the provider ID of a Machine names, if it is of the class; it may be leaving. `None` also without a provider
    /// ID.
    pub async fn known(&self, machine: &Machine) -> Result<Option<Device>, DriverError> {
        let Some(id) = device_of(machine)? else { return Ok(None) };
        let with_id = |seen: &Seen| seen.devices.iter().filter(|device| device.id == id).cloned().collect();
        let found = self.look(&Asked::Id(id.to_owned()), with_id).await?;
        Ok(known_as(found.into_iter().next(), MachineIdentity::from_machine(machine), &self.scope))
    }

    /// The devices that `choose` takes from a look-up. A device that a list of several pages does not contain is looked up alone.
    async fn look(&self, asked: &Asked, choose: impl Fn(&Seen) -> Vec<Device>) -> Result<Vec<Device>, DriverError> {
        let (api, project) = (self.api.clone(), self.scope.project.clone());
        let send = move |asked| async move { api.look(&project, &asked).await.map(Arc::new) };
        let seen = self.look_ups.look_up(self.place(), asked.key(), send).await?;
        let chosen = choose(&seen);
        if !chosen.is_empty() || !seen.is_paged {
            return Ok(chosen);
        }
        let asked = BTreeSet::from([asked.key()]);
        Ok(choose(&self.api.look(&self.scope.project, &asked).await?))
    }
}
