//! The metric of panics.

use super::{MetricDesc, TextExposition};
use crate::panics;

const PANICS: MetricDesc<2> = MetricDesc::counter(
    "mcm_panics_total",
    "Panics that were caught, by kind of work and cell. Each is a bug in mcm.",
    ["where", "cell"],
);

pub(super) fn collect(out: &mut TextExposition) {
    for (place, cell, count) in panics::counts() {
        out.sample(&PANICS, [place, &cell], f64::from(count));
    }
}
