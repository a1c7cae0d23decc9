//! The metric of panics.

use super::{Desc, Exposition};
use crate::panics;

const PANICS: Desc<2> = Desc::counter(
    "mcm_panics_total",
    "Panics that were caught, by kind of work and cell. Each is a bug in mcm.",
    ["where", "cell"],
);

pub(super) fn collect(out: &mut Exposition) {
    for (place, cell, count) in panics::counts() {
        out.sample(&PANICS, [place, &cell], f64::from(count));
    }
}
