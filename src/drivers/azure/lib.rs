//! The driver of Azure: VMs with a network interface and disks, found by their names in a resource group.
//!
//! `providerSpec` and Secret are those of Gardener's driver. `docs/conformance-azure.md` compares the two.
//!
//! Azure identifies each resource by its name, which is that of the Machine, so a repeated request cannot make a second VM. It
//! would change the first one, or that of another Machine: each creation begins with a read.

mod calls;
mod capacity;
mod clouds;
mod errors;
mod graph;
mod inspect;
mod keys;
mod login;
mod names;
mod operation;
mod order;
mod resource;
mod running;
mod session;
mod spec;
#[cfg(test)]
mod tests;
mod tokens;
mod volumes;

use std::{borrow::Cow, collections::BTreeMap, convert::Infallible, sync::Arc, time::Duration};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{NodeAddress, PersistentVolumeSpec};
use mcm_api::machine::MachineClass;
use mcm_driver::{
    Code, Driver, DriverEnvironment, DriverError, DriverObserver, MachineRequest, OpenError, SecretData, Vm,
    VmCapacity,
    cloud::{
        CloudAccess, CloudDriver, CloudOperations, CloudVm, LoginCache, LruCache, MOST_LOGINS, MachineIdentity,
        PollTiming, RequestReporter, SecretReader, TlsOptions, UserDataLimit, VmLookupError, only, until_done,
    },
    inspection::ResourceFinding,
    spec::ClassProblems,
};
use serde_json::{Value, json};
use tokio::{sync::Mutex, time::Instant};

pub use self::names::NAME;
use self::{
    calls::{Accepted, Api, Services},
    errors::{failure_of, is_unregistered},
    login::Login,
    names::{IDS, OWNER_TAG, VM_NAMES, nic_of, os_disk_of},
    order::Order,
    resource::{Kind, Resource, Stage, Target, tags_of},
    running::{Begun, Goal, Key, Running},
    session::{Ended, Facts, Place, Session, facts},
    spec::{DataDisk, Image, Spec},
    tokens::{Anonymous, Tokens},
};

/// More Machines than are created at a time.
const MOST_TURNS: usize = 10_000;
const USER_DATA_LIMIT: UserDataLimit = UserDataLimit::new("Azure", 65_535);

/// Opens the driver, for the list of built-in drivers.
///
/// # Errors
/// None: no cloud is asked.
pub fn open(
    environment: &DriverEnvironment<'_>,
    observer: &Arc<dyn DriverObserver>,
) -> Result<Arc<dyn Driver>, OpenError> {
    let (access, requests) =
        (CloudAccess::from_environment(environment), RequestReporter::for_provider(NAME, observer));
    Ok(Arc::new(CloudDriver(AzureVms::new(access, patience(), requests))))
}

/// How long a change may take. The reference waits as long.
fn patience() -> PollTiming {
    let seconds = Duration::from_secs;
    PollTiming { first: seconds(2), longest: seconds(15), total: seconds(900) }
}

/// The VMs of Azure.
struct AzureVms {
    pace: PollTiming,
    logins: LoginCache<Login, Services>,
    facts: Arc<Facts>,
    running: Running,
    /// Creations of one VM take turns: a second request would change what the first one makes.
    turns: LruCache<Key, Arc<Mutex<()>>>,
    /// When changes were seen first that no call here follows, such as those of an earlier process.
    seen: LruCache<Key, Instant>,
    /// Logins whose reports on operations Azure refused.
    unreported: Arc<LruCache<Login, ()>>,
}

/// A part of a VM that is created before it.
#[derive(Clone, Copy)]
enum Part<'a> {
    Nic(&'a Order<'a>),
    Disk(&'a Order<'a>, &'a DataDisk, &'a Image),
}

impl Part<'_> {
    /// The request that creates it.
    async fn body(self, session: &Session) -> Result<Value, DriverError> {
        match self {
            Self::Nic(order) => Ok(order.nic(&session.subnet_id().await?)),
            Self::Disk(order, disk, image) => {
                let id = match image.urn() {
                    Some(urn) => Some(session.marketplace(urn, false).await?.0),
                    None => None,
                };
                Ok(order.disk(disk, image, id.as_deref()))
            }
        }
    }
}

impl AzureVms {
    fn new(access: CloudAccess, pace: PollTiming, requests: RequestReporter) -> Self {
        Self {
            pace,
            logins: LoginCache::new(access, requests),
            facts: facts(),
            running: Running::new(pace.total),
            turns: LruCache::new(MOST_TURNS),
            seen: LruCache::new(MOST_TURNS),
            unreported: Arc::new(LruCache::new(MOST_LOGINS)),
        }
    }

    fn login(&self, class: &MachineClass, spec: &Spec, secret: &SecretData) -> Result<Login, DriverError> {
        let Some(cloud) = spec.cloud else {
            let message = format!("providerSpec.cloudConfiguration.name is none of {}", clouds::NAMES.join(", "));
            return Err(DriverError::new(Code::InvalidArgument, message));
        };
        Login::from_secret(secret, cloud, &self.logins.access.secrets.for_class(class))
    }

    fn services(&self, login: &Login) -> Result<Services, DriverError> {
        let tls = TlsOptions::default();
        let host = self.logins.rest(&tls, &login.authority, Box::new(Anonymous), failure_of)?;
        let tokens = Tokens::new(host, login.clone(), self.logins.access.secrets.folders.clone());
        Services::new(|| self.logins.rest(&tls, &login.api, Box::new(tokens.clone()), failure_of))
    }

    /// Creates the absent VM of a Machine, after its parts.
    async fn build(&self, session: &Session, request: &MachineRequest, order: &Order<'_>) -> Result<(), DriverError> {
        let plan = match session.spec.image.urn().filter(|_| !session.spec.skips_agreement) {
            Some(urn) => session.marketplace(urn, true).await?.1,
            None => None,
        };
        let nic = Target::new(Kind::Nic, nic_of(order.name));
        self.make(session, request, &nic, Part::Nic(order)).await?;
        for disk in &session.spec.data_disks {
            if let Some(image) = &disk.image {
                let target = Target::new(Kind::Disk, disk.name_at(order.name));
                self.make(session, request, &target, Part::Disk(order, disk, image)).await?;
            }
        }
        let vm = Target::new(Kind::Vm, order.name);
        if self.begin(session, request, &vm, order.vm(plan.as_ref())?).await? {
            return Ok(());
        }
        self.follow(session, request, &vm, Goal::Create).await?
    }

    /// Waits for the parts that an earlier call began to create. Nothing else is read meanwhile: Compute allows few reads of a VM.
    async fn await_parts(&self, session: &Session, request: &MachineRequest, vm: &str) -> Result<Ended, DriverError> {
        for part in parts_of(&session.spec, vm) {
            if self.running.pending_change(&session.key(&part, Goal::Create)).is_some() {
                let ended = self.follow(session, request, &part, Goal::Create).await?;
                if ended.is_err() {
                    return Ok(ended);
                }
            }
        }
        Ok(Ok(()))
    }

    /// Creates a part of a VM, unless there is one from an earlier call.
    async fn make(
        &self,
        session: &Session,
        request: &MachineRequest,
        target: &Target,
        part: Part<'_>,
    ) -> Result<(), DriverError> {
        let key = session.key(target, Goal::Create);
        if self.running.pending_change(&key).is_none() {
            let wanted = MachineIdentity::from_machine(&request.machine);
            match session.at(target).await? {
                Some(found) if !found.is_of(wanted, &session.scope) || found.is_held_by_another(wanted.name) => {
                    return Err(of_another(target));
                }
                Some(found) if found.stage() == Stage::Ready => return Ok(()),
                Some(found) if found.stage() == Stage::Deleting => {
                    return Err(self.not_yet(session, request, target, Goal::Delete));
                }
                Some(found) if found.stage() == Stage::Working => self.running.remember(key, Begun::now(None)),
                // A new request repairs a part that failed.
                _ => {
                    if self.begin(session, request, target, part.body(session).await?).await? {
                        return Ok(());
                    }
                }
            }
        }
        self.follow(session, request, target, Goal::Create).await?
    }

    /// Sends the request that creates a resource. True if it is carried out.
    async fn begin(
        &self,
        session: &Session,
        request: &MachineRequest,
        target: &Target,
        body: Value,
    ) -> Result<bool, DriverError> {
        // An earlier deletion is not one of what is created now.
        self.running.forget(&session.key(target, Goal::Delete));
        let group = &session.scope.resource_group;
        let mut accepted = session.api.put(group, target, body.clone()).await;
        let is_unregistered = matches!(&accepted, Err(failure) if is_unregistered(failure));
        if is_unregistered {
            self.register(session, request, target.kind).await?;
            accepted = session.api.put(group, target, body).await;
        }
        match accepted {
            Ok(Accepted::Done) => Ok(true),
            Ok(Accepted::Begun(operation)) => {
                self.running.remember(session.key(target, Goal::Create), Begun::now(operation));
                Ok(false)
            }
            Err(failure) => {
                let error = session.api.error(&failure, &format!("creation of {target}"));
                // Something that the class names, not the VM.
                let code = if failure.is_absence() { Code::Internal } else { error.code };
                Err(DriverError { code, ..error })
            }
        }
    }

    /// Registers the provider of a kind of resources, which a new subscription lacks.
    async fn register(&self, session: &Session, request: &MachineRequest, kind: Kind) -> Result<(), DriverError> {
        let [provider, ..] = kind.place();
        session.api.register(provider).await?;
        let what = format!("registration of resource provider {provider}");
        let registered = {
            let api = session.api.clone();
            move || api.clone().registration(kind)
        };
        until_done(&self.pace, Instant::now(), request.may_pause, &what, registered).await
    }

    /// Follows a change until Azure reports its end, or until this call may pause.
    async fn follow(
        &self,
        session: &Session,
        request: &MachineRequest,
        target: &Target,
        goal: Goal,
    ) -> Result<Ended, DriverError> {
        let key = session.key(target, goal);
        let begun = self.running.pending_change(&key).unwrap_or_else(|| Begun::now(None));
        let what = match goal {
            Goal::Create => format!("creation of {target}"),
            Goal::Delete => format!("deletion of {target}"),
        };
        let look = {
            let (session, target, what) = (session.clone(), target.clone(), what.clone());
            move || session.clone().look(target.clone(), goal, begun.operation.clone(), what.clone())
        };
        let ended = until_done(&self.pace, begun.since, request.may_pause, &what, look).await?;
        self.running.forget(&key);
        Ok(ended)
    }

    /// Removes what a creation left that failed for want of resources, so that nothing of it costs money. Nothing is waited for: the
    /// autoscaler needs the error.
    async fn give_up(&self, session: &Session, request: &MachineRequest, error: DriverError) -> DriverError {
        tracing::warn!(machine = MachineIdentity::from_machine(&request.machine).name, %error, "creation failed, its resources are deleted");
        match self.release(session, request).await {
            Ok(()) => error,
            Err(left) => DriverError { message: format!("{}; {}", error.message, left.message), ..error },
        }
    }

    async fn release(&self, session: &Session, request: &MachineRequest) -> Result<(), DriverError> {
        match session.find(&request.machine).await? {
            Some((place, vm)) => {
                let target = Target::new(Kind::Vm, place.name);
                self.begin_deletion(session, &target, &vm).await?;
                self.running.forget(&session.key(&target, Goal::Delete));
            }
            None => {
                let name = MachineIdentity::from_machine(&request.machine).name;
                for part in self.begin_deletion_of_parts(session, request, name).await? {
                    self.running.forget(&session.key(&part, Goal::Delete));
                }
            }
        }
        Ok(())
    }

    /// Begins to delete a VM, unless an earlier call did.
    async fn begin_deletion(&self, session: &Session, target: &Target, vm: &Resource) -> Result<Begun, DriverError> {
        let operation = match vm.stage() {
            Stage::Deleting => None,
            _ => session.api.delete(&session.scope.resource_group, target).await?,
        };
        self.running.forget(&session.key(target, Goal::Create));
        let begun = Begun { cascades: vm.cascades(), ..Begun::now(operation) };
        self.running.remember(session.key(target, Goal::Delete), begun.clone());
        Ok(begun)
    }

    /// Deletes the network interface and the disks of a Machine that no VM has.
    async fn delete_parts(&self, session: &Session, request: &MachineRequest, name: &str) -> Result<(), DriverError> {
        for part in self.begin_deletion_of_parts(session, request, name).await? {
            self.follow(session, request, &part, Goal::Delete).await??;
        }
        Ok(())
    }

    /// Begins to delete the parts of a VM; returns the parts in deletion.
    async fn begin_deletion_of_parts(
        &self,
        session: &Session,
        request: &MachineRequest,
        name: &str,
    ) -> Result<Vec<Target>, DriverError> {
        let mut begun = Vec::new();
        for target in parts_of(&session.spec, name) {
            let key = session.key(&target, Goal::Delete);
            if self.running.pending_change(&key).is_none() {
                let Some(part) = session.at(&target).await? else { continue };
                let is_ours = part.is_of(MachineIdentity::from_machine(&request.machine), &session.scope);
                if !is_ours || is_held(session, &part, name).await? {
                    tracing::warn!(%target, "it is of another machine or cluster, or in use: left alone");
                    continue;
                }
                let operation = match part.stage() {
                    Stage::Deleting => None,
                    _ => session.api.delete(&session.scope.resource_group, &target).await?,
                };
                self.running.remember(key, Begun::now(operation));
            }
            begun.push(target);
        }
        Ok(begun)
    }

    /// Azure still works on a resource. The pause grows with the time since the first such result: Compute allows few reads of a
    /// VM.
    fn not_yet(&self, session: &Session, request: &MachineRequest, target: &Target, goal: Goal) -> DriverError {
        let (key, state) = match goal {
            Goal::Create => (session.key(target, Goal::Create), "being created"),
            Goal::Delete => (session.key(target, Goal::Delete), "being deleted"),
        };
        let Ok(since) = self.seen.get_or(&key, || Ok::<_, Infallible>(Instant::now()));
        let call_again_in = Some(self.pace.pause(since.elapsed())).filter(|_| request.may_pause);
        DriverError { call_again_in, ..DriverError::new(Code::Unavailable, format!("{target} is still {state}")) }
    }
}

#[async_trait]
impl CloudOperations for AzureVms {
    type Spec = Spec;
    type Session = Session;

    const NAME: &'static str = NAME;
    const VMS: &'static str = "VMs of Azure";

    fn read_spec(class: &MachineClass, problems: &mut ClassProblems) -> Spec {
        Spec::read(&class.provider_spec, problems)
    }

    fn check_secret(&self, mut spec: Spec, class: &MachineClass, secret: &SecretData, problems: &mut ClassProblems) {
        // The check of the class reports an unknown cloud.
        spec.cloud = spec.cloud.or(Some(clouds::PUBLIC));
        problems.secret(self.login(class, &spec, secret));
        problems.secret(user_data(secret));
    }

    /// Machines of a resource group with the same markers are listed for all of its classes.
    fn may_list(spec: &Spec, other: &Spec) -> Option<bool> {
        let (scope, _) = (spec.scope().ok()?, other.scope().ok()?);
        let is_in = other.resource_group.eq_ignore_ascii_case(&scope.resource_group);
        let keys: Vec<String> = other.tags.keys().map(|key| key.to_ascii_lowercase()).collect();
        Some(is_in && scope.markers.are_on(keys.iter().map(String::as_str)))
    }

    fn volume_id(spec: &PersistentVolumeSpec) -> Option<String> {
        volumes::id_of(spec)
    }

    async fn session(&self, spec: Spec, class: &MachineClass, secret: &SecretData) -> Result<Session, DriverError> {
        let scope = spec.scope()?;
        let login = self.login(class, &spec, secret)?;
        let services = self.logins.get_or(&login, || self.services(&login))?;
        let (url, subscription) = (login.api.clone(), login.subscription.clone());
        let api = Api { services, url, subscription, secret: secret.clone() };
        let (facts, unreported) = (Arc::clone(&self.facts), Arc::clone(&self.unreported));
        Ok(Session { spec: Arc::new(spec), scope, login, api, facts, unreported })
    }

    async fn create(&self, session: &Session, request: &MachineRequest) -> Result<Vm, DriverError> {
        let wanted = MachineIdentity::from_machine(&request.machine);
        let Some(place) = session.place_of(&request.machine)? else { return Err(no_name(wanted.name)) };
        let target = Target::new(Kind::Vm, place.name);
        let key = session.key(&target, Goal::Create);
        let Ok(turn) = self.turns.get_or(&key, || Ok::<_, Infallible>(Arc::default()));
        let _turn = turn.lock().await;
        let parts = self.await_parts(session, request, place.name).await?;
        let made = if parts.is_err() {
            parts
        } else if self.running.pending_change(&key).is_some() {
            self.follow(session, request, &target, Goal::Create).await?
        } else {
            match session.at(&target).await? {
                Some(vm) if !vm.is_of(wanted, &session.scope) => return Err(of_another(&target)),
                Some(vm) => match vm.stage() {
                    Stage::Ready => return Ok(session.vm(&vm, place.location)),
                    Stage::Working => {
                        self.running.remember(key, Begun::now(None));
                        self.follow(session, request, &target, Goal::Create).await?
                    }
                    Stage::Deleting => return Err(self.not_yet(session, request, &target, Goal::Delete)),
                    Stage::Failed => match vm.failure().filter(|_| vm.is_starved()) {
                        Some(failure) => Err(session.api.error(&failure, &format!("creation of {target}"))),
                        // It may run all the same, and become a Node.
                        None => return Ok(session.vm(&vm, place.location)),
                    },
                },
                None => {
                    let order = Order {
                        spec: &session.spec,
                        name: place.name,
                        tags: tags_of(&session.spec.tags, wanted.uid, &request.owner),
                        user_data: user_data(&request.secret)?,
                        group_id: session.group_id(),
                    };
                    self.build(session, request, &order).await
                }
            }
        };
        match made {
            Ok(()) => Ok(created(session, place)),
            Err(error) if error.code == Code::ResourceExhausted => Err(self.give_up(session, request, error).await),
            Err(error) => Err(error),
        }
    }

    async fn delete(&self, session: &Session, request: &MachineRequest) -> Result<Option<String>, DriverError> {
        let Some(place) = session.place_of(&request.machine)? else { return Ok(None) };
        let target = Target::new(Kind::Vm, place.name);
        let begun = match self.running.pending_change(&session.key(&target, Goal::Delete)) {
            Some(begun) => Some(begun),
            None => match session.find(&request.machine).await? {
                Some((_, vm)) => Some(self.begin_deletion(session, &target, &vm).await?),
                None => None,
            },
        };
        if let Some(begun) = begun {
            self.follow(session, request, &target, Goal::Delete).await??;
            if begun.cascades {
                return Ok(None);
            }
        }
        self.delete_parts(session, request, place.name).await.map(|()| None)
    }

    async fn status(&self, session: &Session, request: &MachineRequest) -> Result<Vm, VmLookupError> {
        let machine = &*request.machine;
        let name = MachineIdentity::from_machine(machine).name;
        let found = session.find(machine).await?;
        let place = found.as_ref().map_or(&*session.scope.location, |(place, _)| place.location);
        let vm = only(found.into_iter().map(|(_, vm)| vm).collect(), name)?;
        if !machine.spec.provider_id.is_empty() {
            return Ok(session.vm(&vm, place));
        }
        let target = Target::new(Kind::Vm, vm.id());
        match vm.stage() {
            // Only the creation reports the reason of a failure.
            Stage::Working => Err(self.not_yet(session, request, &target, Goal::Create).into()),
            Stage::Deleting => Err(self.not_yet(session, request, &target, Goal::Delete).into()),
            Stage::Failed if vm.is_starved() => {
                let reason = "Azure had no capacity for it, and the next creation removes its rest";
                only::<Resource>(Vec::new(), name).map(|_| Vm::default()).map_err(|error| error.because(reason))
            }
            Stage::Failed | Stage::Ready => Ok(session.vm(&vm, place)),
        }
    }

    /// Only the VM is changed: parts are listed only if no VM has them.
    async fn tag(
        &self,
        session: &Session,
        request: &MachineRequest,
        vm: Resource,
        is_listed: bool,
    ) -> Result<(), DriverError> {
        let markers = &session.scope.markers;
        let tags = if is_listed {
            let own = session.spec.tags.iter().filter(|(key, _)| is_marker(key, markers));
            let owner = (!request.owner.is_empty()).then(|| (OWNER_TAG.to_owned(), request.owner.clone()));
            let own: BTreeMap<_, _> = own.map(|(key, value)| (key.clone(), value.clone())).chain(owner).collect();
            vm.tags_with(&own, &[])
        } else {
            vm.tags_with(&BTreeMap::new(), &[OWNER_TAG, &markers.cluster, &markers.role])
        };
        let target = Target::new(Kind::Vm, vm.id());
        session.api.set_tags(&session.scope.resource_group, &target, json!(tags)).await
    }

    async fn inspect(&self, session: &Session, secret: &SecretData) -> Vec<ResourceFinding> {
        session.inspect(user_data(secret).err()).await
    }

    fn capacity_key(spec: &Spec) -> Option<String> {
        capacity::capacity_key(spec)
    }

    async fn capacity(&self, session: &Session) -> Result<VmCapacity, DriverError> {
        session.capacity().await
    }
}

/// A VM has a part. A part may name the VM of the machine for a while after the deletion of that VM.
async fn is_held(session: &Session, part: &Resource, name: &str) -> Result<bool, DriverError> {
    if part.holder().is_none() || part.is_held_by_another(name) {
        return Ok(part.holder().is_some());
    }
    Ok(session.at(&Target::new(Kind::Vm, name)).await?.is_some())
}

fn is_marker(key: &str, markers: &mcm_driver::cloud::ClassMarkers) -> bool {
    [&markers.cluster, &markers.role].into_iter().any(|marker| marker.eq_ignore_ascii_case(key))
}

/// A VM whose creation succeeded.
fn created(session: &Session, place: Place<'_>) -> Vm {
    let location = place.location.replace(' ', "").to_ascii_lowercase();
    let provider_id = IDS.node_form(place.location, place.name);
    let address = NodeAddress { type_: "Hostname".to_owned(), address: place.name.to_owned() };
    Vm {
        last_known_state: Some(format!("Created {provider_id}")),
        provider_id,
        node_provider_id: Some(session.node_provider_id(place.name)),
        node_name: place.name.to_owned(),
        zone: session.spec.zone.map(|zone| format!("{location}-{zone}")),
        addresses: vec![address],
        halted: None,
    }
}

/// The network interface and the disks of a VM.
fn parts_of(spec: &Spec, name: &str) -> Vec<Target> {
    let data_disks = spec.data_disks.iter().map(|disk| disk.name_at(name));
    let disks = [os_disk_of(name)].into_iter().chain(data_disks).map(|disk| Target::new(Kind::Disk, disk));
    [Target::new(Kind::Nic, nic_of(name))].into_iter().chain(disks).collect()
}

/// The user data of a VM.
///
/// # Errors
/// [`Code::InvalidArgument`]: there are none, or they are larger than Azure allows.
fn user_data(secret: &SecretData) -> Result<Cow<'_, [u8]>, DriverError> {
    USER_DATA_LIMIT.fit(SecretReader(secret).user_data()?)
}

fn no_name(machine: &str) -> DriverError {
    let message = format!("machine {machine:?} cannot be the name of a VM in Azure: {VM_NAMES}");
    DriverError::new(Code::InvalidArgument, message)
}

fn of_another(target: &Target) -> DriverError {
    let message = format!("{target} exists, but is not of this machine: delete it, or let the machine be replaced");
    DriverError::new(Code::AlreadyExists, message)
}
