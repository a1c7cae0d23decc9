//! The reason for which the Node of a Machine is drained.

use mcm_api::{
    labels,
    machine::{Machine, MachinePhase},
    reasons::InPlaceUpdateReason,
};

use crate::object::in_place;

/// The reason for which the Node of a Machine is drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainReason {
    /// The Machine is deleted.
    Deletion,
    /// The Node is updated in place.
    InPlaceUpdate,
    /// The Machine failed and is preserved.
    Preservation,
}

impl DrainReason {
    /// The reason for which the Node of this Machine is drained now; `None` if it is not drained. The conditions of the Machine are
    /// copies of those of its Node, so no Node is needed.
    pub fn for_machine(machine: &Machine) -> Option<Self> {
        machine.node_name()?;
        let status = machine.status.as_ref();
        if machine.is_terminating() {
            return Some(Self::Deletion);
        }
        let conditions = status.map(|status| status.conditions.as_slice()).unwrap_or_default();
        let is_selected = in_place::progress_of(conditions) == Some(InPlaceUpdateReason::SelectedForUpdate);
        if is_selected || machine.phase() == MachinePhase::InPlaceUpdating {
            return Some(Self::InPlaceUpdate);
        }
        let expiry = status.and_then(|status| status.current_status.preserve_expiry_time.as_ref());
        (machine.phase() == MachinePhase::Failed && expiry.is_some()).then_some(Self::Preservation)
    }

    /// The label of the Machine that forces this drain: its pods are deleted, and their budgets are ignored.
    pub const fn force_label(self) -> &'static str {
        match self {
            Self::Deletion => labels::FORCE_DELETION,
            Self::InPlaceUpdate | Self::Preservation => labels::FORCE_DRAIN,
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case::deleted(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), Some(DrainReason::Deletion))]
    #[case::selected_and_running(
        json!({"status": {"currentStatus": {"phase": "Running"}, "conditions": [
            {"type": "InPlaceUpdate", "status": "True", "reason": "SelectedForUpdate"}]}}),
        Some(DrainReason::InPlaceUpdate)
    )]
    #[case::drained_and_updated(
        json!({"status": {"currentStatus": {"phase": "Running"}, "conditions": [
            {"type": "InPlaceUpdate", "status": "True", "reason": "UpdateSuccessful"}]}}),
        None
    )]
    #[case::preserved(
        json!({"status": {"currentStatus": {"phase": "Failed", "preserveExpiryTime": "2026-01-01T00:00:00Z"}}}),
        Some(DrainReason::Preservation)
    )]
    #[case::preserved_and_healthy(
        json!({"status": {"currentStatus": {"phase": "Running", "preserveExpiryTime": "2026-01-01T00:00:00Z"}}}),
        None
    )]
    #[case::without_a_node(
        json!({"metadata": {"labels": {"node": ""}, "deletionTimestamp": "2026-01-01T00:00:00Z"}}),
        None
    )]
    fn a_drain_has_a_reason(#[case] more: Value, #[case] expected: Option<DrainReason>) {
        let mut machine = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": {"name": "m", "namespace": "n", "labels": {"node": "node-1"}}, "spec": {},
        });
        mcm_api::patch::apply(&mut machine, &more);
        let machine: Machine = serde_json::from_value(machine).unwrap();
        assert_eq!(DrainReason::for_machine(&machine), expected);
    }
}
