//! What must hold after every write and every call of the cloud (no VM lost or doubled, bounds at every instant, nothing
//! written without a precondition).
//!
//! Everything here is read from the API servers and the cloud themselves, never from what a process believes.

mod facts;
mod requests;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use kube::ResourceExt;
use tokio::time::Instant;

use self::facts::{MachineFacts, NodeFacts, SetFacts};
use super::{
    super::api_server::{ApiServer, MACHINES, NODES, OUTSIDE, Object, PODS, SETS, Write},
    cloud::Cloud,
    kubelet::ready_status,
    luck::Luck,
    wish::Wish,
};
use crate::{api::machine::Machine, safety::meltdown};

/// A process may not know yet what became true so short a time ago: watches are late, and requests travel.
const NEWS: Duration = Duration::from_secs(70);

pub(super) struct Ledger {
    span: Span,
    machines: BTreeMap<String, MachineFacts>,
    sets: BTreeMap<String, SetFacts>,
    nodes: BTreeMap<String, NodeFacts>,
    /// UIDs of Machines that served, and that something else than the choice of a set took away.
    lost: BTreeSet<String>,
    /// UIDs of Machines that were given up for bad health.
    given_up: BTreeSet<String>,
    /// Marks that a Node is not managed, put on and taken off.
    marks: BTreeMap<String, usize>,
    /// Writes of processes that are no housekeeping.
    pub writes: usize,
    pub last_write: Instant,
}

/// The extremes of all wishes since everything was last as it should be: any of them may still be on its way.
#[derive(Debug)]
struct Span {
    most: usize,
    least: usize,
    only_recreate: bool,
    only_rolling: bool,
    is_deleted: bool,
}

impl Span {
    fn of(wish: &Wish) -> Self {
        Self {
            most: usize::try_from(wish.most()).unwrap(),
            least: usize::try_from(wish.least()).unwrap(),
            only_recreate: wish.is_recreate,
            only_rolling: !wish.is_recreate,
            is_deleted: wish.is_deleted,
        }
    }
}

impl Ledger {
    pub(super) fn of(wish: &Wish) -> Self {
        Self {
            span: Span::of(wish),
            machines: BTreeMap::new(),
            sets: BTreeMap::new(),
            nodes: BTreeMap::new(),
            lost: BTreeSet::new(),
            given_up: BTreeSet::new(),
            marks: BTreeMap::new(),
            writes: 0,
            last_write: Instant::now(),
        }
    }

    /// The user wishes something else.
    pub(super) fn wished(&mut self, wish: &Wish) {
        let new = Span::of(wish);
        // What follows from an older wish may be on its way still.
        self.last_write = Instant::now();
        self.span = Span {
            most: self.span.most.max(new.most).max(self.live()),
            least: self.span.least.min(new.least),
            only_recreate: self.span.only_recreate && new.only_recreate,
            only_rolling: self.span.only_rolling && new.only_rolling,
            is_deleted: self.span.is_deleted || new.is_deleted,
        };
    }

    /// Everything is as it should be, and everybody knows.
    pub(super) fn settled(&mut self, wish: &Wish) {
        self.span = Span::of(wish);
        self.lost.clear();
    }

    /// How often a process said or took back of a Node that it is not managed.
    pub(super) fn marks(&self, node: &str) -> usize {
        self.marks.get(node).copied().unwrap_or_default()
    }

    fn live(&self) -> usize {
        self.machines.values().filter(|machine| !machine.is_terminating()).count()
    }

    /// After each write.
    pub(super) fn saw(&mut self, write: &Write<'_>, luck: &Luck, cloud: &Cloud, target: &ApiServer) {
        let by_process = &*write.call.caller != OUTSIDE;
        if !write.changed() {
            return;
        }
        if by_process && !matches!(write.call.kind.plural, "leases" | "events") {
            self.writes += 1;
            self.last_write = Instant::now();
        }
        if write.call.kind == &MACHINES {
            self.saw_machine(write, by_process, luck, cloud);
        } else if write.call.kind == &SETS {
            self.saw_set(write);
        } else if write.call.kind == &NODES {
            self.saw_node(write, by_process, luck, cloud);
        } else if write.call.kind == &PODS && by_process {
            self.saw_pod(write, luck, cloud, target);
        }
    }

    fn saw_machine(&mut self, write: &Write<'_>, by_process: bool, luck: &Luck, cloud: &Cloud) {
        let now = Instant::now();
        let new = write.after.map(|object| {
            let before = self.machines.get(object.uid());
            MachineFacts::of(object, before, now)
        });
        let old = write.before.and_then(|object| self.machines.get(object.uid()).cloned());
        match (&old, &new) {
            (None, Some(new)) => {
                self.machines.insert(new.uid.clone(), new.clone());
                if by_process {
                    self.check_creation(new, luck);
                }
            }
            (Some(old), Some(new)) => {
                if !old.is_deleted && new.is_deleted && by_process {
                    self.check_deletion(old, luck);
                }
                self.check_change(old, new, luck, cloud);
                self.machines.insert(new.uid.clone(), new.clone());
            }
            (Some(old), None) => {
                let owned = cloud.owned_by(&old.uid);
                luck.must(owned == 0, || format!("machine {} is gone and its VM is not", old.name));
                if !old.is_deleted && by_process {
                    self.check_deletion(old, luck);
                }
                self.machines.remove(&old.uid);
                self.given_up.remove(&old.uid);
                self.lost.remove(&old.uid);
            }
            (None, None) => {}
        }
    }

    /// Bounds hold at every instant, and Recreate never mixes.
    fn check_creation(&self, new: &MachineFacts, luck: &Luck) {
        let (live, most) = (self.live(), self.span.most);
        luck.must(live <= most, || format!("{} makes {live} machines, and {most} may exist", new.name));
        if let Some(set) = self.sets.get(&new.set) {
            let own = self.machines.values().filter(|it| it.set == new.set && !it.is_terminating()).count();
            let allowed = set.most_replicas(NEWS);
            luck.must(own <= allowed, || format!("set {} has {own} machines and {allowed} replicas", set.name));
        }
        let others = self.machines.values().filter(|machine| machine.set != new.set).count();
        let mixes = self.span.only_recreate && others > 0;
        luck.must(!mixes, || format!("{} is created while {others} of other templates exist", new.name));
    }

    fn check_change(&mut self, old: &MachineFacts, new: &MachineFacts, luck: &Luck, cloud: &Cloud) {
        let name = &new.name;
        if cloud.vms.contains_key(&old.provider_id) {
            luck.must(old.provider_id == new.provider_id, || format!("machine {name} forgets its VM"));
        }
        if old.phase == new.phase && !new.is_reset {
            luck.must(old.phase_since == new.phase_since, || format!("machine {name} enters the phase that it is in"));
        }
        if new.is_available() {
            self.lost.remove(&new.uid);
        } else if old.is_available() && !new.is_deleted {
            self.lost.insert(new.uid.clone());
        }
        if old.phase == "Unknown" && new.phase == "Failed" {
            let limit = usize::try_from(meltdown::DEFAULT_LIMIT).unwrap();
            let others = &self.given_up;
            luck.must(others.len() < limit, || format!("machine {name} is given up while {others:?} are not gone yet"));
            self.given_up.insert(new.uid.clone());
        }
        if old.phase != new.phase && matches!(&*new.phase, "Failed" | "Unknown") {
            self.check_health(new, luck, cloud);
        }
    }

    /// Nobody concludes that a Machine is unhealthy from what it did not see.
    fn check_health(&self, machine: &MachineFacts, luck: &Luck, cloud: &Cloud) {
        let vm = cloud.vms.iter().find(|(_, vm)| vm.owner == machine.uid);
        let node = vm.and_then(|(id, vm)| self.nodes.get(&vm.node).filter(|node| node.provider_id == *id));
        let is_healthy = node.is_some_and(|node| node.has_been_ready_for(NEWS));
        luck.must(!is_healthy, || {
            format!("machine {} becomes {}, and its node has been ready for long", machine.name, machine.phase)
        });
    }

    /// A process deleted a Machine: there has to be a reason, and enough others have to serve.
    fn check_deletion(&mut self, machine: &MachineFacts, luck: &Luck) {
        let node = self.nodes.get(&machine.node);
        let lost_its_node = node.is_some_and(|node| {
            node.is_terminating || node.gone_at.is_some_and(|gone_at| gone_at >= machine.created_at)
        });
        let set = self.sets.get(&machine.set);
        let set_goes = set.is_none_or(|set| set.is_deleted);
        let own = self.machines.values().filter(|it| it.set == machine.set && !it.is_terminating()).count();
        let is_surplus = set.is_none_or(|set| own > set.least_replicas(NEWS));
        let is_failed = machine.phase == "Failed" || machine.was_failed;
        luck.must(lost_its_node || set_goes || is_surplus || is_failed || machine.is_marked, || {
            format!("machine {} ({}) is deleted, and nothing speaks against it", machine.name, machine.phase)
        });
        let is_free_choice = !set_goes && !lost_its_node && !machine.is_marked && machine.has_served_for(NEWS);
        if lost_its_node && machine.is_available() {
            self.lost.insert(machine.uid.clone());
        }
        if !is_free_choice || !self.span.only_rolling || self.span.is_deleted {
            return;
        }
        let available = self.machines.values().filter(|it| it.is_available() && it.uid != machine.uid).count();
        let (lost, least) = (self.lost.len(), self.span.least);
        luck.must(available + lost >= least, || {
            format!("{} goes: {available} serve and {lost} were lost, at least {least} must serve", machine.name)
        });
    }

    fn saw_set(&mut self, write: &Write<'_>) {
        match (write.before, write.after) {
            (_, Some(new)) => self.sets.entry(new.uid().to_owned()).or_default().update(new),
            (Some(old), None) => drop(self.sets.remove(old.uid())),
            (None, None) => {}
        }
    }

    fn saw_node(&mut self, write: &Write<'_>, by_process: bool, luck: &Luck, cloud: &Cloud) {
        let name = write.before.or(write.after).map(|node| node.name().to_owned()).unwrap_or_default();
        if by_process {
            self.check_node_write(write, &name, luck, cloud);
        }
        let facts = self.nodes.entry(name).or_default();
        facts.update(write.after, write.after.map(ready_status).unwrap_or_default());
    }

    fn check_node_write(&mut self, write: &Write<'_>, name: &str, luck: &Luck, cloud: &Cloud) {
        const MARK: &str = crate::api::labels::NOT_MANAGED;
        let is_marked =
            |node: Option<&Object>| node.is_some_and(|node| !node.value["metadata"]["annotations"][MARK].is_null());
        if is_marked(write.before) != is_marked(write.after) && write.after.is_some() {
            *self.marks.entry(name.to_owned()).or_default() += 1;
        }
        let is_deleted =
            write.before.is_some_and(|node| !node.is_terminating()) && write.after.is_none_or(Object::is_terminating);
        if is_deleted {
            let vm = write.before.and_then(|node| node.value["spec"]["providerID"].as_str()).unwrap_or_default();
            let has_vm = cloud.vms.contains_key(vm);
            luck.must(!has_vm, || format!("node {name} is deleted, and its VM is there"));
        }
    }

    /// Pods go only from Nodes that are drained.
    fn saw_pod(&self, write: &Write<'_>, luck: &Luck, cloud: &Cloud, target: &ApiServer) {
        let Some(pod) = write.before else { return };
        let (name, node) = (pod.name(), pod.value["spec"]["nodeName"].as_str().unwrap_or_default());
        let is_drained = self.machines.values().any(|machine| machine.node == node && machine.is_deleted);
        luck.must(is_drained, || format!("pod {name} goes, and nobody drains its node {node}"));
        let ends = pod.value["metadata"]["deletionTimestamp"].as_str().and_then(|text| text.parse().ok());
        let is_cut_short = write.after.is_none() && ends.is_some_and(|ends: jiff::Timestamp| write.call.at < ends);
        let is_ready = target.get(&NODES, "", node).is_some_and(|node| ready_status(&node) == "True");
        luck.must(!(is_cut_short && is_ready && cloud.has_vm_for_node(node)), || {
            format!("pod {name} is ended before its grace period is over, on a healthy node")
        });
    }

    /// A VM is about to be made for a Machine. One that has named its VM gets no other: nothing would lead to it.
    pub(super) fn vm_is_made(&self, luck: &Luck, machine: &Machine) {
        let held = self.machines.get(&machine.uid().unwrap()).map(|held| &held.provider_id);
        luck.must(held.is_none_or(String::is_empty), || {
            format!("machine {} has {held:?} and gets another VM", machine.name_any())
        });
    }

    /// The VM of a Machine was deleted. One that can never join, because an earlier VM left a Node of its name, may go.
    pub(super) fn vm_deleted(&self, luck: &Luck, machine: &Machine, id: &str, node: &str) {
        let (uid, name) = (machine.uid().unwrap(), machine.name_any());
        let is_served = self.machines.get(&uid).is_some_and(|machine| !machine.is_deleted);
        // The Node may have gone while the call was on its way.
        let is_stale = self.nodes.get(node).is_some_and(|node| {
            let belongs_to_another = !node.provider_id.is_empty() && node.provider_id != id;
            belongs_to_another || node.gone_at.is_some_and(|gone_at| gone_at.elapsed() < NEWS)
        });
        luck.must(is_stale || !is_served, || format!("the VM of {name} is deleted, and nobody deleted the machine"));
    }
}
