//! Reads the disruption budgets of the target cluster, and their pods.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use k8s_openapi::api::{
    core::v1::Pod,
    policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus},
};
use kube::{Api, Client, ResourceExt, api::ListParams, core::Selector};

use crate::{
    budget::BudgetState,
    read_only::ReadOnly,
    reader,
    story::{NamespaceFacts, budget_in},
};

/// The reason in a condition of a budget whose pods could not be counted, such as those without a controller.
const SYNC_FAILED: &str = "SyncFailed";
/// The most budgets that are read for the waits of a namespace.
const MOST: usize = 10;

/// A budget with its pods.
///
/// # Errors
/// The pods cannot be listed.
pub async fn state(target: &Client, budget: &PodDisruptionBudget) -> Result<BudgetState> {
    let Some(selector) = budget.spec.as_ref().and_then(|spec| spec.selector.clone()) else {
        return Ok(BudgetState::from_objects(budget, &[]));
    };
    let selector = Selector::try_from(selector).context("the selector of the budget")?;
    let pods: Api<Pod> = Api::namespaced(target.clone(), &budget.namespace().unwrap_or_default());
    let pods = reader::pages(&pods, ListParams::default().labels_from(&selector)).await?;
    Ok(BudgetState::from_objects(budget, &pods))
}

/// The budgets of a target cluster that allow no eviction now.
///
/// # Errors
/// Budgets or pods may not be listed.
pub async fn strict(target: &Client) -> Result<Vec<BudgetState>> {
    let mut found = Vec::new();
    for budget in reader::pages::<PodDisruptionBudget>(&Api::all(target.clone()), ListParams::default()).await? {
        let is_strict = |status: &PodDisruptionBudgetStatus| {
            let is_failed = status.conditions.iter().flatten().any(|one| one.reason == SYNC_FAILED);
            status.disruptions_allowed == 0 && (status.expected_pods > 0 || is_failed)
        };
        if budget.status.as_ref().is_some_and(is_strict) {
            found.push(state(target, &budget).await?);
        }
    }
    Ok(found)
}

/// The budgets that drains of the namespace wait for. One that cannot be read is left out: a wait names it in any case.
pub async fn awaited(cell: &ReadOnly, facts: &NamespaceFacts) -> BTreeMap<String, BudgetState> {
    let Some(target) = &cell.target else { return BTreeMap::new() };
    let mut found = BTreeMap::new();
    for (namespace, name) in names_in(facts).into_iter().take(MOST) {
        let budgets: Api<PodDisruptionBudget> = Api::namespaced(target.clone(), &namespace);
        let Ok(Some(budget)) = budgets.get_opt(&name).await else { continue };
        if let Ok(state) = state(target, &budget).await {
            found.insert(state.title(), state);
        }
    }
    found
}

/// Namespaces and names of the budgets that Machines show, or that a manager remembers.
fn names_in(facts: &NamespaceFacts) -> BTreeSet<(String, String)> {
    let statuses = facts.machines.values().filter_map(|machine| machine.status.as_ref());
    let shown = statuses.flat_map(|status| {
        let messages =
            status.conditions.iter().filter(|one| one.status == "True").filter_map(|one| one.message.as_deref());
        messages.chain([status.last_operation.description.as_str()])
    });
    let remembered = facts.memory.explained.iter().flat_map(|plan| &plan.waits).map(|wait| wait.text.as_str());
    let found = shown.chain(remembered).filter_map(budget_in);
    found.map(|(namespace, name)| (namespace.to_owned(), name.to_owned())).collect()
}
