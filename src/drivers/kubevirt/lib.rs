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
    cloud::{
        CloudVm, HttpClient, HttpLimits, LruCache, MachineIdentity, PollTiming, RequestReporter, RestClient,
        TlsClientCache, VmCreations, check_provider, idempotency_token, until_done,
    },
    code::Code,
    environment::{DriverEnvironment, OpenError},
    error::DriverError,
    guard::DriverObserver,
    inspection::ResourceFinding,
    interface::{Driver, DriverCapabilities, MachineRequest, SecretData},
    secret_policy::SecretPolicy,
    spec::ClassProblems,
    vm::{Vm, VmsByProviderId},
};

pub use self::names::NAME;
use self::{
    calls::Api,
    errors::failure_of,
    login::Login,
    names::{OWNER_LABEL, is_vm_name, provider_id, vm_of},
    order::Order,
    session::{LookUps, Session, look_ups},
    spec::Spec,
    user_data::{takes_keys, user_data},
    vm::VirtualMachine,
};

/// More logins than any installation has.
const MOST_LOGINS: usize = 256;

/// Opens the driver, for the list of built-in drivers.
///
/// # Errors
/// Never.
pub fn open(
    environment: &DriverEnvironment<'_>,
    observer: &Arc<dyn DriverObserver>,
) -> Result<Arc<dyn Driver>, OpenError> {
    let access = Access { limits: HttpLimits::default(), uses_proxy: true, secrets: environment.secrets.clone() };
    Ok(Arc::new(KubevirtDriver::new(access, Patience::default(), RequestReporter::for_provider(NAME, observer))))
}

/// How API servers are called.
#[derive(Clone)]
struct Access {
    limits: HttpLimits,
    uses_proxy: bool,
    secrets: SecretPolicy,
}

/// How long the driver waits.
#[derive(Clone, Copy, Debug)]
struct Patience {
    /// Look-ups wait for others to join them.
    window: Duration,
    /// A request without an answer is carried out by then, or never.
    settles: Duration,
    /// How often the driver looks at a VM that starts or is deleted. The import of an image may take minutes.
    pace: PollTiming,
}

impl Default for Patience {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        let pace = PollTiming { first: seconds(1), longest: seconds(30), total: seconds(1200) };
        Self { window: Duration::from_millis(100), settles: seconds(60), pace }
    }
}

/// The driver of KubeVirt.
struct KubevirtDriver {
    patience: Patience,
    access: Access,
    http: Arc<HttpClient>,
    connections: TlsClientCache,
    logins: LruCache<Login, Arc<RestClient>>,
    look_ups: Arc<LookUps>,
    creations: VmCreations<VirtualMachine>,
}

impl KubevirtDriver {
    fn new(access: Access, patience: Patience, requests: RequestReporter) -> Self {
        Self {
            patience,
            http: Arc::new(HttpClient::new(access.limits, access.uses_proxy, requests)),
            connections: TlsClientCache::new(access.limits.attempt, access.uses_proxy),
            logins: LruCache::new(MOST_LOGINS),
            look_ups: look_ups(patience.window),
            creations: VmCreations::new(patience.settles),
            access,
        }
    }

    /// Fields that only a creation needs may be wrong.
    fn session(&self, class: &MachineClass, secret: &SecretData) -> Result<Session, DriverError> {
        let mut problems = ClassProblems::default();
        check_provider(class, NAME, &mut problems);
        problems.to_result()?;
        let spec = Spec::read(&class.provider_spec, &mut problems);
        let scope = spec.scope()?;
        let login = Login::from_secret(secret, &self.access.secrets)?;
        let rest = self.logins.get_or(&login, || self.rest(&login))?;
        let api = Api { rest, namespace: login.namespace.clone(), secret: login.secrets(secret) };
        Ok(Session { spec, scope, login, api, look_ups: Arc::clone(&self.look_ups) })
    }

    fn rest(&self, login: &Login) -> Result<Arc<RestClient>, DriverError> {
        let client = self.connections.client(&login.tls)?;
        let (url, slowest) = (login.url.clone(), self.access.limits.slowest);
        Ok(Arc::new(RestClient::new(&self.http, client, url, login.authentication()?, slowest, failure_of)))
    }

    /// The VM of a Machine: by its provider ID or, without an ID, the VM that was created for it.
    async fn find(&self, session: &Session, request: &MachineRequest) -> Result<Option<VirtualMachine>, DriverError> {
        let machine = &*request.machine;
        if !machine.spec.provider_id.is_empty() {
            return session.find(machine).await;
        }
        self.creations.find(request, session.find(machine), Option::is_none).await
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
                    None => session.at(wanted.name).await?.and_then(|vm| session.created_for(vm, wanted)),
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
impl Driver for KubevirtDriver {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> DriverCapabilities {
        DriverCapabilities { initialize: false, list: true, inspect: true, tag: true }
    }

    fn validate(&self, class: &MachineClass) -> ClassProblems {
        let mut problems = ClassProblems::default();
        check_provider(class, NAME, &mut problems);
        Spec::read(&class.provider_spec, &mut problems);
        problems
    }

    fn secret_problems(&self, class: &MachineClass, secret: &SecretData) -> ClassProblems {
        let mut problems = ClassProblems::default();
        let spec = Spec::read(&class.provider_spec, &mut ClassProblems::default());
        let login = Login::from_secret(secret, &self.access.secrets).and_then(|login| {
            self.connections.client(&login.tls)?;
            login.authentication().map(drop)
        });
        let results = [login, user_data(secret, &spec.ssh_keys).map(drop)];
        for error in results.into_iter().filter_map(Result::err) {
            problems.error("Secret", error.message);
        }
        if !spec.ssh_keys.is_empty() && !takes_keys(secret) {
            let text = "sshKeys of the class are appended to userData, which are not a #cloud-config";
            problems.warning("Secret", text);
        }
        problems
    }

    async fn create(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        self.validate(&request.class).to_result()?;
        idempotency_token(&request.machine, 0)?;
        let wanted = MachineIdentity::from_machine(&request.machine);
        if !is_vm_name(wanted.name) {
            let message = format!(
                "machine {:?} cannot be the name of a VM: at most 63 lower-case letters, digits, hyphens and dots",
                wanted.name
            );
            return Err(DriverError::new(Code::InvalidArgument, message));
        }
        let session = self.session(&request.class, &request.secret)?;
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
        let (api, what) = (session.api.clone(), format!("creation of VM {}", wanted.name));
        let vm = self.creations.run(request, look, create, move |failure| api.error(failure, &what)).await?;
        let vm = self.started(&session, request, vm).await?.vm(&session.spec.zone);
        Ok(Vm { last_known_state: Some(format!("Created {}", vm.provider_id)), ..vm })
    }

    /// [`Code::Unimplemented`]: a VM needs nothing after its creation.
    async fn initialize(&self, _: &MachineRequest) -> Result<Vm, DriverError> {
        Err(DriverError::new(Code::Unimplemented, "VMs of KubeVirt are not initialized"))
    }

    async fn delete(&self, request: &MachineRequest) -> Result<Option<String>, DriverError> {
        let session = self.session(&request.class, &request.secret)?;
        let wanted = MachineIdentity::from_machine(&request.machine);
        let found = self.find(&session, request).await?;
        let mut owner = (wanted.name.to_owned(), wanted.uid.to_owned());
        if let Some(vm) = &found {
            self.remove(&session, request, vm).await?;
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

    async fn status(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        let session = self.session(&request.class, &request.secret)?;
        let machine = &*request.machine;
        let Some(vm) = self.find(&session, request).await? else {
            let message = format!("machine {:?} has no VM", MachineIdentity::from_machine(machine).name);
            return Err(DriverError::new(Code::NotFound, message));
        };
        // Only the creation decides whether a VM becomes that of a Machine.
        if vm_of(machine)?.is_none() {
            if vm.is_terminating() {
                return Err(self.not_yet(request, &vm, "being deleted"));
            }
            if !vm.has_started(&session.api.secret)? {
                return Err(self.not_yet(request, &vm, "not started yet"));
            }
        }
        Ok(vm.vm(&session.spec.zone))
    }

    async fn list(&self, class: &MachineClass, secret: &SecretData) -> Result<VmsByProviderId, DriverError> {
        let session = self.session(class, secret)?;
        let all = session.api.of_cluster(&session.scope).await?;
        let is_ours = |vm: &&VirtualMachine| {
            let labels = &vm.metadata.labels;
            session.scope.is_of_cluster(labels) && session.scope.is_of_role(labels) && !vm.is_copy()
        };
        Ok(all.iter().filter(is_ours).map(|vm| (provider_id(&vm.metadata.name), vm.listed())).collect())
    }

    /// VMs of a cluster and a role are listed for all of its classes.
    fn may_list(&self, class: &MachineClass, other: &MachineClass) -> bool {
        let [class, other] =
            [class, other].map(|one| Spec::read(&one.provider_spec, &mut ClassProblems::default()).scope());
        match (class, other) {
            (Ok(class), Ok(other)) => class == other,
            _ => true,
        }
    }

    async fn inspect(&self, class: &MachineClass, secret: &SecretData) -> Result<Vec<ResourceFinding>, DriverError> {
        let session = self.session(class, secret)?;
        let user_data = user_data(secret, &session.spec.ssh_keys);
        Ok(session.inspect(user_data.err()).await)
    }

    /// The label of the cluster stays, so that the provider ID finds the VM.
    async fn tag(&self, request: &MachineRequest, is_listed: bool) -> Result<(), DriverError> {
        let session = self.session(&request.class, &request.secret)?;
        let machine = &*request.machine;
        let Some(vm) = session.find(machine).await? else {
            let message = format!("machine {:?} has no VM", MachineIdentity::from_machine(machine).name);
            return Err(DriverError::new(Code::NotFound, message));
        };
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

    async fn volume_ids(&self, specs: &[PersistentVolumeSpec]) -> Result<Vec<String>, DriverError> {
        Ok(specs.iter().filter_map(volumes::id_of).collect())
    }
}
