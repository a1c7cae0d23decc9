//! Validates a spec once; all code after it works on a valid one.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::bounds::{IntOrPercent, ReplicaBounds};
use mcm_api::{
    machine::{MOST_REPLICAS, MachineDeployment, MachineDeploymentSpec, StrategyType},
    selector::{InvalidSelector, Selector},
};

/// A valid spec.
#[derive(Clone, Debug)]
pub(super) struct ValidSpec {
    pub selector: Selector,
    pub strategy: StrategyType,
    /// InPlaceUpdate: a user selects the Nodes.
    pub is_manual: bool,
    pub bounds: ReplicaBounds,
}

/// Why a spec is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum InvalidDeployment {
    #[error("spec.selector matches everything: give it at least one label that all machines of this deployment carry")]
    SelectsAll,
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Fields(Vec<DeploymentFieldError>),
}

/// One invalid field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum DeploymentFieldError {
    #[error("spec.replicas is {0}: it must not be negative")]
    NegativeReplicas(i32),
    #[error("spec.replicas is {0}: it must not exceed {MOST_REPLICAS}")]
    TooManyReplicas(i32),
    #[error("spec.selector is missing: set it to labels of the template")]
    NoSelector,
    #[error("spec.{0}")]
    BadSelector(InvalidSelector),
    #[error("spec.selector does not match spec.template.metadata.labels: add the missing labels to the template")]
    SelectorMissesTemplate,
    #[error("{0} is empty: name the machine class")]
    NoClass(&'static str),
    #[error("spec.strategy.type is {0:?}: use RollingUpdate, Recreate or InPlaceUpdate")]
    UnknownStrategy(String),
    #[error("{0} is missing: set it to a number or a percentage")]
    NoAmount(String),
    #[error("{field} is {text:?}: use a number or a percentage such as \"25%\"")]
    BadAmount { field: String, text: String },
    #[error("spec.strategy.inPlaceUpdate.orchestrationType is {0:?}: use Auto or Manual")]
    UnknownOrchestration(String),
}

/// The bounds of a rollout.
///
/// # Errors
/// Why its spec is invalid.
pub fn bounds_of(deployment: &MachineDeployment) -> Result<ReplicaBounds, String> {
    validate(deployment).map(|spec| spec.bounds).map_err(|invalid| invalid.to_string())
}

/// Checks a spec and resolves its bounds.
pub(super) fn validate(deployment: &MachineDeployment) -> Result<ValidSpec, InvalidDeployment> {
    let spec = &deployment.spec;
    let mut violations = Vec::new();
    if spec.replicas < 0 {
        violations.push(DeploymentFieldError::NegativeReplicas(spec.replicas));
    } else if spec.replicas > MOST_REPLICAS {
        violations.push(DeploymentFieldError::TooManyReplicas(spec.replicas));
    }
    let selector = selector_of(spec, &mut violations);
    let class = &spec.template.spec.class;
    for (field, text) in
        [("spec.template.spec.class.kind", &class.kind), ("spec.template.spec.class.name", &class.name)]
    {
        if text.is_empty() {
            violations.push(DeploymentFieldError::NoClass(field));
        }
    }
    let strategy = strategy_of(spec, &mut violations);
    if selector.as_ref().is_some_and(Selector::selects_all) {
        return Err(InvalidDeployment::SelectsAll);
    }
    match (selector, strategy) {
        (Some(selector), Some((strategy, bounds))) if violations.is_empty() => {
            let is_manual = strategy == StrategyType::InPlaceUpdate && is_manual(spec);
            Ok(ValidSpec { selector, strategy, is_manual, bounds })
        }
        _ => Err(InvalidDeployment::Fields(violations)),
    }
}

fn selector_of(spec: &MachineDeploymentSpec, violations: &mut Vec<DeploymentFieldError>) -> Option<Selector> {
    match Selector::parse(spec.selector.as_ref()) {
        Err(error) => violations.push(DeploymentFieldError::BadSelector(error)),
        Ok(selector) if selector.selects_none() => violations.push(DeploymentFieldError::NoSelector),
        // A set created from such a template would be released immediately.
        Ok(selector) if !selector.matches(Some(&spec.template.metadata.labels)) => {
            violations.push(DeploymentFieldError::SelectorMissesTemplate);
        }
        Ok(selector) => return Some(selector),
    }
    None
}

fn strategy_of(
    spec: &MachineDeploymentSpec,
    violations: &mut Vec<DeploymentFieldError>,
) -> Option<(StrategyType, ReplicaBounds)> {
    let strategy = &spec.strategy;
    let Some(kind) = strategy.kind() else {
        violations.push(DeploymentFieldError::UnknownStrategy(strategy.type_.clone()));
        return None;
    };
    let (field, surge, unavailable) = match kind {
        StrategyType::Recreate => return Some((kind, ReplicaBounds::exact(spec.replicas))),
        StrategyType::RollingUpdate => {
            let amounts = strategy.rolling_update.clone().unwrap_or_default();
            ("rollingUpdate", amounts.max_surge, amounts.max_unavailable)
        }
        StrategyType::InPlaceUpdate => {
            let amounts = strategy.in_place_update.clone().unwrap_or_default();
            if !matches!(amounts.orchestration_type.as_str(), "Auto" | "Manual") {
                violations.push(DeploymentFieldError::UnknownOrchestration(amounts.orchestration_type));
            }
            ("inPlaceUpdate", amounts.max_surge, amounts.max_unavailable)
        }
    };
    let mut knob = |name: &str, value: Option<IntOrString>| {
        let parsed = parse(format!("spec.strategy.{field}.{name}"), value);
        parsed.map_err(|violation| violations.push(violation)).ok()
    };
    let (surge, unavailable) = (knob("maxSurge", surge), knob("maxUnavailable", unavailable));
    let (surge, unavailable) = (surge?, unavailable?);
    // Without a selection of our own there is nothing to make room for.
    let surge = if kind == StrategyType::InPlaceUpdate && is_manual(spec) { IntOrPercent::Int(0) } else { surge };
    Some((kind, ReplicaBounds::resolve(spec.replicas, surge, unavailable)))
}

fn is_manual(spec: &MachineDeploymentSpec) -> bool {
    spec.strategy.in_place_update.as_ref().is_some_and(|amounts| amounts.orchestration_type == "Manual")
}

fn parse(field: String, value: Option<IntOrString>) -> Result<IntOrPercent, DeploymentFieldError> {
    let Some(value) = value else { return Err(DeploymentFieldError::NoAmount(field)) };
    IntOrPercent::parse(&value).ok_or_else(|| {
        let text = match value {
            IntOrString::String(text) => text,
            IntOrString::Int(number) => number.to_string(),
        };
        DeploymentFieldError::BadAmount { field, text }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn deployment(change: Value) -> MachineDeployment {
        let mut object = json!({
            "metadata": {"name": "pool"},
            "spec": {
                "replicas": 3,
                "selector": {"matchLabels": {"name": "pool"}},
                "template": {"metadata": {"labels": {"name": "pool"}}, "spec": {"class": {"kind": "MachineClass", "name": "a"}}},
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": "0%"}},
            },
        });
        crate::testing::merge(&mut object, &json!({ "spec": change }));
        serde_json::from_value(object).unwrap()
    }

    #[rstest]
    #[case::auto("Auto", (2, 1), false)]
    #[case::manual_makes_no_room("Manual", (0, 1), true)]
    fn an_in_place_update_has_a_surge_only_if_it_selects(
        #[case] orchestration: &str,
        #[case] (surge, unavailable): (i32, i32),
        #[case] is_manual: bool,
    ) {
        let amounts = json!({"maxSurge": 2, "maxUnavailable": 1, "orchestrationType": orchestration});
        let strategy = json!({"strategy": {"type": "InPlaceUpdate", "inPlaceUpdate": amounts}});
        let valid = validate(&deployment(strategy)).unwrap();
        let expected = ReplicaBounds { desired: 3, max_surge: surge, max_unavailable: unavailable };
        assert_eq!((valid.bounds, valid.is_manual), (expected, is_manual));
        let none = json!({"maxSurge": 1, "maxUnavailable": 0, "orchestrationType": orchestration});
        let strategy = json!({"strategy": {"type": "InPlaceUpdate", "inPlaceUpdate": none}});
        let unavailable = validate(&deployment(strategy)).unwrap().bounds.max_unavailable;
        assert_eq!(unavailable, i32::from(is_manual), "both are 0");
    }

    #[rstest]
    #[case::nothing_wrong(json!({}), None)]
    #[case::recreate_needs_no_amounts(json!({"strategy": {"type": "Recreate", "rollingUpdate": null}}), None)]
    #[case(json!({"replicas": -1}), Some("spec.replicas is -1"))]
    #[case(json!({"replicas": i32::MAX}), Some("spec.replicas is 2147483647: it must not exceed 1000000"))]
    #[case(json!({"selector": null}), Some("spec.selector is missing"))]
    #[case(json!({"selector": {"matchLabels": null}}), Some("spec.selector matches everything"))]
    #[case(json!({"selector": {"matchLabels": {"x": "y"}}}), Some("spec.selector does not match"))]
    #[case(json!({"selector": {"matchExpressions": [{"key": "x", "operator": "Near"}]}}), Some("spec.selector.matchExpressions: key \"x\" has operator"))]
    #[case(json!({"selector": {"matchExpressions": [{"key": "x", "operator": "Exists"}]}}), Some("spec.selector does not match"))]
    #[case(json!({"template": {"spec": {"class": null}}}), Some("spec.template.spec.class.kind is empty: name the machine class; spec.template.spec.class.name"))]
    #[case(json!({"strategy": null}), Some("spec.strategy.type is \"\""))]
    #[case(json!({"strategy": {"rollingUpdate": null}}), Some("spec.strategy.rollingUpdate.maxSurge is missing"))]
    #[case(json!({"strategy": {"rollingUpdate": {"maxSurge": "25"}}}), Some("maxSurge is \"25\""))]
    #[case(json!({"strategy": {"rollingUpdate": {"maxUnavailable": "a%"}}}), Some("maxUnavailable is \"a%\""))]
    #[case(json!({"strategy": {"type": "InPlaceUpdate", "inPlaceUpdate": {"maxSurge": 1, "maxUnavailable": 0}}}), Some("orchestrationType is \"\""))]
    fn a_spec_is_taken_or_says_what_is_wrong(#[case] change: Value, #[case] error: Option<&str>) {
        let result = validate(&deployment(change)).map_err(|invalid| invalid.to_string());
        match (result, error) {
            (Ok(_), None) => {}
            (Err(text), Some(part)) => assert!(text.contains(part), "{text}"),
            (result, error) => panic!("{result:?}, expected {error:?}"),
        }
    }
}
