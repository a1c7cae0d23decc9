//! The hybrid way: the provider of the cloud keeps network and control plane, and mcm has the workers. Deployments, sets and
//! pools stay objects of Cluster API and refer to templates of mcm, whose classes are made from those of the other provider.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::{
    cloud::{self, provider::ProviderRole},
    input::{ConversionInput, SourceDocument},
    options::ConversionOptions,
    report::{ConversionReport, ObjectConversion},
};
use crate::types::{
    CONTROL_PLANE_GROUP, CORE_GROUP, ClassRef, INFRASTRUCTURE_GROUP, MCMMachinePool, MCMMachinePoolSpec,
    MCMMachineSpec, MCMMachineTemplate, MCMMachineTemplateSpec, TemplateResource, names,
};

/// The API version of the kinds of mcm.
pub(super) const VERSION: &str = "infrastructure.cluster.x-k8s.io/v1beta2";
const REFERENCE: &str = "/spec/template/spec/infrastructureRef";

/// An object is an owner of workers: its machines can be those of another infrastructure provider.
pub(super) fn has_workers(document: &SourceDocument<'_>) -> bool {
    document.group == CORE_GROUP && ["MachineDeployment", "MachineSet", "MachinePool"].contains(&document.kind)
}

/// A kind is a template or pool of another provider.
pub(super) fn is_foreign(kind: &str) -> bool {
    cloud::provider_of(kind, ProviderRole::Template).is_some() || cloud::provider_of_pool(kind).is_some()
}

/// The owner of workers refers to a template or pool of another provider.
pub(super) fn refers_to_other(document: &SourceDocument<'_>) -> bool {
    has_workers(document) && reference_of(document).is_some_and(|(kind, _)| is_foreign(kind))
}

/// The object stays with its provider: it belongs to the network, the control plane, the bootstrap data or the add-ons of a
/// cluster.
pub(super) fn stays(document: &SourceDocument<'_>) -> bool {
    match document.group {
        "bootstrap.cluster.x-k8s.io" | CONTROL_PLANE_GROUP | "addons.cluster.x-k8s.io" => true,
        INFRASTRUCTURE_GROUP => !document.kind.starts_with("MCM"),
        "" => document.kind == "ConfigMap",
        _ => false,
    }
}

/// An object other than an owner of workers refers to this one, such as a control plane to its template. The worker classes
/// of a ClusterClass are owners of workers.
pub(super) fn is_kept_by_others(document: &SourceDocument<'_>, input: &ConversionInput<'_>) -> bool {
    let others = input.documents.iter().filter(|one| one.namespace == document.namespace && !has_workers(one));
    let fields = others.flat_map(|one| {
        let all = one.value["spec"].as_object().into_iter().flatten();
        all.filter(|(name, _)| one.kind != "ClusterClass" || *name != "workers")
    });
    fields.map(|(_, field)| field).any(|field| refers(field, document.kind, document.name))
}

/// A value has a reference to an object, at any depth.
fn refers(value: &Value, kind: &str, name: &str) -> bool {
    match value {
        Value::Object(fields) => {
            (value["kind"] == kind && value["name"] == name) || fields.values().any(|one| refers(one, kind, name))
        }
        Value::Array(items) => items.iter().any(|one| refers(one, kind, name)),
        _ => false,
    }
}

/// A Cluster among the objects has a control plane of a provider.
pub(super) fn keeps_control_plane(input: &ConversionInput<'_>, namespace: &str) -> bool {
    let mut clusters = input.documents.iter().filter(|one| one.group == CORE_GROUP && one.kind == "Cluster");
    clusters.any(|one| one.namespace == namespace && has_control_plane(one.value))
}

/// A Cluster has a control plane of a provider.
pub(super) fn has_control_plane(cluster: &Value) -> bool {
    cluster["spec"]["controlPlaneRef"]["name"].as_str().is_some_and(|name| !name.is_empty())
}

/// A health check is only for the control plane.
pub(super) fn is_for_control_plane(check: &Value) -> bool {
    check["spec"]["selector"]["matchLabels"].get(names::CONTROL_PLANE).is_some()
}

/// The owner of workers, as it was given, with a reference to the kind of mcm.
pub(super) fn moved(
    document: &SourceDocument<'_>,
    given: &Value,
    input: &ConversionInput<'_>,
    report: &mut ConversionReport,
) -> ObjectConversion {
    let Some((kind, name)) = reference_of(document) else { return ObjectConversion::default() };
    if input.find(INFRASTRUCTURE_GROUP, kind, document.namespace, name).is_none() {
        report.refuse(path(), format!("{kind} {name} is not among the objects"), "add it");
    }
    let mut object = given.clone();
    let zoned = match document.kind {
        "MachinePool" => "/spec/failureDomains",
        _ => "/spec/template/spec/failureDomain",
    };
    if cloud::zone_is_of_subnet(kind) {
        let (above, field) = zoned.rsplit_once('/').unwrap_or_default();
        if object.pointer_mut(above).and_then(Value::as_object_mut).and_then(|fields| fields.remove(field)).is_some() {
            report.lose(
                zoned.replace('/', ".").trim_start_matches('.'),
                "the subnet of the class determines the zone",
                "",
            );
        }
    }
    if let Some(Value::Object(reference)) = object.pointer_mut(REFERENCE) {
        reference.insert("kind".to_owned(), json!(kind_for(kind)));
        if reference.contains_key("apiVersion") {
            reference.insert("apiVersion".to_owned(), json!(VERSION));
        }
    }
    vec![object].into()
}

/// The class of a template or pool of another provider, and the object of mcm that refers to it under the same name.
pub(super) fn made(
    document: &SourceDocument<'_>,
    input: &ConversionInput<'_>,
    options: &ConversionOptions,
    report: &mut ConversionReport,
) -> ObjectConversion {
    let Some(class) = cloud::class_of(document, input, &options.answers, report) else {
        return ObjectConversion::default();
    };
    let class = cloud::with_credentials(class, options, "", report);
    let named = ClassRef { name: document.name.to_owned() };
    let metadata = ObjectMeta { labels: class.metadata.labels.clone(), ..class.metadata.clone() };
    let object = if kind_for(document.kind) == "MCMMachinePool" {
        let spec = MCMMachinePoolSpec { machine_class_ref: named, ..MCMMachinePoolSpec::default() };
        serde_json::to_value(MCMMachinePool { metadata, spec, status: None })
    } else {
        let spec = MCMMachineSpec { machine_class_ref: named, ..MCMMachineSpec::default() };
        let template = TemplateResource { spec, ..TemplateResource::default() };
        serde_json::to_value(MCMMachineTemplate { metadata, spec: MCMMachineTemplateSpec { template }, status: None })
    };
    [serde_json::to_value(class), object].into_iter().flatten().collect::<Vec<_>>().into()
}

fn kind_for(kind: &str) -> &'static str {
    if cloud::provider_of_pool(kind).is_some() { "MCMMachinePool" } else { "MCMMachineTemplate" }
}

fn reference_of<'a>(document: &SourceDocument<'a>) -> Option<(&'a str, &'a str)> {
    let reference = document.value.pointer(REFERENCE).filter(|one| one["apiGroup"] == INFRASTRUCTURE_GROUP)?;
    Some((reference["kind"].as_str()?, reference["name"].as_str()?))
}

fn path() -> String {
    REFERENCE.trim_start_matches('/').replace('/', ".")
}
