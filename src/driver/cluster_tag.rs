//! Tags in a `providerSpec` that name the cluster, as drivers for MCM spell them.

use std::collections::BTreeSet;

use serde_json::Value;

/// The common part of cluster tags, with `-` for everything but letters and digits: `kubernetes.io/cluster/` of AWS,
/// `kubernetes-io-cluster-` of GCP, `kubernetes.io-cluster-` of Azure and OpenStack.
const MARK: &str = "kubernetes-io-cluster-";

/// Two classes have such a tag in common. A class without one may share its VMs with any other.
pub(super) fn is_shared(class: &Value, other: &Value) -> bool {
    let tags = tags_of(class);
    tags.is_empty() || !tags.is_disjoint(&tags_of(other))
}

fn tags_of(spec: &Value) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    collect(spec, &mut found);
    found
}

fn collect<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
    match value {
        Value::String(text) => found.extend(Some(text.as_str()).filter(|text| is_tag(text))),
        Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
        Value::Object(fields) => {
            for (key, value) in fields {
                found.extend(Some(key.as_str()).filter(|key| is_tag(key)));
                collect(value, found);
            }
        }
        _ => {}
    }
}

fn is_tag(text: &str) -> bool {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    text.chars().map(plain).collect::<String>().contains(MARK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    #[rstest]
    #[case::same_key(json!({"tags": {"kubernetes.io/cluster/a": "1"}}), json!({"tags": {"kubernetes.io/cluster/a": "2"}}), true)]
    #[case::other_key(json!({"tags": {"kubernetes.io/cluster/a": "1"}}), json!({"tags": {"kubernetes.io/cluster/b": "1"}}), false)]
    #[case::same_item(json!({"tags": ["kubernetes-io-cluster-a"]}), json!({"tags": ["x", "kubernetes-io-cluster-a"]}), true)]
    #[case::other_item(json!({"tags": ["kubernetes-io-cluster-a"]}), json!({"tags": ["kubernetes-io-cluster-ab"]}), false)]
    #[case::deep_inside(json!({"a": [{"tags": {"kubernetes.io-cluster-a": ""}}]}), json!({"properties": {"tags": {"kubernetes.io-cluster-a": ""}}}), true)]
    #[case::none_in_the_class(json!({"tags": {"cluster": "a"}}), json!({"tags": {"cluster": "b"}}), true)]
    #[case::none_in_the_other(json!({"tags": {"kubernetes.io/cluster/a": "1"}}), json!({"tags": {"cluster": "a"}}), false)]
    #[case::a_role_is_no_cluster(json!({"tags": {"kubernetes.io/cluster/a": "", "kubernetes.io/role/node": ""}}), json!({"tags": {"kubernetes.io/role/node": ""}}), false)]
    fn two_classes_share_vms_if_they_share_a_cluster_tag(
        #[case] class: Value,
        #[case] other: Value,
        #[case] expected: bool,
    ) {
        assert_eq!(is_shared(&class, &other), expected);
    }
}
