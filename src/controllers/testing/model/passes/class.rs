//! As `machine_class::reconcile`; the classes of the model name no Secrets.

use std::{collections::BTreeMap, sync::Arc};

use kube::ResourceExt;

use super::super::{
    Model,
    cluster::Cluster,
    manager::{Controller, Next},
};
use crate::{
    controllers::{
        context::machines_by,
        controller::Wake,
        machine_class::{Action, Snapshot, plan},
    },
    runtime::cache::Key,
};

pub(in super::super) struct Pass(Key);

impl Pass {
    pub(in super::super) const fn of(key: Key) -> Self {
        Self(key)
    }

    pub(in super::super) fn advance(&mut self, model: &mut Model) -> Next {
        let caches = &model.manager.caches;
        let Some(class) = caches.classes.get(&self.0) else { return Next::Done(Wake::OnChange) };
        let users = caches.machines.by(machines_by::CLASS, &self.0.name);
        let machines_using = users.iter().map(|machine| machine.name_any()).collect();
        let snapshot = Snapshot { class, machines_using, unreadable_machines: Vec::new(), secrets: BTreeMap::new() };
        let plan = plan(&snapshot);
        let wake = plan.wake_at();
        // There is one step at most.
        for step in plan.steps {
            model.say_step(Controller::Class, &self.0, &step.reason);
            let Action::PatchClass(patch) = step.action else { continue };
            let seen = &snapshot.class;
            let cache = Arc::clone(&model.manager.caches.classes);
            match model.write(Cluster::classes, seen.as_ref(), |kind, clock| kind.patch(clock, seen, &patch)) {
                Ok(written) => drop(cache.wrote(written.as_ref().clone())),
                Err(failure) => return Next::Failed(failure),
            }
        }
        Next::Done(wake.into())
    }
}
