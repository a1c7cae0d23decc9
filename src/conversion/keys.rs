//! Labels and annotations: which are copied, dropped, noted or crossed by other means.

use std::collections::BTreeMap;

use super::{
    notes::{self, ConversionNotes},
    report::ConversionReport,
};
use crate::types::names;
use mcm_api::labels;

/// Labels or annotations.
pub(super) type MetadataMap = BTreeMap<String, String>;

/// The treatment of a label or annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyTreatment {
    /// Both sides have it.
    Copy,
    /// It belongs to the bookkeeping of its side.
    Drop,
    /// It means something on its side only.
    Note,
}

/// Copies labels or annotations, and notes those with a meaning on one side only. Returns the copied keys, and the keys
/// that the other side noted.
pub(super) fn carry(
    source: &MetadataMap,
    path: &str,
    treatment: impl Fn(&str) -> KeyTreatment,
    notes: &mut ConversionNotes,
    report: &mut ConversionReport,
) -> (MetadataMap, MetadataMap) {
    let mut carried = MetadataMap::new();
    for (key, value) in source {
        match treatment(key) {
            KeyTreatment::Copy => drop(carried.insert(key.clone(), value.clone())),
            KeyTreatment::Drop => {}
            KeyTreatment::Note => {
                let path = format!("{path}['{key}']");
                notes.note(&path, value);
                report.lose(path, "has no effect on the other side", "");
            }
        }
    }
    (carried, notes.take_keys(path))
}

/// Labels and annotations on the metadata of an object, in both directions.
pub(super) fn of_object(key: &str) -> KeyTreatment {
    if is_bookkeeping(key) {
        KeyTreatment::Drop
    } else if is_reserved(key) {
        KeyTreatment::Note
    } else {
        KeyTreatment::Copy
    }
}

/// Annotations of a Machine of Cluster API or its template. Annotations with a counterpart are converted elsewhere.
/// Labels of these objects are all copied, because selectors use them.
pub(super) fn of_capi_machine(key: &str) -> KeyTreatment {
    match key {
        names::DELETE_MACHINE | names::SKIP_REMEDIATION | labels::PRIORITY => KeyTreatment::Drop,
        key => of_object(key),
    }
}

/// Annotations of a native Machine or template.
pub(super) fn of_native_machine(key: &str) -> KeyTreatment {
    if key == labels::PRIORITY { KeyTreatment::Drop } else { of_object(key) }
}

/// Derived by a controller or a tool, or ours.
pub(super) fn is_bookkeeping(key: &str) -> bool {
    [labels::KUBECTL_LAST_APPLIED, labels::STAND_IN].contains(&key)
        || [notes::DOMAIN, names::DERIVED, names::CLONED_FROM, "deployment.kubernetes.io/"]
            .iter()
            .any(|prefix| key.starts_with(prefix))
}

/// Labels or annotations but bookkeeping.
pub(super) fn without_bookkeeping(keys: Option<MetadataMap>) -> MetadataMap {
    keys.unwrap_or_default().into_iter().filter(|(key, _)| !is_bookkeeping(key)).collect()
}

/// Means something to Cluster API. The autoscaler's keys are for both sides.
fn is_reserved(key: &str) -> bool {
    let domain = key.split('/').next().unwrap_or_default();
    let is_core = domain == "cluster.x-k8s.io" || domain.ends_with(".cluster.x-k8s.io");
    let is_shared = [names::AUTOSCALER_MIN, names::AUTOSCALER_MAX].contains(&key)
        || key.starts_with(names::AUTOSCALING_OPTIONS)
        || is_in(key, &names::NODE_ANNOTATION_DOMAINS);
    is_core && !is_shared
}

/// The key is in one of the domains or below it.
pub fn is_in(key: &str, domains: &[&str]) -> bool {
    let Some((domain, _)) = key.split_once('/') else { return false };
    domains.iter().any(|known| {
        let is_below = domain.strip_suffix(known).is_some_and(|head| head.ends_with('.'));
        domain == *known || (is_below && *known != "node-role.kubernetes.io")
    })
}

/// The labels or annotations of a Machine and of its Node.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(super) struct MetadataPair {
    /// Of the Machine.
    #[serde(default)]
    pub machine: MetadataMap,
    /// Of the Node: on the native side all keys from the Machine, on the other side only keys that the Machine does not
    /// have.
    #[serde(default)]
    pub node: MetadataMap,
}

impl MetadataPair {
    /// Cluster API gives the Node the keys in the domains from the Machine; natively the node template has them.
    pub(super) fn to_native(&self, domains: &[&str]) -> Self {
        let own = self.machine.iter().filter(|(key, _)| is_in(key, domains));
        let mut node: MetadataMap = own.map(|(key, value)| (key.clone(), value.clone())).collect();
        node.extend(self.node.clone());
        Self { machine: self.machine.clone(), node }
    }

    /// The inverse of [`Self::to_native`].
    pub(super) fn to_capi(&self, domains: &[&str]) -> Self {
        let (own, node): (MetadataMap, MetadataMap) =
            self.node.clone().into_iter().partition(|(key, _)| is_in(key, domains));
        let mut machine = self.machine.clone();
        machine.extend(own);
        Self { machine, node }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    /// Rows on labels and annotations of 3.4.
    #[rstest]
    #[case("team", KeyTreatment::Copy)]
    #[case("example.com/team", KeyTreatment::Copy)]
    #[case("capacity.cluster-autoscaler.kubernetes.io/cpu", KeyTreatment::Copy)]
    #[case("cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size", KeyTreatment::Copy)]
    #[case("cluster.x-k8s.io/autoscaling-options-maxnodeprovisiontime", KeyTreatment::Copy)]
    #[case("node.cluster.x-k8s.io/size", KeyTreatment::Copy)]
    #[case("cluster.x-k8s.io/watch-filter", KeyTreatment::Note)]
    #[case("topology.cluster.x-k8s.io/owned", KeyTreatment::Note)]
    #[case("machineset.cluster.x-k8s.io/skip-preflight-checks", KeyTreatment::Note)]
    #[case("machinedeployment.clusters.x-k8s.io/revision", KeyTreatment::Drop)]
    #[case("deployment.kubernetes.io/revision", KeyTreatment::Drop)]
    #[case("kubectl.kubernetes.io/last-applied-configuration", KeyTreatment::Drop)]
    #[case("conversion.mcm/unmapped", KeyTreatment::Drop)]
    #[case("machine.mcm/stand-in", KeyTreatment::Drop)]
    fn reserved_keys_are_not_copied(#[case] key: &str, #[case] treatment: KeyTreatment) {
        assert_eq!(of_object(key), treatment);
    }

    #[rstest]
    #[case("node-role.kubernetes.io/worker", true)]
    #[case("a.node-role.kubernetes.io/worker", false)]
    #[case("node.cluster.x-k8s.io/a", true)]
    #[case("b.node.cluster.x-k8s.io/a", true)]
    #[case("anode.cluster.x-k8s.io/a", false)]
    #[case("node-restriction.kubernetes.io/a", true)]
    #[case("node-restriction.kubernetes.io", false)]
    #[case("worker", false)]
    fn labels_of_three_domains_go_to_the_node(#[case] key: &str, #[case] expected: bool) {
        assert_eq!(is_in(key, &names::NODE_LABEL_DOMAINS), expected);
    }
}
