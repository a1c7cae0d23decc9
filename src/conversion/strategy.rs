//! How a deployment replaces its machines.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::report::ConversionReport;
use crate::types::{RollingUpdate, RolloutStrategy};
use mcm_api::machine::{self, StrategyType};

const PATH: &str = "spec.rollout.strategy";
const NATIVE_PATH: &str = "spec.strategy";
const ROLLING_UPDATE: &str = "RollingUpdate";

/// Refuses strategies that the native side does not have.
pub(super) fn check_capi(strategy: &RolloutStrategy, report: &mut ConversionReport) {
    match strategy.type_.as_str() {
        "" | ROLLING_UPDATE => {}
        "OnDelete" => report.refuse(
            format!("{PATH}.type"),
            "OnDelete has no MCM equivalent: machines would be replaced at once",
            "use RollingUpdate, and paused: true if nothing is to be replaced yet",
        ),
        other => report.refuse(format!("{PATH}.type"), format!("{other:?} is not a strategy"), "use RollingUpdate"),
    }
}

/// Refuses invalid native strategies, and reports strategies that become a rolling update.
pub(super) fn check_native(strategy: &machine::Strategy, report: &mut ConversionReport) {
    let bounds = |name: &str,
                  bounds: Option<(&Option<IntOrString>, &Option<IntOrString>)>,
                  report: &mut ConversionReport| {
        for (field, value) in [("maxSurge", bounds.map(|both| both.0)), ("maxUnavailable", bounds.map(|both| both.1))] {
            if value.is_none_or(Option::is_none) {
                report.refuse(format!("{NATIVE_PATH}.{name}.{field}"), "is required and absent", "set it");
            }
        }
    };
    match strategy.kind() {
        Some(StrategyType::RollingUpdate) => {
            let given = strategy.rolling_update.as_ref().map(|update| (&update.max_surge, &update.max_unavailable));
            bounds("rollingUpdate", given, report);
        }
        Some(StrategyType::Recreate) => report.lose(
            NATIVE_PATH,
            "Recreate becomes RollingUpdate with maxSurge 0 and maxUnavailable 100%",
            "new machines may be created before the last old one is deleted",
        ),
        Some(StrategyType::InPlaceUpdate) => {
            let given = strategy.in_place_update.as_ref().map(|update| (&update.max_surge, &update.max_unavailable));
            bounds("inPlaceUpdate", given, report);
            report.lose(
                NATIVE_PATH,
                "InPlaceUpdate becomes RollingUpdate with the same numbers",
                "a change of the template replaces VMs instead of updating them",
            );
        }
        None => report.refuse(
            format!("{NATIVE_PATH}.type"),
            format!("{:?} is not a strategy", strategy.type_),
            "use RollingUpdate, Recreate or InPlaceUpdate",
        ),
    }
}

/// Every bound is written: neither side has the other's defaults.
pub(super) fn to_native(strategy: &RolloutStrategy) -> machine::Strategy {
    let max_surge = strategy.rolling_update.max_surge.clone().unwrap_or(IntOrString::Int(1));
    let max_unavailable = strategy.rolling_update.max_unavailable.clone().unwrap_or(IntOrString::Int(0));
    machine::Strategy {
        type_: ROLLING_UPDATE.to_owned(),
        rolling_update: Some(machine::RollingUpdate {
            max_unavailable: Some(max_unavailable),
            max_surge: Some(max_surge),
        }),
        in_place_update: None,
    }
}

/// The closest rolling update.
pub(super) fn to_capi(strategy: &machine::Strategy) -> RolloutStrategy {
    let (max_surge, max_unavailable) = match strategy.kind() {
        Some(StrategyType::Recreate) => (Some(IntOrString::Int(0)), Some(IntOrString::String("100%".to_owned()))),
        Some(StrategyType::InPlaceUpdate) => {
            let update = strategy.in_place_update.clone().unwrap_or_default();
            (update.max_surge, update.max_unavailable)
        }
        Some(StrategyType::RollingUpdate) | None => {
            let update = strategy.rolling_update.clone().unwrap_or_default();
            (update.max_surge, update.max_unavailable)
        }
    };
    let max_surge = max_surge.unwrap_or(IntOrString::Int(1));
    let mut max_unavailable = max_unavailable.unwrap_or(IntOrString::Int(0));
    // Natively, a pair of zeros counts as one unavailable machine; Cluster API rejects it.
    if is_zero(&max_surge) && is_zero(&max_unavailable) {
        max_unavailable = IntOrString::Int(1);
    }
    let rolling_update = RollingUpdate { max_surge: Some(max_surge), max_unavailable: Some(max_unavailable) };
    RolloutStrategy { type_: ROLLING_UPDATE.to_owned(), rolling_update }
}

fn is_zero(bound: &IntOrString) -> bool {
    match bound {
        IntOrString::Int(number) => *number == 0,
        IntOrString::String(text) => text.trim_end_matches('%').parse() == Ok(0u32),
    }
}
