//! A disruption budget of the target cluster with its pods. Pure.

use std::collections::BTreeSet;

use k8s_openapi::api::{core::v1::Pod, policy::v1::PodDisruptionBudget};
use kube::ResourceExt;
use serde_json::{Value, json};

/// The most pods that are named.
const MOST_PODS: usize = 3;

/// A budget as its status shows it, and its pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetState {
    pub namespace: String,
    pub name: String,
    /// Evictions that it allows now.
    pub allowed: i32,
    pub healthy: i32,
    pub desired: i32,
    pub expected: i32,
    /// The Nodes of its pods.
    pub nodes: BTreeSet<String>,
    /// Its first pods that are not Ready.
    pub unready: Vec<UnreadyPod>,
    /// It lets pods be evicted that are not Ready.
    pub evicts_unready: bool,
    /// `minAvailable` and `maxUnavailable`, to restore them.
    pub amounts: Value,
}

/// A pod that is not Ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadyPod {
    pub name: String,
    pub node: Option<String>,
}

impl BudgetState {
    /// The state of a budget whose selector matches these pods.
    pub fn from_objects(budget: &PodDisruptionBudget, pods: &[Pod]) -> Self {
        let (spec, status) = (budget.spec.clone().unwrap_or_default(), budget.status.clone().unwrap_or_default());
        let unready = pods.iter().filter(|pod| is_counted(pod) && !is_ready(pod)).map(|pod| UnreadyPod {
            name: pod.name_any(),
            node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
        });
        Self {
            namespace: budget.namespace().unwrap_or_default(),
            name: budget.name_any(),
            allowed: status.disruptions_allowed,
            healthy: status.current_healthy,
            desired: status.desired_healthy,
            expected: status.expected_pods,
            nodes: pods.iter().filter_map(|pod| pod.spec.as_ref()?.node_name.clone()).collect(),
            unready: unready.take(MOST_PODS).collect(),
            evicts_unready: spec.unhealthy_pod_eviction_policy.as_deref() == Some("AlwaysAllow"),
            amounts: json!({ "minAvailable": spec.min_available, "maxUnavailable": spec.max_unavailable }),
        }
    }

    /// Namespace and name.
    pub fn title(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// It allows no eviction even if all its pods are healthy.
    pub const fn is_never(&self) -> bool {
        self.desired >= self.expected
    }

    /// Its pods have no controller, so the controller of budgets counts none of them, whatever the budget says.
    pub fn counts_none(&self) -> bool {
        self.expected == 0 && !self.nodes.is_empty()
    }

    /// Its pods that are not Ready, and why it allows no eviction, in words; empty if that ends with no pod.
    pub fn shortage(&self) -> Option<String> {
        if self.counts_none() {
            return Some("its pods have no controller, so it counts none of them".to_owned());
        }
        let pods: Vec<String> = self.unready.iter().map(|pod| format!("{}/{}", self.namespace, pod.name)).collect();
        let are = if pods.len() == 1 { "is" } else { "are" };
        (!pods.is_empty()).then(|| {
            let Self { healthy, desired, expected, .. } = self;
            format!(
                "{healthy} of {expected} pods are healthy, and {desired} have to be: {} {are} not Ready",
                pods.join(", ")
            )
        })
    }
}

/// The budget counts the pod: it has not ended.
fn is_counted(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    !matches!(phase, Some("Succeeded" | "Failed"))
}

fn is_ready(pod: &Pod) -> bool {
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    pod.metadata.deletion_timestamp.is_none() && conditions.any(|one| one.type_ == "Ready" && one.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, ready: &str, phase: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": { "name": name, "namespace": "demo" }, "spec": { "nodeName": format!("node-{name}"), "containers": [] },
            "status": { "phase": phase, "conditions": [{ "type": "Ready", "status": ready }] },
        }))
        .unwrap()
    }

    #[test]
    fn the_pods_that_are_not_ready_are_named_without_those_that_ended() {
        let budget: PodDisruptionBudget = serde_json::from_value(json!({
            "metadata": { "name": "web", "namespace": "demo" },
            "spec": { "minAvailable": 2, "unhealthyPodEvictionPolicy": "AlwaysAllow" },
            "status": { "disruptionsAllowed": 0, "currentHealthy": 2, "desiredHealthy": 2, "expectedPods": 3 },
        }))
        .unwrap();
        let pods = [pod("a", "True", "Running"), pod("b", "False", "Running"), pod("c", "False", "Succeeded")];
        let state = BudgetState::from_objects(&budget, &pods);
        assert_eq!(state.unready, [UnreadyPod { name: "b".to_owned(), node: Some("node-b".to_owned()) }]);
        let shortage = "2 of 3 pods are healthy, and 2 have to be: demo/b is not Ready";
        assert_eq!(state.shortage().as_deref(), Some(shortage));
        assert_eq!((state.is_never(), state.evicts_unready), (false, true));
        assert_eq!(state.amounts, json!({ "minAvailable": 2, "maxUnavailable": null }));
        assert_eq!(BudgetState::from_objects(&budget, &pods[..1]).shortage(), None);
    }

    #[test]
    fn a_budget_whose_pods_have_no_controller_counts_none() {
        let budget: PodDisruptionBudget = serde_json::from_value(json!({
            "metadata": { "name": "web", "namespace": "demo" }, "spec": { "maxUnavailable": 1 },
            "status": { "disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0 },
        }))
        .unwrap();
        let state = BudgetState::from_objects(&budget, &[pod("a", "True", "Running")]);
        assert_eq!(state.shortage().as_deref(), Some("its pods have no controller, so it counts none of them"));
        assert!(!BudgetState::from_objects(&budget, &[]).counts_none(), "it has no pods");
    }
}
