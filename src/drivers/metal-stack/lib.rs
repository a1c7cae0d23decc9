//! The driver of metal-stack: VMs are physical servers, found by the tag of their cluster.
//!
//! `providerSpec` and Secret are those of metal-stack's driver. `docs/conformance-metal-stack.md` compares the two.
//!
//! Two facts of metal-api shape it. A request of an allocation has no idempotency token, so a Machine has one request at a time, and
//! after one without an answer no other until it certainly had no effect. And a server that is freed is allocated to others, so a
//! provider ID alone never proves whose it is.

mod calls;
mod errors;
mod hmac;
mod inspect;
mod login;
mod names;
mod order;
mod server;
mod session;
mod spec;
#[cfg(test)]
mod tests;
mod volumes;

use std::{convert::Infallible, sync::Arc, time::Duration};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::PersistentVolumeSpec;
use mcm_api::machine::{Machine, MachineClass};
use mcm_driver::{
    Code, Driver, DriverEnvironment, DriverError, DriverObserver, MachineRequest, OpenError, SecretData, Vm,
    cloud::{
        AbsenceCache, CloudAccess, CloudDriver, CloudFailure, CloudOperations, CloudSession, CreationLedger,
        LoginCache, LruCache, MachineIdentity, RequestReporter, TlsOptions, VmCreations, VmLookups,
    },
    inspection::ResourceFinding,
    spec::ClassProblems,
};
use tokio::time::{Instant, sleep};

pub use self::names::NAME;
use self::{
    calls::{Api, FoundServers},
    errors::failure_of,
    login::Login,
    names::{OWNER_TAG, UNLISTED_TAG},
    order::{Order, user_data},
    server::{Server, listing_tags},
    session::{ServerPlace, Session},
    spec::Spec,
};

/// Most allocations that were freed and are remembered until metal-api shows it.
const MOST_FREED: usize = 10_000;

/// Opens the driver, for the list of built-in drivers.
pub fn open(
    environment: &DriverEnvironment<'_>,
    observer: &Arc<dyn DriverObserver>,
) -> Result<Arc<dyn Driver>, OpenError> {
    let (access, requests) =
        (CloudAccess::from_environment(environment), RequestReporter::for_provider(NAME, observer));
    Ok(Arc::new(CloudDriver(MetalStack::new(access, Patience::default(), requests))))
}

/// How long the driver waits.
#[derive(Clone, Copy, Debug)]
struct Patience {
    /// Look-ups wait for others to join them.
    window: Duration,
    /// An allocation without an answer is carried out by then, or never.
    settles: Duration,
    /// The pause between two reads of a machine that is being freed.
    pause: Duration,
    /// A machine is freed.
    total: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { window: Duration::from_millis(100), settles: seconds(60), pause: seconds(5), total: seconds(300) }
    }
}

/// The machines of metal-stack.
struct MetalStack {
    patience: Patience,
    logins: LoginCache<Login>,
    look_ups: Arc<VmLookups<ServerPlace, FoundServers>>,
    creations: VmCreations<Server>,
    absences: AbsenceCache<ServerPlace>,
    /// Allocations that were freed, and when.
    freed: LruCache<String, Instant>,
}

impl MetalStack {
    fn new(access: CloudAccess, patience: Patience, requests: RequestReporter) -> Self {
        Self {
            patience,
            logins: LoginCache::new(access, requests),
            look_ups: Arc::new(VmLookups::new(patience.window)),
            creations: VmCreations::new(patience.settles),
            absences: AbsenceCache::new(),
            freed: LruCache::new(MOST_FREED),
        }
    }

    /// Frees a machine, and waits until metal-api shows that it is free.
    async fn free(&self, session: &Session, request: &MachineRequest, server: &Server) -> Result<(), DriverError> {
        if !self.was_freed(server) && session.api.free(&server.id).await? {
            return Ok(());
        }
        let (Ok(_) | Err::<_, Infallible>(_)) = self.freed.get_or(&server.allocation.uuid, || Ok(Instant::now()));
        let deadline = Instant::now() + self.patience.total;
        while self.is_allocated(session, &request.machine, server).await? {
            let message = format!("machine {} is being freed", server.id);
            if request.may_pause {
                return Err(DriverError::not_done(message, self.patience.pause));
            }
            if Instant::now() + self.patience.pause > deadline {
                return Err(DriverError::new(Code::DeadlineExceeded, message));
            }
            sleep(self.patience.pause).await;
        }
        Ok(())
    }

    /// An allocation was freed lately, and metal-api still works on it.
    fn was_freed(&self, server: &Server) -> bool {
        let since = self.freed.get_or(&server.allocation.uuid, || Err(()));
        since.is_ok_and(|since| since.elapsed() < self.patience.total)
    }

    /// A machine still has the same allocation.
    async fn is_allocated(&self, session: &Session, machine: &Machine, server: &Server) -> Result<bool, DriverError> {
        let mut known = machine.clone();
        known.spec.provider_id = server.provider_id();
        let found = session.known(&known).await?;
        Ok(found.is_some_and(|found| found.allocation.uuid == server.allocation.uuid))
    }
}

#[async_trait]
impl CloudOperations for MetalStack {
    type Spec = Spec;
    type Session = Session;

    const NAME: &'static str = NAME;
    const VMS: &'static str = "machines of metal-stack";

    fn read_spec(class: &MachineClass, problems: &mut ClassProblems) -> Spec {
        Spec::read(&class.provider_spec, problems)
    }

    fn check_secret(&self, _: Spec, _: &MachineClass, secret: &SecretData, problems: &mut ClassProblems) {
        let login = Login::from_secret(secret, &self.logins.access.secrets);
        problems.secret(login.and_then(|login| login.authentication()));
        let user_data = user_data(secret);
        if user_data.as_ref().is_ok_and(|data| data.is_empty()) {
            problems.warning("Secret", "there are no userData: a machine without them does not become a Node");
        }
        problems.secret(user_data);
    }

    /// Machines of a project and a cluster are listed for all of its classes.
    fn may_list(spec: &Spec, other: &Spec) -> Option<bool> {
        Some(spec.scope().ok()? == other.scope().ok()?)
    }

    fn volume_id(spec: &PersistentVolumeSpec) -> Option<String> {
        volumes::id_of(spec)
    }

    async fn session(&self, spec: Spec, _: &MachineClass, secret: &SecretData) -> Result<Session, DriverError> {
        let scope = spec.scope()?;
        let login = Login::from_secret(secret, &self.logins.access.secrets)?;
        let open = || self.logins.rest(&TlsOptions::default(), &login.url, login.authentication()?, failure_of);
        let api = Api { rest: self.logins.get_or(&login, open)?, secret: secret.clone() };
        Ok(Session { spec, scope, login, api, look_ups: Arc::clone(&self.look_ups) })
    }

    fn creations(&self) -> Option<&dyn CreationLedger> {
        Some(&self.creations)
    }

    fn absences(&self) -> Option<&AbsenceCache<ServerPlace>> {
        Some(&self.absences)
    }

    async fn create(&self, session: &Session, request: &MachineRequest) -> Result<Vm, DriverError> {
        let wanted = MachineIdentity::from_machine(&request.machine);
        let (spec, scope, user_data) = (&session.spec, &session.scope, user_data(&request.secret)?);
        let order = Order { spec, scope, wanted, owner: &request.owner, user_data }.body();
        self.creations.announce(request)?;
        let api = session.api.clone();
        let allocate = async move { api.allocate(order).await };
        let (secret, what) = (session.api.secret.clone(), format!("allocation of machine {}", wanted.name));
        let error = move |failure: &CloudFailure| failure.error_of_creation(&what, &secret);
        let server = self.creations.run(request, self.look_once(session, request), allocate, error).await?;
        Ok(server.vm().as_created())
    }

    async fn delete(&self, session: &Session, request: &MachineRequest) -> Result<Option<String>, DriverError> {
        for server in self.find(session, request).await? {
            self.free(session, request, &server).await?;
        }
        Ok(None)
    }

    /// The cluster tag stays, because metal-stack's cloud controller manager needs it.
    async fn tag(
        &self,
        session: &Session,
        request: &MachineRequest,
        server: Server,
        is_listed: bool,
    ) -> Result<(), DriverError> {
        let tags = if is_listed {
            server.tags_with(&listing_tags(&session.scope, &request.owner), &[UNLISTED_TAG])
        } else {
            server.tags_with(&[format!("{UNLISTED_TAG}=true")], &[OWNER_TAG])
        };
        session.api.set_tags(&server, &tags).await
    }

    async fn inspect(&self, session: &Session, secret: &SecretData) -> Vec<ResourceFinding> {
        session.inspect(user_data(secret).err()).await
    }
}
