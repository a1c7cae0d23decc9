//! The class of VMs, and whether it fits their zone.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta};
use kube::ResourceExt;

use crate::object::{conditions::ConditionVerdict, view::ObjectView};
use mcm_api::{
    machine::{ClassContent, ClassNodeTemplate, MachineClass, SecretRef},
    reasons::ProviderReason as Reason,
};
pub use mcm_conversion::{
    content_in_zone, content_of,
    types::{ClassRef, ClassZones, MCMCluster, NodeInfo},
    zone_of,
};

/// Accelerators under the name of the native kinds. No Node has such a resource.
const GPU: &str = "gpu";

/// The class of VMs, usable or not.
pub(super) enum ClassResolution {
    /// It can be used.
    Usable {
        /// Name of the MachineClass.
        name: String,
        /// Its content.
        content: Box<ClassContent>,
        /// It has to be created from the object first.
        is_inline: bool,
    },
    /// It cannot be used.
    Problem(ConditionVerdict),
}

/// The description of VMs by an infrastructure object.
pub(super) struct VmDescription<'a> {
    /// The class that it names.
    pub named: &'a ClassRef,
    /// The content of a class in the object itself, with its changes by zone, and the name of the class that is created from it.
    pub inline: Option<(String, &'a ClassContent, &'a ClassZones)>,
    /// The required zone of the VMs; empty for any.
    pub zone: &'a str,
    /// The infrastructure of the Cluster.
    pub infrastructure: &'a ObjectView<MCMCluster>,
    /// The named class in that zone.
    pub class: &'a ObjectView<MachineClass>,
}

/// The name of a class in a zone.
pub(crate) fn in_zone(named: &ClassRef, zone: &str, infrastructure: &ObjectView<MCMCluster>) -> String {
    let domains = infrastructure.known().map(|infrastructure| infrastructure.spec.failure_domains.as_slice());
    let domain = domains.unwrap_or_default().iter().find(|domain| domain.name == zone);
    let other = domain.and_then(|domain| domain.machine_class_overrides.get(&named.name));
    other.unwrap_or(&named.name).clone()
}

impl VmDescription<'_> {
    /// The class of the VMs.
    pub(super) fn resolve(&self) -> ClassResolution {
        let zone = self.zone;
        let (name, content, is_inline) = match &self.inline {
            Some((name, content, zones)) if zones.contains_key(zone) => {
                let content = Box::new(content_in_zone(content, zones, zone));
                return ClassResolution::Usable { name: name.clone(), content, is_inline: true };
            }
            Some((name, content, _)) => (name.clone(), ClassContent::clone(content), true),
            None => match self.named() {
                Ok(class) => (class.name_any(), content_of(&class), false),
                Err(problem) => return ClassResolution::Problem(problem),
            },
        };
        if !zone.is_empty() && zone_of(Some(&content)).as_deref() != Some(zone) {
            let advice = match is_inline {
                true => {
                    "list that zone in zones of the template, or use one whose machineClass is in that zone".to_owned()
                }
                false if self.infrastructure.known().is_none() => "use a template with a class of that zone".to_owned(),
                false => format!(
                    "name a class of that zone in spec.failureDomains[].machineClassOverrides[{name}] of the MCMCluster"
                ),
            };
            let text = format!("class {name} is not in failure domain {zone} of the Machine: {advice}");
            return ClassResolution::Problem(ConditionVerdict::no(Reason::FailureDomainUnavailable, text));
        }
        ClassResolution::Usable { name, content: Box::new(content), is_inline }
    }

    fn named(&self) -> Result<Arc<MachineClass>, ConditionVerdict> {
        if matches!(self.infrastructure, ObjectView::Unknown) {
            return Err(ConditionVerdict::no(Reason::Unreadable, "the MCMCluster cannot be read"));
        }
        let name = in_zone(self.named, self.zone, self.infrastructure);
        match self.class {
            ObjectView::Present(class) => Ok(Arc::clone(class)),
            ObjectView::Missing => Err(ConditionVerdict::no(
                Reason::ClassMissing,
                format!("MachineClass {name} does not exist: create it"),
            )),
            ObjectView::Unknown => {
                Err(ConditionVerdict::no(Reason::Unreadable, format!("MachineClass {name} cannot be read")))
            }
        }
    }
}

/// The class for a description in an object itself. Its credentials are those of the description, or of the cluster.
pub(super) fn described(
    metadata: ObjectMeta,
    content: &ClassContent,
    infrastructure: &ObjectView<MCMCluster>,
) -> MachineClass {
    let of_cluster = || {
        let cluster = infrastructure.known()?;
        let name = cluster.spec.credentials_secret_ref.as_ref()?.name.clone();
        Some(SecretRef { name, namespace: cluster.namespace().unwrap_or_default() })
    };
    let content = content.clone();
    let credentials_secret_ref = content.credentials_secret_ref.or_else(of_cluster);
    MachineClass::with_content(metadata, None, ClassContent { credentials_secret_ref, ..content })
}

/// Resources and kind of a Node of a class, for an autoscaler that scales from zero.
pub(super) fn resources_of(template: &ClassNodeTemplate) -> (BTreeMap<String, Quantity>, NodeInfo) {
    let mut capacity = template.capacity.clone();
    capacity.remove(GPU);
    capacity.extend(template.virtual_capacity.clone());
    let node_info = NodeInfo { architecture: template.architecture.clone().unwrap_or_default(), ..NodeInfo::default() };
    (capacity, node_info)
}
