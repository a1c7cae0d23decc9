//! The progress of a deletion. It is stored in `lastOperation.description`: the end of that text names the next step,
//! so that either implementation can continue where the other one stopped.

use mcm_api::machine::{Machine, MachinePhase};

/// The next step of a deletion, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DeletionProgress {
    /// Nothing is stored yet, or another controller wrote the text.
    Start,
    /// Find out which Node the Machine has.
    GetVmStatus,
    /// Drain the Node.
    Drain,
    /// Release volumes that a forced drain left attached.
    DetachVolumes,
    /// Delete the VM.
    DeleteVm,
    /// Delete the Node object.
    DeleteNode,
    /// Remove the finalizer.
    Release,
}

impl DeletionProgress {
    const STORED: [Self; 6] =
        [Self::GetVmStatus, Self::Drain, Self::DetachVolumes, Self::DeleteVm, Self::DeleteNode, Self::Release];

    /// Reads the status. Only the end of the text counts: the text before it may quote an error.
    pub(super) fn from_machine(machine: &Machine) -> Self {
        match &machine.status {
            Some(status) if status.current_status.phase == MachinePhase::Terminating => {
                Self::of_text(&status.last_operation.description)
            }
            _ => Self::Start,
        }
    }

    pub(super) fn of_text(description: &str) -> Self {
        let text = description.trim_end_matches(|c: char| c.is_whitespace() || c == '.');
        Self::STORED.into_iter().find(|step| text.ends_with(step.token())).unwrap_or(Self::Start)
    }

    /// Text of the step. Empty for [`Progress::Start`].
    pub(super) const fn token(self) -> &'static str {
        match self {
            Self::Start => "",
            Self::GetVmStatus => "Set machine status to termination. Now, getting VM Status",
            Self::Drain => "Initiate node drain",
            Self::DetachVolumes => "Delete Volume Attachments",
            Self::DeleteVm => "Initiate VM deletion",
            Self::DeleteNode => "Initiate node object deletion",
            Self::Release => "Initiate machine object finalizer removal",
        }
    }

    /// A text that ends with the name of this step.
    pub(super) fn after(self, story: &str) -> String {
        format!("{story}{}", self.token())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("Set machine status to termination. Now, getting VM Status", DeletionProgress::GetVmStatus)]
    #[case(
        "Error occurred with decoding machine error status while getting VM status, aborting with retry. Set machine status to termination. Now, getting VM Status",
        DeletionProgress::GetVmStatus
    )]
    #[case("VM was not found at provider. Moving forward to node drain. Initiate node drain", DeletionProgress::Drain)]
    #[case("Force Drain successful. Delete Volume Attachments", DeletionProgress::DetachVolumes)]
    #[case("Drain successful. Initiate VM deletion", DeletionProgress::DeleteVm)]
    #[case("VM deletion was successful. Initiate node object deletion ", DeletionProgress::DeleteNode)]
    #[case(
        "Deletion of Node Object \"n\" is successful. Initiate machine object finalizer removal.",
        DeletionProgress::Release
    )]
    #[case("Deleting machine from cloud provider", DeletionProgress::Start)]
    #[case("", DeletionProgress::Start)]
    #[case::quoted_tokens_do_not_divert(
        "VM deletion failed due to - Initiate node drain was refused. Aborting operation. Initiate VM deletion",
        DeletionProgress::DeleteVm
    )]
    #[case::a_token_in_the_middle_is_no_step("Initiate node drain went wrong", DeletionProgress::Start)]
    fn the_end_of_the_text_names_the_step(#[case] text: &str, #[case] expected: DeletionProgress) {
        assert_eq!(DeletionProgress::of_text(text), expected);
    }

    #[test]
    fn texts_count_only_in_phase_terminating() {
        let mut machine = Machine::new("m", mcm_api::machine::MachineSpec::default());
        let status = machine.status.get_or_insert_default();
        status.last_operation.description = DeletionProgress::Drain.after("");
        status.current_status.phase = MachinePhase::Running;
        assert_eq!(DeletionProgress::from_machine(&machine), DeletionProgress::Start);
        machine.status.get_or_insert_default().current_status.phase = MachinePhase::Terminating;
        assert_eq!(DeletionProgress::from_machine(&machine), DeletionProgress::Drain);
    }
}
