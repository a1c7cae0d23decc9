//! A class with access to its vCenter, and the look-ups of its VMs.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use mcm_api::machine::Machine;
use mcm_driver::{
    Code, DriverError, MachineRequest, Vm, VmsByProviderId,
    cloud::{CloudFailure, CloudSession, LookupCoalescer, MachineIdentity, VmLookups, VmQuery},
};

use super::{
    calls::{Api, Found, Placement, fields_of},
    filter::Filter,
    inventory::TEMPLATE,
    login::Login,
    names::IDS,
    order::Order,
    place::{Target, TargetKey},
    soap::Ref,
    spec::{Scope, Spec},
    vm::{self, EXTRA, KIND, PROPERTIES, Seen, VirtualMachine, has_markers, markers_in},
};

/// The clocks of vCenter and of the control plane differ by less.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_mins(10);

/// The VMs that a look-up of several Machines finds.
#[derive(Debug, Default)]
pub(crate) struct FoundVms {
    vms: Vec<VirtualMachine>,
    /// Names of VMs that vCenter cannot describe.
    unknown: Vec<String>,
    /// The same, if they have the markers of the class.
    unknown_of_class: Vec<String>,
    /// All VMs of the folder were looked at, so VMs in others are not among them.
    is_of_folder: bool,
}

/// A class with a login.
type FolderPlace = (Login, Scope);
/// Look-ups of the objects that VMs of a class need join others that are under way.
pub(crate) type Targets = LookupCoalescer<TargetKey, Result<Arc<Target>, DriverError>>;

/// The look-ups of all classes.
pub(crate) struct SharedLookups {
    look_ups: VmLookups<FolderPlace, FoundVms>,
    targets: Targets,
}

impl SharedLookups {
    /// Look-ups of VMs wait for others for `window`.
    pub(crate) fn new(window: Duration) -> Self {
        Self { look_ups: VmLookups::new(window), targets: LookupCoalescer::of_facts() }
    }
}

/// A class with access to its vCenter.
#[derive(Clone)]
pub(crate) struct Session {
    pub spec: Spec,
    pub scope: Scope,
    pub login: Login,
    pub api: Api,
    pub shared: Arc<SharedLookups>,
}

impl Session {
    /// The VM that a Go program made for a Machine before it ended, and did not mark: one in the folder of the class with the name
    /// of the Machine, younger than the Machine, with which nothing else was done.
    pub(crate) async fn unmarked_for(&self, machine: &Machine) -> Result<Option<VirtualMachine>, DriverError> {
        let (name, since) = (MachineIdentity::from_machine(machine).name, machine.metadata.creation_timestamp.as_ref());
        let look = self.look(VmQuery::Name(name.to_owned())).await?;
        let found = look.vms.iter().find(|vm| vm.name() == name && vm.is_untouched());
        let (Some(vm), Some(since)) = (found, since) else { return Ok(None) };
        let created = self.api.created(&vm.reference).await;
        let created = created.map_err(|failure| self.failed(&failure, &format!("a look at VM {name}")))?;
        let is_younger = created.is_some_and(|created| created >= since.0);
        Ok(is_younger.then(|| vm.clone().in_region(&self.spec.region)))
    }

    /// The clones of the template of the class under way that may be of a Machine.
    pub(crate) async fn clones_for(&self, machine: &Machine) -> Result<Vec<Ref>, DriverError> {
        let places = &self.spec.places;
        let Some(since) = machine.metadata.creation_timestamp.as_ref().filter(|_| !places.template.is_empty()) else {
            return Ok(Vec::new());
        };
        let find = async {
            let datacenter = self.api.datacenter(&places.datacenter).await?;
            self.api.find(&datacenter, TEMPLATE, &places.template).await
        };
        let template = match find.await {
            // A deletion does not need the template.
            Err(error) if error.code == Code::InvalidArgument => return Ok(Vec::new()),
            template => template?,
        };
        let since = since.0.checked_sub(CLOCK_SKEW).unwrap_or(Timestamp::MIN);
        let clones = self.api.clones_of(&template, since).await;
        clones.map_err(|failure| self.failed(&failure, "a look at the clones of the template"))
    }

    /// The objects that a VM of the class needs.
    pub(crate) async fn target(&self) -> Result<Arc<Target>, DriverError> {
        let (api, places, disk) = (self.api.clone(), self.spec.places.clone(), self.spec.disk);
        let key = TargetKey { login: self.login.clone(), places: places.clone(), disk };
        let find = move |_| async move { Target::find(&api, &places, disk).await.map(Arc::new) };
        self.shared.targets.look_up(key, String::new(), find).await
    }

    /// A clone of a template for a Machine.
    pub(crate) fn order<'a>(&'a self, target: &'a Target, request: &'a MachineRequest) -> Order<'a> {
        Order {
            target,
            scope: &self.scope,
            wanted: MachineIdentity::from_machine(&request.machine),
            owner: &request.owner,
        }
    }

    /// Where vSphere puts such a clone.
    pub(crate) async fn placement(&self, target: &Target, request: &MachineRequest) -> Result<Placement, DriverError> {
        let order = self.order(target, request);
        let found = target.placement(&self.api, order.wanted.name, &|placement| order.specification(placement)).await;
        found.map_err(|failure| self.failed(&failure, &format!("a placement of VM {}", order.wanted.name)))
    }

    /// A VM as it is now, if it has an address.
    pub(crate) async fn addressed(self, vm: Ref) -> Result<Option<VirtualMachine>, DriverError> {
        let what = format!("a look at VM {}", vm.id);
        let found = self.described(vec![vm], &what).await?;
        let vm = found.vms.into_iter().next().filter(VirtualMachine::has_address);
        Ok(vm.map(|vm| vm.in_region(&self.spec.region)))
    }

    /// The VMs with a UUID.
    async fn with_uuid(&self, uuid: &str) -> Result<Vec<VirtualMachine>, DriverError> {
        let look = self.look(VmQuery::Id(uuid.to_owned())).await?;
        let found: Vec<_> = look.vms.iter().filter(|vm| vm.uuid() == uuid).cloned().collect();
        if !found.is_empty() {
            return Ok(found);
        }
        // It may be in another folder.
        let look = if look.is_of_folder { Arc::new(self.by_uuid(uuid).await?) } else { look };
        if look.unknown.is_empty() { Ok(look.vms.clone()) } else { Err(undescribed(&look.unknown)) }
    }

    async fn look(&self, asked: VmQuery) -> Result<Arc<FoundVms>, DriverError> {
        let session = self.clone();
        let send = move |asked| async move { session.look_for(&asked).await.map(Arc::new) };
        self.shared.look_ups.look_up(self.place(), asked, send).await
    }

    /// The VMs that were asked for, and maybe others: one by itself, several by their folder.
    async fn look_for(&self, asked: &BTreeSet<VmQuery>) -> Result<FoundVms, DriverError> {
        match VmQuery::only(asked) {
            Some(VmQuery::Id(uuid)) => self.by_uuid(uuid).await,
            Some(VmQuery::Name(name)) => self.by_name(name).await,
            None => match self.in_folder().await {
                // VMs with UUIDs may be elsewhere.
                Err(error)
                    if error.code == Code::InvalidArgument && asked.iter().all(|one| matches!(one, VmQuery::Id(_))) =>
                {
                    Ok(FoundVms { is_of_folder: true, ..FoundVms::default() })
                }
                look => look,
            },
        }
    }

    async fn by_uuid(&self, uuid: &str) -> Result<FoundVms, DriverError> {
        let what = format!("a look at VM {uuid}");
        let found = self.api.with_uuid(uuid).await.map_err(|failure| self.failed(&failure, &what))?;
        self.described(found, &what).await
    }

    async fn by_name(&self, name: &str) -> Result<FoundVms, DriverError> {
        let what = format!("a look at VM {name}");
        let folder = self.folder().await?;
        let found = self.api.child(&folder, name).await.map_err(|failure| self.failed(&failure, &what))?;
        self.described(found.into_iter().filter(|found| found.kind == KIND).collect(), &what).await
    }

    /// All VMs in the folder of the class.
    async fn in_folder(&self) -> Result<FoundVms, DriverError> {
        let what = "a list of the VMs in the folder";
        let folder = self.folder().await?;
        let look = self.look_at(Filter::in_folder(folder, KIND, &PROPERTIES)).await;
        Ok(FoundVms { is_of_folder: true, ..look.map_err(|failure| self.failed(&failure, what))? })
    }

    async fn described(&self, vms: Vec<Ref>, what: &str) -> Result<FoundVms, DriverError> {
        if vms.is_empty() {
            return Ok(FoundVms::default());
        }
        let is_only = vms.len() == 1;
        match self.look_at(Filter::of_all(vms, KIND, &PROPERTIES)).await {
            // It was deleted between the two requests.
            Err(failure) if failure.is("ManagedObjectNotFound") && is_only => Ok(FoundVms::default()),
            look => look.map_err(|failure| self.failed(&failure, what)),
        }
    }

    /// The VMs of a filter, with the names of their custom fields.
    async fn look_at(&self, filter: Filter) -> Result<FoundVms, CloudFailure> {
        enum Part {
            Names(BTreeMap<i64, String>),
            Vm(Seen),
        }
        let read = |found: Found<'_, '_>| {
            let is_vm = found.reference()?.kind == KIND;
            let part = if is_vm { Part::Vm(vm::read(&found)?) } else { Part::Names(fields_of(&found)?) };
            Some(Some(part))
        };
        let parts = self.api.retrieve(&[self.api.filter_of_fields().await?, filter], read).await?;
        let (mut names, mut seen) = (BTreeMap::new(), Vec::new());
        for part in parts {
            match part {
                Part::Names(all) => names.extend(all),
                Part::Vm(vm) => seen.push(vm),
            }
        }
        let mut look = FoundVms::default();
        for one in seen {
            match one {
                Seen::Vm(vm) => look.vms.push(vm.with_fields(&names)),
                Seen::Unknown { name, values } => {
                    if has_markers(&values, &names, &self.scope) {
                        look.unknown_of_class.push(name.clone());
                    }
                    look.unknown.push(name);
                }
            }
        }
        look.vms = self.with_markers(look.vms).await?;
        Ok(look)
    }

    /// The VMs, with the markers in the extra configuration of VMs that may not be finished.
    async fn with_markers(&self, vms: Vec<VirtualMachine>) -> Result<Vec<VirtualMachine>, CloudFailure> {
        let unfinished: Vec<Ref> =
            vms.iter().filter(|vm| vm.may_be_unfinished()).map(|vm| vm.reference.clone()).collect();
        if unfinished.is_empty() {
            return Ok(vms);
        }
        let read = |found: Found<'_, '_>| Some(Some((found.reference()?, markers_in(&found))));
        let markers = self.api.retrieve(&[Filter::of_all(unfinished, KIND, &[EXTRA])], read).await?;
        let mut markers: BTreeMap<Ref, BTreeMap<String, String>> = markers.into_iter().collect();
        let marked = |vm: VirtualMachine| match markers.remove(&vm.reference) {
            Some(extra) => vm.with_extra(extra),
            None => vm,
        };
        Ok(vms.into_iter().map(marked).collect())
    }

    /// The folder of the VMs of the class.
    async fn folder(&self) -> Result<Ref, DriverError> {
        self.api.folder(&self.scope.datacenter, &self.scope.folder).await.map(|(_, folder)| folder)
    }

    fn failed(&self, failure: &CloudFailure, what: &str) -> DriverError {
        self.api.error(failure, what)
    }
}

#[async_trait]
impl CloudSession for Session {
    type Vm = VirtualMachine;
    type Place = FolderPlace;

    fn scope(&self) -> &Scope {
        &self.scope
    }

    fn place(&self) -> FolderPlace {
        (self.login.clone(), self.scope.clone())
    }

    async fn with_id(&self, machine: &Machine) -> Result<Vec<VirtualMachine>, DriverError> {
        let Some(uuid) = IDS.word_of_machine(machine)? else { return Ok(Vec::new()) };
        let found = self.with_uuid(&uuid.to_ascii_lowercase()).await?;
        Ok(found.into_iter().map(|vm| vm.in_region(&self.spec.region)).collect())
    }

    async fn named(&self, machine: &Machine) -> Result<Vec<VirtualMachine>, DriverError> {
        let name = MachineIdentity::from_machine(machine).name;
        let look = self.look(VmQuery::Name(name.to_owned())).await?;
        if look.unknown.iter().any(|one| one == name) {
            return Err(undescribed(&look.unknown));
        }
        Ok(look.vms.iter().cloned().map(|vm| vm.in_region(&self.spec.region)).collect())
    }

    async fn list(&self) -> Result<VmsByProviderId, DriverError> {
        let look = self.in_folder().await?;
        if !look.unknown_of_class.is_empty() {
            return Err(undescribed(&look.unknown_of_class));
        }
        Ok(self.listing(look.vms.into_iter().map(|vm| vm.in_region(&self.spec.region)).collect()))
    }

    fn shown(&self, vm: &VirtualMachine) -> Vm {
        vm.vm()
    }
}

fn undescribed(names: &[String]) -> DriverError {
    let names = names.join(", ");
    let message = format!(
        "vCenter does not describe {names} at the moment: a VM that is being made, or whose host is not connected, has no \
         configuration"
    );
    DriverError::new(Code::Unavailable, message)
}
