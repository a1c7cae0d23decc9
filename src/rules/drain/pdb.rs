//! Finds the disruption budget that refused an eviction, and whether it can ever allow one.

use k8s_openapi::api::policy::v1::PodDisruptionBudget;

use super::PodFacts;
use mcm_api::selector::Selector;

/// The number of disruptions that a budget allows now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DisruptionAllowance {
    /// `metadata.resourceVersion` of the budget.
    pub version: String,
    /// `status.disruptionsAllowed`.
    pub disruptions: i32,
}

/// A refused eviction and the budget that refused it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvictionRefusal {
    /// Text of the API server.
    pub message: String,
    /// The budget that refused, `namespace/name`; `None` if none was found.
    pub budget: Option<String>,
    /// Its resource version, read after the refusal.
    pub version: Option<String>,
    /// All its pods are healthy and it allows no disruption, so waiting does not help.
    pub is_misconfigured: bool,
    /// Several budgets select the pod, which the API server never lets evict then. `budget` names all of them.
    pub is_of_several: bool,
}

/// An eviction failed because several budgets select the pod. The API server responds with a 500 and this text.
pub fn is_of_several(message: &str) -> bool {
    message.contains("more than one PodDisruptionBudget")
}

impl EvictionRefusal {
    /// Finds the budget that refused the eviction, among those of the pod's namespace.
    pub fn for_pod(pod: &PodFacts, budgets: &[PodDisruptionBudget], message: impl Into<String>) -> Self {
        let mut covering: Vec<&PodDisruptionBudget> = budgets.iter().filter(|budget| covers(budget, pod)).collect();
        // Of several, a user has to correct the budget that can never be satisfied.
        covering.sort_by_key(|budget| (!is_misconfigured(budget), budget.metadata.name.clone()));
        let name = |budget: &PodDisruptionBudget| {
            format!("{}/{}", pod.pod.namespace, budget.metadata.name.as_deref().unwrap_or_default())
        };
        let message = message.into();
        if is_of_several(&message) {
            let mut names: Vec<String> = covering.iter().map(|budget| name(budget)).collect();
            names.sort_unstable();
            let budget = (!names.is_empty()).then(|| names.join(" and "));
            return Self { message, budget, version: None, is_misconfigured: false, is_of_several: true };
        }
        let budget = covering.first();
        Self {
            message,
            budget: budget.map(|budget| name(budget)),
            version: budget.and_then(|budget| budget.metadata.resource_version.clone()),
            is_misconfigured: budget.is_some_and(|budget| is_misconfigured(budget)),
            is_of_several: false,
        }
    }
}

fn covers(budget: &PodDisruptionBudget, pod: &PodFacts) -> bool {
    budget.metadata.namespace.as_deref().unwrap_or_default() == pod.pod.namespace
        && budget.spec.as_ref().is_some_and(|spec| {
            Selector::parse(spec.selector.as_ref()).is_ok_and(|selector| selector.matches(Some(&pod.labels)))
        })
}

fn is_misconfigured(budget: &PodDisruptionBudget) -> bool {
    budget.status.as_ref().is_some_and(|status| {
        budget.metadata.generation == status.observed_generation
            && status.expected_pods > 0
            && status.current_healthy >= status.expected_pods
            && status.disrupted_pods.as_ref().is_none_or(|pods| pods.is_empty())
            && status.disruptions_allowed == 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn pod() -> PodFacts {
        let pod: Pod =
            serde_json::from_value(json!({ "metadata": { "name": "p", "namespace": "n", "labels": { "app": "db" } } }))
                .unwrap();
        PodFacts::from_pod(&pod)
    }

    fn budget(name: &str, selector: Value, status: Value) -> PodDisruptionBudget {
        serde_json::from_value(json!({
            "metadata": { "name": name, "namespace": "n", "generation": 2 },
            "spec": { "selector": selector }, "status": status,
        }))
        .unwrap()
    }

    fn status(changes: Value) -> Value {
        let mut status = json!({ "observedGeneration": 2, "expectedPods": 2, "currentHealthy": 2, "desiredHealthy": 2, "disruptionsAllowed": 0 });
        status.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        status
    }

    #[rstest]
    #[case::all_healthy_and_none_may_go(json!({}), true)]
    #[case::not_observed_yet(json!({ "observedGeneration": 1 }), false)]
    #[case::no_pods_expected(json!({ "expectedPods": 0 }), false)]
    #[case::some_pod_is_not_healthy(json!({ "currentHealthy": 1 }), false)]
    #[case::a_disruption_is_under_way(json!({ "disruptedPods": { "q": "2026-01-01T00:00:00Z" } }), false)]
    #[case::one_may_go(json!({ "disruptionsAllowed": 1 }), false)]
    fn misconfigured_only_if_waiting_cannot_help(#[case] changes: Value, #[case] expected: bool) {
        let budgets = [budget("b", json!({ "matchLabels": { "app": "db" } }), status(changes))];
        assert_eq!(EvictionRefusal::for_pod(&pod(), &budgets, "no").is_misconfigured, expected);
    }

    #[rstest]
    #[case::by_label(json!({ "matchLabels": { "app": "db" } }), Some("n/b"))]
    #[case::empty_selector_covers_all(json!({}), Some("n/b"))]
    #[case::other_label(json!({ "matchLabels": { "app": "web" } }), None)]
    #[case::no_selector(json!(null), None)]
    fn the_budget_is_found_by_its_selector(#[case] selector: Value, #[case] expected: Option<&str>) {
        let budgets = [budget("b", selector, status(json!({})))];
        assert_eq!(EvictionRefusal::for_pod(&pod(), &budgets, "no").budget.as_deref(), expected);
    }

    #[test]
    fn budgets_of_other_namespaces_do_not_count() {
        let mut elsewhere = budget("b", json!({}), status(json!({})));
        elsewhere.metadata.namespace = Some("other".to_owned());
        assert_eq!(EvictionRefusal::for_pod(&pod(), &[elsewhere], "no").budget, None);
    }

    #[test]
    fn all_budgets_of_a_pod_are_named_if_their_number_is_the_reason() {
        let all = json!({});
        let budgets = [budget("z", all.clone(), status(json!({}))), budget("a", all, status(json!({})))];
        let text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        let refusal = EvictionRefusal::for_pod(&pod(), &budgets, text);
        assert_eq!((refusal.budget.as_deref(), refusal.is_of_several), (Some("n/a and n/z"), true));
        assert!(!refusal.is_misconfigured);
    }

    #[test]
    fn of_several_budgets_the_one_to_repair_is_named() {
        let budgets =
            [budget("a", json!({}), status(json!({ "currentHealthy": 1 }))), budget("z", json!({}), status(json!({})))];
        let refusal = EvictionRefusal::for_pod(&pod(), &budgets, "no");
        assert_eq!((refusal.budget.as_deref(), refusal.is_misconfigured), (Some("n/z"), true));
    }
}
