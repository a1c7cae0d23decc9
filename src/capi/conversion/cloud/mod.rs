//! Machine templates of other infrastructure providers, whose clouds have a native driver.

mod aws;
mod azure;
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
    input::{Document, Input},
    keys::{self, Keys, Treatment},
    metadata::{filled, namespace},
    report::Report,
};
use crate::{
    api::machine::{ClassContent, MachineClass},
    capi::types::{CORE_GROUP, INFRASTRUCTURE_GROUP, names},
};
use fields::Fields;
use provider::{IdForms, InfrastructureProvider, ProviderRole, Template};

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
    PROVIDERS.into_iter().find(|provider| provider.kinds.with_role(role).kind == kind)
}

/// The provider of the cloud of a driver.
pub fn provider_of_driver(driver: &str) -> Option<&'static InfrastructureProvider> {
    PROVIDERS.into_iter().find(|provider| provider.kinds.driver == driver)
}

/// Whether the cloud of a VM with this `providerSpec` may stop it at any time. The driver need not be known by its name.
pub fn is_interruptible(provider_spec: &Value) -> bool {
    PROVIDERS.into_iter().any(|provider| (provider.is_interruptible)(provider_spec))
}

/// The class of a template. Its Secrets are not set.
pub fn class_of(document: &Document<'_>, input: &Input<'_>, report: &mut Report) -> Option<MachineClass> {
    let provider = provider_of(document.kind, ProviderRole::Template)?;
    let version = provider.kinds.version;
    if document.version != version {
        report.refuse("apiVersion", format!("{} is not known", document.version), format!("use {version}"));
        return None;
    }
    let machine_spec = machine_spec_of(document, report);
    let users = Users::of(document, input);
    let cluster_name = users.cluster.clone().unwrap_or_else(|| cluster_label(document.value));
    if cluster_name.is_empty() {
        report.refuse("", "the cluster is not known", format!("label it with {}", names::CLUSTER_NAME));
    }
    let cluster = cluster_of(provider, document, &cluster_name, input);
    let template =
        Template { machine_spec: &machine_spec, cluster_name: &cluster_name, cluster: &cluster, zones: &users.zones };
    let content = ClassContent {
        provider: provider.kinds.driver.to_owned(),
        provider_spec: (provider.to_native)(&template, report),
        node_template: None,
        credentials_secret_ref: None,
    };
    let keys_of = |field: &str| serde_json::from_value(document.value["metadata"][field].clone()).unwrap_or_default();
    let metadata = ObjectMeta {
        name: Some(document.name.to_owned()),
        namespace: namespace(document.namespace),
        labels: filled(copied("metadata.labels", keys_of("labels"), report)),
        annotations: filled(copied("metadata.annotations", keys_of("annotations"), report)),
        ..ObjectMeta::default()
    };
    Some(MachineClass::with_content(metadata, None, content))
}

/// `spec.template.spec` of a template. Other fields are refused or reported.
fn machine_spec_of(document: &Document<'_>, report: &mut Report) -> Value {
    let mut spec = Fields::of("spec", document.value["spec"].clone(), report);
    let mut template = spec.object("template", report);
    let machine_spec = template.take("spec").unwrap_or_default();
    template.lose("metadata", report, "MCM ignores labels and annotations of the infrastructure object", "");
    template.finish(report);
    spec.finish(report);
    machine_spec
}

/// The template of a class, if its cloud has a provider.
pub fn template_of(class: &MachineClass, cluster: &str, report: &mut Report) -> Option<Value> {
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
fn copied(path: &str, mut all: Keys, report: &mut Report) -> Keys {
    all.remove(names::CLUSTER_NAME);
    for key in all.keys().filter(|key| keys::of_object(key) == Treatment::Note) {
        report.lose(format!("{path}['{key}']"), "has no effect on the other side", "");
    }
    all.retain(|key, _| keys::of_object(key) == Treatment::Copy);
    all
}

/// A template without the fields that its provider writes.
pub fn without_bookkeeping(template: &Value) -> Value {
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
        "apiVersion": template["apiVersion"], "kind": template["kind"], "metadata": metadata, "spec": template["spec"],
    })
}

/// Whether a noted value is a template in this namespace. Notes are annotations, which any client may write.
pub fn is_template_in(value: &Value, namespace: &str) -> bool {
    let kind = value["kind"].as_str().unwrap_or_default();
    let provider = provider_of(kind, ProviderRole::Template);
    let version = provider.map(|provider| format!("{INFRASTRUCTURE_GROUP}/{}", provider.kinds.version));
    value["apiVersion"].as_str() == version.as_deref()
        && version.is_some()
        && value["metadata"]["namespace"].as_str().unwrap_or_default() == namespace
        && without_bookkeeping(value) == *value
}

/// Settings from the deployments and sets that use a template.
#[derive(Default)]
struct Users {
    cluster: Option<String>,
    zones: Vec<String>,
}

impl Users {
    fn of(document: &Document<'_>, input: &Input<'_>) -> Self {
        let mut users = Self::default();
        for owner in input.documents.iter().filter(|one| one.group == CORE_GROUP && one.namespace == document.namespace)
        {
            let spec = &owner.value["spec"]["template"]["spec"];
            let reference = &spec["infrastructureRef"];
            if reference["kind"] != document.kind || reference["name"] != document.name {
                continue;
            }
            users.cluster = owner.value["spec"]["clusterName"].as_str().map(str::to_owned);
            let zone = spec["failureDomain"].as_str().unwrap_or_default().to_owned();
            if !users.zones.contains(&zone) {
                users.zones.push(zone);
            }
        }
        users
    }
}

fn cluster_label(value: &Value) -> String {
    value["metadata"]["labels"][names::CLUSTER_NAME].as_str().unwrap_or_default().to_owned()
}

/// The infrastructure object of the cluster: labelled or named after it.
fn cluster_of(provider: &InfrastructureProvider, document: &Document<'_>, cluster: &str, input: &Input<'_>) -> Value {
    let all = input.documents.iter().filter(|one| {
        one.group == INFRASTRUCTURE_GROUP
            && one.kind == provider.kinds.cluster.kind
            && one.namespace == document.namespace
    });
    let mut found = all.filter(|one| one.name == cluster || cluster_label(one.value) == cluster);
    found.next().map(|one| one.value.clone()).unwrap_or_default()
}
