use k8s_openapi::api::core::v1::NodeAddress;

/// A VM as the driver returns it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Vm {
    /// Its ID; equals `spec.providerID` of its Node.
    pub provider_id: String,
    /// Name of the Node it becomes.
    pub node_name: String,
    /// Its addresses.
    pub addresses: Vec<NodeAddress>,
    /// State of the driver, passed back with the next call; `None` keeps the stored one.
    pub last_known_state: Option<String>,
}
