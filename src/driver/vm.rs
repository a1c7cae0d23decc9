//! VMs as drivers return them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::NodeAddress;

/// A VM as the driver returns it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Vm {
    /// Its ID, as the Go driver of the cloud writes it.
    pub provider_id: String,
    /// `spec.providerID` of its Node as the cloud controller manager writes it, if it differs and cannot be computed from the
    /// ID and its class.
    pub node_provider_id: Option<String>,
    /// Name of the Node it becomes.
    pub node_name: String,
    /// The zone that the cloud reports for it, if known.
    pub zone: Option<String>,
    /// Its addresses.
    pub addresses: Vec<NodeAddress>,
    /// State of the driver, passed back with the next call; `None` keeps the stored one.
    pub last_known_state: Option<String>,
    /// The cloud's word for the state of a VM that exists and does not run, such as `stopped`; `None` if it runs, or the
    /// driver does not say.
    pub halted: Option<String>,
}

impl Vm {
    /// The VM as its creation returns it: its state describes the creation.
    #[must_use]
    pub fn as_created(self) -> Self {
        Self { last_known_state: Some(format!("Created {}", self.provider_id)), ..self }
    }
}

/// A VM in a list of the VMs of a class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedVm {
    /// Name of the Machine that it was created for.
    pub machine: String,
    /// Marker of its owner. VMs of the Go programs and of older versions have none.
    pub owner: Option<String>,
}

impl ListedVm {
    /// A VM with a marker; an empty text is no marker.
    pub fn new(machine: impl Into<String>, owner: Option<String>) -> Self {
        Self { machine: machine.into(), owner: owner.filter(|owner| !owner.is_empty()) }
    }

    /// A VM without a marker.
    pub fn unmarked(machine: impl Into<String>) -> Self {
        Self::new(machine, None)
    }
}

/// A list of VMs, by provider ID.
pub type VmsByProviderId = BTreeMap<String, ListedVm>;
