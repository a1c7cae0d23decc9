//! Metrics of driver calls.

use std::time::Duration;

use super::{Counters, Desc, Exposition, Histograms};

const DRIVER_DURATION: Desc<2> = Desc::histogram(
    "mcm_cloud_api_driver_request_duration_seconds",
    "Duration of successful driver calls in seconds.",
    ["provider", "operation"],
);
const DRIVER_FAILED: Desc<3> = Desc::counter(
    "mcm_cloud_api_driver_requests_failed_total",
    "Failed driver calls, by machine code.",
    ["provider", "operation", "error_code"],
);
/// Observes driver calls. As in the reference, failed calls are counted and successful ones timed.
#[derive(Debug)]
pub struct DriverMetrics {
    calls: Histograms<2>,
    calls_failed: Counters<3>,
}

impl Default for DriverMetrics {
    fn default() -> Self {
        Self { calls: Histograms::with_default_bounds(), calls_failed: Counters::default() }
    }
}

impl DriverMetrics {
    /// A driver call ended. The error is the number of a machine code.
    pub fn observed(&self, provider: &str, operation: &'static str, duration: Duration, result: Result<(), u8>) {
        match result {
            Ok(()) => self.calls.observe([provider, operation], duration.as_secs_f64()),
            Err(code) => self.calls_failed.add([provider, operation, &code.to_string()], 1.0),
        }
    }

    pub(super) fn collect(&self, out: &mut Exposition) {
        self.calls.collect(&DRIVER_DURATION, out);
        self.calls_failed.collect(&DRIVER_FAILED, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_counted_by_number_and_successes_timed() {
        let drivers = DriverMetrics::default();
        drivers.observed("aws", "create_machine", Duration::from_millis(300), Ok(()));
        drivers.observed("aws", "create_machine", Duration::from_secs(9), Err(8));
        let mut out = Exposition::default();
        drivers.collect(&mut out);
        let text = out.finish();
        for line in [
            r#"mcm_cloud_api_driver_requests_failed_total{provider="aws",operation="create_machine",error_code="8"} 1"#,
            r#"mcm_cloud_api_driver_request_duration_seconds_bucket{provider="aws",operation="create_machine",le="0.25"} 0"#,
            r#"mcm_cloud_api_driver_request_duration_seconds_count{provider="aws",operation="create_machine"} 1"#,
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }
}
