//! The driver of vSphere: VMs are clones of a template, found by their name in a folder and by custom fields.
//!
//! `providerSpec` and Secret are those of Gardener's driver. `docs/conformance-vsphere.md` compares the two.
//!
//! Two facts of vCenter shape it. A clone takes minutes, and is then configured, marked and started with more requests, each of which
//! may be the last: a clone therefore carries the UID of its Machine from its first moment, and is finished by whichever call
//! finds it. And a BIOS UUID, which is the ID of a VM, is copied with its files, so it does not identify the Machine of a VM.

mod calls;
mod device;
mod errors;
mod fields;
mod filter;
mod inspect;
mod inventory;
mod login;
mod names;
mod order;
mod place;
mod session;
mod soap;
mod spec;
mod tasks;
#[cfg(test)]
mod tests;
mod user_data;
mod vm;
mod volumes;

use std::{
    collections::BTreeMap,
    env,
    sync::{Arc, OnceLock},
    time::Duration,
};

use async_trait::async_trait;
use futures::FutureExt;
use k8s_openapi::api::core::v1::PersistentVolumeSpec;
use mcm_api::machine::{Machine, MachineClass};
use mcm_driver::{
    Code, Driver, DriverCapabilities, DriverEnvironment, DriverError, DriverObserver, MachineRequest, OpenError,
    SecretData, Vm,
    cloud::{
        CloudAccess, CloudDriver, CloudFailure, CloudOperations, CloudSession, CloudVm, CreationLedger, LoginCache,
        LruCache, MOST_LOGINS, MachineIdentity, PollTiming, RequestReporter, SecretReader, VmCreations, VmLookupError,
        until_done,
    },
    inspection::ResourceFinding,
    spec::ClassProblems,
};
use tokio::time::Instant;

pub use self::names::NAME;
use self::{
    calls::{Api, Found, Placement, TaskState},
    fields::Fields,
    filter::Filter,
    login::Login,
    names::{OWNER_FIELD, UNLISTED_FIELD},
    order::{HARDWARE, configuration, fields, is_older, uid_field},
    place::{Property, Target, properties_of},
    session::{Session, SharedLookups},
    soap::{Method, Ref, Soap, Xml},
    spec::Spec,
    tasks::{Begun, Tasks},
    user_data::{Carried, ConsolePasswords, UserData},
    vm::VirtualMachine,
};

/// Most Machines whose deletion waits for clones of earlier processes.
const MOST_WAITING: usize = 10_000;
/// Variables with passwords for the console, as the reference reads them.
const PASSWORD: &str = "VMWARE_MACHINE_PASSWORD";
const PASSWORD_HASH: &str = "VMWARE_MACHINE_PASSWORD_HASH";

const CLONE: Method = Method::write("CloneVM_Task", "clone_vm");
const CONFIGURE: Method = Method::write("ReconfigVM_Task", "reconfigure_vm");
const UPGRADE: Method = Method::write("UpgradeVM_Task", "upgrade_vm");
const START: Method = Method::write("PowerOnVM_Task", "power_on_vm");
const STOP: Method = Method::write("PowerOffVM_Task", "power_off_vm");
const DESTROY: Method = Method::write("Destroy_Task", "destroy_vm");

/// Opens the driver, for the list of built-in drivers.
pub fn open(
    environment: &DriverEnvironment<'_>,
    observer: &Arc<dyn DriverObserver>,
) -> Result<Arc<dyn Driver>, OpenError> {
    let variable = |name| env::var(name).ok().filter(|value| !value.is_empty());
    let passwords = ConsolePasswords { plain: variable(PASSWORD), hash: variable(PASSWORD_HASH) };
    let (access, requests) =
        (CloudAccess::from_environment(environment), RequestReporter::for_provider(NAME, observer));
    Ok(Arc::new(CloudDriver(VsphereVms::new(access, passwords, Patience::default(), requests))))
}

/// How long the driver waits.
#[derive(Clone, Copy, Debug)]
struct Patience {
    /// Look-ups wait for others to join them.
    window: Duration,
    /// A request of a clone without an answer has begun one by then, or never will.
    settles: Duration,
    /// A clone copies disks.
    clone: PollTiming,
    /// A VM is configured, started or stopped.
    change: PollTiming,
    destroy: PollTiming,
    /// A VM that was started has an address.
    address: PollTiming,
}

impl Default for Patience {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        let change = PollTiming { first: Duration::from_millis(500), longest: seconds(5), total: seconds(180) };
        Self {
            window: Duration::from_millis(100),
            settles: seconds(60),
            clone: PollTiming { first: seconds(2), longest: seconds(15), total: seconds(3600) },
            change,
            destroy: PollTiming { first: seconds(1), longest: seconds(10), total: seconds(600) },
            address: PollTiming { first: seconds(2), longest: seconds(10), total: seconds(480) },
        }
    }
}

/// A clone that was begun, or the VM of an earlier one.
#[derive(Clone)]
enum Made {
    Vm(Box<VirtualMachine>),
    Clone(Begun),
}

/// The VMs of vSphere.
struct VsphereVms {
    patience: Patience,
    passwords: ConsolePasswords,
    logins: LoginCache<Login, Soap>,
    fields: LruCache<Login, Arc<Fields>>,
    shared: Arc<SharedLookups>,
    creations: VmCreations<Made>,
    /// By the UID of the Machine.
    clones: Arc<Tasks>,
    /// By the vCenter and the ID of the VM.
    deletions: Tasks,
    /// Clones of earlier processes that deletions wait for, by the UID of the Machine.
    foreign_clones: LruCache<String, Arc<Vec<Ref>>>,
}

impl VsphereVms {
    fn new(access: CloudAccess, passwords: ConsolePasswords, patience: Patience, requests: RequestReporter) -> Self {
        Self {
            patience,
            passwords,
            logins: LoginCache::new(access, requests),
            fields: LruCache::new(MOST_LOGINS),
            shared: Arc::new(SharedLookups::new(patience.window)),
            creations: VmCreations::new(patience.settles),
            clones: Arc::default(),
            deletions: Tasks::default(),
            foreign_clones: LruCache::new(MOST_WAITING),
        }
    }

    /// The VM of a Machine: found, or cloned. It may be unfinished.
    async fn cloned(&self, session: &Session, request: &MachineRequest) -> Result<VirtualMachine, DriverError> {
        let wanted = MachineIdentity::from_machine(&request.machine);
        let begun = match self.clones.get(wanted.uid) {
            Some(begun) => begun,
            None => match self.begin(session, request).await? {
                Made::Vm(vm) => return Ok(*vm),
                Made::Clone(begun) => begun,
            },
        };
        let what = format!("clone of VM {}", wanted.name);
        let pace = &self.patience.clone;
        let done = self.clones.follow(&session.api, wanted.uid, &begun, pace, request.may_pause, &what).await?;
        if let Err(failure) = done {
            return Err(self.not_cloned(session, &request.machine, &failure, &what).await);
        }
        session.only_created_for(&request.machine).await?.ok_or_else(|| {
            DriverError::new(Code::Unavailable, format!("the {what} is done, but vCenter does not show it"))
        })
    }

    /// Finds the VM of a Machine, or begins to clone one.
    async fn begin(&self, session: &Session, request: &MachineRequest) -> Result<Made, DriverError> {
        let prepared = Arc::new(OnceLock::<(Arc<Target>, Placement)>::new());
        let look = {
            let (session, request, prepared) = (session.clone(), request.clone(), Arc::clone(&prepared));
            let passwords = self.passwords.clone();
            async move {
                if let Some(vm) = session.only_created_for(&request.machine).await? {
                    return Ok(Some(Made::Vm(Box::new(vm))));
                }
                let target = session.target().await?;
                // A clone that could not be configured would be of no use.
                carried(&session, &request, &passwords, &target.guest_id, target.properties.as_deref())?;
                let placement = session.placement(&target, &request).await?;
                prepared.get_or_init(|| (target, placement));
                Ok(None)
            }
        };
        let clone = {
            let (session, request, clones) = (session.clone(), request.clone(), Arc::clone(&self.clones));
            async move {
                let Some((target, placement)) = prepared.get() else {
                    return Err(CloudFailure::Unsent("it has no place".to_owned()));
                };
                let order = session.order(target, &request);
                let begun = session.api.begin(CLONE, &target.template, &order.arguments(placement)).await?;
                Ok(Made::Clone(clones.remember(order.wanted.uid, begun)))
            }
        };
        let (api, what) =
            (session.api.clone(), format!("clone of VM {}", MachineIdentity::from_machine(&request.machine).name));
        self.creations.run(request, look, clone, move |failure| api.error(failure, &what)).await
    }

    /// The error of a clone that failed. If there is a VM of its name, an earlier clone may have made it.
    async fn not_cloned(
        &self,
        session: &Session,
        machine: &Machine,
        failure: &CloudFailure,
        what: &str,
    ) -> DriverError {
        let error = session.api.error(failure, what);
        if !failure.is("DuplicateName") {
            return error;
        }
        match session.created_for(machine).await {
            Ok(found) if found.is_empty() => {
                let message = format!(
                    "{}: the folder has a VM of this name that is not of machine {}: delete or rename it",
                    error.message,
                    MachineIdentity::from_machine(machine).name
                );
                DriverError { message, ..error }
            }
            Ok(_) => DriverError { code: Code::Unavailable, ..error },
            Err(error) => error,
        }
    }

    /// Configures, marks and starts a VM, unless that is done. All of it can be repeated. The UID is the last custom field: a VM
    /// without it is found as unfinished, and finished by the next call.
    async fn finish(&self, session: &Session, request: &MachineRequest, vm: VirtualMachine) -> Result<Vm, DriverError> {
        if !vm.is_unfinished() {
            return Ok(vm.vm());
        }
        let owner = vm.owner().unwrap_or(&request.owner).to_owned();
        let vm = if vm.is_on() {
            vm
        } else {
            self.configure(session, request, &vm).await?;
            self.mark(session, &vm, &fields(&session.spec, &owner, &vm.provider_id())).await?;
            self.change(&session.api, START, &vm, &Xml::new(), "start").await?;
            vm.started()
        };
        let vm = if session.spec.waits_for_ip && !vm.has_address() {
            self.with_address(session, request, &vm).await?
        } else {
            vm
        };
        self.mark(session, &vm, &uid_field(MachineIdentity::from_machine(&request.machine).uid)).await?;
        Ok(vm.vm())
    }

    async fn configure(
        &self,
        session: &Session,
        request: &MachineRequest,
        vm: &VirtualMachine,
    ) -> Result<(), DriverError> {
        const GUEST: &str = "config.guestId";
        const VAPP: &str = "config.vAppConfig";
        const VERSION: &str = "config.version";
        let api = &session.api;
        let filter = Filter::for_object(vm.reference.clone(), &[GUEST, VAPP, VERSION]);
        let read = |found: Found<'_, '_>| {
            let text = |path| found.text(path).unwrap_or_default();
            Some(Some((text(GUEST), found.value(VAPP).map(properties_of), text(VERSION))))
        };
        let what = format!("a look at VM {}", vm.name());
        let found = api.retrieve(&[filter], read).await.map_err(|failure| api.error(&failure, &what))?;
        let Some((guest_id, properties, version)) = found.into_iter().next() else {
            return Err(DriverError::new(Code::Unknown, format!("{what} failed: it cannot be read")));
        };
        let carried = carried(session, request, &self.passwords, &guest_id, properties.as_deref())?;
        self.change(api, CONFIGURE, vm, &configuration(&session.spec, &carried), "configuration").await?;
        if is_older(&version) {
            // An older host does not have the version. The VM runs with that of its template, as with the reference.
            let upgraded = self.change(api, UPGRADE, vm, &Xml::new().text("version", HARDWARE), "upgrade").await;
            if let Err(error) = upgraded {
                tracing::debug!(vm = vm.name(), %error, "virtual hardware not upgraded");
            }
        }
        Ok(())
    }

    /// Sets custom fields.
    async fn mark(
        &self,
        session: &Session,
        vm: &VirtualMachine,
        values: &BTreeMap<String, String>,
    ) -> Result<(), DriverError> {
        let all = self.fields.get_or(&session.login, || Ok::<_, DriverError>(Arc::default()))?;
        let what = format!("marking of VM {}", vm.name());
        let set = all.set(&session.api, vm, values).await;
        set.map_err(|failure| session.api.error(&failure, &what))
    }

    /// Changes a VM, and waits for it. A VM that has the wanted power state already counts as changed.
    async fn change(
        &self,
        api: &Api,
        method: Method,
        vm: &VirtualMachine,
        arguments: &Xml,
        what: &str,
    ) -> Result<(), DriverError> {
        let what = format!("{what} of VM {}", vm.name());
        let is_done =
            |failure: &CloudFailure| failure.is("InvalidPowerState") && [START.name, STOP.name].contains(&method.name);
        let ended = match api.begin(method, &vm.reference, arguments).await {
            Ok(task) => Begun::now(task).ended(api, &self.patience.change, false, &what).await?.map(drop),
            Err(failure) => Err(failure),
        };
        match ended {
            Err(failure) if !is_done(&failure) => Err(api.error(&failure, &what)),
            _ => Ok(()),
        }
    }

    /// Waits until a VM has an address.
    async fn with_address(
        &self,
        session: &Session,
        request: &MachineRequest,
        vm: &VirtualMachine,
    ) -> Result<VirtualMachine, DriverError> {
        let what = format!("the start of VM {}, which has no address,", vm.name());
        let (session, reference) = (session.clone(), vm.reference.clone());
        let look = move || session.clone().addressed(reference.clone()).boxed();
        until_done(&self.patience.address, Instant::now(), request.may_pause, &what, look).await
    }

    /// Detaches the disks of others, such as volumes: vSphere destroys the files of all disks that a VM has when it is destroyed.
    async fn detach(&self, api: &Api, vm: &VirtualMachine) -> Result<(), DriverError> {
        let what = format!("a look at the disks of VM {}", vm.name());
        let changes = match api.detachments(&vm.reference, vm.name()).await {
            Err(failure) if is_gone(&failure) => return Ok(()),
            changes => changes.map_err(|failure| api.error(&failure, &what))?,
        };
        if changes.is_empty() {
            return Ok(());
        }
        tracing::info!(
            vm = vm.name(),
            disks = changes.len(),
            "disks of others are detached from the VM that is deleted"
        );
        let spec = Xml::new().each(&changes, |xml, change| xml.and(change));
        self.change(api, CONFIGURE, vm, &Xml::new().tag("spec", &spec), "detachment of disks").await
    }

    /// Stops and destroys a VM. A VM that is absent counts as destroyed.
    async fn destroy(
        &self,
        session: &Session,
        request: &MachineRequest,
        vm: &VirtualMachine,
    ) -> Result<(), DriverError> {
        let (api, what) = (&session.api, format!("deletion of VM {}", vm.name()));
        let key = format!("{} {}", session.login.url, vm.reference.id);
        let begun = match self.deletions.get(&key) {
            Some(begun) => begun,
            None => {
                if !vm.is_off() {
                    self.change(api, STOP, vm, &Xml::new(), "stop").await?;
                }
                self.detach(api, vm).await?;
                match api.begin(DESTROY, &vm.reference, &Xml::new()).await {
                    Ok(task) => self.deletions.remember(&key, task),
                    Err(failure) if is_gone(&failure) => return Ok(()),
                    Err(failure) => return Err(api.error(&failure, &what)),
                }
            }
        };
        let pace = &self.patience.destroy;
        match self.deletions.follow(api, &key, &begun, pace, request.may_pause, &what).await? {
            Err(failure) if !is_gone(&failure) => Err(api.error(&failure, &what)),
            _ => Ok(()),
        }
    }

    /// The VMs that are left of a Machine for which none was found, after the end of all clones that another process may have begun
    /// for it: vCenter shows no name of such a clone.
    async fn left(&self, session: &Session, request: &MachineRequest) -> Result<Vec<VirtualMachine>, DriverError> {
        let (machine, wanted) = (&*request.machine, MachineIdentity::from_machine(&request.machine));
        let uid = wanted.uid.to_owned();
        let clones = match self.foreign_clones.get(&uid) {
            Some(clones) => clones,
            None => Arc::new(session.clones_for(machine).await?),
        };
        for clone in &*clones {
            match session.api.task(clone).await {
                Ok(TaskState::Running) => {
                    self.foreign_clones.put(uid, Arc::clone(&clones));
                    let message = format!(
                        "machine {} has no VM, but a clone of its template is under way that an earlier process may have begun \
                         for it: it counts as absent once that has ended",
                        wanted.name
                    );
                    return Err(DriverError {
                        call_again_in: request.may_pause.then_some(self.patience.clone.first),
                        ..DriverError::new(Code::Unavailable, message)
                    });
                }
                Err(failure) if !is_gone(&failure) => {
                    return Err(session.api.error(&failure, "a look at a clone of the template"));
                }
                _ => {}
            }
        }
        self.foreign_clones.forget(&uid);
        let found = self.find(session, request).await?;
        if !found.is_empty() {
            return Ok(found);
        }
        let unmarked = session.unmarked_for(machine).await?;
        if unmarked.is_some() {
            tracing::info!(
                machine = wanted.name,
                "the VM of a creation that broke off before it was marked is deleted"
            );
        }
        Ok(unmarked.into_iter().collect())
    }

    /// The VM of a Machine, unless it is being cloned.
    async fn settled(&self, session: &Session, request: &MachineRequest) -> Result<VirtualMachine, VmLookupError> {
        let wanted = MachineIdentity::from_machine(&request.machine);
        self.creations.settled(&request.machine).await;
        if let Some(begun) = self.clones.get(wanted.uid)
            && matches!(session.api.task(&begun.task).await, Ok(TaskState::Running))
        {
            let message = format!("VM {} is being cloned", wanted.name);
            let call_again_in = request.may_pause.then_some(self.patience.clone.first);
            return Err(DriverError { call_again_in, ..DriverError::new(Code::Unavailable, message) }.into());
        }
        self.find_only(session, request).await
    }
}

fn is_gone(failure: &CloudFailure) -> bool {
    failure.is("ManagedObjectNotFound")
}

/// The user data of a VM with this guest ID and these properties, in the form that the VM reads.
fn carried(
    session: &Session,
    request: &MachineRequest,
    passwords: &ConsolePasswords,
    guest_id: &str,
    properties: Option<&[Property]>,
) -> Result<Carried, DriverError> {
    let (spec, secrets) = (&session.spec, SecretReader(&request.secret));
    let name = MachineIdentity::from_machine(&request.machine).name;
    let user_data = UserData { name, data: secrets.user_data()?, ssh_keys: &spec.ssh_keys, passwords };
    user_data.carried(spec.guest_id.as_deref().unwrap_or(guest_id), properties, spec.properties.as_ref())
}

#[async_trait]
impl CloudOperations for VsphereVms {
    type Spec = Spec;
    type Session = Session;

    const NAME: &'static str = NAME;
    const VMS: &'static str = "VMs of vSphere";
    const CAPABILITIES: DriverCapabilities =
        DriverCapabilities { initialize: true, list: true, inspect: true, tag: true };

    fn read_spec(class: &MachineClass, problems: &mut ClassProblems) -> Spec {
        Spec::read(&class.provider_spec, problems)
    }

    fn check_secret(&self, _: Spec, _: &MachineClass, secret: &SecretData, problems: &mut ClassProblems) {
        let login = Login::from_secret(secret, &self.logins.access.secrets);
        if login.as_ref().is_ok_and(|login| login.tls().is_insecure) {
            problems.warning("Secret", "the certificate of vCenter is not verified, so its password may go to others");
        }
        problems.secret(login);
        problems.secret(SecretReader(secret).user_data());
    }

    /// VMs of a cluster and a role in one folder are listed for all classes with them. The datacenter may be written in several
    /// ways.
    fn may_list(spec: &Spec, other: &Spec) -> Option<bool> {
        let [one, other] = [spec.scope().ok()?, other.scope().ok()?];
        Some((one.folder, one.cluster, one.role) == (other.folder, other.cluster, other.role))
    }

    fn volume_id(spec: &PersistentVolumeSpec) -> Option<String> {
        volumes::id_of(spec)
    }

    async fn session(&self, spec: Spec, _: &MachineClass, secret: &SecretData) -> Result<Session, DriverError> {
        let scope = spec.scope()?;
        let access = &self.logins.access;
        let login = Login::from_secret(secret, &access.secrets)?;
        let soap = self.logins.get_or(&login, || {
            let client = self.logins.client(&login.tls())?;
            Ok(Soap::new(&self.logins.http, client, &login, access.limits.slowest))
        })?;
        let mut secret = secret.clone();
        for (key, value) in [(PASSWORD, &self.passwords.plain), (PASSWORD_HASH, &self.passwords.hash)] {
            secret.0.extend(value.clone().map(|value| (key.to_owned(), value.into_bytes())));
        }
        Ok(Session { spec, scope, login, api: Api { soap, secret }, shared: Arc::clone(&self.shared) })
    }

    fn creations(&self) -> Option<&dyn CreationLedger> {
        Some(&self.creations)
    }

    async fn create(&self, session: &Session, request: &MachineRequest) -> Result<Vm, DriverError> {
        let vm = self.cloned(session, request).await?;
        Ok(self.finish(session, request, vm).await?.as_created())
    }

    /// Finishes a VM whose creation broke off.
    async fn initialize(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        let session = self.open_session(&request.class, &request.secret).await?;
        let vm = self.settled(&session, request).await?;
        if vm.is_unfinished() {
            let mut problems = ClassProblems::default();
            Self::read_spec(&request.class, &mut problems);
            problems.to_result()?;
        }
        self.finish(&session, request, vm).await
    }

    async fn delete(&self, session: &Session, request: &MachineRequest) -> Result<Option<String>, DriverError> {
        let wanted = MachineIdentity::from_machine(&request.machine);
        self.creations.settled(&request.machine).await;
        if let Some(begun) = self.clones.get(wanted.uid) {
            let (pace, what) = (&self.patience.clone, format!("clone of VM {}", wanted.name));
            // Its outcome does not matter.
            let _ = self.clones.follow(&session.api, wanted.uid, &begun, pace, request.may_pause, &what).await?;
        }
        let mut found = self.find(session, request).await?;
        // An orphan has no UID.
        if found.is_empty() && request.machine.spec.provider_id.is_empty() && !wanted.uid.is_empty() {
            found = self.left(session, request).await?;
        }
        for vm in found {
            self.destroy(session, request, &vm).await?;
        }
        Ok(None)
    }

    /// [`Code::Uninitialized`]: the creation of the VM broke off.
    async fn status(&self, session: &Session, request: &MachineRequest) -> Result<Vm, VmLookupError> {
        let vm = self.settled(session, request).await?;
        if !vm.is_unfinished() {
            return Ok(vm.vm());
        }
        let message = format!("VM {} is not finished", vm.name());
        Err(DriverError { vm: Some(Box::new(vm.vm())), ..DriverError::new(Code::Uninitialized, message) }.into())
    }

    /// The custom fields of the cluster stay, so that its ID finds a VM that is handed over. It gets one that takes it off the list.
    async fn tag(
        &self,
        session: &Session,
        request: &MachineRequest,
        vm: VirtualMachine,
        is_listed: bool,
    ) -> Result<(), DriverError> {
        let of = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let values = if is_listed {
            let mut values = fields(&session.spec, &request.owner, &vm.provider_id());
            values.extend([of(UNLISTED_FIELD, "")]);
            values
        } else {
            [of(UNLISTED_FIELD, "true"), of(OWNER_FIELD, "")].into()
        };
        self.mark(session, &vm, &values).await
    }

    async fn inspect(&self, session: &Session, secret: &SecretData) -> Vec<ResourceFinding> {
        session.inspect(SecretReader(secret).user_data().err()).await
    }
}
