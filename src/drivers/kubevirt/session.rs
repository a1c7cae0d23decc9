//! A class with access to its API server, and the look-ups of its VMs.

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;
use mcm_api::machine::Machine;
use mcm_driver::{
    Code, DriverError, Vm, VmsByProviderId,
    cloud::{CloudFailure, CloudSession, CloudVm, LookupCoalescer, MachineIdentity, VmOwnership, created_for},
};
use serde_json::Value;

use super::{
    calls::{Api, FoundVms},
    login::Login,
    markers::Scope,
    names::{UID_LABEL, is_vm_name, secret_of, vm_of},
    order::ownership,
    spec::Spec,
    vm::VirtualMachine,
};

/// A cluster with a login.
type ClusterPlace = (Login, Scope);

/// Look-ups of VMs of one cluster with one login that wait at the same time share a request.
pub(crate) type VmsByName = LookupCoalescer<ClusterPlace, Result<Arc<FoundVms>, DriverError>>;

/// A class with access to its API server.
#[derive(Clone)]
pub(crate) struct Session {
    pub spec: Spec,
    pub scope: Scope,
    pub login: Login,
    pub api: Api,
    pub look_ups: Arc<VmsByName>,
}

impl Session {
    /// The VM with a name, whoever made it. Of other clusters it is not always shown.
    pub async fn at(&self, name: &str) -> Result<Option<VirtualMachine>, DriverError> {
        // The API server has no object of such a name.
        if !is_vm_name(name) {
            return Ok(None);
        }
        Ok(named(&*self.look(name).await?, name))
    }

    /// The VM with a name, if it is there. This includes a VM that lost its labels.
    async fn with_name(&self, name: &str) -> Result<Option<VirtualMachine>, DriverError> {
        let seen = self.look(name).await?;
        match named(&seen, name) {
            None if seen.is_of_cluster => self.api.vm(name).await,
            found => Ok(found),
        }
    }

    /// A VM still exists. A deleted VM keeps its labels to the end.
    pub async fn is_there(&self, vm: &VirtualMachine) -> Result<bool, DriverError> {
        let name = &vm.metadata.name;
        let found = match vm.belonging(&self.scope) {
            VmOwnership::Ours => named(&*self.look(name).await?, name),
            VmOwnership::Unmarked | VmOwnership::Foreign => self.api.vm(name).await?,
        };
        Ok(found.is_some_and(|found| found.metadata.uid == vm.metadata.uid))
    }

    /// A VM, if it was created for a Machine.
    pub fn of_machine(&self, vm: VirtualMachine, wanted: MachineIdentity<'_>) -> Option<VirtualMachine> {
        created_for(Some(vm).filter(|vm| vm.is_listed(&self.scope)), wanted, &self.scope).pop()
    }

    /// The VM that has the name of a Machine which is to be created.
    ///
    /// # Errors
    /// [`Code::AlreadyExists`]: it is of another Machine, or unmarked. [`Code::Unavailable`]: it is being deleted.
    pub fn taken(&self, vm: VirtualMachine, wanted: MachineIdentity<'_>) -> Result<VirtualMachine, DriverError> {
        let name = wanted.name;
        if vm.is_terminating() {
            return Err(DriverError::new(
                Code::Unavailable,
                format!("VM {name} is being deleted: it is created after that"),
            ));
        }
        self.of_machine(vm, wanted).ok_or_else(|| {
            let message =
                format!("VM {name} exists, but is not of this machine: delete it, or let the machine be replaced");
            DriverError::new(Code::AlreadyExists, message)
        })
    }

    /// Creates a VM. If there is one of its name, a request before this one may have created it.
    pub async fn create(&self, vm: &Value, wanted: MachineIdentity<'_>) -> Result<VirtualMachine, CloudFailure> {
        let created = match self.api.create_vm(vm).await {
            Err(failure) if failure.code() == Code::AlreadyExists => {
                let found = self.api.vm_or_failure(wanted.name).await?;
                let found = found.ok_or_else(|| CloudFailure::Broken("it was deleted meanwhile".to_owned()))?;
                self.taken(found, wanted).map_err(|error| CloudFailure::Named {
                    code: error.code,
                    name: error.code.to_string(),
                    message: error.message,
                })?
            }
            created => created?,
        };
        self.own_secret(&created, wanted).await;
        Ok(created)
    }

    /// Makes a VM the owner of its Secret. If that fails, the deletion of the VM deletes the Secret.
    async fn own_secret(&self, vm: &VirtualMachine, wanted: MachineIdentity<'_>) {
        let name = secret_of(wanted.name, wanted.uid);
        let patch = ownership(&vm.metadata.name, &vm.metadata.uid);
        if let Err(failure) = self.api.patch_secret(&name, &patch).await {
            let error =
                self.api.error(&failure, &format!("change of the owner of Secret {}/{name}", self.api.namespace));
            tracing::warn!(vm = vm.metadata.name, error = error.message, "Secret is not owned by its VM");
        }
    }

    /// Deletes the Secret of a Machine, unless it is deleted with its owner.
    pub async fn delete_secret(&self, vm: &str, uid: &str) -> Result<(), DriverError> {
        let name = secret_of(vm, uid);
        let deleted = async {
            let Some(secret) = self.api.secret(&name).await? else { return Ok(()) };
            let labels = &secret.metadata.labels;
            let is_ours = self.scope.is_of_cluster(labels)
                && self.scope.is_of_role(labels)
                && labels.get(UID_LABEL).is_some_and(|other| other == uid);
            if is_ours && secret.metadata.owner_references.is_empty() {
                self.api.delete_secret(&secret).await
            } else {
                Ok(())
            }
        };
        match deleted.await {
            // The reference needs neither permission.
            Err(error) if error.code == Code::PermissionDenied => {
                tracing::warn!(secret = name, error = error.message, "Secret with user data may be left");
                Ok(())
            }
            done => done,
        }
    }

    async fn look(&self, name: &str) -> Result<Arc<FoundVms>, DriverError> {
        let (api, scope) = (self.api.clone(), self.scope.clone());
        let send = move |names: BTreeSet<String>| async move { api.look(&scope, &names).await.map(Arc::new) };
        self.look_ups.look_up(self.place(), name.to_owned(), send).await
    }
}

#[async_trait]
impl CloudSession for Session {
    type Vm = VirtualMachine;
    type Place = ClusterPlace;

    fn scope(&self) -> &Scope {
        &self.scope
    }

    fn place(&self) -> ClusterPlace {
        (self.login.clone(), self.scope.clone())
    }

    async fn with_id(&self, machine: &Machine) -> Result<Vec<VirtualMachine>, DriverError> {
        let Some(name) = vm_of(machine)? else { return Ok(Vec::new()) };
        Ok(self.with_name(name).await?.into_iter().collect())
    }

    async fn named(&self, machine: &Machine) -> Result<Vec<VirtualMachine>, DriverError> {
        Ok(self.at(MachineIdentity::from_machine(machine).name).await?.into_iter().collect())
    }

    async fn list(&self) -> Result<VmsByProviderId, DriverError> {
        Ok(self.listing(self.api.of_cluster(&self.scope).await?))
    }

    fn shown(&self, vm: &VirtualMachine) -> Vm {
        vm.vm(&self.spec.zone)
    }
}

fn named(seen: &FoundVms, name: &str) -> Option<VirtualMachine> {
    seen.vms.iter().find(|vm| vm.metadata.name == name).cloned()
}
