//! The served kinds.

pub use mcm_api::kinds::{
    CONFIG_MAPS, CUSTOM_RESOURCE_DEFINITIONS as DEFINITIONS, DEPLOYMENTS as WORKLOADS, EVENTS, LEASES,
    MACHINE_CLASSES as CLASSES, MACHINE_DEPLOYMENTS as DEPLOYMENTS, MACHINE_SETS as SETS, MACHINES, NAMESPACES, NODES,
    PERSISTENT_VOLUME_CLAIMS as CLAIMS, PERSISTENT_VOLUMES as VOLUMES, POD_DISRUPTION_BUDGETS as BUDGETS, PODS,
    ResourceKind as Kind, SECRETS, VOLUME_ATTACHMENTS as ATTACHMENTS,
};

pub static ALL: [&Kind; 17] = [
    &MACHINES,
    &SETS,
    &DEPLOYMENTS,
    &CLASSES,
    &SECRETS,
    &CONFIG_MAPS,
    &NODES,
    &PODS,
    &EVENTS,
    &BUDGETS,
    &CLAIMS,
    &VOLUMES,
    &ATTACHMENTS,
    &LEASES,
    &NAMESPACES,
    &WORKLOADS,
    &DEFINITIONS,
];

/// The kind at a path, the namespace, and the rest of the path.
pub(super) fn find(path: &str) -> Option<(&'static Kind, &str, Vec<&str>)> {
    let mut parts = path.trim_matches('/').split('/');
    let group = match parts.next()? {
        "api" => "",
        "apis" => parts.next()?,
        _ => return None,
    };
    let version = parts.next()?;
    let mut rest: Vec<&str> = parts.collect();
    let namespace = match rest.as_slice() {
        // These are subresources of a Namespace.
        ["namespaces", _, "status" | "finalize"] => "",
        ["namespaces", namespace, _, ..] => {
            let namespace = *namespace;
            rest.drain(..2);
            namespace
        }
        _ => "",
    };
    let plural = if rest.is_empty() { return None } else { rest.remove(0) };
    let kind = ALL.into_iter().find(|kind| kind.group == group && kind.version == version && kind.plural == plural)?;
    Some((kind, namespace, rest))
}
