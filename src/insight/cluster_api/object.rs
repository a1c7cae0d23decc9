//! Objects of Cluster API and of its provider, with the fields that a verdict needs. Absent fields have their defaults, so that
//! objects of every version and provider are read.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::core::ApiResource;
use serde::{Deserialize, de::IgnoredAny};

use mcm_api::kinds::{self, ResourceKind};
use mcm_conversion::types::names;

/// A kind of Cluster API or of its provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Cluster,
    MachineDeployment,
    MachineSet,
    Machine,
    MachinePool,
    MCMCluster,
    MCMMachine,
    MCMMachinePool,
}

impl Kind {
    /// All kinds, in the order in which they are read.
    pub const ALL: [Self; 8] = [
        Self::Cluster,
        Self::MachineDeployment,
        Self::MachineSet,
        Self::Machine,
        Self::MachinePool,
        Self::MCMCluster,
        Self::MCMMachine,
        Self::MCMMachinePool,
    ];

    /// Its entry in the catalogue.
    pub const fn entry(self) -> ResourceKind {
        match self {
            Self::Cluster => kinds::CLUSTERS,
            Self::MachineDeployment => kinds::CAPI_MACHINE_DEPLOYMENTS,
            Self::MachineSet => kinds::CAPI_MACHINE_SETS,
            Self::Machine => kinds::CAPI_MACHINES,
            Self::MachinePool => kinds::MACHINE_POOLS,
            Self::MCMCluster => kinds::MCM_CLUSTERS,
            Self::MCMMachine => kinds::MCM_MACHINES,
            Self::MCMMachinePool => kinds::MCM_MACHINE_POOLS,
        }
    }

    /// Its name, as in objects.
    pub const fn name(self) -> &'static str {
        self.entry().name
    }

    /// Its API group.
    pub const fn group(self) -> &'static str {
        self.entry().group
    }

    /// A kind of `machine.sapcloud.io` has the same name.
    const fn is_shared(self) -> bool {
        matches!(self, Self::MachineDeployment | Self::MachineSet | Self::Machine)
    }

    /// Its name in the plural, as in URLs.
    pub const fn plural(self) -> &'static str {
        self.entry().plural
    }

    /// The kind of a word, as kubectl takes it: singular, plural or short, with or without its group. Names that
    /// `machine.sapcloud.io` also has mean its kinds, unless the group is given.
    pub fn from_word(word: &str) -> Option<Self> {
        let word = word.to_ascii_lowercase();
        let (name, group) = word.split_once('.').unwrap_or((&word, ""));
        // With a version, such as machines.v1beta2.cluster.x-k8s.io.
        let group = ["v1beta1.", "v1beta2."].iter().find_map(|version| group.strip_prefix(version)).unwrap_or(group);
        Self::ALL.into_iter().find(|kind| {
            let is_short = kind.entry().short_names.contains(&name);
            let is_meant = if group.is_empty() { is_short || !kind.is_shared() } else { group == kind.group() };
            is_meant && kind.entry().is_named(name)
        })
    }

    /// How `mcm why` and kubectl take an object of it.
    pub fn argument(self, name: &str) -> String {
        let kind = self.name().to_lowercase();
        if self.is_shared() { format!("{kind}.{}/{name}", self.group()) } else { format!("{kind}/{name}") }
    }

    /// For requests.
    pub fn resource(self) -> ApiResource {
        self.entry().api_resource()
    }
}

/// An object of any of these kinds.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct CapiObject {
    pub metadata: ObjectMeta,
    pub spec: CapiSpec,
    pub status: CapiStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CapiSpec {
    pub cluster_name: String,
    pub paused: Option<bool>,
    pub replicas: Option<i32>,
    /// Of Clusters and Machines.
    pub infrastructure_ref: CapiReference,
    /// Of Clusters.
    pub control_plane_ref: CapiReference,
    /// Of Clusters: present with a ClusterClass, which makes the control plane.
    pub topology: Option<IgnoredAny>,
    /// Of Machines.
    pub bootstrap: CapiBootstrap,
    /// Of MachinePools.
    pub template: CapiTemplate,
    #[serde(rename = "providerID")]
    pub provider_id: String,
    pub deletion: MachineDeletionSpec,
}

/// A reference in the namespace of the object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct CapiReference {
    pub kind: String,
    pub name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CapiBootstrap {
    pub config_ref: CapiReference,
    pub data_secret_name: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct CapiTemplate {
    pub spec: TemplateSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TemplateSpec {
    pub infrastructure_ref: CapiReference,
    pub bootstrap: CapiBootstrap,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MachineDeletionSpec {
    /// 0 for no limit.
    pub node_drain_timeout_seconds: i32,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CapiStatus {
    pub phase: String,
    pub node_ref: CapiReference,
    /// Of MachinePools.
    pub node_refs: Vec<CapiReference>,
    /// Of MCMMachines: the MCM Machine.
    pub machine_ref: CapiReference,
    pub initialization: InitializationStatus,
    pub replicas: i32,
    pub available_replicas: i32,
    pub up_to_date_replicas: i32,
    pub deletion: DeletionStatus,
    /// Conditions of v1beta2.
    pub conditions: Vec<CapiCondition>,
    pub deprecated: DeprecatedStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct InitializationStatus {
    /// Of Clusters.
    pub infrastructure_provisioned: bool,
    /// Of Clusters.
    pub control_plane_initialized: bool,
    /// Of infrastructure.
    pub provisioned: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DeletionStatus {
    pub node_drain_start_time: Option<Time>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct DeprecatedStatus {
    v1beta1: V1Beta1Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct V1Beta1Status {
    conditions: Vec<CapiCondition>,
}

/// A condition of either version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CapiCondition {
    #[serde(rename = "type")]
    pub type_: String,
    pub status: String,
    pub reason: String,
    pub message: String,
    pub last_transition_time: Option<Time>,
}

impl CapiCondition {
    pub fn is_true(&self) -> bool {
        self.status == "True"
    }

    /// Its message, or else its reason, in one line.
    pub fn text(&self) -> String {
        let words: Vec<&str> = self.message.split_whitespace().filter(|word| *word != "*").collect();
        if words.is_empty() { self.reason.clone() } else { words.join(" ") }
    }
}

/// Types of v1beta1 that v1beta2 calls otherwise.
const RENAMED: [(&str, &str); 1] = [("BootstrapConfigReady", "BootstrapReady")];
/// Types that are True while something is under way.
const UNDER_WAY: [&str; 7] =
    ["Deleting", "Paused", "Remediating", "RollingOut", "ScalingDown", "ScalingUp", "Updating"];

impl CapiObject {
    /// Its name.
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// A condition, of v1beta2 or else of v1beta1.
    pub fn condition(&self, type_: &str) -> Option<&CapiCondition> {
        let former = RENAMED.iter().find(|(known, _)| *known == type_).map_or(type_, |(_, former)| former);
        let deprecated = &self.status.deprecated.v1beta1.conditions;
        find(&self.status.conditions, type_).or_else(|| find(deprecated, former))
    }

    /// A condition that is not True.
    pub fn lacks(&self, type_: &str) -> Option<&CapiCondition> {
        self.condition(type_).filter(|one| !one.is_true())
    }

    /// The conditions that are not as they should be, with their version. Those of v1beta1 that repeat another are left out.
    pub fn notable(&self) -> Vec<(&'static str, &CapiCondition)> {
        let is_notable = |one: &&CapiCondition| one.is_true() == UNDER_WAY.contains(&one.type_.as_str());
        let mut found: Vec<_> = self.status.conditions.iter().filter(is_notable).map(|one| ("v1beta2", one)).collect();
        let is_told = |former: &CapiCondition| {
            let current = RENAMED.iter().find(|(_, known)| *known == former.type_).map_or("", |(current, _)| current);
            let mut all = self.status.conditions.iter();
            all.any(|one| one.type_ == former.type_ || one.type_ == current || one.message == former.message)
        };
        let former = self.status.deprecated.v1beta1.conditions.iter().filter(|one| is_notable(one) && !is_told(one));
        found.extend(former.map(|one| ("v1beta1", one)));
        found
    }

    /// The name of its Cluster.
    pub fn cluster_name(&self) -> &str {
        let label = || self.metadata.labels.as_ref()?.get(names::CLUSTER_NAME).map(String::as_str);
        Some(self.spec.cluster_name.as_str()).filter(|name| !name.is_empty()).or_else(label).unwrap_or_default()
    }

    /// The name of its owner of a kind.
    pub fn owner(&self, kind: &str) -> Option<&str> {
        let owners = self.metadata.owner_references.as_ref()?;
        owners.iter().find(|owner| owner.kind == kind).map(|owner| owner.name.as_str())
    }

    pub fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// True if an annotation pauses it.
    pub fn has_pause(&self) -> bool {
        self.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(names::PAUSED))
    }

    pub fn is_control_plane(&self) -> bool {
        self.metadata.labels.as_ref().is_some_and(|all| all.contains_key(names::CONTROL_PLANE))
    }

    /// Since when it has been in its state: its deletion, the last change of `Ready` or `Available`, or its creation.
    pub fn since(&self) -> Option<Timestamp> {
        let changed =
            ["Ready", "Available"].iter().find_map(|type_| self.condition(type_)?.last_transition_time.clone());
        let deleted = self.metadata.deletion_timestamp.clone();
        deleted.or(changed).or_else(|| self.metadata.creation_timestamp.clone()).map(|time| time.0)
    }

    /// When its drain is given up.
    pub fn drain_ends(&self) -> Option<Timestamp> {
        let limit = self.spec.deletion.node_drain_timeout_seconds;
        let started = self.status.deletion.node_drain_start_time.as_ref().filter(|_| limit > 0)?;
        started.0.checked_add(SignedDuration::from_secs(i64::from(limit))).ok()
    }
}

fn find<'a>(conditions: &'a [CapiCondition], type_: &str) -> Option<&'a CapiCondition> {
    conditions.iter().find(|one| one.type_ == type_)
}
