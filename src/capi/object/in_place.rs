//! Changes of the description of a VM that the VM can stay for.

use std::collections::BTreeMap;

use kube::ResourceExt;

use mcm_api::{
    hash::fnv1a_64,
    labels,
    machine::{ClassContent, MachineClass},
};
use mcm_conversion::{
    types::{MCMMachine, names},
    zone_of,
};

/// Core updates the VM of the object in place.
pub(crate) fn is_updated(object: &MCMMachine) -> bool {
    object.annotations().contains_key(names::UPDATE_IN_PROGRESS)
}

/// The first field of a description that only another VM can have; `None` if the VM can stay. No driver reads `nodeTemplate`;
/// its zone is a part of the ID of some VMs.
pub(crate) fn difference(current: &ClassContent, desired: &ClassContent) -> Option<&'static str> {
    let ClassContent { provider, provider_spec, node_template: _, credentials_secret_ref } = current;
    let fields = [
        ("provider", *provider == desired.provider),
        ("providerSpec", *provider_spec == desired.provider_spec),
        ("credentialsSecretRef", *credentials_secret_ref == desired.credentials_secret_ref),
        ("nodeTemplate.zone", zone_of(Some(current)) == zone_of(Some(desired))),
    ];
    fields.into_iter().find(|(_, is_same)| !is_same).map(|(field, _)| field)
}

/// The same for two classes.
pub(crate) fn difference_of_classes(current: &MachineClass, desired: &MachineClass) -> Option<&'static str> {
    let of_content = || difference(&current.content(), &desired.content());
    if current.secret_ref == desired.secret_ref { of_content() } else { Some("secretRef") }
}

/// The annotation of a class that is made of a description. The content of the class may become another one: a user corrects
/// credentials, and the network of the Cluster is added.
pub(crate) fn hash_annotation(content: &ClassContent) -> BTreeMap<String, String> {
    [(labels::DESCRIPTION_HASH.to_owned(), hash_of(content))].into()
}

/// The first field of a description that only another VM can have than that of the class that was made of it.
pub(crate) fn difference_of_description(class: &MachineClass, desired: &ClassContent) -> Option<&'static str> {
    let is_same = class.annotations().get(labels::DESCRIPTION_HASH) == Some(&hash_of(desired));
    if is_same { None } else { difference(&class.content(), desired) }
}

fn hash_of(content: &ClassContent) -> String {
    let zone = zone_of(Some(content));
    let kept = ClassContent { node_template: None, ..content.clone() };
    format!("{:016x}", fnv1a_64(serde_json::to_string(&(kept, zone)).unwrap_or_default().bytes()))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use mcm_api::patch;

    fn content(change: &Value) -> ClassContent {
        let mut content = json!({
            "provider": "simulated", "providerSpec": { "instanceType": "small" },
            "nodeTemplate": { "capacity": { "cpu": "1" }, "instanceType": "small", "region": "r", "zone": "a" },
            "credentialsSecretRef": { "name": "login", "namespace": "ns" },
        });
        patch::apply(&mut content, change);
        serde_json::from_value(content).unwrap()
    }

    #[rstest]
    #[case::nothing(json!({}), None)]
    #[case::capacity(json!({ "nodeTemplate": { "capacity": { "cpu": "2" } } }), None)]
    #[case::labels_of_the_type(json!({ "nodeTemplate": { "instanceType": "large", "region": "s" } }), None)]
    #[case::zone(json!({ "nodeTemplate": { "zone": "b" } }), Some("nodeTemplate.zone"))]
    #[case::no_template(json!({ "nodeTemplate": null }), Some("nodeTemplate.zone"))]
    #[case::configuration(json!({ "providerSpec": { "instanceType": "large" } }), Some("providerSpec"))]
    #[case::driver(json!({ "provider": "AWS" }), Some("provider"))]
    #[case::credentials(json!({ "credentialsSecretRef": { "name": "other" } }), Some("credentialsSecretRef"))]
    fn a_vm_stays_only_for_another_node_template(#[case] change: Value, #[case] expected: Option<&str>) {
        let (current, desired) = (content(&json!({})), content(&change));
        assert_eq!(difference(&current, &desired), expected);
        let class = |content: &ClassContent| MachineClass::with_content(ObjectMeta::default(), None, content.clone());
        assert_eq!(difference_of_classes(&class(&current), &class(&desired)), expected);
        let secret = mcm_api::machine::SecretRef { name: "data".to_owned(), namespace: "ns".to_owned() };
        let other = MachineClass { secret_ref: Some(secret), ..class(&current) };
        assert_eq!(difference_of_classes(&class(&current), &other), Some("secretRef"));
    }

    #[test]
    fn a_class_that_was_corrected_still_has_the_description_that_it_was_made_of() {
        let described = content(&json!({}));
        let metadata = ObjectMeta { annotations: Some(hash_annotation(&described)), ..ObjectMeta::default() };
        let corrected = content(&json!({ "credentialsSecretRef": { "name": "corrected" } }));
        let class = MachineClass::with_content(metadata, None, corrected.clone());
        let larger = content(&json!({ "nodeTemplate": { "capacity": { "cpu": "2" } } }));
        assert_eq!(difference_of_description(&class, &larger), None);
        let other = content(&json!({ "providerSpec": { "instanceType": "large" } }));
        assert_eq!(difference_of_description(&class, &other), Some("providerSpec"));
        // A class of an earlier release has no annotation.
        let old = MachineClass { metadata: ObjectMeta::default(), ..class };
        assert_eq!(difference_of_description(&old, &larger), Some("credentialsSecretRef"));
        assert_eq!(difference_of_description(&old, &corrected), None);
    }
}
