use k8s_openapi::{api::core::v1::NodeAddress, apimachinery::pkg::apis::meta::v1::Time};
use kube::{CustomResource, core::ObjectMeta};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ClassSpec, NodeTemplate, schema};
use crate::{
    GoDuration, labels,
    node::NodeCondition,
    sharing::SharedValue,
    wire::{is_zero, null_as_default},
};

/// API group of infrastructure providers for Cluster API, as `apiVersion` begins.
pub const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io/";

/// One VM and its Node.
#[expect(clippy::duplicated_attributes, reason = "each column says its type")]
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "machine.sapcloud.io",
    version = "v1alpha1",
    kind = "Machine",
    plural = "machines",
    singular = "machine",
    shortname = "mc",
    category = "mcm",
    namespaced,
    status = "MachineStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "Machine is one VM at a cloud provider and the Node it becomes.",
    printcolumn(
        name = "Status",
        type_ = "string",
        json_path = ".status.currentStatus.phase",
        description = "Phase of the machine."
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "Time since the machine object was created."
    ),
    printcolumn(
        name = "Node",
        type_ = "string",
        json_path = ".metadata.labels.node",
        description = "Node backed by the machine."
    ),
    printcolumn(
        name = "ProviderID",
        type_ = "string",
        json_path = ".spec.providerID",
        priority = 1,
        description = "ID of the VM at the cloud provider."
    ),
    printcolumn(
        name = "Class",
        type_ = "string",
        json_path = ".spec.class.name",
        priority = 1,
        description = "MachineClass of the machine."
    ),
    printcolumn(
        name = "Last Operation",
        type_ = "string",
        json_path = ".status.lastOperation.description",
        priority = 1,
        description = "Last operation on the VM, and what it waits for."
    )
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::machine_rules()))]
pub struct MachineSpec {
    /// The class that describes the VM.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub class: ClassSpec,
    /// ID of the VM at the cloud provider. Written once, when the VM exists; empty means that no VM is known.
    #[serde(rename = "providerID", default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub provider_id: String,
    /// Labels, annotations and taints of the Node.
    // Equal in all Machines of a set.
    #[serde(rename = "nodeTemplate", default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub node_template: SharedValue<NodeTemplate>,
    /// Timeouts and health rules of this Machine. The controller's flags are the defaults.
    #[serde(flatten)]
    pub configuration: MachineConfiguration,
}

/// Timeouts and health rules. The controller's flags are the defaults.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineConfiguration {
    /// How long a drain may take before it is forced, e.g. `2h`.
    #[serde(rename = "drainTimeout", default, skip_serializing_if = "Option::is_none")]
    pub drain_timeout: Option<GoDuration>,
    /// How long a Machine may be Unknown before it becomes Failed and is replaced, e.g. `10m`.
    #[serde(rename = "healthTimeout", default, skip_serializing_if = "Option::is_none")]
    pub health_timeout: Option<GoDuration>,
    /// How long creation and joining the cluster may take before the Machine becomes Failed, e.g. `20m`.
    #[serde(rename = "creationTimeout", default, skip_serializing_if = "Option::is_none")]
    pub creation_timeout: Option<GoDuration>,
    /// How long an in-place update may take, e.g. `20m`.
    #[serde(rename = "inPlaceUpdateTimeout", default, skip_serializing_if = "Option::is_none")]
    pub in_place_update_timeout: Option<GoDuration>,
    /// How long a preserved Machine is kept, e.g. `96h`.
    #[serde(rename = "machinePreserveTimeout", default, skip_serializing_if = "Option::is_none")]
    pub machine_preserve_timeout: Option<GoDuration>,
    /// If true, an unhealthy Machine stays Unknown and does not become Failed.
    #[serde(rename = "disableHealthTimeout", default, skip_serializing_if = "Option::is_none")]
    pub disable_health_timeout: Option<bool>,
    /// For how many periods of 20 seconds a pod is evicted before it is deleted.
    #[serde(rename = "maxEvictRetries", default, skip_serializing_if = "Option::is_none")]
    pub max_evict_retries: Option<i32>,
    /// Comma-separated Node condition types that make the Machine unhealthy unless they are False. Replaces the
    /// controller's default list.
    #[serde(rename = "nodeConditions", default, skip_serializing_if = "Option::is_none")]
    pub node_conditions: Option<String>,
}

/// Status of a Machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineStatus {
    /// Addresses of the VM; only without a target cluster.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<NodeAddress>,
    /// Conditions of the Node, as last seen.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<NodeCondition>,
    /// The last operation on the Machine. During a deletion its description stores the progress.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub last_operation: LastOperation,
    /// The phase, and when it began.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub current_status: CurrentStatus,
    /// State of the driver, passed back with the next call.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub last_known_state: String,
}

/// The last operation on a Machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastOperation {
    /// Message for people; during a deletion it ends with the next step.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub description: String,
    /// Code of the driver's error, such as `ResourceExhausted`.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub error_code: String,
    /// When the operation was last updated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
    /// State of the operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<OperationState>,
    /// Type of the operation.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub type_: Option<OperationType>,
}

/// The phase of a Machine, and when it began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CurrentStatus {
    /// The phase.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub phase: MachinePhase,
    /// Whether a timeout applies in this phase.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "is_zero")]
    pub timeout_active: bool,
    /// When the phase began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
    /// When the preservation of a failed Machine ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preserve_expiry_time: Option<Time>,
}

/// An enum of strings that other programs also write. An unknown string is kept.
macro_rules! texts {
    ($(#[$meta:meta])* $name:ident { $($variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(from = "String", into = "String")]
        #[expect(missing_docs, reason = "the names are the API")]
        pub enum $name { $($variant,)+ Other(String) }

        impl $name {
            /// The exact string.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $text,)+
                    Self::Other(text) => text,
                }
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                match text.as_str() {
                    $($text => Self::$variant,)+
                    _ => Self::Other(text),
                }
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> Self {
                value.as_str().to_owned()
            }
        }

        impl JsonSchema for $name {
            // A plain string, as in the reference, which lists no values.
            fn schema_name() -> std::borrow::Cow<'static, str> { stringify!($name).into() }
            fn inline_schema() -> bool { true }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string" })
            }
        }
    };
}

texts! {
    /// Phase of a Machine. The empty phase means that no VM was created yet.
    MachinePhase {
        New = "", Pending = "Pending", Available = "Available", Running = "Running", Terminating = "Terminating",
        Unknown = "Unknown", Failed = "Failed", CrashLoopBackOff = "CrashLoopBackOff",
        InPlaceUpdating = "InPlaceUpdating", InPlaceUpdateSuccessful = "InPlaceUpdateSuccessful",
        InPlaceUpdateFailed = "InPlaceUpdateFailed",
    }
}

texts! {
    /// State of an operation.
    OperationState { Processing = "Processing", Failed = "Failed", Successful = "Successful" }
}

texts! {
    /// Type of an operation.
    OperationType {
        Create = "Create", Update = "Update", InPlaceUpdate = "InPlaceUpdate", DrainNode = "DrainNode",
        HealthCheck = "HealthCheck", Delete = "Delete",
    }
}

#[expect(clippy::derivable_impls, reason = "the macro has no place for it")]
impl Default for MachinePhase {
    fn default() -> Self {
        Self::New
    }
}

impl Machine {
    /// The phase; empty if there is no status.
    pub fn phase(&self) -> MachinePhase {
        self.status.as_ref().map(|status| status.current_status.phase.clone()).unwrap_or_default()
    }

    /// Terminating, by its phase or its deletion timestamp.
    pub fn is_terminating(&self) -> bool {
        self.metadata.deletion_timestamp.is_some() || self.phase() == MachinePhase::Terminating
    }

    /// It counts as available.
    pub fn is_available(&self) -> bool {
        matches!(self.phase(), MachinePhase::Running | MachinePhase::Available) && !self.is_terminating()
    }

    /// Name of the Secret with its own user data, if it has some.
    pub fn user_data_secret(&self) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(labels::USER_DATA_SECRET).map(String::as_str)
    }

    /// It has the VM of an object of Cluster API, so it never decides that a VM exists or may go.
    pub fn is_infrastructure(&self) -> bool {
        let owners = self.metadata.owner_references.iter().flatten();
        owners.filter(|owner| owner.controller == Some(true)).any(|owner| owner.api_version.starts_with(INFRASTRUCTURE))
    }

    /// It is one of the provider for Cluster API, of an infrastructure object or of a pool of them.
    pub fn is_of_cluster_api(&self) -> bool {
        let own = self.metadata.labels.as_ref();
        self.is_infrastructure() || own.is_some_and(|own| own.contains_key(labels::POOL))
    }

    /// `clusterctl move` waits for it, because its VM may be under creation.
    pub fn blocks_move(&self) -> bool {
        self.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(labels::BLOCK_MOVE))
    }

    /// Zone of its VM, if the cloud reported it. Only Machines of the provider for Cluster API note it.
    pub fn vm_zone(&self) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(labels::VM_ZONE).map(String::as_str)
    }

    /// `spec.providerID` of its Node, if the driver reported one that differs from its own. Only Machines of the provider for
    /// Cluster API note it.
    pub fn node_provider_id(&self) -> Option<&str> {
        let noted = self.metadata.annotations.as_ref()?.get(labels::NODE_PROVIDER_ID)?;
        Some(noted.as_str()).filter(|id| !id.is_empty())
    }

    /// Name of its Node; `None` before the VM was created.
    pub fn node_name(&self) -> Option<&str> {
        node_name(&self.metadata)
    }
}

/// [`Machine::node_name`] of a Machine of which only the metadata can be decoded.
pub fn node_name(meta: &ObjectMeta) -> Option<&str> {
    meta.labels.as_ref()?.get(labels::NODE).map(String::as_str).filter(|name| !name.is_empty())
}
