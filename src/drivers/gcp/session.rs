//! A class with access to its account, and the look-ups of its VMs.

use std::sync::Arc;

use async_trait::async_trait;

use super::{
    accounts::AccountKey,
    calls::Compute,
    instance::Instance,
    names::{IDS, is_project},
    spec::{Scope, Spec},
};
use mcm_api::machine::Machine;
use mcm_driver::{
    DriverError, Vm, VmsByProviderId,
    cloud::{
        CloudSession, CloudVm, LookupCoalescer, MachineIdentity, VmOwnership, is_instance_name, is_word, known_as,
    },
    code::Code,
};

/// Account, project and zone, which look-ups share.
pub(super) type LookUpKey = (AccountKey, String, String);
/// Look-ups of VMs in one zone with one account that wait at the same time.
pub(super) type LookUps = LookupCoalescer<LookUpKey, Result<Arc<Vec<Instance>>, DriverError>>;

/// A class with access to its account.
#[derive(Clone)]
pub(super) struct Session {
    pub spec: Spec,
    pub scope: Scope,
    pub key: AccountKey,
    pub compute: Compute,
    pub look_ups: Arc<LookUps>,
}

impl Session {
    pub fn look_up_key(&self, zone: &str) -> LookUpKey {
        (self.key.clone(), self.compute.project.clone(), zone.to_owned())
    }

    /// The place of the VM of a Machine: that in its provider ID, or that of a creation.
    pub fn place_of<'a>(&'a self, machine: &'a Machine) -> Result<Place<'a>, DriverError> {
        Ok(self.place_of_id(machine)?.unwrap_or_else(|| self.place_of_name(machine)))
    }

    /// The place in the provider ID of a Machine, if it has one.
    fn place_of_id<'a>(&self, machine: &'a Machine) -> Result<Option<Place<'a>>, DriverError> {
        let Some([project, zone, name]) = IDS.of_machine(machine)? else { return Ok(None) };
        if project != self.compute.project || !is_project(project) || !is_word(zone) {
            let message = format!(
                "machine {:?} has provider ID {:?}, and its secret is of project {:?}: check its class",
                MachineIdentity::from_machine(machine).name,
                machine.spec.provider_id,
                self.compute.project
            );
            return Err(DriverError::new(Code::InvalidArgument, message));
        }
        Ok(Some(Place { zone, name }))
    }

    fn place_of_name<'a>(&'a self, machine: &'a Machine) -> Place<'a> {
        Place { zone: &self.scope.zone, name: MachineIdentity::from_machine(machine).name }
    }

    /// The VM at a place, whoever made it. Names are unique in the zone of a project.
    async fn at(&self, place: &Place<'_>) -> Result<Vec<Instance>, DriverError> {
        if !is_instance_name(place.name) {
            return Ok(Vec::new());
        }
        let (compute, zone) = (self.compute.clone(), place.zone.to_owned());
        let look_up = move |names| async move { compute.named(&zone, &names).await.map(Arc::new) };
        let all = self.look_ups.look_up(self.look_up_key(place.zone), place.name.to_owned(), look_up).await?;
        Ok(all.iter().filter(|instance| instance.name == place.name).cloned().collect())
    }

    /// The VM with the name of a Machine, which was created for it.
    ///
    /// # Errors
    /// [`Code::AlreadyExists`]: another VM has the name.
    pub async fn created_or_free(&self, machine: &Machine) -> Result<Option<Instance>, DriverError> {
        let (wanted, found) = (MachineIdentity::from_machine(machine), self.named(machine).await?.pop());
        if found.as_ref().is_none_or(|instance| instance.is_of(wanted, &self.scope)) {
            return Ok(found);
        }
        let name = wanted.name;
        let message =
            format!("VM {name} exists, but is not of this machine: delete it, or let the machine be replaced");
        Err(DriverError::new(Code::AlreadyExists, message))
    }
}

#[async_trait]
impl CloudSession for Session {
    type Vm = Instance;
    type Place = LookUpKey;

    fn scope(&self) -> &Scope {
        &self.scope
    }

    fn place(&self) -> LookUpKey {
        self.look_up_key(&self.scope.zone)
    }

    async fn with_id(&self, machine: &Machine) -> Result<Vec<Instance>, DriverError> {
        match self.place_of_id(machine)? {
            Some(place) => self.at(&place).await,
            None => Ok(Vec::new()),
        }
    }

    async fn named(&self, machine: &Machine) -> Result<Vec<Instance>, DriverError> {
        self.at(&self.place_of_name(machine)).await
    }

    /// All of the zone: filters of tags are not documented, and an orphan that is missed costs money.
    async fn list(&self) -> Result<VmsByProviderId, DriverError> {
        Ok(self.listing(self.compute.instances(&self.scope.zone, None).await?))
    }

    fn shown(&self, instance: &Instance) -> Vm {
        instance.vm(&self.compute.project)
    }

    /// The ID of a VM consists of its name, which a later VM may have. So a VM that lost its tags is identified by its UID.
    async fn known(&self, machine: &Machine) -> Result<Option<Instance>, DriverError> {
        let (wanted, found) = (MachineIdentity::from_machine(machine), self.with_id(machine).await?.pop());
        let has_uid = |instance: &Instance| !wanted.uid.is_empty() && instance.machine_uid() == Some(wanted.uid);
        let is_marked = |instance: &Instance| instance.belonging(&self.scope) != VmOwnership::Unmarked;
        Ok(known_as(found.filter(|instance| is_marked(instance) || has_uid(instance)), wanted, &self.scope))
    }
}

/// Where the VM of a Machine is.
pub(super) struct Place<'a> {
    pub zone: &'a str,
    pub name: &'a str,
}
