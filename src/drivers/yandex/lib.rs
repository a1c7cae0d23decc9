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
    Driver, DriverEnvironment, DriverError, DriverObserver, MachineRequest, OpenError, SecretData, Vm,
    cloud::{
        CloudAccess, CloudDriver, CloudOperations, CreationLedger, PollTiming, RequestReporter, VmCreations,
        VmLookupError, VmLookups, check_instance_name,
    },
    inspection::ResourceFinding,
    spec::ClassProblems,
};

pub use self::names::NAME;
use self::{
    accounts::Accounts,
    begin::{begin, look},
    calls::{Api, FoundInstances},
    instance::Instance,
    jwt::Signer,
    login::{Login, user_data},
    names::OWNER_LABEL,
    operation::Made,
    picks::Picks,
    session::{Session, id_of},
    spec::{Scope, Spec},
    work::{Work, creation_of},
};

/// Opens the driver, for the list of built-in drivers.
///
/// # Errors
/// None.
pub fn open(
    environment: &DriverEnvironment<'_>,
    observer: &Arc<dyn DriverObserver>,
) -> Result<Arc<dyn Driver>, OpenError> {
    let (access, requests) =
        (CloudAccess::from_environment(environment), RequestReporter::for_provider(NAME, observer));
    Ok(Arc::new(CloudDriver(YandexCloud::new(access, Patience::default(), requests))))
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

/// The instances of Yandex Cloud.
struct YandexCloud {
    accounts: Accounts,
    look_ups: Arc<VmLookups<Login, FoundInstances>>,
    creations: VmCreations<Made>,
    work: Work,
    picks: Arc<Picks>,
}

impl YandexCloud {
    fn new(access: CloudAccess, patience: Patience, requests: RequestReporter) -> Self {
        Self {
            accounts: Accounts::new(access, requests),
            look_ups: Arc::new(VmLookups::new(patience.window)),
            creations: VmCreations::new(patience.settles),
            work: Work::new(patience.pace),
            picks: Arc::default(),
        }
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

    /// Finds the instance of a Machine by its name, or requests one.
    async fn find_or_begin(&self, session: &Session, request: &MachineRequest) -> Result<Made, DriverError> {
        let look = look(session.clone(), Arc::clone(&request.machine));
        let begin = begin(session.clone(), request.clone(), Arc::clone(&self.picks));
        let (secret, what) = (session.api.secret.clone(), creation_of(request));
        self.creations.run(request, look, begin, move |failure| failure.error_of_creation(&what, &secret)).await
    }
}

#[async_trait]
impl CloudOperations for YandexCloud {
    type Spec = Spec;
    type Session = Session;

    const NAME: &'static str = NAME;
    const VMS: &'static str = "instances of Yandex Cloud";

    fn read_spec(class: &MachineClass, problems: &mut ClassProblems) -> Spec {
        Spec::read(class, problems)
    }

    fn check_secret(&self, _: Spec, _: &MachineClass, secret: &SecretData, problems: &mut ClassProblems) {
        let login = Login::from_secret(secret, &self.accounts.logins.access.secrets);
        problems.secret(login.and_then(|login| Signer::from_pem(&login.key.private_key)));
        let user_data = user_data(secret);
        if user_data.as_ref().is_ok_and(|text| text.trim().is_empty()) {
            problems.warning("Secret", "userData are empty: a VM without them does not become a Node");
        }
        problems.secret(user_data);
    }

    /// Instances of a cluster are listed for its classes with the same role. Their folders are in Secrets.
    fn may_list(spec: &Spec, other: &Spec) -> Option<bool> {
        Some(spec.markers.as_ref()?.cluster == other.markers.as_ref()?.cluster)
    }

    fn volume_id(spec: &PersistentVolumeSpec) -> Option<String> {
        volumes::id_of(spec)
    }

    async fn session(&self, spec: Spec, _: &MachineClass, secret: &SecretData) -> Result<Session, DriverError> {
        let login = Login::from_secret(secret, &self.accounts.logins.access.secrets)?;
        let scope = spec.scope(&login.folder)?;
        let services = self.accounts.services(&login).await?;
        let api = Api { services, folder: login.folder.clone(), secret: secret.clone() };
        Ok(Session { spec, scope, login, api, look_ups: Arc::clone(&self.look_ups) })
    }

    fn creations(&self) -> Option<&dyn CreationLedger> {
        Some(&self.creations)
    }

    fn check_creation(&self, request: &MachineRequest) -> Result<(), DriverError> {
        user_data(&request.secret)?;
        check_instance_name(&request.machine)
    }

    async fn create(&self, session: &Session, request: &MachineRequest) -> Result<Vm, DriverError> {
        let made = match self.work.earlier_creation(&request.machine) {
            Some(earlier) => Made::Begun(earlier),
            None => self.find_or_begin(session, request).await?,
        };
        let instance = match made {
            Made::Begun(creation) => self.work.created(&session.api, request, creation).await?,
            Made::Found(instance) => self.work.with_host(&session.api, request, instance, request.may_pause).await?,
        };
        Ok(instance.vm().as_created())
    }

    async fn delete(&self, session: &Session, request: &MachineRequest) -> Result<Option<String>, DriverError> {
        if let Some(id) = id_of(&request.machine)?.filter(|id| self.work.is_deleting(id)) {
            self.work.delete(&session.api, request, id, true).await?;
            return Ok(None);
        }
        self.created_or_not(session, request, request.may_pause).await?;
        for instance in self.find(session, request).await? {
            self.work.delete(&session.api, request, &instance.id, instance.is_deleting()).await?;
        }
        Ok(None)
    }

    async fn status(&self, session: &Session, request: &MachineRequest) -> Result<Vm, VmLookupError> {
        self.created_or_not(session, request, true).await?;
        let instance = self.find_only(session, request).await?;
        if !request.machine.spec.provider_id.is_empty() {
            return Ok(instance.vm());
        }
        Ok(self.work.with_host(&session.api, request, instance, true).await?.vm())
    }

    /// Without the role marker an instance is not listed. That of the cluster stays, so that no other class takes it.
    async fn tag(
        &self,
        session: &Session,
        request: &MachineRequest,
        mut instance: Instance,
        is_listed: bool,
    ) -> Result<(), DriverError> {
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

    async fn inspect(&self, session: &Session, secret: &SecretData) -> Vec<ResourceFinding> {
        session.inspect(user_data(secret).err()).await
    }
}
