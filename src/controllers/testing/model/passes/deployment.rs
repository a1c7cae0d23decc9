//! As `machine_deployment::reconcile`.

use std::{collections::VecDeque, sync::Arc};

use kube::ResourceExt;

use super::super::{
    Model,
    cluster::Cluster,
    manager::{Controller, Next},
};
use crate::{
    api::machine::{MachineDeployment, MachineSet},
    controllers::{
        context::{machines_by, sets_by},
        controller::{ROUNDS, Wake, hold_status},
        machine_deployment::{Action, Failure, Policy, Snapshot, plan},
        owner,
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
    /// As the last write of this plan left it.
    deployment: Arc<MachineDeployment>,
    nodes: VecDeque<Step<Action>>,
    steps: VecDeque<Step<Action>>,
    only_nodes: bool,
    missed: bool,
}

impl Pass {
    pub(in super::super) fn of(key: Key) -> Self {
        Self { key, rounds: 0, work: None }
    }

    pub(in super::super) fn advance(&mut self, model: &mut Model) -> Next {
        if self.rounds == 0
            && let Some(name) = model.manager.memory.deployments.get(&self.key).doubts.first()
        {
            return settle_doubt(model, &self.key, name);
        }
        let Some(work) = &mut self.work else { return self.look(model) };
        if let Some(step) = work.nodes.pop_front() {
            model.say_step(Controller::Deployment, &self.key, &step.reason);
            work.missed |= mark_node(model, &step.action).is_err();
            return Next::GoesOn;
        }
        let Some(step) = work.steps.pop_front() else {
            let is_held_up = work.only_nodes && work.missed;
            self.work = None;
            return if is_held_up { Next::Done(Wake::After(std::time::Duration::from_secs(1))) } else { Next::GoesOn };
        };
        model.say_step(Controller::Deployment, &self.key, &step.reason);
        match apply(model, &self.key, work, &step.action) {
            Ok(()) => Next::GoesOn,
            Err(failure) => Next::Failed(failure),
        }
    }

    fn look(&mut self, model: &mut Model) -> Next {
        self.rounds += 1;
        let Some(snapshot) = observe(model, &self.key) else {
            model.manager.memory.deployments.forget(&self.key);
            return Next::Done(Wake::OnChange);
        };
        let plan = plan(&snapshot, &Policy { annotate_nodes: true, has_target: true });
        if plan.steps.is_empty() && snapshot.failure.is_some() {
            model.manager.memory.deployments.update(&self.key, |memory| memory.failure = None);
            return Next::GoesOn;
        }
        if plan.steps.is_empty() {
            model.judge_deployment(&snapshot, &plan.waits);
            return Next::Done(plan.wake_at().into());
        }
        if self.rounds > ROUNDS {
            return model.restless(Controller::Deployment, &self.key);
        }
        let only_status = plan.steps.iter().all(|step| matches!(step.action, Action::WriteStatus(_)));
        let written_at = model.manager.memory.deployments.get(&self.key).status_written_at;
        if only_status && let Some(wake) = hold_status(written_at, model.now()) {
            return Next::Done(wake);
        }
        let (nodes, steps): (VecDeque<_>, VecDeque<_>) =
            plan.steps.into_iter().partition(|step| matches!(step.action, Action::PatchNode { .. }));
        let deployment = Arc::clone(&snapshot.deployment);
        self.work = Some(Work { snapshot, deployment, only_nodes: steps.is_empty(), nodes, steps, missed: false });
        Next::GoesOn
    }
}

fn settle_doubt(model: &mut Model, key: &Key, name: &str) -> Next {
    let Ok(found) = model.read(|cluster| cluster.sets.get(name).cloned()) else {
        return Next::Failed(WriteFailure::Unknown);
    };
    if let Some(set) = found {
        model.manager.caches.sets.wrote(set.as_ref().clone());
    }
    model.manager.memory.deployments.update(key, |memory| memory.doubts.retain(|doubt| doubt != name));
    Next::GoesOn
}

fn doubt(failure: WriteFailure, model: &Model, key: &Key, set: &MachineSet) {
    if failure == WriteFailure::Unknown {
        model.manager.memory.deployments.update(key, |memory| memory.doubts.push(set.name_any()));
    }
}

fn observe(model: &Model, key: &Key) -> Option<Snapshot> {
    let caches = &model.manager.caches;
    let deployment = caches.deployments.get(key)?;
    let uid = deployment.uid().unwrap();
    let mut sets = caches.sets.by(sets_by::CONTROLLER, &uid);
    let owned: Vec<String> = sets.iter().filter_map(|set| set.uid()).collect();
    let selector = Selector::parse(deployment.spec.selector.as_ref()).unwrap();
    let orphans = caches.sets.by(sets_by::CONTROLLER, "");
    sets.extend(orphans.into_iter().filter(|set| selector.matches(set.metadata.labels.as_ref())));
    let machines: Vec<_> = owned.iter().flat_map(|uid| caches.machines.by(machines_by::CONTROLLER, uid)).collect();
    let nodes = machines
        .iter()
        .filter_map(|machine| caches.nodes.get(&Key::new("", machine.node_name()?)))
        .map(|node| (node.name_any(), node))
        .collect();
    let failure = model.manager.memory.deployments.get(key).failure;
    let coming = |set: &Arc<MachineSet>| {
        let memory = model.manager.memory.sets.get(&Key::of(&set.metadata));
        (set.name_any(), memory.coming + memory.doubts.len())
    };
    let coming = sets.iter().map(coming).collect();
    Some(Snapshot { deployment, sets, machines, coming, unreadable: Vec::new(), nodes, failure, now: model.now() })
}

fn mark_node(model: &mut Model, action: &Action) -> Result<(), WriteFailure> {
    let Action::PatchNode { node, patch } = action else { return Ok(()) };
    let cache = Arc::clone(&model.manager.caches.nodes);
    let written = model.write(Cluster::nodes, node.as_ref(), |kind, clock| kind.patch(clock, node, patch))?;
    cache.wrote(written.as_ref().clone());
    Ok(())
}

fn apply(model: &mut Model, key: &Key, work: &mut Work, action: &Action) -> Result<(), WriteFailure> {
    let deployment = Arc::clone(&work.deployment);
    let now = model.now();
    match action {
        Action::PatchNode { .. } => {}
        Action::PatchDeployment(patch) => {
            let cache = Arc::clone(&model.manager.caches.deployments);
            let written = model.write(Cluster::deployments, deployment.as_ref(), |kind, clock| {
                kind.patch(clock, &deployment, patch)
            })?;
            work.deployment = cache.wrote(written.as_ref().clone());
        }
        Action::WriteStatus(status) => {
            let cache = Arc::clone(&model.manager.caches.deployments);
            let written = model.write(Cluster::deployments, deployment.as_ref(), |kind, clock| {
                kind.patch_status(clock, &deployment, status)
            })?;
            cache.wrote(written.as_ref().clone());
            model.manager.memory.deployments.update(key, |memory| memory.status_written_at = Some(now));
        }
        Action::PatchSet { set, patch } => {
            let cache = Arc::clone(&model.manager.caches.sets);
            let answer = model.write(Cluster::sets, set.as_ref(), |kind, clock| kind.patch(clock, set, patch));
            let written = answer.inspect_err(|failure| doubt(*failure, model, key, set))?;
            cache.wrote(written.as_ref().clone());
        }
        Action::PatchMachine { machine, patch } => {
            let cache = Arc::clone(&model.manager.caches.machines);
            let written =
                model.write(Cluster::machines, machine.as_ref(), |kind, clock| kind.patch(clock, machine, patch))?;
            cache.wrote(written.as_ref().clone());
        }
        Action::DeleteSet(set) => {
            let cache = Arc::clone(&model.manager.caches.sets);
            let answer = model.delete(Cluster::sets, &cache, set);
            answer.inspect_err(|failure| doubt(*failure, model, key, set))?;
        }
        Action::CreateSet(set) => create_set(model, key, &work.snapshot, set)?,
    }
    Ok(())
}

fn create_set(model: &mut Model, key: &Key, seen: &Snapshot, set: &MachineSet) -> Result<(), WriteFailure> {
    let cache = Arc::clone(&model.manager.caches.sets);
    let failed = match model.write(Cluster::sets, set, |kind, clock| kind.create(clock, set.clone())) {
        Ok(created) => {
            cache.wrote(created.as_ref().clone());
            model.manager.memory.deployments.update(key, |memory| memory.failure = None);
            return Ok(());
        }
        Err(failed) => failed,
    };
    doubt(failed, model, key, set);
    let failure = match failed {
        WriteFailure::AlreadyExists => match model.read(|cluster| cluster.sets.get(&set.name_any()).cloned()) {
            Ok(Some(found)) => {
                let ours = owner::is_controlled_by(&found.metadata, &seen.deployment.uid().unwrap());
                cache.wrote(found.as_ref().clone());
                (!ours).then_some(Failure::NameTaken)
            }
            Ok(None) | Err(_) => None,
        },
        WriteFailure::Conflict => None,
        WriteFailure::Gone | WriteFailure::Refused | WriteFailure::Unknown => {
            Some(Failure::Other { message: "no answer".to_owned() })
        }
    };
    model.manager.memory.deployments.update(key, |memory| memory.failure = failure);
    Err(failed)
}
