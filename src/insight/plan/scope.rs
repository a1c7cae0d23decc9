//! The objects that take part in the plan for an object: its sets and machines, the sets and machines without a controller
//! that it adopts, and the objects that may adopt the same. Pure.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;

use super::fields::to_value;
use crate::{
    rehearsal::play::SeedObject,
    story::{DEPLOYMENT, NamespaceFacts, SET},
};
use mcm_api::{
    machine::{Machine, MachineDeployment, MachineSet},
    selector::Selector,
};
use mcm_controllers::object::owner::controller_of;
use mcm_fake_api::{DEPLOYMENTS, MACHINES, SETS};

/// The sets and machines of an object, as its controllers read them.
pub struct PlanScope<'a> {
    /// Its own sets, and sets without a controller that it selects.
    pub sets: Vec<&'a MachineSet>,
    /// The machines of the sets, and machines without a controller that the object or one of the sets selects.
    pub machines: Vec<&'a Machine>,
    /// Some of these have no controller.
    pub adopts: bool,
    /// Other deployments and sets that select some objects without a controller, with their sets and machines.
    pub rivals: Vec<SeedObject>,
}

impl<'a> PlanScope<'a> {
    /// The scope of a deployment, before and after a change, or of a set without a deployment.
    pub fn of_object(
        facts: &'a NamespaceFacts,
        kind: &str,
        name: &str,
        versions: [Option<&MachineDeployment>; 2],
    ) -> Self {
        let wanted = versions.into_iter().flatten().filter(|_| kind == DEPLOYMENT);
        let of_object: Vec<Selector> = wanted.filter_map(|one| selector(one.spec.selector.as_ref())).collect();
        let mut sets = owned_sets(facts, kind, name);
        let orphans = facts.sets.values().filter(|set| kind == DEPLOYMENT && is_orphan(*set));
        sets.extend(orphans.filter(|set| of_object.iter().any(|one| one.matches(set.metadata.labels.as_ref()))));
        let mut machines = machines_of_sets(&sets, facts);
        let of_sets = sets.iter().filter_map(|set| selector(set.spec.selector.as_ref()));
        let selectors: Vec<Selector> = of_object.into_iter().chain(of_sets).collect();
        let is_selected = |machine: &Machine| {
            is_orphan(machine) && selectors.iter().any(|one| one.matches(machine.metadata.labels.as_ref()))
        };
        machines.extend(facts.machines.values().filter(|machine| is_selected(machine)));
        machines.sort_by_key(|machine| machine.name_any());
        let mut scope = Self { adopts: false, sets, machines, rivals: Vec::new() };
        scope.adopts = scope.sets.iter().any(|set| kind == DEPLOYMENT && is_orphan(*set))
            || scope.machines.iter().any(|machine| is_orphan(*machine));
        if scope.adopts {
            scope.rivals = scope.rivals_in(facts, kind, name);
        }
        scope
    }

    fn rivals_in(&self, facts: &NamespaceFacts, kind: &str, name: &str) -> Vec<SeedObject> {
        let sets = self.sets.iter().filter(|set| is_orphan(**set)).map(|set| set.metadata.labels.as_ref());
        let machines = self.machines.iter().filter(|one| is_orphan(**one)).map(|one| one.metadata.labels.as_ref());
        let labels: Vec<_> = sets.chain(machines).collect();
        let selects_some =
            |one: Option<Selector>| one.is_some_and(|one| labels.iter().any(|labels| one.matches(*labels)));
        let known: BTreeSet<String> = self.sets.iter().map(|set| set.name_any()).collect();
        let known_machines: BTreeSet<String> = self.machines.iter().map(|machine| machine.name_any()).collect();
        let others = facts.deployments.values().filter(|one| kind != DEPLOYMENT || one.name_any() != name);
        let deployments: Vec<&MachineDeployment> = others
            .filter(|one| {
                let of_sets = owned_sets(facts, DEPLOYMENT, &one.name_any()).into_iter();
                selects_some(selector(one.spec.selector.as_ref()))
                    || of_sets.into_iter().any(|set| selects_some(selector(set.spec.selector.as_ref())))
            })
            .collect();
        let mut sets: Vec<&MachineSet> =
            deployments.iter().flat_map(|one| owned_sets(facts, DEPLOYMENT, &one.name_any())).collect();
        let orphans = facts.sets.values().filter(|set| is_orphan(*set));
        sets.extend(orphans.filter(|set| selects_some(selector(set.spec.selector.as_ref()))));
        sets.retain(|set| !known.contains(&set.name_any()));
        let mut machines = machines_of_sets(&sets, facts);
        machines.retain(|machine| !known_machines.contains(&machine.name_any()));
        let deployments = deployments.iter().map(|one| (&DEPLOYMENTS, to_value(one)));
        let sets = sets.iter().map(|one| (&SETS, to_value(one)));
        deployments.chain(sets).chain(machines.iter().map(|one| (&MACHINES, to_value(one)))).collect()
    }
}

/// The sets that a deployment controls; a set without a deployment is alone.
pub fn owned_sets<'a>(facts: &'a NamespaceFacts, kind: &str, name: &str) -> Vec<&'a MachineSet> {
    match kind {
        SET => facts.sets.get(name).into_iter().collect(),
        _ => facts.family(name).map(|family| family.sets).unwrap_or_default(),
    }
}

/// The machines that sets control, by name.
pub fn machines_of_sets<'a>(sets: &[&MachineSet], facts: &'a NamespaceFacts) -> Vec<&'a Machine> {
    let mut machines: Vec<_> = sets.iter().flat_map(|set| facts.machines_of_set(&set.name_any())).collect();
    machines.sort_by_key(|machine| machine.name_any());
    machines
}

/// A selector that selects something, and not everything.
pub fn selector(selector: Option<&LabelSelector>) -> Option<Selector> {
    Selector::parse(selector).ok().filter(|selector| !selector.selects_all())
}

fn is_orphan(object: &impl ResourceExt) -> bool {
    controller_of(object.meta()).is_none() && object.meta().deletion_timestamp.is_none()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        story::OwnedMachines,
        testing::{machine, pool},
    };

    /// The pool without controllers: of its two sets, and of one machine of each.
    fn orphaned() -> NamespaceFacts {
        let none = json!({ "metadata": { "labels": { "name": "pool" } } });
        let mut facts = pool(
            2,
            vec![
                machine("pool-84dff", "jpgkd", "small", "Running", &none),
                machine("pool-6d689", "d98b2", "large", "Running", &none),
            ],
        );
        let labels: std::collections::BTreeMap<_, _> = [("name".to_owned(), "pool".to_owned())].into();
        for set in facts.sets.values_mut() {
            set.metadata.owner_references = None;
            set.metadata.labels = Some(labels.clone());
        }
        facts
    }

    fn counts(scope: &PlanScope<'_>) -> (usize, usize, usize, bool) {
        (scope.sets.len(), scope.machines.len(), scope.rivals.len(), scope.adopts)
    }

    #[test]
    fn a_new_deployment_has_the_sets_and_machines_that_it_selects() {
        let mut facts = orphaned();
        let wanted = facts.deployments.remove("pool").unwrap();
        let scope = PlanScope::of_object(&facts, DEPLOYMENT, "pool", [None, Some(&wanted)]);
        assert_eq!(counts(&scope), (2, 2, 0, true));
        facts.machines.values_mut().for_each(|machine| machine.metadata.owner_references = None);
        facts.owned = OwnedMachines::default();
        let scope = PlanScope::of_object(&facts, DEPLOYMENT, "pool", [None, Some(&wanted)]);
        assert_eq!(counts(&scope), (2, 2, 0, true), "a new set adopts machines that its template describes");
    }

    #[test]
    fn another_deployment_that_selects_the_same_takes_part() {
        let mut facts = orphaned();
        let mut wanted = facts.deployments["pool"].clone();
        wanted.metadata.name = Some("other".to_owned());
        let scope = PlanScope::of_object(&facts, DEPLOYMENT, "other", [None, Some(&wanted)]);
        assert_eq!(counts(&scope), (2, 2, 1, true));
        // Objects that have a controller are not adopted.
        facts = pool(2, Vec::new());
        let scope = PlanScope::of_object(&facts, DEPLOYMENT, "other", [None, Some(&wanted)]);
        assert_eq!(counts(&scope), (0, 0, 0, false));
    }
}
