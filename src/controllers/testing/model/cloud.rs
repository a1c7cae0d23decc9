//! VMs, and the driver that creates them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::Duration,
};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::PersistentVolumeSpec;
use kube::ResourceExt;
use tokio::time::sleep;

use super::{
    desired_state::class_names,
    rng::Rng,
    world::{NAMESPACE, World},
};
use mcm_api::machine::{Machine, MachineClass};
use mcm_driver::{
    Code, Driver, DriverCapabilities, DriverError, ListedVm, MachineRequest, SecretData, Vm, VmsByProviderId,
    spec::ClassProblems,
};

/// A cloud that keeps to the contract of a driver, in one of the ways in which clouds differ.
pub(super) struct Cloud {
    pub vms: BTreeMap<String, Server>,
    /// It can list VMs.
    pub lists: bool,
    /// The error of every creation.
    pub refuses: Option<Code>,
    /// The number of VMs of other owners.
    pub foreign: usize,
    /// Another namespace has VMs with the tag of this cluster.
    pub is_shared: bool,
    /// The last VM of each Node name.
    named: BTreeMap<String, String>,
    style: Style,
    serial: u64,
}

/// A VM.
#[derive(Clone, Debug)]
pub(super) struct Server {
    /// UID of its Machine.
    pub owner: String,
    pub node: String,
    /// Name and class of the Machine for which it was created, as in its tags.
    machine: String,
    class: String,
    /// Marker of its owner, as it is in its tags.
    marker: Option<String>,
    /// It belongs to another cluster, or to another owner in this one.
    pub is_foreign: bool,
    /// It has the tag of this cluster.
    is_tagged: bool,
    initialized: bool,
}

/// How clouds differ.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    initializes: bool,
    /// A second create makes a second VM, instead of finding the first one by its token.
    forgets_tokens: bool,
    /// Nodes have the names of their Machines, instead of separate names.
    names_nodes_like_machines: bool,
    /// Names of Nodes are reused once their VM is deleted.
    reuses_names: bool,
}

impl Style {
    pub(super) const SIMPLE: Self =
        Self { initializes: false, forgets_tokens: true, names_nodes_like_machines: false, reuses_names: false };
    pub(super) const REUSING_NAMES: Self = Self { reuses_names: true, ..Self::SIMPLE };
}

/// How many VMs of another cluster there are in the account.
const FOREIGN: usize = 2;
/// VMs of another owner in each class: marked ones, and one of a version that marked none. A list may lack a VM.
const OF_OTHERS: [Option<&str>; 3] = [Some("team-b"), None, Some("team-b")];

/// The result of a create.
enum Made {
    New(String),
    /// A VM of the Machine existed, and was returned.
    Found(String),
    /// A VM of the Machine existed, and now there are two.
    Second(String),
}

impl Cloud {
    pub(super) fn of(rng: &mut Rng) -> Self {
        Self::new(Style {
            initializes: rng.one_in(3),
            forgets_tokens: rng.one_in(2),
            names_nodes_like_machines: rng.one_in(2),
            reuses_names: rng.one_in(2),
        })
    }

    pub(super) const fn new(style: Style) -> Self {
        Self {
            vms: BTreeMap::new(),
            lists: false,
            refuses: None,
            foreign: 0,
            is_shared: false,
            named: BTreeMap::new(),
            style,
            serial: 0,
        }
    }

    pub(super) const fn style(&self) -> Style {
        self.style
    }

    /// VMs of this namespace.
    pub(super) fn own(&self) -> impl Iterator<Item = (&String, &Server)> {
        self.vms.iter().filter(|(_, server)| !server.is_foreign)
    }

    pub(super) fn add_foreign(&mut self) {
        for _ in 0..FOREIGN {
            let id = self.make_orphan_vm(None, "class-0", None);
            self.give_away(&id).is_tagged = false;
        }
    }

    /// Another namespace shares the tag of the cluster.
    pub(super) fn add_others(&mut self) {
        self.is_shared = true;
        for class in class_names() {
            for marker in OF_OTHERS {
                let id = self.make_orphan_vm(None, &class, marker);
                self.give_away(&id);
            }
        }
    }

    fn give_away(&mut self, id: &str) -> &mut Server {
        self.foreign += 1;
        let server = self.vms.get_mut(id).unwrap();
        server.is_foreign = true;
        server
    }

    /// Adds an unrequested VM; returns its ID.
    pub(super) fn make_orphan_vm(&mut self, machine: Option<String>, class: &str, marker: Option<&str>) -> String {
        self.serial += 1;
        let (id, node) = (format!("cloud:///{}", self.serial), format!("stray-{}", self.serial));
        let (owner, machine) = (node.clone(), machine.unwrap_or_else(|| node.clone()));
        let (class, marker) = (class.to_owned(), marker.map(str::to_owned));
        let server =
            Server { owner, node, machine, class, marker, is_foreign: false, is_tagged: true, initialized: true };
        self.vms.insert(id.clone(), server);
        id
    }

    /// The VMs of a class, according to their tags.
    fn list(&self, class: &str) -> VmsByProviderId {
        let listed = self.vms.iter().filter(|(_, server)| server.is_tagged && server.class == class);
        listed.map(|(id, server)| (id.clone(), ListedVm::new(&server.machine, server.marker.clone()))).collect()
    }

    fn create(&mut self, machine: &Machine, class: &str, marker: &str) -> Made {
        let owner = machine.uid().unwrap();
        let held = self.id_of(&owner);
        if let Some(id) = held.clone().filter(|_| !self.style.forgets_tokens) {
            return Made::Found(id);
        }
        self.serial += 1;
        let id = format!("cloud:///{}", self.serial);
        let node = if self.style.names_nodes_like_machines { machine.name_any() } else { self.free_name() };
        let (machine, class, marker) = (machine.name_any(), class.to_owned(), Some(marker.to_owned()));
        let server =
            Server { owner, node, machine, class, marker, is_foreign: false, is_tagged: true, initialized: false };
        self.named.insert(server.node.clone(), id.clone());
        self.vms.insert(id.clone(), server);
        if held.is_some() { Made::Second(id) } else { Made::New(id) }
    }

    fn free_name(&self) -> String {
        let first = if self.style.reuses_names { 1 } else { self.serial };
        let is_free = |name: &String| !self.vms.values().any(|server| server.node == *name);
        (first..).map(|number| format!("ip-{number}")).find(is_free).unwrap()
    }

    fn initialize(&mut self, machine: &Machine) -> Result<Vm, DriverError> {
        let id = self.find(machine).ok_or_else(missing)?;
        if let Some(server) = self.vms.get_mut(&id) {
            server.initialized = true;
        }
        Ok(self.describe(&id))
    }

    fn status(&self, machine: &Machine) -> Result<Vm, DriverError> {
        let id = self.find(machine).ok_or_else(missing)?;
        let vm = self.describe(&id);
        if self.style.initializes && !self.vms[&id].initialized {
            let vm = Some(Box::new(vm));
            return Err(DriverError { vm, ..DriverError::new(Code::Uninitialized, "half a VM") });
        }
        Ok(vm)
    }

    /// Returns the deleted VMs by ID.
    fn delete(&mut self, machine: &Machine) -> Vec<(String, Server)> {
        let owner = machine.uid();
        let named = &machine.spec.provider_id;
        let mut gone = Vec::new();
        self.vms.retain(|id, server| {
            let is_meant = if named.is_empty() { Some(&server.owner) == owner.as_ref() } else { id == named };
            if is_meant {
                gone.push((id.clone(), server.clone()));
            }
            !is_meant
        });
        gone
    }

    /// Another VM got the Node name of this VM, which shows processes that this VM is deleted.
    pub(super) fn was_replaced(&self, id: &str, node: &str) -> bool {
        !self.vms.contains_key(id) && self.named.get(node).is_some_and(|last| last != id)
    }

    pub(super) fn has_vm_for_node(&self, node: &str) -> bool {
        self.vms.values().any(|server| server.node == node)
    }

    fn find(&self, machine: &Machine) -> Option<String> {
        let id = &machine.spec.provider_id;
        if id.is_empty() { self.id_of(&machine.uid().unwrap()) } else { self.vms.contains_key(id).then(|| id.clone()) }
    }

    fn id_of(&self, owner: &str) -> Option<String> {
        self.vms.iter().find(|(_, server)| server.owner == owner).map(|(id, _)| id.clone())
    }

    fn describe(&self, id: &str) -> Vm {
        Vm { provider_id: id.to_owned(), node_name: self.vms[id].node.clone(), ..Vm::default() }
    }
}

fn missing() -> DriverError {
    DriverError::new(Code::NotFound, "no such VM")
}

/// The driver of one process.
pub(super) struct ModelDriver {
    world: Weak<World>,
}

/// Name of the provider.
pub(super) const PROVIDER: &str = "model";

/// The fate of a call.
struct Fate {
    there: Duration,
    back: Duration,
    lost: Option<Code>,
}

impl ModelDriver {
    pub(super) fn new(world: &Arc<World>) -> Self {
        Self { world: Arc::downgrade(world) }
    }

    fn world(&self) -> Result<Arc<World>, DriverError> {
        self.world.upgrade().ok_or_else(|| DriverError::new(Code::Canceled, "the world has ended"))
    }

    /// Executes a call, or makes it fail. A code that is a statement about VMs is never injected.
    async fn call<T>(
        &self,
        what: &str,
        machine: &Machine,
        never: &[Code],
        effect: impl FnOnce(&Arc<World>) -> Result<T, DriverError> + Send,
    ) -> Result<T, DriverError> {
        let world = self.world()?;
        let name = machine.name_any();
        let fate = world.fate_of_cloud_call(never).inspect_err(|error| {
            world.say(format!("  cloud: {what} {name}: {}", error.code));
        })?;
        sleep(fate.there).await;
        if what == "create" {
            sleep(world.faults.millis(500..5000)).await;
        }
        let answer = effect(&world);
        sleep(fate.back).await;
        match fate.lost {
            None => answer,
            Some(code) => {
                world.say(format!("  cloud: the answer to {what} {name} is lost"));
                Err(DriverError::new(code, "no answer"))
            }
        }
    }
}

impl World {
    fn fate_of_cloud_call(&self, never: &[Code]) -> Result<Fate, DriverError> {
        let rates = self.faults.rates();
        let (there, back) = (self.faults.millis(0..rates.latency), self.faults.millis(0..rates.latency * 5));
        if !self.faults.per_mille(rates.cloud) {
            return Ok(Fate { there, back, lost: None });
        }
        if self.faults.one_in(3) {
            let codes = [Code::DeadlineExceeded, Code::Unavailable, Code::Internal, Code::Unknown, Code::Canceled];
            return Ok(Fate { there, back, lost: self.faults.pick(&codes) });
        }
        let codes: Vec<Code> = Code::ALL.into_iter().filter(|code| !never.contains(code)).collect();
        Err(DriverError::new(self.faults.pick(&codes).unwrap(), "as it pleases"))
    }
}

const NEVER_STATUS: [Code; 3] = [Code::NotFound, Code::Unimplemented, Code::Uninitialized];

#[async_trait]
impl Driver for ModelDriver {
    fn name(&self) -> &'static str {
        PROVIDER
    }

    fn capabilities(&self) -> DriverCapabilities {
        let initialize = self.world.upgrade().is_some_and(|world| world.cloud.lock().style.initializes);
        let list = self.world.upgrade().is_some_and(|world| world.cloud.lock().lists);
        DriverCapabilities { initialize, list, ..DriverCapabilities::default() }
    }

    fn validate(&self, _: &MachineClass) -> ClassProblems {
        ClassProblems::default()
    }

    async fn create(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        let machine = &request.machine;
        self.call("create", machine, &[Code::Unimplemented], |world| {
            if let Some(code) = world.cloud.lock().refuses {
                return Err(DriverError::new(code, "not like this"));
            }
            world.ledger.lock().vm_is_made(&world.faults, machine);
            world.faults.must(request.owner == NAMESPACE, || format!("a VM is made for owner {:?}", request.owner));
            let made = world.cloud.lock().create(machine, &request.class.name_any(), &request.owner);
            let name = machine.name_any();
            world.faults.must(!matches!(made, Made::Second(_)), || format!("a second VM is made for machine {name}"));
            let (Made::New(id) | Made::Found(id) | Made::Second(id)) = &made;
            let vm = world.cloud.lock().describe(id);
            if !matches!(made, Made::Found(_)) {
                world.say(format!("  VM {id} of {name}, node {}", vm.node_name));
                world.boot(id);
                let mut ledger = world.ledger.lock();
                if !ledger.has_machine(&machine.uid().unwrap()) {
                    // It was let go by hand meanwhile.
                    ledger.stranded(id);
                }
            }
            Ok(vm)
        })
        .await
    }

    async fn initialize(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        let machine = &request.machine;
        self.call("initialize", machine, &[Code::Unimplemented], |world| world.cloud.lock().initialize(machine)).await
    }

    async fn delete(&self, request: &MachineRequest) -> Result<Option<String>, DriverError> {
        let machine = &request.machine;
        self.call("delete", machine, &[Code::NotFound], |world| {
            let gone = world.cloud.lock().delete(machine);
            for (id, server) in gone {
                let (mut ledger, node) = (world.ledger.lock(), server.node.clone());
                let is_collected = machine.metadata.uid.is_none();
                if is_collected {
                    ledger.orphan_vm_is_deleted(&id, &server, &world.faults);
                } else {
                    ledger.vm_deleted(&world.faults, machine, &id, &node);
                }
                ledger.vm_is_gone(&id);
                drop(ledger);
                if is_collected {
                    world.orphan_vm_deleted(&id, node);
                } else {
                    world.say(format!("  the VM of node {node} is deleted"));
                    world.lose_contact(&node);
                }
            }
            Ok(None)
        })
        .await
    }

    async fn status(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        let machine = &request.machine;
        self.call("status", machine, &NEVER_STATUS, |world| world.cloud.lock().status(machine)).await
    }

    async fn list(&self, class: &MachineClass, _: &SecretData) -> Result<VmsByProviderId, DriverError> {
        let nobody = Machine::default();
        self.call("list", &nobody, &[], |world| {
            let cloud = world.cloud.lock();
            if !cloud.lists {
                return Err(DriverError::new(Code::Unimplemented, "no list"));
            }
            let mut listed = cloud.list(&class.name_any());
            // A new VM may not show yet.
            if world.faults.rates().mishaps > 0 && world.faults.one_in(4) {
                listed.pop_last();
            }
            Ok(listed)
        })
        .await
    }

    fn may_list(&self, class: &MachineClass, other: &MachineClass) -> bool {
        class.name_any() == other.name_any()
    }

    async fn volume_ids(&self, volumes: &[PersistentVolumeSpec]) -> Result<Vec<String>, DriverError> {
        Ok(volumes.iter().filter_map(|volume| Some(volume.csi.as_ref()?.volume_handle.clone())).collect())
    }
}
