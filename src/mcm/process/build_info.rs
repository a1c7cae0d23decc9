//! This build, for metrics and `/configz`.

use super::drivers_of_build;
use mcm_runtime::metrics::{MetricCollector, MetricDesc, TextExposition};

const BUILD: MetricDesc<3> = MetricDesc::gauge(
    "mcm_build_info",
    "1, with version, commit and drivers of this build.",
    ["version", "commit", "drivers"],
);

/// The version of this build.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit of this build.
pub(crate) fn commit() -> &'static str {
    option_env!("MCM_COMMIT").unwrap_or("unknown")
}

/// The build as a metric.
pub(super) struct BuildInfo;

impl MetricCollector for BuildInfo {
    fn collect(&self, out: &mut TextExposition) {
        out.sample(&BUILD, [VERSION, commit(), &drivers_of_build().0.join(",")], 1.0);
    }
}
