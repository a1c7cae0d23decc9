//! The state of each cell of a fleet, for metrics.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;

use mcm_runtime::{
    http::{ProcessReadiness, ReadinessPart},
    metrics::{MetricCollector, MetricDesc, TextExposition},
    panics, trust,
};

const READY: MetricDesc<1> = MetricDesc::gauge(
    "mcm_cell_ready",
    "1 if a cell runs with trusted caches and readable Leases, 0 otherwise.",
    ["cell"],
);
const RESTARTS: MetricDesc<1> =
    MetricDesc::counter("mcm_cell_restarts_total", "Restarts of a cell after a failure.", ["cell"]);

/// The cells of a process.
pub(super) struct CellMetrics {
    readiness: ProcessReadiness,
    caches: Arc<trust::CacheRegistry>,
    /// Restarts, by cell.
    cells: Mutex<BTreeMap<String, u32>>,
}

impl CellMetrics {
    pub fn new(readiness: &ProcessReadiness, caches: &Arc<trust::CacheRegistry>) -> Arc<Self> {
        Arc::new(Self { readiness: readiness.clone(), caches: Arc::clone(caches), cells: Mutex::default() })
    }

    /// A cell begins; ready once it is connected.
    pub fn started(&self, cell: &str) -> ReadinessPart {
        self.cells.lock().entry(cell.to_owned()).or_default();
        self.readiness.expect(ProcessReadiness::run_of_cell(cell))
    }

    /// A cell failed and is restarted.
    pub fn failed(&self, cell: &str, error: &str) {
        self.started(cell).missing(error);
        let mut cells = self.cells.lock();
        let restarts = cells.entry(cell.to_owned()).or_default();
        *restarts = restarts.saturating_add(1);
    }

    /// A control plane was found, and something in it cannot be used.
    pub fn unusable(&self, cell: &str, problem: &str) {
        self.cells.lock().entry(cell.to_owned()).or_default();
        self.readiness.expect(found_part(cell)).missing(problem);
    }

    /// All of a control plane can be used again.
    pub fn usable(&self, cell: &str) {
        self.readiness.forget(&found_part(cell));
    }

    /// A cell was removed.
    pub fn ended(&self, cell: &str) {
        self.cells.lock().remove(cell);
        self.readiness.forget(&format!("cell {cell}: "));
        panics::forget(cell);
    }
}

fn found_part(cell: &str) -> String {
    format!("cell {cell}: found")
}

impl MetricCollector for CellMetrics {
    fn collect(&self, out: &mut TextExposition) {
        let parts = self.readiness.missing_parts();
        let clusters = self.caches.clusters_in_trouble();
        for (cell, restarts) in &*self.cells.lock() {
            let (part, cluster) = (format!("cell {cell}: "), format!("{cell}/"));
            let is_missing = parts.iter().any(|name| name.starts_with(&part));
            let is_untrusted = clusters.iter().any(|name| name.starts_with(&cluster));
            out.sample(&READY, [cell], f64::from(u8::from(!is_missing && !is_untrusted)));
            out.sample(&RESTARTS, [cell], f64::from(*restarts));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mcm_runtime::metrics::MetricsRegistry;

    #[test]
    fn a_cell_is_ready_while_it_runs_and_leaves_no_series() {
        let (readiness, metrics) = (ProcessReadiness::of_cells(), MetricsRegistry::new());
        let census = CellMetrics::new(&readiness, &Arc::default());
        metrics.attach(&census);
        let part = census.started("a");
        census.started("b").ready();
        let is_ready = |cell: &str, value: u8| {
            let text = metrics.render();
            assert!(text.contains(&format!("\nmcm_cell_ready{{cell=\"{cell}\"}} {value}\n")), "{text}");
        };
        is_ready("a", 0);
        part.ready();
        is_ready("a", 1);
        readiness.expect("cell a: lease x").missing("no response");
        is_ready("a", 0);
        census.failed("b", "no such file");
        is_ready("b", 0);
        assert!(metrics.render().contains("\nmcm_cell_restarts_total{cell=\"b\"} 1\n"));
        assert!(readiness.is_ready(), "a cell runs");
        assert_eq!(readiness.missing(), ["cell a: lease x: no response", "cell b: run: no such file"]);
        census.ended("a");
        census.ended("b");
        assert!(!metrics.render().contains("mcm_cell_ready"));
        assert!(readiness.missing().is_empty());
    }
}
