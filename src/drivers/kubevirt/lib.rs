//! The driver of KubeVirt: VMs are objects of an API server, found by the name of their Machine.
//!
//! `providerSpec` and Secret are those of Gardener's driver. `docs/conformance-kubevirt.md` compares the two.
//!
//! Two facts of Kubernetes shape it. The API server lets one object have a name, so a request that is repeated creates no second
//! VM. And it accepts a VM long before KubeVirt starts it, so a creation lasts until the VM runs, or cannot.

mod calls;
mod errors;
mod inspect;
mod kubeconfig;
mod login;
mod markers;
mod names;
mod order;
mod session;
mod spec;
#[cfg(test)]
mod tests;
mod user_data;
mod vm;
mod volumes;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeSpec;
use mcm_api::machine::MachineClass;
use mcm_driver::{
    Code, Driver, DriverEnvironment, DriverError, DriverObserver, MachineRequest, OpenError, SecretData, Vm,
    cloud::{
        CloudAccess, CloudDriver, CloudFailure, CloudOperations, CloudVm, CreationLedger, LoginCache, LookupCoalescer,
        MachineIdentity, PollTiming, RequestReporter, VmCreations, VmLookupError, until_done,
    },
    inspection::ResourceFinding,
    spec::ClassProblems,
};

pub use self::names::NAME;
use self::{
    calls::Api,
    errors::failure_of,
    login::Login,
    names::{OWNER_LABEL, is_vm_name, provider_id, vm_of},
    order::Order,
    session::{Session, VmsByName},
    spec::Spec,
    user_data::{takes_keys, user_data},
    vm::VirtualMachine,
};

/// Opens the driver, for the list of built-in drivers.
///
/// # Errors
/// Never.
pub fn open(
    environment: &DriverEnvironment<'_>,
    observer: &Arc<dyn DriverObserver>,
) -> Result<Arc<dyn Driver>, OpenError> {
    let (access, requests) =
        (CloudAccess::from_environment(environment), RequestReporter::for_provider(NAME, observer));
    Ok(Arc::new(CloudDriver(KubevirtVms::new(access, Patience::default(), requests))))
}

/// How long the driver waits.
#[derive(Clone, Copy, Debug)]
struct Patience {
    /// Look-ups wait for others to join them.
    window: Duration,
    /// A request without an answer is carried out by then, or never.
    settles: Duration,
    /// The pace of polls of a VM that starts or is deleted. The import of an image may take minutes.
    pace: PollTiming,
}

impl Default for Patience {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        let pace = PollTiming { first: seconds(1), longest: seconds(30), total: seconds(1200) };
        Self { window: Duration::from_millis(100), settles: seconds(60), pace }
    }
}

/// The VMs of KubeVirt.
struct KubevirtVms {
    patience: Patience,
    logins: LoginCache<Login>,
    look_ups: Arc<VmsByName>,
    creations: VmCreations<VirtualMachine>,
}

impl KubevirtVms {
    fn new(access: CloudAccess, patience: Patience, requests: RequestReporter) -> Self {
        Self {
            patience,
            logins: LoginCache::new(access, requests),
            look_ups: Arc::new(LookupCoalescer::new(patience.window)),
            creations: VmCreations::new(patience.settles),
        }
    }

    /// Waits until a VM has started.
    async fn started(
        &self,
        session: &Session,
        request: &MachineRequest,
        vm: VirtualMachine,
    ) -> Result<VirtualMachine, DriverError> {
        let (wanted, since) = (MachineIdentity::from_machine(&request.machine), vm.created(Timestamp::now()));
        let what = format!("start of VM {}", wanted.name);
        // It was looked at, or its creation has just answered.
        let mut first = Some(vm);
        let (what, gone) =
            (&what, || DriverError::new(Code::Aborted, format!("{what} failed: the VM was deleted meanwhile")));
        until_done(&self.patience.pace, since, request.may_pause, what, || {
            let first = first.take();
            async move {
                let found = match first {
                    Some(vm) => Some(vm),
                    None => session.at(wanted.name).await?.and_then(|vm| session.of_machine(vm, wanted)),
                };
                let vm = found.filter(|vm| !vm.is_terminating()).ok_or_else(gone)?;
                Ok(vm.has_started(&session.api.secret)?.then_some(vm))
            }
        })
        .await
    }

    /// Deletes a VM, and waits for its absence.
    async fn remove(
        &self,
        session: &Session,
        request: &MachineRequest,
        vm: &VirtualMachine,
    ) -> Result<(), DriverError> {
        if !vm.is_terminating() {
            session.api.delete_vm(vm).await?;
        }
        let what = format!("deletion of VM {}", vm.metadata.name);
        let since = vm.deleted(Timestamp::now());
        let look = || async { Ok((!session.is_there(vm).await?).then_some(())) };
        until_done(&self.patience.pace, since, request.may_pause, &what, look).await
    }

    /// The error for a VM in a state that passes.
    fn not_yet(&self, request: &MachineRequest, vm: &VirtualMachine, what: &str) -> DriverError {
        let pause = self.patience.pace.pause(vm.created(Timestamp::now()).elapsed());
        let message = format!("VM {} is {what}", vm.metadata.name);
        let call_again_in = Some(pause).filter(|_| request.may_pause);
        DriverError { call_again_in, ..DriverError::new(Code::Unavailable, message) }
    }
}

#[async_trait]
impl CloudOperations for KubevirtVms {
    type Spec = Spec;
    type Session = Session;

    const NAME: &'static str = NAME;
    const VMS: &'static str = "VMs of KubeVirt";

    fn read_spec(class: &MachineClass, problems: &mut ClassProblems) -> Spec {
        Spec::read(&class.provider_spec, problems)
    }

    fn check_secret(&self, spec: Spec, _: &MachineClass, secret: &SecretData, problems: &mut ClassProblems) {
        let login = Login::from_secret(secret, &self.logins.access.secrets);
        problems.secret(login.and_then(|login| self.logins.client(&login.tls).and(login.authentication())));
        problems.secret(user_data(secret, &spec.ssh_keys));
        if !spec.ssh_keys.is_empty() && !takes_keys(secret) {
            let text = "sshKeys of the class are appended to userData, which are not a #cloud-config";
            problems.warning("Secret", text);
        }
    }

    /// VMs of a cluster and a role are listed for all of its classes.
    fn may_list(spec: &Spec, other: &Spec) -> Option<bool> {
        Some(spec.scope().ok()? == other.scope().ok()?)
    }

    fn volume_id(spec: &PersistentVolumeSpec) -> Option<String> {
        volumes::id_of(spec)
    }

    async fn session(&self, spec: Spec, _: &MachineClass, secret: &SecretData) -> Result<Session, DriverError> {
        let scope = spec.scope()?;
        let login = Login::from_secret(secret, &self.logins.access.secrets)?;
        let open = || self.logins.rest(&login.tls, &login.url, login.authentication()?, failure_of);
        let rest = self.logins.get_or(&login, open)?;
        let api = Api { rest, namespace: login.namespace.clone(), secret: login.secrets(secret) };
        Ok(Session { spec, scope, login, api, look_ups: Arc::clone(&self.look_ups) })
    }

    fn creations(&self) -> Option<&dyn CreationLedger> {
        Some(&self.creations)
    }

    fn check_creation(&self, request: &MachineRequest) -> Result<(), DriverError> {
        let name = MachineIdentity::from_machine(&request.machine).name;
        if is_vm_name(name) {
            return Ok(());
        }
        let message = format!(
            "machine {name:?} cannot be the name of a VM: at most 63 lower-case letters, digits, hyphens and dots"
        );
        Err(DriverError::new(Code::InvalidArgument, message))
    }

    async fn create(&self, session: &Session, request: &MachineRequest) -> Result<Vm, DriverError> {
        let wanted = MachineIdentity::from_machine(&request.machine);
        let order = Order { spec: &session.spec, scope: &session.scope, wanted, owner: &request.owner };
        let secret = order.secret(&user_data(&request.secret, &session.spec.ssh_keys)?);
        let vm = order.virtual_machine();
        let look = {
            let (session, machine) = (session.clone(), Arc::clone(&request.machine));
            async move {
                let wanted = MachineIdentity::from_machine(&machine);
                match session.at(wanted.name).await? {
                    Some(vm) => session.taken(vm, wanted).map(Some),
                    // Before the VM, which would wait for it for ever.
                    None => session.api.put_secret(&secret).await.map(|()| None),
                }
            }
        };
        let create = {
            let (session, machine) = (session.clone(), Arc::clone(&request.machine));
            async move { session.create(&vm, MachineIdentity::from_machine(&machine)).await }
        };
        let (secret, what) = (session.api.secret.clone(), format!("creation of VM {}", wanted.name));
        let error = move |failure: &CloudFailure| failure.error_of_creation(&what, &secret);
        let vm = self.creations.run(request, look, create, error).await?;
        Ok(self.started(session, request, vm).await?.vm(&session.spec.zone).as_created())
    }

    async fn delete(&self, session: &Session, request: &MachineRequest) -> Result<Option<String>, DriverError> {
        let wanted = MachineIdentity::from_machine(&request.machine);
        let found = self.find(session, request).await?.pop();
        let mut owner = (wanted.name.to_owned(), wanted.uid.to_owned());
        if let Some(vm) = &found {
            self.remove(session, request, vm).await?;
            owner = (vm.metadata.name.clone(), vm.machine_uid().unwrap_or_default().to_owned());
        }
        let (name, uid) = owner;
        // VMs of the reference have no UID, and own their Secret.
        if !uid.is_empty() && is_vm_name(&name) {
            session.delete_secret(&name, &uid).await?;
        }
        let id = found.map(|vm| provider_id(&vm.metadata.name)).unwrap_or_default();
        Ok(Some(format!("Deleted {id}")))
    }

    async fn status(&self, session: &Session, request: &MachineRequest) -> Result<Vm, VmLookupError> {
        let vm = self.find_only(session, request).await?;
        // Only the creation decides whether a VM becomes that of a Machine.
        if vm_of(&request.machine)?.is_none() {
            if vm.is_terminating() {
                return Err(self.not_yet(request, &vm, "being deleted").into());
            }
            if !vm.has_started(&session.api.secret)? {
                return Err(self.not_yet(request, &vm, "not started yet").into());
            }
        }
        Ok(vm.vm(&session.spec.zone))
    }

    /// The label of the cluster stays, so that the provider ID finds the VM.
    async fn tag(
        &self,
        session: &Session,
        request: &MachineRequest,
        vm: VirtualMachine,
        is_listed: bool,
    ) -> Result<(), DriverError> {
        let own = session.scope.labels();
        let owner = Some(request.owner.as_str()).filter(|owner| is_listed && !owner.is_empty());
        let mut labels: BTreeMap<&str, Option<&str>> = [(OWNER_LABEL, owner)].into();
        if is_listed {
            labels.extend(own.iter().map(|(key, value)| (key.as_str(), Some(value.as_str()))));
        } else {
            labels.insert(&session.scope.role.key, None);
        }
        session.api.label_vm(&vm, &labels).await
    }

    async fn inspect(&self, session: &Session, secret: &SecretData) -> Vec<ResourceFinding> {
        session.inspect(user_data(secret, &session.spec.ssh_keys).err()).await
    }
}
