//! Machine templates of other infrastructure providers, whose clouds have a native driver.

mod aws;
mod azure;
mod capacity;
pub mod cluster_fields;
mod equinix_metal;
mod fields;
mod gcp;
mod openstack;
mod placed;
pub mod provider;
pub mod provider_id;
mod vsphere;
mod yandex;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::{
    answers::UserAnswers,
    input::{ConversionInput, SourceDocument},
    keys::{self, KeyTreatment, MetadataMap},
    metadata::{filled, namespace},
    options::ConversionOptions,
    report::ConversionReport,
};
use crate::types::{CONTROL_PLANE_GROUP, CORE_GROUP, INFRASTRUCTURE_GROUP, ObjectRef, names};
use fields::UnreadFields;
use mcm_api::machine::{ClassContent, MachineClass, SecretRef};
use provider::{IdForms, InfrastructureProvider, MACHINE_SPEC, ProviderKinds, ProviderRole, ProviderTemplate};

/// All providers. Each is described beside its conversions.
pub const PROVIDERS: [&InfrastructureProvider; 2] = [&aws::PROVIDER, &gcp::PROVIDER];

/// The provider IDs of the clouds that have two forms of them.
const ID_FORMS: [&IdForms; 7] = [
    &aws::PROVIDER.ids,
    &azure::IDS,
    &equinix_metal::IDS,
    &gcp::PROVIDER.ids,
    &openstack::IDS,
    &vsphere::IDS,
    &yandex::IDS,
];

/// The provider that has a kind with this role.
pub fn provider_of(kind: &str, role: ProviderRole) -> Option<&'static InfrastructureProvider> {
    PROVIDERS.into_iter().find(|provider| provider.kinds.with_role(role).name == kind)
}

/// The provider that has this kind of pools.
pub fn provider_of_pool(kind: &str) -> Option<&'static InfrastructureProvider> {
    provider_of(kind, ProviderRole::Pool)
}

/// The provider of the cloud of a driver.
pub fn provider_of_driver(driver: &str) -> Option<&'static InfrastructureProvider> {
    PROVIDERS.into_iter().find(|provider| provider.kinds.driver == driver)
}

/// The provider whose infrastructure of a cluster, of this kind, has the network of a class that names none.
pub fn network_provider(cluster_kind: &str, content: &ClassContent) -> Option<&'static ProviderKinds> {
    let kinds = &aws::PROVIDER.kinds;
    let is_open = cluster_kind == kinds.cluster.kind && content.provider == kinds.driver;
    (is_open && aws::network::is_open(&content.provider_spec)).then_some(kinds)
}

/// The class in the network of that infrastructure.
///
/// # Errors
/// The text names the part that the infrastructure lacks.
pub fn with_network(content: &ClassContent, zone: &str, cluster: &Value) -> Result<ClassContent, String> {
    let provider_spec = aws::network::closed(&content.provider_spec, zone, cluster)?;
    Ok(ClassContent { provider_spec, ..content.clone() })
}

/// The cloud of a VM with this `providerSpec` may stop it at any time. The driver need not be known by its name.
pub fn is_interruptible(provider_spec: &Value) -> bool {
    PROVIDERS.into_iter().any(|provider| (provider.is_interruptible)(provider_spec))
}

/// The subnet of a VM determines its zone, so that a class without a zone is complete.
pub fn zone_is_of_subnet(kind: &str) -> bool {
    let provider = provider_of(kind, ProviderRole::Template).or_else(|| provider_of_pool(kind));
    provider.is_some_and(|provider| provider.zone_is_of_subnet)
}

/// The class of a template or pool. Its Secrets are not set.
pub fn class_of(
    document: &SourceDocument<'_>,
    input: &ConversionInput<'_>,
    answers: &UserAnswers,
    report: &mut ConversionReport,
) -> Option<MachineClass> {
    let provider = provider_for(document, report)?;
    let (machine_spec, path) = match provider_of_pool(document.kind) {
        None => (machine_spec_of(document, report), MACHINE_SPEC),
        Some(_) => ((provider.of_pool)(&document.value["spec"], report), provider.pool_path),
    };
    let users = TemplateUsers::for_template(document, input);
    let labelled = || Some(cluster_label(document.value)).filter(|name| !name.is_empty());
    let cluster_name = users.cluster.clone().or_else(labelled).or_else(|| only_cluster(document, input));
    let cluster_name = cluster_name.unwrap_or_default();
    if cluster_name.is_empty() {
        report.refuse("", "the cluster is not known", format!("label it with {}", names::CLUSTER_NAME));
    }
    let cluster = cluster_of(provider, document, &cluster_name, input);
    let template = ProviderTemplate {
        name: document.name,
        machine_spec: &machine_spec,
        path,
        cluster_name: &cluster_name,
        cluster: &cluster,
        zones: &users.zones,
        version: &users.version,
        answers,
        is_of_class: false,
    };
    let mut content = content_of(provider, &template, report);
    content.node_template = capacity::node_template(document.value, &template, &content.provider_spec);
    if content.node_template.is_none() && users.scales_from_zero {
        report.lose("status.capacity", capacity::UNKNOWN, capacity::ADVICE);
    }
    Some(MachineClass::with_content(metadata_of(document, report), None, content))
}

/// The provider of a template or pool. A version of its kind that is not known is refused.
pub fn provider_for(
    document: &SourceDocument<'_>,
    report: &mut ConversionReport,
) -> Option<&'static InfrastructureProvider> {
    let of_template = provider_of(document.kind, ProviderRole::Template);
    let provider = of_template.or_else(|| provider_of_pool(document.kind))?;
    if !provider.kinds.reads(document.version) {
        let advice = format!("use {}", provider.kinds.version);
        report.refuse("apiVersion", format!("{} is not known", document.version), advice);
        return None;
    }
    Some(provider)
}

/// The content of the class of a template, without credentials.
pub fn content_of(
    provider: &InfrastructureProvider,
    template: &ProviderTemplate<'_>,
    report: &mut ConversionReport,
) -> ClassContent {
    cluster_fields::check(template.cluster, provider.cluster_fields, report);
    ClassContent {
        provider: provider.kinds.driver.to_owned(),
        provider_spec: (provider.to_native)(template, report),
        node_template: None,
        credentials_secret_ref: None,
    }
}

/// The metadata of an object that is made from a template or pool.
pub fn metadata_of(document: &SourceDocument<'_>, report: &mut ConversionReport) -> ObjectMeta {
    let keys_of = |field: &str| serde_json::from_value(document.value["metadata"][field].clone()).unwrap_or_default();
    ObjectMeta {
        name: Some(document.name.to_owned()),
        namespace: namespace(document.namespace),
        labels: filled(copied("metadata.labels", keys_of("labels"), report)),
        annotations: filled(copied("metadata.annotations", keys_of("annotations"), report)),
        ..ObjectMeta::default()
    }
}

/// The class with the credentials of the options. Without them, their absence is reported.
pub fn with_credentials(
    class: MachineClass,
    options: &ConversionOptions,
    path: &str,
    report: &mut ConversionReport,
) -> MachineClass {
    let Some(secret) = &options.credentials else {
        report.lose(path, "the class has no credentials", "set credentialsSecretRef in the class");
        return class;
    };
    let namespace = class.metadata.namespace.clone().unwrap_or_default();
    let credentials_secret_ref = Some(SecretRef { name: secret.clone(), namespace });
    MachineClass { credentials_secret_ref, ..class }
}

/// The class of the template or pool of another provider that an object refers to at `path`, with its credentials, and that
/// template or pool without the fields that its provider writes.
pub fn class_behind(
    reference: &ObjectRef,
    at: (&str, &str),
    input: &ConversionInput<'_>,
    options: &ConversionOptions,
    report: &mut ConversionReport,
) -> Option<(MachineClass, Value)> {
    let ((namespace, path), kind) = (at, &reference.kind);
    let Some(document) = input.find(INFRASTRUCTURE_GROUP, kind, namespace, &reference.name) else {
        report.refuse(path, format!("{kind} {} is not among the objects", reference.name), "add it");
        return None;
    };
    // It has a separate report.
    let mut problems = ConversionReport::new(kind, &reference.name);
    let class = class_of(document, input, &options.answers, &mut problems)?;
    if !problems.refusals.is_empty() {
        report.refuse(path, format!("the {kind} cannot be converted"), "see its refusals");
    }
    Some((with_credentials(class, options, path, report), without_bookkeeping(document.value)))
}

/// `spec.template.spec` of a template. Other fields are refused or reported.
pub fn machine_spec_of(document: &SourceDocument<'_>, report: &mut ConversionReport) -> Value {
    let mut spec = UnreadFields::from_value("spec", document.value["spec"].clone(), report);
    let mut template = spec.object("template", report);
    let machine_spec = template.take("spec").unwrap_or_default();
    template.lose("metadata", report, "MCM ignores labels and annotations of the infrastructure object", "");
    template.finish(report);
    spec.finish(report);
    machine_spec
}

/// The template of a class, if its cloud has a provider.
pub fn template_of(class: &MachineClass, cluster: &str, report: &mut ConversionReport) -> Option<Value> {
    let MachineClass { metadata, provider, provider_spec, secret_ref, credentials_secret_ref, node_template } = class;
    let InfrastructureProvider { kinds, to_capi, .. } = provider_of_driver(provider)?;
    let spec = to_capi(provider_spec, report);
    if node_template.is_some() {
        report.lose("nodeTemplate", "is not known to Cluster API", "the provider tells the autoscaler capacities");
    }
    for (path, secret) in [("secretRef", secret_ref), ("credentialsSecretRef", credentials_secret_ref)] {
        if secret.is_some() {
            report.lose(path, "a template has no credentials", "they are those of the cluster");
        }
    }
    let mut labels = copied("metadata.labels", metadata.labels.clone().unwrap_or_default(), report);
    let annotations = copied("metadata.annotations", metadata.annotations.clone().unwrap_or_default(), report);
    if !cluster.is_empty() {
        labels.insert(names::CLUSTER_NAME.to_owned(), cluster.to_owned());
    }
    let metadata = ObjectMeta {
        name: metadata.name.clone(),
        namespace: metadata.namespace.clone(),
        labels: filled(labels),
        annotations: filled(annotations),
        ..ObjectMeta::default()
    };
    Some(json!({
        "apiVersion": format!("{INFRASTRUCTURE_GROUP}/{}", kinds.version),
        "kind": kinds.template.kind,
        "metadata": metadata,
        "spec": { "template": { "spec": spec } },
    }))
}

/// Labels or annotations that both sides have. Others are lost, except that the label of the cluster is written anew.
fn copied(path: &str, mut all: MetadataMap, report: &mut ConversionReport) -> MetadataMap {
    all.remove(names::CLUSTER_NAME);
    for key in all.keys().filter(|key| keys::of_object(key) == KeyTreatment::Note) {
        report.lose(format!("{path}['{key}']"), "has no effect on the other side", "");
    }
    all.retain(|key, _| keys::of_object(key) == KeyTreatment::Copy);
    all
}

/// A template or pool without the fields that its provider writes.
pub fn without_bookkeeping(template: &Value) -> Value {
    let mut spec = template["spec"].clone();
    if let Value::Object(fields) = &mut spec {
        fields.retain(|name, _| !["providerID", "providerIDList"].contains(&name.as_str()));
    }
    let mut metadata = json!({});
    for field in ["name", "namespace", "labels", "annotations"] {
        let mut value = template["metadata"][field].clone();
        if let Value::Object(keys) = &mut value {
            keys.retain(|key, _| !keys::is_bookkeeping(key));
        }
        if !value.is_null() {
            metadata[field] = value;
        }
    }
    json!({
        "apiVersion": template["apiVersion"], "kind": template["kind"], "metadata": metadata, "spec": spec,
    })
}

/// A noted value is a template or pool in this namespace. Notes are annotations, which any client may write.
pub fn is_foreign_in(value: &Value, namespace: &str) -> bool {
    let kind = value["kind"].as_str().unwrap_or_default();
    let provider = provider_of(kind, ProviderRole::Template).or_else(|| provider_of_pool(kind));
    let version = value["apiVersion"].as_str().and_then(|version| version.split_once('/'));
    let is_known = |(group, version): (&str, &str)| {
        group == INFRASTRUCTURE_GROUP && provider.is_some_and(|provider| provider.kinds.reads(version))
    };
    version.is_some_and(is_known)
        && value["metadata"]["namespace"].as_str().unwrap_or_default() == namespace
        && without_bookkeeping(value) == *value
}

/// Settings from the deployments, sets and pools that use a template.
#[derive(Default)]
struct TemplateUsers {
    cluster: Option<String>,
    zones: Vec<String>,
    version: String,
    /// An autoscaler may remove all machines of one of them, whose annotations do not have the size of a machine.
    scales_from_zero: bool,
}

impl TemplateUsers {
    fn for_template(document: &SourceDocument<'_>, input: &ConversionInput<'_>) -> Self {
        let mut users = Self::default();
        for owner in input.documents.iter().filter(|one| one.group == CORE_GROUP && one.namespace == document.namespace)
        {
            let spec = &owner.value["spec"]["template"]["spec"];
            let reference = &spec["infrastructureRef"];
            if reference["kind"] != document.kind || reference["name"] != document.name {
                continue;
            }
            users.scales_from_zero |= capacity::needs_capacity(&owner.value["metadata"]["annotations"]);
            users.cluster = owner.value["spec"]["clusterName"].as_str().map(str::to_owned);
            users.version = spec["version"].as_str().unwrap_or_default().to_owned();
            let of_pool = owner.value["spec"]["failureDomains"].as_array().cloned().unwrap_or_default();
            let zones = if of_pool.is_empty() { vec![spec["failureDomain"].clone()] } else { of_pool };
            for zone in zones.iter().map(|zone| zone.as_str().unwrap_or_default().to_owned()) {
                if !users.zones.contains(&zone) {
                    users.zones.push(zone);
                }
            }
        }
        users
    }
}

/// The only Cluster among the objects.
fn only_cluster(document: &SourceDocument<'_>, input: &ConversionInput<'_>) -> Option<String> {
    let mut clusters = input
        .documents
        .iter()
        .filter(|one| one.group == CORE_GROUP && one.kind == "Cluster" && one.namespace == document.namespace);
    clusters.next().filter(|_| clusters.next().is_none()).map(|only| only.name.to_owned())
}

fn cluster_label(value: &Value) -> String {
    value["metadata"]["labels"][names::CLUSTER_NAME].as_str().unwrap_or_default().to_owned()
}

/// The infrastructure object of the cluster, labelled or named after it, or its managed control plane.
fn cluster_of(
    provider: &InfrastructureProvider,
    document: &SourceDocument<'_>,
    cluster: &str,
    input: &ConversionInput<'_>,
) -> Value {
    let owner = input.find(CORE_GROUP, "Cluster", document.namespace, cluster);
    let control_plane = owner.and_then(|owner| owner.value["spec"]["controlPlaneRef"]["name"].as_str());
    let is_its = |one: &SourceDocument<'_>| match one.group {
        INFRASTRUCTURE_GROUP => {
            one.kind == provider.kinds.cluster.kind && (one.name == cluster || cluster_label(one.value) == cluster)
        }
        CONTROL_PLANE_GROUP => one.kind == provider.kinds.managed && control_plane == Some(one.name),
        _ => false,
    };
    let mut found = input.documents.iter().filter(|one| one.namespace == document.namespace && is_its(one));
    found.next().map(|one| one.value.clone()).unwrap_or_default()
}
