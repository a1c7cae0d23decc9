//! Machines with a VM, and sets with machines, that no other object controls. Pure.

use super::story::{ByName, NamespaceFacts};
use mcm_api::machine::{Machine, MachineSet};
use mcm_rules::plan::{counted, some_of};

/// The machines and sets in one sentence; `None` if there are none. A user may have created them so.
pub fn ownerless(machines: &ByName<Machine>, sets: &ByName<MachineSet>) -> Option<String> {
    let alone: Vec<&String> = machines.iter().filter(|(_, machine)| machine.is_ownerless()).map(|it| it.0).collect();
    let lone_sets: Vec<&String> = sets.iter().filter(|(_, set)| set.is_ownerless()).map(|it| it.0).collect();
    let mut parts = Vec::new();
    if !alone.is_empty() {
        parts.push(format!("{} with a VM without a set ({})", counted(alone.len(), "machine"), some_of(&alone)));
    }
    if !lone_sets.is_empty() {
        parts.push(format!("{} without a deployment ({})", counted(lone_sets.len(), "set"), some_of(&lone_sets)));
    }
    (!parts.is_empty()).then(|| format!("{}: no deployment counts or rolls them", parts.join(", and ")))
}

impl NamespaceFacts {
    /// The machines and sets of the namespace without an owner, in one sentence.
    pub fn ownerless(&self) -> Option<String> {
        ownerless(&self.machines, &self.sets)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn machine(spec: &Value, owned: bool) -> Machine {
        let owners = if owned {
            json!([{"apiVersion": "v1", "kind": "K", "name": "o", "uid": "u", "controller": true}])
        } else {
            json!([])
        };
        serde_json::from_value(json!({"metadata": {"ownerReferences": owners}, "spec": spec})).unwrap()
    }

    #[test]
    fn machines_with_a_vm_and_sets_with_machines_that_nothing_controls_are_named() {
        let vm = json!({"providerID": "simulated:///1"});
        let machines: ByName<Machine> =
            [("owned", machine(&vm, true)), ("lone", machine(&vm, false)), ("without-vm", machine(&json!({}), false))]
                .map(|(name, machine)| (name.to_owned(), machine))
                .into();
        assert_eq!(
            ownerless(&machines, &ByName::new()).as_deref(),
            Some("1 machine with a VM without a set (lone): no deployment counts or rolls them")
        );
        let set =
            |replicas: i32| serde_json::from_value(json!({"metadata": {}, "spec": {"replicas": replicas}})).unwrap();
        let sets: ByName<MachineSet> = [("empty".to_owned(), set(0)), ("old".to_owned(), set(2))].into();
        assert_eq!(
            ownerless(&machines, &sets).as_deref(),
            Some(
                "1 machine with a VM without a set (lone), and 1 set without a deployment (old): no deployment counts or rolls them"
            )
        );
        assert_eq!(ownerless(&ByName::new(), &ByName::new()), None);
    }
}
