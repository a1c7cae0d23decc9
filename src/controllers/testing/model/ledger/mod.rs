//! Invariants after every write and every call of the cloud (no VM lost or doubled, bounds at every instant, nothing
//! written without a precondition).
//!
//! All facts are read from the API servers and the cloud themselves, never from a process.

mod external_writers;
mod facts;
mod freezes;
mod in_place;
mod orphan_vms;
mod preservation;
mod requests;
mod volumes;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use kube::ResourceExt;
use tokio::time::Instant;

use self::facts::{MachineFacts, NodeFacts, SetFacts};
use super::{
    super::api_server::{ApiServer, MACHINES, NODES, OUTSIDE, PODS, SETS, ServerObject, WriteRecord},
    cloud::Cloud,
    desired_state::{DesiredState, Strategy},
    faults::Faults,
};
use mcm_api::{labels, machine::Machine};
use mcm_runtime::clock::TimeSource;

/// A process may not know a younger fact yet: watches are late, and requests take time.
const NEWS: Duration = Duration::from_secs(70);
/// The same if a watch of the control cluster has fallen silent: it is opened again after a while.
const SILENT_NEWS: Duration = Duration::from_secs(110);

pub(super) struct Ledger {
    span: Span,
    machines: BTreeMap<String, MachineFacts>,
    sets: BTreeMap<String, SetFacts>,
    nodes: BTreeMap<String, NodeFacts>,
    /// UIDs of Machines that served, and that something else than the choice of a set took away.
    lost: BTreeSet<String>,
    /// Machines that a user deleted, directly or with their set, or chose, Machines whose Node is deleted, and lost
    /// ones that are deleted.
    taken: Vec<Taken>,
    /// Nodes of deleted Machines, and the times of the deletions.
    left: Vec<(Instant, String)>,
    /// UIDs of sets that got a Machine of another set, and when.
    moved: Vec<(Instant, String)>,
    /// UIDs of Machines that were replaced for bad health.
    given_up: BTreeSet<String>,
    /// How long ago the write was sent that is being checked: an API server that does not answer carries it out later.
    on_its_way: Duration,
    /// Since when the target does not answer, if that is for long.
    target_away_since: Option<Instant>,
    /// Volumes of pods that were evicted.
    moves: Vec<volumes::Move>,
    /// Pods whose eviction was requested, by process.
    asked: BTreeSet<(Arc<str>, String)>,
    /// VMs without a Machine, and since when.
    orphan_vms: BTreeMap<String, Instant>,
    /// When VMs were deleted as orphans.
    collected: Vec<Instant>,
    /// Marks that a Node is not managed, put on and taken off.
    marks: BTreeMap<String, usize>,
    /// Writes of processes, without housekeeping.
    pub writes: usize,
    pub last_write: Instant,
}

/// A Machine that was deleted without a process, or whose Node a user selected for its update.
struct Taken {
    at: Instant,
    /// UID of its set.
    set: String,
    served: bool,
}

/// The extremes of all desired states since the world last converged: actions for any of them may still be in flight.
#[derive(Debug)]
struct Span {
    most: usize,
    /// Machines beside all desired states, because users created them or scaled a set.
    by_hand: usize,
    least: usize,
    /// The smallest number of replicas.
    fewest: usize,
    only_recreate: bool,
    only_rolling: bool,
    only_in_place: bool,
    /// Users select the Nodes that are updated in place.
    only_manual: bool,
    /// How many failed Machines of a set may be preserved automatically.
    most_preserved: usize,
    /// In minutes.
    longest_preservation: i64,
    is_deleted: bool,
}

impl Span {
    fn of(desired: &DesiredState) -> Self {
        Self {
            most: usize::try_from(desired.most()).unwrap(),
            by_hand: 0,
            least: usize::try_from(desired.least()).unwrap(),
            fewest: usize::try_from(desired.replicas).unwrap(),
            only_recreate: desired.strategy == Strategy::Recreate,
            only_rolling: desired.strategy == Strategy::Rolling,
            only_in_place: desired.is_in_place(),
            only_manual: desired.is_manual(),
            most_preserved: desired.preserved.map_or(0, |(count, _)| usize::try_from(count).unwrap()),
            longest_preservation: desired.preserved.map_or(0, |(_, minutes)| minutes),
            is_deleted: desired.is_deleted,
        }
    }
}

impl Ledger {
    pub(super) fn of(desired: &DesiredState) -> Self {
        Self {
            span: Span::of(desired),
            machines: BTreeMap::new(),
            sets: BTreeMap::new(),
            nodes: BTreeMap::new(),
            lost: BTreeSet::new(),
            taken: Vec::new(),
            left: Vec::new(),
            moved: Vec::new(),
            given_up: BTreeSet::new(),
            on_its_way: Duration::ZERO,
            target_away_since: None,
            moves: Vec::new(),
            asked: BTreeSet::new(),
            orphan_vms: BTreeMap::new(),
            collected: Vec::new(),
            marks: BTreeMap::new(),
            writes: 0,
            last_write: Instant::now(),
        }
    }

    /// The user changed the desired state.
    pub(super) fn desired_changed(&mut self, desired: &DesiredState) {
        let new = Span::of(desired);
        // Actions for an older desired state may be in flight.
        self.last_write = Instant::now();
        self.span = Span {
            most: self.span.most.max(new.most).max(self.live()),
            by_hand: self.span.by_hand,
            least: self.span.least.min(new.least),
            fewest: self.span.fewest.min(new.fewest),
            only_recreate: self.span.only_recreate && new.only_recreate,
            only_rolling: self.span.only_rolling && new.only_rolling,
            only_in_place: self.span.only_in_place && new.only_in_place,
            only_manual: self.span.only_manual && new.only_manual,
            most_preserved: self.span.most_preserved.max(new.most_preserved),
            longest_preservation: self.span.longest_preservation.max(new.longest_preservation),
            is_deleted: self.span.is_deleted || new.is_deleted,
        };
    }

    /// The world has converged, and all processes have seen it.
    pub(super) fn settled(&mut self, desired: &DesiredState) {
        let Span { most_preserved, longest_preservation, .. } = self.span;
        self.span = Span::of(desired);
        if desired.is_paused {
            // The sets are not informed before the rollout continues.
            self.span.most_preserved = self.span.most_preserved.max(most_preserved);
            self.span.longest_preservation = self.span.longest_preservation.max(longest_preservation);
        }
        self.lost.clear();
    }

    /// The number of times a process marked a Node as not managed, or removed the mark.
    pub(super) fn marks(&self, node: &str) -> usize {
        self.marks.get(node).copied().unwrap_or_default()
    }

    /// A fact that is younger than this may be unknown to the process that sent the write.
    fn news(&self) -> Duration {
        NEWS + self.on_its_way
    }

    /// How many Machines went away that served, so short a time ago that a process may not know.
    fn recently_taken(&self) -> usize {
        self.taken.iter().filter(|taken| taken.served && taken.at.elapsed() <= SILENT_NEWS).count()
    }

    /// The same for all Machines of a set.
    fn recently_taken_from(&self, set: &str) -> usize {
        self.taken.iter().filter(|taken| taken.set == set && taken.at.elapsed() <= SILENT_NEWS).count()
    }

    fn live(&self) -> usize {
        self.machines.values().filter(|machine| !machine.is_terminating() && self.is_counted(machine)).count()
    }

    /// The garbage collector deletes the Machines of deleted sets.
    fn is_counted(&self, machine: &MachineFacts) -> bool {
        machine.is_in_pool && (machine.set.is_empty() || self.sets.contains_key(&machine.set))
    }

    /// After each write.
    pub(super) fn saw(&mut self, write: &WriteRecord<'_>, faults: &Faults, cloud: &Cloud, target: &ApiServer) {
        let by_process = &*write.call.caller != OUTSIDE;
        if !write.changed() {
            return;
        }
        self.on_its_way = faults.clock.now().duration_since(write.call.at).try_into().unwrap();
        if by_process && !matches!(write.call.kind.plural, "leases" | "events") {
            self.writes += 1;
            self.last_write = Instant::now();
        }
        if write.call.kind == &MACHINES {
            self.saw_machine(write, by_process, faults, cloud);
        } else if write.call.kind == &SETS {
            self.saw_set(write);
        } else if write.call.kind == &NODES {
            self.saw_node(write, by_process, faults, cloud, target);
        } else if write.call.kind == &PODS && by_process {
            self.saw_pod(write, faults, cloud);
        }
    }

    fn saw_machine(&mut self, write: &WriteRecord<'_>, by_process: bool, faults: &Faults, cloud: &Cloud) {
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
                    self.check_creation(new, faults);
                    self.check_freeze(new, faults);
                }
            }
            (Some(old), Some(new)) => {
                if !old.is_deleted && new.is_deleted && by_process {
                    self.check_deletion(old, faults);
                } else if !old.is_deleted && new.is_deleted {
                    self.taken.push(Taken { at: now, set: old.set.clone(), served: old.is_available() });
                } else if old.is_in_pool && !new.is_in_pool && !old.is_available() {
                    // A process may count on it as one that stays and does not serve.
                    self.taken.push(Taken { at: now, set: old.set.clone(), served: true });
                }
                if by_process {
                    self.check_move(old, new, faults);
                    self.check_preservation(old, new, faults);
                }
                self.check_change(old, new, faults, cloud);
                self.machines.insert(new.uid.clone(), new.clone());
            }
            (Some(old), None) => {
                let owned: Vec<_> = cloud.vms.iter().filter(|(_, vm)| vm.owner == old.uid).map(|(id, _)| id).collect();
                faults.must(owned.is_empty() || !by_process, || {
                    format!("machine {} is gone and its VM {owned:?} is not", old.name)
                });
                owned.into_iter().for_each(|id| self.stranded(id));
                if !old.is_deleted && by_process {
                    self.check_deletion(old, faults);
                } else if !old.is_deleted {
                    self.taken.push(Taken { at: now, set: old.set.clone(), served: old.is_available() });
                }
                self.machines.remove(&old.uid);
                self.left.push((now, old.node.clone()));
                self.given_up.remove(&old.uid);
                if self.lost.remove(&old.uid) {
                    self.taken.push(Taken { at: now, set: old.set.clone(), served: true });
                }
            }
            (None, None) => {}
        }
    }

    /// Bounds hold at every instant, and Recreate never mixes.
    fn check_creation(&self, new: &MachineFacts, faults: &Faults) {
        let (live, most) = (self.live(), self.span.most + self.span.by_hand);
        faults.must(live <= most, || format!("{} makes {live} machines, and {most} may exist", new.name));
        if let Some(set) = self.sets.get(&new.set) {
            let is_own = |it: &&MachineFacts| it.set == new.set && !it.is_terminating() && it.is_in_pool;
            let own = self.machines.values().filter(is_own).count();
            // The replicas follow a Machine that moves.
            let moved = self.moved.iter().filter(|(at, to)| *to == new.set && at.elapsed() <= self.news()).count();
            let allowed = set.most_replicas(self.news()) + moved;
            faults.must(own <= allowed, || format!("set {} has {own} machines and {allowed} replicas", set.name));
        }
        let is_other = |it: &&MachineFacts| it.set != new.set && self.is_counted(it);
        let others = self.machines.values().filter(is_other).count();
        // A Machine that the orphan collector creates to drain a Node is of no template.
        let mixes = self.span.only_recreate && new.is_in_pool && others > 0;
        faults.must(!mixes, || format!("{} is created while {others} of other templates exist", new.name));
    }

    fn check_change(&mut self, old: &MachineFacts, new: &MachineFacts, faults: &Faults, cloud: &Cloud) {
        let name = &new.name;
        if cloud.vms.contains_key(&old.provider_id) {
            faults.must(old.provider_id == new.provider_id, || format!("machine {name} forgets its VM"));
        }
        // The drain of a preserved Machine has its whole time from then on.
        let begins = old.kept_until.is_none() && new.kept_until.is_some();
        if old.phase == new.phase && !new.is_reset && !begins {
            faults
                .must(old.phase_since == new.phase_since, || format!("machine {name} enters the phase that it is in"));
        }
        if new.is_available() {
            self.lost.remove(&new.uid);
        } else if old.is_available() && !new.is_deleted && !new.is_being_updated() {
            self.lost.insert(new.uid.clone());
        }
        if old.phase != new.phase {
            self.check_update_phase(old, new, faults);
            self.given_up.remove(&new.uid);
        }
        if matches!(&*old.phase, "Unknown" | "InPlaceUpdateFailed") && new.phase == "Failed" {
            // One that is preserved is not replaced, and one that a user took out of its set does not count.
            let counts = |uid: &&String| {
                let machine = self.machines.get(*uid);
                machine.is_some_and(|machine| machine.kept_until.is_none() && machine.is_in_pool)
            };
            let others: Vec<&String> = self.given_up.iter().filter(counts).collect();
            let needs_permit = new.is_in_pool && !cloud.was_replaced(&new.provider_id, &new.node);
            faults.must(others.is_empty() || !needs_permit, || {
                format!("machine {name} is given up while {others:?} are not gone yet")
            });
            self.given_up.insert(new.uid.clone());
        }
        let is_update = old.phase == "InPlaceUpdateFailed";
        if old.phase != new.phase && matches!(&*new.phase, "Failed" | "Unknown") && !is_update {
            self.check_health(new, faults, cloud);
        }
    }

    /// No process concludes from missing observations that a Machine is unhealthy.
    fn check_health(&self, machine: &MachineFacts, faults: &Faults, cloud: &Cloud) {
        self.check_sight(machine, faults);
        let vm = cloud.vms.iter().find(|(_, vm)| vm.owner == machine.uid);
        let node = vm.and_then(|(id, vm)| self.nodes.get(&vm.node).filter(|node| node.provider_id == *id));
        let is_healthy = node.is_some_and(|node| node.has_been_ready_for(self.news()));
        faults.must(!is_healthy, || {
            format!("machine {} becomes {}, and its node has been ready for long", machine.name, machine.phase)
        });
    }

    /// A process deleted a Machine: there has to be a reason, and enough others have to serve.
    fn check_deletion(&mut self, machine: &MachineFacts, faults: &Faults) {
        let node = self.nodes.get(&machine.node);
        let lost_its_node = node.is_some_and(|node| {
            node.is_terminating || node.gone_at.is_some_and(|gone_at| gone_at >= machine.created_at)
        });
        let set = self.sets.get(&machine.set);
        let set_goes = set.is_none_or(|set| set.deleted_at.is_some());
        let own = self.machines.values().filter(|it| it.set == machine.set && !it.is_terminating()).count();
        let known = own + self.recently_taken_from(&machine.set);
        let is_surplus = set.is_none_or(|set| known > set.least_replicas(self.news()));
        let is_failed =
            (machine.phase == "Failed" || machine.was_failed) && !machine.is_certainly_kept(faults.clock.now());
        faults.must(lost_its_node || set_goes || is_surplus || is_failed || machine.is_marked, || {
            format!("machine {} ({}) is deleted, and nothing speaks against it", machine.name, machine.phase)
        });
        if !lost_its_node && !set_goes && !is_failed && !machine.is_marked {
            self.check_choice(machine, faults);
            if let Some(set) = set {
                self.check_choice_of_kept(machine, set, faults);
                self.check_priority(machine, set, faults);
            }
        }
        // A user may want it deleted before Machines that do not serve.
        let is_wanted_gone = machine.is_marked || machine.priority < labels::DEFAULT_PRIORITY;
        let is_free_choice = !set_goes && !lost_its_node && !is_wanted_gone && machine.has_served_for(self.news());
        if is_wanted_gone && machine.priority_since.elapsed() <= self.news() {
            // Others may have been chosen before the user's choice of this one was visible.
            self.taken.push(Taken { at: Instant::now(), set: String::new(), served: machine.is_available() });
        }
        if lost_its_node {
            // The process that has the sets may not know of that deletion yet.
            self.taken.push(Taken { at: Instant::now(), set: machine.set.clone(), served: false });
        }
        if let Some(at) = set.and_then(|set| set.deleted_at).filter(|_| machine.is_available()) {
            // Others may have been chosen before the user's deletion of this set was visible.
            self.taken.push(Taken { at, set: machine.set.clone(), served: true });
        }
        if lost_its_node && machine.is_available() {
            self.lost.insert(machine.uid.clone());
        }
        let is_bounded = self.span.only_rolling || self.span.only_in_place && self.is_open(machine);
        if !is_free_choice || !is_bounded || self.span.is_deleted {
            return;
        }
        let available = self.serving().filter(|it| it.uid != machine.uid).count();
        let (lost, least) = (self.lost.len() + self.recently_taken(), self.span.least);
        // A rollout continues beside Machines that stay and do not serve.
        let stays = |it: &MachineFacts| !it.is_readable || it.is_to_be_kept() || it.priority > machine.priority;
        let is_stuck = |it: &&MachineFacts| {
            let was_unreadable =
                it.is_readable && it.unreadable_until.is_some_and(|until| until.elapsed() <= self.news());
            was_unreadable || !it.is_available() && stays(it)
        };
        let others = self.machines.values().filter(|it| it.is_in_pool && !it.is_terminating());
        let stuck = others.filter(is_stuck).count();
        faults.must(available + lost + stuck >= least, || {
            format!("{} goes: {available} serve and {lost} were lost, at least {least} must serve", machine.name)
        });
    }

    fn saw_set(&mut self, write: &WriteRecord<'_>) {
        match (write.before, write.after) {
            (_, Some(new)) => self.sets.entry(new.uid().to_owned()).or_default().update(new),
            (Some(old), None) => drop(self.sets.remove(old.uid())),
            (None, None) => {}
        }
    }

    fn saw_node(
        &mut self,
        write: &WriteRecord<'_>,
        by_process: bool,
        faults: &Faults,
        cloud: &Cloud,
        target: &ApiServer,
    ) {
        let name = write.before.or(write.after).map(|node| node.name().to_owned()).unwrap_or_default();
        let facts = NodeFacts::of(write.after, self.nodes.get(&name));
        if by_process {
            self.check_node_write(write, &name, faults, cloud);
            if write.after.is_some() {
                self.check_update(&name, &facts, faults, target);
            }
        } else if facts.is_selected && self.nodes.get(&name).is_some_and(|before| !before.is_selected) {
            self.taken.push(Taken { at: Instant::now(), set: String::new(), served: true });
        }
        self.nodes.insert(name, facts);
    }

    fn check_node_write(&mut self, write: &WriteRecord<'_>, name: &str, faults: &Faults, cloud: &Cloud) {
        const MARK: &str = mcm_api::labels::NOT_MANAGED;
        let is_marked = |node: Option<&ServerObject>| {
            node.is_some_and(|node| !node.value["metadata"]["annotations"][MARK].is_null())
        };
        if is_marked(write.before) != is_marked(write.after) && write.after.is_some() {
            *self.marks.entry(name.to_owned()).or_default() += 1;
        }
        let is_deleted = write.before.is_some_and(|node| !node.is_terminating())
            && write.after.is_none_or(ServerObject::is_terminating);
        if is_deleted {
            let vm = write.before.and_then(|node| node.value["spec"]["providerID"].as_str()).unwrap_or_default();
            let has_vm = cloud.vms.contains_key(vm);
            faults.must(!has_vm, || format!("node {name} is deleted, and its VM is there"));
        }
    }

    /// Pods go only from Nodes that are drained.
    fn saw_pod(&mut self, write: &WriteRecord<'_>, faults: &Faults, cloud: &Cloud) {
        let Some(pod) = write.before else { return };
        self.saw_eviction(write, pod, faults);
        let (name, node) = (pod.name(), pod.value["spec"]["nodeName"].as_str().unwrap_or_default());
        let is_updated = self.nodes.get(node).is_some_and(|node| node.is_selected && node.is_cordoned);
        let goes =
            |machine: &MachineFacts| machine.is_deleted || machine.phase == "Failed" && machine.kept_until.is_some();
        let has_left = self.left.iter().any(|(at, left)| left == node && at.elapsed() <= SILENT_NEWS);
        let is_drained =
            is_updated || has_left || self.machines.values().any(|machine| machine.node == node && goes(machine));
        faults.must(is_drained, || format!("pod {name} goes, and nobody drains its node {node}"));
        let ends = pod.value["metadata"]["deletionTimestamp"].as_str().and_then(|text| text.parse().ok());
        let is_cut_short = write.after.is_none() && ends.is_some_and(|ends: jiff::Timestamp| write.call.at < ends);
        let is_ready = self.nodes.get(node).is_some_and(|node| node.has_been_ready_for(self.news()));
        let is_forced = self.machines.values().any(|machine| machine.node == node && machine.is_forced);
        faults.must(!(is_cut_short && is_ready && !is_forced && cloud.has_vm_for_node(node)), || {
            format!("pod {name} is ended before its grace period is over, on a healthy node")
        });
    }

    /// A VM is about to be created for a Machine. A Machine with a provider ID gets no other VM: it would not be found
    /// again.
    pub(super) fn vm_is_made(&self, faults: &Faults, machine: &Machine) {
        let held = self.machines.get(&machine.uid().unwrap()).map(|held| &held.provider_id);
        faults.must(held.is_none_or(String::is_empty), || {
            format!("machine {} has {held:?} and gets another VM", machine.name_any())
        });
    }

    /// The VM of a Machine was deleted. One that can never join, because an earlier VM left a Node of its name, may go.
    pub(super) fn vm_deleted(&self, faults: &Faults, machine: &Machine, id: &str, node: &str) {
        let (uid, name) = (machine.uid().unwrap(), machine.name_any());
        let is_served = self.machines.get(&uid).is_some_and(|machine| !machine.is_deleted);
        if let Some(machine) = self.machines.get(&uid) {
            self.check_volumes(machine, faults);
        }
        // The Node may have been deleted while the call was in flight.
        let is_stale = self.nodes.get(node).is_some_and(|node| {
            let belongs_to_another = !node.provider_id.is_empty() && node.provider_id != id;
            belongs_to_another || node.gone_at.is_some_and(|gone_at| gone_at.elapsed() < NEWS)
        });
        faults.must(is_stale || !is_served, || format!("the VM of {name} is deleted, and nobody deleted the machine"));
    }
}
