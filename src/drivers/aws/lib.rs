//! The driver of AWS: VMs are EC2 instances, found by their tags.
//!
//! `providerSpec` and Secret are those of Gardener's driver. `docs/conformance-aws.md` compares the two.

mod accounts;
mod calls;
mod client;
mod credentials;
mod endpoint;
mod errors;
mod iam;
mod inspect;
mod instance;
mod kind;
mod login;
mod names;
mod query;
mod run;
mod secrets_manager;
mod signed;
mod spec;
mod target_groups;
#[cfg(test)]
mod tests;
mod user_data;
mod volumes;

use std::{
    collections::{BTreeSet, HashMap},
    convert::Infallible,
    net::Ipv4Addr,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::PersistentVolumeSpec;
use parking_lot::Mutex;
use rand::Rng;
use tokio::time::{Instant as Clock, sleep};

pub use self::names::NAME;
use self::{
    accounts::{Access, AccountKey, Accounts},
    calls::Ec2,
    errors::{TOKEN_MISMATCH, TOKEN_SPENT},
    instance::{Instance, Todo, needs_initialization},
    names::{IDS, NAME_TAG, OWNER_TAG, PLACEMENT_ANNOTATION, UID_TAG, tags_of},
    run::Order,
    secrets_manager::Stored,
    spec::{Scope, Spec, placement_of_annotation},
    target_groups::TargetType,
    user_data::{UserData, secret_of},
};
use mcm_api::{
    load_balancer::{LoadBalancer, LoadBalancerKind},
    machine::{Machine, MachineClass},
};
use mcm_driver::{
    cloud::{
        CloudVm, LookupCoalescer, LruCache, MachineIdentity, RequestReporter, check_provider, created_for,
        idempotency_token, known_as, only, safe_text,
    },
    code::Code,
    environment::{DriverEnvironment, OpenError},
    error::DriverError,
    guard::DriverObserver,
    inspection::ResourceFinding,
    interface::{Driver, DriverCapabilities, MachineRequest, SecretData, no_members},
    spec::ClassProblems,
    vm::{Vm, VmsByProviderId},
};

/// A Machine whose VMs all ended after their creation gets no more.
const MOST_GENERATIONS: u32 = 10;
/// After this time a request whose token was used for another one, and whose VM EC2 does not show, is given up: EC2 shows a new
/// VM within minutes, and drops an ended one before its token.
const MISMATCH: Duration = Duration::from_secs(600);
/// Tokens with such requests that are remembered.
const MOST_MISMATCHES: usize = 10_000;
/// A VM that is shutting down is looked up again after this time.
const SHUTDOWN: Duration = Duration::from_secs(10);
/// Images whose root device is remembered. It never changes.
const MOST_IMAGES: usize = 1000;

/// A VM of a Machine that is older is shown by every look-up.
const YOUNG: SignedDuration = SignedDuration::from_mins(15);

/// The VM of a Machine may be new. Machines made up for orphans have no date.
fn is_young(machine: &Machine) -> bool {
    let created = machine.metadata.creation_timestamp.as_ref();
    created.is_some_and(|created| Timestamp::now().duration_since(created.0) < YOUNG)
}

/// Opens the driver, for the list of built-in drivers.
pub fn open(
    environment: &DriverEnvironment<'_>,
    observer: &Arc<dyn DriverObserver>,
) -> Result<Arc<dyn Driver>, OpenError> {
    let requests = RequestReporter::for_provider(NAME, observer);
    Ok(Arc::new(AwsDriver::new(Access::of_environment(environment.secrets), Patience::default(), requests)))
}

/// How long the driver waits for what.
#[derive(Clone, Copy, Debug)]
struct Patience {
    /// Look-ups wait so long for others to join them.
    window: Duration,
    /// A request whose token was used for another one is given up.
    mismatch: Duration,
    /// A VM that is shutting down is looked up again.
    shutdown: Duration,
    /// A new VM is visible and has a name: first pause between two look-ups, longest pause, all together.
    first: Duration,
    longest: Duration,
    total: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            window: Duration::from_millis(100),
            mismatch: MISMATCH,
            shutdown: SHUTDOWN,
            first: Duration::from_millis(500),
            longest: Duration::from_secs(15),
            total: Duration::from_secs(300),
        }
    }
}

/// The VMs that a look-up of several Machines finds.
type Found = Result<Arc<Vec<Instance>>, DriverError>;

/// The driver of AWS.
struct AwsDriver {
    patience: Patience,
    accounts: Accounts,
    /// Look-ups of Machines of one class and account that wait at the same time.
    look_ups: LookupCoalescer<(AccountKey, Scope), Found>,
    /// Look-ups by ID of VMs that no look-up by name shows: their tags were changed, or EC2 has forgotten them.
    looks_by_id: LookupCoalescer<AccountKey, Found>,
    /// Root devices by region and image.
    root_devices: Arc<Mutex<HashMap<(String, String), String>>>,
    /// Tokens that were used for other requests, and since when this is known.
    mismatches: LruCache<String, Clock>,
    /// Root devices that are being read.
    images: LookupCoalescer<(AccountKey, String), Result<String, DriverError>>,
}

/// A class with access to its account.
struct Session {
    spec: Spec,
    scope: Scope,
    key: AccountKey,
    ec2: Ec2,
}

impl Session {
    /// User data for the machine with a UID.
    fn user_data<'a>(&self, secret: &'a SecretData, uid: &str) -> Result<UserData<'a>, DriverError> {
        UserData::from_secret(&self.spec, self.key.endpoint.as_deref(), uid, secret)
    }

    /// Stores the user data that the VM of a machine will fetch, if there are any.
    async fn store(&self, user_data: &UserData<'_>, request: &MachineRequest) -> Result<(), DriverError> {
        let Some(value) = &user_data.stored else { return Ok(()) };
        let MachineIdentity { name, uid } = MachineIdentity::from_machine(&request.machine);
        let mut tags = tags_of(&self.spec.tags, name, Some((uid, &request.owner)));
        if !tags.contains_key(UID_TAG) {
            // The UID identifies the Machine of the secret, and the name of the secret contains it as well.
            tags.remove(NAME_TAG);
            tags.insert(UID_TAG, uid);
        }
        let stored = Stored { name: &secret_of(uid), uid, tags: &tags };
        self.ec2.account.secrets_manager.store(stored, value, &request.secret).await
    }

    /// Deletes the user data of a machine, and of the machines that VMs were created for, from their store.
    async fn forget_user_data(&self, uid: &str, instances: &[Instance]) -> Result<(), DriverError> {
        if !self.spec.has_user_data_store {
            return Ok(());
        }
        let of_vms = instances.iter().filter_map(CloudVm::machine_uid);
        let uids: BTreeSet<&str> = of_vms.chain([uid]).filter(|uid| !uid.is_empty()).collect();
        for uid in uids {
            self.ec2.account.secrets_manager.delete(&secret_of(uid), &self.ec2.secret).await?;
        }
        Ok(())
    }
}

impl AwsDriver {
    fn new(access: Access, patience: Patience, requests: RequestReporter) -> Self {
        Self {
            patience,
            accounts: Accounts::new(access, requests),
            look_ups: LookupCoalescer::new(patience.window),
            looks_by_id: LookupCoalescer::new(patience.window),
            root_devices: Arc::default(),
            mismatches: LruCache::new(MOST_MISMATCHES),
            images: LookupCoalescer::of_facts(),
        }
    }

    /// Fields that only a creation needs may be wrong.
    fn session(&self, class: &MachineClass, secret: &SecretData) -> Result<Session, DriverError> {
        let mut problems = ClassProblems::default();
        check_provider(class, NAME, &mut problems);
        problems.to_result()?;
        let spec = Spec::read(&class.provider_spec, &mut problems);
        let scope = spec.scope()?;
        let key = self.accounts.key(&scope.region, class, secret)?;
        let ec2 = Ec2 { account: self.accounts.get(&key)?, secret: secret.clone() };
        Ok(Session { spec, scope, key, ec2 })
    }

    /// All VMs of the class with the name of a Machine, including terminated VMs.
    async fn named(&self, session: &Session, name: &str) -> Result<Vec<Instance>, DriverError> {
        let (ec2, scope) = (session.ec2.clone(), session.scope.clone());
        let key = (session.key.clone(), session.scope.clone());
        let look_up = move |names| async move { ec2.named(&scope, &names).await.map(Arc::new) };
        let all = self.look_ups.look_up(key, name.to_owned(), look_up).await?;
        Ok(all.iter().filter(|instance| instance.machine_name() == name).cloned().collect())
    }

    /// The VM with an ID, if EC2 shows it.
    async fn with_id(&self, session: &Session, id: &str) -> Result<Option<Instance>, DriverError> {
        let ec2 = session.ec2.clone();
        let look_up = move |ids| async move { ec2.with_ids(&ids).await.map(Arc::new) };
        let all = self.looks_by_id.look_up(session.key.clone(), id.to_owned(), look_up).await?;
        Ok(all.iter().find(|instance| instance.id == id).cloned())
    }

    /// The existing VMs of a Machine: the VM with its provider ID or, without an ID, all VMs that were created for it.
    async fn find(&self, session: &Session, machine: &Machine) -> Result<Vec<Instance>, DriverError> {
        let mut found = self.find_all(session, machine).await?;
        found.retain(|instance| !instance.is_gone);
        Ok(found)
    }

    /// The same, including terminated VMs.
    async fn find_all(&self, session: &Session, machine: &Machine) -> Result<Vec<Instance>, DriverError> {
        Ok(self.seen(session, machine).await?.0)
    }

    /// The same, and the ID in the provider ID if EC2 shows no VM with it.
    async fn seen<'a>(
        &self,
        session: &Session,
        machine: &'a Machine,
    ) -> Result<(Vec<Instance>, Option<&'a str>), DriverError> {
        let wanted = MachineIdentity::from_machine(machine);
        let place = IDS.of_machine(machine)?;
        if let Some([place, id]) = place.filter(|[place, _]| !is_in_region(place, &session.scope.region)) {
            let message = format!(
                "machine {:?} has VM {id} in {place}, and its class is for region {}: check the class",
                wanted.name, session.scope.region
            );
            return Err(DriverError::new(Code::InvalidArgument, message));
        }
        let named = self.named(session, wanted.name).await?;
        let Some([_, id]) = place else { return Ok((created_for(named, wanted, &session.scope), None)) };
        let found = match named.into_iter().find(|instance| instance.id == id) {
            Some(found) => Some(found),
            None => self.with_id(session, id).await?,
        };
        let unseen = found.is_none().then_some(id);
        Ok((known_as(found, wanted, &session.scope).into_iter().collect(), unseen))
    }

    async fn root_device(&self, session: &Session) -> Result<String, DriverError> {
        let key = (session.spec.region.clone(), session.spec.ami.clone());
        if let Some(known) = self.root_devices.lock().get(&key) {
            return Ok(known.clone());
        }
        let (ec2, ami, known) = (session.ec2.clone(), session.spec.ami.clone(), Arc::clone(&self.root_devices));
        let read = move |_| async move {
            let name = ec2.root_device(&ami).await?;
            let mut known = known.lock();
            if known.len() >= MOST_IMAGES {
                known.clear();
            }
            known.insert(key, name.clone());
            Ok(name)
        };
        self.images.look_up((session.key.clone(), session.spec.ami.clone()), String::new(), read).await
    }

    /// Creates a VM, or finds the VM of an earlier request. `generation` VMs of the Machine have terminated.
    async fn run(
        &self,
        session: &Session,
        request: &MachineRequest,
        mut generation: u32,
    ) -> Result<Instance, DriverError> {
        let machine = &*request.machine;
        let wanted = MachineIdentity::from_machine(machine);
        let user_data = session.user_data(&request.secret, wanted.uid)?;
        let annotation = machine.spec.node_template.metadata.annotations.get(PLACEMENT_ANNOTATION);
        let placement = match annotation.filter(|text| !text.is_empty() && session.spec.placement.is_none()) {
            Some(text) => {
                let (placement, warnings) = placement_of_annotation(text)?;
                for warning in warnings {
                    tracing::warn!(machine = wanted.name, "{warning}");
                }
                placement
            }
            None => None,
        };
        let root_device = self.root_device(session).await?;
        session.store(&user_data, request).await?;
        while generation < MOST_GENERATIONS {
            let token = idempotency_token(machine, generation)?;
            let order = Order {
                spec: &session.spec,
                machine: wanted.name,
                uid: wanted.uid,
                owner: &request.owner,
                token: &token,
                user_data: &user_data.sent,
                root_device: &root_device,
                placement: placement.clone(),
            };
            let failure = match session.ec2.run(&order).await {
                Ok(instance) => {
                    self.mismatches.forget(&token);
                    return Ok(instance);
                }
                Err(failure) => failure,
            };
            if failure.is(TOKEN_MISMATCH) {
                // The user data contains a token that may be new. The VM of the earlier request is as good.
                match session.ec2.with_token(&token).await? {
                    Some(instance) if instance.is_gone => {}
                    Some(instance) => {
                        self.mismatches.forget(&token);
                        return Ok(instance);
                    }
                    None if self.is_lost(&token) => {}
                    None => return Err(failure.error("RunInstances", &request.secret)),
                }
            } else if !failure.is(TOKEN_SPENT) {
                return Err(failure.error("RunInstances", &request.secret));
            }
            generation += 1;
        }
        let message = format!("{MOST_GENERATIONS} VMs of machine {:?} ended after their creation", wanted.name);
        Err(DriverError::new(Code::Internal, message))
    }

    /// A token was used for another request so long ago that its VM must have ended.
    fn is_lost(&self, token: &String) -> bool {
        let since = self.mismatches.get_or(token, || Ok::<_, Infallible>(Clock::now()));
        since.is_ok_and(|since| since.elapsed() >= self.patience.mismatch)
    }

    /// Waits until EC2 lists a new VM and its Node has a name.
    async fn until_ready(&self, session: &Session, name: &str, id: &str) -> Result<Instance, DriverError> {
        let Patience { first, longest, total, .. } = self.patience;
        let (deadline, mut pause) = (Clock::now() + total, first);
        loop {
            let problem = match self.named(session, name).await {
                Ok(all) => match all.into_iter().find(|instance| instance.id == id) {
                    Some(instance) if instance.is_gone => return Err(ended(&instance)),
                    Some(instance) if !instance.node_name.is_empty() => return Ok(instance),
                    Some(_) => "it has no private DNS name".to_owned(),
                    None => "DescribeInstances does not show it".to_owned(),
                },
                Err(error) if error.code.is_transient() => error.message,
                Err(error) => return Err(error),
            };
            if Clock::now() + pause > deadline {
                // The next attempt finds it by its tags.
                let message = format!("VM {id} was created, but is not ready yet: {problem}");
                return Err(DriverError::new(Code::DeadlineExceeded, message));
            }
            let wait = pause.mul_f64(rand::rng().random_range(0.5..1.5));
            sleep(wait).await;
            pause = (pause * 3 / 2).min(longest);
        }
    }

    /// Waits until the VMs of a Machine do not run any more. Cluster API core deletes the Node after its VM, so the kubelet must
    /// have ended; the machine controller deletes the Node itself and need not wait.
    async fn until_ended(&self, session: &Session, request: &MachineRequest) -> Result<(), DriverError> {
        let deadline = Clock::now() + self.patience.total;
        loop {
            let all = self.find_all(session, &request.machine).await?;
            let Some(instance) = all.iter().find(|instance| !instance.has_ended) else { return Ok(()) };
            let message = format!("VM {} is shutting down", instance.id);
            if request.may_pause {
                return Err(DriverError::not_done(message, self.patience.shutdown));
            }
            if Clock::now() + self.patience.shutdown > deadline {
                return Err(DriverError::new(Code::DeadlineExceeded, message));
            }
            sleep(self.patience.shutdown).await;
        }
    }

    async fn carry_out(&self, session: &Session, todo: &Todo) -> Result<(), DriverError> {
        match todo {
            Todo::DisableSourceDestCheck { interface } => session.ec2.disable_source_dest_check(interface).await,
            Todo::AssignIpv6Prefixes { interface, missing } => {
                session.ec2.assign_ipv6_prefixes(interface, *missing).await
            }
        }
    }

    /// The address by which a load balancer finds the VM of a Machine.
    async fn private_address(&self, session: &Session, machine: &Machine) -> Result<String, DriverError> {
        let instance = only(self.find(session, machine).await?, MachineIdentity::from_machine(machine).name)
            .map_err(|error| DriverError { code: Code::FailedPrecondition, ..error })?;
        instance.private_address.ok_or_else(|| {
            let message = format!("VM {} has no private address yet", instance.id);
            DriverError::new(Code::FailedPrecondition, message)
        })
    }

    async fn initialized(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        let session = self.session(&request.class, &request.secret)?;
        let instance =
            only(self.find(&session, &request.machine).await?, MachineIdentity::from_machine(&request.machine).name)?;
        for todo in instance.todo(&session.spec) {
            self.carry_out(&session, &todo).await?;
        }
        Ok(instance.vm(&session.scope.region))
    }
}

#[async_trait]
impl Driver for AwsDriver {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> DriverCapabilities {
        DriverCapabilities { initialize: true, list: true, inspect: true, tag: true }
    }

    fn validate(&self, class: &MachineClass) -> ClassProblems {
        let mut problems = ClassProblems::default();
        check_provider(class, NAME, &mut problems);
        let spec = Spec::read(&class.provider_spec, &mut problems);
        spec::check::node_template(&spec, class, &mut problems);
        problems
    }

    fn secret_problems(&self, class: &MachineClass, secret: &SecretData) -> ClassProblems {
        let mut problems = ClassProblems::default();
        if let Err(error) = self.accounts.key("", class, secret) {
            problems.error("Secret", error.message);
        }
        let spec = Spec::read(&class.provider_spec, &mut ClassProblems::default());
        if let Err(error) = UserData::from_secret(&spec, None, "", secret) {
            problems.error("Secret", error.message);
        }
        problems
    }

    async fn create(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        self.validate(&request.class).to_result()?;
        idempotency_token(&request.machine, 0)?;
        let session = self.session(&request.class, &request.secret)?;
        let wanted = MachineIdentity::from_machine(&request.machine);
        let named = self.named(&session, wanted.name).await?;
        let (alive, gone): (Vec<_>, Vec<_>) =
            named.into_iter().filter(|one| one.is_of(wanted)).partition(|one| one.is_in(&session.scope));
        let id = if alive.is_empty() {
            let generation = gone.iter().filter_map(|one| one.generation(wanted.uid)).max().map_or(0, |last| last + 1);
            self.run(&session, request, generation).await?.id
        } else {
            only(alive, wanted.name)?.id
        };
        Ok(self.until_ready(&session, wanted.name, &id).await?.vm(&session.scope.region))
    }

    /// [`Code::Unimplemented`] if the class needs no change of a new VM.
    async fn initialize(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        if !needs_initialization(&Spec::read(&request.class.provider_spec, &mut ClassProblems::default())) {
            return Err(DriverError::new(Code::Unimplemented, "the class does not ask for initialization"));
        }
        self.initialized(request).await.map_err(|error| {
            let message = format!("{}: {}", error.code, error.message);
            DriverError::new(Code::Uninitialized, message)
        })
    }

    async fn delete(&self, request: &MachineRequest) -> Result<Option<String>, DriverError> {
        let session = self.session(&request.class, &request.secret)?;
        let (all, unseen) = self.seen(&session, &request.machine).await?;
        let uid = MachineIdentity::from_machine(&request.machine).uid;
        // No list shows an orphan whose VM has ended, so there would be no other attempt.
        let is_orphan = uid.is_empty();
        if is_orphan {
            session.forget_user_data(uid, &all).await?;
        }
        for instance in all.iter().filter(|instance| !instance.is_gone) {
            session.ec2.terminate(&instance.id).await?;
        }
        // Look-ups may lack a new VM for minutes. TerminateInstances finds it.
        if let Some(id) = unseen.filter(|_| is_young(&request.machine)) {
            session.ec2.terminate(id).await?;
        }
        if request.machine.is_infrastructure() && all.iter().any(|instance| !instance.has_ended) {
            self.until_ended(&session, request).await?;
        }
        if !is_orphan {
            session.forget_user_data(uid, &all).await?;
        }
        Ok(None)
    }

    async fn status(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        let session = self.session(&request.class, &request.secret)?;
        let (gone, found): (Vec<_>, Vec<_>) =
            self.find_all(&session, &request.machine).await?.into_iter().partition(|instance| instance.is_gone);
        let instance = only(found, MachineIdentity::from_machine(&request.machine).name).map_err(|error| {
            let end =
                gone.first().filter(|_| error.code == Code::NotFound && !request.machine.spec.provider_id.is_empty());
            DriverError { vm: end.map(|instance| Box::new(instance.ended(&session.scope.region))), ..error }
        })?;
        let vm = instance.vm(&session.scope.region);
        if vm.node_name.is_empty() && request.machine.spec.provider_id.is_empty() {
            // The name of its Node would be stored.
            let message = format!("VM {} has no private DNS name yet", instance.id);
            return Err(DriverError::new(Code::Unavailable, message));
        }
        if instance.todo(&session.spec).is_empty() {
            return Ok(vm);
        }
        let message = format!("VM {} is not initialized", instance.id);
        Err(DriverError { vm: Some(Box::new(vm)), ..DriverError::new(Code::Uninitialized, message) })
    }

    async fn list(&self, class: &MachineClass, secret: &SecretData) -> Result<VmsByProviderId, DriverError> {
        let session = self.session(class, secret)?;
        let all = session.ec2.alive(&session.scope).await?;
        let ours = all.into_iter().filter(|instance| instance.is_in(&session.scope));
        let entry = |instance: Instance| (IDS.node_form(&session.scope.region, &instance.id), instance.listed());
        Ok(ours.map(entry).collect())
    }

    fn may_list(&self, class: &MachineClass, other: &MachineClass) -> bool {
        let [spec, other] = [class, other].map(|class| Spec::read(&class.provider_spec, &mut ClassProblems::default()));
        spec.scope().map_or(true, |scope| {
            scope.region == other.region && scope.markers.are_on(other.tags.keys().map(String::as_str))
        })
    }

    async fn inspect(&self, class: &MachineClass, secret: &SecretData) -> Result<Vec<ResourceFinding>, DriverError> {
        let session = self.session(class, secret)?;
        Ok(session.inspect(session.user_data(secret, "")).await)
    }

    async fn members_of_group(
        &self,
        class: &MachineClass,
        secret: &SecretData,
        group: &str,
    ) -> Result<BTreeSet<String>, DriverError> {
        let session = self.session(class, secret)?;
        let all = session.ec2.members(group).await?;
        let members = all.into_iter().filter(|instance| instance.is_member_of(group));
        Ok(members.map(|instance| IDS.node_form(&session.scope.region, &instance.id)).collect())
    }

    /// The marker of the cluster stays: the cluster and its other programs need it. So does the name, by which a list shows the
    /// Machine of a VM; those of a group share one before.
    async fn tag(&self, request: &MachineRequest, is_listed: bool) -> Result<(), DriverError> {
        let session = self.session(&request.class, &request.secret)?;
        let instance =
            only(self.find(&session, &request.machine).await?, MachineIdentity::from_machine(&request.machine).name)?;
        let [cluster, role] = [&session.scope.markers.cluster, &session.scope.markers.role].map(String::as_str);
        if !is_listed {
            return session.ec2.delete_tags(&instance.id, &[role, OWNER_TAG]).await;
        }
        let value = |key: &str| session.spec.tags.get(key).map(String::as_str).unwrap_or_default();
        let name = MachineIdentity::from_machine(&request.machine).name;
        let markers = [(cluster, value(cluster)), (role, value(role)), (NAME_TAG, name), (OWNER_TAG, &request.owner)];
        let tags: Vec<_> = markers.into_iter().filter(|(key, value)| *key != OWNER_TAG || !value.is_empty()).collect();
        session.ec2.create_tags(&instance.id, &tags).await
    }

    fn load_balancers(&self) -> Option<LoadBalancerKind> {
        Some(LoadBalancerKind::AwsTargetGroup)
    }

    async fn register(&self, request: &MachineRequest, balancer: &LoadBalancer) -> Result<(), DriverError> {
        let LoadBalancer::AwsTargetGroup(group) = balancer else { return Err(no_members(NAME, balancer)) };
        let session = self.session(&request.class, &request.secret)?;
        let (groups, arn) = (&session.ec2.account.target_groups, &group.arn);
        let target = match groups.target_type(arn, &request.secret).await? {
            TargetType::Instance => id_of(&request.machine)?.to_owned(),
            TargetType::Address => self.private_address(&session, &request.machine).await?,
        };
        groups.register(arn, &target, &request.secret).await
    }

    async fn deregister(&self, request: &MachineRequest, balancer: &LoadBalancer) -> Result<(), DriverError> {
        let LoadBalancer::AwsTargetGroup(group) = balancer else { return Err(no_members(NAME, balancer)) };
        let session = self.session(&request.class, &request.secret)?;
        let (groups, arn) = (&session.ec2.account.target_groups, &group.arn);
        let targets = match groups.target_type(arn, &request.secret).await? {
            TargetType::Instance => vec![id_of(&request.machine)?],
            // EC2 may have forgotten which of them was registered.
            TargetType::Address => private_addresses(&request.machine)?,
        };
        groups.deregister(arn, &targets, &request.secret).await
    }

    async fn volume_ids(&self, specs: &[PersistentVolumeSpec]) -> Result<Vec<String>, DriverError> {
        Ok(specs.iter().filter_map(volumes::id_of).collect())
    }
}

/// The ID of the VM of a Machine.
fn id_of(machine: &Machine) -> Result<&str, DriverError> {
    let missing = || DriverError::new(Code::FailedPrecondition, "the machine has no provider ID");
    IDS.of_machine(machine)?.map(|[_, id]| id).ok_or_else(missing)
}

/// The private addresses of the VM of a Machine, which may not exist any more: those of IPv4 if there are any. A network plugin
/// gives a VM more of them after its registration.
fn private_addresses(machine: &Machine) -> Result<Vec<&str>, DriverError> {
    let all = machine.status.iter().flat_map(|status| &status.addresses);
    let private: Vec<&str> =
        all.filter(|address| address.type_ == "InternalIP").map(|one| one.address.as_str()).collect();
    let (ipv4, others): (Vec<_>, Vec<_>) = private.into_iter().partition(|address| address.parse::<Ipv4Addr>().is_ok());
    let found = if ipv4.is_empty() { others } else { ipv4 };
    if found.is_empty() {
        return Err(DriverError::new(Code::FailedPrecondition, "the VM has no private address yet"));
    }
    Ok(found)
}

/// A part of a provider ID is a region or one of its zones, also a local one such as `us-west-2-lax-1a`.
fn is_in_region(place: &str, region: &str) -> bool {
    place.strip_prefix(region).is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// A VM that ended while it was waited for.
fn ended(instance: &Instance) -> DriverError {
    let (code, text) = instance.reason.clone().unwrap_or_default();
    let text = safe_text(&format!("{code}: {text}"), &SecretData::default());
    DriverError::new(
        errors::code_of_state_reason(&code),
        format!("VM {} ended after its creation: {text}", instance.id),
    )
}
