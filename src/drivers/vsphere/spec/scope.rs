//! The markers of a class: its cluster and its role, in one of two forms. VMs in the other form are the same.

use std::collections::BTreeMap;

use mcm_driver::spec::ClassProblems;

use crate::names::{CLUSTER_FIELD, CLUSTER_PREFIX, ROLE_FIELD, ROLE_PREFIX};

/// How VMs of a class differ from others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Scope {
    /// The folder with the VMs of the class and its datacenter, as the class names them.
    pub datacenter: String,
    pub folder: String,
    pub cluster: String,
    pub role: String,
}

impl Scope {
    /// Of a class with these custom fields, in a folder of a datacenter. `None` if it has no markers.
    pub(super) fn from_custom_fields(
        fields: &BTreeMap<String, String>,
        datacenter: &str,
        folder: &str,
    ) -> Option<Self> {
        let (cluster, role) = markers(fields);
        let [cluster, role] =
            [cluster, role].map(|marker| marker.filter(|marker| !marker.is_empty()).map(str::to_owned));
        Some(Self { datacenter: datacenter.to_owned(), folder: folder.to_owned(), cluster: cluster?, role: role? })
    }
}

/// The cluster and the role in custom fields. The newer form counts before the older one, and of several fields of the older
/// form the first in order; the reference takes any of them.
fn markers(fields: &BTreeMap<String, String>) -> (Option<&str>, Option<&str>) {
    let of = |field: &str, prefix: &str| {
        let newer = fields.get(field).map(String::as_str);
        newer.or_else(|| fields.keys().find_map(|key| key.strip_prefix(prefix)))
    };
    (of(CLUSTER_FIELD, CLUSTER_PREFIX), of(ROLE_FIELD, ROLE_PREFIX))
}

pub(super) fn check(tags: &BTreeMap<String, String>, path: &str, problems: &mut ClassProblems) {
    let (cluster, role) = markers(tags);
    for (field, prefix, found) in [(CLUSTER_FIELD, CLUSTER_PREFIX, cluster), (ROLE_FIELD, ROLE_PREFIX, role)] {
        match found {
            None => problems.expected(path, &format!("{field}, or a key that begins with {prefix}"), "neither"),
            Some("") => problems.expected(path, &format!("a value of {field}"), "an empty one"),
            Some(_) => {}
        }
        let all = tags.keys().filter(|key| *key == field || key.starts_with(prefix)).count();
        if all > 1 {
            problems
                .warning(path, format!("{all} keys mean the same as {field}: it, or the first of the others, counts"));
        }
    }
}
