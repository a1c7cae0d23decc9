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
    Code, Driver, DriverEnvironment, DriverError, DriverObserver, MachineRequest, OpenError, SecretData, Vm,
    cloud::{
        AbsenceCache, CloudAccess, CloudDriver, CloudFailure, CloudOperations, CloudVm, CreationLedger, LoginCache,
        MachineIdentity, PollTiming, RequestReporter, TlsOptions, VmCreations, VmLookups, until_done,
    },
    inspection::ResourceFinding,
    spec::ClassProblems,
};
use tokio::time::Instant;

pub use crate::names::NAME;
use crate::{
    calls::{Api, FoundDevices},
    device::{Device, listed_tags, unlisted_tags},
    errors::failure_of,
    login::Login,
    names::check_name,
    order::{Order, user_data},
    session::{DevicePlace, Session},
    spec::Spec,
};

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
    let (access, requests) =
        (CloudAccess::from_environment(environment), RequestReporter::for_provider(NAME, observer));
    Ok(Arc::new(CloudDriver(EquinixMetal::new(access, Patience::default(), requests))))
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

/// The devices of Equinix Metal.
struct EquinixMetal {
    patience: Patience,
    logins: LoginCache<Login>,
    look_ups: Arc<VmLookups<DevicePlace, FoundDevices>>,
    creations: VmCreations<Device>,
    absences: AbsenceCache<DevicePlace>,
}

impl EquinixMetal {
    fn new(access: CloudAccess, patience: Patience, requests: RequestReporter) -> Self {
        Self {
            patience,
            logins: LoginCache::new(access, requests),
            look_ups: Arc::new(VmLookups::new(patience.window)),
            creations: VmCreations::new(patience.settles),
            absences: AbsenceCache::new(),
        }
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
impl CloudOperations for EquinixMetal {
    type Spec = Spec;
    type Session = Session;

    const NAME: &'static str = NAME;
    const VMS: &'static str = "devices of Equinix Metal";

    fn read_spec(class: &MachineClass, problems: &mut ClassProblems) -> Spec {
        problems.warning("provider", ENDED);
        Spec::read(&class.provider_spec, problems)
    }

    fn check_secret(&self, _: Spec, _: &MachineClass, secret: &SecretData, problems: &mut ClassProblems) {
        let login = Login::from_secret(secret, &self.logins.access.secrets);
        problems.secret(login.and_then(|login| login.authentication()));
        problems.secret(user_data(secret));
    }

    /// A list has the devices of each class of the project whose tags contain both markers.
    fn may_list(spec: &Spec, other: &Spec) -> Option<bool> {
        let (scope, of_other) = (spec.scope().ok()?, other.scope().ok()?);
        let is_marked = scope.markers.are_on(other.tags.iter().map(String::as_str));
        Some(scope.project == of_other.project && is_marked)
    }

    /// Devices have no volumes that can be detached.
    fn volume_id(_: &PersistentVolumeSpec) -> Option<String> {
        None
    }

    async fn session(&self, spec: Spec, _: &MachineClass, secret: &SecretData) -> Result<Session, DriverError> {
        let scope = spec.scope()?;
        let login = Login::from_secret(secret, &self.logins.access.secrets)?;
        let open =
            || self.logins.rest(&TlsOptions::default(), &login.url, Box::new(login.authentication()?), failure_of);
        let api = Api { rest: self.logins.get_or(&login, open)?, secret: secret.clone() };
        Ok(Session { spec, scope, login, api, look_ups: Arc::clone(&self.look_ups) })
    }

    fn creations(&self) -> Option<&dyn CreationLedger> {
        Some(&self.creations)
    }

    fn absences(&self) -> Option<&AbsenceCache<DevicePlace>> {
        Some(&self.absences)
    }

    fn check_creation(&self, request: &MachineRequest) -> Result<(), DriverError> {
        check_name(MachineIdentity::from_machine(&request.machine).name)
    }

    async fn create(&self, session: &Session, request: &MachineRequest) -> Result<Vm, DriverError> {
        let wanted = MachineIdentity::from_machine(&request.machine);
        let user_data = user_data(&request.secret)?;
        let orders = Order { spec: &session.spec, wanted, owner: &request.owner, user_data }.attempts();
        self.creations.announce(request)?;
        let create = {
            let (api, project) = (session.api.clone(), session.scope.project.clone());
            async move { api.create(&project, orders).await }
        };
        let (secret, what) = (session.api.secret.clone(), format!("creation of a device for machine {}", wanted.name));
        let error = move |failure: &CloudFailure| failure.error_of_creation(&what, &secret);
        let device = self.creations.run(request, self.look_once(session, request), create, error).await?;
        Ok(device.vm().as_created())
    }

    async fn delete(&self, session: &Session, request: &MachineRequest) -> Result<Option<String>, DriverError> {
        let found = self.find(session, request).await?;
        for device in found.iter().filter(|device| !device.is_leaving()) {
            if device.is_locked {
                let message = format!("device {} is locked: unlock it before it can be deleted", device.id);
                return Err(DriverError::new(Code::FailedPrecondition, message));
            }
            session.api.delete(&device.id).await?;
        }
        if request.machine.is_infrastructure() && !found.is_empty() {
            self.until_gone(session, request).await?;
        }
        Ok(None)
    }

    async fn tag(
        &self,
        session: &Session,
        request: &MachineRequest,
        device: Device,
        is_listed: bool,
    ) -> Result<(), DriverError> {
        let tags = if is_listed {
            listed_tags(&device.tags, &session.scope, &request.owner)
        } else {
            unlisted_tags(&device.tags, &session.scope)
        };
        session.api.set_tags(&device.id, &tags).await
    }

    async fn inspect(&self, session: &Session, secret: &SecretData) -> Vec<ResourceFinding> {
        session.inspect(user_data(secret).err()).await
    }
}
