//! The driver of Alibaba Cloud: VMs are ECS instances, found by their name and tags.
//!
//! `providerSpec` and Secret are those of Gardener's driver. `docs/conformance-alicloud.md` compares the two.
//!
//! Two facts of ECS shape it. A creation has a token, which makes it idempotent; but ECS may give the answer of a creation that it
//! refused to every later one with the same token, so that the next needs another. And a VM that was deleted is not shown any more,
//! so that a token whose VM is not shown was used by a VM that is new, or gone.

mod calls;
mod endpoint;
mod errors;
mod inspect;
mod instance;
mod login;
mod names;
mod order;
mod parameters;
mod session;
mod signature;
mod spec;
#[cfg(test)]
mod tests;
mod volumes;

use std::{convert::Infallible, sync::Arc, time::Duration};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::PersistentVolumeSpec;
use mcm_api::machine::MachineClass;
use mcm_driver::{
    Code, Driver, DriverCapabilities, DriverEnvironment, DriverError, DriverObserver, MachineRequest, OpenError,
    SecretData, SecretPolicy, Vm, VmsByProviderId,
    cloud::{
        AbsenceCache, CloudVm, HttpClient, HttpLimits, LruCache, MachineIdentity, PollTiming, RequestReporter, RestClient,
        TlsClientCache, TlsOptions, check_provider, idempotency_token, only, until_done,
    },
    inspection::ResourceFinding,
    spec::ClassProblems,
};
use tokio::time::Instant;

pub use self::names::NAME;
use self::{
    calls::Api,
    errors::{TOKEN_MISMATCH, failure_of, is_refusal},
    instance::Instance,
    login::{Login, user_data},
    names::{OWNER_TAG, provider_id},
    order::Order,
    session::{LookUps, Place, Session, look_ups},
    spec::Spec,
};

/// More logins than any installation has.
const MOST_LOGINS: usize = 256;
/// Most Machines, tokens and VMs of which something is remembered.
const MOST_REMEMBERED: usize = 10_000;
/// A region, for the check of a Secret whose class has none.
const ANY_REGION: &str = "cn-hangzhou";

/// Opens the driver, for the list of built-in drivers.
pub fn open(
    environment: &DriverEnvironment<'_>,
    observer: &Arc<dyn DriverObserver>,
) -> Result<Arc<dyn Driver>, OpenError> {
    let access = Access { limits: HttpLimits::default(), uses_proxy: true, secrets: environment.secrets.clone() };
    Ok(Arc::new(AliDriver::new(access, Patience::default(), RequestReporter::for_provider(NAME, observer))))
}

/// How ECS is called.
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
    /// ECS shows a new VM by then, or it is gone.
    lost: Duration,
    /// ECS shows a new VM; a VM may be deleted, and is deleted.
    pace: PollTiming,
}

impl Default for Patience {
    fn default() -> Self {
        Self { window: Duration::from_millis(100), lost: Duration::from_secs(300), pace: PollTiming::default() }
    }
}

/// The driver of Alibaba Cloud.
struct AliDriver {
    patience: Patience,
    access: Access,
    http: Arc<HttpClient>,
    connections: TlsClientCache,
    logins: LruCache<Login, Arc<RestClient>>,
    look_ups: Arc<LookUps>,
    absences: AbsenceCache<Place>,
    /// By the UID of a Machine: how many of its tokens are used up.
    generations: LruCache<String, u32>,
    /// Tokens whose VM ECS does not show, and since when.
    lost: LruCache<String, Instant>,
    /// VMs that ECS deletes, and since when.
    deleted: LruCache<String, Instant>,
}

impl AliDriver {
    fn new(access: Access, patience: Patience, requests: RequestReporter) -> Self {
        Self {
            patience,
            http: Arc::new(HttpClient::new(access.limits, access.uses_proxy, requests)),
            connections: TlsClientCache::new(access.limits.attempt, access.uses_proxy),
            logins: LruCache::new(MOST_LOGINS),
            look_ups: look_ups(patience.window),
            absences: AbsenceCache::new(),
            generations: LruCache::new(MOST_REMEMBERED),
            lost: LruCache::new(MOST_REMEMBERED),
            deleted: LruCache::new(MOST_REMEMBERED),
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
        let login = Login::from_secret(secret, &scope.region, &self.access.secrets)?;
        let rest = self.logins.get_or(&login, || self.rest(&login))?;
        let api = Api { rest, region: scope.region.clone(), secret: secret.clone() };
        Ok(Session { spec, scope, login, api, look_ups: Arc::clone(&self.look_ups) })
    }

    fn rest(&self, login: &Login) -> Result<Arc<RestClient>, DriverError> {
        let client = self.connections.client(&TlsOptions::default())?;
        let (url, slowest) = (login.url.clone(), self.access.limits.slowest);
        Ok(Arc::new(RestClient::new(&self.http, client, url, login.authentication(), slowest, failure_of)))
    }

    /// Creates a VM, or finds that of an earlier request, and waits until ECS shows it.
    async fn run(&self, session: &Session, request: &MachineRequest) -> Result<Instance, DriverError> {
        let wanted = MachineIdentity::from_machine(&request.machine);
        let generation = self.generations.get(&wanted.uid.to_owned()).unwrap_or_default();
        let token = idempotency_token(&request.machine, generation)?;
        let user_data = user_data(&request.secret)?;
        let order = Order { spec: &session.spec, wanted, owner: &request.owner, token: &token, user_data: &user_data };
        let next_token = || self.generations.put(wanted.uid.to_owned(), generation.saturating_add(1));
        let id = match session.api.run(&order).await {
            Ok(id) => id,
            Err(failure) => {
                // After a mismatch the VM of the earlier request is as good: its user data had an older token.
                if is_refusal(&failure) || (failure.is(TOKEN_MISMATCH) && self.is_lost(session, &token).await) {
                    next_token();
                }
                return Err(session.api.error(&failure, "RunInstances"));
            }
        };
        let (what, since) = (format!("creation of VM {id}"), Instant::now());
        let look = || session.with_id(&id);
        let shown = until_done(&self.patience.pace, since, request.may_pause, &what, look).await;
        if shown.is_ok() {
            self.lost.forget(&token);
        } else if self.is_lost(session, &token).await {
            next_token();
        }
        shown
    }

    /// Whether ECS does not show the VM of a token for so long that the VM must be gone. That is only certain for a user who may
    /// look: others may see an empty list.
    async fn is_lost(&self, session: &Session, token: &String) -> bool {
        let since = self.lost.get_or(token, || Ok::<_, Infallible>(Instant::now()));
        let is_due = since.is_ok_and(|since| since.elapsed() >= self.patience.lost);
        is_due && session.api.may_describe().await.is_ok()
    }

    /// Deletes a VM as soon as its status allows it. Cluster API core deletes the Node after its VM, so a deletion lasts until ECS
    /// does not show the VM; the machine controller deletes the Node itself and need not wait.
    async fn delete_vm(
        &self,
        session: &Session,
        request: &MachineRequest,
        instance: &Instance,
    ) -> Result<(), DriverError> {
        let (waits, mut known) = (request.machine.is_infrastructure(), Some(instance.clone()));
        let (what, since) = (format!("deletion of VM {} with status {}", instance.id, instance.status), Instant::now());
        let look = || self.look_at_deletion(session, &instance.id, known.take(), waits);
        until_done(&self.patience.pace, since, request.may_pause, &what, look).await
    }

    /// Deletes a VM if its status allows it now. `known` is the VM, if it was looked up just before. `None` if the deletion is not
    /// done; if `waits` is true, it is done when ECS does not show the VM.
    async fn look_at_deletion(
        &self,
        session: &Session,
        id: &String,
        known: Option<Instance>,
        waits: bool,
    ) -> Result<Option<()>, DriverError> {
        let seen = match known {
            Some(instance) => Some(instance),
            None => session.with_id(id).await?,
        };
        let Some(instance) = seen else { return Ok(Some(())) };
        if !self.is_being_deleted(id) {
            if !instance.is_settled() || !session.api.delete(id).await? {
                return Ok(None);
            }
            self.deleted.put(id.clone(), Instant::now());
        }
        Ok((!waits).then_some(()))
    }

    /// Whether ECS accepted the deletion of a VM lately. It may still show the VM.
    fn is_being_deleted(&self, id: &String) -> bool {
        self.deleted.get(id).is_some_and(|since| since.elapsed() < self.patience.pace.total)
    }
}

#[async_trait]
impl Driver for AliDriver {
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

    fn secret_problems(&self, class: &MachineClass, secret: &SecretData) -> ClassProblems {
        let mut problems = ClassProblems::default();
        let region = Spec::read(&class.provider_spec, &mut ClassProblems::default()).region;
        let region = if region.is_empty() { ANY_REGION } else { &region };
        if let Err(error) = Login::from_secret(secret, region, &self.access.secrets) {
            problems.error("Secret", error.message);
        }
        match user_data(secret) {
            Err(error) => problems.error("Secret", error.message),
            Ok(data) if data.is_empty() => {
                problems.warning("Secret", "there are no userData: a VM without them does not become a Node")
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
        let is_absent = self.absences.take(session.place(), wanted);
        let found = if is_absent { Vec::new() } else { session.created_for(wanted).await? };
        let instance = if found.is_empty() { self.run(&session, request).await? } else { only(found, wanted.name)? };
        let state = format!("ECS instance {} created for machine {}", instance.id, wanted.name);
        Ok(Vm { last_known_state: Some(state), ..instance.vm(&session.scope.region) })
    }

    /// [`Code::Unimplemented`]: a VM needs nothing after its creation.
    async fn initialize(&self, _: &MachineRequest) -> Result<Vm, DriverError> {
        Err(DriverError::new(Code::Unimplemented, "VMs of Alibaba Cloud are not initialized"))
    }

    async fn delete(&self, request: &MachineRequest) -> Result<Option<String>, DriverError> {
        let session = self.session(&request.class, &request.secret)?;
        let found = session.find(&request.machine).await?;
        for instance in &found {
            self.delete_vm(&session, request, instance).await?;
        }
        let name = MachineIdentity::from_machine(&request.machine).name;
        let ids = found.iter().map(|instance| instance.id.as_str()).collect::<Vec<_>>().join(" ");
        Ok(match (found.is_empty(), request.machine.spec.provider_id.is_empty()) {
            (true, _) => None,
            (false, false) => Some(format!("ECS instance {ids} deleted for machine {name}")),
            (false, true) => Some(format!("ECS instance(s) [{ids}] deleted for machine {name}")),
        })
    }

    async fn status(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        let session = self.session(&request.class, &request.secret)?;
        let wanted = MachineIdentity::from_machine(&request.machine);
        let has_id = !request.machine.spec.provider_id.is_empty();
        let looking = (!has_id).then(|| self.absences.look(session.place(), wanted));
        let found = session.find(&request.machine).await?;
        if let Some(looking) = looking.filter(|_| found.is_empty()) {
            looking.found_none();
        }
        Ok(only(found, wanted.name)?.vm(&session.scope.region))
    }

    async fn list(&self, class: &MachineClass, secret: &SecretData) -> Result<VmsByProviderId, DriverError> {
        let session = self.session(class, secret)?;
        let all = session.api.of_class(&session.scope).await?;
        Ok(all.iter().map(|one| (provider_id(&session.scope.region, &one.id), one.listed())).collect())
    }

    fn may_list(&self, class: &MachineClass, other: &MachineClass) -> bool {
        let [spec, other] = [class, other].map(|class| Spec::read(&class.provider_spec, &mut ClassProblems::default()));
        spec.scope().map_or(true, |scope| {
            let has = |(key, value): (&str, &str)| other.tags.get(key).is_some_and(|other| other == value);
            scope.region == other.region && scope.tags().into_iter().all(has)
        })
    }

    async fn inspect(&self, class: &MachineClass, secret: &SecretData) -> Result<Vec<ResourceFinding>, DriverError> {
        let session = self.session(class, secret)?;
        Ok(session.inspect(user_data(secret).err()).await)
    }

    /// The marker of the cluster stays: the cluster and its other programs need it.
    async fn tag(&self, request: &MachineRequest, is_listed: bool) -> Result<(), DriverError> {
        let session = self.session(&request.class, &request.secret)?;
        let instance =
            only(session.find(&request.machine).await?, MachineIdentity::from_machine(&request.machine).name)?;
        let [cluster, role] = session.scope.tags();
        if !is_listed {
            return session.api.untag(&instance.id, &[role.0, OWNER_TAG]).await;
        }
        let owner = (OWNER_TAG, request.owner.as_str());
        let tags: Vec<_> =
            [cluster, role, owner].into_iter().filter(|(key, value)| *key != OWNER_TAG || !value.is_empty()).collect();
        session.api.tag(&instance.id, &tags).await
    }

    async fn volume_ids(&self, specs: &[PersistentVolumeSpec]) -> Result<Vec<String>, DriverError> {
        Ok(specs.iter().filter_map(volumes::id_of).collect())
    }
}
