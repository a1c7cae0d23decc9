//! Findings about owners and selectors of stored objects. Pure.

use super::finding::{CheckFinding, some_of};
use crate::api::machine::{Machine, MachineDeployment, MachineSet};
use mcm_controllers::machine_deployment::overlap;
use mcm_insight::{ownerless::ownerless, story::ByName};

/// Deployments whose selectors match each other's machines.
pub(super) fn selectors(deployments: &ByName<MachineDeployment>) -> Option<CheckFinding> {
    let all: Vec<(&String, &MachineDeployment)> = deployments.iter().collect();
    let mut pairs = Vec::new();
    for (index, (name, one)) in all.iter().enumerate() {
        let others = all.iter().skip(index + 1).filter(|(_, other)| overlap(one, other));
        pairs.extend(others.map(|(other, _)| format!("{name} and {other}")));
    }
    (!pairs.is_empty()).then(|| {
        let text =
            format!("deployments select each other's machines, which only owners keep apart: {}", some_of(&pairs));
        CheckFinding::note("selectors", text).then("replace one of each two by a deployment with another selector")
    })
}

/// Machines with a VM, and sets, without an owner.
pub(super) fn owners(machines: &ByName<Machine>, sets: &ByName<MachineSet>) -> Option<CheckFinding> {
    let next = "kubectl delete machines.machine.sapcloud.io NAME deletes the VM; a set or deployment that selects an object adopts it";
    ownerless(machines, sets).map(|text| CheckFinding::note("owners", text).then(next))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_two_deployments_that_share_machines_are_named() {
        let deployment = |pool: &str| -> MachineDeployment {
            let labels = json!({"pool": pool});
            let spec = json!({"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}}});
            serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap()
        };
        let all = |pools: [(&str, &str); 3]| -> ByName<MachineDeployment> {
            pools
                .map(|(name, pool)| {
                    let mut deployment = deployment(pool);
                    deployment.metadata.name = Some(name.to_owned());
                    (name.to_owned(), deployment)
                })
                .into()
        };
        let text = selectors(&all([("a", "x"), ("b", "y"), ("c", "x")])).unwrap().text;
        assert!(text.ends_with("keep apart: a and c"), "{text}");
        assert_eq!(selectors(&all([("a", "x"), ("b", "y"), ("c", "z")])), None);
    }
}
