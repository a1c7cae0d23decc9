//! Metric families that are updated when something happens.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{MetricDesc, TextExposition, series::SeriesGroup};

type SeriesMap<const N: usize, V> = BTreeMap<[String; N], V>;

/// Series by the values of their labels.
#[derive(Debug)]
struct SeriesTable<const N: usize, V>(Mutex<SeriesMap<N, V>>);

impl<const N: usize, V> Default for SeriesTable<N, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<const N: usize, V> SeriesTable<N, V> {
    fn lock(&self) -> MutexGuard<'_, SeriesMap<N, V>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn retain(&self, mut keep: impl FnMut(&[String; N]) -> bool) {
        self.lock().retain(|labels, _| keep(labels));
    }
}

/// Counters with the same name.
#[derive(Debug, Default)]
pub struct CounterFamily<const N: usize>(SeriesTable<N, f64>);

impl<const N: usize> CounterFamily<N> {
    /// Adds to a counter. Zero creates the series.
    pub fn add(&self, labels: [&str; N], by: f64) {
        *self.0.lock().entry(labels.map(str::to_owned)).or_default() += by;
    }

    /// Drops series.
    pub fn retain(&self, keep: impl FnMut(&[String; N]) -> bool) {
        self.0.retain(keep);
    }

    /// Adds all series.
    pub fn collect(&self, desc: &MetricDesc<N>, out: &mut TextExposition) {
        for (labels, value) in &*self.0.lock() {
            out.sample(desc, labels.each_ref().map(String::as_str), *value);
        }
    }
}

/// Gauges with the same name.
#[derive(Debug, Default)]
pub struct GaugeFamily<const N: usize>(SeriesTable<N, f64>);

impl<const N: usize> GaugeFamily<N> {
    /// Sets a value.
    pub fn set(&self, labels: [&str; N], value: f64) {
        self.0.lock().insert(labels.map(str::to_owned), value);
    }

    /// Changes a value, which starts at zero.
    pub fn add(&self, labels: [&str; N], by: f64) {
        *self.0.lock().entry(labels.map(str::to_owned)).or_default() += by;
    }

    /// Drops series.
    pub fn retain(&self, keep: impl FnMut(&[String; N]) -> bool) {
        self.0.retain(keep);
    }

    /// Adds all series.
    pub fn collect(&self, desc: &MetricDesc<N>, out: &mut TextExposition) {
        for (labels, value) in &*self.0.lock() {
            out.sample(desc, labels.each_ref().map(String::as_str), *value);
        }
    }

    /// Adds all series. Those with the value 0 are details of a group.
    pub fn collect_exceptions(&self, desc: &MetricDesc<N>, group: SeriesGroup, out: &mut TextExposition) {
        for (labels, value) in &*self.0.lock() {
            let labels = labels.each_ref().map(String::as_str);
            out.details_unless(*value != 0.0, group, |out| out.sample(desc, labels, *value));
        }
    }
}

/// Histograms with the same name and the same bounds.
#[derive(Debug)]
pub struct HistogramFamily<const N: usize> {
    bounds: Vec<f64>,
    table: SeriesTable<N, HistogramSeries>,
}

#[derive(Clone, Debug, Default)]
struct HistogramSeries {
    /// Counts per bucket, not cumulative; the last one is for values above all bounds.
    counts: Vec<u64>,
    sum: f64,
}

impl<const N: usize> HistogramFamily<N> {
    /// A histogram with ascending upper bounds.
    pub fn new(bounds: impl Into<Vec<f64>>) -> Self {
        Self { bounds: bounds.into(), table: SeriesTable::default() }
    }

    /// The default bounds of Go's Prometheus client, in seconds.
    pub fn with_default_bounds() -> Self {
        Self::new([0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0])
    }

    /// Exponential bounds, multiplied one by one as Go's Prometheus client does, with the same rounding errors.
    pub fn with_exponential_bounds(first: f64, factor: f64, count: usize) -> Self {
        Self::new(std::iter::successors(Some(first), |bound| Some(bound * factor)).take(count).collect::<Vec<_>>())
    }

    /// Counts a value.
    pub fn observe(&self, labels: [&str; N], value: f64) {
        let place = self.bounds.partition_point(|bound| *bound < value);
        let mut table = self.table.lock();
        let observed = table.entry(labels.map(str::to_owned)).or_default();
        observed.counts.resize(self.bounds.len() + 1, 0);
        if let Some(count) = observed.counts.get_mut(place) {
            *count += 1;
        }
        observed.sum += value;
    }

    /// Drops series.
    pub fn retain(&self, keep: impl FnMut(&[String; N]) -> bool) {
        self.table.retain(keep);
    }

    /// Adds all series.
    pub fn collect(&self, desc: &MetricDesc<N>, out: &mut TextExposition) {
        for (labels, observed) in &*self.table.lock() {
            let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
            let buckets = bounds.zip(observed.counts.iter().copied());
            out.histogram(desc, labels.each_ref().map(String::as_str), buckets, observed.sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_on_a_bound_belongs_below_it() {
        const H: MetricDesc<0> = MetricDesc::histogram("h", "Sizes.", []);
        let sizes = HistogramFamily::new([1.0, 2.0]);
        for value in [1.0, 1.5, 2.0, 9.0] {
            sizes.observe([], value);
        }
        let mut out = TextExposition::default();
        sizes.collect(&H, &mut out);
        let text = out.finish();
        assert!(
            text.contains("h_bucket{le=\"1\"} 1\nh_bucket{le=\"2\"} 3\nh_bucket{le=\"+Inf\"} 4\nh_sum 13.5\n"),
            "{text}"
        );
    }
}
