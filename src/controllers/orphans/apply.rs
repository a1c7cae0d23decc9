//! Executes plans of the orphan collector. It makes no decisions.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    sync::Arc,
};

use jiff::Timestamp;
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use kube::{Api, Client, Resource, ResourceExt, api::ListParams};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;

use super::{
    Action, ClassVms, ForeignClasses, Memory, NamespacePools, OrphanCallResults, OrphanPolicy, Snapshot, TargetNode,
    VmListing,
    metrics::OrphanMetrics,
    own_tag,
    pass::{SHORTEST_PERIOD, period_of},
};
use mcm_api::{
    kinds::MACHINE_CLASSES,
    labels::NOT_MANAGED,
    machine::{Machine, MachineClass, MachineDeployment, MachineSet},
    reasons::EventReason,
};
use mcm_driver::{CloudAccount, MachineRequest, SecretData, cloud::driver_of};
use mcm_driver_host::DriverCatalogue;
use mcm_rules::{
    plan::{Event, Step},
    safety::{
        meltdown::{PermitKey, ReplacementPermit},
        orphans::identity,
    },
};
use mcm_runtime::{
    access,
    cache::Key,
    cell::CellScope,
    clock::TimeSource,
    events::EventRecorder,
    fence,
    guard::GuardedObject,
    objects::{CachedApi, chain},
    owners::VmOwners,
    reconcile::{LoopContinuation, PlanExecutor, ReconcileRun},
    refusal::forbidden,
    secrets::SecretCache,
    target::CellTargets,
    worker::ReconcileError,
};
use {
    crate as controllers,
    crate::{
        api_servers::ApiServers,
        machine::{self, FreedResources, HeldPermit, ReplacementPermits, take_permit},
    },
};

/// Classes in a page, and pages that are read: more classes than any control cluster has.
const PAGE: u32 = 200;
const MOST_PAGES: usize = 50;

/// Collects orphans.
pub(crate) struct OrphanCollector {
    pub classes: Arc<CachedApi<MachineClass>>,
    pub machines: Arc<CachedApi<Machine>>,
    pub secrets: SecretCache,
    pub control: Client,
    pub scope: CellScope,
    pub owners: Arc<VmOwners>,
    pub targets: Arc<CellTargets>,
    pub servers: Arc<ApiServers>,
    pub drivers: Arc<DriverCatalogue>,
    pub freed: Arc<FreedResources>,
    pub policy: OrphanPolicy,
    pub events: EventRecorder,
    pub measured: Arc<OrphanMetrics>,
    pub clock: Arc<dyn TimeSource>,
    pub permits: Arc<ReplacementPermits>,
    /// When deletions were requested, by account.
    pub deletions: Mutex<BTreeMap<CloudAccount, Vec<Timestamp>>>,
    /// The Machines that are about to be created for a drain. They hold their permit although they do not exist yet.
    pub drains: Arc<Mutex<BTreeMap<PermitKey, String>>>,
    /// The class that handles a VM without a Machine, by provider and identity, and when it last listed it.
    pub handled: Mutex<BTreeMap<(String, String), (Key, Timestamp)>>,
}

/// State of one pass.
#[derive(Default)]
pub(crate) struct OrphanSession {
    pub(super) learned: OrphanCallResults,
    /// The Secret data for the list. Plans do not see it.
    secret: SecretData,
    /// Permits for drains, until the end of the reconcile.
    held: Vec<(DrainSlot, HeldPermit)>,
}

/// The only drain of a pool that may begin. Dropping it lets another begin.
struct DrainSlot {
    drains: Arc<Mutex<BTreeMap<PermitKey, String>>>,
    permit: PermitKey,
}

impl Drop for DrainSlot {
    fn drop(&mut self) {
        self.drains.lock().remove(&self.permit);
    }
}

impl PlanExecutor for OrphanCollector {
    async fn apply(
        &self,
        snapshot: Snapshot,
        steps: Vec<Step<Action>>,
        turn: &mut ReconcileRun<'_, Self>,
    ) -> Result<LoopContinuation, ReconcileError> {
        for step in steps {
            if !fence::may_act() {
                break;
            }
            match step.action {
                Action::ListVms => {
                    let began_at = self.clock.now();
                    let found = self.list(&snapshot, &mut turn.session).await;
                    if let Err(error) = &found {
                        tracing::warn!(class = %turn.key, error, "VMs could not be listed");
                    }
                    turn.session.learned.list = Some(VmListing { began_at, found });
                }
                Action::ListClassesOfOthers => {
                    let others = self.others(&snapshot.class).await;
                    if let ForeignClasses::Unknown(error) = &others {
                        tracing::warn!(class = %turn.key, error, "classes of other namespaces could not be listed");
                    }
                    turn.session.learned.others = Some(others);
                }
                Action::DivideVms(vms) => {
                    turn.session.learned.elsewhere = Some(self.divide(&snapshot, turn.key, &vms));
                }
                Action::Record { memory, report, warnings } => {
                    let events: Vec<Event> = step.event.into_iter().chain(warnings).collect();
                    self.record(&snapshot, &step.reason, *memory, &report, &events, turn);
                }
                Action::GetMachine(name) => {
                    let key = Key::beside(&snapshot.class.metadata, &name);
                    let read = self.machines.read_again(&key).await;
                    let read = read.map(|machine| machine.is_some()).map_err(|error| chain(&error));
                    if let Err(error) = &read {
                        tracing::warn!(class = %turn.key, machine = name, error, "machine could not be read");
                    }
                    turn.session.learned.machines.insert(name, read);
                }
                Action::ListPools => {
                    let pools = self.pools(&turn.key.namespace).await;
                    if let Err(error) = &pools {
                        tracing::warn!(class = %turn.key, error, "sets and deployments could not be listed");
                    }
                    turn.session.learned.pools = Some(pools);
                }
                Action::TakePermit { permit, machine } => {
                    let permit = self.take(&snapshot, permit, &machine, &mut turn.session);
                    turn.session.learned.permits.insert(machine, permit);
                }
                Action::GetNode { id, node } => {
                    let read = self.is_unchanged(&node).await;
                    turn.session.learned.nodes.insert(id, read);
                }
                Action::CreateMachine(machine) => {
                    tracing::warn!(
                        class = %turn.key, vm = machine.spec.provider_id, machine = machine.name_any(),
                        reason = step.reason, "machine of an orphan VM created"
                    );
                    self.machines.create(&machine).await?;
                    step.event.iter().for_each(|event| self.events.record(snapshot.class.as_ref(), event));
                }
                Action::DeleteMachine(machine) => {
                    self.machines.delete(&machine.metadata).await?;
                    self.measured.deleted(labels_of(turn.key));
                }
                Action::DeleteVm { id, machine } => {
                    self.delete(&snapshot, &step.reason, &id, &machine, step.event.as_ref(), turn).await;
                }
            }
        }
        Ok(LoopContinuation::Plan)
    }
}

impl OrphanCollector {
    async fn list(&self, snapshot: &Snapshot, session: &mut OrphanSession) -> Result<ClassVms, String> {
        let class = &snapshot.class;
        let namespace = class.metadata.namespace.as_deref().unwrap_or_default();
        let owner = self.owners.namespace_owner(namespace).await.map_err(|error| error.to_string())?;
        let driver = self.drivers.get(class).map_err(|error| error.to_string())?;
        let merged = machine::secrets_of_class(class, &self.secrets).await.map_err(|error| chain(&error))?;
        session.secret = merged.complete().map_err(|missing| format!("its VMs are not listed without {missing}"))?;
        let vms = driver.list(class, &session.secret).await.map_err(|error| error.to_string())?;
        Ok(ClassVms { owner, vms })
    }

    /// The classes of other namespaces whose VMs may be in the list of a class. The Machines of a process that serves all
    /// namespaces are in its cache.
    async fn others(&self, class: &MachineClass) -> ForeignClasses {
        let CellScope::Namespace(own) = &self.scope else { return ForeignClasses::Known(Vec::new()) };
        let driver = match self.drivers.get(class) {
            Ok(driver) => driver,
            Err(error) => return ForeignClasses::Unknown(error.to_string()),
        };
        let may_share = |one: &MachineClass, other: &MachineClass| driver.may_list(one, other);
        let may_list = |other: &MachineClass| {
            self.drivers.get(other).is_ok_and(|its| its.name() == driver.name()) && driver.may_list(class, other)
        };
        let of_namespace = || ForeignClasses::Forbidden { has_own_tag: own_tag::is_of_namespace(class, may_share) };
        let list = ResourceAttributes {
            verb: Some("list".to_owned()),
            group: Some(MACHINE_CLASSES.group.to_owned()),
            resource: Some(MACHINE_CLASSES.plural.to_owned()),
            ..ResourceAttributes::default()
        };
        if access::is_allowed(&self.control, list).await == Some(false) {
            return of_namespace();
        }
        let api: Api<GuardedObject<MachineClass>> = Api::all(self.control.clone());
        let (mut found, mut page) = (Vec::new(), ListParams::default().limit(PAGE));
        for _ in 0..MOST_PAGES {
            let list = match Box::pin(api.list(&page)).await {
                Ok(list) => list,
                Err(error) if forbidden(&error).is_some() => return of_namespace(),
                Err(error) => return ForeignClasses::Unknown(format!("list MachineClasses: {}", chain(&error))),
            };
            for other in list.items {
                let key = Key::from_meta(other.meta());
                match other {
                    _ if key.namespace == *own => {}
                    GuardedObject::Readable(other) if may_list(&other) => found.push(key.to_string()),
                    GuardedObject::Readable(_) => {}
                    GuardedObject::Unreadable { .. } => {
                        return ForeignClasses::Unknown(format!("MachineClass {key} cannot be decoded"));
                    }
                }
            }
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return ForeignClasses::Known(found),
            }
        }
        ForeignClasses::Unknown("list MachineClasses: there are too many".to_owned())
    }

    /// The VMs, by identity, that another class handles. A class that has not listed a VM for two periods loses it.
    fn divide(&self, snapshot: &Snapshot, class: &Key, vms: &[String]) -> BTreeSet<String> {
        let provider = driver_of(&snapshot.class.provider);
        let patience = period_of(&self.policy).saturating_mul(2).saturating_add(SHORTEST_PERIOD);
        let now = snapshot.now;
        let mut handled = self.handled.lock();
        handled.retain(|_, (by, at)| by != class && now.duration_since(*at) <= patience);
        let mut elsewhere = BTreeSet::new();
        for vm in vms {
            let entry = handled.entry((provider.clone(), vm.clone())).or_insert_with(|| (class.clone(), now));
            if entry.0 != *class {
                elsewhere.insert(vm.clone());
            }
        }
        elsewhere
    }

    /// Takes the permit for a Machine, unless another class is about to use it.
    fn take(
        &self,
        snapshot: &Snapshot,
        permit: PermitKey,
        machine: &str,
        session: &mut OrphanSession,
    ) -> ReplacementPermit {
        let mut drains = self.drains.lock();
        if let Some(by) = drains.get(&permit).filter(|by| *by != machine) {
            return ReplacementPermit::Refused { by: by.clone() };
        }
        let key = Key::beside(&snapshot.class.metadata, machine);
        let wanted = std::slice::from_ref(&permit);
        let (held, answer) = take_permit(&self.permits, &self.machines.cache, wanted, &key);
        if let Some(held) = held {
            drains.insert(permit.clone(), machine.to_owned());
            session.held.push((DrainSlot { drains: Arc::clone(&self.drains), permit }, held));
        }
        answer
    }

    /// The sets and deployments of a namespace.
    async fn pools(&self, namespace: &str) -> Result<NamespacePools, String> {
        let deployments = all_of::<MachineDeployment>(&Api::namespaced(self.control.clone(), namespace)).await?;
        let sets = all_of::<MachineSet>(&Api::namespaced(self.control.clone(), namespace)).await?;
        Ok(NamespacePools::new(&deployments, &sets))
    }

    /// A Node still exists with its UID, its VM and the annotation.
    async fn is_unchanged(&self, seen: &TargetNode) -> Result<bool, String> {
        let name = seen.node.name_any();
        let target = self.targets.all().into_iter().find(|target| target.id.to_string() == seen.target);
        let target = target.ok_or_else(|| format!("cluster {} to be connected", seen.target))?;
        let read = target.nodes.read_again(&Key::new("", &name)).await;
        let live = read.map_err(|error| format!("node {name} to become readable: {}", chain(&error)))?;
        Ok(live.is_some_and(|node| {
            let is_marked = node.annotations().contains_key(NOT_MANAGED);
            is_marked
                && node.metadata.uid == seen.node.metadata.uid
                && node.spec.provider_id == seen.node.spec.provider_id
        }))
    }

    fn record(
        &self,
        snapshot: &Snapshot,
        reason: &str,
        memory: Memory,
        report: &[Arc<Machine>],
        events: &[Event],
        turn: &mut ReconcileRun<'_, Self>,
    ) {
        let class = snapshot.class.as_ref();
        self.measured.found(labels_of(turn.key), &memory);
        for event in events {
            tracing::warn!(class = %turn.key, reason, "{}", event.message);
            self.events.record(class, event);
        }
        for machine in report {
            let text =
                format!("VM {} is not in the list of the VMs of class {}", machine.spec.provider_id, class.name_any());
            tracing::warn!(machine = %Key::from_meta(&machine.metadata), "{text}");
            self.events.record(machine.as_ref(), &Event::warning(EventReason::VmMissing, text));
        }
        turn.remember(|kept| *kept = memory);
        turn.session.learned.is_recorded = true;
    }

    async fn delete(
        &self,
        snapshot: &Snapshot,
        reason: &str,
        id: &str,
        machine: &str,
        event: Option<&Event>,
        turn: &mut ReconcileRun<'_, Self>,
    ) {
        let class = &snapshot.class;
        self.count_deletion(class, snapshot.now);
        let result = match self.drivers.get(class) {
            Ok(driver) => {
                let machine = Arc::new(orphan(class, machine, id));
                let (class, secret) = (Arc::clone(class), turn.session.secret.clone());
                let request = MachineRequest { machine, class, secret, owner: String::new(), may_pause: false };
                machine::while_leading(driver.delete(&request)).await.map(drop).map_err(|error| error.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        match &result {
            Ok(()) => {
                tracing::warn!(class = %turn.key, vm = id, machine, reason, "orphan VM deleted");
                self.freed.vm_deleted(class);
                self.measured.deleted(labels_of(turn.key));
                turn.remember(|memory| memory.orphans.retain(|other, _| *other != identity(id, machine)));
                event.iter().for_each(|event| self.events.record(class.as_ref(), event));
            }
            Err(error) => tracing::warn!(class = %turn.key, vm = id, machine, error, "orphan VM not deleted"),
        }
        turn.session.learned.deleted.insert(id.to_owned(), result);
    }

    fn count_deletion(&self, class: &MachineClass, now: Timestamp) {
        let mut deletions = self.deletions.lock();
        let times = deletions.entry(CloudAccount::from_class(class)).or_default();
        let since = now.checked_sub(period_of(&self.policy)).unwrap_or(Timestamp::MIN);
        times.retain(|at| *at > since);
        times.push(now);
    }
}

/// All objects of a kind, each of which must be decodable.
async fn all_of<K>(api: &Api<GuardedObject<K>>) -> Result<Vec<K>, String>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let (mut found, mut page) = (Vec::new(), ListParams::default().limit(PAGE));
    let kind = K::kind(&());
    for _ in 0..MOST_PAGES {
        let list = Box::pin(api.list(&page)).await.map_err(|error| format!("list {kind}s: {}", chain(&error)))?;
        for object in list.items {
            match object {
                GuardedObject::Readable(object) => found.push(object),
                GuardedObject::Unreadable { metadata, .. } => {
                    return Err(format!("{kind} {} cannot be decoded", Key::from_meta(&metadata)));
                }
            }
        }
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(found),
        }
    }
    Err(format!("list {kind}s: there are too many"))
}

fn labels_of(class: &Key) -> [&str; 2] {
    [&class.namespace, &class.name]
}

/// The Machine in a request to the driver: name, namespace and provider ID, as in the reference.
fn orphan(class: &MachineClass, name: &str, id: &str) -> Machine {
    let mut machine = Machine::default();
    machine.metadata.name = Some(name.to_owned());
    machine.metadata.namespace.clone_from(&class.metadata.namespace);
    machine.spec.provider_id = id.to_owned();
    machine
}

/// The component of its events.
pub(super) const COMPONENT: &str = controllers::MACHINES.lease;
