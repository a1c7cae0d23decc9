//! MachineClasses that are derived from infrastructure objects.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::bootstrap::user_data_of;
use crate::{
    metadata::namespace,
    notes::MADE_FROM,
    types::{ClassZones, ObjectRef},
};
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

/// The content of a class for VMs of a zone: the changes of that zone are merged into it. It stays as it is for a zone
/// without changes.
pub fn content_in_zone(content: &ClassContent, zones: &ClassZones, zone: &str) -> ClassContent {
    let mut content = content.clone();
    let Some(change) = zones.get(zone) else { return content };
    merge(&mut content.provider_spec, change);
    if let Some(template) = &mut content.node_template {
        zone.clone_into(&mut template.zone);
    }
    content
}

/// Unlike a merge patch it changes the elements of lists: the subnet of a network interface and not the interface.
fn merge(value: &mut Value, change: &Value) {
    match (value, change) {
        (Value::Object(fields), Value::Object(changes)) => {
            for (key, change) in changes {
                match (fields.get_mut(key), change) {
                    (_, Value::Null) => drop(fields.remove(key)),
                    (Some(field), _) => merge(field, change),
                    (None, _) => drop(fields.insert(key.clone(), change.clone())),
                }
            }
        }
        (Value::Array(elements), Value::Array(changes)) => {
            let known = elements.len();
            elements.iter_mut().zip(changes).for_each(|(element, change)| merge(element, change));
            elements.extend(changes.iter().skip(known).cloned());
        }
        (value, change) => value.clone_from(change),
    }
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

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::a_field(json!({ "zone": "b" }), json!({ "zone": "b", "nics": [{ "subnet": "a", "groups": ["g"] }, { "subnet": "x" }] }))]
    #[case::the_first_element(
        json!({ "nics": [{ "subnet": "b" }] }),
        json!({ "zone": "a", "nics": [{ "subnet": "b", "groups": ["g"] }, { "subnet": "x" }] })
    )]
    #[case::a_further_element(
        json!({ "nics": [{}, {}, { "subnet": "y" }] }),
        json!({ "zone": "a", "nics": [{ "subnet": "a", "groups": ["g"] }, { "subnet": "x" }, { "subnet": "y" }] })
    )]
    #[case::removed(json!({ "nics": null, "none": null }), json!({ "zone": "a" }))]
    #[case::another_type(json!({ "nics": "default" }), json!({ "zone": "a", "nics": "default" }))]
    #[case::added(json!({ "disk": { "type": "ssd" }, "nics": null }), json!({ "zone": "a", "disk": { "type": "ssd" } }))]
    fn a_change_is_merged_into_the_description_of_its_zone(#[case] change: Value, #[case] expected: Value) {
        let spec = json!({ "zone": "a", "nics": [{ "subnet": "a", "groups": ["g"] }, { "subnet": "x" }] });
        let content = ClassContent { provider_spec: spec.clone(), ..ClassContent::default() };
        let zones = [("b".to_owned(), change)].into();
        assert_eq!(content_in_zone(&content, &zones, "b").provider_spec, expected);
        assert_eq!(content_in_zone(&content, &zones, "a").provider_spec, spec, "another zone");
        assert_eq!(content_in_zone(&content, &zones, "").provider_spec, spec, "any zone");
    }
}
