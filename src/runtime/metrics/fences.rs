//! The metric of calls that were not sent, because their process might no longer act.

use super::{MetricDesc, TextExposition};
use crate::fence::FencedCall;

const REFUSED: MetricDesc<1> = MetricDesc::counter(
    "mcm_fence_refused_total",
    "Writes to API servers and calls of clouds that were not sent, because the process might no longer act.",
    ["call"],
);

pub(super) fn collect(out: &mut TextExposition) {
    for call in FencedCall::ALL {
        out.sample(&REFUSED, [call.as_str()], call.refused() as f64);
    }
}
