//! As `node::reconcile` and `node::follow_gone`.

use std::{collections::VecDeque, sync::Arc};

use jiff::SignedDuration;

use super::super::{
    Model,
    cluster::Cluster,
    manager::{Controller, Next},
};
use crate::{
    controllers::{
        context::machines_by,
        controller::Wake,
        node::{Action, Policy, Snapshot, gone, plan},
        plan::Step,
    },
    runtime::{cache::Key, objects::WriteFailure},
};

pub(in super::super) struct Pass {
    key: Key,
    work: Option<(Snapshot, Wake, VecDeque<Step<Action>>)>,
}

impl Pass {
    pub(in super::super) const fn of(key: Key) -> Self {
        Self { key, work: None }
    }

    pub(in super::super) fn advance(&mut self, model: &mut Model) -> Next {
        let Some((snapshot, wake, steps)) = &mut self.work else { return self.look(model) };
        let Some(step) = steps.pop_front() else { return Next::Done(*wake) };
        model.say_step(Controller::Node, &self.key, &step.reason);
        match apply(model, snapshot, step.action) {
            Ok(()) => Next::GoesOn,
            Err(failure) => Next::Failed(failure),
        }
    }

    fn look(&mut self, model: &mut Model) -> Next {
        let caches = &model.manager.caches;
        let Some(node) = caches.nodes.get(&self.key) else { return Next::Done(Wake::OnChange) };
        let machines = caches.machines.by(machines_by::NODE, &self.key.name);
        let snapshot = Snapshot { node, machines, machines_complete: true, now: model.now() };
        let policy =
            Policy { creation_timeout: SignedDuration::from_mins(20), finalizer_grace: SignedDuration::from_secs(30) };
        let plan = plan(&snapshot, &policy);
        model.judge_node(&snapshot, &plan);
        self.work = Some((snapshot, plan.wake_at().into(), plan.steps.into()));
        Next::GoesOn
    }
}

/// A Node is gone. Answers whether that was dealt with.
pub(in super::super) fn follow_gone(model: &mut Model, key: &Key) -> Result<(), WriteFailure> {
    let machines = model.manager.caches.machines.by(machines_by::NODE, &key.name);
    for step in gone(&key.name, &machines).steps {
        model.say_step(Controller::Node, key, &step.reason);
        if let Action::DeleteMachine(machine) = step.action {
            delete_machine(model, &machine)?;
        }
    }
    Ok(())
}

fn apply(model: &mut Model, seen: &Snapshot, action: Action) -> Result<(), WriteFailure> {
    match action {
        Action::DeleteMachine(machine) => delete_machine(model, &machine),
        Action::PatchNode(patch) => {
            let cache = Arc::clone(&model.manager.caches.nodes);
            let written =
                model.write(Cluster::nodes, seen.node.as_ref(), |kind, clock| kind.patch(clock, &seen.node, &patch))?;
            cache.wrote(written.as_ref().clone());
            Ok(())
        }
    }
}

fn delete_machine(model: &mut Model, machine: &Arc<crate::api::machine::Machine>) -> Result<(), WriteFailure> {
    let cache = Arc::clone(&model.manager.caches.machines);
    model.delete(Cluster::machines, &cache, machine)
}
