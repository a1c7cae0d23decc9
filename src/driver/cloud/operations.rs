//! The protocol of a driver of a cloud: the methods of [`Driver`] that are alike for all clouds.
//!
//! The cut is between reads and changes. A [`CloudSession`] is a class with access to its cloud; it only reads, and can be copied, so
//! a creation that outlives its call takes it along. [`CloudOperations`] are the changes, with what the process remembers of them.
//! [`CloudDriver`] does the rest in one order: the class is checked before the Secret, the Secret before the cloud is called, and the
//! certainty of an absence is taken before the look-up that shows it. Only a [`super::VmAbsence`] says that the VM does not
//! exist. Methods with a body may be replaced where a cloud has another step.

use std::{collections::BTreeSet, hash::Hash, sync::Arc};

use async_trait::async_trait;
use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::api::core::v1::PersistentVolumeSpec;
use mcm_api::{
    load_balancer::{LoadBalancer, LoadBalancerKind},
    machine::{Machine, MachineClass},
};

use super::{
    absences::AbsenceCache,
    class::check_provider,
    creations::CreationLedger,
    finder::{CloudVm, VmLookupError, VmOwnership, created_for, error_of_existing, known_as, only},
    token::idempotency_token,
    wanted::MachineIdentity,
};
use crate::{
    Code, Driver, DriverCapabilities, DriverError, MachineRequest, SecretData, Vm, VmCapacity, VmsByProviderId,
    inspection::ResourceFinding,
    interface::{no_capacity, no_members},
    spec::ClassProblems,
};

/// The VM of a session.
type VmOf<C> = <<C as CloudOperations>::Session as CloudSession>::Vm;
/// The place of a session.
type PlaceOf<C> = <<C as CloudOperations>::Session as CloudSession>::Place;

/// A class with access to its cloud, and the look-ups of its VMs.
#[async_trait]
pub trait CloudSession: Clone + Send + Sync + 'static {
    /// A VM as the cloud shows it.
    type Vm: CloudVm<Scope: Sync> + Send + Sync + 'static;
    /// Where VMs are looked for, such as a region with a login.
    type Place: Clone + Eq + Hash + Send + Sync + 'static;

    /// The markers of the class.
    fn scope(&self) -> &<Self::Vm as CloudVm>::Scope;

    /// Where the VMs of the class are looked for.
    fn place(&self) -> Self::Place;

    /// The VMs with the provider ID of a Machine, whoever made them. None for a Machine without an ID.
    async fn with_id(&self, machine: &Machine) -> Result<Vec<Self::Vm>, DriverError>;

    /// The VMs with the name of a Machine, whoever made them, and maybe others.
    async fn named(&self, machine: &Machine) -> Result<Vec<Self::Vm>, DriverError>;

    /// All existing VMs of the class. [`Self::listing`] chooses them.
    async fn list(&self) -> Result<VmsByProviderId, DriverError>;

    /// A VM in the form of drivers.
    fn shown(&self, vm: &Self::Vm) -> Vm;

    /// The VMs of the class in the list that the cloud returned for it.
    fn listing(&self, all: Vec<Self::Vm>) -> VmsByProviderId {
        let is_ours = |vm: &&Self::Vm| {
            vm.belonging(self.scope()) == VmOwnership::Ours && vm.is_listed(self.scope()) && !vm.is_leaving()
        };
        all.iter().filter(is_ours).map(|vm| (self.shown(vm).provider_id, vm.listed())).collect()
    }

    /// The VM with the provider ID of a Machine, if it is of the Machine; it may be leaving.
    async fn known(&self, machine: &Machine) -> Result<Option<Self::Vm>, DriverError> {
        let known = |vm| known_as(Some(vm), MachineIdentity::from_machine(machine), self.scope());
        Ok(self.with_id(machine).await?.into_iter().find_map(known))
    }

    /// The VMs that were created for a Machine, by its name and UID; they may be leaving.
    async fn created_for(&self, machine: &Machine) -> Result<Vec<Self::Vm>, DriverError> {
        let listed = self.named(machine).await?.into_iter().filter(|vm| vm.is_listed(self.scope()));
        Ok(created_for(listed, MachineIdentity::from_machine(machine), self.scope()))
    }

    /// The only VM that was created for a Machine and is not leaving, if there is one.
    ///
    /// # Errors
    /// [`Code::OutOfRange`]: there are several.
    async fn only_created_for(&self, machine: &Machine) -> Result<Option<Self::Vm>, DriverError> {
        match staying(self.created_for(machine).await?) {
            none if none.is_empty() => Ok(None),
            found => Ok(Some(only(found, MachineIdentity::from_machine(machine).name)?)),
        }
    }
}

/// A cloud whose VMs a [`CloudDriver`] creates, finds, lists and deletes.
#[async_trait]
pub trait CloudOperations: Send + Sync + 'static {
    /// The fields of a class.
    type Spec: Send;
    /// A class with access to its cloud.
    type Session: CloudSession;

    /// Name in `MachineClass.provider`.
    const NAME: &'static str;
    /// The VMs in texts, such as `machines of metal-stack`.
    const VMS: &'static str;
    /// The methods that the cloud has.
    const CAPABILITIES: DriverCapabilities =
        DriverCapabilities { initialize: false, list: true, inspect: true, tag: true };
    /// The load balancers whose members it changes.
    const BALANCERS: Option<LoadBalancerKind> = None;

    /// Reads the fields of a class, and reports their problems. Fields that only a creation needs may be wrong.
    fn read_spec(class: &MachineClass, problems: &mut ClassProblems) -> Self::Spec;

    /// Reports the problems of the Secret of a class.
    fn check_secret(&self, spec: Self::Spec, class: &MachineClass, secret: &SecretData, problems: &mut ClassProblems);

    /// A list of a class may show VMs of another class. `None` if that is not known, such as of a class without a cluster.
    fn may_list(spec: &Self::Spec, other: &Self::Spec) -> Option<bool>;

    /// The ID of a volume as Nodes report it; `None` if its type is unknown.
    fn volume_id(spec: &PersistentVolumeSpec) -> Option<String>;

    /// A class with access to its cloud.
    async fn session(
        &self,
        spec: Self::Spec,
        class: &MachineClass,
        secret: &SecretData,
    ) -> Result<Self::Session, DriverError>;

    /// The creations whose outcome may be unknown, of a cloud without idempotency tokens.
    fn creations(&self) -> Option<&dyn CreationLedger> {
        None
    }

    /// The look-ups of a moment ago that spare a creation its own.
    fn absences(&self) -> Option<&AbsenceCache<PlaceOf<Self>>> {
        None
    }

    /// Checks the parts of a creation for which the cloud need not be called, such as the name of the Machine.
    fn check_creation(&self, _: &MachineRequest) -> Result<(), DriverError> {
        Ok(())
    }

    /// Creates the VM of a Machine, or returns that of an earlier call.
    async fn create(&self, session: &Self::Session, request: &MachineRequest) -> Result<Vm, DriverError>;

    /// Deletes the VMs of a Machine.
    async fn delete(&self, session: &Self::Session, request: &MachineRequest) -> Result<Option<String>, DriverError>;

    /// Gives a VM the tags by which lists find it, or takes them away. Called if [`Self::CAPABILITIES`] has it.
    async fn tag(&self, _: &Self::Session, _: &MachineRequest, _: VmOf<Self>, _: bool) -> Result<(), DriverError> {
        Err(untaggable(Self::NAME))
    }

    /// Checks the cloud resources that the class needs.
    async fn inspect(&self, session: &Self::Session, secret: &SecretData) -> Vec<ResourceFinding>;

    /// Names all that [`Self::capacity`] depends on; `None` if the driver cannot read it.
    fn capacity_key(_: &Self::Spec) -> Option<String> {
        None
    }

    /// The resources of a VM of the class. Called if [`Self::capacity_key`] has a key.
    async fn capacity(&self, _: &Self::Session) -> Result<VmCapacity, DriverError> {
        Err(no_capacity(Self::NAME))
    }

    /// The VM of a Machine.
    async fn status(&self, session: &Self::Session, request: &MachineRequest) -> Result<Vm, VmLookupError> {
        Ok(session.shown(&self.find_only(session, request).await?))
    }

    /// Initializes a VM after its creation.
    async fn initialize(&self, _: &MachineRequest) -> Result<Vm, DriverError> {
        Err(DriverError::new(Code::Unimplemented, format!("{} are not initialized", Self::VMS)))
    }

    /// The VMs of a group with which the cloud keeps a number of VMs.
    async fn members_of_group(
        &self,
        _: &MachineClass,
        _: &SecretData,
        group: &str,
    ) -> Result<BTreeSet<String>, DriverError> {
        let message = format!("driver {} cannot list the members of group {group}", Self::NAME);
        Err(DriverError::new(Code::Unimplemented, message))
    }

    /// Begins or ends the membership of the VM of a Machine in a load balancer.
    async fn set_member(&self, _: &MachineRequest, balancer: &LoadBalancer, _: bool) -> Result<(), DriverError> {
        Err(no_members(Self::NAME, balancer))
    }

    /// A class with access to its cloud, if the class is of this provider.
    async fn open_session(&self, class: &MachineClass, secret: &SecretData) -> Result<Self::Session, DriverError> {
        let mut problems = ClassProblems::default();
        check_provider(class, Self::NAME, &mut problems);
        problems.to_result()?;
        self.session(Self::read_spec(class, &mut problems), class, secret).await
    }

    /// The VMs of a Machine: the VM with its provider ID or, without an ID, all that were created for it. They may be leaving.
    ///
    /// # Errors
    /// [`Code::Unavailable`]: no VM exists, but an earlier request may still create one. That is decided before the look-up: the
    /// cloud may carry the request out during the look-up.
    async fn find(&self, session: &Self::Session, request: &MachineRequest) -> Result<Vec<VmOf<Self>>, DriverError> {
        let machine = &*request.machine;
        if !machine.spec.provider_id.is_empty() {
            return Ok(session.known(machine).await?.into_iter().collect());
        }
        let wanted = MachineIdentity::from_machine(machine);
        let looking = self.absences().map(|all| all.look(session.place(), wanted));
        let mut certainty = Ok(());
        if let Some(creations) = self.creations() {
            creations.settled(machine).await;
            certainty = creations.certainty(request);
        }
        let found = session.created_for(machine).await?;
        if found.iter().all(CloudVm::is_leaving) {
            certainty?;
            if let Some(looking) = looking {
                looking.found_none();
            }
        }
        Ok(found)
    }

    /// The only VM of a Machine that is not leaving.
    ///
    /// # Errors
    /// [`VmLookupError::Absent`]: no such VM exists; [`Code::OutOfRange`]: there are several.
    async fn find_only(&self, session: &Self::Session, request: &MachineRequest) -> Result<VmOf<Self>, VmLookupError> {
        let found = staying(self.find(session, request).await?);
        only(found, MachineIdentity::from_machine(&request.machine).name)
    }

    /// The look-up before a creation, which is spared if one found no VM a moment ago. It may outlive its call.
    fn look_once(
        &self,
        session: &Self::Session,
        request: &MachineRequest,
    ) -> BoxFuture<'static, Result<Option<VmOf<Self>>, DriverError>> {
        let wanted = MachineIdentity::from_machine(&request.machine);
        let is_absent = self.absences().is_some_and(|all| all.take(session.place(), wanted));
        let (session, machine) = (session.clone(), Arc::clone(&request.machine));
        async move { if is_absent { Ok(None) } else { session.only_created_for(&machine).await } }.boxed()
    }
}

/// The driver of a cloud.
pub struct CloudDriver<C>(pub C);

#[async_trait]
impl<C: CloudOperations> Driver for CloudDriver<C> {
    fn name(&self) -> &'static str {
        C::NAME
    }

    fn capabilities(&self) -> DriverCapabilities {
        C::CAPABILITIES
    }

    fn validate(&self, class: &MachineClass) -> ClassProblems {
        let mut problems = ClassProblems::default();
        check_provider(class, C::NAME, &mut problems);
        C::read_spec(class, &mut problems);
        problems
    }

    fn secret_problems(&self, class: &MachineClass, secret: &SecretData) -> ClassProblems {
        let mut problems = ClassProblems::default();
        let spec = C::read_spec(class, &mut ClassProblems::default());
        self.0.check_secret(spec, class, secret, &mut problems);
        problems
    }

    async fn create(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        self.validate(&request.class).to_result()?;
        idempotency_token(&request.machine, 0)?;
        self.0.check_creation(request)?;
        let session = self.0.open_session(&request.class, &request.secret).await?;
        self.0.create(&session, request).await
    }

    async fn initialize(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        self.0.initialize(request).await
    }

    async fn delete(&self, request: &MachineRequest) -> Result<Option<String>, DriverError> {
        let deleted = async {
            let session = self.0.open_session(&request.class, &request.secret).await?;
            self.0.delete(&session, request).await
        };
        // The deletion of an absent VM is a success, so an error is about something else.
        deleted.await.map_err(error_of_existing)
    }

    async fn status(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        let found = async {
            let session = self.0.open_session(&request.class, &request.secret).await?;
            self.0.status(&session, request).await
        };
        found.await.map_err(DriverError::from)
    }

    async fn list(&self, class: &MachineClass, secret: &SecretData) -> Result<VmsByProviderId, DriverError> {
        let listed = async { self.0.open_session(class, secret).await?.list().await };
        listed.await.map_err(error_of_existing)
    }

    fn may_list(&self, class: &MachineClass, other: &MachineClass) -> bool {
        let [class, other] = [class, other].map(|one| C::read_spec(one, &mut ClassProblems::default()));
        C::may_list(&class, &other).unwrap_or(true)
    }

    async fn inspect(&self, class: &MachineClass, secret: &SecretData) -> Result<Vec<ResourceFinding>, DriverError> {
        let session = self.0.open_session(class, secret).await?;
        Ok(self.0.inspect(&session, secret).await)
    }

    fn capacity_key(&self, class: &MachineClass) -> Option<String> {
        C::capacity_key(&C::read_spec(class, &mut ClassProblems::default()))
    }

    async fn capacity(&self, class: &MachineClass, secret: &SecretData) -> Result<VmCapacity, DriverError> {
        if self.capacity_key(class).is_none() {
            return Err(no_capacity(C::NAME));
        }
        let session = self.0.open_session(class, secret).await?;
        self.0.capacity(&session).await
    }

    async fn tag(&self, request: &MachineRequest, is_listed: bool) -> Result<(), DriverError> {
        if !C::CAPABILITIES.tag {
            return Err(untaggable(C::NAME));
        }
        let session = self.0.open_session(&request.class, &request.secret).await?;
        let vm = self.0.find_only(&session, request).await?;
        self.0.tag(&session, request, vm, is_listed).await
    }

    async fn members_of_group(
        &self,
        class: &MachineClass,
        secret: &SecretData,
        group: &str,
    ) -> Result<BTreeSet<String>, DriverError> {
        self.0.members_of_group(class, secret, group).await
    }

    fn load_balancers(&self) -> Option<LoadBalancerKind> {
        C::BALANCERS
    }

    async fn register(&self, request: &MachineRequest, balancer: &LoadBalancer) -> Result<(), DriverError> {
        self.0.set_member(request, balancer, true).await
    }

    async fn deregister(&self, request: &MachineRequest, balancer: &LoadBalancer) -> Result<(), DriverError> {
        self.0.set_member(request, balancer, false).await
    }

    async fn volume_ids(&self, specs: &[PersistentVolumeSpec]) -> Result<Vec<String>, DriverError> {
        Ok(specs.iter().filter_map(C::volume_id).collect())
    }
}

/// The error of a cloud whose VMs keep their tags.
fn untaggable(name: &str) -> DriverError {
    let message = format!("driver {name} cannot change tags: change them by hand, as the class specifies");
    DriverError::new(Code::Unimplemented, message)
}

/// The VMs that are not leaving.
fn staying<V: CloudVm>(mut all: Vec<V>) -> Vec<V> {
    all.retain(|vm| !vm.is_leaving());
    all
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::cloud::{CloudFailure, VmCreations};

    const SETTLES: Duration = Duration::from_millis(300);

    /// A VM, by the name of its Machine.
    #[derive(Clone)]
    struct NamedVm(String);

    impl CloudVm for NamedVm {
        type Scope = ();

        const REUSES_IDS: bool = false;

        fn id(&self) -> &str {
            &self.0
        }

        fn machine_name(&self) -> &str {
            &self.0
        }

        fn machine_uid(&self) -> Option<&str> {
            None
        }

        fn owner(&self) -> Option<&str> {
            None
        }

        fn belonging(&self, (): &()) -> VmOwnership {
            VmOwnership::Ours
        }
    }

    /// A cloud whose list is taken at once, and answered after this time.
    #[derive(Clone)]
    struct SlowList(Duration);

    #[async_trait]
    impl CloudSession for SlowList {
        type Vm = NamedVm;
        type Place = ();

        fn scope(&self) -> &() {
            &()
        }

        fn place(&self) {}

        async fn with_id(&self, machine: &Machine) -> Result<Vec<NamedVm>, DriverError> {
            Ok(vec![NamedVm(machine.spec.provider_id.clone())])
        }

        async fn named(&self, _: &Machine) -> Result<Vec<NamedVm>, DriverError> {
            tokio::time::sleep(self.0).await;
            Ok(Vec::new())
        }

        async fn list(&self) -> Result<VmsByProviderId, DriverError> {
            Ok(VmsByProviderId::new())
        }

        fn shown(&self, vm: &NamedVm) -> Vm {
            Vm { provider_id: vm.0.clone(), ..Vm::default() }
        }
    }

    /// A cloud without idempotency tokens, whose creations have no answer.
    struct TokenlessCloud {
        creations: VmCreations<NamedVm>,
        absences: AbsenceCache<()>,
        list: Duration,
    }

    #[async_trait]
    impl CloudOperations for TokenlessCloud {
        type Spec = ();
        type Session = SlowList;

        const NAME: &'static str = "tokenless";
        const VMS: &'static str = "VMs of a cloud without tokens";

        fn read_spec(_: &MachineClass, _: &mut ClassProblems) {}

        fn check_secret(&self, (): (), _: &MachineClass, _: &SecretData, _: &mut ClassProblems) {}

        fn may_list((): &(), (): &()) -> Option<bool> {
            None
        }

        fn volume_id(_: &PersistentVolumeSpec) -> Option<String> {
            None
        }

        async fn session(&self, (): (), _: &MachineClass, _: &SecretData) -> Result<SlowList, DriverError> {
            Ok(SlowList(self.list))
        }

        fn creations(&self) -> Option<&dyn CreationLedger> {
            Some(&self.creations)
        }

        fn absences(&self) -> Option<&AbsenceCache<()>> {
            Some(&self.absences)
        }

        async fn create(&self, session: &SlowList, request: &MachineRequest) -> Result<Vm, DriverError> {
            let look = self.look_once(session, request);
            let lost = async { Err(CloudFailure::NoAnswer) };
            let error = |failure: &CloudFailure| failure.error("creation", &SecretData::default());
            Ok(session.shown(&self.creations.run(request, look, lost, error).await?))
        }

        async fn delete(&self, session: &SlowList, request: &MachineRequest) -> Result<Option<String>, DriverError> {
            self.find(session, request).await.map(|_| None)
        }

        async fn tag(&self, _: &SlowList, _: &MachineRequest, _: NamedVm, _: bool) -> Result<(), DriverError> {
            Ok(())
        }

        async fn inspect(&self, _: &SlowList, _: &SecretData) -> Vec<ResourceFinding> {
            Vec::new()
        }
    }

    fn request(provider_id: &str) -> MachineRequest {
        let mut machine = Machine::default();
        machine.metadata.name = Some("m".to_owned());
        machine.metadata.uid = Some("u".to_owned());
        machine.spec.provider_id = provider_id.to_owned();
        let (machine, class, secret) = (Arc::new(machine), Arc::default(), SecretData::default());
        MachineRequest { machine, class, secret, owner: String::new(), may_pause: false }
    }

    fn driver(list: Duration) -> CloudDriver<TokenlessCloud> {
        CloudDriver(TokenlessCloud { creations: VmCreations::new(SETTLES), absences: AbsenceCache::new(), list })
    }

    /// The cloud may carry the request out after the list was taken, and before its answer arrives.
    #[tokio::test]
    async fn an_absence_counts_only_if_its_look_up_began_after_a_request_was_settled() {
        let driver = driver(SETTLES + Duration::from_millis(50));
        let code = |error: DriverError| error.code;
        assert_eq!(driver.create(&request("")).await.map_err(code), Err(Code::DeadlineExceeded));
        assert_eq!(driver.status(&request("")).await.map_err(code), Err(Code::Unavailable));
        assert!(
            !driver.0.absences.take((), MachineIdentity { name: "m", uid: "u" }),
            "no creation is spared its look-up"
        );
        assert_eq!(driver.delete(&request("")).await.map_err(code), Ok(None), "this look-up began later");
    }

    #[tokio::test]
    async fn a_deletion_does_not_succeed_while_a_request_may_have_an_effect() {
        let driver = driver(Duration::ZERO);
        driver.create(&request("")).await.unwrap_err();
        assert_eq!(driver.delete(&request("")).await.unwrap_err().code, Code::Unavailable);
        assert_eq!(driver.status(&request("id")).await.unwrap().provider_id, "id", "an ID is certain");
    }
}
