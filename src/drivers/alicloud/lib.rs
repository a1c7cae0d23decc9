//! The driver of Alibaba Cloud: VMs are ECS instances, found by their name and tags.
//!
//! `providerSpec` and Secret are those of Gardener's driver. `docs/conformance-alicloud.md` compares the two.
//!
//! Two facts of ECS shape it. A creation has a token, which makes it idempotent; but ECS may give the answer of a creation that it
//! refused to every later one with the same token, so that the next needs another. And a VM that was deleted is not shown any more,
//! so that a token whose VM is not shown belongs to a new VM or to a deleted VM.

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
    Driver, DriverEnvironment, DriverError, DriverObserver, MachineRequest, OpenError, SecretData, Vm,
    cloud::{
        AbsenceCache, CloudAccess, CloudDriver, CloudOperations, LoginCache, LookupCoalescer, LruCache,
        MachineIdentity, PollTiming, RequestReporter, TlsOptions, idempotency_token, until_done,
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
    names::OWNER_TAG,
    order::Order,
    session::{ClassPlace, InstanceLookups, Session},
    spec::Spec,
};

/// Most Machines, tokens and VMs of which something is remembered.
const MOST_REMEMBERED: usize = 10_000;
/// The region for the check of a Secret whose class names no region.
const ANY_REGION: &str = "cn-hangzhou";

/// Opens the driver, for the list of built-in drivers.
pub fn open(
    environment: &DriverEnvironment<'_>,
    observer: &Arc<dyn DriverObserver>,
) -> Result<Arc<dyn Driver>, OpenError> {
    let (access, requests) =
        (CloudAccess::from_environment(environment), RequestReporter::for_provider(NAME, observer));
    Ok(Arc::new(CloudDriver(AlibabaCloud::new(access, Patience::default(), requests))))
}

/// How long the driver waits.
#[derive(Clone, Copy, Debug)]
struct Patience {
    /// Look-ups wait for others to join them.
    window: Duration,
    /// ECS shows a new VM by then, or the VM was deleted.
    lost: Duration,
    /// ECS shows a new VM; a VM may be deleted, and is deleted.
    pace: PollTiming,
}

impl Default for Patience {
    fn default() -> Self {
        Self { window: Duration::from_millis(100), lost: Duration::from_secs(300), pace: PollTiming::default() }
    }
}

/// The VMs of Alibaba Cloud.
struct AlibabaCloud {
    patience: Patience,
    logins: LoginCache<Login>,
    look_ups: Arc<InstanceLookups>,
    absences: AbsenceCache<ClassPlace>,
    /// By the UID of a Machine: how many of its tokens are used up.
    generations: LruCache<String, u32>,
    /// Tokens whose VM ECS does not show, and since when.
    lost: LruCache<String, Instant>,
    /// VMs that ECS deletes, and since when.
    deleted: LruCache<String, Instant>,
}

impl AlibabaCloud {
    fn new(access: CloudAccess, patience: Patience, requests: RequestReporter) -> Self {
        Self {
            patience,
            logins: LoginCache::new(access, requests),
            look_ups: Arc::new(LookupCoalescer::new(patience.window)),
            absences: AbsenceCache::new(),
            generations: LruCache::new(MOST_REMEMBERED),
            lost: LruCache::new(MOST_REMEMBERED),
            deleted: LruCache::new(MOST_REMEMBERED),
        }
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
                return Err(failure.error_of_creation("RunInstances", &session.api.secret));
            }
        };
        let (what, since) = (format!("creation of VM {id}"), Instant::now());
        let look = || session.instance(&id);
        let shown = until_done(&self.patience.pace, since, request.may_pause, &what, look).await;
        if shown.is_ok() {
            self.lost.forget(&token);
        } else if self.is_lost(session, &token).await {
            next_token();
        }
        shown
    }

    /// ECS has not shown the VM of a token for so long that the VM must have been deleted. That is only certain for a user with
    /// the right to list VMs: ECS may send others an empty list.
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
            None => session.instance(id).await?,
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

    /// ECS accepted the deletion of a VM lately. It may still show the VM.
    fn is_being_deleted(&self, id: &String) -> bool {
        self.deleted.get(id).is_some_and(|since| since.elapsed() < self.patience.pace.total)
    }
}

#[async_trait]
impl CloudOperations for AlibabaCloud {
    type Spec = Spec;
    type Session = Session;

    const NAME: &'static str = NAME;
    const VMS: &'static str = "VMs of Alibaba Cloud";

    fn read_spec(class: &MachineClass, problems: &mut ClassProblems) -> Spec {
        Spec::read(&class.provider_spec, problems)
    }

    fn check_secret(&self, spec: Spec, _: &MachineClass, secret: &SecretData, problems: &mut ClassProblems) {
        let region = if spec.region.is_empty() { ANY_REGION } else { &spec.region };
        problems.secret(Login::from_secret(secret, region, &self.logins.access.secrets));
        let user_data = user_data(secret);
        if user_data.as_ref().is_ok_and(|data| data.is_empty()) {
            problems.warning("Secret", "there are no userData: a VM without them does not become a Node");
        }
        problems.secret(user_data);
    }

    fn may_list(spec: &Spec, other: &Spec) -> Option<bool> {
        let scope = spec.scope().ok()?;
        let has = |(key, value): (&str, &str)| other.tags.get(key).is_some_and(|other| other == value);
        Some(scope.region == other.region && scope.tags().into_iter().all(has))
    }

    fn volume_id(spec: &PersistentVolumeSpec) -> Option<String> {
        volumes::id_of(spec)
    }

    async fn session(&self, spec: Spec, _: &MachineClass, secret: &SecretData) -> Result<Session, DriverError> {
        let scope = spec.scope()?;
        let login = Login::from_secret(secret, &scope.region, &self.logins.access.secrets)?;
        let open = || self.logins.rest(&TlsOptions::default(), &login.url, login.authentication(), failure_of);
        let rest = self.logins.get_or(&login, open)?;
        let api = Api { rest, region: scope.region.clone(), secret: secret.clone() };
        Ok(Session { spec, scope, login, api, look_ups: Arc::clone(&self.look_ups) })
    }

    fn absences(&self) -> Option<&AbsenceCache<ClassPlace>> {
        Some(&self.absences)
    }

    async fn create(&self, session: &Session, request: &MachineRequest) -> Result<Vm, DriverError> {
        let name = MachineIdentity::from_machine(&request.machine).name;
        let instance = match self.look_once(session, request).await? {
            Some(found) => found,
            None => self.run(session, request).await?,
        };
        let state = format!("ECS instance {} created for machine {name}", instance.id);
        Ok(Vm { last_known_state: Some(state), ..instance.vm(&session.scope.region) })
    }

    async fn delete(&self, session: &Session, request: &MachineRequest) -> Result<Option<String>, DriverError> {
        let found = self.find(session, request).await?;
        for instance in &found {
            self.delete_vm(session, request, instance).await?;
        }
        let name = MachineIdentity::from_machine(&request.machine).name;
        let ids = found.iter().map(|instance| instance.id.as_str()).collect::<Vec<_>>().join(" ");
        Ok(match (found.is_empty(), request.machine.spec.provider_id.is_empty()) {
            (true, _) => None,
            (false, false) => Some(format!("ECS instance {ids} deleted for machine {name}")),
            (false, true) => Some(format!("ECS instance(s) [{ids}] deleted for machine {name}")),
        })
    }

    /// The marker of the cluster stays: the cluster and its other programs need it.
    async fn tag(
        &self,
        session: &Session,
        request: &MachineRequest,
        instance: Instance,
        is_listed: bool,
    ) -> Result<(), DriverError> {
        let [cluster, role] = session.scope.tags();
        if !is_listed {
            return session.api.untag(&instance.id, &[role.0, OWNER_TAG]).await;
        }
        let owner = (OWNER_TAG, request.owner.as_str());
        let tags: Vec<_> =
            [cluster, role, owner].into_iter().filter(|(key, value)| *key != OWNER_TAG || !value.is_empty()).collect();
        session.api.tag(&instance.id, &tags).await
    }

    async fn inspect(&self, session: &Session, secret: &SecretData) -> Vec<ResourceFinding> {
        session.inspect(user_data(secret).err()).await
    }
}
