//! Workers whose infrastructure mcm does not convert. They stay with their provider; if a file has no others, nothing is
//! converted, and they are refused with the reason.

use serde_json::Value;

use super::{
    cloud::{self, provider::ProviderRole},
    hybrid::{self, has_workers},
    input::SourceDocument,
    topology::worker_kinds,
};
use crate::types::INFRASTRUCTURE_GROUP;

/// Workers of an object that stay as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UnconvertedWorkers {
    /// Path of their reference.
    pub path: String,
    pub reason: String,
    pub advice: String,
    /// The cloud manages the machines, so no converter could read them.
    pub is_managed: bool,
}

impl UnconvertedWorkers {
    /// The workers of an owner of workers, or of a ClusterClass.
    pub(super) fn of_document(document: &SourceDocument<'_>) -> Vec<Self> {
        if has_workers(document) {
            let at = "spec.template.spec.infrastructureRef";
            let reference = &document.value["spec"]["template"]["spec"]["infrastructureRef"];
            return Self::behind(at, reference).into_iter().collect();
        }
        let of_class = |(path, kind): (String, &str)| Self::of_kind(path, kind);
        worker_kinds(document).into_iter().filter_map(of_class).collect()
    }

    fn behind(path: &str, reference: &Value) -> Option<Self> {
        let (kind, group) = (reference["kind"].as_str()?, reference["apiGroup"].as_str().unwrap_or_default());
        if group == INFRASTRUCTURE_GROUP {
            return Self::of_kind(path.to_owned(), kind);
        }
        let reason = format!("apiGroup of the {kind} is {group:?}, and mcm reads {INFRASTRUCTURE_GROUP}");
        let advice = format!("write apiGroup: {INFRASTRUCTURE_GROUP}, without a version");
        Some(Self { path: format!("{path}.apiGroup"), reason, advice, is_managed: false })
    }

    fn of_kind(path: String, kind: &str) -> Option<Self> {
        let is_read = |kind: &str| hybrid::is_foreign(kind) || kind.starts_with("MCM");
        if kind.is_empty() || is_read(kind) || kind.strip_suffix("Template").is_some_and(is_read) {
            return None;
        }
        if kind.contains("Managed") || kind.starts_with("ROSA") {
            let reason = format!("the cloud manages the machines of {kind}, so they stay with their provider");
            return Some(Self { path, reason, advice: String::new(), is_managed: true });
        }
        let known: Vec<&str> =
            cloud::PROVIDERS.iter().map(|provider| provider.kinds.with_role(ProviderRole::Template).name).collect();
        let reason = format!("mcm does not convert {kind}, so the machines stay with their provider");
        let advice = format!("write a MachineClass for them; mcm converts {}", known.join(" and "));
        Some(Self { path, reason, advice, is_managed: false })
    }
}
