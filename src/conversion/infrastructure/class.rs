//! MachineClasses that are derived from infrastructure objects.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::bootstrap::user_data_of;
use crate::{metadata::namespace, notes::MADE_FROM, types::ObjectRef};
use mcm_api::{
    hash::fnv1a_64,
    machine::{ClassContent, MachineClass, SecretRef},
};

/// Of an object, in characters.
const LONGEST_NAME: usize = 253;

/// Zone of a class.
pub fn zone_of(content: Option<&ClassContent>) -> Option<String> {
    let content = content?;
    let of_template = content.node_template.as_ref().map(|template| template.zone.clone());
    let of_spec = || content.provider_spec["zone"].as_str().map(str::to_owned);
    of_template.filter(|zone| !zone.is_empty()).or_else(of_spec).filter(|zone| !zone.is_empty())
}

/// The content of a class, with the Secret that has its credentials.
pub fn content_of(class: &MachineClass) -> ClassContent {
    let content = class.content();
    let credentials = content.credentials_secret_ref.or_else(|| class.secret_ref.clone());
    ClassContent { credentials_secret_ref: credentials, ..content }
}

pub fn derived_class(
    name: String,
    content: &ClassContent,
    template: &ObjectRef,
    in_namespace: &str,
    data_secret_name: &str,
) -> MachineClass {
    let metadata = ObjectMeta {
        name: Some(name),
        namespace: namespace(in_namespace),
        annotations: Some([(MADE_FROM.to_owned(), format!("{}/{}", template.kind, template.name))].into()),
        ..ObjectMeta::default()
    };
    let secret = SecretRef { name: user_data_of(data_secret_name), namespace: in_namespace.to_owned() };
    MachineClass::with_content(metadata, Some(secret), content.clone())
}

pub fn derived_name(content: &ClassContent, base: &str, data_secret_name: &str) -> String {
    named(base, &serde_json::to_string(&(content, data_secret_name)).unwrap_or_default())
}

/// A name with a hash of some content.
pub fn named(base: &str, content: &str) -> String {
    let hash = fnv1a_64(content.bytes());
    let head: String = base.chars().take(LONGEST_NAME - 9).collect();
    format!("{head}-{:08x}", (hash >> 32) ^ (hash & 0xffff_ffff))
}
