//! The driver of Google Cloud: VMs are instances of Compute Engine, found by their name and their network tags.
//!
//! `providerSpec` and Secret are those of Gardener's driver. `docs/conformance-gcp.md` compares the two.

mod access;
mod accounts;
mod calls;
mod capacity;
mod credentials;
mod errors;
mod inspect;
mod instance;
mod instance_groups;
mod jwt;
mod names;
mod operation;
mod operations;
mod order;
mod quota;
mod request_id;
mod rest;
mod running;
mod session;
mod spec;
#[cfg(test)]
mod tests;
mod tokens;
mod user_data;
mod volumes;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::PersistentVolumeSpec;

pub use self::names::NAME;
use self::{
    access::Access,
    accounts::{AccountKey, Accounts},
    calls::Compute,
    instance::Instance,
    operations::{Ended, Meanwhile, Operations, PACE},
    order::Order,
    request_id::{request_id, spent, spent_requests},
    running::{Begun, Goal, Running},
    session::{LookUps, Session},
    spec::Spec,
};
use mcm_api::{
    load_balancer::{LoadBalancer, LoadBalancerKind},
    machine::MachineClass,
};
use mcm_driver::{
    Driver, DriverCapabilities, DriverError, MachineRequest, SecretData, Vm, VmCapacity,
    cloud::{
        CloudDriver, CloudOperations, CloudSession, HttpClient, MachineIdentity, PollTiming, RequestReporter,
        VmLookupError, check_instance_name,
    },
    code::Code,
    environment::{DriverEnvironment, OpenError},
    guard::DriverObserver,
    inspection::ResourceFinding,
    interface::no_members,
    spec::ClassProblems,
};

/// Requests of one creation, if the earlier ones turn out to be spent.
const MOST_REQUESTS: u32 = 5;

/// Opens the driver, for the list of built-in drivers.
pub fn open(
    environment: &DriverEnvironment<'_>,
    observer: &Arc<dyn DriverObserver>,
) -> Result<Arc<dyn Driver>, OpenError> {
    let (access, requests) =
        (Access::of_environment(environment.secrets), RequestReporter::for_provider(NAME, observer));
    Ok(Arc::new(CloudDriver(GcpCloud::new(access, Patience::default(), requests))))
}

/// How long the driver waits for what.
#[derive(Clone, Copy, Debug)]
struct Patience {
    /// Look-ups wait so long for others to join them.
    window: Duration,
    /// Operations are done.
    pace: PollTiming,
}

impl Default for Patience {
    fn default() -> Self {
        Self { window: Duration::from_millis(100), pace: PACE }
    }
}

/// The instances of Compute Engine.
struct GcpCloud {
    patience: Patience,
    accounts: Accounts,
    look_ups: Arc<LookUps>,
    operations: Operations,
    running: Running,
}

impl GcpCloud {
    fn new(access: Access, patience: Patience, requests: RequestReporter) -> Self {
        let http = Arc::new(HttpClient::new(access.limits, access.uses_proxy, requests));
        Self {
            patience,
            accounts: Accounts::new(access, http),
            look_ups: Arc::new(LookUps::new(patience.window)),
            operations: Operations::new(patience.pace, patience.window),
            running: Running::new(patience.pace.total),
        }
    }

    /// Follows an operation until it is done, or until this call may pause.
    async fn follow(
        &self,
        session: &Session,
        request: &MachineRequest,
        goal: Goal,
        begun: &Begun,
        what: &str,
    ) -> Result<(), Ended> {
        let uid = MachineIdentity::from_machine(&request.machine).uid;
        let meanwhile = Meanwhile::for_request(request);
        // This call may be dropped at any time.
        self.running.remember(uid, goal, begun);
        let ended = self.operations.until_done(session, begun, what, meanwhile).await;
        if !matches!(&ended, Err(Ended::Unknown(error)) if error.call_again_in.is_some()) {
            self.running.forget(uid, goal);
        }
        ended
    }

    /// While a creation that an earlier call began is not done, it is unknown whether the Machine has a VM.
    async fn created_or_not(
        &self,
        session: &Session,
        request: &MachineRequest,
        meanwhile: Meanwhile,
    ) -> Result<(), DriverError> {
        let wanted = MachineIdentity::from_machine(&request.machine);
        let Some(begun) = self.running.pending_operation(wanted.uid, Goal::Create) else { return Ok(()) };
        let what = format!("creation of VM {}", wanted.name);
        match self.operations.until_done(session, &begun, &what, meanwhile).await {
            Err(Ended::Unknown(error)) => {
                let call_again_in = error.call_again_in.filter(|_| request.may_pause);
                Err(DriverError { call_again_in, ..error })
            }
            // The creation reports the reason.
            Ok(()) | Err(Ended::Failed(_) | Ended::Absent(_)) => Ok(()),
        }
    }

    /// True if an earlier process began a creation whose VM a look-up may not have shown yet. One that is not done is followed from
    /// here on as one of ours.
    async fn has_earlier_creation(&self, session: &Session, request: &MachineRequest) -> Result<bool, DriverError> {
        let machine = &*request.machine;
        let wanted = MachineIdentity::from_machine(machine);
        if !machine.spec.provider_id.is_empty() || wanted.uid.is_empty() {
            return Ok(false);
        }
        let first = spent_requests(machine);
        let numbers = first..first.saturating_add(MOST_REQUESTS);
        let ids: BTreeMap<String, u32> =
            numbers.map(|number| Ok((request_id(machine, number)?, number))).collect::<Result<_, DriverError>>()?;
        let zone = &session.scope.zone;
        let found = session.compute.operations(zone, "clientOperationId", &ids.keys().cloned().collect()).await;
        let found = match found {
            Ok(found) => found,
            // Gardener's driver needs no permission to list operations. Its VM is found later, as one without a machine.
            Err(failure) if failure.code() == Code::PermissionDenied => return Ok(false),
            Err(failure) => {
                let what = format!("a look for a creation of VM {}", wanted.name);
                return Err(session.compute.error(&failure, &what));
            }
        };
        let mut has_creation = false;
        for operation in found.into_iter().filter(|operation| operation.failure().is_none()) {
            let Some(number) = ids.get(&operation.client_operation_id) else { continue };
            has_creation = true;
            if !operation.is_done() {
                self.running.remember(wanted.uid, Goal::Create, &Begun::now(operation, zone, *number));
            }
        }
        Ok(has_creation)
    }

    /// Follows the deletion of a VM to its end.
    async fn follow_deletion(
        &self,
        session: &Session,
        request: &MachineRequest,
        begun: &Begun,
        what: &str,
    ) -> Result<(), DriverError> {
        match self.follow(session, request, Goal::Delete, begun, what).await {
            // Another client deleted it meanwhile, or something else is missing.
            Err(Ended::Absent(_)) if self.find(session, request).await?.is_empty() => Ok(()),
            ended => Ok(ended?),
        }
    }

    /// Creates a VM, or continues what an earlier request began.
    async fn insert(
        &self,
        session: &Session,
        request: &MachineRequest,
        mut begun: Option<Begun>,
    ) -> Result<Instance, DriverError> {
        let machine = &*request.machine;
        let (wanted, compute) = (MachineIdentity::from_machine(machine), &session.compute);
        let zone = &session.scope.zone;
        let order = Order {
            spec: &session.spec,
            project: &compute.project,
            machine: wanted.name,
            uid: wanted.uid,
            owner: &request.owner,
            user_data: &user_data::items(&request.secret, Some(machine))?,
        };
        let (body, what) = (order.body(), format!("creation of VM {}", wanted.name));
        let first = begun.as_ref().map_or_else(|| spent_requests(machine), |begun| begun.number);
        let last = first.saturating_add(MOST_REQUESTS - 1);
        for number in first..=last {
            let id = request_id(machine, number)?;
            let mut is_begun = true;
            let answer = match begun.take() {
                Some(begun) => Ok(begun),
                None => {
                    let operation = compute.insert(zone, &id, &body).await;
                    operation.map(|operation| Begun::now(operation, zone, number))
                }
            };
            match answer {
                // This request is an earlier one, which failed.
                Ok(Begun { operation, .. })
                    if operation.is_done() && operation.failure().is_some() && number < last =>
                {
                    continue;
                }
                Ok(begun) => {
                    let done = self.follow(session, request, Goal::Create, &begun, &what).await;
                    done.map_err(|ended| ended.after(number))?;
                }
                Err(failure) if failure.code() == Code::AlreadyExists => is_begun = false,
                Err(failure) => return Err(compute.error(&failure, &what)),
            }
            match session.created_or_free(machine).await? {
                Some(instance) if !is_begun && instance.is_provisioning() => {
                    return Err(self.not_yet(request));
                }
                Some(instance) => return Ok(instance),
                // It came and went: this request has no effect any more.
                None if is_begun => {}
                None => {
                    let message = format!("{what} failed: it exists, but instances.list does not show it");
                    return Err(DriverError::new(Code::Aborted, message));
                }
            }
        }
        let message = format!("{what} failed: {MOST_REQUESTS} requests left no VM");
        Err(DriverError { last_known_state: Some(spent(last)), ..DriverError::new(Code::Internal, message) })
    }

    /// An instance that another call creates: it may still fail for want of resources.
    fn not_yet(&self, request: &MachineRequest) -> DriverError {
        let message = format!("VM {} is still being provisioned", MachineIdentity::from_machine(&request.machine).name);
        let call_again_in = Some(self.patience.pace.first).filter(|_| request.may_pause);
        DriverError { call_again_in, ..DriverError::new(Code::Unavailable, message) }
    }
}

#[async_trait]
impl CloudOperations for GcpCloud {
    type Spec = Spec;
    type Session = Session;

    const NAME: &'static str = NAME;
    const VMS: &'static str = "VMs of GCP";
    const CAPABILITIES: DriverCapabilities =
        DriverCapabilities { initialize: false, list: true, inspect: true, tag: false };
    const BALANCERS: Option<LoadBalancerKind> = Some(LoadBalancerKind::GcpInstanceGroups);

    fn read_spec(class: &MachineClass, problems: &mut ClassProblems) -> Spec {
        Spec::read(&class.provider_spec, problems)
    }

    fn check_secret(&self, _: Spec, class: &MachineClass, secret: &SecretData, problems: &mut ClassProblems) {
        problems.secret(self.accounts.login(class, secret));
        problems.secret(user_data::items(secret, None));
    }

    fn may_list(spec: &Spec, other: &Spec) -> Option<bool> {
        let scope = spec.scope().ok()?;
        Some(scope.zone == other.zone && scope.markers.are_on(other.tags.iter().map(String::as_str)))
    }

    fn volume_id(spec: &PersistentVolumeSpec) -> Option<String> {
        volumes::id_of(spec)
    }

    async fn session(&self, spec: Spec, class: &MachineClass, secret: &SecretData) -> Result<Session, DriverError> {
        let scope = spec.scope()?;
        let login = self.accounts.login(class, secret)?;
        let key = AccountKey::from(&login);
        let account = self.accounts.get(&key);
        let compute = Compute { account, project: login.project, secret: secret.clone() };
        Ok(Session { spec, scope, key, compute, look_ups: Arc::clone(&self.look_ups) })
    }

    fn check_creation(&self, request: &MachineRequest) -> Result<(), DriverError> {
        check_instance_name(&request.machine)
    }

    async fn create(&self, session: &Session, request: &MachineRequest) -> Result<Vm, DriverError> {
        let machine = &*request.machine;
        let begun = self.running.pending_operation(MachineIdentity::from_machine(machine).uid, Goal::Create);
        let found = if begun.is_some() { None } else { session.created_or_free(machine).await? };
        let instance = match found {
            Some(instance) if !instance.is_provisioning() => instance,
            _ => self.insert(session, request, begun).await?,
        };
        Ok(session.shown(&instance).as_created())
    }

    async fn delete(&self, session: &Session, request: &MachineRequest) -> Result<Option<String>, DriverError> {
        let wanted = MachineIdentity::from_machine(&request.machine);
        let what = format!("deletion of VM {}", wanted.name);
        if let Some(begun) = self.running.pending_operation(wanted.uid, Goal::Delete) {
            self.follow_deletion(session, request, &begun, &what).await?;
            return Ok(None);
        }
        self.created_or_not(session, request, Meanwhile::for_request(request)).await?;
        let mut found = self.find(session, request).await?;
        if found.is_empty() && self.has_earlier_creation(session, request).await? {
            self.created_or_not(session, request, Meanwhile::for_request(request)).await?;
            found = self.find(session, request).await?;
        }
        for Instance { name, zone, .. } in found {
            if let Some(operation) = session.compute.delete(&zone, &name).await? {
                self.follow_deletion(session, request, &Begun::now(operation, &zone, 0), &what).await?;
            }
        }
        self.running.forget(wanted.uid, Goal::Create);
        Ok(None)
    }

    async fn status(&self, session: &Session, request: &MachineRequest) -> Result<Vm, VmLookupError> {
        self.created_or_not(session, request, Meanwhile::Leave).await?;
        let instance = self.find_only(session, request).await?;
        // Only the creation reports the reason of a failure.
        if request.machine.spec.provider_id.is_empty() && instance.is_provisioning() {
            return Err(self.not_yet(request).into());
        }
        Ok(session.shown(&instance))
    }

    async fn inspect(&self, session: &Session, secret: &SecretData) -> Vec<ResourceFinding> {
        session.inspect(user_data::items(secret, None).err()).await
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
        let LoadBalancer::GcpInstanceGroups(groups) = balancer else { return Err(no_members(NAME, balancer)) };
        self.set_member_of_group(request, groups, is_member).await
    }
}
