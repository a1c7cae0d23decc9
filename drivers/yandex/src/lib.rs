//! The driver of Yandex Cloud: VMs are instances of Compute Cloud, found by their name and their labels.
//!
//! `providerSpec` and Secret are those of the reference. `docs/conformance-yandex.md` compares the two.
//!
//! Three facts of the cloud shape it. Names are unique in a folder. A request with an idempotency key that the cloud remembers is
//! the same request. And it carries most requests out after its answer: a creation fails minutes later, for want of a host.

mod accounts;
mod calls;
mod endpoints;
mod errors;
mod inspect;
mod instance;
mod jwt;
mod login;
mod names;
mod operation;
mod order;
mod picks;
mod request;
mod session;
mod spec;
#[cfg(test)]
mod tests;
mod tokens;
mod volumes;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::PersistentVolumeSpec;
use mcm_api::machine::{Machine, MachineClass};
use mcm_driver::{
    Capabilities, Code, Driver, DriverError, Environment, Listed, MachineRequest, Observer, OpenError, SecretData, Vm,
    cloud::{
        CloudVm, Creations, Failure, Limits, Pace, Recent, Requests, Wanted, check_provider, idempotency_token, only,
        until_done,
    },
    inspection::Finding,
    spec::Problems,
};
use tokio::time::Instant;

pub use self::names::NAME;
use self::{
    accounts::{Access, Accounts},
    calls::Api,
    errors::Status,
    instance::Instance,
    jwt::Signer,
    login::{Login, user_data},
    names::{OWNER_LABEL, is_instance_name},
    operation::{Begun, Made, Operation},
    order::Order,
    picks::Picks,
    request::{begun, key, spent, spent_requests, stored_creation},
    session::{LookUps, Session, id_of, look_ups},
    spec::{Scope, Spec},
};

/// Most operations that are followed at a time.
const MOST_BEGUN: usize = 10_000;
/// Requests of one creation, if the earlier ones turn out to be spent.
const MOST_REQUESTS: u32 = 5;

/// Opens the driver, for the list of built-in drivers.
///
/// # Errors
/// None.
pub fn open(environment: &Environment<'_>, observer: &Arc<dyn Observer>) -> Result<Arc<dyn Driver>, OpenError> {
    let access = Access { limits: Limits::default(), uses_proxy: true, secrets: environment.secrets.clone() };
    Ok(Arc::new(YandexDriver::new(access, Patience::default(), Requests::of(NAME, observer))))
}

/// How long the driver waits.
#[derive(Clone, Copy, Debug)]
struct Patience {
    /// Look-ups wait for others to join them.
    window: Duration,
    /// A request without an answer is carried out by then, or never.
    settles: Duration,
    /// Operations are done.
    pace: Pace,
}

impl Default for Patience {
    fn default() -> Self {
        Self { window: Duration::from_millis(100), settles: Duration::from_secs(60), pace: Pace::default() }
    }
}

/// How work of the cloud ended. An error of this type is final, and one around it says that the end is not known yet.
type Ended<T> = Result<T, DriverError>;

/// The driver of Yandex Cloud.
struct YandexDriver {
    patience: Patience,
    accounts: Accounts,
    look_ups: Arc<LookUps>,
    creations: Creations<Made>,
    /// Creations that the cloud carries out, by the UID of their Machine.
    creating: Recent<String, Begun>,
    /// Deletions that the cloud carries out, by the ID of their instance.
    deleting: Recent<String, Begun>,
    picks: Arc<Picks>,
}

impl YandexDriver {
    fn new(access: Access, patience: Patience, requests: Requests) -> Self {
        Self {
            patience,
            accounts: Accounts::new(access, requests),
            look_ups: look_ups(patience.window),
            creations: Creations::new(patience.settles),
            creating: Recent::new(MOST_BEGUN),
            deleting: Recent::new(MOST_BEGUN),
            picks: Arc::default(),
        }
    }

    /// Fields that only a creation needs may be wrong.
    async fn session(&self, class: &MachineClass, secret: &SecretData) -> Result<Session, DriverError> {
        let mut problems = Problems::default();
        check_provider(class, NAME, &mut problems);
        problems.to_result()?;
        let spec = Spec::read(class, &mut problems);
        let login = Login::of(secret, &self.accounts.access.secrets)?;
        let scope = spec.scope(&login.folder)?;
        let services = self.accounts.services(&login).await?;
        let api = Api { services, folder: login.folder.clone(), secret: secret.clone() };
        Ok(Session { spec, scope, login, api, look_ups: Arc::clone(&self.look_ups) })
    }

    /// The instances of a Machine: the one with its provider ID or, without an ID, all that were created for it.
    async fn find(&self, session: &Session, request: &MachineRequest) -> Result<Vec<Instance>, DriverError> {
        let machine = &*request.machine;
        if !machine.spec.provider_id.is_empty() {
            return Ok(session.known(machine).await?.into_iter().collect());
        }
        let found = session.created_for(Wanted::of(machine)).await?;
        if found.is_empty() {
            self.creations.is_certain(request)?;
        }
        Ok(found)
    }

    /// Finds the instance of a Machine by its name, or requests one.
    async fn find_or_begin(&self, session: &Session, request: &MachineRequest) -> Result<Made, DriverError> {
        let look = {
            let (session, machine) = (session.clone(), Arc::clone(&request.machine));
            async move {
                let wanted = Wanted::of(&machine);
                let instances = session.named(wanted.name).await?;
                match mcm_driver::cloud::created_for(instances.clone(), wanted, &session.scope) {
                    none if none.is_empty() => {
                        instances.first().map_or(Ok(None), |other| Err(of_another(other, wanted)))
                    }
                    found => only(found, wanted.name).map(|instance| Some(Made::Found(instance))),
                }
            }
        };
        let begin = begin(session.clone(), request.clone(), Arc::clone(&self.picks));
        let (api, what) = (session.api.clone(), creation_of(request));
        self.creations.run(request, look, begin, move |failure| refused(api.error(failure, &what))).await
    }

    /// The creation of a Machine's VM that an earlier call began.
    fn earlier_creation(&self, machine: &Machine) -> Option<Begun> {
        let uid = Wanted::of(machine).uid;
        if uid.is_empty() || !machine.spec.provider_id.is_empty() {
            return None;
        }
        self.creating.get(&uid.to_owned()).or_else(|| stored_creation(machine))
    }

    /// Follows a creation to its end; returns the ID of its instance.
    async fn follow(
        &self,
        session: &Session,
        request: &MachineRequest,
        creation: Begun,
        may_pause: bool,
    ) -> Result<Ended<String>, DriverError> {
        // This call may be dropped at any time.
        remember(&self.creating, Wanted::of(&request.machine).uid, &creation);
        let (api, what, state) = (&session.api, &creation_of(request), begun(&creation));
        let Begun { id, mut answer, number, since } = creation;
        let look = || {
            let (answer, id) = (answer.take(), &id);
            async move { Ok(created_by(api, shown(api, answer, id).await?.as_ref(), number, what)) }
        };
        let ended = until_done(&self.patience.pace, since, may_pause, what, look).await;
        ended.map_err(|error| with_state(error, state))
    }

    /// The instance of a creation that an earlier call, or this one, began.
    async fn created(
        &self,
        session: &Session,
        request: &MachineRequest,
        creation: Begun,
    ) -> Result<Instance, DriverError> {
        let number = creation.number;
        let ended = self.follow(session, request, creation, request.may_pause).await?;
        self.creating.forget(&Wanted::of(&request.machine).uid.to_owned());
        session.api.instance(&ended?).await?.ok_or_else(|| {
            let message = format!("{} succeeded, but its instance is not there any more", creation_of(request));
            with_state(DriverError::new(Code::Aborted, message), spent(number.saturating_add(1)))
        })
    }

    /// While a creation is carried out, it is unknown whether the Machine has a VM.
    async fn created_or_not(
        &self,
        session: &Session,
        request: &MachineRequest,
        may_pause: bool,
    ) -> Result<(), DriverError> {
        let machine = &*request.machine;
        if machine.spec.provider_id.is_empty() {
            self.creations.settled(machine).await;
        }
        let Some(creation) = self.earlier_creation(machine) else { return Ok(()) };
        let ended =
            self.follow(session, request, creation, may_pause).await.map_err(|error| for_call(error, request))?;
        // One that failed is told by the next creation.
        if ended.is_ok() {
            self.creating.forget(&Wanted::of(machine).uid.to_owned());
        }
        Ok(())
    }

    /// The instance once it has a host. Until then its creation may fail.
    async fn with_host(
        &self,
        session: &Session,
        request: &MachineRequest,
        instance: Instance,
        may_pause: bool,
    ) -> Result<Instance, DriverError> {
        let (api, what) = (&session.api, &format!("creation of instance {}", instance.id));
        let (id, mut answer) = (instance.id.clone(), Some(instance));
        let look = || {
            let (answer, id) = (answer.take(), &id);
            async move {
                let instance = match answer {
                    Some(instance) => Some(instance),
                    None => api.instance(id).await?,
                };
                match instance {
                    Some(instance) if instance.is_provisioning() || instance.is_deleting() => Ok(None),
                    Some(instance) => Ok(Some(instance)),
                    None => Err(DriverError::new(Code::Aborted, format!("{what} failed: it is not there any more"))),
                }
            }
        };
        let ended = until_done(&self.patience.pace, Instant::now(), may_pause, what, look).await;
        ended.map_err(|error| for_call(error, request))
    }

    /// Deletes an instance, and waits until it is gone. `is_begun`: its deletion has begun.
    async fn delete_instance(
        &self,
        session: &Session,
        request: &MachineRequest,
        id: &str,
        is_begun: bool,
    ) -> Result<(), DriverError> {
        let (api, what) = (&session.api, &format!("deletion of instance {id}"));
        let deletion = match self.deleting.get(&id.to_owned()) {
            None if !is_begun => match api.delete(id).await? {
                Some(operation) => Some(Begun::now(operation, 0)),
                None => return Ok(()),
            },
            earlier => earlier,
        };
        if let Some(deletion) = &deletion {
            remember(&self.deleting, id, deletion);
        }
        let since = deletion.as_ref().map_or_else(Instant::now, |deletion| deletion.since);
        let operation = deletion.as_ref().map(|deletion| deletion.id.as_str());
        let mut answer = deletion.as_ref().and_then(|deletion| deletion.answer.clone());
        let look = || {
            let answer = answer.take();
            async move {
                let operation = match operation {
                    Some(operation) => shown(api, answer, operation).await?,
                    None => None,
                };
                match operation {
                    Some(operation) => Ok(deleted(api, &operation, what)),
                    None => Ok(gone(api.instance(id).await?.as_ref(), what)),
                }
            }
        };
        let ended = until_done(&self.patience.pace, since, request.may_pause, what, look).await?;
        self.deleting.forget(&id.to_owned());
        ended
    }

    /// Replaces the labels of an instance, and waits until it has them.
    async fn relabel(&self, session: &Session, instance: &Instance) -> Result<(), DriverError> {
        let (api, what) = (&session.api, &format!("update of instance {}", instance.id));
        let Begun { id, mut answer, since, .. } = Begun::now(api.set_labels(instance).await?, 0);
        let look = || {
            let (answer, id) = (answer.take(), &id);
            async move {
                match shown(api, answer, id).await? {
                    Some(operation) => Ok(ended(api, &operation, what)),
                    None => {
                        Err(DriverError::new(Code::Aborted, format!("{what} failed: the cloud forgot its operation")))
                    }
                }
            }
        };
        until_done(&self.patience.pace, since, false, what, look).await?
    }
}

/// Sends requests until one begins an operation, or has begun one whose instance is there.
async fn begin(session: Session, request: MachineRequest, picks: Arc<Picks>) -> Result<Made, Failure> {
    let (api, machine) = (&session.api, &*request.machine);
    let addresses = picks.addresses(api, &session.spec).await.map_err(before)?;
    let order = Order {
        spec: &session.spec,
        folder: &session.scope.folder,
        wanted: Wanted::of(machine),
        owner: &request.owner,
        user_data: user_data(&request.secret).map_err(before)?,
        addresses: &addresses,
    };
    let body = order.body();
    let first = spent_requests(machine);
    let last = first.saturating_add(MOST_REQUESTS - 1);
    let mut number = first;
    loop {
        let operation = api.create(&body, &key(machine, number).map_err(before)?).await?;
        if !operation.done || number >= last {
            return Ok(Made::Begun(Begun::now(operation, number)));
        }
        // The cloud remembers this request: it is an earlier one.
        let instance = operation.instance().filter(|_| operation.failure().is_none());
        if let Some(id) = instance
            && let Some(instance) = api.instance(id).await.map_err(before)?
        {
            return Ok(Made::Found(instance));
        }
        number = number.saturating_add(1);
    }
}

/// The failure of a request that was not sent, because a call before it failed.
fn before(error: DriverError) -> Failure {
    Failure::Credentials(error)
}

/// The error of a creation. What the cloud does not find is not a VM, but something that the class names.
fn refused(error: DriverError) -> DriverError {
    let code = if error.code == Code::NotFound { Code::InvalidArgument } else { error.code };
    DriverError { code, ..error }
}

fn with_state(error: DriverError, state: String) -> DriverError {
    DriverError { last_known_state: Some(state), ..error }
}

/// The error of a call that may pause or not.
fn for_call(error: DriverError, request: &MachineRequest) -> DriverError {
    DriverError { call_again_in: error.call_again_in.filter(|_| request.may_pause), ..error }
}

fn creation_of(request: &MachineRequest) -> String {
    format!("creation of VM {}", Wanted::of(&request.machine).name)
}

fn of_another(instance: &Instance, wanted: Wanted<'_>) -> DriverError {
    let message = format!(
        "instance {} has the name of machine {:?} and is of another cluster or an earlier machine: delete it, or rename one",
        instance.id(),
        wanted.name
    );
    DriverError::new(Code::AlreadyExists, message)
}

/// An operation: as the answer to its request has it, or as it is now. `None` if the cloud has it no more.
async fn shown(api: &Api, answer: Option<Operation>, id: &str) -> Result<Option<Operation>, DriverError> {
    match answer {
        Some(operation) => Ok(Some(operation)),
        None => api.operation(id).await,
    }
}

/// How an operation ended; `None` if it has not.
fn ended(api: &Api, operation: &Operation, what: &str) -> Option<Ended<()>> {
    match operation.failure() {
        Some(status) => Some(Err(api.error(&status.of_operation(), what))),
        None => operation.done.then_some(Ok(())),
    }
}

/// The same for a creation by the request with this number. An error has the state for the next request.
fn created_by(api: &Api, operation: Option<&Operation>, number: u32, what: &str) -> Option<Ended<String>> {
    let failed =
        |code, text: &str| Some(Err(with_state(DriverError::new(code, format!("{what}: {text}")), spent(number))));
    let Some(operation) = operation else { return failed(Code::Aborted, "the cloud forgot its operation") };
    match (ended(api, operation, what)?, operation.instance()) {
        (Err(error), _) => Some(Err(with_state(refused(error), spent(number.saturating_add(1))))),
        (Ok(()), Some(id)) => Some(Ok(id.to_owned())),
        (Ok(()), None) => failed(Code::Unknown, "its operation is done and names no instance"),
    }
}

/// The same for a deletion, which succeeds if there is nothing to delete.
fn deleted(api: &Api, operation: &Operation, what: &str) -> Option<Ended<()>> {
    let is_absent = operation.failure().is_some_and(Status::is_not_found);
    if is_absent { Some(Ok(())) } else { ended(api, operation, what) }
}

/// The same for a deletion without an operation, by its instance as it is now.
fn gone(instance: Option<&Instance>, what: &str) -> Option<Ended<()>> {
    match instance {
        None => Some(Ok(())),
        Some(instance) if instance.is_deleting() => None,
        Some(_) => Some(Err(DriverError::new(Code::Aborted, format!("{what} failed: it is still there")))),
    }
}

fn remember(all: &Recent<String, Begun>, key: &str, begun: &Begun) {
    all.put(key.to_owned(), Begun { answer: None, ..begun.clone() });
}

#[async_trait]
impl Driver for YandexDriver {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { initialize: false, list: true, inspect: true, tag: true }
    }

    fn validate(&self, class: &MachineClass) -> Problems {
        let mut problems = Problems::default();
        check_provider(class, NAME, &mut problems);
        Spec::read(class, &mut problems);
        problems
    }

    fn secret_problems(&self, _: &MachineClass, secret: &SecretData) -> Problems {
        let mut problems = Problems::default();
        let login = Login::of(secret, &self.accounts.access.secrets);
        if let Err(error) = login.and_then(|login| Signer::of(&login.key.private_key)) {
            problems.error("Secret", error.message);
        }
        match user_data(secret) {
            Err(error) => problems.error("Secret", error.message),
            Ok(text) if text.trim().is_empty() => {
                problems.warning("Secret", "userData are empty: a VM without them does not become a Node");
            }
            Ok(_) => {}
        }
        problems
    }

    async fn create(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        self.validate(&request.class).to_result()?;
        idempotency_token(&request.machine, 0)?;
        user_data(&request.secret)?;
        let wanted = Wanted::of(&request.machine);
        if !is_instance_name(wanted.name) {
            let message = format!(
                "machine {:?} cannot be the name of a VM: at most 63 lower-case letters, digits and hyphens, a letter first",
                wanted.name
            );
            return Err(DriverError::new(Code::InvalidArgument, message));
        }
        let session = self.session(&request.class, &request.secret).await?;
        let made = match self.earlier_creation(&request.machine) {
            Some(earlier) => Made::Begun(earlier),
            None => self.find_or_begin(&session, request).await?,
        };
        let instance = match made {
            Made::Begun(creation) => self.created(&session, request, creation).await?,
            Made::Found(instance) => self.with_host(&session, request, instance, request.may_pause).await?,
        };
        let vm = instance.vm();
        Ok(Vm { last_known_state: Some(format!("Created {}", vm.provider_id)), ..vm })
    }

    /// [`Code::Unimplemented`]: an instance needs nothing after its creation.
    async fn initialize(&self, _: &MachineRequest) -> Result<Vm, DriverError> {
        Err(DriverError::new(Code::Unimplemented, "instances of Yandex Cloud are not initialized"))
    }

    async fn delete(&self, request: &MachineRequest) -> Result<Option<String>, DriverError> {
        let session = self.session(&request.class, &request.secret).await?;
        if let Some(id) = id_of(&request.machine)?.filter(|id| self.deleting.get(&(*id).to_owned()).is_some()) {
            self.delete_instance(&session, request, id, true).await?;
            return Ok(None);
        }
        self.created_or_not(&session, request, request.may_pause).await?;
        for instance in self.find(&session, request).await? {
            self.delete_instance(&session, request, &instance.id, instance.is_deleting()).await?;
        }
        Ok(None)
    }

    async fn status(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        let session = self.session(&request.class, &request.secret).await?;
        self.created_or_not(&session, request, true).await?;
        let instance = only(self.find(&session, request).await?, Wanted::of(&request.machine).name)?;
        if !request.machine.spec.provider_id.is_empty() {
            return Ok(instance.vm());
        }
        Ok(self.with_host(&session, request, instance, true).await?.vm())
    }

    async fn list(&self, class: &MachineClass, secret: &SecretData) -> Result<Listed, DriverError> {
        let session = self.session(class, secret).await?;
        let all = session.api.instances().await?;
        let is_ours = |instance: &&Instance| {
            instance.folder_id == session.scope.folder
                && session.scope.markers.are_on(instance.labels.keys().map(String::as_str))
        };
        Ok(all.iter().filter(is_ours).map(|instance| (instance.provider_id(), instance.listed())).collect())
    }

    /// Instances of a cluster are listed for its classes with the same role. Their folders are in Secrets.
    fn may_list(&self, class: &MachineClass, other: &MachineClass) -> bool {
        let [class, other] = [class, other].map(|one| Spec::read(one, &mut Problems::default()).markers);
        match (class, other) {
            (Some(class), Some(other)) => class.cluster == other.cluster,
            _ => true,
        }
    }

    async fn inspect(&self, class: &MachineClass, secret: &SecretData) -> Result<Vec<Finding>, DriverError> {
        let session = self.session(class, secret).await?;
        Ok(session.inspect(user_data(secret).err()).await)
    }

    /// Without the role marker an instance is not listed. That of the cluster stays, so that no other class takes it.
    async fn tag(&self, request: &MachineRequest, is_listed: bool) -> Result<(), DriverError> {
        let session = self.session(&request.class, &request.secret).await?;
        let mut instance = only(self.find(&session, request).await?, Wanted::of(&request.machine).name)?;
        let Scope { markers, .. } = &session.scope;
        let value = |key: &String| session.spec.labels.get(key).cloned().unwrap_or_default();
        if is_listed {
            let owner = (OWNER_LABEL.to_owned(), request.owner.clone());
            let added = [&markers.cluster, &markers.role].map(|key| (key.clone(), value(key)));
            instance.labels.extend(added.into_iter().chain([owner].into_iter().filter(|(_, owner)| !owner.is_empty())));
        } else {
            instance.labels.retain(|key, _| key != OWNER_LABEL && *key != markers.role);
        }
        self.relabel(&session, &instance).await
    }

    async fn volume_ids(&self, specs: &[PersistentVolumeSpec]) -> Result<Vec<String>, DriverError> {
        Ok(specs.iter().filter_map(volumes::id_of).collect())
    }
}
