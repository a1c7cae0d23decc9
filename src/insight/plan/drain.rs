//! Obstacles of the drain of a machine that a later change deletes.

use kube::ResourceExt;

use super::{
    answer::{Action, BlockerSeverity, MachinePlan, ObjectPlan, Plan, PlanBlocker, PlanVerdict},
    obstacles,
};
use crate::{budget::BudgetState, budget_reader, error::error_line, read_only::ReadOnly, story::MACHINE};
use mcm_api::{GoDuration, machine::Machine};

/// Adds the budgets that hold the drain of a machine to the plan of one object.
pub async fn add_obstacles(cell: &ReadOnly, plan: &mut Plan, machine: &Machine) {
    let (Some(target), Some(object)) = (&cell.target, plan.objects.first_mut()) else { return };
    match budget_reader::strict(target).await {
        Ok(budgets) => {
            let mut found = of_machine(machine, &budgets, cell.settings.machine.drain_timeout);
            for remedy in found.iter_mut().flat_map(|one| &mut one.remedies) {
                remedy.command = cell.place.addressed(&remedy.command);
            }
            plan.blocked |= found.iter().any(|one| one.severity == BlockerSeverity::Blocks);
            object.blockers.extend(found);
        }
        Err(error) => {
            let (name, error) = (machine.name_any(), error_line(&error));
            plan.complete = false;
            plan.notes.push(format!("what is in the way of the drain of {name} is unknown: {error}"));
        }
    }
}

/// The budgets that hold the drain of a machine.
fn of_machine(machine: &Machine, budgets: &[BudgetState], default_timeout: GoDuration) -> Vec<PlanBlocker> {
    let (name, namespace) = (machine.name_any(), machine.namespace().unwrap_or_default());
    let deleted = MachinePlan { name: name.clone(), action: Action::Delete, step: None };
    let plan = ObjectPlan {
        machines: vec![deleted],
        ..ObjectPlan::without_effect(MACHINE, &namespace, &name, PlanVerdict::Deletes)
    };
    obstacles::of_budgets(&plan, budgets, &[machine], default_timeout)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::machine;

    #[rstest]
    #[case::of_its_pod("pool-84dff-a", Some(BlockerSeverity::Blocks))]
    #[case::of_a_pod_elsewhere("pool-84dff-b", None)]
    fn a_budget_that_never_allows_an_eviction_holds_the_drain(
        #[case] node: &str,
        #[case] expected: Option<BlockerSeverity>,
    ) {
        let budget = BudgetState {
            namespace: "demo".to_owned(),
            name: "strict".to_owned(),
            allowed: 0,
            healthy: 1,
            desired: 1,
            expected: 1,
            nodes: BTreeSet::from([node.to_owned()]),
            unready: Vec::new(),
            evicts_unready: false,
            amounts: Value::Null,
        };
        let (_, machine) = machine("pool-84dff", "a", "small", "Running", &json!({}));
        let found = of_machine(&machine, &[budget], GoDuration::from_secs(7200));
        assert_eq!(found.first().map(|one| one.severity), expected, "{found:?}");
    }
}
