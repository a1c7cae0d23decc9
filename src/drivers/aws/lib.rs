//! The driver of AWS: VMs are EC2 instances, found by their tags.
//!
//! `providerSpec` and Secret are those of Gardener's driver. `docs/conformance-aws.md` compares the two.

// The futures of the SDK are deep, and the protocol of the kit nests them.
#![recursion_limit = "256"]

mod accounts;
mod calls;
mod capacity;
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
mod session;
mod signed;
mod spec;
mod target_groups;
#[cfg(test)]
mod tests;
mod user_data;
mod volumes;

use std::{collections::BTreeSet, convert::Infallible, net::Ipv4Addr, sync::Arc, time::Duration};

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::PersistentVolumeSpec;
use rand::Rng;
use tokio::time::{Instant as Clock, sleep};

pub use self::names::NAME;
use self::{
    accounts::{Access, AccountKey, Accounts},
    calls::Ec2,
    errors::{TOKEN_MISMATCH, TOKEN_SPENT},
    instance::{Instance, Todo, needs_initialization},
    names::{IDS, NAME_TAG, OWNER_TAG, PLACEMENT_ANNOTATION},
    run::Order,
    session::{Ec2Lookups, Session},
    spec::{Spec, placement_of_annotation},
    target_groups::TargetType,
    user_data::UserData,
};
use mcm_api::{
    load_balancer::{LoadBalancer, LoadBalancerKind},
    machine::{Machine, MachineClass},
};
use mcm_driver::{
    Driver, DriverCapabilities, DriverError, MachineRequest, SecretData, Vm, VmCapacity,
    cloud::{
        CloudDriver, CloudFailure, CloudOperations, CloudSession, LookupCoalescer, LruCache, MachineIdentity,
        RequestReporter, VmLookupError, idempotency_token, only, safe_text,
    },
    code::Code,
    environment::{DriverEnvironment, OpenError},
    guard::DriverObserver,
    inspection::ResourceFinding,
    interface::no_members,
    spec::ClassProblems,
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
    let access = Access::from_environment(environment.secrets)?;
    let requests = RequestReporter::for_provider(NAME, observer);
    Ok(Arc::new(CloudDriver(AwsCloud::new(access, Patience::default(), requests))))
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

/// The instances of EC2.
struct AwsCloud {
    patience: Patience,
    accounts: Accounts,
    look_ups: Arc<Ec2Lookups>,
    /// Root devices by region and image.
    root_devices: Arc<LruCache<(String, String), String>>,
    /// Tokens that were used for other requests, and since when this is known.
    mismatches: LruCache<String, Clock>,
    /// Root devices that are being read.
    images: LookupCoalescer<(AccountKey, String), Result<String, DriverError>>,
}

impl AwsCloud {
    fn new(access: Access, patience: Patience, requests: RequestReporter) -> Self {
        Self {
            patience,
            accounts: Accounts::new(access, requests),
            look_ups: Arc::new(Ec2Lookups::new(patience.window)),
            root_devices: Arc::new(LruCache::new(MOST_IMAGES)),
            mismatches: LruCache::new(MOST_MISMATCHES),
            images: LookupCoalescer::of_facts(),
        }
    }

    async fn root_device(&self, session: &Session) -> Result<String, DriverError> {
        let key = (session.spec.region.clone(), session.spec.ami.clone());
        if let Some(known) = self.root_devices.get(&key) {
            return Ok(known);
        }
        let (ec2, ami, known) = (session.ec2.clone(), session.spec.ami.clone(), Arc::clone(&self.root_devices));
        let read = move |_| async move {
            let name = ec2.root_device(&ami).await?;
            known.put(key, name.clone());
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
            let refused = |failure: CloudFailure| failure.error_of_creation("RunInstances", &request.secret);
            let found = match session.ec2.run(&order).await {
                Ok(instance) => Some(instance),
                // The user data contains a token that may be new. The VM of the earlier request is as good.
                Err(failure) if failure.is(TOKEN_MISMATCH) => match session.ec2.with_token(&token).await? {
                    None if !self.is_lost(&token) => return Err(refused(failure)),
                    found => found.filter(|instance| !instance.is_gone),
                },
                Err(failure) if failure.is(TOKEN_SPENT) => None,
                Err(failure) => return Err(refused(failure)),
            };
            if let Some(instance) = found {
                self.mismatches.forget(&token);
                return Ok(instance);
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
    async fn until_ready(&self, session: &Session, machine: &Machine, id: &str) -> Result<Instance, DriverError> {
        let Patience { first, longest, total, .. } = self.patience;
        let (deadline, mut pause) = (Clock::now() + total, first);
        loop {
            let problem = match session.named(machine).await {
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
            let all = self.find(session, request).await?;
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

    async fn initialized(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        let session = self.open_session(&request.class, &request.secret).await?;
        let instance = self.find_only(&session, request).await?;
        for todo in instance.todo(&session.spec) {
            match todo {
                Todo::DisableSourceDestCheck { interface } => session.ec2.disable_source_dest_check(&interface).await?,
                Todo::AssignIpv6Prefixes { interface, missing } => {
                    session.ec2.assign_ipv6_prefixes(&interface, missing).await?;
                }
            }
        }
        Ok(session.shown(&instance))
    }

    /// The address by which a load balancer finds the VM of a Machine.
    async fn private_address(&self, session: &Session, request: &MachineRequest) -> Result<String, DriverError> {
        let found = self.find_only(session, request).await;
        let instance = found.map_err(|error| DriverError { code: Code::FailedPrecondition, ..error.into() })?;
        instance.private_address.ok_or_else(|| {
            let message = format!("VM {} has no private address yet", instance.id);
            DriverError::new(Code::FailedPrecondition, message)
        })
    }
}

#[async_trait]
impl CloudOperations for AwsCloud {
    type Spec = Spec;
    type Session = Session;

    const NAME: &'static str = NAME;
    const VMS: &'static str = "instances of EC2";
    const CAPABILITIES: DriverCapabilities =
        DriverCapabilities { initialize: true, list: true, inspect: true, tag: true };
    const BALANCERS: Option<LoadBalancerKind> = Some(LoadBalancerKind::AwsTargetGroup);

    fn read_spec(class: &MachineClass, problems: &mut ClassProblems) -> Spec {
        let spec = Spec::read(&class.provider_spec, problems);
        spec::check::node_template(&spec, class, problems);
        spec
    }

    fn check_secret(&self, spec: Spec, class: &MachineClass, secret: &SecretData, problems: &mut ClassProblems) {
        problems.secret(self.accounts.key("", class, secret));
        problems.secret(UserData::from_secret(&spec, None, "", secret));
    }

    fn may_list(spec: &Spec, other: &Spec) -> Option<bool> {
        let scope = spec.scope().ok()?;
        Some(scope.region == other.region && scope.markers.are_on(other.tags.keys().map(String::as_str)))
    }

    fn volume_id(spec: &PersistentVolumeSpec) -> Option<String> {
        volumes::id_of(spec)
    }

    async fn session(&self, spec: Spec, class: &MachineClass, secret: &SecretData) -> Result<Session, DriverError> {
        let scope = spec.scope()?;
        let key = self.accounts.key(&scope.region, class, secret)?;
        let ec2 = Ec2 { account: self.accounts.get(&key)?, secret: secret.clone() };
        Ok(Session { spec, scope, key, ec2, look_ups: Arc::clone(&self.look_ups) })
    }

    async fn create(&self, session: &Session, request: &MachineRequest) -> Result<Vm, DriverError> {
        let machine = &*request.machine;
        let MachineIdentity { name, uid } = MachineIdentity::from_machine(machine);
        let (gone, alive): (Vec<_>, Vec<_>) =
            session.created_for(machine).await?.into_iter().partition(|instance| instance.is_gone);
        let id = if alive.is_empty() {
            let generation = gone.iter().filter_map(|one| one.generation(uid)).max().map_or(0, |last| last + 1);
            self.run(session, request, generation).await?.id
        } else {
            only(alive, name)?.id
        };
        Ok(session.shown(&self.until_ready(session, machine, &id).await?))
    }

    /// [`Code::Unimplemented`] if the class needs no change of a new VM.
    async fn initialize(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        if !needs_initialization(&Self::read_spec(&request.class, &mut ClassProblems::default())) {
            return Err(DriverError::new(Code::Unimplemented, "the class does not ask for initialization"));
        }
        self.initialized(request).await.map_err(|error| {
            let message = format!("{}: {}", error.code, error.message);
            DriverError::new(Code::Uninitialized, message)
        })
    }

    async fn delete(&self, session: &Session, request: &MachineRequest) -> Result<Option<String>, DriverError> {
        let (all, unseen) = session.shown_or_unseen(&request.machine).await?;
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
            self.until_ended(session, request).await?;
        }
        if !is_orphan {
            session.forget_user_data(uid, &all).await?;
        }
        Ok(None)
    }

    async fn status(&self, session: &Session, request: &MachineRequest) -> Result<Vm, VmLookupError> {
        let is_known = !request.machine.spec.provider_id.is_empty();
        let (gone, found): (Vec<_>, Vec<_>) =
            self.find(session, request).await?.into_iter().partition(|instance| instance.is_gone);
        let end = gone.first().filter(|_| is_known).map(|instance| instance.ended(&session.scope.region));
        let only = only(found, MachineIdentity::from_machine(&request.machine).name);
        let instance = only.map_err(|error| error.with_end(end))?;
        let vm = session.shown(&instance);
        if vm.node_name.is_empty() && !is_known {
            // The name of its Node would be stored.
            let message = format!("VM {} has no private DNS name yet", instance.id);
            return Err(DriverError::new(Code::Unavailable, message).into());
        }
        if instance.todo(&session.spec).is_empty() {
            return Ok(vm);
        }
        let message = format!("VM {} is not initialized", instance.id);
        Err(DriverError { vm: Some(Box::new(vm)), ..DriverError::new(Code::Uninitialized, message) }.into())
    }

    /// The marker of the cluster stays: the cluster and its other programs need it. So does the name, by which a list shows the
    /// Machine of a VM; those of a group share one before.
    async fn tag(
        &self,
        session: &Session,
        request: &MachineRequest,
        instance: Instance,
        is_listed: bool,
    ) -> Result<(), DriverError> {
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

    async fn inspect(&self, session: &Session, secret: &SecretData) -> Vec<ResourceFinding> {
        session.inspect(session.user_data(secret, "")).await
    }

    fn capacity_key(spec: &Spec) -> Option<String> {
        capacity::capacity_key(spec)
    }

    async fn capacity(&self, session: &Session) -> Result<VmCapacity, DriverError> {
        session.capacity().await
    }

    async fn members_of_group(
        &self,
        class: &MachineClass,
        secret: &SecretData,
        group: &str,
    ) -> Result<BTreeSet<String>, DriverError> {
        let session = self.open_session(class, secret).await?;
        let all = session.ec2.members(group).await?;
        let members = all.into_iter().filter(|instance| instance.is_member_of(group));
        Ok(members.map(|instance| session.shown(&instance).provider_id).collect())
    }

    async fn set_member(
        &self,
        request: &MachineRequest,
        balancer: &LoadBalancer,
        is_member: bool,
    ) -> Result<(), DriverError> {
        let LoadBalancer::AwsTargetGroup(group) = balancer else { return Err(no_members(NAME, balancer)) };
        let session = self.open_session(&request.class, &request.secret).await?;
        let (groups, arn, secret) = (&session.ec2.account.target_groups, &group.arn, &request.secret);
        match (groups.target_type(arn, secret).await?, is_member) {
            (TargetType::Instance, true) => groups.register(arn, id_of(&request.machine)?, secret).await,
            (TargetType::Instance, false) => groups.deregister(arn, &[id_of(&request.machine)?], secret).await,
            (TargetType::Address, true) => {
                groups.register(arn, &self.private_address(&session, request).await?, secret).await
            }
            // EC2 may have forgotten which of them was registered.
            (TargetType::Address, false) => groups.deregister(arn, &private_addresses(&request.machine)?, secret).await,
        }
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

/// A VM that ended while it was waited for.
fn ended(instance: &Instance) -> DriverError {
    let (code, text) = instance.reason.clone().unwrap_or_default();
    let text = safe_text(&format!("{code}: {text}"), &SecretData::default());
    DriverError::new(
        errors::code_of_state_reason(&code),
        format!("VM {} ended after its creation: {text}", instance.id),
    )
}
