//! A class with its VMs and Machines, and passes over it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::orphans::{
    Action, ClassVms, ForeignClasses, Memory, NamespacePools, OrphanCallResults, OrphanPolicy, Snapshot, TargetNode,
    VmListing, claim_of, plan,
};
use mcm_api::{machine::Machine, patch, reasons::EventReason, vm_owner::Owner};
use mcm_driver::{ListedVm, VmsByProviderId};
use mcm_rules::{
    plan::Plan,
    safety::{
        meltdown::{OutOfService, ReplacementPermit},
        orphans::identity,
    },
};

pub(super) const MINUTE: SignedDuration = SignedDuration::from_mins(1);

#[derive(Clone, Debug)]
pub(super) struct World {
    pub policy: OrphanPolicy,
    pub now: Timestamp,
    /// The VMs in the cloud.
    pub vms: VmsByProviderId,
    /// UID of the namespace, if it can be read.
    pub uid: Option<String>,
    /// The answer to the question which classes of other namespaces have the cluster tag.
    pub others: ForeignClasses,
    /// The number of lists.
    pub asked: usize,
    /// The error of the list.
    pub list_fails: Option<String>,
    /// The Machines in the cache.
    pub machines: BTreeMap<String, Machine>,
    /// Machines that the API server has and the cache lacks.
    pub not_cached: Vec<String>,
    /// The error of live reads.
    pub reads_fail: Option<String>,
    pub uncertain: Option<String>,
    pub deletions_fail: bool,
    /// The Nodes in the cache.
    pub nodes: BTreeMap<String, TargetNode>,
    /// Nodes whose annotation was removed, which the cache does not show yet.
    pub claimed_lately: Vec<String>,
    pub pools: Result<NamespacePools, String>,
    /// VMs, by identity, that another class handles.
    pub elsewhere: BTreeSet<String>,
    /// Another Machine that has the permit.
    pub permit_of: Option<String>,
    /// Machines that were created and deleted for orphans.
    pub drained: Vec<String>,
    pub memory: Memory,
    pub deleted: Vec<String>,
    pub attempts: Vec<Timestamp>,
    pub events: Vec<(EventReason, String)>,
    pub reported: Vec<String>,
    pub last: Plan<Action>,
}

/// A Machine with this change.
pub(super) fn machine(name: &str, change: &Value) -> Machine {
    let mut value = json!({
        "metadata": {"name": name, "namespace": "shoot", "uid": format!("uid-{name}")},
        "spec": {"class": {"kind": "MachineClass", "name": "c"}},
    });
    patch::apply(&mut value, change);
    serde_json::from_value(value).unwrap()
}

pub(super) fn running(id: &str) -> Value {
    json!({"spec": {"providerID": id}, "status": {"currentStatus": {"phase": "Running"}}})
}

impl World {
    /// VM 1 without a Machine, and VM 2 with its own.
    pub(super) fn new() -> Self {
        let mut world = Self {
            policy: OrphanPolicy::default(),
            now: Timestamp::from_second(1_700_000_000).unwrap(),
            vms: VmsByProviderId::new(),
            uid: None,
            others: ForeignClasses::Known(Vec::new()),
            asked: 0,
            list_fails: None,
            machines: BTreeMap::new(),
            not_cached: Vec::new(),
            reads_fail: None,
            uncertain: None,
            deletions_fail: false,
            nodes: BTreeMap::new(),
            claimed_lately: Vec::new(),
            pools: Ok(NamespacePools::default()),
            elsewhere: BTreeSet::new(),
            permit_of: None,
            drained: Vec::new(),
            memory: Memory::default(),
            deleted: Vec::new(),
            attempts: Vec::new(),
            events: Vec::new(),
            reported: Vec::new(),
            last: Plan::default(),
        };
        world.vm(1, "gone");
        world.vm(2, "there");
        world.add("there", &running("cloud:///2"));
        world
    }

    /// A VM with the marker of this namespace.
    pub(super) fn vm(&mut self, number: usize, machine: &str) {
        self.vm_of(number, machine, Some("shoot"));
    }

    pub(super) fn vm_of(&mut self, number: usize, machine: &str, owner: Option<&str>) {
        let vm = ListedVm::new(machine, owner.map(str::to_owned));
        self.vms.insert(format!("cloud:///{number}"), vm);
    }

    /// A Node that is ready, with the mark.
    pub(super) fn node(&mut self, name: &str, id: &str) {
        let node = json!({
            "metadata": {
                "name": name, "uid": format!("uid-{name}"),
                "annotations": {"node.machine.sapcloud.io/not-managed-by-mcm": "1"},
            },
            "spec": {"providerID": id}, "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        let node = Arc::new(serde_json::from_value(node).unwrap());
        self.nodes.insert(name.to_owned(), TargetNode { target: "target".to_owned(), is_default: true, node });
    }

    pub(super) fn change_node(&mut self, name: &str, change: &Value) {
        let one = self.nodes.get_mut(name).unwrap();
        let mut value = serde_json::to_value(&*one.node).unwrap();
        patch::apply(&mut value, change);
        one.node = Arc::new(serde_json::from_value(value).unwrap());
    }

    /// The deployment `pool` with so many replicas.
    pub(super) fn pool(&mut self, replicas: usize) {
        let deployment = json!({
            "metadata": {"name": "pool", "namespace": "shoot", "uid": "d"},
            "spec": {
                "replicas": replicas, "selector": {"matchLabels": {"name": "pool"}},
                "template": {"spec": {"drainTimeout": "7m"}},
            },
        });
        let controller = |kind: &str, uid: &str| json!([{"apiVersion": "v1", "kind": kind, "name": "x", "uid": uid, "controller": true}]);
        let set = json!({
            "metadata": {"name": "pool-1", "namespace": "shoot", "uid": "s", "ownerReferences": controller("MachineDeployment", "d")},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"name": "pool", "hash": "1"}}},
        });
        let [deployment, set] = [deployment, set].map(|value| value.to_string());
        let deployment = serde_json::from_str(&deployment).unwrap();
        self.pools = Ok(NamespacePools::new(&[deployment], &[serde_json::from_str(&set).unwrap()]));
    }

    /// A Machine of that pool, with its VM.
    pub(super) fn member(&mut self, number: usize, phase: &str) {
        let (name, id) = (format!("pool-1-{number}"), format!("cloud:///{number}"));
        self.vm(number, &name);
        self.add(
            &name,
            &json!({
                "metadata": {
                    "labels": {"node": format!("node-{number}"), "name": "pool"},
                    "ownerReferences": [{"apiVersion": "v1", "kind": "MachineSet", "name": "pool-1", "uid": "s", "controller": true}],
                },
                "spec": {"providerID": id}, "status": {"currentStatus": {"phase": phase}},
            }),
        );
        self.node(&format!("node-{number}"), &id);
    }

    fn owner(&self) -> Owner {
        Owner { namespace: "shoot".to_owned(), uid: self.uid.clone() }
    }

    pub(super) fn add(&mut self, name: &str, change: &Value) {
        self.machines.insert(name.to_owned(), machine(name, change));
    }

    pub(super) fn sleep(&mut self, minutes: i64) {
        self.now += MINUTE * i32::try_from(minutes).unwrap();
    }

    fn snapshot(&self, learned: &OrphanCallResults) -> Snapshot {
        let since = self.now - SignedDuration::try_from(self.policy.period).unwrap().max(MINUTE);
        Snapshot {
            policy: self.policy,
            class: Arc::new(
                serde_json::from_value(json!({"metadata": {"name": "c", "namespace": "shoot"}, "providerSpec": {}}))
                    .unwrap(),
            ),
            can_list: true,
            claims: self.machines.values().map(claim_of).collect(),
            machines: self.machines.values().cloned().map(Arc::new).collect(),
            all_machines: self.machines.values().cloned().map(Arc::new).collect(),
            nodes: self.nodes.values().cloned().collect(),
            recently_deleted: self.attempts.iter().filter(|at| **at > since).count(),
            uncertain: self.uncertain.clone(),
            memory: self.memory.clone(),
            learned: learned.clone(),
            now: self.now,
        }
    }

    /// One reconcile; the reasons of its steps.
    pub(super) fn pass(&mut self) -> Vec<String> {
        let (mut learned, mut reasons) = (OrphanCallResults::default(), Vec::new());
        for _ in 0..32 {
            let plan = plan(&self.snapshot(&learned), &self.policy);
            if plan.steps.is_empty() {
                self.last = plan;
                return reasons;
            }
            for step in plan.steps {
                reasons.push(step.reason);
                let is_done = self.execute(step.action, &mut learned);
                self.events.extend(step.event.filter(|_| is_done).map(|event| (event.reason, event.message)));
            }
        }
        panic!("planning never comes to rest: {reasons:?}");
    }

    fn execute(&mut self, action: Action, learned: &mut OrphanCallResults) -> bool {
        match action {
            Action::ListVms => {
                let found = || ClassVms { owner: self.owner(), vms: self.vms.clone() };
                let found = self.list_fails.clone().map_or_else(|| Ok(found()), Err);
                learned.list = Some(VmListing { began_at: self.now, found });
            }
            Action::ListClassesOfOthers => {
                self.asked += 1;
                learned.others = Some(self.others.clone());
            }
            Action::DivideVms(vms) => {
                learned.elsewhere = Some(vms.into_iter().filter(|vm| self.elsewhere.contains(vm)).collect());
            }
            Action::ListPools => learned.pools = Some(self.pools.clone()),
            Action::TakePermit { permit, machine } => {
                let permit = match &self.permit_of {
                    Some(other) => ReplacementPermit::Refused { by: other.clone() },
                    None => ReplacementPermit::Held(vec![OutOfService::for_key(&permit, self.machines.values())]),
                };
                learned.permits.insert(machine, permit);
            }
            Action::GetNode { id, node } => {
                let is_there = self.nodes.contains_key(&node.node.name_any());
                let is_marked = is_there && !self.claimed_lately.contains(&node.node.name_any());
                learned.nodes.insert(id, Ok(is_marked));
            }
            Action::CreateMachine(machine) => {
                assert!(!self.machines.contains_key(&machine.name_any()), "the API server would refuse it");
                self.machines.insert(machine.name_any(), *machine);
            }
            Action::DeleteMachine(machine) => {
                let deleted = self.machines.get_mut(&machine.name_any()).unwrap();
                deleted.metadata.deletion_timestamp = Some(Time(self.now));
                self.drained.push(machine.name_any());
            }
            Action::Record { memory, report, warnings } => {
                self.memory = *memory;
                self.events.extend(warnings.into_iter().map(|event| (event.reason, event.message)));
                self.reported.extend(report.iter().map(|machine| machine.name_any()));
                learned.is_recorded = true;
            }
            Action::GetMachine(name) => {
                let exists = self.machines.contains_key(&name) || self.not_cached.contains(&name);
                let read = self.reads_fail.clone().map_or(Ok(exists), Err);
                learned.machines.insert(name, read);
            }
            Action::DeleteVm { id, machine } => {
                assert_eq!(self.vms.get(&id).map(|vm| &vm.machine), Some(&machine));
                self.attempts.push(self.now);
                let result = if self.deletions_fail { Err("no".to_owned()) } else { Ok(()) };
                if result.is_ok() {
                    self.vms.remove(&id);
                    self.memory.orphans.remove(&identity(&id, &machine));
                    self.deleted.push(id.clone());
                }
                let is_done = result.is_ok();
                learned.deleted.insert(id, result);
                return is_done;
            }
        }
        true
    }

    /// The drain of a Node ended: its Machine, its VM and itself are deleted.
    pub(super) fn finish(&mut self, machine: &str) {
        let machine = self.machines.remove(machine).unwrap();
        assert!(machine.metadata.deletion_timestamp.is_some());
        self.vms.remove(&machine.spec.provider_id);
        self.nodes.retain(|_, one| one.node.spec.provider_id != machine.spec.provider_id);
    }

    /// Passes every period, for these many minutes.
    pub(super) fn run(&mut self, minutes: i64) {
        let period = i64::try_from(self.policy.period.as_secs() / 60).unwrap().max(1);
        for _ in 0..=minutes / period {
            self.pass();
            self.sleep(period);
        }
    }
}
