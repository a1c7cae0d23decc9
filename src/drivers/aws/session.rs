//! A class with access to its account, and the look-ups of its VMs.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use async_trait::async_trait;

use super::{
    accounts::AccountKey,
    calls::Ec2,
    instance::Instance,
    names::{IDS, NAME_TAG, UID_TAG, tags_of},
    secrets_manager::Stored,
    spec::{Scope, Spec},
    user_data::{UserData, secret_of},
};
use mcm_api::machine::Machine;
use mcm_driver::{
    DriverError, MachineRequest, SecretData, Vm, VmsByProviderId,
    cloud::{CloudSession, CloudVm, LookupCoalescer, MachineIdentity, known_as},
    code::Code,
};

/// The VMs that a look-up of several Machines finds.
type SharedInstances = Result<Arc<Vec<Instance>>, DriverError>;

/// Look-ups that wait at the same time.
pub(super) struct Ec2Lookups {
    /// Of Machines of one class and account.
    by_name: LookupCoalescer<(AccountKey, Scope), SharedInstances>,
    /// Of VMs that no look-up by name shows: their tags were changed, or EC2 has forgotten them.
    by_id: LookupCoalescer<AccountKey, SharedInstances>,
}

impl Ec2Lookups {
    pub(super) fn new(window: Duration) -> Self {
        Self { by_name: LookupCoalescer::new(window), by_id: LookupCoalescer::new(window) }
    }
}

/// A class with access to its account.
#[derive(Clone)]
pub(super) struct Session {
    pub spec: Spec,
    pub scope: Scope,
    pub key: AccountKey,
    pub ec2: Ec2,
    pub look_ups: Arc<Ec2Lookups>,
}

impl Session {
    /// User data for the machine with a UID.
    pub fn user_data<'a>(&self, secret: &'a SecretData, uid: &str) -> Result<UserData<'a>, DriverError> {
        UserData::from_secret(&self.spec, self.key.endpoint.as_deref(), uid, secret)
    }

    /// Stores the user data that the VM of a machine will fetch, if there are any.
    pub async fn store(&self, user_data: &UserData<'_>, request: &MachineRequest) -> Result<(), DriverError> {
        let Some(value) = &user_data.stored else { return Ok(()) };
        let MachineIdentity { name, uid } = MachineIdentity::from_machine(&request.machine);
        let mut tags = tags_of(&self.spec.tags, name, Some((uid, &request.owner)));
        if !tags.contains_key(UID_TAG) {
            // The UID identifies the Machine of the secret, and the name of the secret contains it as well.
            tags.remove(NAME_TAG);
            tags.insert(UID_TAG, uid);
        }
        let stored = Stored { name: &secret_of(uid), uid, tags: &tags };
        self.ec2.account.secrets_manager.store(stored, value, &request.secret).await
    }

    /// Deletes the user data of a machine, and of the machines that VMs were created for, from their store.
    pub async fn forget_user_data(&self, uid: &str, instances: &[Instance]) -> Result<(), DriverError> {
        if !self.spec.has_user_data_store {
            return Ok(());
        }
        let of_vms = instances.iter().filter_map(CloudVm::machine_uid);
        let uids: BTreeSet<&str> = of_vms.chain([uid]).filter(|uid| !uid.is_empty()).collect();
        for uid in uids {
            self.ec2.account.secrets_manager.delete(&secret_of(uid), &self.ec2.secret).await?;
        }
        Ok(())
    }

    /// The ID in the provider ID of a Machine, if it has one.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: it is not of the region of the class, where EC2 would not show the VM.
    fn id_of<'a>(&self, machine: &'a Machine) -> Result<Option<&'a str>, DriverError> {
        let Some([place, id]) = IDS.of_machine(machine)? else { return Ok(None) };
        if is_in_region(place, &self.scope.region) {
            return Ok(Some(id));
        }
        let (name, region) = (MachineIdentity::from_machine(machine).name, &self.scope.region);
        let message =
            format!("machine {name:?} has VM {id} in {place}, and its class is for region {region}: check the class");
        Err(DriverError::new(Code::InvalidArgument, message))
    }

    /// The VMs of a Machine, also terminated ones, and the ID in its provider ID if EC2 shows no VM with it.
    pub async fn shown_or_unseen<'a>(
        &self,
        machine: &'a Machine,
    ) -> Result<(Vec<Instance>, Option<&'a str>), DriverError> {
        let Some(id) = self.id_of(machine)? else { return Ok((self.created_for(machine).await?, None)) };
        let shown = self.with_id(machine).await?;
        let unseen = shown.is_empty().then_some(id);
        let known = |instance| known_as(Some(instance), MachineIdentity::from_machine(machine), &self.scope);
        Ok((shown.into_iter().filter_map(known).collect(), unseen))
    }
}

#[async_trait]
impl CloudSession for Session {
    type Vm = Instance;
    type Place = (AccountKey, Scope);

    fn scope(&self) -> &Scope {
        &self.scope
    }

    fn place(&self) -> (AccountKey, Scope) {
        (self.key.clone(), self.scope.clone())
    }

    /// Also a terminated VM. A look-up by name serves all Machines of the class.
    async fn with_id(&self, machine: &Machine) -> Result<Vec<Instance>, DriverError> {
        let Some(id) = self.id_of(machine)? else { return Ok(Vec::new()) };
        let mut found = self.named(machine).await?;
        found.retain(|instance| instance.id == id);
        if !found.is_empty() {
            return Ok(found);
        }
        let ec2 = self.ec2.clone();
        let look_up = move |ids| async move { ec2.with_ids(&ids).await.map(Arc::new) };
        let all = self.look_ups.by_id.look_up(self.key.clone(), id.to_owned(), look_up).await?;
        Ok(all.iter().filter(|instance| instance.id == id).cloned().collect())
    }

    /// Also terminated VMs.
    async fn named(&self, machine: &Machine) -> Result<Vec<Instance>, DriverError> {
        let name = MachineIdentity::from_machine(machine).name;
        let (ec2, scope) = (self.ec2.clone(), self.scope.clone());
        let look_up = move |names| async move { ec2.named(&scope, &names).await.map(Arc::new) };
        let all = self.look_ups.by_name.look_up(self.place(), name.to_owned(), look_up).await?;
        Ok(all.iter().filter(|instance| instance.machine_name() == name).cloned().collect())
    }

    async fn list(&self) -> Result<VmsByProviderId, DriverError> {
        Ok(self.listing(self.ec2.alive(&self.scope).await?))
    }

    fn shown(&self, instance: &Instance) -> Vm {
        instance.vm(&self.scope.region)
    }
}

/// A part of a provider ID is a region or one of its zones, also a local one such as `us-west-2-lax-1a`.
fn is_in_region(place: &str, region: &str) -> bool {
    place.strip_prefix(region).is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
}
