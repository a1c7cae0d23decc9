//! The driver of OpenStack: VMs are servers of Nova, found by their name and the keys of their metadata.
//!
//! `providerSpec` and Secret are those of Gardener's driver. `docs/conformance-openstack.md` compares the two.
//!
//! Two facts of OpenStack shape it. A request of a server has no idempotency token, so a Machine has one request at a time, and after
//! one without an answer no other until it certainly had no effect. And Nova responds before it builds: a server that cannot be
//! built has the failure in its status later.

mod account;
mod additions;
mod build;
mod calls;
mod capacity;
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
    machine::MachineClass,
};
use mcm_driver::{
    Code, Driver, DriverEnvironment, DriverError, DriverObserver, MachineRequest, OpenError, SecretData, Vm,
    VmCapacity,
    cloud::{
        AbsenceCache, CloudAccess, CloudDriver, CloudOperations, CloudSession, CloudVm, CreationLedger, LoginCache,
        LookupCoalescer, LruCache, MachineIdentity, PollTiming, RequestReporter, VmCreations, VmLookupError, known_as,
        safe_text, until_done,
    },
    inspection::ResourceFinding,
    interface::no_members,
    spec::ClassProblems,
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
    session::{CREATED, Names, Ordered, RegionPlace, ServerLookups, Session, id_of, ordered_before, state_of},
    spec::Spec,
};

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
    let (access, requests) =
        (CloudAccess::from_environment(environment), RequestReporter::for_provider(NAME, observer));
    Ok(Arc::new(CloudDriver(OpenStackServers::new(access, Patience::default(), requests))))
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

    /// It may be requested again.
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
    fn found(server: Server) -> Self {
        Self::Found(Box::new(server))
    }

    fn id(&self) -> &str {
        match self {
            Self::Found(server) => &server.id,
            Self::Ordered(id) => id,
        }
    }
}

/// The servers of OpenStack.
struct OpenStackServers {
    patience: Patience,
    logins: LoginCache<Login, Account>,
    look_ups: Arc<ServerLookups>,
    names: Arc<Names>,
    ordered: Arc<Ordered>,
    additions: Arc<Additions>,
    creations: VmCreations<Made>,
    absences: AbsenceCache<RegionPlace>,
    /// Servers whose deletion Nova accepted.
    deleted: LruCache<String, Deletion>,
}

impl OpenStackServers {
    fn new(access: CloudAccess, patience: Patience, requests: RequestReporter) -> Self {
        Self {
            patience,
            logins: LoginCache::new(access, requests),
            look_ups: Arc::new(LookupCoalescer::new(patience.window)),
            names: Arc::new(LookupCoalescer::of_facts()),
            ordered: Arc::new(LruCache::new(MOST_SERVERS)),
            additions: Arc::new(Additions::new(patience.settles)),
            creations: VmCreations::new(patience.settles),
            absences: AbsenceCache::new(),
            deleted: LruCache::new(MOST_SERVERS),
        }
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
                    None => session.server(wanted.name, id).await?,
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

    /// Deletes a server, and waits until it is absent.
    async fn remove(&self, session: &Session, name: &str, wait: Wait, server: &Server) -> Result<(), DriverError> {
        let id = &server.id;
        let deletion = match self.deleted.get(id) {
            Some(deletion) if deletion.since.elapsed() < wait.pace.total => deletion,
            earlier => {
                // An earlier process requested it, unless it takes too long.
                if earlier.is_some() || server.stage() != Stage::BeingDeleted {
                    session.region.delete_server(id).await?;
                }
                let deletion = Deletion::new(Instant::now());
                self.deleted.put(id.clone(), deletion);
                deletion
            }
        };
        let what = &format!("the deletion of server {id}");
        let look = || async move {
            let Some(shown) = session.server(name, id).await? else { return Ok(Some(())) };
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
impl CloudOperations for OpenStackServers {
    type Spec = Spec;
    type Session = Session;

    const NAME: &'static str = NAME;
    const VMS: &'static str = "servers of OpenStack";
    const BALANCERS: Option<LoadBalancerKind> = Some(LoadBalancerKind::OpenstackPool);

    fn read_spec(class: &MachineClass, problems: &mut ClassProblems) -> Spec {
        Spec::read(&class.provider_spec, problems)
    }

    fn check_secret(&self, _: Spec, _: &MachineClass, secret: &SecretData, problems: &mut ClassProblems) {
        let login = Login::from_secret(secret, &self.logins.access.secrets);
        problems.secret(login.and_then(|login| self.logins.client(&login.tls)));
        problems.secret(user_data(secret));
    }

    /// Servers of a project, a region and a cluster with one role are listed for all of its classes.
    fn may_list(spec: &Spec, other: &Spec) -> Option<bool> {
        let scope = spec.scope().ok()?;
        Some(scope.region == other.region && scope.markers.are_on(other.tags.keys().map(String::as_str)))
    }

    fn volume_id(spec: &PersistentVolumeSpec) -> Option<String> {
        volumes::id_of(spec)
    }

    async fn session(&self, spec: Spec, _: &MachineClass, secret: &SecretData) -> Result<Session, DriverError> {
        let scope = spec.scope()?;
        let access = &self.logins.access;
        let login = Login::from_secret(secret, &access.secrets)?;
        let open = || {
            let client = self.logins.client(&login.tls)?;
            Ok(Account::new(&self.logins.http, client, access.limits.slowest, &access.secrets, &login, secret))
        };
        let account = self.logins.get_or(&login, open)?;
        let region = Region { account, name: scope.region.clone(), secret: secret.clone() };
        let (look_ups, names) = (Arc::clone(&self.look_ups), Arc::clone(&self.names));
        let (ordered, additions) = (Arc::clone(&self.ordered), Arc::clone(&self.additions));
        Ok(Session { spec, scope, login, region, look_ups, names, ordered, additions })
    }

    fn creations(&self) -> Option<&dyn CreationLedger> {
        Some(&self.creations)
    }

    fn absences(&self) -> Option<&AbsenceCache<RegionPlace>> {
        Some(&self.absences)
    }

    async fn create(&self, session: &Session, request: &MachineRequest) -> Result<Vm, DriverError> {
        let wanted = MachineIdentity::from_machine(&request.machine);
        let order = Order {
            spec: session.spec.clone(),
            name: wanted.name.to_owned(),
            uid: wanted.uid.to_owned(),
            owner: request.owner.clone(),
            user_data: user_data(&request.secret)?,
        };
        let known = match ordered_before(&request.machine) {
            Some(_) => session.only_created_for(&request.machine).await?,
            None => None,
        };
        if known.is_none() {
            self.creations.announce(request)?;
        }
        let look = self.look_once(session, request);
        let look = async move {
            let found = if known.is_some() { known } else { look.await? };
            Ok(found.map(Made::found))
        };
        let build = {
            let (session, wait, machine) = (session.clone(), self.wait(request), Arc::clone(&request.machine));
            let may_have_begun = !state_of(&machine).is_empty() && !self.creations.is_announced(&machine);
            async move {
                // One look does not show that an earlier request had no effect: lists may lack a new server for a moment.
                if may_have_begun && let Some(found) = session.only_created_for(&machine).await? {
                    return Ok(Made::found(found));
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
        match self.finish(session, request, made).await {
            Ok(server) => Ok(Vm { last_known_state: Some(state), ..server.vm(region) }),
            // The next process finds the server by its ID, even if lists lack it.
            Err(error) if error.call_again_in.is_some() => Err(DriverError { last_known_state: Some(state), ..error }),
            Err(error) => Err(error),
        }
    }

    async fn delete(&self, session: &Session, request: &MachineRequest) -> Result<Option<String>, DriverError> {
        let (wanted, wait) = (MachineIdentity::from_machine(&request.machine), self.wait(request));
        let found = self.find(session, request).await?;
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
            self.remove(session, wanted.name, wait, server).await?;
        }
        // A Machine that was restored has another UID than its server, and an orphan has no UID.
        let uid = found.first().and_then(CloudVm::machine_uid).unwrap_or(wanted.uid);
        let (of_server, markers) = (MachineIdentity { name: wanted.name, uid }, &session.scope.markers);
        let servers: Vec<String> =
            found.iter().map(|server| server.id.clone()).chain(known.map(str::to_owned)).collect();
        let is_of_machine = |part: &dyn Part| part.is_of(of_server, markers);
        session.delete_parts(wanted.name, &servers, wait, is_of_machine).await?;
        Ok(None)
    }

    async fn status(&self, session: &Session, request: &MachineRequest) -> Result<Vm, VmLookupError> {
        let machine = &*request.machine;
        let server = self.find_only(session, request).await?;
        if machine.spec.provider_id.is_empty() && machine.metadata.deletion_timestamp.is_none() {
            self.check_is_finished(session, request, &server).await?;
        }
        Ok(server.vm(&session.scope.region))
    }

    /// The cluster key stays on a server that is handed over, and so does its UID, by which its ID finds it.
    async fn tag(
        &self,
        session: &Session,
        request: &MachineRequest,
        server: Server,
        is_listed: bool,
    ) -> Result<(), DriverError> {
        let wanted = MachineIdentity::from_machine(&request.machine);
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

    async fn inspect(&self, session: &Session, secret: &SecretData) -> Vec<ResourceFinding> {
        session.inspect(user_data(secret).err()).await
    }

    fn capacity_key(spec: &Spec) -> Option<String> {
        capacity::capacity_key(spec)
    }

    async fn capacity(&self, session: &Session) -> Result<VmCapacity, DriverError> {
        session.capacity().await
    }

    async fn set_member(
        &self,
        request: &MachineRequest,
        balancer: &LoadBalancer,
        is_member: bool,
    ) -> Result<(), DriverError> {
        let LoadBalancer::OpenstackPool(pool) = balancer else { return Err(no_members(NAME, balancer)) };
        let session = self.open_session(&request.class, &request.secret).await?;
        let (machine, wait) = (&request.machine, self.wait(request));
        if is_member { session.join(machine, pool, wait).await } else { session.leave(machine, pool, wait).await }
    }
}

impl OpenStackServers {
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
