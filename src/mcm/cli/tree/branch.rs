//! The tree of objects, from facts. Pure.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use schemars::JsonSchema;
use serde::Serialize;

use crate::api::{
    machine::{Machine, MachineSet},
    node::Node,
};
use mcm_insight::{
    progress::RolloutState,
    story::{CLASS, DEPLOYMENT, MACHINE, NamespaceFacts, ObjectAnswer, ObjectVerdict, SET, UndecodableObject},
    terminal::ago,
};
use mcm_rules::{
    drain::{EvictionRefusal, PodFacts},
    plan::{SubjectRef, counted},
};

/// Nodes of machines, pods that a drain has to evict, and the budgets in their way.
#[derive(Default)]
pub(super) struct NodeSurroundings {
    pub nodes: BTreeMap<String, Arc<Node>>,
    /// By Node.
    pub pods: BTreeMap<String, Vec<PodFacts>>,
    pub budgets: Vec<PodDisruptionBudget>,
    /// Notes about what could not be read.
    pub unread: Vec<String>,
}

/// An object with those below it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::cli) struct TreeBranch {
    pub kind: String,
    /// API group of the kind, for kinds of Cluster API and of its provider mcm.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_group: Option<&'static str>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    pub name: String,
    /// More about the object, such as the class of a set.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// How it is; absent for objects that no controller plans.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<ObjectVerdict>,
    /// Its state in words.
    pub now: String,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub since: Option<Timestamp>,
    /// The reason; empty if it is as it should be.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// The zone of a machine.
    #[serde(skip)]
    pub zone: Option<String>,
    /// How many objects are one line, whose text is the name; 0 for an object.
    #[serde(skip)]
    pub alike: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<Self>,
}

/// All objects of the namespace that nothing shown owns: deployments, and sets and machines without an owner here.
pub(super) fn roots(facts: &NamespaceFacts) -> Vec<SubjectRef> {
    let of_kind = |kind: &'static str| facts.names(kind).map(|name| facts.subject(kind, name));
    let is_root = |object: &SubjectRef| {
        let owner = facts.known(object).owners.into_iter().next();
        owner.is_none_or(|owner| !facts.names(&owner.kind).any(|name| *name == owner.name) || owner.kind == CLASS)
    };
    let others = of_kind(SET).chain(of_kind(MACHINE)).filter(is_root);
    let is_shown = |kind: &str, owner: &Option<String>| {
        owner.as_ref().is_some_and(|owner| facts.names(kind).any(|name| name == owner))
    };
    let undecodable = facts.unreadable.iter().filter(|one| match one.kind.as_str() {
        DEPLOYMENT => true,
        SET => !is_shown(DEPLOYMENT, &one.owner),
        MACHINE => !is_shown(SET, &one.owner),
        _ => false,
    });
    let undecodable = undecodable.map(|one| facts.subject(&one.kind, &one.name));
    of_kind(DEPLOYMENT).chain(others).chain(undecodable).collect()
}

/// The objects of a kind with an owner that cannot be decoded.
fn undecodable_below(facts: &NamespaceFacts, kind: &str, owner: &str) -> Vec<TreeBranch> {
    let is_below = |one: &&UndecodableObject| one.kind == kind && one.owner.as_deref() == Some(owner);
    let branch = |one: &UndecodableObject| plain(&facts.subject(kind, &one.name), &facts.undecodable(one));
    facts.unreadable.iter().filter(is_below).map(branch).collect()
}

/// The tree of an object.
pub(super) fn object_tree(facts: &NamespaceFacts, around: &NodeSurroundings, object: &SubjectRef) -> TreeBranch {
    let is_it = |one: &&UndecodableObject| one.kind == object.kind && one.name == object.name;
    if let Some(one) = facts.unreadable.iter().find(is_it) {
        return plain(object, &facts.undecodable(one));
    }
    match object.kind.as_str() {
        DEPLOYMENT => of_deployment(facts, around, object),
        SET => facts.sets.get(&object.name).map(|set| of_set(facts, around, set, "")).unwrap_or_default(),
        MACHINE => {
            facts.machines.get(&object.name).map(|machine| of_machine(facts, around, machine)).unwrap_or_default()
        }
        _ => plain(object, &facts.answer(object)),
    }
}

pub(super) fn plain(object: &SubjectRef, answer: &ObjectAnswer) -> TreeBranch {
    TreeBranch {
        kind: object.kind.clone(),
        api_group: answer.api_group,
        namespace: object.namespace.clone(),
        name: object.name.clone(),
        verdict: Some(answer.verdict),
        now: if answer.state.is_empty() { answer.verdict.word().to_owned() } else { answer.state.clone() },
        since: answer.since,
        why: if answer.verdict == ObjectVerdict::Settled { String::new() } else { answer.reason() },
        ..TreeBranch::default()
    }
}

fn of_deployment(facts: &NamespaceFacts, around: &NodeSurroundings, object: &SubjectRef) -> TreeBranch {
    let answer = facts.answer(object);
    let mut branch = plain(object, &answer);
    let (Some(family), Some(progress)) = (facts.family(&object.name), facts.progress(&object.name)) else {
        return branch;
    };
    let state = facts.state(&progress, &answer);
    let numbers = format!("{} of {}", progress.new, progress.wanted);
    branch.now = match &state {
        RolloutState::Done => format!("{numbers} running"),
        RolloutState::Rolling => format!("{numbers} new"),
        RolloutState::Waiting(_) => format!("{numbers} new, waiting"),
        RolloutState::Unknown(_) => format!("{numbers} new, unknown"),
        RolloutState::Blocked(_) => format!("{numbers} new, blocked"),
        RolloutState::Failed(_) => format!("{numbers} new, failed"),
    };
    branch.why = match state.reason() {
        Some(why) => why.to_owned(),
        None if answer.verdict == ObjectVerdict::Settled && state == RolloutState::Done => String::new(),
        None => answer.reason(),
    };
    let new = family.new_set().map(|set| set.name_any());
    let is_shown = |set: &&&MachineSet| {
        set.spec.replicas > 0 || Some(set.name_any()) == new || !facts.machines_of_set(&set.name_any()).is_empty()
    };
    let age = |set: &MachineSet| if Some(set.name_any()) == new { "new" } else { "old" };
    branch.children = family.sets.iter().filter(is_shown).map(|set| of_set(facts, around, set, age(set))).collect();
    branch.children.extend(undecodable_below(facts, SET, &object.name));
    branch
}

fn of_set(facts: &NamespaceFacts, around: &NodeSurroundings, set: &MachineSet, age: &str) -> TreeBranch {
    let object = facts.subject(SET, &set.name_any());
    // The answer without its machines, which have their own lines.
    let answer = facts.answer(&object);
    let machines = facts.machines_of_set(&object.name);
    let going = machines.iter().filter(|machine| machine.is_terminating()).count();
    let up = machines.iter().filter(|machine| machine.is_available()).count();
    let going = if going > 0 { format!(", {going} going") } else { String::new() };
    let class = &set.spec.template.spec.class.name;
    let mut branch = plain(&object, &answer);
    branch.label = [age, class].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ");
    branch.now = format!("{up} of {} up{going}", set.spec.replicas);
    branch.verdict = None;
    branch.why = match (answer.waits.first(), answer.next.first()) {
        (Some(wait), _) => wait.text.clone(),
        (None, Some(step)) => format!("next: {}: {}", step.action, step.reason),
        (None, None) => String::new(),
    };
    branch.children = machines.into_iter().map(|machine| of_machine(facts, around, machine)).collect();
    branch.children.extend(undecodable_below(facts, MACHINE, &object.name));
    branch.children.sort_by_key(|child| std::cmp::Reverse(child.verdict));
    branch
}

fn of_machine(facts: &NamespaceFacts, around: &NodeSurroundings, machine: &Machine) -> TreeBranch {
    let object = facts.subject(MACHINE, &machine.name_any());
    let answer = facts.answer(&object);
    let mut branch = TreeBranch { zone: facts.zone_of(machine), ..plain(&object, &answer) };
    if let Some(forced) = answer.waits.first().and_then(|wait| wait.forced_at).filter(|at| *at > facts.now) {
        branch.why = format!("{}, forced in {}", branch.why, ago(forced, facts.now));
    }
    if let Some(node) = machine.node_name() {
        branch.children.extend(around.nodes.get(node).map(|found| of_node(around, node, found)));
    }
    branch
}

fn of_node(around: &NodeSurroundings, name: &str, node: &Node) -> TreeBranch {
    let is_ready = node.status.conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True");
    let pods = around.pods.get(name);
    let ready = if is_ready { "Ready" } else { "NotReady" };
    let mut branch = TreeBranch { kind: "Node".to_owned(), name: name.to_owned(), ..TreeBranch::default() };
    branch.now = if node.spec.unschedulable { format!("{ready}, cordoned") } else { ready.to_owned() };
    branch.why = pods.map(|pods| format!("{} left", counted(pods.len(), "pod"))).unwrap_or_default();
    branch.children = pods.into_iter().flatten().map(|pod| of_pod(around, pod)).collect();
    branch
}

fn of_pod(around: &NodeSurroundings, pod: &PodFacts) -> TreeBranch {
    let mut branch = TreeBranch {
        kind: "Pod".to_owned(),
        namespace: pod.pod.namespace.clone(),
        name: pod.pod.name.clone(),
        ..TreeBranch::default()
    };
    if let Some(since) = pod.terminating_since {
        (branch.now, branch.since, branch.verdict) = ("ends".to_owned(), Some(since), Some(ObjectVerdict::Progressing));
        return branch;
    }
    (branch.now, branch.verdict) = ("not evicted".to_owned(), Some(ObjectVerdict::Waiting));
    let refusal = EvictionRefusal::for_pod(pod, &around.budgets, "");
    let budget = refusal.budget.as_deref().and_then(|budget| budget.split_once('/'));
    let allowed = |(namespace, name): (&str, &str)| {
        let is_it = |one: &&PodDisruptionBudget| {
            one.metadata.name.as_deref() == Some(name) && one.metadata.namespace.as_deref() == Some(namespace)
        };
        let status = around.budgets.iter().find(is_it).and_then(|one| one.status.as_ref());
        status.map(|status| format!("budget {name}, {} allowed", status.disruptions_allowed))
    };
    branch.why = budget.and_then(allowed).unwrap_or_default();
    branch
}
