//! The record of a rehearsal: what happens to each Machine, and how many there are.

use std::{collections::BTreeMap, time::Duration};

use kube::ResourceExt;
use serde_json::Value;
use tokio::time::Instant;

use mcm_api::machine::{Machine, MachinePhase};
use mcm_controllers::object::owner;
use mcm_fake_api::{DEPLOYMENTS, MACHINES, NODES, SETS, ServerObject, WriteRecord};
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
    pub tallies: TalliesBySet,
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
}

pub struct RehearsalRecord {
    begun: Instant,
    machines: BTreeMap<String, RecordedMachine>,
    tallies: TalliesBySet,
    /// Machines that are being created, updated or deleted, or may become Failed.
    under_way: usize,
    entries: Vec<RehearsalEntry>,
    /// The last write of something that matters.
    pub written: Instant,
    /// The last time that a Machine joined, was updated or disappeared.
    pub progressed: Instant,
}

impl RehearsalRecord {
    pub fn for_machines(machines: &[Machine]) -> Self {
        let now = Instant::now();
        let mut record = Self {
            begun: now,
            machines: BTreeMap::new(),
            tallies: TalliesBySet::new(),
            under_way: 0,
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
        true
    }

    fn note(&mut self, act: MachineTransition, seen: &RecordedMachine) {
        self.entries.push(RehearsalEntry {
            at: self.begun.elapsed(),
            act,
            machine: seen.name.clone(),
            is_known: seen.first_set.is_some(),
            tallies: self.tallies.clone(),
        });
    }

    fn count(&mut self, seen: &RecordedMachine, is_added: bool) {
        let tally = self.tallies.entry(seen.set.clone()).or_default();
        let step = |number: &mut usize| *number = if is_added { *number + 1 } else { number.saturating_sub(1) };
        if seen.is_going || seen.is_updating || !is_at_rest(&seen.phase) {
            step(&mut self.under_way);
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

    /// A Machine is being created, updated or deleted, or may become Failed.
    pub const fn is_under_way(&self) -> bool {
        self.under_way > 0
    }

    pub fn is_empty(&self) -> bool {
        self.machines.is_empty()
    }

    /// Machines that run.
    pub fn running(&self) -> usize {
        self.tallies.values().map(|tally| tally.running).sum()
    }

    pub fn course(
        &self,
        ending: RehearsalEnding,
        begun: Instant,
        objects: BTreeMap<&'static str, Vec<Value>>,
        nodes: BTreeMap<String, Value>,
        waits: Vec<RehearsalWait>,
    ) -> RehearsalCourse {
        let moved = |seen: &RecordedMachine| Some((seen.name.clone(), *seen.first_set.as_ref()? != seen.set));
        let kept = self.machines.values().filter(|seen| !seen.is_going).filter_map(moved).collect();
        let last = self.entries.last().map_or(Duration::ZERO, |entry| entry.at);
        let took = if ending == RehearsalEnding::Settled { last } else { begun.elapsed() };
        let (entries, tallies) = (self.entries.clone(), self.tallies.clone());
        RehearsalCourse { entries, ending, took, objects, nodes, tallies, kept, waits }
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
    }
}
