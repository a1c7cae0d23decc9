//! Why anything happens to an object, and which usual causes do not apply. Pure.

use kube::ResourceExt;

use super::story::{
    CLASS, DEPLOYMENT, ExplainedWait, MACHINE, ManagerLease, NamespaceFacts, ObjectAnswer, ObjectVerdict, OwnerChain,
    RuledOut, SET, owned_by,
};
use crate::family::is_frozen;
use mcm_api::{kinds::SECRETS, machine::MachineSet};
use mcm_controllers::machine_deployment::revision_of;
use mcm_rules::plan::{SubjectRef, WaitKind, guide::WaitEnd};

/// The check of a class and its Secrets.
const OF_CLASS: &str = "class";

/// The wait is for a class or its Secrets.
const fn is_of_class(kind: WaitKind) -> bool {
    matches!(kind, WaitKind::Class | WaitKind::ClassUnknown | WaitKind::Secret)
}

impl ObjectAnswer {
    /// Its worst wait, failure or next step in one line; that of a set or machine below it, if only that is so bad.
    pub fn reason(&self) -> String {
        let is_user_awaited = self.waits.iter().any(|wait| wait.end == WaitEnd::User);
        let culprit = self.culprit().filter(|culprit| !is_user_awaited && culprit.verdict >= ObjectVerdict::Unknown);
        if let Some(culprit) = culprit {
            return format!("{} waits for {}", culprit.object.name, culprit.reason());
        }
        let wait = self.waits.first().map(|wait| wait.text.clone());
        let step = self.next.first().map(|step| format!("next: {}: {}", step.action, step.reason));
        wait.or(step).or_else(|| self.failed.clone()).unwrap_or_else(|| self.state.clone())
    }

    /// A class is not ruled out for which sets or machines of the object wait.
    pub fn keep_class_of_parts(&mut self) {
        let mut parts = self.sets.iter().chain(&self.machines).flat_map(|one| &one.waits);
        if parts.any(|wait| is_of_class(wait.kind)) {
            self.ruled_out.retain(|one| one.check != OF_CLASS);
        }
    }
}

impl NamespaceFacts {
    /// Why anything happens to an object: the rollout of its deployment, and the size of its set.
    pub fn chain(&self, object: &SubjectRef, owners: &[SubjectRef]) -> OwnerChain {
        let family = || [object].into_iter().chain(owners);
        let named = |kind: &str| family().find(|one| one.kind == kind).map(|one| one.name.as_str());
        let deployment = named(DEPLOYMENT).and_then(|name| self.deployments.get(name));
        let set = named(SET).and_then(|name| self.sets.get(name));
        let mut up = Vec::new();
        let newest = deployment.and_then(|deployment| self.newest(&deployment.name_any()));
        if let (Some(deployment), Some(newest)) = (deployment, newest) {
            let (name, class) = (deployment.name_any(), &newest.spec.template.spec.class.name);
            let old = owned_by(&self.sets, &name).filter(|set| **set != newest.name_any() && self.count(set) > 0);
            let old: Vec<&str> = old.map(String::as_str).collect();
            up.push(match old.is_empty() {
                true => format!("MachineDeployment {name}: spec.replicas is {}", deployment.spec.replicas),
                false => format!(
                    "MachineDeployment {name} replaces the machines of {} with class {class} (revision {})",
                    old.join(", "),
                    revision_of(newest)
                ),
            });
        }
        if let Some(set) = set {
            let (name, wanted) = (set.name_any(), set.spec.replicas);
            let age = match newest {
                Some(newest) if newest.name_any() != name => "old",
                _ => "new",
            };
            up.push(format!("{age} set {name} has {} of {wanted} machines", self.count(&name)));
        }
        OwnerChain { up }
    }

    /// The set of the latest revision of a deployment.
    fn newest(&self, deployment: &str) -> Option<&MachineSet> {
        owned_by(&self.sets, deployment).filter_map(|name| self.sets.get(name)).max_by_key(|set| revision_of(set))
    }

    fn count(&self, set: &str) -> usize {
        self.owned.of_owner(&self.machines, set).len()
    }

    /// The usual causes that do not apply to an object.
    pub fn ruled_out(&self, object: &SubjectRef, owners: &[SubjectRef], waits: &[ExplainedWait]) -> Vec<RuledOut> {
        let mut found = Vec::new();
        let mut rule_out = |check, text: &str| found.push(RuledOut { check, text: text.to_owned() });
        let family: Vec<&SubjectRef> = [object].into_iter().chain(owners).collect();
        let named = |kind: &str| family.iter().find(|one| one.kind == kind).map(|one| one.name.as_str());
        if named(DEPLOYMENT).and_then(|name| self.deployments.get(name)).is_some_and(|one| !one.spec.paused) {
            rule_out("paused", "not paused");
        }
        if named(SET).and_then(|name| self.sets.get(name)).is_some_and(|set| !is_frozen(set)) {
            rule_out("frozen", "not frozen");
        }
        let class = match object.kind.as_str() {
            MACHINE => self.machines.get(&object.name).map(|machine| &machine.spec.class.name),
            SET => self.sets.get(&object.name).map(|set| &set.spec.template.spec.class.name),
            DEPLOYMENT => self.deployments.get(&object.name).map(|one| &one.spec.template.spec.class.name),
            _ => None,
        };
        let is_read = |kind: &str| self.unread.iter().all(|unread| unread != kind);
        let plan = class.and_then(|class| Some((class, self.previews.get(CLASS)?.get(class)?)));
        let is_awaited = waits.iter().any(|wait| is_of_class(wait.kind));
        if let Some((class, _)) =
            plan.filter(|(_, plan)| plan.waits.is_empty() && is_read(SECRETS.plural) && !is_awaited)
        {
            rule_out(OF_CLASS, &format!("class {class} and its Secrets are there"));
        }
        let runs = |manager: &ManagerLease| {
            manager.is_alive(self.now) && manager.freeze(self.now).is_none() && manager.parked.is_none()
        };
        if self.manager_for(object).is_some_and(runs) {
            rule_out("manager", "a manager runs");
        }
        found
    }
}
