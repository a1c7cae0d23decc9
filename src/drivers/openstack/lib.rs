//! The driver of OpenStack: VMs are servers of Nova, found by their name and the keys of their metadata.
//!
//! `providerSpec` and Secret are those of Gardener's driver. `docs/conformance-openstack.md` compares the two.
//!
//! Two facts of OpenStack shape it. A request of a server has no idempotency token, so a Machine has one request at a time, and after
//! one without an answer no other until it certainly had no effect. And Nova answers before it builds: a server that cannot be built
//! says so later, in its status.

mod account;
mod additions;
mod build;
mod calls;
mod errors;
mod inspect;
mod keystone;
mod login;
mod names;
mod octavia;
mod order;
mod parts;
mod pools;
mod server;
mod session;
mod spec;
#[cfg(test)]
mod tests;
mod volumes;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::PersistentVolumeSpec;
use mcm_api::{
    load_balancer::{LoadBalancer, LoadBalancerKind},
    machine::{Machine, MachineClass},
};
use mcm_driver::{
    cloud::{
        AbsenceCache, CloudVm, HttpClient, HttpLimits, LruCache, MachineIdentity, PollTiming, RequestReporter,
        TlsClientCache, VmCreations, check_provider, idempotency_token, known_as, only, safe_text, until_done,
    },
    code::Code,
    environment::{DriverEnvironment, OpenError},
    error::DriverError,
    guard::DriverObserver,
    inspection::ResourceFinding,
    interface::{Driver, DriverCapabilities, MachineRequest, SecretData, no_members},
    secret_policy::SecretPolicy,
    spec::ClassProblems,
    vm::{Vm, VmsByProviderId},
};
use serde_json::{Map, Value};
use tokio::time::Instant;

pub use self::names::NAME;
use self::{
    account::{Account, Region},
    additions::Additions,
    build::{Built, Wait},
    errors::is_exhausted,
    login::Login,
    names::{IDS, OWNER_KEY, UID_KEY},
    order::{Order, user_data},
    parts::Part,
    server::{Server, Stage},
    session::{CREATED, LookUps, Names, Ordered, Place, Session, id_of, look_ups, ordered_before, state_of},
    spec::Spec,
};

/// More logins than any installation has.
const MOST_LOGINS: usize = 256;
/// Most servers that were ordered or are being deleted and are remembered until Nova shows it.
const MOST_SERVERS: usize = 10_000;

/// The pause between two requests of one deletion doubles so often.
const MOST_DOUBLINGS: u32 = 4;

/// Opens the driver, for the list of built-in drivers.
///
/// # Errors
/// None.
pub fn open(
    environment: &DriverEnvironment<'_>,
    observer: &Arc<dyn DriverObserver>,
) -> Result<Arc<dyn Driver>, OpenError> {
    let access = Access { limits: HttpLimits::default(), uses_proxy: true, secrets: environment.secrets.clone() };
    Ok(Arc::new(OpenStackDriver::new(access, Patience::default(), RequestReporter::for_provider(NAME, observer))))
}

/// How OpenStack is called.
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
    /// For a server or a volume that is built or deleted.
    pace: PollTiming,
    /// For a server that failed to build, before its error is reported.
    discard: PollTiming,
    /// A deletion that Nova gives up is requested again after this time, then after twice as long, and so on.
    again: Duration,
}

/// A deletion that Nova accepted.
#[derive(Clone, Copy)]
struct Deletion {
    since: Instant,
    /// When it was requested last.
    sent: Instant,
    times: u32,
}

impl Deletion {
    const fn new(now: Instant) -> Self {
        Self { since: now, sent: now, times: 1 }
    }

    const fn again(self, now: Instant) -> Self {
        Self { sent: now, times: self.times + 1, ..self }
    }

    /// Whether it may be requested again.
    fn is_due(&self, first: Duration) -> bool {
        self.sent.elapsed() >= first * (1 << (self.times - 1).min(MOST_DOUBLINGS))
    }
}

impl Default for Patience {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            window: Duration::from_millis(100),
            settles: seconds(60),
            pace: PollTiming { first: seconds(5), longest: seconds(10), total: seconds(1200) },
            discard: PollTiming { first: seconds(1), longest: seconds(5), total: seconds(30) },
            again: seconds(30),
        }
    }
}

/// A server that a creation found or ordered.
#[derive(Clone)]
enum Made {
    Found(Box<Server>),
    /// By its ID.
    Ordered(String),
}

impl Made {
    fn id(&self) -> &str {
        match self {
            Self::Found(server) => &server.id,
            Self::Ordered(id) => id,
        }
    }
}

/// The only server that was created for a Machine without a provider ID, if there is one.
async fn only_created_for(session: &Session, machine: &Machine) -> Result<Option<Made>, DriverError> {
    match session.created_for(machine).await? {
        none if none.is_empty() => Ok(None),
        found => {
            only(found, MachineIdentity::from_machine(machine).name).map(|server| Some(Made::Found(Box::new(server))))
        }
    }
}

/// The driver of OpenStack.
struct OpenStackDriver {
    patience: Patience,
    access: Access,
    http: Arc<HttpClient>,
    connections: TlsClientCache,
    accounts: LruCache<Login, Arc<Account>>,
    look_ups: Arc<LookUps>,
    names: Arc<Names>,
    ordered: Arc<Ordered>,
    additions: Arc<Additions>,
    creations: VmCreations<Made>,
    absences: AbsenceCache<Place>,
    /// Servers whose deletion Nova accepted.
    deleted: LruCache<String, Deletion>,
}

impl OpenStackDriver {
    fn new(access: Access, patience: Patience, requests: RequestReporter) -> Self {
        let (look_ups, names) = look_ups(patience.window);
        Self {
            patience,
            http: Arc::new(HttpClient::new(access.limits, access.uses_proxy, requests)),
            connections: TlsClientCache::new(access.limits.attempt, access.uses_proxy),
            accounts: LruCache::new(MOST_LOGINS),
            look_ups,
            names,
            ordered: Arc::new(LruCache::new(MOST_SERVERS)),
            additions: Arc::new(Additions::new(patience.settles)),
            creations: VmCreations::new(patience.settles),
            absences: AbsenceCache::new(),
            deleted: LruCache::new(MOST_SERVERS),
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
        let account = self.accounts.get_or(&login, || self.account(&login, secret))?;
        let region = Region { account, name: scope.region.clone(), secret: secret.clone() };
        let (look_ups, names) = (Arc::clone(&self.look_ups), Arc::clone(&self.names));
        let (ordered, additions) = (Arc::clone(&self.ordered), Arc::clone(&self.additions));
        Ok(Session { spec, scope, login, region, look_ups, names, ordered, additions })
    }

    fn account(&self, login: &Login, secret: &SecretData) -> Result<Arc<Account>, DriverError> {
        let (client, slowest) = (self.connections.client(&login.tls)?, self.access.limits.slowest);
        Ok(Arc::new(Account::new(&self.http, client, slowest, &self.access.secrets, login, secret)))
    }

    /// The servers of a Machine: the server with its provider ID or, without an ID, all that were created for it.
    async fn find(&self, session: &Session, request: &MachineRequest) -> Result<Vec<Server>, DriverError> {
        let machine = &*request.machine;
        if !machine.spec.provider_id.is_empty() {
            return Ok(session.known(machine).await?.into_iter().collect());
        }
        let wanted = MachineIdentity::from_machine(machine);
        let looking = self.absences.look(session.place(), wanted);
        let found = self.creations.find(request, session.created_for(machine), Vec::is_empty).await?;
        if found.is_empty() {
            looking.found_none();
        }
        Ok(found)
    }

    const fn wait(&self, request: &MachineRequest) -> Wait {
        Wait { pace: self.patience.pace, may_pause: request.may_pause }
    }

    /// Waits until a server runs, and opens its ports for pods.
    async fn finish(&self, session: &Session, request: &MachineRequest, made: Made) -> Result<Server, DriverError> {
        let (wanted, wait) = (MachineIdentity::from_machine(&request.machine), self.wait(request));
        let (id, since, mut found) = match made {
            Made::Found(server) => (server.id.clone(), server.since(), Some(*server)),
            Made::Ordered(id) => (id, Instant::now(), None),
        };
        let what = format!("the creation of server {id}");
        let look = || {
            let (found, id) = (found.take(), id.as_str());
            async move {
                let server = match found {
                    Some(server) => Some(server),
                    None => session.with_id(wanted.name, id).await?,
                };
                let gone = || DriverError::new(Code::Aborted, format!("server {id} is gone before it was built"));
                let server = server.ok_or_else(gone)?;
                Ok(Some(server).filter(|server| !matches!(server.stage(), Stage::Building | Stage::BeingDeleted)))
            }
        };
        let server = until_done(&wait.pace, since, wait.may_pause, &what, look).await?;
        if let Stage::Failed(reason) = server.stage() {
            if server.machine_uid() == Some(wanted.uid) {
                self.discard(session, wanted, &server).await;
            }
            let code = if is_exhausted(&reason) { Code::ResourceExhausted } else { Code::Internal };
            return Err(DriverError::new(
                code,
                format!("{what} failed: {}", safe_text(&reason, &session.region.secret)),
            ));
        }
        for (port, pairs) in session.closed_ports(&server).await? {
            session.region.set_pairs(&port, &pairs).await?;
        }
        Ok(server)
    }

    /// Deletes a server that never ran, with its port and its volume. If this fails, the error of the creation is told all the same:
    /// the next call continues.
    async fn discard(&self, session: &Session, wanted: MachineIdentity<'_>, server: &Server) {
        let wait = Wait { pace: self.patience.discard, may_pause: false };
        match self.remove(session, wanted.name, wait, server).await {
            Ok(()) => session.give_back(wanted).await,
            Err(error) => {
                tracing::warn!(machine = wanted.name, %error, "a server that failed to build is not deleted yet");
            }
        }
    }

    /// Deletes a server, and waits until it is gone.
    async fn remove(&self, session: &Session, name: &str, wait: Wait, server: &Server) -> Result<(), DriverError> {
        let id = &server.id;
        let known = self.deleted.get(id).filter(|deletion| deletion.since.elapsed() < wait.pace.total);
        let deletion = match known {
            Some(deletion) => deletion,
            None => {
                session.region.delete_server(id).await?;
                let deletion = Deletion::new(Instant::now());
                self.deleted.put(id.clone(), deletion);
                deletion
            }
        };
        let what = &format!("the deletion of server {id}");
        let look = || async move {
            let Some(shown) = session.with_id(name, id).await? else { return Ok(Some(())) };
            let Some(fault) = shown.fault_at_rest() else { return Ok(None) };
            let now = self.deleted.get(id).unwrap_or(deletion);
            if !now.is_due(self.patience.again) {
                return Ok(None);
            }
            session.region.delete_server(id).await?;
            self.deleted.put(id.clone(), now.again(Instant::now()));
            let fault = safe_text(&fault, &session.region.secret);
            Err(DriverError::new(Code::Aborted, format!("{what} failed, and was requested again: {fault}")))
        };
        until_done(&wait.pace, deletion.since, wait.may_pause, what, look).await
    }
}

#[async_trait]
impl Driver for OpenStackDriver {
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
        let login = Login::from_secret(secret, &self.access.secrets);
        let client = login.and_then(|login| self.connections.client(&login.tls).map(drop));
        for error in [client, user_data(secret).map(drop)].into_iter().filter_map(Result::err) {
            problems.error("Secret", error.message);
        }
        problems
    }

    async fn create(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        self.validate(&request.class).to_result()?;
        let uid = idempotency_token(&request.machine, 0)?;
        let session = self.session(&request.class, &request.secret)?;
        let order = Order {
            spec: session.spec.clone(),
            name: MachineIdentity::from_machine(&request.machine).name.to_owned(),
            uid,
            owner: request.owner.clone(),
            user_data: user_data(&request.secret)?,
        };
        let known = match ordered_before(&request.machine) {
            Some(_) => only_created_for(&session, &request.machine).await?,
            None => None,
        };
        if known.is_none() {
            self.creations.announce(request)?;
        }
        let is_absent = self.absences.take(session.place(), MachineIdentity::from_machine(&request.machine));
        let look = {
            let (session, machine) = (session.clone(), Arc::clone(&request.machine));
            async move {
                match known {
                    None if !is_absent => only_created_for(&session, &machine).await,
                    known => Ok(known),
                }
            }
        };
        let build = {
            let (session, wait, machine) = (session.clone(), self.wait(request), Arc::clone(&request.machine));
            let may_have_begun = !state_of(&machine).is_empty() && !self.creations.is_announced(&machine);
            async move {
                // One look does not show that an earlier request had no effect: lists may lack a new server for a moment.
                if may_have_begun && let Some(found) = only_created_for(&session, &machine).await? {
                    return Ok(found);
                }
                Ok(match session.build(&order, wait).await? {
                    Built::Ordered(id) => Made::Ordered(id),
                    Built::Found(server) => Made::Found(server),
                })
            }
        };
        let made = self.creations.run_steps(request, look, build).await?;
        let region = &session.scope.region;
        let state = format!("{CREATED}{}", IDS.node_form(region, made.id()));
        match self.finish(&session, request, made).await {
            Ok(server) => Ok(Vm { last_known_state: Some(state), ..server.vm(region) }),
            // The next process finds the server by its ID, even if lists lack it.
            Err(error) if error.call_again_in.is_some() => Err(DriverError { last_known_state: Some(state), ..error }),
            Err(error) => Err(error),
        }
    }

    /// [`Code::Unimplemented`]: a server needs nothing after its creation.
    async fn initialize(&self, _: &MachineRequest) -> Result<Vm, DriverError> {
        Err(DriverError::new(Code::Unimplemented, "servers of OpenStack are not initialized"))
    }

    async fn delete(&self, request: &MachineRequest) -> Result<Option<String>, DriverError> {
        let session = self.session(&request.class, &request.secret)?;
        let (wanted, wait) = (MachineIdentity::from_machine(&request.machine), self.wait(request));
        let found = self.find(&session, request).await?;
        let known = id_of(&request.machine)?;
        if let Some(id) = known.filter(|_| found.is_empty())
            && let Some(server) = session.region.server(id).await?
        {
            // The server of another Machine keeps its parts.
            return match known_as(Some(server), wanted, &session.scope) {
                None => Ok(None),
                Some(_) => Err(DriverError::new(Code::Unavailable, format!("server {id} was absent, and exists"))),
            };
        }
        for server in &found {
            self.remove(&session, wanted.name, wait, server).await?;
        }
        // A Machine that was restored has another UID than its server, and an orphan has none.
        let uid = found.first().and_then(CloudVm::machine_uid).unwrap_or(wanted.uid);
        let (of_server, markers) = (MachineIdentity { name: wanted.name, uid }, &session.scope.markers);
        let servers: Vec<String> =
            found.iter().map(|server| server.id.clone()).chain(known.map(str::to_owned)).collect();
        let is_of_machine = |part: &dyn Part| part.is_of(of_server, markers);
        session.delete_parts(wanted.name, &servers, wait, is_of_machine).await?;
        Ok(None)
    }

    async fn status(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        let session = self.session(&request.class, &request.secret)?;
        let machine = &*request.machine;
        let server = only(self.find(&session, request).await?, MachineIdentity::from_machine(machine).name)?;
        if machine.spec.provider_id.is_empty() && machine.metadata.deletion_timestamp.is_none() {
            self.check_is_finished(&session, request, &server).await?;
        }
        Ok(server.vm(&session.scope.region))
    }

    async fn list(&self, class: &MachineClass, secret: &SecretData) -> Result<VmsByProviderId, DriverError> {
        let session = self.session(class, secret)?;
        let all = session.region.servers(None).await?;
        let ours = all.iter().filter(|server| server.exists() && server.has(&session.scope.markers));
        Ok(ours.map(|server| (server.provider_id(&session.scope.region), server.listed())).collect())
    }

    /// Servers of a project, a region and a cluster with one role are listed for all of its classes.
    fn may_list(&self, class: &MachineClass, other: &MachineClass) -> bool {
        let [class, other] = [class, other].map(|one| Spec::read(&one.provider_spec, &mut ClassProblems::default()));
        match class.scope() {
            Ok(scope) => scope.region == other.region && scope.markers.are_on(other.tags.keys().map(String::as_str)),
            Err(_) => true,
        }
    }

    async fn inspect(&self, class: &MachineClass, secret: &SecretData) -> Result<Vec<ResourceFinding>, DriverError> {
        let session = self.session(class, secret)?;
        Ok(session.inspect(user_data(secret).err()).await)
    }

    /// The cluster key stays on a server that is handed over, and so does its UID, by which its ID finds it.
    async fn tag(&self, request: &MachineRequest, is_listed: bool) -> Result<(), DriverError> {
        let session = self.session(&request.class, &request.secret)?;
        let wanted = MachineIdentity::from_machine(&request.machine);
        let server = only(self.find(&session, request).await?, wanted.name)?;
        let (region, markers) = (&session.region, &session.scope.markers);
        let mut metadata = Map::new();
        if server.machine_uid().is_none() && !wanted.uid.is_empty() {
            metadata.insert(UID_KEY.to_owned(), wanted.uid.into());
        }
        if is_listed {
            let of_class =
                [&markers.cluster, &markers.role].map(|key| (key.clone(), session.spec.tags.get(key).cloned()));
            metadata.extend(of_class.into_iter().map(|(key, value)| (key, Value::from(value.unwrap_or_default()))));
            metadata.extend((!request.owner.is_empty()).then(|| (OWNER_KEY.to_owned(), request.owner.clone().into())));
        }
        if !metadata.is_empty() {
            region.set_metadata(&server.id, metadata).await?;
        }
        if !is_listed {
            region.delete_metadata(&server.id, OWNER_KEY).await?;
            region.delete_metadata(&server.id, &markers.role).await?;
        }
        Ok(())
    }

    fn load_balancers(&self) -> Option<LoadBalancerKind> {
        Some(LoadBalancerKind::OpenstackPool)
    }

    async fn register(&self, request: &MachineRequest, balancer: &LoadBalancer) -> Result<(), DriverError> {
        let LoadBalancer::OpenstackPool(pool) = balancer else { return Err(no_members(NAME, balancer)) };
        let session = self.session(&request.class, &request.secret)?;
        session.join(&request.machine, pool, self.wait(request)).await
    }

    async fn deregister(&self, request: &MachineRequest, balancer: &LoadBalancer) -> Result<(), DriverError> {
        let LoadBalancer::OpenstackPool(pool) = balancer else { return Err(no_members(NAME, balancer)) };
        let session = self.session(&request.class, &request.secret)?;
        session.leave(&request.machine, pool, self.wait(request)).await
    }

    async fn volume_ids(&self, specs: &[PersistentVolumeSpec]) -> Result<Vec<String>, DriverError> {
        Ok(specs.iter().filter_map(volumes::id_of).collect())
    }
}

impl OpenStackDriver {
    /// Checks that the creation of a server has nothing left to do.
    ///
    /// # Errors
    /// [`Code::Unavailable`]: Nova works on it. [`Code::Unimplemented`]: the creation has to continue, or to report why the server
    /// failed. It is the code at which controllers call it, as they do after each status of the reference.
    async fn check_is_finished(
        &self,
        session: &Session,
        request: &MachineRequest,
        server: &Server,
    ) -> Result<(), DriverError> {
        let unfinished = |text: &str| DriverError::new(Code::Unimplemented, format!("server {} {text}", server.id));
        match server.stage() {
            Stage::Building | Stage::BeingDeleted => {
                let pause = self.patience.pace.pause(server.since().elapsed());
                let message = format!("server {} is being built or deleted", server.id);
                let call_again_in = Some(pause).filter(|_| request.may_pause);
                Err(DriverError { call_again_in, ..DriverError::new(Code::Unavailable, message) })
            }
            Stage::Failed(_) => Err(unfinished("failed to build: its creation says why")),
            Stage::Built if session.closed_ports(server).await?.is_empty() => Ok(()),
            Stage::Built => Err(unfinished("has ports that do not accept the addresses of pods yet")),
        }
    }
}
