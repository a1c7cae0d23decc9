//! Metrics of work queues, with the names that client-go's queues have in the reference.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::{CounterFamily, GaugeFamily, HistogramFamily, MetricDesc, TextExposition};

const DEPTH: MetricDesc<1> = MetricDesc::gauge("mcm_workqueue_depth", "Keys in the queue.", ["name"]);
const ADDS: MetricDesc<1> = MetricDesc::counter("mcm_workqueue_adds_total", "Keys added to the queue.", ["name"]);
const WAITED: MetricDesc<1> =
    MetricDesc::histogram("mcm_workqueue_queue_duration_seconds", "Seconds that a key waited in the queue.", ["name"]);
const WORKED: MetricDesc<1> =
    MetricDesc::histogram("mcm_workqueue_work_duration_seconds", "Duration of a reconcile in seconds.", ["name"]);
const UNFINISHED: MetricDesc<1> = MetricDesc::gauge(
    "mcm_workqueue_unfinished_work_seconds",
    "Sum of the durations of running reconciles, in seconds.",
    ["name"],
);
const LONGEST: MetricDesc<1> = MetricDesc::gauge(
    "mcm_workqueue_longest_running_processor_seconds",
    "Duration of the longest running reconcile, in seconds.",
    ["name"],
);
const RETRIES: MetricDesc<1> =
    MetricDesc::counter("mcm_workqueue_retries_total", "Keys that were added again after a failure.", ["name"]);
const FLAWED: MetricDesc<2> = MetricDesc::counter(
    "mcm_plans_flawed_total",
    "Plans that were not executed, because they would have broken a bound or did not converge. Each is a bug in mcm.",
    ["name", "reason"],
);

#[derive(Debug)]
pub(super) struct QueueMetrics {
    depth: GaugeFamily<1>,
    adds: CounterFamily<1>,
    waited: HistogramFamily<1>,
    worked: HistogramFamily<1>,
    retries: CounterFamily<1>,
    flawed: CounterFamily<2>,
    progress: Mutex<UnfinishedWork>,
}

/// Start of each running reconcile, by queue and ticket.
#[derive(Debug, Default)]
struct UnfinishedWork {
    next: u64,
    began: BTreeMap<&'static str, BTreeMap<u64, Instant>>,
}

impl Default for QueueMetrics {
    fn default() -> Self {
        let durations = || HistogramFamily::with_exponential_bounds(1e-8, 10.0, 10);
        Self {
            depth: GaugeFamily::default(),
            adds: CounterFamily::default(),
            waited: durations(),
            worked: durations(),
            retries: CounterFamily::default(),
            flawed: CounterFamily::default(),
            progress: Mutex::default(),
        }
    }
}

impl QueueMetrics {
    pub(super) fn collect(&self, out: &mut TextExposition) {
        self.depth.collect(&DEPTH, out);
        self.adds.collect(&ADDS, out);
        self.waited.collect(&WAITED, out);
        self.worked.collect(&WORKED, out);
        self.retries.collect(&RETRIES, out);
        self.flawed.collect(&FLAWED, out);
        for (name, began) in &self.progress().began {
            let seconds = || began.values().map(|at| at.elapsed().as_secs_f64());
            out.sample(&UNFINISHED, [name], seconds().fold(0.0, |sum, next| sum + next));
            out.sample(&LONGEST, [name], seconds().fold(0.0, f64::max));
        }
    }

    fn progress(&self) -> MutexGuard<'_, UnfinishedWork> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Metrics of one queue.
#[derive(Clone, Debug)]
pub struct QueueMeter {
    name: &'static str,
    all: Arc<QueueMetrics>,
}

impl QueueMeter {
    pub(super) fn new(name: &'static str, all: Arc<QueueMetrics>) -> Self {
        all.depth.add([name], 0.0);
        all.adds.add([name], 0.0);
        all.retries.add([name], 0.0);
        all.progress().began.entry(name).or_default();
        Self { name, all }
    }

    /// A key was added that was not waiting already.
    pub fn added(&self) {
        self.all.depth.add([self.name], 1.0);
        self.all.adds.add([self.name], 1.0);
    }

    /// A waiting key was dropped.
    pub fn dropped(&self) {
        self.all.depth.add([self.name], -1.0);
    }

    /// A key is added again because its reconcile failed.
    pub fn retried(&self) {
        self.all.retries.add([self.name], 1.0);
    }

    /// A plan was wrong; `reason` is one of a few words.
    pub fn flawed(&self, reason: &'static str) {
        self.all.flawed.add([self.name, reason], 1.0);
    }

    /// A reconcile begins, after its key waited for `waited`. It ends when the returned value is dropped.
    pub fn taken(&self, waited: Duration) -> ReconcileTimer {
        self.all.depth.add([self.name], -1.0);
        self.all.waited.observe([self.name], waited.as_secs_f64());
        let began = Instant::now();
        let mut progress = self.all.progress();
        let ticket = progress.next;
        progress.next += 1;
        progress.began.entry(self.name).or_default().insert(ticket, began);
        drop(progress);
        ReconcileTimer { queue: self.clone(), ticket, began }
    }
}

/// A running reconcile.
#[derive(Debug)]
#[must_use = "the reconcile ends when this is dropped"]
pub struct ReconcileTimer {
    queue: QueueMeter,
    ticket: u64,
    began: Instant,
}

impl Drop for ReconcileTimer {
    fn drop(&mut self) {
        let QueueMeter { name, all } = &self.queue;
        if let Some(began) = all.progress().began.get_mut(name) {
            began.remove(&self.ticket);
        }
        all.worked.observe([name], self.began.elapsed().as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(queues: &QueueMetrics) -> String {
        let mut out = TextExposition::default();
        queues.collect(&mut out);
        out.finish()
    }

    #[tokio::test(start_paused = true)]
    async fn work_shows_while_it_lasts_and_is_timed_when_it_ends() {
        let all = Arc::new(QueueMetrics::default());
        let queue = QueueMeter::new("machine", all.clone());
        queue.added();
        queue.added();
        let working = queue.taken(Duration::from_millis(10));
        tokio::time::advance(Duration::from_secs(3)).await;

        let during = text(&all);
        for line in [
            r#"mcm_workqueue_depth{name="machine"} 1"#,
            r#"mcm_workqueue_adds_total{name="machine"} 2"#,
            r#"mcm_workqueue_unfinished_work_seconds{name="machine"} 3"#,
            r#"mcm_workqueue_longest_running_processor_seconds{name="machine"} 3"#,
            r#"mcm_workqueue_queue_duration_seconds_bucket{name="machine",le="9.999999999999999e-05"} 0"#,
            r#"mcm_workqueue_queue_duration_seconds_bucket{name="machine",le="0.01"} 1"#,
        ] {
            assert!(during.contains(line), "{line} is missing in\n{during}");
        }

        drop(working);
        let after = text(&all);
        assert!(after.contains(r#"mcm_workqueue_unfinished_work_seconds{name="machine"} 0"#), "{after}");
        assert!(after.contains(r#"mcm_workqueue_work_duration_seconds_sum{name="machine"} 3"#), "{after}");
    }
}
