//! Reads the Nodes of machines, the pods that keep drained Nodes, and disruption budgets.

use std::collections::BTreeSet;

use anyhow::Result;
use k8s_openapi::api::{core::v1::Pod, policy::v1::PodDisruptionBudget};
use kube::{Api, Client, ResourceExt, api::ListParams};

use super::branch::NodeSurroundings;
use mcm_controllers::machine::DrainReason;
use mcm_insight::{
    error::error_line,
    read_only::ReadOnly,
    reader,
    story::{MACHINE, NamespaceFacts},
};
use mcm_rules::{drain::PodFacts, plan::SubjectRef};

/// Nodes whose pods are read. Each needs a request.
const MOST_NODES: usize = 50;

/// Reads what surrounds the machines of some objects.
pub(super) async fn read(cell: &ReadOnly, facts: &NamespaceFacts, roots: &[SubjectRef]) -> NodeSurroundings {
    let nodes = cell.nodes().into_iter().flatten().map(|node| (node.name_any(), node)).collect();
    let mut found = NodeSurroundings { nodes, ..NodeSurroundings::default() };
    let Some(target) = &cell.target else { return found };
    let drained: Vec<&str> = drained(facts, roots).into_iter().filter(|node| found.nodes.contains_key(*node)).collect();
    if drained.is_empty() {
        return found;
    }
    if drained.len() > MOST_NODES {
        found.unread.push(format!(
            "pods of {} of {} drained Nodes are not shown",
            drained.len() - MOST_NODES,
            drained.len()
        ));
    }
    let lists = drained.iter().take(MOST_NODES).map(|node| pods_on(target, node));
    for (node, pods) in drained.iter().zip(futures::future::join_all(lists).await) {
        match pods {
            Ok(pods) => drop(found.pods.insert((*node).to_owned(), pods)),
            Err(error) => {
                found.unread.push(format!("pods could not be read: {}", error_line(&error)));
                break;
            }
        }
    }
    match budgets(target).await {
        Ok(budgets) => found.budgets = budgets,
        Err(error) => found.unread.push(format!("disruption budgets could not be read: {}", error_line(&error))),
    }
    found
}

/// Names of the Nodes of machines that are deleted.
fn drained<'a>(facts: &'a NamespaceFacts, roots: &[SubjectRef]) -> Vec<&'a str> {
    let mut nodes = BTreeSet::new();
    for root in roots {
        let machines: Vec<&String> = match root.kind.as_str() {
            MACHINE => facts.machines.get_key_value(&root.name).map(|(name, _)| name).into_iter().collect(),
            _ => facts.machines_of(root).collect(),
        };
        for machine in machines.into_iter().filter_map(|name| facts.machines.get(name)) {
            if let Some(node) = machine.node_name().filter(|_| DrainReason::for_machine(machine).is_some()) {
                nodes.insert(node);
            }
        }
    }
    nodes.into_iter().collect()
}

async fn pods_on(target: &Client, node: &str) -> Result<Vec<PodFacts>> {
    let on_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let pods = reader::pages(&Api::<Pod>::all(target.clone()), on_node).await?;
    Ok(pods.iter().map(PodFacts::from_pod).filter(|pod| pod.is_drained() && !pod.is_finished).collect())
}

async fn budgets(target: &Client) -> Result<Vec<PodDisruptionBudget>> {
    reader::pages(&Api::all(target.clone()), ListParams::default()).await
}
