//! The driver of Equinix Metal: VMs are physical servers, which its API calls devices.
//!
//! `providerSpec` and Secret are those of Gardener's driver. `docs/conformance-equinix-metal.md` compares the two. The cloud ended on
//! 2026-06-30, so the driver is for deletions and migrations, and warns of each class.
//!
//! Two facts of the API shape it. A request of a creation has no idempotency token, so a Machine has one request at a time, and after
//! one without an answer no other until it certainly had no effect. And the API refuses to show some devices that failed, so the list
//! of the project decides whether they exist.

mod calls;
mod device;
mod errors;
mod inspect;
mod login;
mod names;
mod order;
mod session;
mod spec;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::PersistentVolumeSpec;
use mcm_api::machine::MachineClass;
use mcm_driver::{
    Code, Driver, DriverCapabilities, DriverEnvironment, DriverError, DriverObserver, MachineRequest, OpenError,
    SecretData, SecretPolicy, Vm, VmsByProviderId,
    cloud::{
        AbsenceCache, CloudVm, HttpClient, HttpLimits, LruCache, MachineIdentity, PollTiming, RequestReporter,
        RestClient, TlsClientCache, TlsOptions, VmCreations, VmOwnership, check_provider, idempotency_token, only,
        until_done,
    },
    inspection::ResourceFinding,
    spec::ClassProblems,
};
use tokio::time::Instant;

pub use crate::names::NAME;
use crate::{
    calls::Api,
    device::{Device, listed_tags, unlisted_tags},
    errors::failure_of,
    login::Login,
    names::check_name,
    order::{Order, user_data},
    session::{LookUps, Place, Session, look_ups},
    spec::Spec,
};

/// More logins than any installation has.
const MOST_LOGINS: usize = 256;
const ENDED: &str =
    "Equinix Metal ended on 2026-06-30: machines can be deleted, and new ones are not expected to be created";

/// Opens the driver, for the list of built-in drivers.
///
/// # Errors
/// None.
pub fn open(
    environment: &DriverEnvironment<'_>,
    observer: &Arc<dyn DriverObserver>,
) -> Result<Arc<dyn Driver>, OpenError> {
    let access = Access { limits: HttpLimits::default(), uses_proxy: true, secrets: environment.secrets.clone() };
    Ok(Arc::new(EquinixDriver::new(access, Patience::default(), RequestReporter::for_provider(NAME, observer))))
}

/// How the API is called.
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
    /// A creation without an answer is carried out by then, or never.
    settles: Duration,
    /// The API shows a device that is leaving.
    leaving: PollTiming,
}

impl Default for Patience {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        let leaving = PollTiming { first: seconds(10), longest: seconds(30), total: seconds(3600) };
        Self { window: Duration::from_millis(100), settles: seconds(60), leaving }
    }
}

/// The devices of several that are not leaving.
fn staying(mut devices: Vec<Device>) -> Vec<Device> {
    devices.retain(|device| !device.is_leaving());
    devices
}

/// The driver of Equinix Metal.
struct EquinixDriver {
    patience: Patience,
    access: Access,
    http: Arc<HttpClient>,
    connections: TlsClientCache,
    logins: LruCache<Login, Arc<RestClient>>,
    look_ups: Arc<LookUps>,
    creations: VmCreations<Device>,
    absences: AbsenceCache<Place>,
}

impl EquinixDriver {
    fn new(access: Access, patience: Patience, requests: RequestReporter) -> Self {
        Self {
            patience,
            http: Arc::new(HttpClient::new(access.limits, access.uses_proxy, requests)),
            connections: TlsClientCache::new(access.limits.attempt, access.uses_proxy),
            logins: LruCache::new(MOST_LOGINS),
            look_ups: look_ups(patience.window),
            creations: VmCreations::new(patience.settles),
            absences: AbsenceCache::new(),
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
        let api = Api { rest, secret: secret.clone() };
        Ok(Session { spec, scope, login, api, look_ups: Arc::clone(&self.look_ups) })
    }

    fn rest(&self, login: &Login) -> Result<Arc<RestClient>, DriverError> {
        let client = self.connections.client(&TlsOptions::default())?;
        let (url, token) = (login.url.clone(), Box::new(login.authentication()?));
        Ok(Arc::new(RestClient::new(&self.http, client, url, token, self.access.limits.slowest, failure_of)))
    }

    /// The devices of a Machine: the device with its provider ID or, without an ID, all that were created for it. They may be
    /// leaving.
    async fn find(&self, session: &Session, request: &MachineRequest) -> Result<Vec<Device>, DriverError> {
        let machine = &*request.machine;
        if !machine.spec.provider_id.is_empty() {
            return Ok(session.known(machine).await?.into_iter().collect());
        }
        let wanted = MachineIdentity::from_machine(machine);
        let looking = self.absences.look(session.place(), wanted);
        let is_absent = |found: &Vec<Device>| found.iter().all(Device::is_leaving);
        let found = self.creations.find(request, session.created_for(wanted), is_absent).await?;
        if is_absent(&found) {
            looking.found_none();
        }
        Ok(found)
    }

    /// Waits until the API shows no device of a Machine any more. Cluster API core deletes the Node after its VM, so the kubelet
    /// must have ended; the machine controller deletes the Node itself and need not wait.
    async fn until_gone(&self, session: &Session, request: &MachineRequest) -> Result<(), DriverError> {
        let what =
            format!("deletion of the device of machine {}", MachineIdentity::from_machine(&request.machine).name);
        let look = || async { Ok(self.find(session, request).await?.is_empty().then_some(())) };
        until_done(&self.patience.leaving, Instant::now(), request.may_pause, &what, look).await
    }
}

#[async_trait]
impl Driver for EquinixDriver {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> DriverCapabilities {
        DriverCapabilities { initialize: false, list: true, inspect: true, tag: true }
    }

    fn validate(&self, class: &MachineClass) -> ClassProblems {
        let mut problems = ClassProblems::default();
        check_provider(class, NAME, &mut problems);
        problems.warning("provider", ENDED);
        Spec::read(&class.provider_spec, &mut problems);
        problems
    }

    fn secret_problems(&self, _: &MachineClass, secret: &SecretData) -> ClassProblems {
        let mut problems = ClassProblems::default();
        let login = Login::from_secret(secret, &self.access.secrets).and_then(|login| login.authentication().map(drop));
        for error in [login.err(), user_data(secret).err()].into_iter().flatten() {
            problems.error("Secret", error.message);
        }
        problems
    }

    async fn create(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        self.validate(&request.class).to_result()?;
        idempotency_token(&request.machine, 0)?;
        let session = self.session(&request.class, &request.secret)?;
        let wanted = MachineIdentity::from_machine(&request.machine);
        check_name(wanted.name)?;
        let user_data = user_data(&request.secret)?;
        let orders = Order { spec: &session.spec, wanted, owner: &request.owner, user_data }.attempts();
        self.creations.announce(request)?;
        let is_absent = self.absences.take(session.place(), wanted);
        let look = {
            let (session, machine) = (session.clone(), Arc::clone(&request.machine));
            async move {
                if is_absent {
                    return Ok(None);
                }
                let wanted = MachineIdentity::from_machine(&machine);
                match staying(session.created_for(wanted).await?) {
                    none if none.is_empty() => Ok(None),
                    found => only(found, wanted.name).map(Some),
                }
            }
        };
        let create = {
            let (api, project) = (session.api.clone(), session.scope.project.clone());
            async move { api.create(&project, orders).await }
        };
        let (api, what) = (session.api.clone(), format!("creation of a device for machine {}", wanted.name));
        let device = self.creations.run(request, look, create, move |failure| api.error(failure, &what)).await?;
        let vm = device.vm();
        Ok(Vm { last_known_state: Some(format!("Created {}", vm.provider_id)), ..vm })
    }

    /// [`Code::Unimplemented`]: a device needs nothing after its creation.
    async fn initialize(&self, _: &MachineRequest) -> Result<Vm, DriverError> {
        Err(DriverError::new(Code::Unimplemented, "devices of Equinix Metal are not initialized"))
    }

    async fn delete(&self, request: &MachineRequest) -> Result<Option<String>, DriverError> {
        let session = self.session(&request.class, &request.secret)?;
        let found = self.find(&session, request).await?;
        for device in found.iter().filter(|device| !device.is_leaving()) {
            if device.is_locked {
                let message = format!("device {} is locked: unlock it before it can be deleted", device.id);
                return Err(DriverError::new(Code::FailedPrecondition, message));
            }
            session.api.delete(&device.id).await?;
        }
        if request.machine.is_infrastructure() && !found.is_empty() {
            self.until_gone(&session, request).await?;
        }
        Ok(None)
    }

    async fn status(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        let session = self.session(&request.class, &request.secret)?;
        let found = staying(self.find(&session, request).await?);
        Ok(only(found, MachineIdentity::from_machine(&request.machine).name)?.vm())
    }

    async fn list(&self, class: &MachineClass, secret: &SecretData) -> Result<VmsByProviderId, DriverError> {
        let session = self.session(class, secret)?;
        let all = session.api.of_project(&session.scope.project).await?;
        let is_ours = |device: &&Device| !device.is_leaving() && device.belonging(&session.scope) == VmOwnership::Ours;
        let ours = all.iter().filter(is_ours);
        Ok(ours.map(|device| (device.provider_id(), device.listed())).collect())
    }

    /// A list has the devices of each class of the project whose tags contain both markers.
    fn may_list(&self, class: &MachineClass, other: &MachineClass) -> bool {
        let [class, other] = [class, other].map(|one| Spec::read(&one.provider_spec, &mut ClassProblems::default()));
        match (class.scope(), other.scope()) {
            (Ok(scope), Ok(of_other)) => {
                scope.project == of_other.project && scope.markers.are_on(other.tags.iter().map(String::as_str))
            }
            _ => true,
        }
    }

    async fn inspect(&self, class: &MachineClass, secret: &SecretData) -> Result<Vec<ResourceFinding>, DriverError> {
        let session = self.session(class, secret)?;
        Ok(session.inspect(user_data(secret).err()).await)
    }

    async fn tag(&self, request: &MachineRequest, is_listed: bool) -> Result<(), DriverError> {
        let session = self.session(&request.class, &request.secret)?;
        let device =
            only(staying(self.find(&session, request).await?), MachineIdentity::from_machine(&request.machine).name)?;
        let tags = if is_listed {
            listed_tags(&device.tags, &session.scope, &request.owner)
        } else {
            unlisted_tags(&device.tags, &session.scope)
        };
        session.api.set_tags(&device.id, &tags).await
    }

    /// Devices have no volumes that can be detached.
    async fn volume_ids(&self, _: &[PersistentVolumeSpec]) -> Result<Vec<String>, DriverError> {
        Ok(Vec::new())
    }
}
