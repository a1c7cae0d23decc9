//! Decides how many series a scrape has: above a bound, aggregates stand for the series of single objects.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Most Machines whose series are exported one by one.
const MOST_MACHINES: usize = 1000;
/// Most clusters whose series are exported one by one. A cell has two.
const MOST_CLUSTERS: usize = 50;
/// How long aggregates stay after the last scrape above a bound, so that series near it do not come and go.
const STAYS: Duration = Duration::from_mins(10);

/// The choice of series (`--machine-series`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MachineSeries {
    /// Of single objects up to a bound, and aggregates above it.
    #[default]
    Auto,
    /// Of single objects.
    Always,
    /// Aggregates.
    Never,
}

impl MachineSeries {
    /// The value of the flag.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Always => "always",
            Self::Never => "never",
        }
    }
}

/// The objects whose series a scrape may leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SeriesGroup {
    /// Machines, and the properties of their deployments, sets and classes.
    Machines,
    /// Clusters: their caches and API servers.
    Clusters,
}

impl SeriesGroup {
    /// The value of a label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Machines => "machines",
            Self::Clusters => "clusters",
        }
    }
}

/// The bounds of a process.
#[derive(Debug)]
pub(super) struct SeriesLimits {
    choice: MachineSeries,
    machines: SeriesBound,
    clusters: SeriesBound,
}

impl Default for SeriesLimits {
    fn default() -> Self {
        Self::new(MachineSeries::default())
    }
}

impl SeriesLimits {
    pub fn new(choice: MachineSeries) -> Self {
        let [machines, clusters] = [MOST_MACHINES, MOST_CLUSTERS].map(SeriesBound::new);
        Self { choice, machines, clusters }
    }

    /// The groups with aggregates in a scrape of a process that has so many machines and clusters.
    pub fn aggregated(&self, machines: usize, clusters: usize) -> Vec<SeriesGroup> {
        let exceeded = [
            (SeriesGroup::Machines, self.machines.is_exceeded(machines)),
            (SeriesGroup::Clusters, self.clusters.is_exceeded(clusters)),
        ];
        let is_aggregated = |is_exceeded: bool| match self.choice {
            MachineSeries::Auto => is_exceeded,
            MachineSeries::Always => false,
            MachineSeries::Never => true,
        };
        exceeded.into_iter().filter(|(_, is_exceeded)| is_aggregated(*is_exceeded)).map(|(group, _)| group).collect()
    }
}

/// A bound of a size, and the time of the last scrape above it.
#[derive(Debug)]
struct SeriesBound {
    most: usize,
    exceeded_at: Mutex<Option<Instant>>,
}

impl SeriesBound {
    fn new(most: usize) -> Self {
        Self { most, exceeded_at: Mutex::default() }
    }

    /// A size is above the bound, or was lately.
    fn is_exceeded(&self, size: usize) -> bool {
        let mut exceeded_at = self.exceeded_at.lock();
        if size > self.most {
            *exceeded_at = Some(Instant::now());
        }
        exceeded_at.is_some_and(|at| at.elapsed() < STAYS)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn aggregates_begin_above_the_bound_and_stay_for_ten_minutes() {
        let limits = SeriesLimits::default();
        let aggregated = |machines| limits.aggregated(machines, 2);
        assert!(aggregated(1000).is_empty());
        assert_eq!(aggregated(1001), [SeriesGroup::Machines]);
        for minute in 1..10 {
            tokio::time::advance(Duration::from_mins(1)).await;
            assert_eq!(aggregated(1000), [SeriesGroup::Machines], "{minute}");
        }
        assert_eq!(aggregated(1001), [SeriesGroup::Machines]);
        tokio::time::advance(Duration::from_mins(10)).await;
        assert!(aggregated(1000).is_empty());
    }

    #[rstest]
    #[case::few(MachineSeries::Auto, 1000, 50, &[])]
    #[case::many_machines(MachineSeries::Auto, 10_000, 2, &[SeriesGroup::Machines])]
    #[case::many_clusters(MachineSeries::Auto, 10, 51, &[SeriesGroup::Clusters])]
    #[case::always(MachineSeries::Always, 10_000, 400, &[])]
    #[case::never(MachineSeries::Never, 0, 0, &[SeriesGroup::Machines, SeriesGroup::Clusters])]
    fn each_group_has_a_bound_unless_the_flag_decides(
        #[case] choice: MachineSeries,
        #[case] machines: usize,
        #[case] clusters: usize,
        #[case] aggregated: &[SeriesGroup],
    ) {
        assert_eq!(SeriesLimits::new(choice).aggregated(machines, clusters), aggregated);
    }
}
