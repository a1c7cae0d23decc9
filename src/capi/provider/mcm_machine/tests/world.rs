//! Core, an API server and the native controller in a few lines. Plans are executed as the API server would.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::{Action, McmMachineSession, Memory, Snapshot, plan::plan};
use crate::{
    object::{
        gate::ManagerObstacle,
        observe::owner_of,
        view::{ObjectView, OwnerView},
    },
    provider::class,
    testing::world::{class, cluster, condition, deleted, infrastructure_ref, owned_by, parsed, view},
};
use mcm_api::{
    load_balancer::{LoadBalancer, LoadBalancerKind},
    patch,
};
use mcm_conversion::types::{MCMMachine, MCMMachineStatus, Machine};
use mcm_driver::{Code, DriverError};
use mcm_rules::plan::Plan;

/// The load balancers of a cloud, by name, with the IDs of their members.
#[derive(Default)]
pub(super) struct Balancers {
    pub all: BTreeMap<String, BTreeSet<String>>,
    /// Each call fails with this code.
    pub failure: Option<Code>,
    /// The cloud carries changes out after its answer; the next call finds them done.
    pub is_slow: bool,
    /// Changes that it has accepted.
    begun: Vec<(String, String, bool)>,
}

/// The pause before the next look at work of the cloud.
pub(super) const PAUSE: Duration = Duration::from_secs(3);

impl Balancers {
    fn change(&mut self, action: &Action, vm: &str) -> Result<(), DriverError> {
        let (balancer, is_member) = match action {
            Action::Register(balancer) => (balancer, true),
            Action::Deregister(balancer) => (balancer, false),
            _ => unreachable!(),
        };
        let LoadBalancer::Simulated(named) = balancer else { panic!("{balancer}") };
        if let Some(code) = self.failure {
            return Err(DriverError::new(code, "the cloud says no"));
        }
        let gone = || DriverError::new(Code::NotFound, format!("there is no load balancer {}", named.name));
        let members = self.all.get_mut(&named.name).ok_or_else(gone)?;
        let change = (named.name.clone(), vm.to_owned(), is_member);
        if self.is_slow && members.contains(vm) != is_member && !self.begun.contains(&change) {
            self.begun.push(change);
            return Err(DriverError::not_done("the cloud works on it", PAUSE));
        }
        self.begun.retain(|begun| *begun != change);
        let _ = if is_member { members.insert(vm.to_owned()) } else { members.remove(vm) };
        Ok(())
    }

    pub fn members(&self, name: &str) -> Vec<&str> {
        self.all[name].iter().map(String::as_str).collect()
    }
}

pub(super) struct World {
    pub object: Option<Value>,
    pub machine: Option<Value>,
    pub cluster: Option<Value>,
    pub infrastructure: Option<Value>,
    pub classes: BTreeMap<String, Value>,
    pub native: Option<Value>,
    /// Another native Machine with the VM of the object.
    pub rival: Option<String>,
    /// The same, while the watch has not delivered it yet.
    pub unseen_rival: Option<String>,
    pub secrets: Vec<String>,
    /// A native manager beside the provider.
    pub obstacle: Option<ManagerObstacle>,
    /// The infrastructure of the Cluster, of another provider.
    pub network: Value,
    pub filter: Option<String>,
    /// The load balancers of the cloud.
    pub balancers: Arc<Mutex<Balancers>>,
    /// The kind of load balancer that the driver serves.
    pub served: Option<LoadBalancerKind>,
    pub memory: Memory,
    /// The process ends after so many actions.
    pub dies_after: Option<usize>,
    pub now: i64,
    /// Every action, as text.
    pub log: Vec<String>,
    /// Every plan, for a reader.
    pub story: String,
}

impl World {
    /// An MCMMachine right after core created it, in a cluster that is ready, without bootstrap data.
    pub fn new() -> Self {
        let owner = owned_by("Machine", "m", "machine");
        Self {
            object: Some(json!({
                "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "MCMMachine",
                "metadata": {
                    "name": "m", "namespace": "ns", "uid": "object", "generation": 1, "ownerReferences": owner,
                    "labels": { "cluster.x-k8s.io/cluster-name": "c" },
                    "annotations": { "cluster.x-k8s.io/cloned-from-name": "t" },
                },
                "spec": { "machineClassRef": { "name": "small" } },
            })),
            machine: Some(json!({
                "metadata": { "name": "m", "namespace": "ns", "uid": "machine" },
                "spec": { "clusterName": "c", "bootstrap": {}, "infrastructureRef": infrastructure_ref("MCMMachine", "m") },
            })),
            cluster: Some(cluster("m")),
            infrastructure: None,
            classes: [("small".to_owned(), class("small", "a"))].into(),
            native: None,
            rival: None,
            unseen_rival: None,
            secrets: vec!["boot".to_owned()],
            obstacle: None,
            network: Value::Null,
            filter: None,
            balancers: Arc::default(),
            served: Some(LoadBalancerKind::Simulated),
            memory: Memory::default(),
            dies_after: None,
            now: 0,
            log: Vec::new(),
            story: String::new(),
        }
    }

    /// The same with bootstrap data.
    pub fn with_data() -> Self {
        let mut world = Self::new();
        world.set_machine(&json!({ "spec": { "bootstrap": { "dataSecretName": "boot" } } }));
        world
    }

    /// The same for an existing VM.
    pub fn provisioned() -> Self {
        let mut world = Self::with_data();
        world.pass();
        world.vm("simulated:///r/vm-1");
        world.pass();
        (world.log, world.story) = (Vec::new(), String::new());
        world
    }

    pub fn set_object(&mut self, change: &Value) {
        patch::apply(self.object.as_mut().unwrap(), change);
    }

    pub fn set_machine(&mut self, change: &Value) {
        patch::apply(self.machine.as_mut().unwrap(), change);
    }

    pub fn set_cluster(&mut self, change: &Value) {
        patch::apply(self.cluster.as_mut().unwrap(), change);
    }

    pub fn set_native(&mut self, change: &Value) {
        patch::apply(self.native.as_mut().unwrap(), change);
    }

    pub fn delete(&mut self) {
        self.set_object(&deleted());
    }

    /// The native controller found or created the VM.
    pub fn vm(&mut self, id: &str) {
        self.set_native(&json!({
            "spec": { "providerID": id },
            "status": {
                "addresses": [{ "type": "Hostname", "address": "m" }, { "type": "InternalIP", "address": "10.0.0.1" }],
                "currentStatus": { "phase": "Available" },
                "lastOperation": { "type": "Create", "state": "Successful", "description": "Created machine on cloud provider" },
            },
        }));
    }

    /// The native controller could not create the VM.
    pub fn failed(&mut self, phase: &str, code: &str) {
        self.set_native(&json!({ "status": {
            "currentStatus": { "phase": phase },
            "lastOperation": { "type": "Create", "state": "Failed", "errorCode": code, "description": "the cloud says no" },
        } }));
    }

    pub fn snapshot(&self, session: McmMachineSession) -> Snapshot {
        let object: Arc<MCMMachine> = parsed(self.object.as_ref().unwrap());
        let named = owner_of(&object.metadata, "Machine").is_some();
        let owner: OwnerView<Machine> =
            if named { OwnerView::Named(view(self.machine.as_ref())) } else { OwnerView::None };
        let infrastructure = view(self.infrastructure.as_ref());
        let zone = owner.known().map(|machine| machine.spec.failure_domain.clone()).unwrap_or_default();
        let name = class::in_zone(&object.spec.machine_class_ref, &zone, &infrastructure);
        let secret = owner.known().and_then(|machine| machine.spec.bootstrap.data_secret_name.clone());
        let native_class = self.native.as_ref().and_then(|one| Some(one["spec"]["class"]["name"].as_str()?.to_owned()));
        let has_data = secret.is_some_and(|name| self.secrets.contains(&name));
        Snapshot {
            class: view(self.classes.get(&name)),
            own_class: view(self.classes.get("m")),
            native: view(self.native.as_ref()),
            bootstrap: if has_data { ObjectView::Present(().into()) } else { ObjectView::Missing },
            cluster: view(self.cluster.as_ref()),
            watch_filter: self.filter.clone(),
            now: Timestamp::from_second(1_800_000_000 + self.now).unwrap(),
            object,
            owner,
            infrastructure,
            rival: self.rival.clone(),
            obstacle: self.obstacle.clone(),
            vm_class: view(self.classes.get(native_class.as_deref().unwrap_or(&name))),
            served: self.served,
            session,
            memory: self.memory.clone(),
        }
    }

    /// Plans and executes until there is nothing to do. Returns the waits of the object.
    pub fn pass(&mut self) -> Vec<String> {
        let mut session = McmMachineSession::default();
        for _ in 0..20 {
            if self.object.is_none() {
                return Vec::new();
            }
            let plan = plan(&self.snapshot(session.clone()));
            self.story.push_str(&plan.to_string());
            if plan.steps.is_empty() {
                return plan.waits.into_iter().map(|wait| wait.text).collect();
            }
            self.execute(plan, &mut session);
            if self.dies_after == Some(0) {
                self.memory = Memory::default();
                return Vec::new();
            }
        }
        panic!("it does not come to an end:\n{}", self.story);
    }

    fn execute(&mut self, plan: Plan<Action>, session: &mut McmMachineSession) {
        let writes =
            plan.steps.iter().filter(|step| matches!(step.action, Action::PatchSelf(_) | Action::WriteStatus(_)));
        assert!(writes.count() <= 1, "the second write would meet another resource version");
        for step in plan.steps {
            match &mut self.dies_after {
                Some(0) => return,
                Some(left) => *left -= 1,
                None => {}
            }
            self.log.push(step.action.to_string().lines().next().unwrap_or_default().to_owned());
            match step.action {
                Action::PatchSelf(change) => {
                    self.set_object(&change);
                    let meta = &self.object.as_ref().unwrap()["metadata"];
                    let has_finalizer = meta["finalizers"].as_array().is_some_and(|all| !all.is_empty());
                    if !has_finalizer && meta["deletionTimestamp"].is_string() {
                        self.object = None;
                    }
                }
                Action::WriteStatus(status) => {
                    self.object.as_mut().unwrap()["status"] = serde_json::to_value(*status).unwrap();
                }
                Action::CreateClass(class) => {
                    self.classes.insert(class.metadata.name.clone().unwrap(), serde_json::to_value(*class).unwrap());
                }
                Action::PatchClass { class, patch } => {
                    let name = class.metadata.name.clone().unwrap();
                    patch::apply(self.classes.get_mut(&name).unwrap(), &patch);
                }
                Action::CreateNative(machine) => {
                    assert!(self.native.is_none(), "the API server refuses a second one of that name");
                    self.native = Some(serde_json::to_value(*machine).unwrap());
                    self.set_native(&json!({ "metadata": { "uid": "native" } }));
                }
                Action::PatchNative { patch, .. } => {
                    self.set_native(&patch);
                    let meta = &self.native.as_ref().unwrap()["metadata"];
                    let has_finalizer = meta["finalizers"].as_array().is_some_and(|all| !all.is_empty());
                    if meta["deletionTimestamp"].is_string()
                        && patch["metadata"]["finalizers"].is_array()
                        && !has_finalizer
                    {
                        self.native = None;
                    }
                }
                Action::DeleteNative(_) => {
                    self.set_native(&deleted());
                }
                Action::ReadNative => session.is_native_gone = self.native.is_none(),
                Action::ReadNetwork { .. } => session.network = Some(self.network.clone().into()),
                Action::Register(_) | Action::Deregister(_) => {
                    let answer = self.balancers.lock().unwrap().change(&step.action, &self.vm_id());
                    session.answered(&step.action, &answer);
                    let now = Timestamp::from_second(1_800_000_000 + self.now).unwrap();
                    self.memory.answered(&step.action, &answer, now);
                }
                Action::ReadNatives => {
                    session.has_read_natives = true;
                    self.rival = self.unseen_rival.take().or_else(|| self.rival.take());
                }
            }
        }
    }

    /// The cloud works on the membership of the VM.
    pub fn is_working(&self) -> bool {
        self.memory.is_working()
    }

    /// The VM of the object.
    pub fn vm_id(&self) -> String {
        self.snapshot(McmMachineSession::default()).machine_of_vm().unwrap().spec.provider_id.clone()
    }

    pub fn status(&self) -> MCMMachineStatus {
        let object: Arc<MCMMachine> = parsed(self.object.as_ref().unwrap());
        object.status.clone().unwrap_or_default()
    }

    /// `False Creating`, for a condition.
    pub fn condition(&self, type_: &str) -> String {
        condition(&self.status().conditions, type_)
    }
}
