//! Evidence that a cluster tag belongs to one control namespace.

use serde_json::{Map, Value};

use mcm_api::machine::MachineClass;

/// The beginning of the technical IDs of Gardener's shoots. Gardener gives one to one cluster only, and to its control
/// namespace.
const TECHNICAL_ID: &str = "shoot--";
/// The technical ID of no shoot: it has no project.
const OF_NO_SHOOT: &str = "shoot----";
/// The ends of keys and tags before the name of a cluster.
const BEFORE_NAME: [&str; 2] = ["cluster/", "cluster-"];

/// The list of a class is limited to the technical ID of its namespace, so that only classes of this namespace share
/// it. `may_list` is [`mcm_driver::Driver::may_list`]: with another ID in its place, the list must differ.
pub(super) fn is_of_namespace(class: &MachineClass, may_list: impl Fn(&MachineClass, &MachineClass) -> bool) -> bool {
    let id = class.metadata.namespace.as_deref().unwrap_or_default();
    if !id.starts_with(TECHNICAL_ID) {
        return false;
    }
    let mut other = class.clone();
    other.provider_spec = renamed(&class.provider_spec, id);
    may_list(class, class) && !may_list(class, &other)
}

/// A `providerSpec` with another technical ID.
fn renamed(value: &Value, id: &str) -> Value {
    match value {
        Value::String(text) => Value::String(renamed_text(text, id)),
        Value::Array(items) => items.iter().map(|item| renamed(item, id)).collect(),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, value)| (renamed_text(key, id), renamed(value, id)));
            Value::Object(fields.collect::<Map<_, _>>())
        }
        other => other.clone(),
    }
}

/// Only a whole name: another shoot may have an ID that begins with this one.
fn renamed_text(text: &str, id: &str) -> String {
    match text.strip_suffix(id) {
        Some(before) if before.is_empty() || BEFORE_NAME.iter().any(|end| before.ends_with(end)) => {
            format!("{before}{OF_NO_SHOOT}")
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    /// A driver that lists by the tags of the class, all of them.
    fn by_tags(class: &MachineClass, other: &MachineClass) -> bool {
        class.provider_spec["tags"] == other.provider_spec["tags"]
    }

    const SHOOT: &str = "shoot--garden--a";

    #[rstest]
    #[case::of_aws(SHOOT, json!({"tags": {"kubernetes.io/cluster/shoot--garden--a": "1"}}), true)]
    #[case::of_gcp(SHOOT, json!({"tags": ["kubernetes-io-cluster-shoot--garden--a"]}), true)]
    #[case::of_azure(SHOOT, json!({"tags": {"kubernetes.io-cluster-shoot--garden--a": "1"}}), true)]
    #[case::as_a_value(SHOOT, json!({"tags": {"mcm.gardener.cloud/cluster": "shoot--garden--a"}}), true)]
    #[case::of_a_shoot_whose_name_is_longer(SHOOT, json!({"tags": ["kubernetes-io-cluster-shoot--garden--ab"]}), false)]
    #[case::of_a_shoot_whose_name_ends_so(SHOOT, json!({"tags": ["kubernetes-io-cluster-x-shoot--garden--a"]}), false)]
    #[case::of_another_shoot(SHOOT, json!({"tags": ["kubernetes-io-cluster-shoot--garden--b"]}), false)]
    #[case::of_a_cluster_of_several_namespaces("team-a", json!({"tags": ["kubernetes-io-cluster-prod"]}), false)]
    #[case::of_a_namespace_that_only_has_the_name("prod", json!({"tags": ["kubernetes-io-cluster-prod"]}), false)]
    #[case::elsewhere_in_the_class(SHOOT, json!({"tags": [], "network": "shoot--garden--a"}), false)]
    #[case::without_a_tag(SHOOT, json!({}), false)]
    fn a_tag_is_that_of_a_namespace_only_if_it_is_its_technical_id(
        #[case] namespace: &str,
        #[case] spec: Value,
        #[case] expected: bool,
    ) {
        let class: MachineClass =
            serde_json::from_value(json!({"metadata": {"name": "c", "namespace": namespace}, "providerSpec": spec}))
                .unwrap();
        assert_eq!(is_of_namespace(&class, by_tags), expected);
        assert!(!is_of_namespace(&class, |_, _| true), "a list that is not limited shows the VMs of others");
        assert!(!is_of_namespace(&class, |_, _| false), "a driver that lists nothing shows nothing");
    }
}
