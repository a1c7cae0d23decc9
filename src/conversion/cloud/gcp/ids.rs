//! Provider IDs: the driver writes three slashes, as the Go driver does, and Nodes have two.

use crate::cloud::provider::IdForms;

pub const IDS: IdForms = IdForms {
    scheme: NODE,
    to_native: |id, _spec| with_three_slashes(id),
    to_node,
    identity: with_three_slashes,
    vm_name: |id| id.rsplit('/').next().filter(|name| !name.is_empty()),
};

const DRIVER: &str = "gce:///";
const NODE: &str = "gce://";

fn with_three_slashes(id: &str) -> String {
    match id.strip_prefix(NODE).filter(|rest| !rest.starts_with('/')) {
        Some(rest) => format!("{DRIVER}{rest}"),
        None => id.to_owned(),
    }
}

fn to_node(id: &str, _zone: Option<&str>) -> Option<String> {
    Some(id.strip_prefix(DRIVER).map_or_else(|| id.to_owned(), |rest| format!("{NODE}{rest}")))
}
