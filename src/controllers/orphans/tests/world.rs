//! A class with its VMs and Machines, and passes over it.

use std::{collections::BTreeMap, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::{
    api::{machine::Machine, patch, reasons::EventReason, vm_owner::Owner},
    controllers::orphans::{Action, Found, Learned, Listing, Memory, Others, Policy, Snapshot, claim_of, plan},
    driver::{Listed, ListedVm},
    plan::Plan,
    safety::orphans::identity,
};

pub(super) const MINUTE: SignedDuration = SignedDuration::from_mins(1);

#[derive(Clone, Debug)]
pub(super) struct World {
    pub policy: Policy,
    pub now: Timestamp,
    /// The VMs in the cloud.
    pub vms: Listed,
    /// UID of the namespace, if it can be read.
    pub uid: Option<String>,
    /// The answer to the question which classes of other namespaces have the cluster tag.
    pub others: Others,
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
            policy: Policy::default(),
            now: Timestamp::from_second(1_700_000_000).unwrap(),
            vms: Listed::new(),
            uid: None,
            others: Others::Known(Vec::new()),
            asked: 0,
            list_fails: None,
            machines: BTreeMap::new(),
            not_cached: Vec::new(),
            reads_fail: None,
            uncertain: None,
            deletions_fail: false,
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

    fn owner(&self) -> Owner {
        Owner { namespace: "shoot".to_owned(), uid: self.uid.clone() }
    }

    pub(super) fn add(&mut self, name: &str, change: &Value) {
        self.machines.insert(name.to_owned(), machine(name, change));
    }

    pub(super) fn sleep(&mut self, minutes: i64) {
        self.now += MINUTE * i32::try_from(minutes).unwrap();
    }

    fn snapshot(&self, learned: &Learned) -> Snapshot {
        let since = self.now - SignedDuration::try_from(self.policy.period).unwrap().max(MINUTE);
        Snapshot {
            policy: self.policy,
            class: Arc::new(serde_json::from_value(json!({"metadata": {"name": "c"}, "providerSpec": {}})).unwrap()),
            can_list: true,
            claims: self.machines.values().map(claim_of).collect(),
            machines: self.machines.values().cloned().map(Arc::new).collect(),
            recently_deleted: self.attempts.iter().filter(|at| **at > since).count(),
            uncertain: self.uncertain.clone(),
            memory: self.memory.clone(),
            learned: learned.clone(),
            now: self.now,
        }
    }

    /// One reconcile; the reasons of its steps.
    pub(super) fn pass(&mut self) -> Vec<String> {
        let (mut learned, mut reasons) = (Learned::default(), Vec::new());
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

    fn execute(&mut self, action: Action, learned: &mut Learned) -> bool {
        match action {
            Action::ListVms => {
                let found = || Found { owner: self.owner(), vms: self.vms.clone() };
                let found = self.list_fails.clone().map_or_else(|| Ok(found()), Err);
                learned.list = Some(Listing { began_at: self.now, found });
            }
            Action::ListClassesOfOthers => {
                self.asked += 1;
                learned.others = Some(self.others.clone());
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

    /// Passes every period, for these many minutes.
    pub(super) fn run(&mut self, minutes: i64) {
        let period = i64::try_from(self.policy.period.as_secs() / 60).unwrap().max(1);
        for _ in 0..=minutes / period {
            self.pass();
            self.sleep(period);
        }
    }
}
