//! Fields of the infrastructure of a cluster, of another provider. Each is used by the conversion of its machines, has no effect
//! on them, or is reported or refused. A field that is in no table is refused, because it may change a machine.

use serde_json::Value;

use crate::{input::is_zero, report::ConversionReport};

/// The effect of a field of the cluster on its machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterFieldEffect {
    /// The conversion reads it, here or in the status that the provider derives from it.
    Used,
    /// It changes no machine.
    None,
    /// A user has to act.
    Reported { reason: &'static str, advice: &'static str },
    /// The class cannot have it.
    Refused { reason: &'static str, advice: &'static str },
}

/// A field below `spec`, such as `network.subnets`, with everything in it.
pub type ClusterField = (&'static str, ClusterFieldEffect);

const UNKNOWN: &str = "mcm has no rule for this field of the cluster, which may change its machines";

/// Reports and refuses fields of the cluster. `cluster` is null if it is not among the objects.
pub fn check(cluster: &Value, tables: &[(&str, &[ClusterField])], report: &mut ConversionReport) {
    let kind = cluster["kind"].as_str().unwrap_or_default();
    let Some((_, fields)) = tables.iter().find(|(known, _)| *known == kind) else { return };
    let name = cluster.pointer("/metadata/name").and_then(Value::as_str);
    let object = name.map_or_else(|| kind.to_owned(), |name| format!("{kind} {name}"));
    check_below(&object, "", &cluster["spec"], fields, report);
}

fn check_below(object: &str, prefix: &str, value: &Value, fields: &[ClusterField], report: &mut ConversionReport) {
    // Another type is an error of its API server.
    for (name, value) in value.as_object().into_iter().flatten().filter(|(_, value)| !is_zero(value)) {
        let field = format!("{prefix}{name}");
        let path = || format!("{object}: spec.{field}");
        let below = format!("{field}.");
        match fields.iter().find(|(known, _)| known.eq_ignore_ascii_case(&field)).map(|(_, effect)| *effect) {
            Some(ClusterFieldEffect::Used | ClusterFieldEffect::None) => {}
            Some(ClusterFieldEffect::Reported { reason, advice }) => report.lose(path(), reason, advice),
            Some(ClusterFieldEffect::Refused { reason, advice }) => report.refuse(path(), reason, advice),
            None if fields.iter().any(|(known, _)| known.starts_with(&below)) => {
                check_below(object, &below, value, fields, report);
            }
            None => report.refuse(path(), UNKNOWN, "remove it, or convert without the object and answer the questions"),
        }
    }
}
