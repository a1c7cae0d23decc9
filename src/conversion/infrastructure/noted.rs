//! The infrastructure object of a machine of Cluster API, as noted on the native object.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    bootstrap::bootstrap_secret_of,
    class::{content_of, derived_name, named},
};
use crate::{
    cloud::{self, provider::ProviderRole},
    keys::{self, MetadataMap},
    metadata::{filled, namespace},
    report::ConversionReport,
    template::{TemplateLocation, TemplateOwner},
    types::{
        ClassRef, INFRASTRUCTURE_GROUP, MCMMachine, MCMMachineSpec, MCMMachineTemplate, MCMMachineTemplateSpec,
        MachineMeta, NodeMeta, ObjectRef, TemplateResource, names,
    },
};
use mcm_api::{
    machine::{ClassContent, MachineClass},
    wire::is_zero,
};

/// An infrastructure object of Cluster API as it was, so that it can be restored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NotedInfrastructure {
    pub name: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: MetadataMap,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: MetadataMap,
    #[serde(skip_serializing_if = "is_zero")]
    pub template_metadata: MachineMeta,
    pub spec: MCMMachineSpec,
    pub data_secret_name: String,
    #[serde(skip_serializing_if = "is_zero")]
    pub failure_domain: String,
    /// Name of the class that it became.
    pub class: String,
    /// The template, if it is that of another provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub foreign: Option<Value>,
}

impl NotedInfrastructure {
    /// The name that a class with this content would have been given.
    pub fn name_of(&self, class: &MachineClass) -> String {
        let by_name = &self.spec.machine_class_ref.name;
        let base = if by_name.is_empty() { &self.name } else { by_name };
        self.derived_name(&class.content(), base, &self.data_secret_name)
    }

    /// The name of a class that is derived from this object.
    pub fn derived_name(&self, content: &ClassContent, base: &str, data_secret_name: &str) -> String {
        let mut content = content.clone();
        if self.foreign.is_some() {
            // Templates of other providers have no credentials, so users add them to the class.
            content.credentials_secret_ref = None;
        }
        derived_name(&content, base, data_secret_name)
    }
}

pub const fn kind_of(place: &TemplateLocation<'_>) -> &'static str {
    match place.owner {
        TemplateOwner::Machine => "MCMMachine",
        TemplateOwner::Deployment | TemplateOwner::Set => "MCMMachineTemplate",
    }
}

/// The default infrastructure object of a class. Templates must not change, so their names have a hash.
pub fn plain(
    place: &TemplateLocation<'_>,
    class: &str,
    node: &NodeMeta,
    provider_id: &str,
    zone: String,
) -> NotedInfrastructure {
    let spec = MCMMachineSpec {
        provider_id: provider_id.to_owned(),
        machine_class_ref: ClassRef { name: class.to_owned() },
        node_template: node.clone(),
        ..MCMMachineSpec::default()
    };
    let name = match place.owner {
        TemplateOwner::Machine => place.name.to_owned(),
        TemplateOwner::Deployment | TemplateOwner::Set => {
            named(place.name, &serde_json::to_string(&spec).unwrap_or_default())
        }
    };
    let labels = if place.owner == TemplateOwner::Machine || place.cluster.is_empty() {
        MetadataMap::new()
    } else {
        [(names::CLUSTER_NAME.to_owned(), place.cluster.to_owned())].into()
    };
    NotedInfrastructure {
        name,
        labels,
        annotations: MetadataMap::new(),
        template_metadata: MachineMeta::default(),
        spec,
        data_secret_name: bootstrap_secret_of(class),
        failure_domain: zone,
        class: class.to_owned(),
        foreign: None,
    }
}

pub fn object_of(noted: &NotedInfrastructure, place: &TemplateLocation<'_>) -> Value {
    if let Some(foreign) = &noted.foreign {
        return foreign.clone();
    }
    let metadata = ObjectMeta {
        name: Some(noted.name.clone()),
        namespace: namespace(place.namespace),
        labels: filled(noted.labels.clone()),
        annotations: filled(noted.annotations.clone()),
        ..ObjectMeta::default()
    };
    let value = match place.owner {
        TemplateOwner::Machine => serde_json::to_value(MCMMachine { metadata, spec: noted.spec.clone(), status: None }),
        TemplateOwner::Deployment | TemplateOwner::Set => {
            let template = TemplateResource { metadata: noted.template_metadata.clone(), spec: noted.spec.clone() };
            serde_json::to_value(MCMMachineTemplate {
                metadata,
                spec: MCMMachineTemplateSpec { template },
                status: None,
            })
        }
    };
    value.unwrap_or_default()
}

/// The infrastructure object of a reference: its noted fields, and its spec.
pub fn infrastructure_object(
    reference: &ObjectRef,
    place: &TemplateLocation<'_>,
    report: &mut ConversionReport,
) -> Option<(NotedInfrastructure, MCMMachineSpec)> {
    let (namespace, input) = (place.namespace, place.input);
    let path = format!("{}spec.infrastructureRef", place.prefix());
    if reference.api_group == INFRASTRUCTURE_GROUP
        && cloud::provider_of(&reference.kind, ProviderRole::Template).is_some()
    {
        return foreign_template(reference, &path, place, report);
    }
    let kind = kind_of(place);
    if reference.api_group != INFRASTRUCTURE_GROUP || reference.kind != kind {
        let reason = format!("{} {} is not {kind}", reference.api_group, reference.kind);
        report.refuse(path, reason, "convert the template of the other provider to a MachineClass first");
        return None;
    }
    let Some(document) = input.find(INFRASTRUCTURE_GROUP, kind, namespace, &reference.name) else {
        let reason = format!("{kind} {} is not among the objects", reference.name);
        report.refuse(path, reason, "add it");
        return None;
    };
    let mut problems = ConversionReport::new(kind, &reference.name);
    let found = match place.owner {
        TemplateOwner::Machine => document
            .decode::<MCMMachine>(&mut problems)
            .map(|machine| (machine.metadata, MachineMeta::default(), machine.spec)),
        TemplateOwner::Deployment | TemplateOwner::Set => document
            .decode::<MCMMachineTemplate>(&mut problems)
            .map(|template| (template.metadata, template.spec.template.metadata, template.spec.template.spec)),
    };
    for refusal in problems.refusals {
        let reason = format!("{}: {} {}", refusal.object, refusal.path, refusal.reason);
        report.refuse(path.clone(), reason, refusal.advice);
    }
    let (meta, template_metadata, spec) = found?;
    let noted = NotedInfrastructure {
        name: reference.name.clone(),
        labels: keys::without_bookkeeping(meta.labels),
        annotations: keys::without_bookkeeping(meta.annotations),
        template_metadata,
        ..NotedInfrastructure::default()
    };
    Some((noted, spec))
}

/// A template of another provider, as if it were one with its class inside.
fn foreign_template(
    reference: &ObjectRef,
    path: &str,
    place: &TemplateLocation<'_>,
    report: &mut ConversionReport,
) -> Option<(NotedInfrastructure, MCMMachineSpec)> {
    let at = (place.namespace, path);
    let (class, foreign) = cloud::class_behind(reference, at, place.input, place.options, report)?;
    let noted =
        NotedInfrastructure { name: reference.name.clone(), foreign: Some(foreign), ..NotedInfrastructure::default() };
    Some((noted, MCMMachineSpec { machine_class: Some(content_of(&class)), ..MCMMachineSpec::default() }))
}
