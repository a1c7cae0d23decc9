//! The driver of metal-stack: VMs are physical servers, found by the tag of their cluster.
//!
//! `providerSpec` and Secret are those of metal-stack's driver. `docs/conformance-metal-stack.md` compares the two.
//!
//! Two facts of metal-api shape it. A request of an allocation has no idempotency token, so a Machine has one request at a time, and
//! after one without an answer no other until it certainly had no effect. And a server that is freed is allocated to others, so a
//! provider ID alone never says whose it is.

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
use tokio::time::{Instant, sleep};

pub use self::names::NAME;
use self::{
    calls::Api,
    errors::failure_of,
    login::Login,
    names::{OWNER_TAG, UNLISTED_TAG},
    order::{Order, user_data},
    server::{Server, listing_tags},
    session::{LookUps, Place, Session, look_ups},
    spec::{Spec, cluster_of},
};
use mcm_api::machine::{Machine, MachineClass};
use mcm_driver::{
    cloud::{
        AbsenceCache, HttpClient, HttpLimits, LruCache, MachineIdentity, RequestReporter, RestClient, TlsClientCache,
        TlsOptions, VmCreations, check_provider, idempotency_token, only,
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

/// More logins than any installation has.
const MOST_LOGINS: usize = 256;
/// Most allocations that were freed and are remembered until metal-api shows it.
const MOST_FREED: usize = 10_000;

/// Opens the driver, for the list of built-in drivers.
pub fn open(
    environment: &DriverEnvironment<'_>,
    observer: &Arc<dyn DriverObserver>,
) -> Result<Arc<dyn Driver>, OpenError> {
    let access = Access { limits: HttpLimits::default(), uses_proxy: true, secrets: environment.secrets.clone() };
    Ok(Arc::new(MetalDriver::new(access, Patience::default(), RequestReporter::for_provider(NAME, observer))))
}

/// How metal-api is called.
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
    /// An allocation without an answer is carried out by then, or never.
    settles: Duration,
    /// Between two looks at a machine that is being freed.
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

/// The driver of metal-stack.
struct MetalDriver {
    patience: Patience,
    access: Access,
    http: Arc<HttpClient>,
    connections: TlsClientCache,
    logins: LruCache<Login, Arc<RestClient>>,
    look_ups: Arc<LookUps>,
    creations: VmCreations<Server>,
    absences: AbsenceCache<Place>,
    /// Allocations that were freed, and when.
    freed: LruCache<String, Instant>,
}

impl MetalDriver {
    fn new(access: Access, patience: Patience, requests: RequestReporter) -> Self {
        Self {
            patience,
            http: Arc::new(HttpClient::new(access.limits, access.uses_proxy, requests)),
            connections: TlsClientCache::new(access.limits.attempt, access.uses_proxy),
            logins: LruCache::new(MOST_LOGINS),
            look_ups: look_ups(patience.window),
            creations: VmCreations::new(patience.settles),
            absences: AbsenceCache::new(),
            freed: LruCache::new(MOST_FREED),
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
        let (url, slowest) = (login.url.clone(), self.access.limits.slowest);
        Ok(Arc::new(RestClient::new(&self.http, client, url, login.authentication()?, slowest, failure_of)))
    }

    /// The allocated machines of a Machine: the machine with its provider ID or, without an ID, all that were created for it.
    async fn find(&self, session: &Session, request: &MachineRequest) -> Result<Vec<Server>, DriverError> {
        let machine = &*request.machine;
        if !machine.spec.provider_id.is_empty() {
            return Ok(session.known(machine).await?.into_iter().collect());
        }
        let wanted = MachineIdentity::from_machine(machine);
        let looking = self.absences.look(session.place(), wanted);
        let found = self.creations.find(request, session.created_for(wanted), Vec::is_empty).await?;
        if found.is_empty() {
            looking.found_none();
        }
        Ok(found)
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

    /// Whether an allocation was freed lately, and metal-api still works on it.
    fn was_freed(&self, server: &Server) -> bool {
        let since = self.freed.get_or(&server.allocation.uuid, || Err(()));
        since.is_ok_and(|since| since.elapsed() < self.patience.total)
    }

    /// Whether a machine still has the same allocation.
    async fn is_allocated(&self, session: &Session, machine: &Machine, server: &Server) -> Result<bool, DriverError> {
        let mut known = machine.clone();
        known.spec.provider_id = server.provider_id();
        let found = session.known(&known).await?;
        Ok(found.is_some_and(|found| found.allocation.uuid == server.allocation.uuid))
    }
}

#[async_trait]
impl Driver for MetalDriver {
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

    fn secret_problems(&self, _: &MachineClass, secret: &SecretData) -> ClassProblems {
        let mut problems = ClassProblems::default();
        let login = Login::from_secret(secret, &self.access.secrets).and_then(|login| login.authentication().map(drop));
        if let Err(error) = login {
            problems.error("Secret", error.message);
        }
        match user_data(secret) {
            Err(error) => problems.error("Secret", error.message),
            Ok("") => {
                problems.warning("Secret", "there are no userData: a machine without them does not become a Node")
            }
            Ok(_) => {}
        }
        problems
    }

    async fn create(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        self.validate(&request.class).to_result()?;
        idempotency_token(&request.machine, 0)?;
        let session = self.session(&request.class, &request.secret)?;
        let wanted = MachineIdentity::from_machine(&request.machine);
        let order = Order {
            spec: &session.spec,
            scope: &session.scope,
            wanted,
            owner: &request.owner,
            user_data: user_data(&request.secret)?,
        };
        let (order, api) = (order.body(), session.api.clone());
        self.creations.announce(request)?;
        let is_absent = self.absences.take(session.place(), wanted);
        let look = {
            let (session, machine) = (session.clone(), Arc::clone(&request.machine));
            async move {
                if is_absent {
                    return Ok(None);
                }
                let wanted = MachineIdentity::from_machine(&machine);
                match session.created_for(wanted).await? {
                    none if none.is_empty() => Ok(None),
                    found => only(found, wanted.name).map(Some),
                }
            }
        };
        let allocate = {
            let api = api.clone();
            async move { api.allocate(order).await }
        };
        let what = format!("allocation of machine {}", wanted.name);
        let server = self.creations.run(request, look, allocate, move |failure| api.error(failure, &what)).await?;
        let vm = server.vm();
        Ok(Vm { last_known_state: Some(format!("Created {}", vm.provider_id)), ..vm })
    }

    /// [`Code::Unimplemented`]: a machine needs nothing after its allocation.
    async fn initialize(&self, _: &MachineRequest) -> Result<Vm, DriverError> {
        Err(DriverError::new(Code::Unimplemented, "machines of metal-stack are not initialized"))
    }

    async fn delete(&self, request: &MachineRequest) -> Result<Option<String>, DriverError> {
        let session = self.session(&request.class, &request.secret)?;
        for server in self.find(&session, request).await? {
            self.free(&session, request, &server).await?;
        }
        Ok(None)
    }

    async fn status(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        let session = self.session(&request.class, &request.secret)?;
        Ok(only(self.find(&session, request).await?, MachineIdentity::from_machine(&request.machine).name)?.vm())
    }

    async fn list(&self, class: &MachineClass, secret: &SecretData) -> Result<VmsByProviderId, DriverError> {
        let session = self.session(class, secret)?;
        let all = session.api.of_cluster(&session.scope).await?;
        let is_ours = |server: &&Server| {
            let cluster = cluster_of(&server.tags);
            server.is_machine() && !server.is_unlisted() && cluster == Some(session.scope.cluster.as_str())
        };
        Ok(all.iter().filter(is_ours).map(|server| (server.provider_id(), server.listed())).collect())
    }

    /// Machines of a project and a cluster are listed for all of its classes.
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
        Ok(session.inspect(user_data(secret).err()).await)
    }

    /// The cluster tag stays, because metal-stack's cloud controller manager goes by it.
    async fn tag(&self, request: &MachineRequest, is_listed: bool) -> Result<(), DriverError> {
        let session = self.session(&request.class, &request.secret)?;
        let server = only(self.find(&session, request).await?, MachineIdentity::from_machine(&request.machine).name)?;
        let tags = if is_listed {
            server.tags_with(&listing_tags(&session.scope, &request.owner), &[UNLISTED_TAG])
        } else {
            server.tags_with(&[format!("{UNLISTED_TAG}=true")], &[OWNER_TAG])
        };
        session.api.set_tags(&server, &tags).await
    }

    async fn volume_ids(&self, specs: &[PersistentVolumeSpec]) -> Result<Vec<String>, DriverError> {
        Ok(specs.iter().filter_map(volumes::id_of).collect())
    }
}
