//! Metrics of Machines, with the names of the reference: counters and durations of operations, and gauges of the objects.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use parking_lot::Mutex;

use super::{Action, ClassView, Snapshot, progress::DeletionProgress};
use crate::object::metrics::{conditions, created_at, sorted};
use mcm_api::{
    labels,
    machine::{Machine, MachinePhase, OperationState, OperationType},
};
use mcm_runtime::{
    clock::{SystemClock, TimeSource},
    metrics::{CounterFamily, GaugeFamily, HistogramFamily, MetricCollector, MetricDesc, SeriesGroup, TextExposition},
};

/// In the order of [`Pool::labels`].
const POOL_LABELS: [&str; 4] = ["namespace", "machine_deployment", "instance_type", "zone"];

const STALE: MetricDesc<0> = MetricDesc::counter(
    "mcm_machine_stale_machines_total",
    "Failed machines that were deleted because they stayed unhealthy.",
    [],
);
const FROZEN: MetricDesc<0> = MetricDesc::gauge(
    "mcm_machine_controller_frozen",
    "1 while an API server does not answer or the Nodes of a target are not trusted, so that machines are frozen.",
    [],
);
const CELL_FROZEN: MetricDesc<1> =
    MetricDesc::gauge("mcm_cell_frozen", "1 while the machines of a cell are frozen, 0 otherwise.", ["cell"]);
const FAILED_JOIN: MetricDesc<4> =
    MetricDesc::counter("mcm_machine_num_failed_join", "Machines that did not join the cluster in time.", POOL_LABELS);
const CREATE: MetricDesc<4> = MetricDesc::gauge(
    "mcm_machine_create_duration_seconds",
    "Seconds from the creation of the machine to its VM, last value.",
    POOL_LABELS,
);
const INITIALIZE: MetricDesc<4> = MetricDesc::gauge(
    "mcm_machine_initialize_duration_seconds",
    "Duration of the initialization of the VM in seconds, last value.",
    POOL_LABELS,
);
const JOIN: MetricDesc<4> = MetricDesc::gauge(
    "mcm_machine_join_duration_seconds",
    "Seconds from the creation of the machine to a ready node, last value.",
    POOL_LABELS,
);
const DELETE: MetricDesc<4> = MetricDesc::gauge(
    "mcm_machine_delete_duration_seconds",
    "Seconds from the deletion timestamp of the machine to the deletion of its VM, last value.",
    POOL_LABELS,
);
const DRAIN: MetricDesc<2> = MetricDesc::gauge(
    "mcm_machine_drain_duration_seconds",
    "Duration of the last successful drain in seconds.",
    ["namespace", "machine_deployment"],
);
/// The gauges above have the names of the reference and keep one value per pool. This keeps the distribution.
const OPERATIONS: MetricDesc<3> = MetricDesc::histogram(
    "mcm_machine_operation_duration_seconds",
    "Duration of each create, initialize, join, drain and delete of a machine in seconds, as the gauges of these names measure it.",
    ["namespace", "machine_deployment", "operation"],
);
/// Namespace and deployment in the series of all deployments together.
const ALL_DEPLOYMENTS: &str = "*";
/// From a simulated VM to bare metal.
const OPERATION_BOUNDS: [f64; 13] = [1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 60.0, 90.0, 120.0, 180.0, 300.0, 600.0, 1800.0];

/// Labels of a machine in metrics. An unknown instance type or zone is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MachineMetricLabels<'a> {
    /// Namespace of the machines.
    pub namespace: &'a str,
    /// Their label `name`; machines without it are not measured.
    pub deployment: &'a str,
    /// Instance type of the class's node template.
    pub instance_type: &'a str,
    /// Label `topology.kubernetes.io/zone` of the machine's node template.
    pub zone: &'a str,
}

impl<'a> MachineMetricLabels<'a> {
    const fn labels(&self) -> [&'a str; 4] {
        [self.namespace, self.deployment, self.instance_type, self.zone]
    }
}

/// Whether the machines of a cell are frozen, until it is dropped with the cell. Unknown to a standby.
#[derive(Debug, Default)]
pub(crate) struct CellFreeze {
    /// The name of the cell; empty for the only one.
    cell: String,
    is_frozen: Mutex<Option<bool>>,
}

impl CellFreeze {
    /// Until the first call there is no series.
    pub fn set(&self, is_frozen: bool) {
        *self.is_frozen.lock() = Some(is_frozen);
    }
}

/// Counters and durations of machine operations. Durations of gauges are whole seconds.
#[derive(Debug)]
pub(crate) struct MachineMetrics {
    stale: CounterFamily<0>,
    freezes: Mutex<Vec<Weak<CellFreeze>>>,
    failed_join: CounterFamily<4>,
    create: GaugeFamily<4>,
    initialize: GaugeFamily<4>,
    join: GaugeFamily<4>,
    delete: GaugeFamily<4>,
    drain: GaugeFamily<2>,
    operations: HistogramFamily<3>,
    /// Of all deployments since the start of the process. A sum of the series above would fall when a deployment is deleted.
    operations_of_all: HistogramFamily<3>,
}

impl Default for MachineMetrics {
    fn default() -> Self {
        let stale = CounterFamily::default();
        stale.add([], 0.0);
        Self {
            stale,
            freezes: Mutex::default(),
            failed_join: CounterFamily::default(),
            create: GaugeFamily::default(),
            initialize: GaugeFamily::default(),
            join: GaugeFamily::default(),
            delete: GaugeFamily::default(),
            drain: GaugeFamily::default(),
            operations: HistogramFamily::new(OPERATION_BOUNDS),
            operations_of_all: HistogramFamily::new(OPERATION_BOUNDS),
        }
    }
}

impl MachineMetrics {
    /// A failed machine was deleted for replacement.
    pub fn stale_deleted(&self) {
        self.stale.add([], 1.0);
    }

    /// The gauge of a cell.
    pub fn freeze_of(&self, cell: &str) -> Arc<CellFreeze> {
        let freeze = Arc::new(CellFreeze { cell: cell.to_owned(), ..CellFreeze::default() });
        self.freezes.lock().push(Arc::downgrade(&freeze));
        freeze
    }

    /// The process has one gauge as the Go program, which is 1 while the machines of any cell are frozen.
    fn collect_freezes(&self, out: &mut TextExposition) {
        let mut by_cell = BTreeMap::<String, bool>::new();
        self.freezes.lock().retain(|freeze| {
            let Some(freeze) = freeze.upgrade() else { return false };
            if let Some(is_frozen) = *freeze.is_frozen.lock() {
                *by_cell.entry(freeze.cell.clone()).or_default() |= is_frozen;
            }
            true
        });
        if !by_cell.is_empty() {
            out.sample(&FROZEN, [], f64::from(u8::from(by_cell.values().any(|is_frozen| *is_frozen))));
        }
        for (cell, is_frozen) in by_cell.iter().filter(|(cell, _)| !cell.is_empty()) {
            out.sample(&CELL_FROZEN, [cell], f64::from(u8::from(*is_frozen)));
        }
    }

    /// A machine did not join in time.
    pub fn failed_to_join(&self, pool: MachineMetricLabels<'_>) {
        self.failed_join.add(pool.labels(), 1.0);
    }

    /// A VM exists, `after` the creation of its machine.
    pub fn created(&self, pool: MachineMetricLabels<'_>, after: Duration) {
        self.create.set(pool.labels(), whole(after));
        self.operation_ended([pool.namespace, pool.deployment], "create", after);
    }

    /// A VM was initialized.
    pub fn initialized(&self, pool: MachineMetricLabels<'_>, took: Duration) {
        self.initialize.set(pool.labels(), whole(took));
        self.operation_ended([pool.namespace, pool.deployment], "initialize", took);
    }

    /// A machine is Running, `after` its creation.
    pub fn joined(&self, pool: MachineMetricLabels<'_>, after: Duration) {
        self.join.set(pool.labels(), whole(after));
        self.operation_ended([pool.namespace, pool.deployment], "join", after);
    }

    /// A VM is deleted, `after` the deletion timestamp of its machine.
    pub fn deleted(&self, pool: MachineMetricLabels<'_>, after: Duration) {
        self.delete.set(pool.labels(), whole(after));
        self.operation_ended([pool.namespace, pool.deployment], "delete", after);
    }

    /// A drain succeeded.
    pub fn drained(&self, namespace: &str, deployment: &str, took: Duration) {
        self.drain.set([namespace, deployment], whole(took));
        self.operation_ended([namespace, deployment], "drain", took);
    }

    fn operation_ended(&self, [namespace, deployment]: [&str; 2], operation: &str, took: Duration) {
        self.operations.observe([namespace, deployment, operation], took.as_secs_f64());
        self.operations_of_all.observe([ALL_DEPLOYMENTS, ALL_DEPLOYMENTS, operation], took.as_secs_f64());
    }

    /// A deployment was deleted: drops its series.
    pub fn forget(&self, namespace: &str, deployment: &str) {
        let stays = |of_namespace: &str, of_deployment: &str| of_namespace != namespace || of_deployment != deployment;
        for gauges in [&self.create, &self.initialize, &self.join, &self.delete] {
            gauges.retain(|[namespace, deployment, ..]| stays(namespace, deployment));
        }
        self.drain.retain(|[namespace, deployment]| stays(namespace, deployment));
        self.operations.retain(|[namespace, deployment, _]| stays(namespace, deployment));
    }
}

impl MetricCollector for MachineMetrics {
    fn collect(&self, out: &mut TextExposition) {
        self.stale.collect(&STALE, out);
        self.collect_freezes(out);
        self.failed_join.collect(&FAILED_JOIN, out);
        out.details(SeriesGroup::Machines, |out| {
            self.create.collect(&CREATE, out);
            self.initialize.collect(&INITIALIZE, out);
            self.join.collect(&JOIN, out);
            self.delete.collect(&DELETE, out);
            self.drain.collect(&DRAIN, out);
            self.operations.collect(&OPERATIONS, out);
        });
        if out.has_aggregates(SeriesGroup::Machines) {
            self.operations_of_all.collect(&OPERATIONS, out);
        }
    }
}

fn whole(duration: Duration) -> f64 {
    duration.as_secs_f64().round()
}

/// A driver call ended.
pub(super) fn called(snapshot: &Snapshot, action: &Action, succeeded: bool, took: Duration, machines: &MachineMetrics) {
    let Some(pool) = pool(snapshot).filter(|_| succeeded) else { return };
    let now = snapshot.now;
    let meta = &snapshot.machine.metadata;
    match action {
        Action::CreateVm => machines.created(pool, since(meta.creation_timestamp.as_ref(), now)),
        Action::InitializeVm => machines.initialized(pool, took),
        // The VM of a Machine that is not being deleted is deleted if it cannot join. It does not count as deletion of
        // a Machine.
        Action::DeleteVm if meta.deletion_timestamp.is_some() => {
            machines.deleted(pool, since(meta.deletion_timestamp.as_ref(), now));
        }
        _ => {}
    }
}

/// The VM of a deleted Machine is about to be deleted. If its Node had no pods, no status shows the end of the drain.
pub(super) fn drained_quickly(snapshot: &Snapshot, machines: &MachineMetrics) {
    let meta = &snapshot.machine.metadata;
    let is_shown = DeletionProgress::from_machine(&snapshot.machine) > DeletionProgress::Drain;
    if meta.deletion_timestamp.is_some()
        && !is_shown
        && let Some(pool) = pool(snapshot)
    {
        machines.drained(pool.namespace, pool.deployment, since(meta.deletion_timestamp.as_ref(), snapshot.now));
    }
}

/// A status was written.
pub(super) fn transition(after: &Machine, snapshot: &Snapshot, now: Timestamp, machines: &MachineMetrics) {
    let Some(pool) = pool(snapshot) else { return };
    let operation = after.status.as_ref().map(|status| &status.last_operation);
    let joined = operation.is_some_and(|operation| {
        operation.type_ == Some(OperationType::Create) && operation.state == Some(OperationState::Successful)
    });
    match (snapshot.machine.phase(), after.phase()) {
        (from, MachinePhase::Running) if from != MachinePhase::Running && joined => {
            machines.joined(pool, since(after.metadata.creation_timestamp.as_ref(), now));
        }
        (MachinePhase::Pending, MachinePhase::Failed) => machines.failed_to_join(pool),
        (_, MachinePhase::Terminating)
            if operation.is_some_and(|operation| operation.description.starts_with("Drain successful")) =>
        {
            let took = since(after.metadata.deletion_timestamp.as_ref(), now);
            machines.drained(pool.namespace, pool.deployment, took);
        }
        _ => {}
    }
}

fn since(time: Option<&Time>, now: Timestamp) -> Duration {
    let elapsed = time.map(|time| now.duration_since(time.0)).unwrap_or_default();
    Duration::try_from(elapsed).unwrap_or_default()
}

fn pool(snapshot: &Snapshot) -> Option<MachineMetricLabels<'_>> {
    let machine = &snapshot.machine;
    let class = match &snapshot.class {
        ClassView::Present { class, .. } | ClassView::Unserved(class) => class.node_template.as_ref(),
        ClassView::Unknown | ClassView::Missing => None,
    };
    Some(MachineMetricLabels {
        namespace: machine.metadata.namespace.as_deref().unwrap_or_default(),
        deployment: machine.metadata.labels.as_ref()?.get(labels::DEPLOYMENT_NAME)?,
        instance_type: class.map(|template| template.instance_type.as_str()).unwrap_or_default(),
        zone: machine.spec.node_template.metadata.labels.get(labels::ZONE).map(String::as_str).unwrap_or_default(),
    })
}

const MACHINES: MetricDesc<0> = MetricDesc::gauge("mcm_machine_items_total", "Number of machines.", []);
const MACHINE_WITHOUT_OWNER: MetricDesc<2> = MetricDesc::gauge(
    "mcm_machine_without_owner",
    "A machine with a VM that no machine set or other object controls.",
    ["name", "namespace"],
);
const MACHINE_PHASE: MetricDesc<2> = MetricDesc::gauge(
    "mcm_machine_current_status_phase",
    "Phase of a machine: -5 InPlaceUpdateFailed, -4 Terminating, -3 Failed, -2 CrashLoopBackOff, -1 Unknown, 0 Pending, \
     1 Running, 2 Available, 3 InPlaceUpdating, 4 InPlaceUpdateSuccessful.",
    ["name", "namespace"],
);
const MACHINE_INFO: MetricDesc<8> = MetricDesc::gauge(
    "mcm_machine_info",
    "Properties of a machine.",
    [
        "name",
        "namespace",
        "createdAt",
        "spec_provider_id",
        "spec_class_api_group",
        "spec_class_kind",
        "spec_class_name",
        "node_name",
    ],
);
const MACHINE_CONDITION: MetricDesc<3> = MetricDesc::gauge(
    "mcm_machine_status_condition",
    "Condition of a machine: 1 True, 0 False, 2 Unknown.",
    ["name", "namespace", "condition"],
);

const GROUP_LABELS: [&str; 3] = ["namespace", "deployment", "phase"];
const GROUP_SIZE: MetricDesc<3> = MetricDesc::gauge(
    "mcm_machines",
    "Machines of a deployment in a phase, if the process has too many for a series of each.",
    GROUP_LABELS,
);
const GROUP_AGE: MetricDesc<3> = MetricDesc::gauge(
    "mcm_machines_oldest_age_seconds",
    "Seconds since the creation of the oldest of these machines.",
    GROUP_LABELS,
);

/// Adds all machines. Call it once per scrape.
pub(crate) fn machines<'a>(all: impl IntoIterator<Item = &'a Arc<Machine>>, out: &mut TextExposition) {
    let all = sorted(all, |machine| &machine.metadata);
    out.sample(&MACHINES, [], all.len() as f64);
    out.details(SeriesGroup::Machines, |out| {
        for ([namespace, name], machine) in &all {
            machine_series([name, namespace], machine, out);
        }
    });
    if out.has_aggregates(SeriesGroup::Machines) {
        for (labels, group) in phase_groups(all.into_values()) {
            out.sample(&GROUP_SIZE, labels, f64::from(group.machines));
            let age = since(group.oldest.map(Time).as_ref(), SystemClock.now());
            out.sample(&GROUP_AGE, labels, age.as_secs_f64());
        }
    }
}

fn machine_series(object: [&str; 2], machine: &Machine, out: &mut TextExposition) {
    if let Some(number) = phase_number(&machine.phase()) {
        out.sample(&MACHINE_PHASE, object, number);
    }
    let [name, namespace] = object;
    let class = &machine.spec.class;
    let node = machine.node_name().unwrap_or_default();
    let created = created_at(&machine.metadata);
    let info = [name, namespace, &created, &machine.spec.provider_id, &class.api_group, &class.kind, &class.name, node];
    out.sample(&MACHINE_INFO, info, 1.0);
    if machine.is_ownerless() {
        out.sample(&MACHINE_WITHOUT_OWNER, object, 1.0);
    }
    let found = machine.status.iter().flat_map(|status| &status.conditions);
    conditions(&MACHINE_CONDITION, object, found.map(|one| (one.type_.as_str(), one.status.as_str())), out);
}

/// The machines of a deployment in one phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PhaseGroup {
    machines: u32,
    /// The creation of the oldest one.
    oldest: Option<Timestamp>,
}

/// In the order of [`GROUP_LABELS`].
fn phase_groups<'a>(all: impl Iterator<Item = &'a Machine>) -> BTreeMap<[&'a str; 3], PhaseGroup> {
    let mut groups = BTreeMap::<[&str; 3], PhaseGroup>::new();
    for machine in all {
        let namespace = machine.metadata.namespace.as_deref().unwrap_or_default();
        let group = groups.entry([namespace, deployment_label(machine), phase_label(machine)]).or_default();
        group.machines = group.machines.saturating_add(1);
        let created = machine.metadata.creation_timestamp.as_ref().map(|time| time.0);
        group.oldest = group.oldest.into_iter().chain(created).min();
    }
    groups
}

/// The label `name`; without it the set or other object that controls the machine.
fn deployment_label(machine: &Machine) -> &str {
    let named = machine.metadata.labels.as_ref().and_then(|own| own.get(labels::DEPLOYMENT_NAME));
    let mut owners = machine.metadata.owner_references.iter().flatten();
    let controller = owners.find(|owner| owner.controller == Some(true)).map(|owner| &owner.name);
    named.or(controller).map_or("", String::as_str)
}

/// The phase; `Other` for an unknown one, whose text any client may have written.
fn phase_label(machine: &Machine) -> &str {
    match machine.status.as_ref().map(|status| &status.current_status.phase) {
        None | Some(MachinePhase::New) => "New",
        Some(MachinePhase::Other(_)) => "Other",
        Some(phase) => phase.as_str(),
    }
}

/// The numbers of the reference, and distinct numbers for the phases that it reports as Pending. `None` for a machine
/// without a phase or with an unknown one.
const fn phase_number(phase: &MachinePhase) -> Option<f64> {
    Some(match phase {
        MachinePhase::New | MachinePhase::Other(_) => return None,
        MachinePhase::InPlaceUpdateFailed => -5.0,
        MachinePhase::Terminating => -4.0,
        MachinePhase::Failed => -3.0,
        MachinePhase::CrashLoopBackOff => -2.0,
        MachinePhase::Unknown => -1.0,
        MachinePhase::Pending => 0.0,
        MachinePhase::Running => 1.0,
        MachinePhase::Available => 2.0,
        MachinePhase::InPlaceUpdating => 3.0,
        MachinePhase::InPlaceUpdateSuccessful => 4.0,
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::machine::{MachineCallResults, Memory};
    use mcm_rules::safety::trust::TargetTrust;

    fn text(machines: &MachineMetrics) -> String {
        let mut out = TextExposition::default();
        machines.collect(&mut out);
        out.finish()
    }

    #[test]
    fn a_cell_that_starts_or_thaws_hides_no_freeze_of_another() {
        let machines = MachineMetrics::default();
        let is = |expected: &[&str]| {
            let text = text(&machines);
            let lines = text.lines().filter(|line| !line.starts_with('#') && line.contains("frozen"));
            assert_eq!(lines.collect::<Vec<_>>(), expected);
        };
        let process = ["mcm_machine_controller_frozen 0", "mcm_machine_controller_frozen 1"];
        let [one, two] = ["one", "two"].map(|cell| machines.freeze_of(cell));
        is(&[]);
        one.set(true);
        two.set(false);
        let both = [r#"mcm_cell_frozen{cell="one"} 1"#, r#"mcm_cell_frozen{cell="two"} 0"#];
        is(&[both[0], both[1], process[1]]);
        two.set(true);
        one.set(false);
        two.set(false);
        is(&[r#"mcm_cell_frozen{cell="one"} 0"#, both[1], process[0]]);
        // A cell that ends frozen leaves nothing, also where it is restarted before the last part of it has ended.
        one.set(true);
        let restarted = machines.freeze_of("one");
        drop(one);
        is(&[both[1], process[0]]);
        restarted.set(true);
        drop(two);
        is(&[both[0], process[1]]);
        let only = machines.freeze_of("");
        drop(restarted);
        only.set(true);
        is(&[process[1]]);
    }

    #[test]
    fn a_class_without_instance_type_is_measured_all_the_same() {
        let machines = MachineMetrics::default();
        let pool = MachineMetricLabels { namespace: "shoot", deployment: "worker", instance_type: "", zone: "" };
        machines.created(pool, Duration::from_millis(2600));
        machines.failed_to_join(pool);
        let labels = r#"{namespace="shoot",machine_deployment="worker",instance_type="",zone=""}"#;
        let text = text(&machines);
        assert!(text.contains(&format!("mcm_machine_create_duration_seconds{labels} 3\n")), "{text}");
        assert!(text.contains(&format!("mcm_machine_num_failed_join{labels} 1\n")), "{text}");
    }

    /// A Machine in a phase, made at second 0 and deleted at second 40, as the status was written at second 100.
    fn machine(labels: Value, phase: &str, operation: Value) -> Machine {
        serde_json::from_value(json!({
            "metadata": {
                "name": "m", "namespace": "n", "labels": labels,
                "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-01T00:00:40Z",
            },
            "spec": {}, "status": { "currentStatus": { "phase": phase }, "lastOperation": operation },
        }))
        .unwrap()
    }

    #[rstest]
    #[case::joined("Pending", "Running", json!({ "type": "Create", "state": "Successful" }), Some("join_duration_seconds"), 100)]
    #[case::joined_again("Unknown", "Running", json!({ "type": "HealthCheck", "state": "Successful" }), None, 0)]
    #[case::did_not_join("Pending", "Failed", json!({ "type": "Create", "state": "Failed" }), Some("num_failed_join"), 1)]
    #[case::failed_later("Unknown", "Failed", json!({ "type": "HealthCheck", "state": "Failed" }), None, 0)]
    #[case::drained("Terminating", "Terminating", json!({ "description": "Drain successful. Initiate VM deletion" }), Some("drain_duration_seconds"), 60)]
    #[case::drained_by_force("Terminating", "Terminating", json!({ "description": "Force Drain successful. Delete Volume Attachments" }), None, 0)]
    fn a_transition_is_measured(
        #[case] before: &str,
        #[case] after: &str,
        #[case] operation: Value,
        #[case] metric: Option<&str>,
        #[case] value: u32,
    ) {
        let measured = |labels: Value| {
            let (before, after) =
                (machine(labels.clone(), before, json!({})), machine(labels, after, operation.clone()));
            let now = "2026-01-01T00:01:40Z".parse().unwrap();
            let (learned, memory) = (MachineCallResults::default(), Memory::default());
            let target = TargetTrust::default();
            let snapshot = Snapshot::new(Arc::new(before), ClassView::Unknown, target, learned, memory, now);
            let machines = MachineMetrics::default();
            transition(&after, &snapshot, now, &machines);
            called(&snapshot, &Action::InitializeVm, true, Duration::from_secs(7), &machines);
            text(&machines)
        };
        let of_pool = measured(json!({ "name": "pool" }));
        let is_sample = |line: &&str| line.contains('{') && !line.starts_with(OPERATIONS.name);
        let samples = |text: &str| text.lines().filter(is_sample).map(str::to_owned).collect::<Vec<_>>();
        let expected = [("initialize_duration_seconds", 7)].into_iter().chain(metric.map(|metric| (metric, value)));
        for (metric, value) in expected.clone() {
            let start = format!("mcm_machine_{metric}{{namespace=\"n\",machine_deployment=\"pool\"");
            let is_it = |line: &String| line.starts_with(&start) && line.ends_with(&format!("}} {value}"));
            assert!(samples(&of_pool).iter().any(is_it), "{metric} is missing in\n{of_pool}");
        }
        assert_eq!(samples(&of_pool).len(), expected.count(), "{of_pool}");
        assert_eq!(samples(&measured(json!({}))), [""; 0], "without the label name nothing is measured");
    }

    #[test]
    fn durations_end_with_their_deployment() {
        let machines = MachineMetrics::default();
        for deployment in ["gone", "stays"] {
            machines.joined(
                MachineMetricLabels { namespace: "n", deployment, instance_type: "i", zone: "z" },
                Duration::ZERO,
            );
            machines.drained("n", deployment, Duration::ZERO);
        }
        machines.forget("n", "gone");
        let text = text(&machines);
        assert!(!text.contains("gone"), "{text}");
        let samples = |name: &str| text.lines().filter(|line| line.starts_with(name) && line.contains("stays")).count();
        assert_eq!(samples(JOIN.name) + samples(DRAIN.name), 2, "{text}");
        assert_eq!(samples(&format!("{}_count", OPERATIONS.name)), 2, "{text}");
    }

    #[test]
    fn each_operation_is_counted_in_a_histogram() {
        let machines = MachineMetrics::default();
        let pool = MachineMetricLabels { namespace: "n", deployment: "pool", instance_type: "i", zone: "z" };
        machines.created(pool, Duration::from_millis(2600));
        machines.created(pool, Duration::from_secs(700));
        machines.initialized(pool, Duration::from_secs(1));
        machines.joined(pool, Duration::from_secs(70));
        machines.deleted(pool, Duration::from_secs(3));
        machines.drained("n", "pool", Duration::from_secs(30));
        let text = text(&machines);
        let sample = |suffix: &str, operation: &str, bound: &str| {
            let labels = format!("namespace=\"n\",machine_deployment=\"pool\",operation=\"{operation}\"{bound}");
            format!("{}_{suffix}{{{labels}}} ", OPERATIONS.name)
        };
        for (sample, value) in [
            (sample("bucket", "create", ",le=\"2.5\""), "0"),
            (sample("bucket", "create", ",le=\"5\""), "1"),
            (sample("bucket", "create", ",le=\"1800\""), "2"),
            (sample("sum", "create", ""), "702.6"),
            (sample("count", "initialize", ""), "1"),
            (sample("bucket", "join", ",le=\"90\""), "1"),
            (sample("count", "delete", ""), "1"),
            (sample("sum", "drain", ""), "30"),
        ] {
            assert!(text.contains(&format!("{sample}{value}\n")), "{sample}{value} is missing in\n{text}");
        }
    }
}
