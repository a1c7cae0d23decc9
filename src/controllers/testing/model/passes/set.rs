//! As `machine_set::reconcile`.

use std::{collections::VecDeque, sync::Arc};

use kube::ResourceExt;

use super::super::{
    Model,
    cluster::Cluster,
    manager::{Controller, Next},
};
use crate::{
    api::machine::Machine,
    controllers::{
        context::machines_by,
        controller::{ROUNDS, Wake, hold_status},
        machine_set::{Action, Failure, Snapshot, plan},
        plan::Step,
        selector::Selector,
    },
    runtime::{cache::Key, objects::WriteFailure},
};

pub(in super::super) struct Pass {
    key: Key,
    rounds: usize,
    work: Option<Work>,
}

struct Work {
    snapshot: Snapshot,
    edits: VecDeque<Step<Action>>,
    /// By slow start: those of one batch are made whatever becomes of the others.
    creates: VecDeque<(u32, Machine, String)>,
    deletes: VecDeque<(Arc<Machine>, String)>,
    failure: Option<WriteFailure>,
    has_creates: bool,
}

impl Work {
    fn renounce(&self, model: &Model, key: &Key) {
        if self.has_creates {
            model.manager.memory.sets.update(key, |memory| memory.coming = 0);
            model.manager.wake_deployment(&self.snapshot.set);
        }
    }
}

impl Pass {
    pub(in super::super) fn of(key: Key) -> Self {
        Self { key, rounds: 0, work: None }
    }

    pub(in super::super) fn advance(&mut self, model: &mut Model) -> Next {
        if self.rounds == 0
            && let Some(name) = model.manager.memory.sets.get(&self.key).doubts.first()
        {
            return settle_doubt(model, &self.key, name);
        }
        let Some(mut work) = self.work.take() else { return self.look(model) };
        match step(model, &self.key, &mut work) {
            Ok(true) => {
                self.work = Some(work);
                Next::GoesOn
            }
            Ok(false) => {
                work.renounce(model, &self.key);
                model.manager.memory.sets.update(&self.key, |memory| memory.failure = None);
                Next::GoesOn
            }
            Err(failure) => {
                work.renounce(model, &self.key);
                Next::Failed(failure)
            }
        }
    }

    fn look(&mut self, model: &mut Model) -> Next {
        self.rounds += 1;
        let Some(snapshot) = observe(model, &self.key) else {
            model.manager.memory.sets.forget(&self.key);
            return Next::Done(Wake::OnChange);
        };
        let plan = plan(&snapshot);
        if plan.steps.is_empty() && snapshot.failure.is_some() {
            model.manager.memory.sets.update(&self.key, |memory| memory.failure = None);
            return Next::GoesOn;
        }
        if plan.steps.is_empty() {
            model.judge_set(&snapshot, &plan.waits);
            return Next::Done(plan.wake_at().into());
        }
        if self.rounds > ROUNDS {
            return model.restless(Controller::Set, &self.key);
        }
        let only_status = plan.steps.iter().all(|step| matches!(step.action, Action::WriteStatus(_)));
        let written_at = model.manager.memory.sets.get(&self.key).status_written_at;
        if only_status && let Some(wake) = hold_status(written_at, model.now()) {
            return Next::Done(wake);
        }
        let mut work = Work {
            snapshot,
            edits: VecDeque::new(),
            creates: VecDeque::new(),
            deletes: VecDeque::new(),
            failure: None,
            has_creates: plan.steps.iter().any(|step| matches!(step.action, Action::CreateMachine(_))),
        };
        for step in plan.steps {
            match step.action {
                Action::CreateMachine(machine) => {
                    let batch = (work.creates.len() + 1).ilog2();
                    work.creates.push_back((batch, *machine, step.reason));
                }
                Action::DeleteMachine(machine) => work.deletes.push_back((machine, step.reason)),
                _ => work.edits.push_back(step),
            }
        }
        model.manager.memory.sets.update(&self.key, |memory| memory.coming = work.creates.len());
        self.work = Some(work);
        Next::GoesOn
    }
}

fn observe(model: &mut Model, key: &Key) -> Option<Snapshot> {
    let caches = &model.manager.caches;
    let set = caches.sets.get(key)?;
    let mut machines = caches.machines.by(machines_by::CONTROLLER, &set.uid().unwrap());
    let selector = Selector::parse(set.spec.selector.as_ref()).unwrap();
    let orphans = caches.machines.by(machines_by::CONTROLLER, "");
    machines.extend(orphans.into_iter().filter(|machine| selector.matches(machine.metadata.labels.as_ref())));
    let failure = model.manager.memory.sets.get(key).failure;
    Some(Snapshot { set, machines, unreadable: Vec::new(), failure, now: model.now(), seed: model.dice.roll() })
}

fn settle_doubt(model: &mut Model, key: &Key, name: &str) -> Next {
    let Ok(found) = model.read(|cluster| cluster.machines.get(name).cloned()) else {
        return Next::Failed(WriteFailure::Unknown);
    };
    model.say(format!("set {key}: {name} was {}", if found.is_some() { "created" } else { "not created" }));
    if let Some(machine) = found {
        model.manager.caches.machines.wrote(machine.as_ref().clone());
    }
    model.manager.memory.sets.update(key, |memory| memory.doubts.retain(|doubt| doubt != name));
    if let Some(set) = model.manager.caches.sets.get(key) {
        model.manager.wake_deployment(&set);
    }
    Next::GoesOn
}

/// One action. False if there was none left.
fn step(model: &mut Model, key: &Key, work: &mut Work) -> Result<bool, WriteFailure> {
    if let Some(step) = work.edits.pop_front() {
        model.say_step(Controller::Set, key, &step.reason);
        edit(model, key, &work.snapshot, step.action)?;
        return Ok(true);
    }
    if let Some((batch, machine, reason)) = work.creates.pop_front() {
        model.say_step(Controller::Set, key, &format!("create {}: {reason}", machine.name_any()));
        if let Err(failure) = create(model, key, &work.snapshot, machine) {
            work.failure.get_or_insert(failure);
        }
        if work.failure.is_some() {
            work.creates.retain(|(other, ..)| *other == batch);
        }
        return Ok(true);
    }
    if let Some(failure) = work.failure {
        return Err(failure);
    }
    let Some((machine, reason)) = work.deletes.pop_front() else { return Ok(false) };
    model.say_step(Controller::Set, key, &format!("delete {}: {reason}", machine.name_any()));
    delete(model, &work.snapshot, &machine).inspect_err(|failure| {
        remember(model, key, *failure);
        // Those under way at the same time are not waited for.
        for (machine, _) in work.deletes.drain(..) {
            if model.dice.one_in(2) {
                model.say(format!("  delete {} is carried out, too", machine.name_any()));
                let served = model.serves(&machine);
                let (clock, machines) = model.cluster.machines();
                if machines.delete(clock, &machine).is_ok() && served {
                    model.count_choice(&work.snapshot, &machine);
                }
            }
        }
    })?;
    Ok(true)
}

fn remember(model: &Model, key: &Key, failure: WriteFailure) {
    if failure != WriteFailure::Conflict {
        let failed = Failure { message: "no answer".to_owned() };
        model.manager.memory.sets.update(key, |memory| memory.failure = Some(failed));
    }
}

fn edit(model: &mut Model, key: &Key, seen: &Snapshot, action: Action) -> Result<(), WriteFailure> {
    let set = &seen.set;
    let cache = Arc::clone(&model.manager.caches.sets);
    match action {
        Action::PatchSet(patch) => {
            let written = model.write(Cluster::sets, set.as_ref(), |kind, clock| kind.patch(clock, set, &patch))?;
            cache.wrote(written.as_ref().clone());
        }
        Action::WriteStatus(status) => {
            let now = model.now();
            let written =
                model.write(Cluster::sets, set.as_ref(), |kind, clock| kind.patch_status(clock, set, &status))?;
            cache.wrote(written.as_ref().clone());
            model.manager.memory.sets.update(key, |memory| memory.status_written_at = Some(now));
        }
        Action::PatchMachine { machine, patch } => {
            let cache = Arc::clone(&model.manager.caches.machines);
            let written =
                model.write(Cluster::machines, machine.as_ref(), |kind, clock| kind.patch(clock, &machine, &patch))?;
            cache.wrote(written.as_ref().clone());
        }
        Action::CreateMachine(_) | Action::DeleteMachine(_) => {}
    }
    Ok(())
}

fn create(model: &mut Model, key: &Key, seen: &Snapshot, machine: Machine) -> Result<(), WriteFailure> {
    let cache = Arc::clone(&model.manager.caches.machines);
    let name = machine.name_any();
    let written = model.write(Cluster::machines, &machine, |kind, clock| kind.create(clock, machine.clone()));
    model.count_creation(seen, &name);
    model.manager.memory.sets.update(key, |memory| {
        memory.coming -= 1;
        if written.as_ref().is_err_and(|failure| *failure == WriteFailure::Unknown) {
            memory.doubts.push(name);
        }
    });
    match written {
        Ok(created) => {
            cache.wrote(created.as_ref().clone());
            Ok(())
        }
        Err(failure) => {
            remember(model, key, failure);
            Err(failure)
        }
    }
}

fn delete(model: &mut Model, seen: &Snapshot, machine: &Arc<Machine>) -> Result<(), WriteFailure> {
    let cache = Arc::clone(&model.manager.caches.machines);
    let served = model.serves(machine);
    let outcome = model.delete(Cluster::machines, &cache, machine);
    if served && !model.serves(machine) {
        model.count_choice(seen, machine);
    }
    outcome
}
