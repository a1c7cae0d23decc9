//! A cell as users and metrics see it: the last plans of its objects.

use std::sync::atomic::Ordering;

use jiff::SignedDuration;

use super::{Cell, Role};
use crate::{
    plan::{Subject, WaitKind},
    runtime::{cache::Key, cells::Overview, explain::Explanation},
};

impl Overview for Cell {
    fn name(&self) -> &str {
        &self.config.name
    }

    fn roles(&self) -> Vec<(&'static str, bool)> {
        let is_leading = |role: &Role| self.tasks.get(role.name).map(|tasks| tasks.is_leading.load(Ordering::Relaxed));
        self.roles.iter().filter_map(|role| Some((role.lease, is_leading(role)?))).collect()
    }

    fn explain(&self, kind: &str, key: &Key) -> Option<Explanation> {
        let mut of_kind = self.inspectors.values().filter(|one| one.kind.eq_ignore_ascii_case(kind));
        of_kind.find_map(|inspector| (inspector.explain)(key))
    }

    fn waiters(&self, namespace: Option<&str>) -> Vec<Explanation> {
        let mut waiters = Vec::new();
        for (controller, inspector) in &self.inspectors {
            (inspector.plans)(&mut |key, plan| {
                if plan.is_waiting() && namespace.is_none_or(|namespace| namespace == key.namespace) {
                    let Key { namespace, name } = key.clone();
                    waiters.push(plan.explain(Subject { kind: inspector.kind.clone(), namespace, name }, controller));
                }
            });
        }
        waiters
    }

    fn each_wait(&self, see: &mut dyn FnMut(&'static str, WaitKind, SignedDuration)) {
        let now = self.config.shared.clock.now();
        for (controller, inspector) in &self.inspectors {
            (inspector.plans)(&mut |_, plan| {
                plan.each_wait(&mut |kind, since| see(controller, kind, now.duration_since(since)));
            });
        }
    }
}
