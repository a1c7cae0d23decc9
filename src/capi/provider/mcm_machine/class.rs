//! Which class the VM has, and whether it fits the zone of the Machine.

use std::sync::Arc;

use kube::ResourceExt;

use super::Snapshot;
use crate::{
    api::machine::MachineClass,
    capi::{
        conversion::{content_of, zone_of},
        provider::{conditions::Desired, reasons, view::View},
        types::{InlineClass, MCMCluster, MCMMachine},
    },
};

/// The class of a VM, usable or not.
pub(super) enum Class {
    /// It can be used.
    Usable {
        /// Name of the MachineClass.
        name: String,
        /// Its content.
        content: Box<InlineClass>,
        /// It has to be created from the object first.
        is_inline: bool,
    },
    /// It cannot.
    Problem(Desired),
}

/// Name of the MachineClass that the object names, in the zone of its Machine; `None` if the object describes the VM.
pub(super) fn name_of(object: &MCMMachine, zone: &str, infrastructure: &View<MCMCluster>) -> Option<String> {
    if object.spec.machine_class.is_some() {
        return None;
    }
    let named = &object.spec.machine_class_ref.name;
    Some(in_zone(named, zone, infrastructure).unwrap_or_else(|| named.clone()))
}

fn in_zone(named: &str, zone: &str, infrastructure: &View<MCMCluster>) -> Option<String> {
    let domains = &infrastructure.known()?.spec.failure_domains;
    domains.iter().find(|domain| domain.name == zone)?.machine_class_overrides.get(named).cloned()
}

/// The class of the VM of an object.
pub(super) fn of(snapshot: &Snapshot) -> Class {
    let object = &snapshot.object;
    let zone = snapshot.zone();
    let (name, content, is_inline) = match &object.spec.machine_class {
        Some(content) => (object.name_any(), content.clone(), true),
        None => match named(snapshot, zone) {
            Ok(class) => (class.name_any(), content_of(&class), false),
            Err(problem) => return Class::Problem(problem),
        },
    };
    if !zone.is_empty() && zone_of(Some(&content)).as_deref() != Some(zone) {
        let advice = match is_inline {
            true => "use a template whose machineClass is in that zone".to_owned(),
            false => format!(
                "name a class of that zone in spec.failureDomains[].machineClassOverrides[{name}] of the MCMCluster"
            ),
        };
        let text = format!("class {name} is not in failure domain {zone} of the Machine: {advice}");
        return Class::Problem(Desired::no(reasons::FAILURE_DOMAIN_UNAVAILABLE, text));
    }
    Class::Usable { name, content: Box::new(content), is_inline }
}

fn named(snapshot: &Snapshot, zone: &str) -> Result<Arc<MachineClass>, Desired> {
    if matches!(snapshot.infrastructure, View::Unknown) {
        return Err(Desired::no(reasons::UNREADABLE, "the MCMCluster cannot be read"));
    }
    let name = name_of(&snapshot.object, zone, &snapshot.infrastructure).unwrap_or_default();
    match &snapshot.class {
        View::Present(class) => Ok(Arc::clone(class)),
        View::Missing => {
            Err(Desired::no(reasons::CLASS_MISSING, format!("MachineClass {name} does not exist: create it")))
        }
        View::Unknown => Err(Desired::no(reasons::UNREADABLE, format!("MachineClass {name} cannot be read"))),
    }
}

/// The cloud may take such a VM back at any time.
pub(super) fn is_interruptible(content: &InlineClass) -> bool {
    let spec = &content.provider_spec;
    // Fields of the classes of AWS and of GCP.
    let has_price = spec["spotPrice"].is_string();
    let is_preemptible = spec["scheduling"].as_array().into_iter().flatten().chain([&spec["scheduling"]]);
    has_price || is_preemptible.into_iter().any(|scheduling| scheduling["preemptible"] == true)
}
