//! The metrics registry, with the names of the Go reference.
//!
//! Counters and histograms are stored here; kinds bring their own ([`Metrics::of`]). Gauges of objects are computed from
//! the caches at each scrape, so that they are never stale and a series ends with its object.

mod caches;
mod drivers;
mod export;
mod family;
mod fences;
mod panics;
mod process;
mod queues;
mod requests;
mod series;
mod text;

use std::{
    any::{Any, TypeId},
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

pub use drivers::DriverMetrics;
pub(crate) use export::ExportGuard;
pub use family::{CounterFamily, GaugeFamily, HistogramFamily};
pub use queues::{QueueMeter, ReconcileTimer};
pub use requests::RequestMetrics;
pub use series::{MachineSeries, SeriesGroup};
pub use text::{CONTENT_TYPE, MetricDesc, TextExposition};

use queues::QueueMetrics;
use series::SeriesLimits;

use super::cache::{CacheableKind, ObjectCache};

/// A source that is read at each scrape. It must not block and must export each family once for all its objects.
pub trait MetricCollector: Any + Send + Sync {
    /// Adds its samples.
    fn collect(&self, out: &mut TextExposition);

    /// The number of clusters of which it has series.
    fn clusters(&self) -> usize {
        0
    }
}

/// All metrics of the process. Clones share them.
#[derive(Clone, Default)]
pub struct MetricsRegistry(Arc<RegistryState>);

#[derive(Default)]
struct RegistryState {
    drivers: DriverMetrics,
    events_dropped: CounterFamily<0>,
    exports: export::ExportRegistry,
    measures: Mutex<BTreeMap<TypeId, Arc<dyn MetricCollector>>>,
    queues: Arc<QueueMetrics>,
    requests: RequestMetrics,
    series: SeriesLimits,
    sources: Mutex<Vec<Weak<dyn MetricCollector>>>,
}

const EVENTS_DROPPED: MetricDesc<0> = MetricDesc::counter(
    "mcm_events_dropped_total",
    "Events that were not written, because of the rate limit or a failed write.",
    [],
);

const OMITTED: MetricDesc<1> = MetricDesc::gauge(
    "mcm_series_omitted",
    "Series of single objects that this scrape leaves out, because aggregates stand for them.",
    ["of"],
);

impl MetricsRegistry {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty registry that exports these series of single objects.
    pub fn with_series(choice: MachineSeries) -> Self {
        Self(Arc::new(RegistryState { series: SeriesLimits::new(choice), ..RegistryState::default() }))
    }

    /// Reads a source at each scrape, until the caller drops it. A standby attaches no source.
    pub fn attach<C: MetricCollector + 'static>(&self, source: &Arc<C>) {
        let source: Arc<dyn MetricCollector> = source.clone();
        self.sources().push(Arc::downgrade(&source));
    }

    /// Exports the objects of a cache until the returned value is dropped.
    pub(crate) fn export<K: CacheableKind>(
        &self,
        cache: &Arc<ObjectCache<K>>,
        export: fn(&[Arc<K>], &mut TextExposition),
    ) -> ExportGuard {
        self.0.exports.add(cache, export)
    }

    /// Metrics of driver calls.
    pub fn drivers(&self) -> &DriverMetrics {
        &self.0.drivers
    }

    /// The metrics of a kind: one instance for all cells, created at its first use.
    pub fn collector<M: MetricCollector + Default>(&self) -> Arc<M> {
        let mut measures = self.measures();
        let known = measures.entry(TypeId::of::<M>()).or_insert_with(|| Arc::new(M::default()));
        let known: Arc<dyn Any + Send + Sync> = Arc::<dyn MetricCollector>::clone(known);
        known.downcast().unwrap_or_default()
    }

    /// Metrics of API server requests.
    pub fn requests(&self) -> &RequestMetrics {
        &self.0.requests
    }

    /// Metrics of a queue, under its name in the reference.
    pub fn queue(&self, name: &'static str) -> QueueMeter {
        QueueMeter::new(name, self.0.queues.clone())
    }

    /// An event was dropped.
    pub fn event_dropped(&self) {
        self.0.events_dropped.add([], 1.0);
    }

    /// Renders all metrics in the Prometheus text format; see [`CONTENT_TYPE`].
    pub fn render(&self) -> String {
        let sources: Vec<_> = {
            let mut sources = self.sources();
            sources.retain(|source| source.strong_count() > 0);
            sources.iter().filter_map(Weak::upgrade).collect()
        };
        let clusters = sources.iter().map(|source| source.clusters()).max().unwrap_or_default();
        let clusters = clusters.max(self.0.requests.servers());
        let mut out = TextExposition::aggregating(self.0.series.aggregated(self.0.exports.machines(), clusters));
        self.0.drivers.collect(&mut out);
        self.0.queues.collect(&mut out);
        self.0.requests.collect(&mut out);
        self.0.events_dropped.collect(&EVENTS_DROPPED, &mut out);
        process::collect(&mut out);
        panics::collect(&mut out);
        fences::collect(&mut out);
        self.0.exports.collect(&mut out);
        self.measures().values().for_each(|measured| measured.collect(&mut out));
        sources.iter().for_each(|source| source.collect(&mut out));
        let omitted: Vec<_> = out.omitted().collect();
        omitted.into_iter().for_each(|(group, count)| out.sample(&OMITTED, [group.as_str()], count as f64));
        out.finish()
    }

    fn measures(&self) -> MutexGuard<'_, BTreeMap<TypeId, Arc<dyn MetricCollector>>> {
        self.0.measures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sources(&self) -> MutexGuard<'_, Vec<Weak<dyn MetricCollector>>> {
        self.0.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for MetricsRegistry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UP: MetricDesc<0> = MetricDesc::gauge("up", "It is there.", []);

    struct Source;

    impl MetricCollector for Source {
        fn collect(&self, out: &mut TextExposition) {
            out.sample(&UP, [], 1.0);
        }
    }

    #[test]
    fn series_of_a_source_end_with_it() {
        let metrics = MetricsRegistry::new();
        let source = Arc::new(Source);
        metrics.attach(&source);
        assert!(metrics.render().contains("\nup 1\n"));
        drop(source);
        assert!(!metrics.render().contains("\nup "));
    }

    #[test]
    fn a_scrape_says_how_many_series_it_leaves_out_and_a_small_process_leaves_out_none() {
        assert!(!MetricsRegistry::new().render().contains("mcm_series_omitted"));
        let text = MetricsRegistry::with_series(MachineSeries::Never).render();
        for group in ["machines", "clusters"] {
            assert!(text.contains(&format!("\nmcm_series_omitted{{of=\"{group}\"}} 0\n")), "{text}");
        }
    }

    #[derive(Default)]
    struct Steps(CounterFamily<0>);

    impl MetricCollector for Steps {
        fn collect(&self, out: &mut TextExposition) {
            self.0.collect(&MetricDesc::counter("steps_total", "Steps.", []), out);
        }
    }

    #[test]
    fn the_metrics_of_a_kind_are_shared_by_all_cells() {
        let metrics = MetricsRegistry::new();
        for _cell in 0..2 {
            metrics.clone().collector::<Steps>().0.add([], 1.0);
        }
        let text = metrics.render();
        assert!(text.contains("\nsteps_total 2\n"), "{text}");
    }
}
