use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One-time results of the initialization.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Provisioning {
    /// The infrastructure was complete once. It is never taken back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provisioned: Option<bool>,
}
