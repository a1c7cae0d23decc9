use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Map, Value, json};

use super::{Action, Policy, Snapshot};
use crate::{
    api::{
        labels::{NODE_FINALIZER, NOT_MANAGED},
        machine::{Machine, MachinePhase},
        node::Node,
    },
    controllers::{finalizer, plan::Plan},
};

/// What is done next for a Node that exists.
pub fn plan(snapshot: &Snapshot, policy: &Policy) -> Plan<Action> {
    let node = snapshot.node.as_ref();
    let mut plan = Plan::default();
    match (node.metadata.deletion_timestamp.is_some(), snapshot.machines.as_slice()) {
        (_, []) if !snapshot.machines_complete => {
            plan.wait("all machines to be read, to know whether one has this node", None);
        }
        (true, []) => {
            if let Some(patch) = finalizer::remove(&node.metadata, NODE_FINALIZER) {
                plan.then(Action::PatchNode(patch), "the node is being deleted and has no machine");
            }
        }
        (true, [machine]) => replace(&mut plan, machine, &node.name_any(), "is being deleted"),
        (false, []) => declare_not_managed(&mut plan, snapshot, policy),
        (false, [machine]) => hold(&mut plan, snapshot, policy, machine),
        (_, several) => wait_for_one(&mut plan, several),
    }
    plan
}

/// What is done for the Machines of a Node that was deleted. Only for a deletion that was seen: a Node that is not found may
/// be one that was never seen, because it has not joined yet.
pub fn gone(node: &str, machines: &[Arc<Machine>]) -> Plan<Action> {
    let mut plan = Plan::default();
    match machines {
        [] => {}
        [machine] if machine.phase() == MachinePhase::New => {}
        [machine] => replace(&mut plan, machine, node, "was deleted"),
        several => wait_for_one(&mut plan, several),
    }
    plan
}

/// The finalizer of the Node falls in the course of the Machine's deletion.
fn replace(plan: &mut Plan<Action>, machine: &Arc<Machine>, node: &str, happened: &str) {
    let name = machine.name_any();
    if machine.metadata.deletion_timestamp.is_some() {
        plan.wait(format!("machine {name} to be deleted"), None);
    } else {
        let reason = format!("node {node} {happened}: replace machine {name}");
        plan.then(Action::DeleteMachine(machine.clone()), reason);
    }
}

/// One patch for both marks, so that the first write does not make the second one stale.
fn declare_not_managed(plan: &mut Plan<Action>, snapshot: &Snapshot, policy: &Policy) {
    let node = snapshot.node.as_ref();
    if is_not_managed(node) {
        return;
    }
    let due = created_at(node).and_then(|created| created.checked_add(policy.creation_timeout).ok());
    match due {
        Some(due) if due < snapshot.now => {
            let patch = marks(finalizer::without(&node.metadata, NODE_FINALIZER), Some(json!("1")));
            plan.then(Action::PatchNode(patch), "no machine has claimed the node within the creation timeout");
        }
        due => {
            plan.wait("a machine to claim the node", due);
        }
    }
}

fn hold(plan: &mut Plan<Action>, snapshot: &Snapshot, policy: &Policy, machine: &Machine) {
    let node = snapshot.node.as_ref();
    let name = machine.name_any();
    let wanted = if machine.is_terminating() { None } else { finalizer::with(&node.metadata, NODE_FINALIZER) };
    if is_not_managed(node) {
        let patch = marks(wanted, Some(Value::Null));
        plan.then(Action::PatchNode(patch), format!("machine {name} has the node"));
    } else if wanted.is_some() {
        let due = created_at(node).and_then(|created| created.checked_add(policy.finalizer_grace).ok());
        match due {
            Some(due) if due > snapshot.now => {
                plan.wait(format!("machine {name} to add the finalizer to the node"), Some(due));
            }
            _ => {
                let patch = marks(wanted, None);
                plan.then(Action::PatchNode(patch), format!("the node must not go before machine {name}"));
            }
        }
    }
}

fn wait_for_one(plan: &mut Plan<Action>, machines: &[Arc<Machine>]) {
    let mut names: Vec<String> = machines.iter().map(|machine| machine.name_any()).collect();
    names.sort_unstable();
    plan.wait(format!("one machine to be left with the node of {}", names.join(", ")), None);
}

/// Whatever the value; people set it too.
fn is_not_managed(node: &Node) -> bool {
    node.annotations().contains_key(NOT_MANAGED)
}

fn created_at(node: &Node) -> Option<Timestamp> {
    node.creation_timestamp().map(|time| time.0)
}

fn marks(finalizers: Option<Vec<String>>, not_managed: Option<Value>) -> Value {
    let mut metadata = Map::new();
    if let Some(finalizers) = finalizers {
        metadata.insert("finalizers".to_owned(), json!(finalizers));
    }
    if let Some(value) = not_managed {
        metadata.insert("annotations".to_owned(), json!({ NOT_MANAGED: value }));
    }
    json!({ "metadata": metadata })
}

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, ToSpan};
    use rstest::rstest;

    use super::*;

    const POLICY: Policy =
        Policy { creation_timeout: SignedDuration::from_secs(1200), finalizer_grace: SignedDuration::from_secs(30) };

    fn now() -> Timestamp {
        Timestamp::from_second(1_700_000_000).unwrap()
    }

    fn node(age: i64, metadata: Value) -> Node {
        let mut node: Node = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
        node.metadata.name = Some("n".into());
        node.metadata.creation_timestamp = Some((now() - age.seconds()).into());
        node
    }

    fn machine(name: &str, phase: &str) -> Arc<Machine> {
        let machine = json!({
            "metadata": { "name": name, "labels": { "node": "n" } },
            "spec": {}, "status": { "currentStatus": { "phase": phase } },
        });
        Arc::new(serde_json::from_value(machine).unwrap())
    }

    fn running() -> Vec<Arc<Machine>> {
        vec![machine("m", "Running")]
    }

    fn dying() -> Vec<Arc<Machine>> {
        let mut machine = machine("m", "Running").as_ref().clone();
        machine.metadata.deletion_timestamp = Some(now().into());
        vec![Arc::new(machine)]
    }

    fn snapshot(node: Node, machines: Vec<Arc<Machine>>) -> Snapshot {
        Snapshot { node: Arc::new(node), machines, machines_complete: true, now: now() }
    }

    fn act(plan: &Plan<Action>) -> Vec<Value> {
        let describe = |action: &Action| match action {
            Action::DeleteMachine(machine) => json!(format!("delete {}", machine.name_any())),
            Action::PatchNode(patch) => patch["metadata"].clone(),
        };
        plan.steps.iter().map(|step| describe(&step.action)).collect()
    }

    fn held() -> Value {
        json!({ "finalizers": [NODE_FINALIZER] })
    }

    fn deleting(mut metadata: Value) -> Value {
        metadata["deletionTimestamp"] = json!("2023-11-14T22:00:00Z");
        metadata
    }

    #[rstest]
    #[case::deleted_node_means_a_new_machine(node(99, deleting(held())), running(), vec![json!("delete m")])]
    #[case::deleted_node_of_a_dying_machine(node(99, deleting(held())), dying(), vec![])]
    #[case::deleted_node_without_machine(
        node(99, deleting(json!({ "finalizers": ["x", NODE_FINALIZER] }))), vec![], vec![json!({ "finalizers": ["x"] })]
    )]
    #[case::deleted_node_that_is_not_ours(node(99, deleting(json!({ "finalizers": ["x"] }))), vec![], vec![])]
    #[case::deleted_node_with_a_doubtful_machine(
        node(99, deleting(held())), vec![machine("a", "Running"), machine("b", "Running")], vec![]
    )]
    #[case::joined_a_moment_ago(node(29, json!({})), running(), vec![])]
    #[case::left_without_finalizer(
        node(30, json!({ "finalizers": ["x"] })), running(), vec![json!({ "finalizers": ["x", NODE_FINALIZER] })]
    )]
    #[case::held(node(9999, held()), running(), vec![])]
    #[case::a_dying_machine_gets_no_new_finalizer(node(99, json!({})), dying(), vec![])]
    #[case::two_machines_claim_it(node(99, json!({})), vec![machine("a", "Running"), machine("b", "Running")], vec![])]
    #[case::managed_after_all(
        node(5, json!({ "annotations": { NOT_MANAGED: "yes" } })),
        running(),
        vec![json!({ "annotations": { NOT_MANAGED: null }, "finalizers": [NODE_FINALIZER] })]
    )]
    #[case::managed_after_all_by_a_dying_machine(
        node(99, json!({ "annotations": { NOT_MANAGED: "1" } })),
        dying(),
        vec![json!({ "annotations": { NOT_MANAGED: null } })]
    )]
    #[case::not_yet_claimed(node(1200, held()), vec![], vec![])]
    #[case::never_claimed(
        node(1201, json!({ "finalizers": [NODE_FINALIZER, "x"] })),
        vec![],
        vec![json!({ "annotations": { NOT_MANAGED: "1" }, "finalizers": ["x"] })]
    )]
    #[case::never_claimed_and_never_held(
        node(1201, json!({})), vec![], vec![json!({ "annotations": { NOT_MANAGED: "1" } })]
    )]
    #[case::known_not_to_be_managed(node(9999, json!({ "annotations": { NOT_MANAGED: "" } })), vec![], vec![])]
    fn a_node(#[case] node: Node, #[case] machines: Vec<Arc<Machine>>, #[case] expected: Vec<Value>) {
        assert_eq!(act(&plan(&snapshot(node, machines), &POLICY)), expected);
    }

    #[rstest]
    #[case(node(9999, held()))]
    #[case(node(9999, deleting(held())))]
    fn without_all_machines_known_no_node_is_let_go(#[case] node: Node) {
        let plan = plan(&Snapshot { machines_complete: false, ..snapshot(node, vec![]) }, &POLICY);
        assert!(plan.steps.is_empty() && !plan.waits.is_empty());
    }

    #[rstest]
    #[case::unclaimed(node(200, json!({})), vec![], 1000)]
    #[case::without_finalizer(node(10, json!({})), running(), 20)]
    fn a_wait_ends_when_its_time_comes(#[case] node: Node, #[case] machines: Vec<Arc<Machine>>, #[case] seconds: i64) {
        let plan = plan(&snapshot(node, machines), &POLICY);
        assert_eq!(plan.wake_at(), Some(now() + seconds.seconds()));
    }

    #[rstest]
    #[case::replaced(running(), vec![json!("delete m")])]
    #[case::unhealthy_too(vec![machine("m", "Unknown")], vec![json!("delete m")])]
    #[case::not_created_yet(vec![machine("m", "")], vec![])]
    #[case::dying(dying(), vec![])]
    #[case::not_a_machine(vec![], vec![])]
    #[case::doubtful(vec![machine("a", "Running"), machine("b", "Running")], vec![])]
    fn the_machine_of_a_node_that_was_deleted(#[case] machines: Vec<Arc<Machine>>, #[case] expected: Vec<Value>) {
        assert_eq!(act(&gone("n", &machines)), expected);
    }
}
