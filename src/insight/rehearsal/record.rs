//! The record of a rehearsal: what happens to each Machine, and how many there are.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use kube::ResourceExt;
use serde_json::Value;
use tokio::time::Instant;

use mcm_api::{
    GoDuration, labels,
    machine::{Machine, MachinePhase},
};
use mcm_controllers::object::owner;
use mcm_fake_api::{DEPLOYMENTS, Kind, MACHINES, NODES, SETS, ServerObject, WriteRecord};
use mcm_rules::plan::Wait;

/// Something that happened to a Machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachineTransition {
    /// It was created.
    Create,
    /// Its Node joined.
    Join,
    /// Its deletion began, with a drain.
    Drain,
    /// Its object no longer exists.
    Gone,
    /// Its in-place update began.
    Update,
    /// It is updated.
    Updated,
    /// It failed.
    Fail,
}

/// Machines of one set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetTally {
    /// Machines that are not being deleted.
    pub live: usize,
    /// Live machines that run.
    pub running: usize,
    /// Machines that are being deleted.
    pub going: usize,
}

/// Tallies by the UID of the set.
pub type TalliesBySet = BTreeMap<String, SetTally>;

/// An act, and the Machines after it.
#[derive(Clone, Debug)]
pub struct RehearsalEntry {
    pub at: Duration,
    pub act: MachineTransition,
    /// Name of the Machine.
    pub machine: String,
    /// It existed at the beginning.
    pub is_known: bool,
    /// Its own timeouts at that time.
    pub timeouts: OwnTimeouts,
    pub tallies: TalliesBySet,
}

/// The timeouts in the spec of a Machine; absent or negative ones are those of the flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnTimeouts {
    pub drain: Option<GoDuration>,
    pub in_place_update: Option<GoDuration>,
}

impl OwnTimeouts {
    fn from_spec(spec: &Value) -> Self {
        let timeout = |field: &str| spec[field].as_str()?.parse::<GoDuration>().ok()?.not_negative();
        Self { drain: timeout("drainTimeout"), in_place_update: timeout("inPlaceUpdateTimeout") }
    }
}

impl From<&Machine> for OwnTimeouts {
    fn from(machine: &Machine) -> Self {
        let own = &machine.spec.configuration;
        let timeout = |timeout: Option<GoDuration>| timeout?.not_negative();
        Self { drain: timeout(own.drain_timeout), in_place_update: timeout(own.in_place_update_timeout) }
    }
}

/// How a rehearsal ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RehearsalEnding {
    /// Everything is as desired.
    Settled,
    /// Nothing happens any more, and not everything is as desired.
    Rests,
    /// Machines come and go, or are under way, without progress.
    Stuck,
    /// It took too long in real time.
    Cut,
}

/// A wait at the end.
#[derive(Clone, Debug)]
pub struct RehearsalWait {
    pub kind: &'static str,
    pub name: String,
    pub wait: Wait,
}

/// How a rehearsal went.
#[derive(Clone, Debug)]
pub struct RehearsalCourse {
    pub entries: Vec<RehearsalEntry>,
    pub ending: RehearsalEnding,
    /// Virtual time until the last act.
    pub took: Duration,
    /// The objects at the end, by kind.
    pub objects: BTreeMap<&'static str, Vec<Value>>,
    /// The Nodes at the end, by name.
    pub nodes: BTreeMap<String, Value>,
    /// The Machines at the end, by set.
    pub tallies: TalliesBySet,
    /// Machines at the end that existed at the beginning, by name, and whether they moved to another set.
    pub kept: BTreeMap<String, bool>,
    /// Machines of sets that did not belong to the object at the beginning, and do or did later.
    pub adopted: BTreeSet<String>,
    /// Machines at the end that belong to no set of the object.
    pub others: BTreeSet<String>,
    /// UIDs of the sets that created machines.
    pub grown: BTreeSet<String>,
    /// The waits of what is not as desired.
    pub waits: Vec<RehearsalWait>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct RecordedMachine {
    name: String,
    set: String,
    /// The set at the beginning; `None` if the Machine is new.
    first_set: Option<String>,
    is_going: bool,
    phase: MachinePhase,
    is_updating: bool,
    timeouts: OwnTimeouts,
}

/// The object of a rehearsal. Other objects of the namespace are played beside it, because they may adopt the same machines.
#[derive(Clone, Debug)]
pub struct RehearsedObject {
    /// `MachineDeployment`, or `MachineSet` for a set without a deployment.
    pub kind: &'static str,
    pub name: String,
}

impl RehearsedObject {
    /// A set belongs to the object, or is the object.
    fn has_set(&self, set: &Value) -> bool {
        let owners = set["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        match owners.filter(|owner| owner["controller"] == true).find_map(|owner| owner["name"].as_str()) {
            Some(owner) => self.kind == DEPLOYMENTS.name && owner == self.name,
            None => self.kind == SETS.name && set["metadata"]["name"] == self.name.as_str(),
        }
    }
}

/// An entry with the sets of its Machine.
struct RecordedEntry {
    set: String,
    first_set: Option<String>,
    entry: RehearsalEntry,
}

pub struct RehearsalRecord {
    begun: Instant,
    object: RehearsedObject,
    /// UIDs of the sets that belong to the object, or did until they were deleted.
    own: BTreeSet<String>,
    /// UIDs of the sets that belonged to it at the beginning.
    first_own: BTreeSet<String>,
    machines: BTreeMap<String, RecordedMachine>,
    tallies: TalliesBySet,
    /// Machines by the UID of their set that are being created, updated or deleted, or may become Failed.
    under_way: BTreeMap<String, usize>,
    entries: Vec<RecordedEntry>,
    /// The last write of something that matters.
    pub written: Instant,
    /// The last time that a Machine joined, was updated or disappeared.
    pub progressed: Instant,
}

impl RehearsalRecord {
    pub fn for_objects<'a>(
        object: RehearsedObject,
        sets: impl Iterator<Item = &'a Value>,
        machines: &[Machine],
    ) -> Self {
        let now = Instant::now();
        let own = sets.filter(|set| object.has_set(set)).filter_map(|set| set["metadata"]["uid"].as_str());
        let own: BTreeSet<String> = own.map(str::to_owned).collect();
        let mut record = Self {
            begun: now,
            first_own: own.clone(),
            own,
            object,
            machines: BTreeMap::new(),
            tallies: TalliesBySet::new(),
            under_way: BTreeMap::new(),
            entries: Vec::new(),
            written: now,
            progressed: now,
        };
        for machine in machines {
            let set = owner::controller_of(&machine.metadata).map(|owner| owner.uid.clone()).unwrap_or_default();
            let phase = machine.phase();
            let seen = RecordedMachine {
                name: machine.name_any(),
                first_set: Some(set.clone()),
                set,
                is_going: machine.is_terminating(),
                is_updating: phase == MachinePhase::InPlaceUpdating,
                phase,
                timeouts: OwnTimeouts::from(machine),
            };
            record.count(&seen, true);
            record.machines.insert(machine.uid().unwrap_or_default(), seen);
        }
        record
    }

    /// Another change begins: what exists now existed at its beginning.
    pub fn begin_again(&mut self) {
        self.begun = Instant::now();
        self.entries.clear();
        self.first_own.clone_from(&self.own);
        for seen in self.machines.values_mut() {
            seen.first_set = Some(seen.set.clone());
        }
    }

    /// Records a write. True if a Machine joined, was updated or disappeared.
    pub fn saw(&mut self, write: &WriteRecord<'_>) -> bool {
        let matters = [&MACHINES, &SETS, &DEPLOYMENTS, &NODES].contains(&write.call.kind);
        if !matters || !write.changed() {
            return false;
        }
        self.written = Instant::now();
        if let Some(set) = write.after.filter(|_| write.call.kind == &SETS) {
            let is_own = self.object.has_set(&set.value);
            if is_own {
                self.own.insert(set.uid().to_owned())
            } else {
                self.own.remove(set.uid())
            };
        }
        if write.call.kind != &MACHINES {
            return false;
        }
        let progressed = match (write.before, write.after) {
            (_, Some(after)) => self.changed(after),
            (Some(before), None) => self.gone(before),
            (None, None) => false,
        };
        if progressed {
            self.progressed = Instant::now();
        }
        progressed
    }

    fn changed(&mut self, object: &ServerObject) -> bool {
        let known = self.machines.get(object.uid()).cloned();
        let seen = seen(object, known.as_ref());
        if known.as_ref() == Some(&seen) {
            return false;
        }
        if let Some(known) = &known {
            self.count(known, false);
        }
        self.count(&seen, true);
        self.machines.insert(object.uid().to_owned(), seen.clone());
        let before = known.clone().unwrap_or_default();
        let mut progressed = false;
        if known.is_none() {
            self.note(MachineTransition::Create, &seen);
        }
        if seen.is_going && !before.is_going {
            self.note(MachineTransition::Drain, &seen);
        }
        if seen.is_updating && !before.is_updating {
            self.note(MachineTransition::Update, &seen);
        }
        if seen.phase == MachinePhase::Failed && before.phase != MachinePhase::Failed {
            self.note(MachineTransition::Fail, &seen);
        }
        if seen.phase == MachinePhase::Running && before.phase != MachinePhase::Running && !seen.is_going {
            let was_updated = matches!(before.phase, MachinePhase::InPlaceUpdating);
            self.note(if was_updated { MachineTransition::Updated } else { MachineTransition::Join }, &seen);
            progressed = true;
        }
        progressed
    }

    fn gone(&mut self, object: &ServerObject) -> bool {
        let Some(seen) = self.machines.remove(object.uid()) else { return false };
        self.count(&seen, false);
        if !seen.is_going {
            self.note(MachineTransition::Drain, &seen);
        }
        self.note(MachineTransition::Gone, &seen);
        // Where no VM can be created, machines fail and are replaced for ever: that is no progress.
        object.value["metadata"]["labels"][labels::NODE].is_string()
    }

    fn note(&mut self, act: MachineTransition, seen: &RecordedMachine) {
        let entry = RehearsalEntry {
            at: self.begun.elapsed(),
            act,
            machine: seen.name.clone(),
            is_known: seen.first_set.is_some(),
            timeouts: seen.timeouts,
            tallies: self.tallies.clone(),
        };
        self.entries.push(RecordedEntry { set: seen.set.clone(), first_set: seen.first_set.clone(), entry });
    }

    fn count(&mut self, seen: &RecordedMachine, is_added: bool) {
        let tally = self.tallies.entry(seen.set.clone()).or_default();
        let step = |number: &mut usize| *number = if is_added { *number + 1 } else { number.saturating_sub(1) };
        if seen.is_going || seen.is_updating || !is_at_rest(&seen.phase) {
            step(self.under_way.entry(seen.set.clone()).or_default());
        }
        if seen.is_going {
            step(&mut tally.going);
        } else {
            step(&mut tally.live);
            if seen.phase == MachinePhase::Running {
                step(&mut tally.running);
            }
        }
        if *tally == SetTally::default() {
            self.tallies.remove(&seen.set);
        }
    }

    /// The deployment, set or Machine is the object, or belongs to it.
    pub fn has(&self, kind: &Kind, object: &ServerObject) -> bool {
        match kind.name {
            name if name == SETS.name => self.own.contains(object.uid()),
            name if name == MACHINES.name => {
                self.machines.get(object.uid()).is_some_and(|seen| self.own.contains(&seen.set))
            }
            name => name == self.object.kind && object.name() == self.object.name,
        }
    }

    /// A Machine of the object is being created, updated or deleted, or may become Failed.
    pub fn is_under_way(&self) -> bool {
        self.own.iter().any(|set| self.under_way.get(set).is_some_and(|count| *count > 0))
    }

    /// The object has no machine.
    pub fn is_empty(&self) -> bool {
        !self.own.iter().any(|set| self.tallies.contains_key(set))
    }

    /// Machines of the object that run.
    pub fn running(&self) -> usize {
        self.own.iter().filter_map(|set| self.tallies.get(set)).map(|tally| tally.running).sum()
    }

    pub fn course(
        &self,
        ending: RehearsalEnding,
        begun: Instant,
        objects: BTreeMap<&'static str, Vec<Value>>,
        nodes: BTreeMap<String, Value>,
        waits: Vec<RehearsalWait>,
    ) -> RehearsalCourse {
        let of_object = |tallies: &TalliesBySet| -> TalliesBySet {
            let own = tallies.iter().filter(|(set, _)| self.own.contains(*set));
            own.map(|(set, tally)| (set.clone(), *tally)).collect()
        };
        let recorded = || self.entries.iter().filter(|one| self.own.contains(&one.set));
        let entry =
            |one: &RecordedEntry| RehearsalEntry { tallies: of_object(&one.entry.tallies), ..one.entry.clone() };
        let entries: Vec<RehearsalEntry> = recorded().map(entry).collect();
        let (own, others): (Vec<&RecordedMachine>, Vec<&RecordedMachine>) =
            self.machines.values().partition(|seen| self.own.contains(&seen.set));
        let moved = |seen: &&RecordedMachine| {
            let first = seen.first_set.as_ref()?;
            Some((seen.name.clone(), !first.is_empty() && *first != seen.set))
        };
        let is_adopted = |first: &Option<String>| first.as_ref().is_some_and(|set| !self.first_own.contains(set));
        let left = own.iter().filter(|seen| is_adopted(&seen.first_set)).map(|seen| seen.name.clone());
        let gone = recorded().filter(|one| is_adopted(&one.first_set)).map(|one| one.entry.machine.clone());
        let created = recorded().filter(|one| one.entry.act == MachineTransition::Create);
        let last = entries.last().map_or(Duration::ZERO, |entry| entry.at);
        RehearsalCourse {
            ending,
            took: if ending == RehearsalEnding::Settled { last } else { begun.elapsed() },
            objects,
            nodes,
            tallies: of_object(&self.tallies),
            kept: own.iter().filter(|seen| !seen.is_going).filter_map(moved).collect(),
            adopted: left.chain(gone).collect(),
            others: others.into_iter().map(|seen| seen.name.clone()).collect(),
            grown: created.map(|one| one.set.clone()).collect(),
            waits,
            entries,
        }
    }
}

fn is_at_rest(phase: &MachinePhase) -> bool {
    matches!(phase, MachinePhase::Running | MachinePhase::Failed | MachinePhase::InPlaceUpdateFailed)
}

fn seen(object: &ServerObject, known: Option<&RecordedMachine>) -> RecordedMachine {
    let meta = &object.value["metadata"];
    let owners = meta["ownerReferences"].as_array().into_iter().flatten();
    let set = owners.filter(|owner| owner["controller"] == true).find_map(|owner| owner["uid"].as_str());
    let phase = object.value["status"]["currentStatus"]["phase"].clone();
    let phase: MachinePhase = serde_json::from_value(phase).unwrap_or_default();
    let is_updating = phase == MachinePhase::InPlaceUpdating;
    RecordedMachine {
        name: object.name().to_owned(),
        set: set.unwrap_or_default().to_owned(),
        first_set: known.and_then(|known| known.first_set.clone()),
        is_going: object.is_terminating(),
        phase,
        is_updating,
        timeouts: OwnTimeouts::from_spec(&object.value["spec"]),
    }
}
