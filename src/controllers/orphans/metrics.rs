//! Metrics of the orphan collector. The Go programs have none.

use super::Memory;
use mcm_runtime::metrics::{CounterFamily, GaugeFamily, MetricCollector, MetricDesc, SeriesGroup, TextExposition};

const FOUND: MetricDesc<2> = MetricDesc::gauge(
    "mcm_orphan_vms",
    "VMs without a machine in the last complete list of a class.",
    ["namespace", "class"],
);
const DELETED: MetricDesc<2> =
    MetricDesc::counter("mcm_orphan_vms_deleted_total", "Deleted VMs that had no machine.", ["namespace", "class"]);
const WITHOUT_VM: MetricDesc<2> = MetricDesc::gauge(
    "mcm_machines_without_vm",
    "Machines whose VM was not in the last complete list of their class.",
    ["namespace", "class"],
);

const FOREIGN: MetricDesc<2> = MetricDesc::gauge(
    "mcm_foreign_vms",
    "VMs without a machine in the last complete list of a class that are kept: they carry the marker of another \
     owner, or none while others use the cluster tag.",
    ["namespace", "class"],
);

const UNIDENTIFIED: MetricDesc<2> = MetricDesc::gauge(
    "mcm_unidentified_vms",
    "VMs in the last complete list of a class without a valid provider ID or name of a machine. They are kept.",
    ["namespace", "class"],
);

/// The findings of the collector, by class.
#[derive(Debug, Default)]
pub(crate) struct OrphanMetrics {
    found: GaugeFamily<2>,
    deleted: CounterFamily<2>,
    without_vm: GaugeFamily<2>,
    foreign: GaugeFamily<2>,
    unidentified: GaugeFamily<2>,
}

impl OrphanMetrics {
    /// Results of a complete list.
    pub fn found(&self, class: [&str; 2], memory: &Memory) {
        let number = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
        self.found.set(class, number(memory.orphans.len().saturating_add(memory.serving.len())));
        self.without_vm.set(class, number(memory.without_vm.len()));
        self.foreign.set(class, number(memory.foreign.saturating_add(memory.left_alone.len())));
        self.unidentified.set(class, number(memory.unidentified.len()));
    }

    /// An orphan was deleted.
    pub fn deleted(&self, class: [&str; 2]) {
        self.deleted.add(class, 1.0);
    }

    /// The class was deleted.
    pub fn forget(&self, class: [&str; 2]) {
        for gauges in [&self.found, &self.without_vm, &self.foreign, &self.unidentified] {
            gauges.retain(|labels| labels.each_ref().map(String::as_str) != class);
        }
    }
}

impl MetricCollector for OrphanMetrics {
    fn collect(&self, out: &mut TextExposition) {
        self.deleted.collect(&DELETED, out);
        for (gauges, desc) in [
            (&self.found, FOUND),
            (&self.without_vm, WITHOUT_VM),
            (&self.foreign, FOREIGN),
            (&self.unidentified, UNIDENTIFIED),
        ] {
            gauges.collect_exceptions(&desc, SeriesGroup::Machines, out);
        }
    }
}
