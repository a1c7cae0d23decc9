//! Decides whether the stand-in may act: only where it is requested and Cluster API core is not installed.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::object::conditions::ConditionVerdict;
use mcm_api::{labels, reasons::StandInReason};
use mcm_conversion::types::names;

/// The right of the stand-in to act in a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StandInStatus {
    /// The namespace requests it, and core is not installed.
    Serving,
    /// The namespace does not request it.
    NotAsked,
    /// Core is installed; contains the sign of it.
    Core(String),
    /// It is unknown if core is installed; contains the reason.
    Unknown(String),
}

impl StandInStatus {
    /// The wait before the first write to a kind of Cluster API; completes "waiting for".
    pub(super) fn wait(&self) -> Option<String> {
        match self {
            Self::Serving => None,
            Self::NotAsked => Some(format!("the namespace to be labelled {}={}", labels::STAND_IN, labels::SERVED)),
            Self::Core(signal) => Some(format!("Cluster API core to be removed: found {signal}")),
            Self::Unknown(why) => Some(format!("confirmation that Cluster API core is not installed: {why}")),
        }
    }

    /// The condition `StandIn`.
    pub(super) fn condition(&self) -> ConditionVerdict {
        match self {
            Self::Serving => ConditionVerdict::yes(StandInReason::Serving),
            Self::NotAsked => {
                ConditionVerdict::no(StandInReason::Serving, "the namespace does not have the label of the stand-in")
            }
            Self::Core(signal) => ConditionVerdict::no(
                StandInReason::CoreProviderPresent,
                format!(
                    "Cluster API core is installed: {signal}; MCM machines keep running, see \
                     docs/cluster-api/stand-in.md"
                ),
            ),
            Self::Unknown(why) => ConditionVerdict::no(StandInReason::CoreProviderUnknown, why.clone()),
        }
    }
}

/// Suffix of the names of core's CRDs.
const OF_CORE: &str = ".cluster.x-k8s.io";
/// The CRD of the inventory of clusterctl.
pub(super) const INVENTORY: &str = "providers.clusterctl.cluster.x-k8s.io";

/// The CRD is one of core.
pub(super) fn is_of_core(name: &str) -> bool {
    name.strip_suffix(OF_CORE).is_some_and(|plural| !plural.contains('.'))
}

/// The sign of core among the CRDs of the cluster, or of an end of the kinds, at which all their objects are deleted.
pub(super) fn shown_by<'a>(definitions: impl IntoIterator<Item = &'a ObjectMeta>) -> Option<String> {
    definitions.into_iter().find_map(|meta| {
        let name = meta.name.as_deref().filter(|name| is_of_core(name))?;
        let provider = meta.labels.as_ref().and_then(|labels| labels.get(names::PROVIDER));
        if provider.is_some_and(|provider| provider == names::CORE_PROVIDER) {
            return Some(format!("CustomResourceDefinition {name} with its label {}", names::PROVIDER));
        }
        let is_going = meta.deletion_timestamp.is_some();
        is_going.then(|| format!("CustomResourceDefinition {name}, which is being deleted"))
    })
}

/// The namespace requests the stand-in.
pub(super) fn asks(namespace: &ObjectMeta) -> bool {
    let label = namespace.labels.as_ref().and_then(|labels| labels.get(labels::STAND_IN));
    label.is_some_and(|value| value == labels::SERVED)
}

/// The API server's answer about core.
pub(super) type CoreCheckResult = Result<Option<String>, String>;

/// The decision for a namespace, from the namespace, the CRDs, and the last answer about core.
pub(super) fn decide(
    asks: Result<bool, String>,
    definitions: CoreCheckResult,
    asked: Option<&CoreCheckResult>,
) -> StandInStatus {
    match asks {
        Ok(false) => return StandInStatus::NotAsked,
        Err(why) => return StandInStatus::Unknown(why),
        Ok(true) => {}
    }
    match (definitions, asked) {
        (Ok(Some(signal)), _) => StandInStatus::Core(signal),
        (_, Some(Ok(Some(signal)))) => StandInStatus::Core(signal.clone()),
        (Err(why), _) => StandInStatus::Unknown(why),
        (_, Some(Err(why))) => StandInStatus::Unknown(why.clone()),
        (_, None) => StandInStatus::Unknown("not checked yet".to_owned()),
        (Ok(None), Some(Ok(None))) => StandInStatus::Serving,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn definition(name: &str, meta: Value) -> ObjectMeta {
        let mut meta: ObjectMeta = serde_json::from_value(meta).unwrap();
        meta.name = Some(name.to_owned());
        meta
    }

    /// S2: objects that clusterctl writes before core runs.
    #[rstest]
    #[case::ours("machines.cluster.x-k8s.io", json!({ "labels": { "cluster.x-k8s.io/v1beta2": "v1beta2" } }), false)]
    #[case::of_core("clusters.cluster.x-k8s.io", json!({ "labels": { "cluster.x-k8s.io/provider": "cluster-api" } }), true)]
    #[case::of_our_provider(
        "mcmmachines.infrastructure.cluster.x-k8s.io",
        json!({ "labels": { "cluster.x-k8s.io/provider": "infrastructure-mcm" } }),
        false
    )]
    #[case::of_another_group("machines.example.com", json!({ "labels": { "cluster.x-k8s.io/provider": "cluster-api" } }), false)]
    #[case::going("machines.cluster.x-k8s.io", json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" }), true)]
    fn s2_definitions_show_core_or_the_end_of_the_kinds(
        #[case] name: &str,
        #[case] meta: Value,
        #[case] expected: bool,
    ) {
        assert_eq!(shown_by([&definition(name, meta)]).is_some(), expected);
    }

    /// S1, S2: without the label nothing is done; a failed read counts as core.
    #[rstest]
    #[case::serving(Ok(true), Ok(None), Some(Ok(None)), StandInStatus::Serving)]
    #[case::not_asked(Ok(false), Ok(None), Some(Ok(None)), StandInStatus::NotAsked)]
    #[case::namespace_unknown(Err("n".into()), Ok(None), Some(Ok(None)), StandInStatus::Unknown("n".into()))]
    #[case::definition_of_core(Ok(true), Ok(Some("d".into())), Some(Ok(None)), StandInStatus::Core("d".into()))]
    #[case::lease_of_core(Ok(true), Ok(None), Some(Ok(Some("l".into()))), StandInStatus::Core("l".into()))]
    #[case::lease_is_enough(Ok(true), Err("u".into()), Some(Ok(Some("l".into()))), StandInStatus::Core("l".into()))]
    #[case::definitions_unknown(Ok(true), Err("u".into()), Some(Ok(None)), StandInStatus::Unknown("u".into()))]
    #[case::answer_unknown(Ok(true), Ok(None), Some(Err("u".into())), StandInStatus::Unknown("u".into()))]
    #[case::never_asked(Ok(true), Ok(None), None, StandInStatus::Unknown("not checked yet".into()))]
    fn s1_s2_the_stand_in_acts_only_where_it_is_asked_to_and_core_is_known_to_be_away(
        #[case] asks: Result<bool, String>,
        #[case] definitions: CoreCheckResult,
        #[case] asked: Option<CoreCheckResult>,
        #[case] expected: StandInStatus,
    ) {
        let standing = decide(asks, definitions, asked.as_ref());
        assert_eq!(standing, expected);
        assert_eq!(standing.wait().is_none(), standing == StandInStatus::Serving);
    }

    #[rstest]
    #[case(json!({ "labels": { "machine.mcm/stand-in": "enabled" } }), true)]
    #[case(json!({ "labels": { "machine.mcm/stand-in": "" } }), false)]
    #[case(json!({}), false)]
    fn s1_a_namespace_asks_by_a_label(#[case] meta: Value, #[case] expected: bool) {
        assert_eq!(asks(&definition("ns", meta)), expected);
    }
}
