use std::sync::Arc;

use kube::ResourceExt;

use super::{owner, text::cut};
use mcm_api::machine::{Machine, MachineSummary, OperationState};

/// Longest `status.failedMachines`.
pub(crate) const MOST_FAILED: usize = 50;
/// Longest text of another program in the status of a set or deployment, in bytes.
pub(crate) const LONGEST_TEXT: usize = 2048;

/// The entries of `status.failedMachines`, the first ones by name: Machines whose last operation failed, except preserved ones.
pub(crate) fn failed_machines<'a>(machines: impl IntoIterator<Item = &'a Arc<Machine>>) -> Vec<MachineSummary> {
    let mut failed: Vec<&Machine> =
        machines.into_iter().map(Arc::as_ref).filter(|machine| has_failed(machine)).collect();
    failed.sort_by(|one, other| one.metadata.name.cmp(&other.metadata.name));
    failed.into_iter().take(MOST_FAILED).filter_map(summary_of).collect()
}

fn has_failed(machine: &Machine) -> bool {
    let operation = machine.status.as_ref().map(|status| &status.last_operation);
    operation.is_some_and(|operation| operation.state == Some(OperationState::Failed)) && !machine.is_preserved_failed()
}

fn summary_of(machine: &Machine) -> Option<MachineSummary> {
    let mut last_operation = machine.status.as_ref()?.last_operation.clone();
    last_operation.description = cut(&last_operation.description, LONGEST_TEXT);
    Some(MachineSummary {
        name: machine.name_any(),
        provider_id: machine.spec.provider_id.clone(),
        last_operation,
        owner_ref: owner::controller_of(&machine.metadata).map(|owner| owner.name.clone()).unwrap_or_default(),
    })
}
