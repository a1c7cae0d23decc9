//! Discovery: the served groups and kinds.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::kinds::{ALL, Kind};

/// Version of Kubernetes whose API is served.
const VERSION: (&str, &str) = ("1", "36");
const VERBS: [&str; 7] = ["create", "delete", "get", "list", "patch", "update", "watch"];
const GET_AND_WRITE: [&str; 3] = ["get", "patch", "update"];

/// The document at a path; `None` if the path has no document.
pub(super) fn document(path: &str) -> Option<Value> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match parts.as_slice() {
        ["version"] => Some(version()),
        ["api"] => Some(json!({ "kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [] })),
        ["apis"] => {
            let groups: Vec<Value> = groups().into_iter().map(|(name, versions)| group(name, &versions)).collect();
            Some(json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups }))
        }
        ["apis", name] => groups().get_key_value(name).map(|(name, versions)| {
            let mut group = group(name, versions);
            group["kind"] = json!("APIGroup");
            group["apiVersion"] = json!("v1");
            group
        }),
        ["api", version] => resources("", version),
        ["apis", group, version] => resources(group, version),
        _ => None,
    }
}

fn version() -> Value {
    let (major, minor) = VERSION;
    json!({
        "major": major, "minor": minor, "gitVersion": format!("v{major}.{minor}.0-embedded"), "gitCommit": "",
        "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z", "goVersion": "none", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

/// The versions of each group with a name.
fn groups() -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let mut groups: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for kind in ALL.into_iter().filter(|kind| !kind.group.is_empty()) {
        groups.entry(kind.group).or_default().insert(kind.version);
    }
    groups
}

fn group(name: &str, versions: &BTreeSet<&str>) -> Value {
    let versions: Vec<Value> = versions
        .iter()
        .map(|version| json!({ "groupVersion": format!("{name}/{version}"), "version": version }))
        .collect();
    json!({ "name": name, "versions": versions, "preferredVersion": versions.first() })
}

fn resources(group: &str, version: &str) -> Option<Value> {
    let kinds = ALL.into_iter().filter(|kind| kind.group == group && kind.version == version);
    let resources: Vec<Value> = kinds.flat_map(resources_of).collect();
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let list = json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources,
    });
    (!resources.is_empty()).then_some(list)
}

/// A kind and its subresources.
fn resources_of(kind: &'static Kind) -> Vec<Value> {
    let resource = json!({
        "name": kind.plural, "singularName": kind.singular(), "namespaced": kind.is_namespaced, "kind": kind.name,
        "verbs": VERBS, "shortNames": kind.short_names,
    });
    let subresource = |name: &str, group: &str, version: &str, what: &str, verbs: &[&str]| {
        json!({
            "name": format!("{}/{name}", kind.plural), "singularName": "", "namespaced": kind.is_namespaced,
            "group": group, "version": version, "kind": what, "verbs": verbs,
        })
    };
    let mut all = vec![resource];
    for name in ["status", "scale", "eviction"] {
        if kind.has_subresource(name) {
            all.push(match name {
                "scale" => subresource(name, "autoscaling", "v1", "Scale", &GET_AND_WRITE),
                "eviction" => subresource(name, "policy", "v1", "Eviction", &["create"]),
                _ => subresource(name, kind.group, kind.version, kind.name, &GET_AND_WRITE),
            });
        }
    }
    all
}
