//! Label selectors, parsed once and evaluated many times.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::core::{Expression, Selector as Expressions, SelectorExt};

/// A parsed label selector. An absent selector matches nothing; an empty one matches everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector(Option<Expressions>);

/// An invalid selector. It must not be treated as "matches nothing", which would release every object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSelector {
    /// The operator is unknown.
    #[error("selector.matchExpressions: key {key:?} has operator {operator:?}: use In, NotIn, Exists or DoesNotExist")]
    Operator {
        /// Key of the requirement.
        key: String,
        /// The operator.
        operator: String,
    },
    /// The operator compares with values and there are none.
    #[error("selector.matchExpressions: key {key:?} with operator {operator} has no values: add at least one")]
    NoValues {
        /// Key of the requirement.
        key: String,
        /// The operator.
        operator: String,
    },
    /// The operator takes no values.
    #[error("selector.matchExpressions: key {key:?} with operator {operator} has values: remove them")]
    Values {
        /// Key of the requirement.
        key: String,
        /// The operator.
        operator: String,
    },
}

impl Selector {
    /// Parses a selector.
    ///
    /// # Errors
    /// A requirement has an unknown operator, or values that do not match its operator.
    pub fn parse(selector: Option<&LabelSelector>) -> Result<Self, InvalidSelector> {
        let Some(selector) = selector else {
            return Ok(Self(None));
        };
        let mut expressions: Expressions = selector.match_labels.clone().into_iter().flatten().collect();
        for requirement in selector.match_expressions.iter().flatten() {
            expressions.extend(understand(requirement)?);
        }
        Ok(Self(Some(expressions)))
    }

    /// An object with these labels is selected.
    pub fn matches(&self, labels: Option<&BTreeMap<String, String>>) -> bool {
        match &self.0 {
            None => false,
            Some(expressions) => expressions.matches(labels.unwrap_or(&BTreeMap::new())),
        }
    }

    /// It has no requirements, so that it selects every object.
    pub fn selects_all(&self) -> bool {
        self.0.as_ref().is_some_and(Expressions::selects_all)
    }

    /// The selector is absent, so that it selects no object.
    pub const fn selects_none(&self) -> bool {
        self.0.is_none()
    }
}

fn understand(requirement: &LabelSelectorRequirement) -> Result<Expression, InvalidSelector> {
    let key = requirement.key.clone();
    let operator = requirement.operator.clone();
    let values: BTreeSet<String> = requirement.values.iter().flatten().cloned().collect();
    match (requirement.operator.as_str(), values.is_empty()) {
        ("In", false) => Ok(Expression::In(key, values)),
        ("NotIn", false) => Ok(Expression::NotIn(key, values)),
        ("Exists", true) => Ok(Expression::Exists(key)),
        ("DoesNotExist", true) => Ok(Expression::DoesNotExist(key)),
        ("In" | "NotIn", true) => Err(InvalidSelector::NoValues { key, operator }),
        ("Exists" | "DoesNotExist", false) => Err(InvalidSelector::Values { key, operator }),
        _ => Err(InvalidSelector::Operator { key, operator }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn parse(selector: Value) -> Result<Selector, InvalidSelector> {
        Selector::parse(Some(&serde_json::from_value(selector).unwrap()))
    }

    fn expression(key: &str, operator: &str, values: Value) -> Value {
        json!({ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] })
    }

    #[rstest]
    #[case::empty_matches_everything(json!({}), json!({ "a": "1" }), true)]
    #[case::empty_matches_what_has_no_labels(json!({ "matchLabels": {} }), json!({}), true)]
    #[case::label_equal(json!({ "matchLabels": { "a": "1" } }), json!({ "a": "1", "b": "2" }), true)]
    #[case::label_different(json!({ "matchLabels": { "a": "1" } }), json!({ "a": "2" }), false)]
    #[case::label_absent(json!({ "matchLabels": { "a": "1" } }), json!({}), false)]
    #[case::all_labels_are_needed(json!({ "matchLabels": { "a": "1", "b": "2" } }), json!({ "a": "1" }), false)]
    #[case::in_set(expression("a", "In", json!(["1", "2"])), json!({ "a": "2" }), true)]
    #[case::not_in_the_set(expression("a", "In", json!(["1", "2"])), json!({ "a": "3" }), false)]
    #[case::in_needs_the_key(expression("a", "In", json!(["1"])), json!({}), false)]
    #[case::notin_holds_without_the_key(expression("a", "NotIn", json!(["1"])), json!({}), true)]
    #[case::notin_fails_on_the_value(expression("a", "NotIn", json!(["1"])), json!({ "a": "1" }), false)]
    #[case::exists(expression("a", "Exists", json!(null)), json!({ "a": "" }), true)]
    #[case::exists_not(expression("a", "Exists", json!([])), json!({}), false)]
    #[case::absent(expression("a", "DoesNotExist", json!(null)), json!({}), true)]
    #[case::absent_not(expression("a", "DoesNotExist", json!(null)), json!({ "a": "1" }), false)]
    #[case::labels_and_expressions_both_bind(
        json!({ "matchLabels": { "a": "1" }, "matchExpressions": [{ "key": "b", "operator": "Exists" }] }),
        json!({ "a": "1" }),
        false
    )]
    fn selects_like_the_api_server(#[case] selector: Value, #[case] labels: Value, #[case] expected: bool) {
        let labels: BTreeMap<String, String> = serde_json::from_value(labels).unwrap();
        assert_eq!(parse(selector).unwrap().matches(Some(&labels)), expected);
    }

    #[test]
    fn no_selector_matches_nothing_and_an_empty_one_everything() {
        let none = Selector::parse(None).unwrap();
        assert!(!none.matches(None) && none.selects_none() && !none.selects_all());
        let all = parse(json!({})).unwrap();
        assert!(all.matches(None) && all.selects_all() && !all.selects_none());
    }

    #[rstest]
    #[case(expression("a", "Near", json!(["1"])), "use In, NotIn, Exists or DoesNotExist")]
    #[case(expression("a", "In", json!([])), "add at least one")]
    #[case(expression("a", "NotIn", json!(null)), "add at least one")]
    #[case(expression("a", "Exists", json!(["1"])), "remove them")]
    fn an_unsupported_selector_is_an_error_and_not_an_empty_match(#[case] selector: Value, #[case] hint: &str) {
        assert!(parse(selector).unwrap_err().to_string().contains(hint));
    }
}
