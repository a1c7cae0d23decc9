//! A cell as users and metrics see it: the last plans of its objects.

use std::sync::atomic::Ordering;

use jiff::SignedDuration;

use super::{CellScope, ControllerCell, ControllerRole};
use crate::{
    cache::Key,
    cells::{CellOverview, RoleStanding},
    explain::{LastPlan, ObjectExplanation},
};
use mcm_rules::plan::{SubjectRef, WaitKind};

impl CellOverview for ControllerCell {
    fn name(&self) -> &str {
        &self.config.name
    }

    fn roles(&self) -> Vec<RoleStanding> {
        let standing = |role: &ControllerRole| {
            let tasks = self.tasks.get(role.name)?;
            let (is_leading, is_foreign) =
                (tasks.is_leading.load(Ordering::Relaxed), tasks.is_foreign.load(Ordering::Relaxed));
            Some(RoleStanding { lease: role.lease, is_leading, is_foreign })
        };
        self.roles.iter().filter_map(standing).collect()
    }

    fn is_parked(&self) -> bool {
        let CellScope::Namespace(namespace) = &self.config.scope else { return false };
        self.gates.values().any(|gate| gate.is_parked(namespace))
    }

    fn targets(&self) -> Vec<(String, bool)> {
        let targets = self.config.targets.all();
        targets.iter().map(|target| (target.id.to_string(), target.nodes.cache.trust().is_trusted())).collect()
    }

    fn explain(&self, kind: &str, key: &Key) -> Option<ObjectExplanation> {
        let is_it = |object: &SubjectRef| {
            object.name == key.name && object.kind.eq_ignore_ascii_case(kind) && self.is_in(object, &key.namespace)
        };
        ObjectExplanation::joined(self.explained(&mut |_, object| is_it(object)))
    }

    fn waiters(&self, namespace: Option<&str>) -> Vec<ObjectExplanation> {
        // Nodes of others in a shared target cluster wait for their machines.
        let is_there = |object: &SubjectRef| {
            !object.namespace.is_empty() && namespace.is_none_or(|namespace| object.namespace == namespace)
        };
        ObjectExplanation::of_objects(self.explained(&mut |plan, object| plan.is_waiting() && is_there(object)))
    }

    fn each_wait(&self, see: &mut dyn FnMut(&'static str, WaitKind, SignedDuration)) {
        let now = self.config.shared.clock.now();
        for (controller, visit) in &self.plans {
            visit(&mut |_, plan| plan.each_wait(&mut |kind, since| see(controller, kind, now.duration_since(since))));
        }
    }
}

impl ControllerCell {
    /// The last plans that are asked for, by controller.
    fn explained(&self, is_asked: &mut dyn FnMut(&LastPlan, &SubjectRef) -> bool) -> Vec<ObjectExplanation> {
        let mut explained = Vec::new();
        for (controller, visit) in &self.plans {
            visit(&mut |subject, plan| {
                let object = subject();
                if is_asked(plan, &object) {
                    explained.push(plan.explain(object, controller));
                }
            });
        }
        explained
    }

    /// An object is in a namespace. A Node counts as in the namespace of the cell.
    fn is_in(&self, object: &SubjectRef, namespace: &str) -> bool {
        match (object.namespace.as_str(), &self.config.scope) {
            ("", CellScope::All) => true,
            ("", CellScope::Namespace(of_cell)) => of_cell == namespace,
            (of_object, _) => of_object == namespace,
        }
    }
}
