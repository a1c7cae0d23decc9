//! The cloud of a rehearsal: its VMs, their Nodes and the agents on these, which each need a fixed time.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeSpec;
use kube::ResourceExt;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::sleep;

use mcm_api::{
    labels,
    machine::{Machine, MachineClass, MachinePhase},
    node::Node,
    reasons::InPlaceUpdateReason,
};
use mcm_controllers::object::in_place;
use mcm_driver::{
    Code, Driver, DriverCapabilities, DriverError, MachineRequest, SecretData, Vm, VmsByProviderId, spec::ClassProblems,
};
use mcm_fake_api::{ApiServer, NODES, ServerObject, WriteRecord};

/// How long the parts of a rehearsal take.
#[derive(Clone, Copy, Debug)]
pub struct RehearsalTiming {
    /// From the creation of a VM until its Node is ready.
    pub join: Duration,
    /// The deletion of a VM.
    pub leave: Duration,
    /// The update of a Node by its agent.
    pub update: Duration,
}

/// Checks classes; `None` if their driver is not known.
pub type ClassValidator = Arc<dyn Fn(&MachineClass) -> Option<ClassProblems> + Send + Sync>;

/// A cloud without faults but those that are assumed.
pub struct RehearsedCloud {
    server: ApiServer,
    pace: RehearsalTiming,
    /// Users select each Node that is a candidate for an update at once.
    selects: bool,
    /// Classes of which it has no VM left.
    out_of_stock: BTreeSet<String>,
    judge: ClassValidator,
    /// By provider ID.
    vms: Mutex<BTreeMap<String, RehearsedVm>>,
    serial: AtomicU64,
}

#[derive(Clone)]
struct RehearsedVm {
    /// UID of the Machine.
    owner: String,
    node: String,
}

impl RehearsedCloud {
    /// A cloud with the VMs of these Machines. Nodes of VMs that did not join yet join after their time.
    pub fn for_machines(
        server: &ApiServer,
        machines: &[Machine],
        pace: RehearsalTiming,
        selects: bool,
        out_of_stock: BTreeSet<String>,
        judge: ClassValidator,
    ) -> Arc<Self> {
        let vms = machines.iter().filter(|machine| !machine.spec.provider_id.is_empty()).map(|machine| {
            let node = machine.node_name().map_or_else(|| machine.name_any(), str::to_owned);
            (machine.spec.provider_id.clone(), RehearsedVm { owner: machine.uid().unwrap_or_default(), node })
        });
        let (vms, serial) = (Mutex::new(vms.collect()), AtomicU64::new(1));
        let cloud = Arc::new(Self { server: server.clone(), pace, selects, out_of_stock, judge, vms, serial });
        let is_booting = |machine: &&Machine| {
            matches!(machine.phase(), MachinePhase::New | MachinePhase::Pending) && !machine.spec.provider_id.is_empty()
        };
        for machine in machines.iter().filter(is_booting) {
            cloud.boot(&machine.spec.provider_id);
        }
        cloud
    }

    fn boot(self: &Arc<Self>, id: &str) {
        let (cloud, id) = (Arc::clone(self), id.to_owned());
        tokio::spawn(async move {
            sleep(cloud.pace.join).await;
            cloud.join(&id);
        });
    }

    fn join(&self, id: &str) {
        let Some(vm) = self.vms.lock().get(id).cloned() else { return };
        if self.server.get(&NODES, "", &vm.node).is_none() {
            let node = json!({
                "metadata": { "name": vm.node, "labels": { "kubernetes.io/hostname": vm.node } },
                "spec": { "providerID": id },
                "status": { "conditions": [ready(Timestamp::UNIX_EPOCH)] },
            });
            // Nothing else creates Nodes.
            drop(self.server.create(&NODES, node));
        }
    }

    fn find(&self, machine: &Machine) -> Option<(String, RehearsedVm)> {
        let vms = self.vms.lock();
        let named = machine.spec.provider_id.as_str();
        let owner = machine.uid().unwrap_or_default();
        let found = match named {
            "" => vms.iter().find(|(_, vm)| vm.owner == owner),
            named => vms.get_key_value(named),
        };
        found.map(|(id, vm)| (id.clone(), vm.clone()))
    }

    /// After each write of a Node: its agent updates it, components start, users select it.
    pub fn saw(self: &Arc<Self>, write: &WriteRecord<'_>) {
        let (true, Some(after)) = (write.call.kind == &NODES, write.after) else { return };
        if is_of_update(after) {
            self.react(write.before.and_then(parsed), parsed(after));
        }
    }

    /// Continues what the agents, components and users of these Nodes have begun.
    pub fn resume(self: &Arc<Self>, nodes: impl Iterator<Item = Node>) {
        nodes.for_each(|node| self.react(None, Some(node)));
    }

    fn react(self: &Arc<Self>, before: Option<Node>, after: Option<Node>) {
        let Some(node) = after else { return };
        let is_new = |holds: &dyn Fn(&Node) -> bool| holds(&node) && !before.as_ref().is_some_and(holds);
        if is_new(&may_update) {
            self.later(&node, self.pace.update, |object| {
                object["metadata"]["labels"][labels::UPDATE_RESULT] = json!(labels::SUCCESSFUL);
            });
        }
        if is_new(&has_critical_taint) {
            self.later(&node, Duration::from_secs(1), |object| {
                if let Some(taints) = object["spec"]["taints"].as_array_mut() {
                    taints.retain(|taint| taint["key"] != labels::CRITICAL_COMPONENTS_TAINT);
                }
            });
        }
        if self.selects && is_new(&|node| in_place::is_candidate(node) && !in_place::is_selected(node)) {
            self.later(&node, Duration::from_secs(1), |object| {
                object["metadata"]["labels"][labels::SELECTED_FOR_UPDATE] = json!(labels::SET);
            });
        }
    }

    fn later(self: &Arc<Self>, node: &Node, after: Duration, change: impl FnOnce(&mut Value) + Send + 'static) {
        let (cloud, name) = (Arc::clone(self), node.name_any());
        tokio::spawn(async move {
            sleep(after).await;
            // It may be deleted by then.
            drop(cloud.server.edit(&NODES, "", &name, change));
        });
    }
}

/// The condition of a Node that is ready.
pub fn ready(since: Timestamp) -> Value {
    json!({ "type": "Ready", "status": "True", "lastTransitionTime": since.strftime("%Y-%m-%dT%H:%M:%SZ").to_string() })
}

fn parsed(object: &ServerObject) -> Option<Node> {
    serde_json::from_value(object.value.clone()).ok()
}

/// Other Nodes need no look.
fn is_of_update(object: &ServerObject) -> bool {
    let is_candidate = object.value["metadata"]["labels"][labels::CANDIDATE_FOR_UPDATE].is_string();
    is_candidate || object.value["spec"]["taints"].is_array()
}

fn may_update(node: &Node) -> bool {
    in_place::progress_of(&node.status.conditions) == Some(InPlaceUpdateReason::ReadyForUpdate)
        && in_place::result_of(node).is_none()
}

fn has_critical_taint(node: &Node) -> bool {
    node.spec.taints.iter().any(|taint| taint.key == labels::CRITICAL_COMPONENTS_TAINT)
}

/// The driver, which serves classes of every provider.
pub struct RehearsedDriver(pub Arc<RehearsedCloud>);

impl RehearsedDriver {
    fn vm((provider_id, vm): (String, RehearsedVm)) -> Vm {
        Vm { provider_id, node_name: vm.node, ..Vm::default() }
    }

    fn missing() -> DriverError {
        DriverError::new(Code::NotFound, "no such VM")
    }
}

#[async_trait]
impl Driver for RehearsedDriver {
    fn name(&self) -> &'static str {
        "rehearsal"
    }

    fn capabilities(&self) -> DriverCapabilities {
        DriverCapabilities::default()
    }

    fn validate(&self, class: &MachineClass) -> ClassProblems {
        (self.0.judge)(class).unwrap_or_default()
    }

    async fn create(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        let machine = &request.machine;
        if let Some(found) = self.0.find(machine) {
            return Ok(Self::vm(found));
        }
        if self.0.out_of_stock.contains(&machine.spec.class.name) {
            let message = format!("no VM of class {} is left", machine.spec.class.name);
            return Err(DriverError::new(Code::ResourceExhausted, message));
        }
        let id = format!("rehearsal:///{}", self.0.serial.fetch_add(1, Ordering::Relaxed));
        let vm = RehearsedVm { owner: machine.uid().unwrap_or_default(), node: machine.name_any() };
        self.0.vms.lock().insert(id.clone(), vm.clone());
        self.0.boot(&id);
        Ok(Self::vm((id, vm)))
    }

    async fn initialize(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        self.status(request).await
    }

    async fn delete(&self, request: &MachineRequest) -> Result<Option<String>, DriverError> {
        sleep(self.0.pace.leave).await;
        if let Some((id, _)) = self.0.find(&request.machine) {
            self.0.vms.lock().remove(&id);
        }
        Ok(None)
    }

    async fn status(&self, request: &MachineRequest) -> Result<Vm, DriverError> {
        self.0.find(&request.machine).map(Self::vm).ok_or_else(Self::missing)
    }

    async fn list(&self, _: &MachineClass, _: &SecretData) -> Result<VmsByProviderId, DriverError> {
        Err(DriverError::new(Code::Unimplemented, "no list"))
    }

    async fn volume_ids(&self, _: &[PersistentVolumeSpec]) -> Result<Vec<String>, DriverError> {
        Ok(Vec::new())
    }
}
