use super::{Action, Snapshot};
use crate::{
    object::{hold, view::ObjectView},
    provider::class,
};
use mcm_api::machine::ClassNodeTemplate;
use mcm_conversion::types::{MCMMachineTemplateStatus, NodeInfo};
use mcm_driver::VmCapacity;
use mcm_rules::plan::{Plan, PlanInput, WaitKind};

impl PlanInput for Snapshot {
    type Action = Action;

    fn plan(&self) -> Plan<Action> {
        plan(self)
    }

    fn is_status(action: &Action) -> bool {
        matches!(action, Action::WriteStatus(_))
    }
}

/// Plans the status of a template. It needs no owner.
pub(super) fn plan(snapshot: &Snapshot) -> Plan<Action> {
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
    let next = match (described, &snapshot.vm_type) {
        (Some(template), _) => typed_status(template),
        (None, None) => MCMMachineTemplateStatus::default(),
        (None, Some(_)) => match reported_status(snapshot, &mut plan) {
            Some(next) => next,
            None => return plan,
        },
    };
    if next != snapshot.object.status.clone().unwrap_or_default() {
        plan.then(Action::WriteStatus(Box::new(next)), "it shows what Nodes of the class have");
    }
    plan
}

fn typed_status(template: &ClassNodeTemplate) -> MCMMachineTemplateStatus {
    let (capacity, node_info) = class::resources_of(template);
    MCMMachineTemplateStatus { capacity, node_info }
}

/// The status from the last answer of the cloud. `None` if there is none: then the status stays as it is.
fn reported_status(snapshot: &Snapshot, plan: &mut Plan<Action>) -> Option<MCMMachineTemplateStatus> {
    let Some(reading) = snapshot.reading.as_ref().filter(|reading| snapshot.now < reading.until) else {
        plan.then(Action::ReadCapacity, "the class has no nodeTemplate");
        return None;
    };
    if let Some(failure) = &reading.failure {
        let text = format!("the next attempt to read the capacity of its VMs: {failure}");
        plan.wait(WaitKind::DriverRetry, text, Some(reading.until));
    }
    reading.capacity.as_ref().map(status_of_cloud)
}

fn status_of_cloud(capacity: &VmCapacity) -> MCMMachineTemplateStatus {
    let architecture = capacity.architecture.unwrap_or_default().to_owned();
    let node_info = NodeInfo { architecture, ..NodeInfo::default() };
    MCMMachineTemplateStatus { capacity: capacity.node_resources(), node_info }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rstest::rstest;
    use serde_json::{Value, json};

    use super::super::capacity::{CapacityKey, CapacityReading, VmType};
    use super::*;
    use jiff::{SignedDuration, Timestamp};
    use mcm_driver::{CloudAccount, Code, DriverError, GpuCapacity};

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn snapshot(change: &Value, class: ObjectView<mcm_api::machine::MachineClass>) -> Snapshot {
        let mut object = json!({
            "metadata": { "name": "t", "namespace": "ns" },
            "spec": { "template": { "spec": { "machineClassRef": { "name": "small" } } } },
        });
        mcm_api::patch::apply(&mut object, change);
        let object = Arc::new(serde_json::from_value(object).unwrap());
        let (vm_type, reading) = (None, None);
        Snapshot { object, cluster: ObjectView::Missing, class, vm_type, reading, watch_filter: None, now: NOW }
    }

    fn status(action: &Action) -> Value {
        let Action::WriteStatus(status) = action else { panic!("{action}") };
        serde_json::to_value(status).unwrap()
    }

    /// A template whose class has no `nodeTemplate`, after some answers of its cloud.
    fn of_cloud(change: &Value, answers: Vec<Result<VmCapacity, DriverError>>) -> Snapshot {
        let class: Arc<mcm_api::machine::MachineClass> =
            Arc::new(serde_json::from_value(json!({ "metadata": {}, "provider": "p" })).unwrap());
        let key = CapacityKey { account: CloudAccount::from_class(&class), name: "t".to_owned() };
        let mut snapshot = snapshot(change, ObjectView::Present(Arc::clone(&class)));
        let reading =
            answers.into_iter().fold(None, |before, answer| Some(CapacityReading::after(before, answer, NOW)));
        (snapshot.vm_type, snapshot.reading) = (Some(VmType { class, key }), reading);
        snapshot
    }

    fn reported() -> VmCapacity {
        let gpus = Some(GpuCapacity::made_by("NVIDIA", 1));
        VmCapacity { cpus: 8, memory_mib: 32768, gpus, architecture: Some("arm64"), ..VmCapacity::default() }
    }

    fn failed() -> DriverError {
        DriverError::new(Code::PermissionDenied, "not allowed")
    }

    fn expected() -> Value {
        json!({
            "capacity": { "cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "1" },
            "nodeInfo": { "architecture": "arm64" },
        })
    }

    /// T6a.
    #[test]
    fn without_a_node_template_the_cloud_is_read_once_a_day() {
        let unread = plan(&of_cloud(&json!({}), Vec::new()));
        assert_eq!(unread.steps.iter().map(|step| &step.action).collect::<Vec<_>>(), [&Action::ReadCapacity]);
        let mut read = of_cloud(&json!({}), vec![Ok(reported())]);
        let shown = plan(&read);
        let [step] = shown.steps.as_slice() else { panic!("{shown:?}") };
        assert_eq!(status(&step.action), expected());
        read.object = of_cloud(&json!({ "status": expected() }), Vec::new()).object;
        assert_eq!(plan(&read), Plan::default(), "and then nothing is done");
        read.now += SignedDuration::from_hours(23);
        assert_eq!(plan(&read), Plan::default());
        read.now += SignedDuration::from_hours(1);
        assert_eq!(plan(&read).steps.iter().map(|step| &step.action).collect::<Vec<_>>(), [&Action::ReadCapacity]);
    }

    #[rstest]
    #[case::first(vec![Err(failed())])]
    #[case::later(vec![Ok(reported()), Err(failed())])]
    fn a_failed_read_changes_nothing_and_is_repeated(#[case] answers: Vec<Result<VmCapacity, DriverError>>) {
        let mut failed = of_cloud(&json!({ "status": expected() }), answers);
        let waiting = plan(&failed);
        assert_eq!((waiting.steps.len(), waiting.waits.len()), (0, 1), "{waiting:?}");
        assert_eq!(waiting.waits[0].kind, WaitKind::DriverRetry);
        assert!(waiting.waits[0].text.contains("not allowed"), "{waiting:?}");
        failed.now = waiting.waits[0].until.unwrap();
        assert_eq!(plan(&failed).steps.iter().map(|step| &step.action).collect::<Vec<_>>(), [&Action::ReadCapacity]);
    }

    #[test]
    fn a_driver_that_reads_no_capacity_leaves_none() {
        let class = ObjectView::Present(Arc::new(serde_json::from_value(json!({ "metadata": {} })).unwrap()));
        let plan = plan(&snapshot(&json!({ "status": expected() }), class));
        assert_eq!(status(&plan.steps[0].action), json!({}));
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
        assert_eq!(status(&step.action), expected);
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
