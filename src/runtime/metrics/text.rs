//! The Prometheus text format 0.0.4, with numbers formatted as in Go.
//!
//! Own code, because names and numbers are an interface: an OpenMetrics encoder appends `_total` to the counters of the
//! reference that lack it, and Rust prints `0.00000001` where a dashboard has `le="1e-08"`. A sample costs only its
//! text, which matters with tens of thousands of series.

use std::{collections::BTreeMap, fmt::Write};

use super::series::SeriesGroup;

/// Media type of the text of [`Exposition::finish`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A counter.
    Counter,
    /// A gauge.
    Gauge,
    /// A histogram.
    Histogram,
}

impl Kind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// Name, help text and labels of a family. The number of labels is part of its type.
#[derive(Clone, Copy, Debug)]
pub struct MetricDesc<const N: usize> {
    /// The exact name.
    pub name: &'static str,
    /// The help text.
    pub help: &'static str,
    /// Type of the family.
    pub kind: Kind,
    /// Names of the labels, in the order of the values.
    pub labels: [&'static str; N],
}

impl<const N: usize> MetricDesc<N> {
    /// Describes a counter.
    pub const fn counter(name: &'static str, help: &'static str, labels: [&'static str; N]) -> Self {
        Self { name, help, kind: Kind::Counter, labels }
    }

    /// Describes a gauge.
    pub const fn gauge(name: &'static str, help: &'static str, labels: [&'static str; N]) -> Self {
        Self { name, help, kind: Kind::Gauge, labels }
    }

    /// Describes a histogram.
    pub const fn histogram(name: &'static str, help: &'static str, labels: [&'static str; N]) -> Self {
        Self { name, help, kind: Kind::Histogram, labels }
    }
}

/// The response to one scrape under construction. Samples may be added in any order; families are sorted by name.
#[derive(Debug, Default)]
pub struct TextExposition {
    families: BTreeMap<&'static str, String>,
    /// Numbers of series that are left out, by the groups with aggregates.
    omitted: BTreeMap<SeriesGroup, u64>,
    /// Series of this group are counted, and not added.
    counting: Option<SeriesGroup>,
}

impl TextExposition {
    /// A response with aggregates in place of the series of single objects of some groups.
    pub fn aggregating(groups: impl IntoIterator<Item = SeriesGroup>) -> Self {
        let omitted = groups.into_iter().map(|group| (group, 0)).collect();
        Self { omitted, ..Self::default() }
    }

    /// Aggregates stand for the series of single objects of a group.
    pub fn has_aggregates(&self, group: SeriesGroup) -> bool {
        self.omitted.contains_key(&group)
    }

    /// The numbers of series that are left out so far.
    pub fn omitted(&self) -> impl Iterator<Item = (SeriesGroup, u64)> {
        self.omitted.iter().map(|(group, count)| (*group, *count))
    }

    /// Adds series of single objects of a group. If the group has aggregates, they are only counted.
    pub fn details(&mut self, group: SeriesGroup, add: impl FnOnce(&mut Self)) {
        let outer = self.counting;
        if outer.is_none() && self.has_aggregates(group) {
            self.counting = Some(group);
        }
        add(self);
        self.counting = outer;
    }

    /// Adds series that are [details](Self::details) unless the object is an exception.
    pub fn details_unless(&mut self, is_exception: bool, group: SeriesGroup, add: impl FnOnce(&mut Self)) {
        match is_exception {
            true => add(self),
            false => self.details(group, add),
        }
    }

    fn is_left_out(&mut self, series: u64) -> bool {
        let Some(group) = self.counting else { return false };
        let omitted = self.omitted.entry(group).or_default();
        *omitted = omitted.saturating_add(series);
        true
    }

    /// Adds a sample. The caller makes sure that no two samples have the same labels.
    pub fn sample<const N: usize>(&mut self, desc: &MetricDesc<N>, values: [&str; N], value: f64) {
        if self.is_left_out(1) {
            return;
        }
        let body = self.family(desc);
        body.push_str(desc.name);
        labels(body, desc.labels.into_iter().zip(values));
        body.push(' ');
        number(body, value);
        body.push('\n');
    }

    /// Adds a histogram: non-cumulative counts for each bound and one for values above all of them.
    pub fn histogram<const N: usize>(
        &mut self,
        desc: &MetricDesc<N>,
        values: [&str; N],
        buckets: impl IntoIterator<Item = (f64, u64)>,
        sum: f64,
    ) {
        let buckets: Vec<(f64, u64)> = buckets.into_iter().collect();
        // With the sum and the count.
        if self.is_left_out(buckets.len() as u64 + 2) {
            return;
        }
        let body = self.family(desc);
        let own = || desc.labels.into_iter().zip(values);
        let mut total = 0;
        for (bound, count) in buckets {
            total += count;
            let mut text = String::new();
            number(&mut text, bound);
            body.push_str(desc.name);
            body.push_str("_bucket");
            labels(body, own().chain([("le", text.as_str())]));
            let _ = writeln!(body, " {total}");
        }
        for (suffix, value) in [("_sum", sum), ("_count", total as f64)] {
            body.push_str(desc.name);
            body.push_str(suffix);
            labels(body, own());
            body.push(' ');
            number(body, value);
            body.push('\n');
        }
    }

    /// The whole text.
    pub fn finish(self) -> String {
        let mut text = String::with_capacity(self.families.values().map(String::len).sum());
        for body in self.families.into_values() {
            text.push_str(&body);
        }
        text
    }

    fn family<const N: usize>(&mut self, desc: &MetricDesc<N>) -> &mut String {
        self.families.entry(desc.name).or_insert_with(|| {
            let help = desc.help.replace('\\', r"\\").replace('\n', r"\n");
            format!("# HELP {name} {help}\n# TYPE {name} {kind}\n", name = desc.name, kind = desc.kind.as_str())
        })
    }
}

fn labels<'a>(body: &mut String, pairs: impl Iterator<Item = (&'static str, &'a str)>) {
    let mut opened = false;
    for (name, value) in pairs {
        body.push(if opened { ',' } else { '{' });
        opened = true;
        body.push_str(name);
        body.push_str("=\"");
        for character in value.chars() {
            match character {
                '\\' => body.push_str(r"\\"),
                '"' => body.push_str(r#"\""#),
                '\n' => body.push_str(r"\n"),
                other => body.push(other),
            }
        }
        body.push('"');
    }
    if opened {
        body.push('}');
    }
}

/// The shortest text that parses to the same number, with an exponent below 1e-4 and from 1e+6, as Go's `%g` prints it.
fn number(body: &mut String, value: f64) {
    if !value.is_finite() {
        body.push_str(if value.is_nan() {
            "NaN"
        } else if value > 0.0 {
            "+Inf"
        } else {
            "-Inf"
        });
        return;
    }
    let scientific = format!("{value:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    // Writing to a string cannot fail.
    let _ = if (-4..6).contains(&exponent) {
        write!(body, "{value}")
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        write!(body, "{digits}e{sign}{:02}", exponent.unsigned_abs())
    };
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(0.0, "0")]
    #[case(1.0, "1")]
    #[case(-4.0, "-4")]
    #[case(0.005, "0.005")]
    #[case(0.0001, "0.0001")]
    #[case(1e-8, "1e-08")]
    #[case(9.999_999_999_999_999e-6, "9.999999999999999e-06")]
    #[case(123_456.0, "123456")]
    #[case(1e6, "1e+06")]
    #[case(1_767_225_600.25, "1.76722560025e+09")]
    #[case(f64::INFINITY, "+Inf")]
    #[case(f64::NAN, "NaN")]
    fn numbers_look_as_in_go(#[case] value: f64, #[case] text: &str) {
        let mut out = String::new();
        number(&mut out, value);
        assert_eq!(out, text);
    }

    #[test]
    fn families_are_merged_sorted_and_escaped() {
        const B: MetricDesc<1> = MetricDesc::gauge("b", "Second.\nReally.", ["name"]);
        const A: MetricDesc<0> = MetricDesc::counter("a", "First.", []);
        let mut out = TextExposition::default();
        out.sample(&B, ["x\"y\\z\n"], 1.0);
        out.sample(&A, [], 3.0);
        out.sample(&B, ["w"], 2.5);
        assert_eq!(
            out.finish(),
            "# HELP a First.\n# TYPE a counter\na 3\n# HELP b Second.\\nReally.\n# TYPE b gauge\n\
             b{name=\"x\\\"y\\\\z\\n\"} 1\nb{name=\"w\"} 2.5\n"
        );
    }

    #[test]
    fn series_of_a_group_with_aggregates_are_counted_and_exceptions_are_added() {
        const A: MetricDesc<1> = MetricDesc::gauge("a", "Machines.", ["name"]);
        const B: MetricDesc<1> = MetricDesc::gauge("b", "Clusters.", ["name"]);
        const H: MetricDesc<0> = MetricDesc::histogram("h", "Sizes.", []);
        let (machines, clusters) = (SeriesGroup::Machines, SeriesGroup::Clusters);
        let mut out = TextExposition::aggregating([machines]);
        out.details(machines, |out| {
            out.sample(&A, ["x"], 1.0);
            out.details(clusters, |out| out.sample(&B, ["inner"], 1.0));
            out.histogram(&H, [], [(1.0, 1), (f64::INFINITY, 0)], 0.5);
        });
        out.details(clusters, |out| out.sample(&B, ["y"], 2.0));
        for (name, is_exception) in [("failed", true), ("running", false)] {
            out.details_unless(is_exception, machines, |out| out.sample(&A, [name], 3.0));
        }
        assert!(out.has_aggregates(machines) && !out.has_aggregates(clusters));
        assert_eq!(out.omitted().collect::<Vec<_>>(), [(machines, 7)]);
        assert_eq!(
            out.finish(),
            "# HELP a Machines.\n# TYPE a gauge\na{name=\"failed\"} 3\n# HELP b Clusters.\n# TYPE b gauge\nb{name=\"y\"} 2\n"
        );
    }

    #[test]
    fn a_histogram_counts_upwards() {
        const H: MetricDesc<1> = MetricDesc::histogram("h", "Sizes.", ["verb"]);
        let mut out = TextExposition::default();
        out.histogram(&H, ["GET"], [(0.1, 2), (1.0, 0), (f64::INFINITY, 1)], 7.5);
        assert_eq!(
            out.finish(),
            "# HELP h Sizes.\n# TYPE h histogram\nh_bucket{verb=\"GET\",le=\"0.1\"} 2\nh_bucket{verb=\"GET\",le=\"1\"} 2\n\
             h_bucket{verb=\"GET\",le=\"+Inf\"} 3\nh_sum{verb=\"GET\"} 7.5\nh_count{verb=\"GET\"} 3\n"
        );
    }
}
