//! Gauges of sets, computed from the cached objects at each scrape.

use std::sync::Arc;

use crate::object::metrics::{FAILED_LABELS, conditions, created_at, failed, gauges, plain, sorted};
use mcm_api::machine::MachineSet;
use mcm_runtime::metrics::{MetricDesc, SeriesGroup, TextExposition};

const SETS: MetricDesc<0> = MetricDesc::gauge("mcm_machine_set_items_total", "Number of machine sets.", []);
const SET_INFO: MetricDesc<6> = MetricDesc::gauge(
    "mcm_machine_set_info",
    "Properties of a machine set.",
    [
        "name",
        "namespace",
        "createdAt",
        "spec_machine_class_api_group",
        "spec_machine_class_kind",
        "spec_machine_class_name",
    ],
);
const SET_CONDITION: MetricDesc<3> = MetricDesc::gauge(
    "mcm_machine_set_status_condition",
    "Condition of a machine set: 1 True, 0 False, 2 Unknown.",
    ["name", "namespace", "condition"],
);
const SET_FAILED: MetricDesc<7> = MetricDesc::gauge(
    "mcm_machine_set_failed_machines",
    "A machine of a set whose last operation failed.",
    FAILED_LABELS,
);

/// Adds all sets. Call it once per scrape. Old revisions without machines are details.
pub(crate) fn machine_sets<'a>(all: impl IntoIterator<Item = &'a Arc<MachineSet>>, out: &mut TextExposition) {
    let all = sorted(all, |set| &set.metadata);
    out.sample(&SETS, [], all.len() as f64);
    for ([namespace, name], set) in all {
        let has_machines = set.spec.replicas > 0 || set.status.as_ref().is_some_and(|status| status.replicas > 0);
        out.details_unless(has_machines, SeriesGroup::Machines, |out| set_series([name, namespace], set, out));
    }
}

fn set_series(object: [&str; 2], set: &MachineSet, out: &mut TextExposition) {
    const SPEC_REPLICAS: MetricDesc<2> = plain("mcm_machine_set_info_spec_replicas", "Desired replicas of a set.");
    const MIN_READY: MetricDesc<2> =
        plain("mcm_machine_set_info_spec_min_ready_seconds", "Value of minReadySeconds of a set. It has no effect.");
    const WITHOUT_OWNER: MetricDesc<2> =
        plain("mcm_machine_set_without_owner", "A set with replicas that no deployment controls.");
    const REPLICAS: MetricDesc<2> = plain("mcm_machine_set_status_replicas", "Machines of a set.");
    const AVAILABLE: MetricDesc<2> =
        plain("mcm_machine_set_status_available_replicas", "Machines of a set that are available.");
    const READY: MetricDesc<2> = plain("mcm_machine_set_status_ready_replicas", "Machines of a set that are ready.");
    const LABELLED: MetricDesc<2> = plain(
        "mcm_machine_set_status_fully_labelled_replicas",
        "Machines of a set that carry all labels of its template.",
    );

    let [name, namespace] = object;
    out.details(SeriesGroup::Machines, |out| {
        let class = &set.spec.machine_class;
        let created = created_at(&set.metadata);
        out.sample(&SET_INFO, [name, namespace, &created, &class.api_group, &class.kind, &class.name], 1.0);
        gauges(object, [(MIN_READY, set.spec.min_ready_seconds)], out);
    });
    gauges(object, [(SPEC_REPLICAS, set.spec.replicas)], out);
    if set.is_ownerless() {
        gauges(object, [(WITHOUT_OWNER, 1)], out);
    }
    let Some(status) = &set.status else { return };
    let values = [
        (REPLICAS, status.replicas),
        (AVAILABLE, status.available_replicas),
        (READY, status.ready_replicas),
        (LABELLED, status.fully_labeled_replicas),
    ];
    gauges(object, values, out);
    let found = status.conditions.iter().map(|one| (one.type_.as_str(), one.status.as_str()));
    conditions(&SET_CONDITION, object, found, out);
    out.details(SeriesGroup::Machines, |out| failed(&SET_FAILED, object, &status.failed_machines, out));
}
