//! The description of the VM: an MCMMachineTemplate or MCMMachine and a Secret with bootstrap data on the side of
//! Cluster API, a MachineClass and its Secret natively.
//!
//! The bootstrap Secret of a class has a fixed name, so a class whose Secret has that name needs no copy. For any other
//! Secret a class is derived natively. Its name has a hash of its content: a change of the content leads to a new
//! class, and so to a rollout.

pub mod bootstrap;
mod class;
mod noted;

use serde_json::Value;

use super::{
    cloud,
    notes::ConversionNotes,
    options::InfrastructureChoice,
    report::{ConversionReport, ObjectConversion},
    template::{TemplateLocation, TemplateOwner, class_spec},
};
use crate::types::{Bootstrap, INFRASTRUCTURE_GROUP, MCMMachineSpec, MachineSpec, NodeMeta, ObjectRef, names};
use bootstrap::{USER_DATA, VALUE, bootstrap_secret_of, data_secret_name, has_data_of, user_data_of};
use class::derived_class;
use mcm_api::machine::{ClassContent, ClassSpec, MachineClass};
use noted::{NotedInfrastructure, infrastructure_object, kind_of, object_of, plain};

pub use class::{content_in_zone, content_of, named, zone_of};

/// Where the object of a bootstrap provider is noted.
const CONFIG_REF: &str = "spec.bootstrap.configRef";

/// The objects that a machine of Cluster API refers to.
#[derive(Debug, Default)]
pub struct ReferencedInfrastructure {
    pub class: ClassSpec,
    pub node: NodeMeta,
    /// ID of the VM in the infrastructure object.
    pub provider_id: String,
    /// `providerSpec` of the class; null if the class is not among the objects.
    pub provider_spec: Value,
    /// A derived class and its Secret.
    pub objects: Vec<Value>,
}

/// Resolves the references of a machine of Cluster API.
pub fn to_native(
    spec: &MachineSpec,
    place: &TemplateLocation<'_>,
    notes: &mut ConversionNotes,
    report: &mut ConversionReport,
) -> ReferencedInfrastructure {
    let (at, namespace, input) = (place.prefix(), place.namespace, place.input);
    let data_secret_name = data_secret_name(&spec.bootstrap, place, report);
    if spec.bootstrap.config_ref != ObjectRef::default() {
        notes.note(&format!("{at}{CONFIG_REF}"), &spec.bootstrap.config_ref);
    }
    let reference = &spec.infrastructure_ref;
    let Some((noted, inner)) = infrastructure_object(reference, place, report) else {
        return ReferencedInfrastructure::default();
    };
    let mut found = ReferencedInfrastructure {
        node: inner.node_template.clone(),
        provider_id: inner.provider_id.clone(),
        ..ReferencedInfrastructure::default()
    };
    let by_name = inner.machine_class_ref.name.as_str();
    let content = match (&inner.machine_class, by_name) {
        (Some(_), name) if !name.is_empty() => {
            let reason = format!("{} has both machineClass and machineClassRef", reference.name);
            report.refuse(format!("{at}spec.infrastructureRef"), reason, "keep one of them");
            return found;
        }
        (None, "") => {
            let reason = format!("{} names no class", reference.name);
            report.refuse(format!("{at}spec.infrastructureRef"), reason, "set machineClassRef or machineClass");
            return found;
        }
        (Some(content), _) => Some(content_in_zone(content, &inner.zones, &spec.failure_domain)),
        (None, name) => input.class(namespace, name).as_ref().map(content_of),
    };
    found.provider_spec = content.as_ref().map(|content| content.provider_spec.clone()).unwrap_or_default();
    // A class that is not among the objects is taken to have a Secret.
    let is_plain = inner.machine_class.is_none()
        && data_secret_name == bootstrap_secret_of(by_name)
        && has_data_of(input.class(namespace, by_name).as_ref(), &data_secret_name, place, report);
    let name = if is_plain {
        by_name.to_owned()
    } else {
        let Some(content) = &content else {
            let reason = format!("MachineClass {by_name} is needed with another Secret and is not among the objects");
            let advice = format!("add the class, or name the Secret {}", bootstrap_secret_of(by_name));
            report.refuse(format!("{at}spec.bootstrap.dataSecretName"), reason, advice);
            return found;
        };
        let base = if by_name.is_empty() { &reference.name } else { by_name };
        let name = noted.derived_name(content, base, &data_secret_name);
        let class = derived_class(name, content, reference, namespace, &data_secret_name);
        found.objects.push(serde_json::to_value(&class).unwrap_or_default());
        match bootstrap::to_native(&data_secret_name, place, report) {
            Some(secret) => found.objects.push(secret),
            None => report.lose(
                format!("{at}spec.bootstrap.dataSecretName"),
                format!("no readable Secret {data_secret_name} is among the objects"),
                format!("create Secret {} with its value as {USER_DATA}", user_data_of(&data_secret_name)),
            ),
        }
        class.metadata.name.unwrap_or_default()
    };
    // The subnet of a template of another provider determines the zone.
    if noted.foreign.is_none() && !inner.zones.contains_key(&spec.failure_domain) {
        check_zone(spec, content.as_ref(), at, report);
    }
    if inner.creation_timeout_seconds.is_some() {
        let reason = format!("creationTimeoutSeconds of {} has no MCM counterpart", reference.name);
        report.lose(format!("{at}spec.infrastructureRef"), reason, "the health check determines creationTimeout");
    }
    let noted = NotedInfrastructure {
        data_secret_name,
        failure_domain: spec.failure_domain.clone(),
        class: name.clone(),
        spec: inner.clone(),
        ..noted
    };
    let zone = zone_of(content.as_ref()).unwrap_or_default();
    if noted != plain(place, &name, &inner.node_template, &inner.provider_id, zone) {
        notes.note(&format!("{at}spec.infrastructureRef"), &noted);
    }
    found.class = class_spec(&name);
    found
}

/// Makes the infrastructure object and the bootstrap Secret for a native machine, and fills in `spec`. Returns the
/// objects, and the names of objects that were derived for this class and are no longer needed.
pub fn to_capi(
    class: &str,
    node: NodeMeta,
    spec: &mut MachineSpec,
    place: &TemplateLocation<'_>,
    notes: &mut ConversionNotes,
    report: &mut ConversionReport,
) -> ObjectConversion {
    let at = place.prefix();
    let known = place.input.class(place.namespace, class);
    let content = known.as_ref().map(content_of);
    let zone = zone_of(content.as_ref()).unwrap_or_default();
    let provider_id = spec.provider_id.clone();
    let mut made = plain(place, class, &node, &provider_id, zone);
    let mut outcome = ObjectConversion::default();
    if place.options.infrastructure == InfrastructureChoice::OfCloud && place.owner != TemplateOwner::Machine {
        made.foreign = known.as_ref().and_then(|class| foreign_of(class, place, at, report));
    }
    if let Some(noted) = notes.take::<NotedInfrastructure>(&format!("{at}spec.infrastructureRef")) {
        let was_derived = noted.spec.machine_class_ref.name != class;
        let is_same_class = noted.class == class
            && (!was_derived || known.as_ref().is_some_and(|known| noted.name_of(known) == class))
            && noted.foreign.as_ref().is_none_or(|foreign| cloud::is_foreign_in(foreign, place.namespace));
        if is_same_class {
            let is_same_node = noted.spec.node_template == node;
            let name =
                if is_same_node || place.owner == TemplateOwner::Machine { noted.name.clone() } else { made.name };
            let spec = MCMMachineSpec { provider_id: provider_id.clone(), node_template: node, ..noted.spec };
            made = NotedInfrastructure { name, spec, ..noted };
            if was_derived {
                outcome.superseded.push(("MachineClass", class.to_owned()));
                outcome.superseded.push(("Secret", user_data_of(&made.data_secret_name)));
            }
        } else {
            report.lose(
                format!("{at}spec.infrastructureRef"),
                format!("the class may have changed since it was made from {}", noted.name),
                "if it was not changed, add it to the objects",
            );
        }
    }
    if made.foreign.is_some() && made.spec.node_template != NodeMeta::default() {
        let reason = "other providers give the Node only labels in the domains of Cluster API, and taints";
        report.refuse(format!("{at}spec.nodeTemplate.metadata"), reason, "remove other labels and annotations");
    }
    outcome.objects.push(object_of(&made, place));
    spec.bootstrap = match notes.take::<ObjectRef>(&format!("{at}{CONFIG_REF}")) {
        Some(config_ref) => Bootstrap { config_ref, data_secret_name: None },
        None => {
            outcome.objects.extend(bootstrap_secret(known.as_ref(), &made.data_secret_name, place, report));
            Bootstrap { data_secret_name: Some(made.data_secret_name.clone()), ..Bootstrap::default() }
        }
    };
    spec.failure_domain = made.failure_domain.clone();
    let foreign = |pointer: &str| made.foreign.as_ref()?.pointer(pointer)?.as_str().map(str::to_owned);
    spec.infrastructure_ref = ObjectRef {
        api_group: INFRASTRUCTURE_GROUP.to_owned(),
        kind: foreign("/kind").unwrap_or_else(|| kind_of(place).to_owned()),
        name: foreign("/metadata/name").unwrap_or_else(|| made.name.clone()),
    };
    outcome
}

/// The bootstrap Secret of a class.
fn bootstrap_secret(
    class: Option<&MachineClass>,
    data_secret_name: &str,
    place: &TemplateLocation<'_>,
    report: &mut ConversionReport,
) -> Option<Value> {
    let made = bootstrap::to_capi(class, data_secret_name, place, report);
    if made.is_none() {
        let reason = format!(
            "Secret {data_secret_name} is not written, because the Secret of the class is not among the objects"
        );
        let advice = format!("create it with type {} and the bootstrap data as {VALUE}", names::SECRET_TYPE);
        report.lose(format!("{}spec.class", place.prefix()), reason, advice);
    }
    made
}

/// The template of a class for the provider of its cloud.
fn foreign_of(
    class: &MachineClass,
    place: &TemplateLocation<'_>,
    at: &str,
    report: &mut ConversionReport,
) -> Option<Value> {
    let mut problems = ConversionReport::new("MachineClass", class.metadata.name.as_deref().unwrap_or_default());
    let template = cloud::template_of(class, place.cluster, &mut problems);
    if !problems.refusals.is_empty() {
        report.refuse(format!("{at}spec.class"), "the class cannot be converted", "see its refusals");
    }
    template
}

fn check_zone(spec: &MachineSpec, content: Option<&ClassContent>, at: &str, report: &mut ConversionReport) {
    let wanted = &spec.failure_domain;
    if wanted.is_empty() || zone_of(content).as_ref() == Some(wanted) {
        return;
    }
    let reason = match (content, zone_of(content)) {
        (None, _) => "the class is not among the objects, so its zone is not known".to_owned(),
        (Some(_), None) => "the class has no nodeTemplate.zone".to_owned(),
        (Some(_), Some(zone)) => format!("the class is for zone {zone}"),
    };
    report.refuse(format!("{at}spec.failureDomain"), reason, format!("use a class whose zone is {wanted}"));
}
