use super::{Snapshot, WriteStatus};
use crate::{
    object::{hold, view::ObjectView},
    provider::class,
};
use mcm_api::machine::ClassNodeTemplate;
use mcm_conversion::types::MCMMachineTemplateStatus;
use mcm_rules::plan::{Plan, PlanInput, WaitKind};

impl PlanInput for Snapshot {
    type Action = WriteStatus;

    fn plan(&self) -> Plan<WriteStatus> {
        plan(self)
    }

    fn is_status(_: &WriteStatus) -> bool {
        true
    }
}

/// Plans the status of a template. It needs no owner.
pub(super) fn plan(snapshot: &Snapshot) -> Plan<WriteStatus> {
    let mut plan = Plan::default();
    let meta = &snapshot.object.metadata;
    let on = hold::not_ours(meta, snapshot.watch_filter.as_deref()).or_else(|| hold::paused(meta, &snapshot.cluster));
    if let Some(on) = on {
        plan.wait(WaitKind::Hold, on, None);
        return plan;
    }
    if meta.deletion_timestamp.is_some() {
        return plan;
    }
    let spec = &snapshot.object.spec.template.spec;
    let described = match (&spec.machine_class, &snapshot.class) {
        (Some(content), _) => content.node_template.as_ref(),
        (None, ObjectView::Present(class)) => class.node_template.as_ref(),
        (None, ObjectView::Missing | ObjectView::Unknown) => {
            plan.wait(WaitKind::Class, format!("MachineClass {}", spec.machine_class_ref.name), None);
            return plan;
        }
    };
    let next = described.map(status_of).unwrap_or_default();
    if next != snapshot.object.status.clone().unwrap_or_default() {
        plan.then(WriteStatus(Box::new(next)), "it shows what Nodes of the class have");
    }
    plan
}

fn status_of(template: &ClassNodeTemplate) -> MCMMachineTemplateStatus {
    let (capacity, node_info) = class::resources_of(template);
    MCMMachineTemplateStatus { capacity, node_info }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn snapshot(change: &Value, class: ObjectView<mcm_api::machine::MachineClass>) -> Snapshot {
        let mut object = json!({
            "metadata": { "name": "t", "namespace": "ns" },
            "spec": { "template": { "spec": { "machineClassRef": { "name": "small" } } } },
        });
        mcm_api::patch::apply(&mut object, change);
        let object = Arc::new(serde_json::from_value(object).unwrap());
        Snapshot { object, cluster: ObjectView::Missing, class, watch_filter: None }
    }

    fn class() -> ObjectView<mcm_api::machine::MachineClass> {
        let node_template = json!({
            "capacity": { "cpu": "4", "gpu": "0", "memory": "16Gi" }, "virtualCapacity": { "example.com/slots": "2" },
            "architecture": "arm64", "instanceType": "small", "region": "r", "zone": "z",
        });
        ObjectView::Present(Arc::new(
            serde_json::from_value(json!({ "metadata": {}, "nodeTemplate": node_template })).unwrap(),
        ))
    }

    /// T6a.
    #[test]
    fn a_template_shows_the_capacity_and_architecture_of_its_class() {
        let plan = plan(&snapshot(&json!({}), class()));
        let [step] = plan.steps.as_slice() else { panic!("{plan:?}") };
        let expected = json!({
            "capacity": { "cpu": "4", "memory": "16Gi", "example.com/slots": "2" },
            "nodeInfo": { "architecture": "arm64" },
        });
        assert_eq!(serde_json::to_value(&step.action.0).unwrap(), expected);
        let again = snapshot(&json!({ "status": expected }), class());
        assert_eq!(super::plan(&again), Plan::default(), "and then nothing is done");
    }

    /// T7a.
    #[rstest]
    #[case::paused(json!({ "metadata": { "annotations": { "cluster.x-k8s.io/paused": "" } } }))]
    #[case::deleting(json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } }))]
    fn a_template_that_is_paused_or_goes_is_not_written(#[case] change: Value) {
        assert_eq!(plan(&snapshot(&change, class())).steps, []);
    }

    #[test]
    fn a_class_that_is_not_there_changes_nothing() {
        let plan = plan(&snapshot(&json!({ "status": { "capacity": { "cpu": "4" } } }), ObjectView::Missing));
        assert_eq!((plan.steps.len(), plan.waits.len()), (0, 1));
    }
}
