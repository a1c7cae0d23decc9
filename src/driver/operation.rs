//! The names of driver calls.

use serde::{Deserialize, Serialize};

/// The cloud calls of [`Driver`](super::interface::Driver), as named in metrics, deadlines, faults and statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DriverOperation {
    /// [`create`](super::Driver::create).
    Create,
    /// [`initialize`](super::Driver::initialize).
    Initialize,
    /// [`delete`](super::Driver::delete).
    Delete,
    /// [`status`](super::Driver::status).
    Status,
    /// [`list`](super::Driver::list).
    List,
    /// [`volume_ids`](super::Driver::volume_ids).
    VolumeIds,
    /// [`register`](super::Driver::register).
    Register,
    /// [`deregister`](super::Driver::deregister).
    Deregister,
    /// [`capacity`](super::Driver::capacity).
    Capacity,
}

impl DriverOperation {
    /// The exact name, also when serialized.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Initialize => "initialize",
            Self::Delete => "delete",
            Self::Status => "status",
            Self::List => "list",
            Self::VolumeIds => "volumeIds",
            Self::Register => "register",
            Self::Deregister => "deregister",
            Self::Capacity => "capacity",
        }
    }

    /// The value of the label `operation` in metrics; the reference's drivers write all but the last three.
    pub const fn metric_label(self) -> &'static str {
        match self {
            Self::Create => "create_machine",
            Self::Initialize => "initialize_machine",
            Self::Delete => "delete_machine",
            Self::Status => "get_machine_status",
            Self::List => "list_machine",
            Self::VolumeIds => "get_volume_ids",
            Self::Register => "register_member",
            Self::Deregister => "deregister_member",
            Self::Capacity => "get_capacity",
        }
    }
}

impl std::fmt::Display for DriverOperation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(DriverOperation::Create, "create", "create_machine")]
    #[case(DriverOperation::Initialize, "initialize", "initialize_machine")]
    #[case(DriverOperation::Delete, "delete", "delete_machine")]
    #[case(DriverOperation::Status, "status", "get_machine_status")]
    #[case(DriverOperation::List, "list", "list_machine")]
    #[case(DriverOperation::VolumeIds, "volumeIds", "get_volume_ids")]
    #[case(DriverOperation::Register, "register", "register_member")]
    #[case(DriverOperation::Deregister, "deregister", "deregister_member")]
    #[case(DriverOperation::Capacity, "capacity", "get_capacity")]
    fn an_operation_has_one_name_and_the_label_of_the_reference(
        #[case] operation: DriverOperation,
        #[case] name: &str,
        #[case] label: &str,
    ) {
        assert_eq!((operation.as_str(), operation.metric_label()), (name, label));
        assert_eq!(serde_json::to_value(operation).unwrap(), name);
    }
}
