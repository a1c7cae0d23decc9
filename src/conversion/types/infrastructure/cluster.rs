use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{super::machine::MachineMeta, schema, status::Provisioning};
use mcm_api::{load_balancer::LoadBalancer, wire::is_zero};

/// Spec of an MCMCluster.
#[expect(clippy::duplicated_attributes, reason = "each column says its type")]
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1beta2",
    kind = "MCMCluster",
    plural = "mcmclusters",
    singular = "mcmcluster",
    category = "cluster-api",
    namespaced,
    status = "MCMClusterStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "MCMCluster is the infrastructure of a Cluster beyond its machines: its endpoint and its failure domains.",
    printcolumn(
        name = "Cluster",
        type_ = "string",
        json_path = ".metadata.labels['cluster\\.x-k8s\\.io/cluster-name']",
        description = "Cluster to which it belongs."
    ),
    printcolumn(
        name = "Provisioned",
        type_ = "boolean",
        json_path = ".status.initialization.provisioned",
        description = "Whether the infrastructure of the cluster is complete."
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status",
        description = "Whether all conditions hold."
    ),
    printcolumn(
        name = "Endpoint",
        type_ = "string",
        json_path = ".spec.controlPlaneEndpoint.host",
        description = "Host of the API server."
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "Time since the object was created."
    )
)]
#[serde(default, rename_all = "camelCase")]
pub struct MCMClusterSpec {
    /// Address of the API server of the cluster. If it is empty, it must be set in the Cluster.
    #[serde(skip_serializing_if = "is_zero")]
    pub control_plane_endpoint: Endpoint,
    /// An existing load balancer, whose members mcm changes: the VM of each control plane machine is registered before its
    /// Machine is provisioned, and deregistered before the VM is deleted. Nothing else of it is created or changed. After a
    /// change of this field the VMs are registered in the new load balancer and then deregistered from the old one. An empty
    /// ARN, name or ID is no load balancer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::load_balancer")]
    pub control_plane_load_balancer: Option<LoadBalancer>,
    /// When the VM of a control plane machine is registered in the load balancer. `BeforeJoin` (default): before its Machine
    /// is provisioned, so before kubeadm joins the cluster through the load balancer. `AfterNode`: the first machine before
    /// it is provisioned, each further one once its Node and its API server run. Passthrough load balancers of Google Cloud
    /// need it: they return the connections of a member to the member itself, whose API server does not run before the join.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::registration")]
    pub control_plane_registration: Option<ControlPlaneRegistration>,
    /// Zones over which machines are spread.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("maxItems" = 100, "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub failure_domains: Vec<FailureDomain>,
    /// Secret with credentials for the cloud, in the same namespace, for machines that describe their VM (`machineClass`) and
    /// name no Secret themselves. It must exist. A MachineClass names its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials_secret_ref: Option<ClusterSecretRef>,
}

/// When the VM of a control plane machine is registered in the load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ControlPlaneRegistration {
    /// Before the Machine is provisioned.
    BeforeJoin,
    /// After the Node of the Machine and its API server run, except for the first machine of a cluster.
    AfterNode,
}

/// Address of an API server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Endpoint {
    /// Host name or IP address.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(schema_with = "schema::host")]
    pub host: String,
    /// Port.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(schema_with = "schema::port")]
    pub port: i32,
}

impl Endpoint {
    /// Host and port are known.
    pub fn is_complete(&self) -> bool {
        !self.host.is_empty() && self.port > 0
    }
}

/// A zone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["name"]))]
pub struct FailureDomain {
    /// Name of the zone, as in `spec.failureDomain` of a Machine.
    #[schemars(schema_with = "schema::domain_name")]
    pub name: String,
    /// Whether machines of the control plane may be in the zone.
    #[serde(skip_serializing_if = "is_zero")]
    pub control_plane: bool,
    /// Further properties of the zone.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
    /// MachineClasses for machines of this zone, by the name of the class that a machine names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub machine_class_overrides: BTreeMap<String, String>,
}

/// Name of a Secret in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["name"]))]
pub struct ClusterSecretRef {
    /// Name of the Secret.
    #[schemars(schema_with = "schema::class_name")]
    pub name: String,
}

/// Status of an MCMCluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct MCMClusterStatus {
    /// One-time results of the initialization.
    #[serde(skip_serializing_if = "is_zero")]
    pub initialization: Provisioning,
    /// Zones over which the control plane and machines are spread.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("maxItems" = 100, "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub failure_domains: Vec<ReportedFailureDomain>,
    /// Conditions; `Ready` summarizes the others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("maxItems" = 32, "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// A zone, as Cluster API reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = ["name"]))]
pub struct ReportedFailureDomain {
    /// Its name.
    #[schemars(schema_with = "schema::domain_name")]
    pub name: String,
    /// Whether machines of the control plane may be in the zone.
    pub control_plane: bool,
    /// Further properties of the zone.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
}

/// Spec of an MCMClusterTemplate.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1beta2",
    kind = "MCMClusterTemplate",
    plural = "mcmclustertemplates",
    singular = "mcmclustertemplate",
    category = "cluster-api",
    namespaced,
    derive = "Default",
    derive = "PartialEq",
    doc = "MCMClusterTemplate is the template of the MCMClusters of a ClusterClass."
)]
#[serde(default)]
#[schemars(extend("required" = ["template"]))]
pub struct MCMClusterTemplateSpec {
    /// The template.
    pub template: ClusterResource,
}

/// The template of an MCMCluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("required" = ["spec"]))]
pub struct ClusterResource {
    /// Labels and annotations of each MCMCluster.
    #[serde(skip_serializing_if = "is_zero")]
    pub metadata: MachineMeta,
    /// Spec of each MCMCluster.
    pub spec: MCMClusterSpec,
}
