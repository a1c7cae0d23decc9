//! A VM whose Node has another name than the driver reported: the operating system cut it, a domain was appended, or the
//! cloud gave the VM another one.

use serde_json::{Value, json};

use super::super::{Action, Snapshot, TargetNodeView, views::DriverVmView};
use mcm_api::{labels, node::Node, reasons::EventReason, syntax};
use mcm_rules::plan::{Event, Plan};

/// Stores the name of the Node that the VM has, so that the Machine does not lose its VM for the lack of a Node.
pub(in super::super) fn plan(snapshot: &Snapshot) -> Plan<Action> {
    let mut plan = Plan::default();
    let is_vm_gone = snapshot.learned.vm == DriverVmView::Deleted;
    if let Some(node) = snapshot.own_other_node()
        && !is_vm_gone
        && replaces_named(snapshot, node)
    {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let patch: Value = json!({ "metadata": { "labels": { (labels::NODE): name } } });
        let event = Event::warning(
            EventReason::NodeRenamed,
            format!(
                "Node {name} has the VM of this machine, and another name than {}: it is the Node of this machine from now \
                 on; if that is not meant, set the host name of the VM",
                snapshot.machine.node_name().unwrap_or_default()
            ),
        );
        plan.then_recording(Action::PatchMachine(patch), "the VM has become a Node of another name", event);
    }
    plan
}

/// The named Node is not there, or another VM's, or is not ready while this one is.
fn replaces_named(snapshot: &Snapshot, node: &Node) -> bool {
    let is_ready = |node: &Node| node.status.conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True");
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let is_usable = syntax::is_label_value(name) && node.metadata.deletion_timestamp.is_none();
    is_usable
        && match snapshot.serving_node() {
            TargetNodeView::Missing | TargetNodeView::Absent => true,
            TargetNodeView::Present(named) => is_ready(node) && !is_ready(&named),
            TargetNodeView::Unknown | TargetNodeView::NoTarget => false,
        }
}

/// A remark on such a Node while there is no evidence yet that it is the Machine's.
pub(super) fn remark(snapshot: &Snapshot) -> String {
    let Some(name) = snapshot.other_node.as_ref().and_then(|node| node.metadata.name.as_deref()) else {
        return String::new();
    };
    format!("; Node {name} has the provider ID of this machine, and another name")
}
