//! The driver of Google Cloud: VMs are instances of Compute Engine, found by their name and their network tags.
//!
//! `providerSpec` and Secret are those of Gardener's driver. `docs/conformance-gcp.md` compares the two.

mod access;
mod accounts;
mod calls;
mod client;
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
    names::is_instance_name,
    operations::{Ended, Meanwhile, Operations, PACE},
    order::Order,
    request_id::{request_id, spent, spent_requests},
    running::{Begun, Goal, Running},
    session::{LookUpKey, Place, Session},
    spec::Spec,
};
use mcm_api::{
    load_balancer::{LoadBalancer, LoadBalancerKind},
    machine::{Machine, MachineClass},
};
use mcm_driver::{
    cloud::{
        HttpClient, LookupCoalescer, MachineIdentity, PollTiming, RequestReporter, check_provider, idempotency_token,
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

/// Requests of one creation, if the earlier ones turn out to be spent.
const MOST_REQUESTS: u32 = 5;

/// Opens the driver, for the list of built-in drivers.
pub fn open(
    environment: &DriverEnvironment<'_>,
    observer: &Arc<dyn DriverObserver>,
) -> Result<Arc<dyn Driver>, OpenError> {
    let requests = RequestReporter::for_provider(NAME, observer);
    Ok(Arc::new(GcpDriver::new(Access::of_environment(environment.secrets), Patience::default(), requests)))
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

/// The VMs that a look-up of several Machines finds.
type Found = Result<Arc<Vec<Instance>>, DriverError>;

/// The driver of Google Cloud.
struct GcpDriver {
    patience: Patience,
    accounts: Accounts,
    /// Look-ups of Machines in one zone with one account that wait at the same time.
    look_ups: LookupCoalescer<LookUpKey, Found>,
    operations: Operations,
    running: Running,
}

impl GcpDriver {
    fn new(access: Access, patience: Patience, requests: RequestReporter) -> Self {
        let http = Arc::new(HttpClient::new(access.limits, access.uses_proxy, requests));
        Self {
            patience,
            accounts: Accounts::new(access, http),
            look_ups: LookupCoalescer::new(patience.window),
            operations: Operations::new(patience.pace, patience.window),
            running: Running::new(patience.pace.total),
        }
    }

    /// Fields that only a creation needs may be wrong.
    fn session(&self, class: &MachineClass, secret: &SecretData) -> Result<Session, DriverError> {
        let mut problems = ClassProblems::default();
        check_provider(class, NAME, &mut problems);
        problems.to_result()?;
        let spec = Spec::read(&class.provider_spec, &mut problems);
        let scope = spec.scope()?;
        let login = self.accounts.login(class, secret)?;
        let key = AccountKey::from(&login);
        let account = self.accounts.get(&key);
        let compute = Compute { account, project: login.project, secret: secret.clone() };
        Ok(Session { spec, scope, key, compute })
    }

    /// The VM with a name, whoever made it. Names are unique in the zone of a project.
    async fn at(&self, session: &Session, place: &Place<'_>) -> Result<Option<Instance>, DriverError> {
        if !is_instance_name(place.name) {
            return Ok(None);
        }
        let (compute, zone) = (session.compute.clone(), place.zone.to_owned());
        let key = session.look_up_key(&zone);
        let look_up = move |names| async move { compute.named(&zone, &names).await.map(Arc::new) };
        let all = self.look_ups.look_up(key, place.name.to_owned(), look_up).await?;
        Ok(all.iter().find(|instance| instance.name == place.name).cloned())
    }

    /// The VM of a Machine: by its provider ID or, without an ID, the VM that was created for it.
    async fn find<'a>(
        &self,
        session: &'a Session,
        machine: &'a Machine,
    ) -> Result<Option<(Place<'a>, Instance)>, DriverError> {
        let wanted = MachineIdentity::from_machine(machine);
        let (place, is_known) = (session.place_of(machine)?, !machine.spec.provider_id.is_empty());
        let found = self.at(session, &place).await?;
        let is_ours = |instance: &Instance| {
            if is_known { instance.is_known(wanted, &session.scope) } else { instance.is_of(wanted, &session.scope) }
        };
        Ok(match found {
            Some(instance) if is_ours(&instance) => Some((place, instance)),
            Some(instance) => {
                tracing::warn!(
                    instance = instance.name,
                    machine = wanted.name,
                    "instance is of another machine, left alone"
                );
                None
            }
            None => None,
        })
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

    /// An earlier process began a creation that is not done: its VM may not be listed yet. From here on it is
    /// followed as one of ours.
    async fn is_being_created(&self, session: &Session, request: &MachineRequest) -> Result<bool, DriverError> {
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
        let begun = found.into_iter().filter(|operation| !operation.is_done()).find_map(|operation| {
            let number = *ids.get(&operation.client_operation_id)?;
            Some(Begun::now(operation, zone, number))
        });
        if let Some(begun) = &begun {
            self.running.remember(wanted.uid, Goal::Create, begun);
        }
        Ok(begun.is_some())
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
            Err(Ended::Absent(error)) => match self.find(session, &request.machine).await? {
                None => Ok(()),
                Some(_) => Err(error),
            },
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
        let place = Place { zone: &session.scope.zone, name: wanted.name };
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
                    let operation = compute.insert(place.zone, &id, &body).await;
                    operation.map(|operation| Begun::now(operation, place.zone, number))
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
            match self.at(session, &place).await? {
                Some(instance) if !instance.is_of(wanted, &session.scope) => return Err(of_another(wanted.name)),
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
impl Driver for GcpDriver {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> DriverCapabilities {
        DriverCapabilities { initialize: false, list: true, inspect: true, tag: false }
    }

    fn validate(&self, class: &MachineClass) -> ClassProblems {
        let mut problems = ClassProblems::default();
        check_provider(class, NAME, &mut problems);
        Spec::read(&class.provider_spec, &mut problems);
        problems
    }

    fn secret_problems(&self, class: &MachineClass, secret: &SecretData) -> ClassProblems {
        let mut problems = ClassProblems::default();
        let results = [self.accounts.login(class, secret).map(drop), user_data::items(secret, None).map(drop)];
        for error in results.into_iter().filter_map(Result::err) {
            problems.error("Secret", error.message);
        }
        problems
    }

    async fn create(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        self.validate(&request.class).to_result()?;
        idempotency_token(&request.machine, 0)?;
        let wanted = MachineIdentity::from_machine(&request.machine);
        if !is_instance_name(wanted.name) {
            let message = format!(
                "machine {:?} cannot be the name of a VM: at most 63 lower-case letters, digits and hyphens, a letter first",
                wanted.name
            );
            return Err(DriverError::new(Code::InvalidArgument, message));
        }
        let session = self.session(&request.class, &request.secret)?;
        let place = Place { zone: &session.scope.zone, name: wanted.name };
        let instance = match self.running.pending_operation(wanted.uid, Goal::Create) {
            Some(begun) => self.insert(&session, request, Some(begun)).await?,
            None => match self.at(&session, &place).await? {
                Some(instance) if !instance.is_of(wanted, &session.scope) => return Err(of_another(wanted.name)),
                Some(instance) if !instance.is_provisioning() => instance,
                _ => self.insert(&session, request, None).await?,
            },
        };
        let vm = instance.vm(&session.compute.project, place.zone);
        Ok(Vm { last_known_state: Some(format!("Created {}", vm.provider_id)), ..vm })
    }

    /// [`Code::Unimplemented`]: a VM needs nothing after its creation.
    async fn initialize(&self, _: &MachineRequest) -> Result<Vm, DriverError> {
        Err(DriverError::new(Code::Unimplemented, "VMs of GCP are not initialized"))
    }

    async fn delete(&self, request: &MachineRequest) -> Result<Option<String>, DriverError> {
        let session = self.session(&request.class, &request.secret)?;
        let wanted = MachineIdentity::from_machine(&request.machine);
        let what = format!("deletion of VM {}", wanted.name);
        if let Some(begun) = self.running.pending_operation(wanted.uid, Goal::Delete) {
            self.follow_deletion(&session, request, &begun, &what).await?;
            return Ok(None);
        }
        self.created_or_not(&session, request, Meanwhile::for_request(request)).await?;
        let mut found = self.find(&session, &request.machine).await?;
        if found.is_none() && self.is_being_created(&session, request).await? {
            self.created_or_not(&session, request, Meanwhile::for_request(request)).await?;
            found = self.find(&session, &request.machine).await?;
        }
        if let Some((place, instance)) = found
            && let Some(operation) = session.compute.delete(place.zone, &instance.name).await?
        {
            let begun = Begun::now(operation, place.zone, 0);
            self.follow_deletion(&session, request, &begun, &what).await?;
        }
        self.running.forget(wanted.uid, Goal::Create);
        Ok(None)
    }

    async fn status(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        let session = self.session(&request.class, &request.secret)?;
        self.created_or_not(&session, request, Meanwhile::Leave).await?;
        let machine = &*request.machine;
        match self.find(&session, machine).await? {
            // Only the creation reports the reason of a failure.
            Some((_, instance)) if machine.spec.provider_id.is_empty() && instance.is_provisioning() => {
                Err(self.not_yet(request))
            }
            Some((place, instance)) => Ok(instance.vm(&session.compute.project, place.zone)),
            None => {
                let message = format!("machine {:?} has no VM", MachineIdentity::from_machine(machine).name);
                Err(DriverError::new(Code::NotFound, message))
            }
        }
    }

    async fn list(&self, class: &MachineClass, secret: &SecretData) -> Result<VmsByProviderId, DriverError> {
        let Session { scope, compute, .. } = self.session(class, secret)?;
        // All of the zone: filters of tags are not documented, and an orphan that is missed costs money.
        let all = compute.instances(&scope.zone, None).await?;
        let ours = all.into_iter().filter(|instance| instance.is_in(&scope));
        Ok(ours.map(|one| (one.provider_id(&compute.project, &scope.zone), one.listed())).collect())
    }

    fn may_list(&self, class: &MachineClass, other: &MachineClass) -> bool {
        let [spec, other] = [class, other].map(|class| Spec::read(&class.provider_spec, &mut ClassProblems::default()));
        spec.scope().map_or(true, |scope| {
            scope.zone == other.zone && scope.markers.are_on(other.tags.iter().map(String::as_str))
        })
    }

    async fn inspect(&self, class: &MachineClass, secret: &SecretData) -> Result<Vec<ResourceFinding>, DriverError> {
        let session = self.session(class, secret)?;
        Ok(session.inspect(user_data::items(secret, None).err()).await)
    }

    fn load_balancers(&self) -> Option<LoadBalancerKind> {
        Some(LoadBalancerKind::GcpInstanceGroups)
    }

    async fn register(&self, request: &MachineRequest, balancer: &LoadBalancer) -> Result<(), DriverError> {
        let LoadBalancer::GcpInstanceGroups(groups) = balancer else { return Err(no_members(NAME, balancer)) };
        self.set_member(request, groups, true).await
    }

    async fn deregister(&self, request: &MachineRequest, balancer: &LoadBalancer) -> Result<(), DriverError> {
        let LoadBalancer::GcpInstanceGroups(groups) = balancer else { return Err(no_members(NAME, balancer)) };
        self.set_member(request, groups, false).await
    }

    async fn volume_ids(&self, specs: &[PersistentVolumeSpec]) -> Result<Vec<String>, DriverError> {
        Ok(specs.iter().filter_map(volumes::id_of).collect())
    }
}

fn of_another(name: &str) -> DriverError {
    let message = format!("VM {name} exists, but is not of this machine: delete it, or let the machine be replaced");
    DriverError::new(Code::AlreadyExists, message)
}
