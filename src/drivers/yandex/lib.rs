//! The driver of Yandex Cloud: VMs are instances of Compute Cloud, found by their name and their labels.
//!
//! `providerSpec` and Secret are those of the reference. `docs/conformance-yandex.md` compares the two.
//!
//! Three facts of the cloud shape it. Names are unique in a folder. A request with an idempotency key that the cloud remembers is
//! the same request. And it carries most requests out after its answer: a creation fails minutes later, for want of a host.

mod accounts;
mod begin;
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
mod work;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::PersistentVolumeSpec;
use mcm_api::machine::MachineClass;
use mcm_driver::{
    Code, Driver, DriverCapabilities, DriverEnvironment, DriverError, DriverObserver, MachineRequest, OpenError,
    SecretData, Vm, VmsByProviderId,
    cloud::{
        CloudVm, CreationLedger, HttpLimits, MachineIdentity, PollTiming, RequestReporter, VmCreations, check_provider,
        idempotency_token, only,
    },
    inspection::ResourceFinding,
    spec::ClassProblems,
};

pub use self::names::NAME;
use self::{
    accounts::{Access, Accounts},
    begin::{begin, look},
    calls::Api,
    instance::Instance,
    jwt::Signer,
    login::{Login, user_data},
    names::{OWNER_LABEL, is_instance_name},
    operation::Made,
    picks::Picks,
    session::{LookUps, Session, id_of, look_ups},
    spec::{Scope, Spec},
    work::{Work, creation_of, refused},
};

/// Opens the driver, for the list of built-in drivers.
///
/// # Errors
/// None.
pub fn open(
    environment: &DriverEnvironment<'_>,
    observer: &Arc<dyn DriverObserver>,
) -> Result<Arc<dyn Driver>, OpenError> {
    let access = Access { limits: HttpLimits::default(), uses_proxy: true, secrets: environment.secrets.clone() };
    Ok(Arc::new(YandexDriver::new(access, Patience::default(), RequestReporter::for_provider(NAME, observer))))
}

/// How long the driver waits.
#[derive(Clone, Copy, Debug)]
struct Patience {
    /// Look-ups wait for others to join them.
    window: Duration,
    /// A request without an answer is carried out by then, or never.
    settles: Duration,
    /// Operations are done.
    pace: PollTiming,
}

impl Default for Patience {
    fn default() -> Self {
        Self { window: Duration::from_millis(100), settles: Duration::from_secs(60), pace: PollTiming::default() }
    }
}

/// The driver of Yandex Cloud.
struct YandexDriver {
    accounts: Accounts,
    look_ups: Arc<LookUps>,
    creations: VmCreations<Made>,
    work: Work,
    picks: Arc<Picks>,
}

impl YandexDriver {
    fn new(access: Access, patience: Patience, requests: RequestReporter) -> Self {
        Self {
            accounts: Accounts::new(access, requests),
            look_ups: look_ups(patience.window),
            creations: VmCreations::new(patience.settles),
            work: Work::new(patience.pace),
            picks: Arc::default(),
        }
    }

    /// Fields that only a creation needs may be wrong.
    async fn session(&self, class: &MachineClass, secret: &SecretData) -> Result<Session, DriverError> {
        let mut problems = ClassProblems::default();
        check_provider(class, NAME, &mut problems);
        problems.to_result()?;
        let spec = Spec::read(class, &mut problems);
        let login = Login::from_secret(secret, &self.accounts.access.secrets)?;
        let scope = spec.scope(&login.folder)?;
        let services = self.accounts.services(&login).await?;
        let api = Api { services, folder: login.folder.clone(), secret: secret.clone() };
        Ok(Session { spec, scope, login, api, look_ups: Arc::clone(&self.look_ups) })
    }

    /// Waits until nothing that was begun for a Machine may still become its VM.
    async fn created_or_not(
        &self,
        session: &Session,
        request: &MachineRequest,
        may_pause: bool,
    ) -> Result<(), DriverError> {
        if request.machine.spec.provider_id.is_empty() {
            self.creations.settled(&request.machine).await;
        }
        self.work.created_or_not(&session.api, request, may_pause).await
    }

    /// The instances of a Machine: by its provider ID or, without an ID, all that were created for it.
    async fn find(&self, session: &Session, request: &MachineRequest) -> Result<Vec<Instance>, DriverError> {
        let machine = &*request.machine;
        if !machine.spec.provider_id.is_empty() {
            return Ok(session.known(machine).await?.into_iter().collect());
        }
        self.creations.find(request, session.created_for(MachineIdentity::from_machine(machine)), Vec::is_empty).await
    }

    /// Finds the instance of a Machine by its name, or requests one.
    async fn find_or_begin(&self, session: &Session, request: &MachineRequest) -> Result<Made, DriverError> {
        let look = look(session.clone(), Arc::clone(&request.machine));
        let begin = begin(session.clone(), request.clone(), Arc::clone(&self.picks));
        let (api, what) = (session.api.clone(), creation_of(request));
        self.creations.run(request, look, begin, move |failure| refused(api.error(failure, &what))).await
    }
}

#[async_trait]
impl Driver for YandexDriver {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> DriverCapabilities {
        DriverCapabilities { initialize: false, list: true, inspect: true, tag: true }
    }

    fn validate(&self, class: &MachineClass) -> ClassProblems {
        let mut problems = ClassProblems::default();
        check_provider(class, NAME, &mut problems);
        Spec::read(class, &mut problems);
        problems
    }

    fn secret_problems(&self, _: &MachineClass, secret: &SecretData) -> ClassProblems {
        let mut problems = ClassProblems::default();
        let login = Login::from_secret(secret, &self.accounts.access.secrets);
        if let Err(error) = login.and_then(|login| Signer::from_pem(&login.key.private_key)) {
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
        let wanted = MachineIdentity::from_machine(&request.machine);
        if !is_instance_name(wanted.name) {
            let message = format!(
                "machine {:?} cannot be the name of a VM: at most 63 lower-case letters, digits and hyphens, a letter first",
                wanted.name
            );
            return Err(DriverError::new(Code::InvalidArgument, message));
        }
        let session = self.session(&request.class, &request.secret).await?;
        let made = match self.work.earlier_creation(&request.machine) {
            Some(earlier) => Made::Begun(earlier),
            None => self.find_or_begin(&session, request).await?,
        };
        let instance = match made {
            Made::Begun(creation) => self.work.created(&session.api, request, creation).await?,
            Made::Found(instance) => self.work.with_host(&session.api, request, instance, request.may_pause).await?,
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
        if let Some(id) = id_of(&request.machine)?.filter(|id| self.work.is_deleting(id)) {
            self.work.delete(&session.api, request, id, true).await?;
            return Ok(None);
        }
        self.created_or_not(&session, request, request.may_pause).await?;
        for instance in self.find(&session, request).await? {
            self.work.delete(&session.api, request, &instance.id, instance.is_deleting()).await?;
        }
        Ok(None)
    }

    async fn status(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        let session = self.session(&request.class, &request.secret).await?;
        self.created_or_not(&session, request, true).await?;
        let instance = only(self.find(&session, request).await?, MachineIdentity::from_machine(&request.machine).name)?;
        if !request.machine.spec.provider_id.is_empty() {
            return Ok(instance.vm());
        }
        Ok(self.work.with_host(&session.api, request, instance, true).await?.vm())
    }

    async fn list(&self, class: &MachineClass, secret: &SecretData) -> Result<VmsByProviderId, DriverError> {
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
        let [class, other] = [class, other].map(|one| Spec::read(one, &mut ClassProblems::default()).markers);
        match (class, other) {
            (Some(class), Some(other)) => class.cluster == other.cluster,
            _ => true,
        }
    }

    async fn inspect(&self, class: &MachineClass, secret: &SecretData) -> Result<Vec<ResourceFinding>, DriverError> {
        let session = self.session(class, secret).await?;
        Ok(session.inspect(user_data(secret).err()).await)
    }

    /// Without the role marker an instance is not listed. That of the cluster stays, so that no other class takes it.
    async fn tag(&self, request: &MachineRequest, is_listed: bool) -> Result<(), DriverError> {
        let session = self.session(&request.class, &request.secret).await?;
        let mut instance =
            only(self.find(&session, request).await?, MachineIdentity::from_machine(&request.machine).name)?;
        let Scope { markers, .. } = &session.scope;
        let value = |key: &String| session.spec.labels.get(key).cloned().unwrap_or_default();
        if is_listed {
            let owner = (OWNER_LABEL.to_owned(), request.owner.clone());
            let added = [&markers.cluster, &markers.role].map(|key| (key.clone(), value(key)));
            instance.labels.extend(added.into_iter().chain([owner].into_iter().filter(|(_, owner)| !owner.is_empty())));
        } else {
            instance.labels.retain(|key, _| key != OWNER_LABEL && *key != markers.role);
        }
        self.work.relabel(&session.api, &instance).await
    }

    async fn volume_ids(&self, specs: &[PersistentVolumeSpec]) -> Result<Vec<String>, DriverError> {
        Ok(specs.iter().filter_map(volumes::id_of).collect())
    }
}
