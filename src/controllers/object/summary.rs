use std::sync::Arc;

use kube::ResourceExt;

use super::owner;
use crate::api::machine::{Machine, MachineSummary, OperationState};

/// The entries of `status.failedMachines`, by name: Machines whose last operation failed, except preserved ones.
pub(crate) fn failed_machines<'a>(machines: impl IntoIterator<Item = &'a Arc<Machine>>) -> Vec<MachineSummary> {
    let mut failed: Vec<_> = machines.into_iter().filter_map(|machine| summary_of(machine)).collect();
    failed.sort_by(|one, other| one.name.cmp(&other.name));
    failed
}

fn summary_of(machine: &Machine) -> Option<MachineSummary> {
    let operation = &machine.status.as_ref()?.last_operation;
    if operation.state != Some(OperationState::Failed) || machine.is_preserved_failed() {
        return None;
    }
    Some(MachineSummary {
        name: machine.name_any(),
        provider_id: machine.spec.provider_id.clone(),
        last_operation: operation.clone(),
        owner_ref: owner::controller_of(&machine.metadata).map(|owner| owner.name.clone()).unwrap_or_default(),
    })
}
