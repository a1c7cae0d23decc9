//! Machine templates of other infrastructure providers, whose clouds have a native driver.

mod aws;
mod fields;
mod gcp;
pub mod provider_id;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::{
    input::{Document, Input},
    keys::{self, Keys, Treatment},
    metadata::{filled, namespace},
    report::Report,
};
use crate::{
    api::machine::MachineClass,
    capi::types::{CORE_GROUP, INFRASTRUCTURE_GROUP, names},
};
use fields::Fields;

/// A cloud with a driver and a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cloud {
    Aws,
    Gcp,
}

impl Cloud {
    /// By the kind of a template.
    pub fn of_kind(kind: &str) -> Option<Self> {
        [Self::Aws, Self::Gcp].into_iter().find(|cloud| cloud.kind() == kind)
    }

    /// By the name of the driver.
    pub fn of_driver(driver: &str) -> Option<Self> {
        [Self::Aws, Self::Gcp].into_iter().find(|cloud| cloud.driver() == driver)
    }

    pub const fn kind(self) -> &'static str {
        match self {
            Self::Aws => "AWSMachineTemplate",
            Self::Gcp => "GCPMachineTemplate",
        }
    }

    /// Kind of the object with the common settings of a cluster's machines.
    pub const fn cluster_kind(self) -> &'static str {
        match self {
            Self::Aws => "AWSCluster",
            Self::Gcp => "GCPCluster",
        }
    }

    const fn driver(self) -> &'static str {
        match self {
            Self::Aws => "AWS",
            Self::Gcp => "GCP",
        }
    }

    const fn version(self) -> &'static str {
        match self {
            Self::Aws => "v1beta2",
            Self::Gcp => "v1beta1",
        }
    }
}

/// The class of a template. Its Secrets are not set.
pub fn class_of(document: &Document<'_>, input: &Input<'_>, report: &mut Report) -> Option<MachineClass> {
    let cloud = Cloud::of_kind(document.kind)?;
    if document.version != cloud.version() {
        report.refuse("apiVersion", format!("{} is not known", document.version), format!("use {}", cloud.version()));
        return None;
    }
    let machine_spec = machine_spec_of(document, report);
    let users = Users::of(document, input);
    let cluster_name = users.cluster.clone().unwrap_or_else(|| cluster_label(document.value));
    if cluster_name.is_empty() {
        report.refuse("", "the cluster is not known", format!("label it with {}", names::CLUSTER_NAME));
    }
    let cluster = cluster_of(cloud, document, &cluster_name, input);
    let provider_spec = match cloud {
        Cloud::Aws => aws::to_native(&machine_spec, &cluster_name, &cluster, report),
        Cloud::Gcp => {
            if users.zones.len() > 1 {
                let reason = format!("it is used in the zones {}, and an MCM class has one", users.zones.join(", "));
                report.refuse("", reason, "create a template for each zone");
            }
            let zone = users.zones.first().map(String::as_str).unwrap_or_default();
            gcp::to_native(&machine_spec, &cluster_name, zone, &cluster, report)
        }
    };
    let keys_of = |field: &str| serde_json::from_value(document.value["metadata"][field].clone()).unwrap_or_default();
    let metadata = ObjectMeta {
        name: Some(document.name.to_owned()),
        namespace: namespace(document.namespace),
        labels: filled(copied("metadata.labels", keys_of("labels"), report)),
        annotations: filled(copied("metadata.annotations", keys_of("annotations"), report)),
        ..ObjectMeta::default()
    };
    Some(MachineClass { metadata, provider_spec, provider: cloud.driver().to_owned(), ..MachineClass::default() })
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
    let cloud = Cloud::of_driver(&class.provider)?;
    let spec = match cloud {
        Cloud::Aws => aws::to_capi(&class.provider_spec, report),
        Cloud::Gcp => gcp::to_capi(&class.provider_spec, report),
    };
    if class.node_template.is_some() {
        report.lose("nodeTemplate", "is not known to Cluster API", "the provider tells the autoscaler capacities");
    }
    for (path, secret) in [("secretRef", &class.secret_ref), ("credentialsSecretRef", &class.credentials_secret_ref)] {
        if secret.is_some() {
            report.lose(path, "a template has no credentials", "they are those of the cluster");
        }
    }
    let mut labels = copied("metadata.labels", class.metadata.labels.clone().unwrap_or_default(), report);
    let annotations = copied("metadata.annotations", class.metadata.annotations.clone().unwrap_or_default(), report);
    if !cluster.is_empty() {
        labels.insert(names::CLUSTER_NAME.to_owned(), cluster.to_owned());
    }
    let metadata = ObjectMeta {
        name: class.metadata.name.clone(),
        namespace: class.metadata.namespace.clone(),
        labels: filled(labels),
        annotations: filled(annotations),
        ..ObjectMeta::default()
    };
    Some(json!({
        "apiVersion": format!("{INFRASTRUCTURE_GROUP}/{}", cloud.version()),
        "kind": cloud.kind(),
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
    let version = Cloud::of_kind(kind).map(|cloud| format!("{INFRASTRUCTURE_GROUP}/{}", cloud.version()));
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
fn cluster_of(cloud: Cloud, document: &Document<'_>, cluster: &str, input: &Input<'_>) -> Value {
    let all = input.documents.iter().filter(|one| {
        one.group == INFRASTRUCTURE_GROUP && one.kind == cloud.cluster_kind() && one.namespace == document.namespace
    });
    let mut found = all.filter(|one| one.name == cluster || cluster_label(one.value) == cluster);
    found.next().map(|one| one.value.clone()).unwrap_or_default()
}
