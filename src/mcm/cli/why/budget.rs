//! The drains that a disruption budget blocks.

use anyhow::{Context, Result};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::{Api, ResourceExt, api::ListParams};

use mcm_api::kinds::POD_DISRUPTION_BUDGETS;
use mcm_controllers::machine::DrainReason;
use mcm_insight::{
    budget::BudgetState,
    budget_reader,
    error::UsageError,
    read_only::ReadOnly,
    reader,
    story::{MACHINE, NamespaceFacts, ObjectAnswer, ObjectVerdict},
};
use mcm_rules::plan::SubjectRef;

/// The name of a budget, or `NAMESPACE/NAME`, in `pdb/NAME`.
pub(super) fn name_of(wanted: &str) -> Option<&str> {
    let (kind, name) = wanted.split_once('/')?;
    POD_DISRUPTION_BUDGETS.is_named(&kind.to_ascii_lowercase()).then_some(name)
}

/// The drains that a budget of the target cluster blocks.
///
/// # Errors
/// There is no such budget, or it cannot be read.
pub(super) async fn answer(cell: &ReadOnly, facts: &NamespaceFacts, wanted: &str) -> Result<ObjectAnswer> {
    let budget = find(cell, wanted).await?;
    let client = cell.target.as_ref().unwrap_or(&cell.control);
    let budget = budget_reader::state(client, &budget).await.context("read the pods of the budget")?;
    let drained = facts.machines.iter().filter(|(_, machine)| {
        DrainReason::for_machine(machine).is_some()
            && machine.node_name().is_some_and(|node| budget.nodes.contains(node))
    });
    let machines: Vec<ObjectAnswer> = match budget.allowed {
        0 => drained.map(|(name, _)| facts.answer(&facts.subject(MACHINE, name))).collect(),
        _ => Vec::new(),
    };
    let is_never = budget.allowed == 0 && budget.is_never();
    let never = if is_never { ". It can never allow one" } else { "" };
    let object = SubjectRef {
        kind: "PodDisruptionBudget".to_owned(),
        namespace: budget.namespace.clone(),
        name: budget.name.clone(),
    };
    let of_machines = machines.iter().map(|machine| machine.verdict).max();
    let own = if is_never { ObjectVerdict::Blocked } else { ObjectVerdict::Waiting };
    let verdict = of_machines.map_or(ObjectVerdict::Settled, |of_machines| own.max(of_machines));
    let BudgetState { allowed, healthy, expected, desired, .. } = &budget;
    let health =
        budget.shortage().unwrap_or_else(|| format!("{healthy} of {expected} pods are healthy, {desired} have to be"));
    let state = format!("allows {allowed} disruptions: {health}{never}");
    Ok(ObjectAnswer { machines, ..ObjectAnswer::new(object, verdict, state, Vec::new()) })
}

async fn find(cell: &ReadOnly, wanted: &str) -> Result<PodDisruptionBudget> {
    let client = cell.target.clone().unwrap_or_else(|| cell.control.clone());
    let (api, name): (Api<PodDisruptionBudget>, &str) = match wanted.split_once('/') {
        Some((namespace, name)) => (Api::namespaced(client, namespace), name),
        None => (Api::all(client), wanted),
    };
    let params = ListParams::default().fields(&format!("metadata.name={name}"));
    let found = reader::pages(&api, params).await.context("read the target cluster")?;
    let names: Vec<String> =
        found.iter().map(|one| format!("pdb/{}/{}", one.namespace().unwrap_or_default(), one.name_any())).collect();
    let mut found = found.into_iter();
    match (found.next(), found.next()) {
        (Some(budget), None) => Ok(budget),
        (Some(_), Some(_)) => Err(UsageError {
            message: format!("several namespaces have a PodDisruptionBudget {name}"),
            hint: format!("name one: {}", names.join(", ")),
        }
        .into()),
        (None, _) => Err(UsageError {
            message: format!("there is no PodDisruptionBudget {wanted} in the target cluster"),
            hint: "kubectl get pdb -A lists them, with the kubeconfig of the target cluster".to_owned(),
        }
        .into()),
    }
}
