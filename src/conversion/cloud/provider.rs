//! The description of an infrastructure provider of another project.

use serde_json::Value;

use crate::{
    answers::{TemplateQuestion, UserAnswers},
    cloud::cluster_fields::ClusterField,
    report::ConversionReport,
};
use mcm_api::kinds::{INFRASTRUCTURE_GROUP, ResourceKind};

/// Path of the spec of a machine in a template.
pub const MACHINE_SPEC: &str = "spec.template.spec";

/// An infrastructure provider whose cloud has a driver.
pub struct InfrastructureProvider {
    /// Its kinds.
    pub kinds: ProviderKinds,
    /// The `providerSpec` of a template.
    pub(super) to_native: fn(&ProviderTemplate<'_>, &mut ConversionReport) -> Value,
    /// The spec of the machines of a pool, from the spec of the pool.
    pub(super) of_pool: fn(&Value, &mut ConversionReport) -> Value,
    /// Path of the description of a machine in a pool.
    pub(super) pool_path: &'static str,
    /// Fields of a machine whose few texts have other counterparts, each with these texts.
    pub choices: &'static [(&'static str, &'static [&'static str])],
    /// Fields of the infrastructure of a cluster, by its kind.
    pub(super) cluster_fields: &'static [(&'static str, &'static [ClusterField])],
    /// The spec of a machine with this `providerSpec`.
    pub(super) to_capi: fn(&Value, &mut ConversionReport) -> Value,
    /// True if the cloud may stop a VM with this `providerSpec` at any time.
    pub is_interruptible: fn(&Value) -> bool,
    /// The subnet of a VM determines its zone.
    pub zone_is_of_subnet: bool,
    /// Provider IDs of its VMs.
    pub ids: IdForms,
}

/// The kinds of a provider, in the API group `infrastructure.cluster.x-k8s.io`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProviderKinds {
    /// Name of the driver in `MachineClass.provider`.
    pub driver: &'static str,
    /// API version of the kinds.
    pub version: &'static str,
    /// Older versions whose fields have the same names and meanings.
    pub older: &'static [&'static str],
    /// Kind of the infrastructure of a cluster.
    pub cluster: KindName,
    /// Kind of the control plane that the cloud manages, which then describes the network of the cluster; empty if none is read.
    pub managed: &'static str,
    /// Kind of the infrastructure of a machine.
    pub machine: KindName,
    /// Kind of the templates of machines.
    pub template: KindName,
    /// Kind of the pools of machines.
    pub pool: KindName,
}

/// The names of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KindName {
    /// The kind, such as `AWSMachine`.
    pub kind: &'static str,
    /// Its plural in paths of the API.
    pub plural: &'static str,
}

/// The role of a kind in its provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProviderRole {
    /// Infrastructure of a cluster.
    Cluster,
    /// Infrastructure of a machine.
    Machine,
    /// Template of machines.
    Template,
    /// Pool of machines.
    Pool,
}

impl ProviderRole {
    /// All roles.
    pub const ALL: [Self; 4] = [Self::Cluster, Self::Machine, Self::Template, Self::Pool];
}

impl ProviderKinds {
    /// This version of the kinds can be read.
    pub fn reads(&self, version: &str) -> bool {
        version == self.version || self.older.contains(&version)
    }

    /// The kind with a role.
    pub const fn with_role(&self, role: ProviderRole) -> ResourceKind {
        let KindName { kind, plural } = match role {
            ProviderRole::Cluster => self.cluster,
            ProviderRole::Machine => self.machine,
            ProviderRole::Template => self.template,
            ProviderRole::Pool => self.pool,
        };
        ResourceKind::custom(INFRASTRUCTURE_GROUP, self.version, kind, plural)
    }
}

/// A template of machines, and its surroundings.
pub struct ProviderTemplate<'a> {
    /// Its name.
    pub name: &'a str,
    /// The spec of a machine.
    pub machine_spec: &'a Value,
    /// Path of that spec in the object.
    pub path: &'a str,
    /// Name of the Cluster.
    pub cluster_name: &'a str,
    /// Infrastructure of the cluster; null if it is not among the objects.
    pub cluster: &'a Value,
    /// Failure domains of the deployments and sets that use the template, each once; an empty text for owners without one.
    pub zones: &'a [String],
    /// Version of Kubernetes; empty if it is not known.
    pub version: &'a str,
    /// Values that the template leaves to its provider.
    pub answers: &'a UserAnswers,
    /// It belongs to a worker class, which serves any Cluster.
    pub is_of_class: bool,
}

impl ProviderTemplate<'_> {
    /// The answer of the user for this template.
    pub fn answer(&self, question: TemplateQuestion) -> Option<&str> {
        self.answers.get(question, self.name)
    }

    /// The remedy if the infrastructure of the cluster, of this kind, lacks a value.
    pub fn advice_for(&self, kind: &str) -> String {
        match self.is_of_class {
            true => format!("add the {kind}Template of the ClusterClass to the objects, and set the region in it"),
            false => format!("add the {kind} to the objects"),
        }
    }

    /// The zone, if there is only one.
    pub fn zone(&self) -> Option<&str> {
        match self.zones {
            [zone] => Some(zone.as_str()).filter(|zone| !zone.is_empty()),
            _ => None,
        }
    }
}

/// Provider IDs of the VMs of a cloud, in the form of the driver and in that of Nodes.
pub struct IdForms {
    /// Scheme of both forms, such as `aws://`.
    pub scheme: &'static str,
    /// The form of the driver, from that of the Node and the `providerSpec` of the class, which may say what is missing in it.
    pub to_native: fn(&str, &Value) -> String,
    /// The form of the Node, from that of the driver. `None` if it needs a zone that is not known or not in the region.
    pub to_node: fn(&str, Option<&str>) -> Option<String>,
    /// One text for all forms of the ID of a VM. IDs are compared by it.
    pub identity: fn(&str) -> String,
    /// Name of the VM in an ID, if the driver finds VMs by their names.
    pub vm_name: fn(&str) -> Option<&str>,
}
