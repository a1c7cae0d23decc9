//! Deployments whose selectors match each other's Machines.

use std::collections::BTreeMap;

use kube::ResourceExt;

use super::Snapshot;
use crate::object::condition::{ConditionRefresh, DesiredCondition};
use mcm_api::{machine::MachineDeployment, reasons::ConditionReason, selector::Selector};
use mcm_rules::plan::{Wait, WaitKind, some_of};

/// True if one of two deployments selects the Machines of the other.
pub fn overlap(one: &MachineDeployment, other: &MachineDeployment) -> bool {
    one.metadata.name != other.metadata.name
        && (selects(one, &other.spec.template.metadata.labels) || selects(other, &one.spec.template.metadata.labels))
}

/// True if a deployment selects an object with these labels. An invalid selector selects none.
pub(super) fn selects(deployment: &MachineDeployment, labels: &BTreeMap<String, String>) -> bool {
    let Some(selector) = &deployment.spec.selector else { return false };
    // A comparison of labels is cheaper than a parsed selector, and most deployments of a namespace differ in one.
    let mut wanted = selector.match_labels.iter().flatten();
    wanted.all(|(key, value)| labels.get(key) == Some(value))
        && Selector::parse(Some(selector))
            .is_ok_and(|selector| !selector.selects_all() && selector.matches(Some(labels)))
}

/// The condition of a deployment that shares Machines or sets with others; `None` if there are no others.
pub(super) fn condition(snapshot: &Snapshot) -> Option<DesiredCondition> {
    let rivals = snapshot.rivals.iter().filter(|rival| overlap(&snapshot.deployment, rival));
    let names: Vec<String> = rivals.map(|rival| rival.name_any()).collect();
    let message = format!(
        "the selectors of this deployment and of {} match each other's machines: only owners keep them apart. \
         Replace one by a deployment with another selector",
        some_of(&names)
    );
    (!names.is_empty()).then(|| {
        DesiredCondition::is_true(ConditionReason::SelectorsOverlap, message).refreshed(ConditionRefresh::OnMessage)
    })
}

/// The waits for sets that may belong to several deployments.
pub(super) fn waits(snapshot: &Snapshot, unclear: &[String]) -> Vec<Wait> {
    let wait = |name: &String| {
        let text = format!(
            "set {name} to belong to one deployment: {} and others select it, and neither its template nor its name decides \
             between them. Set its owner, or change its labels",
            snapshot.deployment.name_any()
        );
        Wait::new(WaitKind::SpecCorrection, text, None)
    };
    unclear.iter().map(wait).collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn deployment(name: &str, selector: &Value, labels: &Value) -> MachineDeployment {
        let template = json!({ "metadata": { "labels": labels } });
        let spec = json!({ "selector": selector, "template": template });
        serde_json::from_value(json!({ "metadata": { "name": name }, "spec": spec })).unwrap()
    }

    #[rstest]
    #[case::the_same(json!({"matchLabels": {"a": "1"}}), json!({"a": "1"}), true)]
    #[case::one_selects_more(json!({"matchLabels": {"a": "1", "b": "2"}}), json!({"a": "1", "b": "2"}), true)]
    #[case::by_an_expression(
        json!({"matchExpressions": [{"key": "a", "operator": "Exists"}]}),
        json!({"a": "2"}),
        true
    )]
    #[case::another_value(json!({"matchLabels": {"a": "2"}}), json!({"a": "2"}), false)]
    #[case::an_expression_excludes_it(
        json!({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}),
        json!({"a": "2"}),
        false
    )]
    #[case::a_selector_that_is_refused(json!({}), json!({"a": "2"}), false)]
    fn deployments_overlap_if_one_selects_machines_of_the_other(
        #[case] selector: Value,
        #[case] labels: Value,
        #[case] expected: bool,
    ) {
        let one = deployment("one", &json!({"matchLabels": {"a": "1"}}), &json!({"a": "1"}));
        let other = deployment("other", &selector, &labels);
        assert_eq!((overlap(&one, &other), overlap(&other, &one)), (expected, expected));
        assert!(!overlap(&one, &one), "a deployment is no other");
    }
}
