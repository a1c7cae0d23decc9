//! What must hold after every action (design rules: no VM lost or doubled, bounds at every instant, deadlines that stay).
//!
//! Everything here is read from the API servers and the cloud themselves, never from what the manager believes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use kube::ResourceExt;

use super::{Model, cloud::Cloud, cluster::Cluster, wish::Wish};
use crate::{
    api::{
        labels,
        machine::{Machine, MachinePhase},
        node::Node,
    },
    controllers::{
        machine, machine_deployment, machine_set, node, owner,
        plan::{Plan, Wait},
    },
    safety::meltdown,
};

pub(super) struct Ledger {
    span: Span,
    /// All Machines after the last action.
    known: BTreeMap<String, Arc<Machine>>,
    /// UIDs of Machines that served, and that something else than the choice of a set took away.
    lost: BTreeSet<String>,
    /// Names of Machines that their set chose to delete in this action.
    chosen: BTreeSet<String>,
    /// UIDs of Machines that were given up for bad health.
    given_up: BTreeSet<String>,
    deadlines: BTreeMap<(String, &'static str, Option<Timestamp>), Timestamp>,
    violation: Option<String>,
}

/// The extremes of all wishes since everything was last as it should be: any of them may still be on its way.
#[derive(Debug)]
struct Span {
    most: i32,
    least: i32,
    only_recreate: bool,
    only_rolling: bool,
    is_deleted: bool,
}

impl Span {
    fn of(wish: &Wish) -> Self {
        Self {
            most: wish.most(),
            least: wish.least(),
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
            known: BTreeMap::new(),
            lost: BTreeSet::new(),
            chosen: BTreeSet::new(),
            given_up: BTreeSet::new(),
            deadlines: BTreeMap::new(),
            violation: None,
        }
    }

    /// The user wishes something else.
    pub(super) fn wished(&mut self, wish: &Wish, cluster: &Cluster) {
        let new = Span::of(wish);
        self.span = Span {
            most: self.span.most.max(new.most).max(existing(cluster)),
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

    pub(super) fn must(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.violation.get_or_insert_with(what);
        }
    }

    /// After each action.
    pub(super) fn check(&mut self, cluster: &Cluster, cloud: &Cloud) -> Result<(), String> {
        let before = std::mem::take(&mut self.known);
        let count = |known: &BTreeMap<String, Arc<Machine>>| known.values().filter(|it| !it.is_terminating()).count();
        self.known = cluster.machines.all().map(|machine| (machine.name_any(), Arc::clone(machine))).collect();
        for (name, old) in &before {
            match self.known.get(name).cloned() {
                Some(new) if Arc::ptr_eq(old, &new) => {}
                Some(new) if old.uid() == new.uid() => self.changed(old, &new),
                _ => self.gone(old, cloud),
            }
        }
        let (was, is) = (count(&before), count(&self.known));
        let most = self.span.most;
        self.must(is <= was || is <= usize::try_from(most).unwrap(), || {
            format!("{is} machines, at most {most} may be")
        });
        self.must(cloud.doubled.is_empty(), || format!("two VMs for a machine: {:?}", cloud.doubled));
        self.check_availability();
        self.violation.take().map_or(Ok(()), Err)
    }

    fn changed(&mut self, old: &Machine, new: &Machine) {
        let (name, uid) = (new.name_any(), new.uid().unwrap());
        if !old.spec.provider_id.is_empty() {
            self.must(old.spec.provider_id == new.spec.provider_id, || format!("{name} forgets its VM"));
        }
        if let (Some(old), Some(new)) = (&old.status, &new.status)
            && old.current_status.phase == new.current_status.phase
        {
            let (old, new) = (&old.current_status.last_update_time, &new.current_status.last_update_time);
            self.must(old == new, || format!("{name} enters the phase that it is in"));
        }
        if old.is_available() && !new.is_available() && !self.chosen.contains(&name) {
            self.lost.insert(uid.clone());
        }
        if new.is_available() {
            self.lost.remove(&uid);
        }
        if old.phase() == MachinePhase::Unknown && new.phase() == MachinePhase::Failed {
            let limit = usize::try_from(meltdown::DEFAULT_LIMIT).unwrap();
            let others: Vec<String> = self.given_up.iter().cloned().collect();
            self.must(others.len() < limit, || format!("{name} is given up while {others:?} are not gone yet"));
            self.given_up.insert(uid);
        }
    }

    fn gone(&mut self, old: &Machine, cloud: &Cloud) {
        let uid = old.uid().unwrap();
        self.must(cloud.owned_by(&uid) == 0, || format!("{} is gone and its VM is not", old.name_any()));
        self.given_up.remove(&uid);
        self.deadlines.retain(|(other, ..), _| *other != uid);
    }

    /// When a set chose a Machine that served, enough others serve; what was lost otherwise does not count.
    fn check_availability(&mut self) {
        let chosen = std::mem::take(&mut self.chosen);
        if chosen.is_empty() || !self.span.only_rolling || self.span.is_deleted {
            return;
        }
        let available = self.known.values().filter(|machine| machine.is_available()).count();
        let (lost, least) = (self.lost.len(), usize::try_from(self.span.least).unwrap());
        self.must(available + lost >= least, || {
            format!("{chosen:?} goes: {available} serve and {lost} were lost, at least {least} must serve")
        });
    }

    fn deadline(&mut self, machine: &Machine, what: &'static str, since: Option<Timestamp>, until: Timestamp) {
        let key = (machine.uid().unwrap(), what, since);
        let earlier = *self.deadlines.entry(key).or_insert(until);
        let name = machine.name_any();
        self.must(until <= earlier, || format!("the {what} deadline of {name} moves from {earlier} to {until}"));
    }
}

impl Model {
    /// A set has created a Machine, or tried to.
    pub(super) fn count_creation(&mut self, seen: &machine_set::Snapshot, name: &str) {
        if self.cluster.machines.get(name).is_none() {
            return;
        }
        let uid = seen.set.uid().unwrap();
        let machines: Vec<_> = self.cluster.machines.all().collect();
        let is_own = |machine: &Machine| owner::is_controlled_by(&machine.metadata, &uid);
        let live = machines.iter().filter(|machine| is_own(machine) && !machine.is_terminating()).count();
        let others = machines.iter().filter(|machine| !is_own(machine)).count();
        let wanted = usize::try_from(seen.set.spec.replicas).unwrap();
        let mixes = self.ledger.span.only_recreate && others > 0;
        self.must(live <= wanted, || format!("set {} has {live} machines and wants {wanted}", seen.set.name_any()));
        self.must(!mixes, || format!("{name} is created while {others} of other templates exist"));
    }

    /// Whether a Machine serves, in truth.
    pub(super) fn serves(&self, machine: &Machine) -> bool {
        let held = self.cluster.machines.get(&machine.name_any());
        held.is_some_and(|held| held.uid() == machine.uid() && held.is_available())
    }

    /// A set has deleted a Machine that served. One that did not when it was chosen has come too late, by bad luck; and
    /// what the autoscaler wants goes at any time.
    pub(super) fn count_choice(&mut self, seen: &machine_set::Snapshot, machine: &Machine) {
        let is_wished = machine.annotations().contains_key(labels::MARKED_FOR_DELETION_TIME);
        if seen.set.metadata.deletion_timestamp.is_none() && machine.is_available() && !is_wished {
            self.ledger.chosen.insert(machine.name_any());
        }
    }

    pub(super) fn check_node_deletion(&mut self, machine: &Machine, node: &Node) {
        let name = node.name_any();
        let has_vm = self.cloud.has_vm_for_node(&name);
        let is_deleted = machine.metadata.deletion_timestamp.is_some();
        self.must(!has_vm && is_deleted, || format!("node {name} is deleted, and its VM is there"));
    }

    /// A deployment does nothing for now.
    pub(super) fn judge_deployment(&mut self, seen: &machine_deployment::Snapshot, waits: &[Wait]) {
        let spec = &seen.deployment.spec;
        let class = &spec.template.spec.class.name;
        let is_met = seen.machines.len() == usize::try_from(spec.replicas).unwrap()
            && seen.machines.iter().all(|machine| machine.is_available() && machine.spec.class.name == *class);
        let is_going = seen.deployment.metadata.deletion_timestamp.is_some();
        self.says_why("deployment", &seen.deployment.name_any(), waits, is_met && !is_going);
    }

    /// A set does nothing for now.
    pub(super) fn judge_set(&mut self, seen: &machine_set::Snapshot, waits: &[Wait]) {
        let live = seen.machines.iter().filter(|machine| !machine.is_terminating());
        let is_met = live.clone().count() == usize::try_from(seen.set.spec.replicas).unwrap()
            && live.clone().all(|machine| machine.is_available());
        let is_going = seen.set.metadata.deletion_timestamp.is_some();
        self.says_why("set", &seen.set.name_any(), waits, is_met && !is_going);
    }

    /// A Machine needs nothing for now.
    pub(super) fn judge_machine(&mut self, seen: &machine::Snapshot, waits: &[Wait]) {
        let machine = &seen.machine;
        let is_met = machine.phase() == MachinePhase::Running && machine.metadata.deletion_timestamp.is_none();
        self.says_why("machine", &machine.name_any(), waits, is_met);
        let since = machine.status.as_ref().and_then(|status| status.current_status.last_update_time.clone());
        for (wait, until) in waits.iter().filter_map(|wait| Some((wait, wait.until?))) {
            if wait.on.ends_with("to join and to be healthy") {
                self.ledger.deadline(machine, "creation", None, until);
            } else if wait.on == "the Node to be healthy again" {
                self.ledger.deadline(machine, "health", since.as_ref().map(|since| since.0), until);
            }
        }
    }

    /// A Node was looked at.
    pub(super) fn judge_node(&mut self, seen: &node::Snapshot, plan: &Plan<node::Action>) {
        let is_going = seen.node.metadata.deletion_timestamp.is_some();
        let is_ours = seen.node.finalizers().iter().any(|finalizer| finalizer == labels::NODE_FINALIZER);
        if plan.steps.is_empty() {
            self.says_why("node", &seen.node.name_any(), &plan.waits, !(is_going && is_ours));
        }
    }

    fn says_why(&mut self, what: &str, name: &str, waits: &[Wait], is_met: bool) {
        let says_why = !waits.is_empty() && waits.iter().all(|wait| !wait.on.trim().is_empty());
        self.must(is_met || says_why, || format!("{what} {name} waits and does not say for what"));
    }
}

fn existing(cluster: &Cluster) -> i32 {
    i32::try_from(cluster.machines.all().filter(|machine| !machine.is_terminating()).count()).unwrap()
}
