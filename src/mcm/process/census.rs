//! The state of each cell of a fleet, and the replicas that share them, for metrics.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use parking_lot::Mutex;

use mcm_runtime::{
    cells::{CellRegistry, CellState},
    http::{ProcessReadiness, ReadinessPart},
    members::standing::FleetStanding,
    metrics::{MetricCollector, MetricDesc, TextExposition},
    panics,
    target::TargetId,
    trust,
};

const READY: MetricDesc<1> = MetricDesc::gauge(
    "mcm_cell_ready",
    "1 if a cell runs with trusted caches and readable Leases, 0 otherwise.",
    ["cell"],
);
const RESTARTS: MetricDesc<1> =
    MetricDesc::counter("mcm_cell_restarts_total", "Restarts of a cell after a failure.", ["cell"]);

const OWNED: MetricDesc<1> = MetricDesc::gauge(
    "mcm_cell_owned",
    "1 if this process or another program is responsible for the machines of a cell, or it is parked, 0 otherwise.",
    ["cell"],
);
const PARKED: MetricDesc<1> = MetricDesc::gauge(
    "mcm_cell_parked",
    "1 if a cell does nothing because the Deployment of its namespace has no replicas or does not exist, 0 otherwise.",
    ["cell"],
);
const TARGET_UP: MetricDesc<2> = MetricDesc::gauge(
    "mcm_target_up",
    "1 if the Nodes of the target cluster of a cell are known, 0 otherwise. Parked cells have none.",
    ["cell", "target"],
);
const NAMESPACES: MetricDesc<1> = MetricDesc::gauge(
    "mcm_fleet_namespaces",
    "Control planes of this process by their state: led, parked, foreign, waiting or unusable.",
    ["state"],
);
const MEMBERS: MetricDesc<1> = MetricDesc::gauge(
    "mcm_fleet_members",
    "Replicas that share the control planes of a fleet, as this one knows them; 0 while it is none itself.",
    ["fleet"],
);

/// The cells of a process.
pub(super) struct CellMetrics {
    readiness: ProcessReadiness,
    caches: Arc<trust::CacheRegistry>,
    running: Arc<CellRegistry>,
    /// Restarts, by cell.
    cells: Mutex<BTreeMap<String, u32>>,
}

impl CellMetrics {
    pub fn new(
        readiness: &ProcessReadiness,
        caches: &Arc<trust::CacheRegistry>,
        running: &Arc<CellRegistry>,
    ) -> Arc<Self> {
        let (readiness, caches, running) = (readiness.clone(), Arc::clone(caches), Arc::clone(running));
        Arc::new(Self { readiness, caches, running, cells: Mutex::default() })
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
        let reports = self.running.reports();
        let mut states: BTreeMap<CellState, u32> = CellState::ALL.map(|state| (state, 0)).into();
        for (cell, restarts) in &*self.cells.lock() {
            let report = reports.get(cell);
            let stopped = if parts.contains(&found_part(cell)) { CellState::Unusable } else { CellState::Waiting };
            let state = report.map_or(stopped, |report| report.state);
            *states.entry(state).or_default() += 1;
            let is_parked = state == CellState::Parked;
            out.sample(&OWNED, [cell], f64::from(u8::from(state.is_owned())));
            out.sample(&PARKED, [cell], f64::from(u8::from(is_parked)));
            // A cell without a connection has a target that nothing is known of.
            let unknown = [(TargetId::only().to_string(), false)];
            let targets = report.map_or(&unknown[..], |report| report.targets.as_slice());
            // The target of a parked cell may be shut down on purpose.
            for (target, is_up) in targets.iter().filter(|_| !is_parked) {
                out.sample(&TARGET_UP, [cell, target], f64::from(u8::from(*is_up)));
            }
            let (part, cluster) = (format!("cell {cell}: "), format!("{cell}/"));
            let is_missing = parts.iter().any(|name| name.starts_with(&part));
            let is_untrusted = clusters.iter().any(|name| name.starts_with(&cluster));
            out.sample(&READY, [cell], f64::from(u8::from(!is_missing && !is_untrusted)));
            out.sample(&RESTARTS, [cell], f64::from(*restarts));
        }
        for (state, count) in states {
            out.sample(&NAMESPACES, [state.as_str()], f64::from(count));
        }
    }
}

/// The replicas of this process.
pub(super) struct ReplicaMetrics {
    fleet: String,
    /// Once it has joined them.
    pub(super) standing: OnceLock<Arc<FleetStanding>>,
}

impl ReplicaMetrics {
    /// For a process that has not joined yet.
    pub fn new(fleet: &str) -> Arc<Self> {
        Arc::new(Self { fleet: fleet.to_owned(), standing: OnceLock::new() })
    }
}

impl MetricCollector for ReplicaMetrics {
    fn collect(&self, out: &mut TextExposition) {
        let standing = self.standing.get().filter(|standing| standing.fence().is_open());
        let living =
            standing.map_or(0, |standing| standing.members(|members, open_since| members.live(open_since).len()));
        out.sample(&MEMBERS, [&self.fleet], living as f64);
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use tokio::time::Instant;

    use super::*;
    use mcm_rules::plan::WaitKind;
    use mcm_runtime::{
        cache::Key,
        cells::{CellOverview, RoleStanding},
        clock::SystemClock,
        explain::ObjectExplanation,
        members::{FleetName, observed::MemberRecord},
        metrics::MetricsRegistry,
    };

    #[test]
    fn a_cell_is_ready_while_it_runs_and_leaves_no_series() {
        let (readiness, metrics) = (ProcessReadiness::of_cells(), MetricsRegistry::new());
        let census = CellMetrics::new(&readiness, &Arc::default(), &Arc::default());
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

    #[test]
    fn a_cell_that_does_not_run_has_no_owner_and_no_target() {
        let (readiness, metrics) = (ProcessReadiness::of_cells(), MetricsRegistry::new());
        let census = CellMetrics::new(&readiness, &Arc::default(), &Arc::default());
        metrics.attach(&census);
        census.started("a").missing("no route");
        census.unusable("b", "no such Secret");
        let text = metrics.render();
        for line in [
            r#"mcm_cell_owned{cell="a"} 0"#,
            r#"mcm_target_up{cell="a",target="target"} 0"#,
            r#"mcm_cell_owned{cell="b"} 0"#,
            r#"mcm_fleet_namespaces{state="led"} 0"#,
            r#"mcm_fleet_namespaces{state="waiting"} 1"#,
            r#"mcm_fleet_namespaces{state="unusable"} 1"#,
        ] {
            assert!(text.lines().any(|one| one == line), "{line} is missing in\n{text}");
        }
    }

    /// A cell whose Deployment has no replicas.
    struct ParkedCell {
        name: String,
    }

    impl CellOverview for ParkedCell {
        fn name(&self) -> &str {
            &self.name
        }

        fn roles(&self) -> Vec<RoleStanding> {
            Vec::new()
        }

        fn is_parked(&self) -> bool {
            true
        }

        fn targets(&self) -> Vec<(String, bool)> {
            vec![(TargetId::only().to_string(), false)]
        }

        fn explain(&self, _: &str, _: &Key) -> Option<ObjectExplanation> {
            None
        }

        fn waiters(&self, _: Option<&str>) -> Vec<ObjectExplanation> {
            Vec::new()
        }

        fn each_wait(&self, _: &mut dyn FnMut(&'static str, WaitKind, SignedDuration)) {}
    }

    #[test]
    fn a_parked_cell_that_waits_for_its_target_is_marked_for_the_alerts() {
        let (readiness, metrics) = (ProcessReadiness::of_cells(), MetricsRegistry::new());
        let (running, parked) = (Arc::new(CellRegistry::default()), Arc::new(ParkedCell { name: "a".to_owned() }));
        running.add(&parked);
        let census = CellMetrics::new(&readiness, &Arc::default(), &running);
        metrics.attach(&census);
        census.started("a").missing("the Nodes are not read yet");
        census.started("b").ready();
        let text = metrics.render();
        for line in [
            r#"mcm_cell_ready{cell="a"} 0"#,
            r#"mcm_cell_owned{cell="a"} 1"#,
            r#"mcm_cell_parked{cell="a"} 1"#,
            r#"mcm_cell_parked{cell="b"} 0"#,
        ] {
            assert!(text.lines().any(|one| one == line), "{line} is missing in\n{text}");
        }
        assert!(!text.contains(r#"mcm_target_up{cell="a""#), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_replica_counts_the_living_ones_while_it_is_one_of_them() {
        let fleet = FleetName { namespace: "system".to_owned(), name: "one".to_owned() };
        let (lease, metrics) = (fleet.lease_name(1), MetricsRegistry::new());
        let replicas = ReplicaMetrics::new(&fleet.name);
        metrics.attach(&replicas);
        let living = |count: u8| {
            let (text, line) = (metrics.render(), format!("mcm_fleet_members{{fleet=\"one\"}} {count}"));
            assert!(text.lines().any(|one| one == line), "{line} is missing in\n{text}");
        };
        living(0);
        let identity = fleet.identity("host", &lease, 1);
        let standing = FleetStanding::new(fleet.clone(), lease, identity, Arc::new(SystemClock));
        let _ = replicas.standing.set(Arc::clone(&standing));
        living(0);
        standing.renewed(standing.sending());
        let record = |slot: u32| MemberRecord {
            lease: fleet.lease_name(slot),
            holder: fleet.identity("host", &fleet.lease_name(slot), u128::from(slot)),
            version: "1".to_owned(),
            asks_for: std::collections::BTreeSet::new(),
        };
        standing.members(|members, _| members.listed(vec![record(1), record(2)], (Instant::now(), Instant::now())));
        living(2);
        tokio::time::advance(std::time::Duration::from_secs(10)).await;
        living(0);
    }
}
